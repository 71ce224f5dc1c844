/* What a reload changes, and what of that can be done without a restart.
 *
 * Listeners, routes, upstreams, timeouts and limits are live: a core takes them with the next
 * snapshot. Frozen keys (cores, ports, the admin socket, the log's file …) keep their old value
 * until a restart, and so do listeners on addresses that no running port has (held.h). Which is
 * which stands in the schema table.
 */
#ifndef MILLRACE_CONFIG_DIFF_H
#define MILLRACE_CONFIG_DIFF_H

#include <stdbool.h>
#include <stddef.h>
#include "config/snapshot.h"

struct config_change {
    char *key;       /* "upstreams[app].timeouts.connect"; list members go by their name */
    char *from, *to; /* as the file would write them; "(none)" on one side: added or removed */
    bool live;       /* false: keeps the old value until a restart */
};

struct config_diff {
    struct config_change *changes;
    size_t nchanges, nfrozen; /* nfrozen of them aren't live */
    void *arena_;
};

/* 0 or -ENOMEM. *ret holds copies only; free it with config_diff_fini(). */
int config_diff(const struct snapshot *before, const struct snapshot *after,
                struct config_diff *ret);
void config_diff_fini(struct config_diff *d);

/* The live keys of `after` and the frozen ones of `before`, as a snapshot of its own that shares
 * no memory with either, without draining listeners. An upstream on a subnet that only a new port
 * has can't be reached before the restart. Its version is `after`'s. 0 or -ENOMEM. */
int config_merge_live(const struct snapshot *before, const struct snapshot *after,
                      struct snapshot **ret);

#endif
