#include "dataplane/tcp/tcp.h"

static const char *const drop_names[] = {
#define DROP(name, text) #name,
#include "dataplane/tcp/drop.def"
#undef DROP
};

static const char *const drop_texts[] = {
#define DROP(name, text) text,
#include "dataplane/tcp/drop.def"
#undef DROP
};

const char *tcp_drop_name(enum tcp_drop d)
{
    return drop_names[d];
}

const char *tcp_drop_text(enum tcp_drop d)
{
    return drop_texts[d];
}
