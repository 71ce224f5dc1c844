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

const struct config_listener *snapshot_listener(const struct snapshot *s, const char *name)
{
    for (size_t i = 0; i < s->nlisteners; i++)
        if (!strcmp(s->listeners[i].name, name))
            return &s->listeners[i];
    return NULL;
}
