/* Listeners of a new configuration that can't be opened before a restart: their address belongs to
 * no port that runs, or is still held by a listener that has to wait itself. A listener that runs
 * already keeps its address until then; a new one isn't there. */
#ifndef MILLRACE_CONFIG_HELD_H
#define MILLRACE_CONFIG_HELD_H

#include <stdbool.h>
#include <stddef.h>
#include "config/arena.h"
#include "config/snapshot.h"

struct config_held {
    const struct config_listener **list; /* of `after` */
    size_t count;
};

/* 0 or -ENOMEM. The list is in `a`. */
int config_held_find(const struct snapshot *before, const struct snapshot *after, struct arena *a,
                     struct config_held *ret);

/* `listener` is a struct config_listener of `after`; anything else isn't held. */
bool config_held_has(const struct config_held *h, const void *listener);

#endif
