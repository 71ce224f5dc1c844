/* Steps that turn filled structs into a snapshot. */
#ifndef MILLRACE_CONFIG_RESOLVE_H
#define MILLRACE_CONFIG_RESOLVE_H

#include <stdbool.h>
#include "config/arena.h"
#include "config/snapshot.h"

/* Upstreams by name; of several with one name, any. NULL array: out of memory. */
struct upstream_index {
    const struct config_upstream **sorted;
    size_t count;
};

struct upstream_index upstream_index_make(const struct snapshot *s, struct arena *a);
const struct config_upstream *upstream_index_find(const struct upstream_index *x, const char *name);

/* Calls `each` for every reference to an upstream. */
void config_each_reference(const struct snapshot *s, void *context,
                           void (*each)(void *context, const struct config_upstream **ref));

/* What follows from the keys, in its arena: the routes' order, flags, hash tables. References are
 * in place. False: out of memory. */
bool config_finish(struct snapshot *s);

#endif
