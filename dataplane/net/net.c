#include "dataplane/net/net.h"

static const char *const drop_names[] = {
#define DROP(name, text) #name,
#include "dataplane/net/drop.def"
#undef DROP
};

static const char *const drop_texts[] = {
#define DROP(name, text) text,
#include "dataplane/net/drop.def"
#undef DROP
};

const char *net_drop_name(enum net_drop d)
{
    return drop_names[d];
}

const char *net_drop_text(enum net_drop d)
{
    return drop_texts[d];
}
