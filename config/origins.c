#include <errno.h>
#include <stdlib.h>
#include "config/origins.h"
#include "config/place.h"

struct origins {
    const struct bind *bind;
    void *context;
    config_origin_fn *each;
    bool out_of_memory;
};

static const struct yaml_node *node_of(const struct bind *b, const struct config_key *k,
                                       const void *base)
{
    if (k->kind == CONFIG_VALUE)
        return bind_where(b, config_field(k, base), k->name);
    return config_list_count(k, base) ? bind_where(b, config_list_at(k, base, 0), "[]") : NULL;
}

static void on_value(void *context, const char *path, const struct config_key *k, const void *base)
{
    struct origins *o = context;
    const struct yaml_node *n = node_of(o->bind, k, base);
    char *text = NULL;
    size_t len;
    FILE *f = open_memstream(&text, &len);

    if (f)
        config_write_value(k, base, f);
    if (!f || fclose(f))
        o->out_of_memory = true;
    else
        o->each(o->context, path, text, n ? n->line : 0, n ? n->col : 0);
    free(text);
}

int origins_each(const struct bind *b, const struct snapshot *s, const char *path, void *context,
                 config_origin_fn *each)
{
    struct origins o = {.bind = b, .context = context, .each = each};
    int rc = config_place_each(s, path, &o, on_value);

    return o.out_of_memory ? -ENOMEM : rc;
}
