#include <string.h>
#include "config/arena.h"
#include "config/snapshot.h"

/* The snapshot itself lives in its arena. */
void snapshot_free(struct snapshot *s)
{
    if (s)
        arena_free(s->arena_);
}

const struct config_upstream *snapshot_upstream(const struct snapshot *s, const char *name)
{
    for (size_t i = 0; i < s->nupstreams; i++)
        if (!strcmp(s->upstreams[i].name, name))
            return &s->upstreams[i];
    return NULL;
}

bool config_listener_is_same(const struct config_listener *a, const struct config_listener *b)
{
    return a->address.port == b->address.port && a->address.addr == b->address.addr &&
           !a->http == !b->http && !strcmp(a->name, b->name);
}

const struct config_listener *snapshot_listener(const struct snapshot *s, const char *name)
{
    for (size_t i = 0; i < s->nlisteners; i++)
        if (!strcmp(s->listeners[i].name, name))
            return &s->listeners[i];
    return NULL;
}
