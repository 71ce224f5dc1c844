/* What is published: the configuration, with what was set by hand on top of it, and with the
 * listeners that are gone from it but still have connections.
 */
#ifndef MILLRACE_CONFIG_BUILD_H
#define MILLRACE_CONFIG_BUILD_H

#include "config/overrides.h"
#include "config/snapshot.h"

struct config_build {
    const struct snapshot *base;
    const struct config_overrides *overrides; /* NULL: none */
    /* What runs now; NULL: nothing. Its listeners, open or draining, that `base` has no more will
     * drain, with the upstreams that they need. */
    const struct snapshot *running;
    /* Leaves one out: nothing of it is left. NULL: all are kept. */
    bool (*is_empty)(void *ctx, const struct config_listener *l);
    void *ctx;
};

/* A snapshot of its own that shares no memory with the others; its version is the base's. -ENOMEM,
 * -ENOENT (an override's path leads to nothing in `base`) or -EINVAL (its value isn't right), with
 * *ret_override (may be NULL) its index and a line in err. */
int config_build(const struct config_build *b, struct snapshot **ret, size_t *ret_override,
                 char *err, size_t err_len);

#endif
