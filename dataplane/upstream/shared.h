/* What the cores share of upstreams: exact limits and retry budgets.
 *
 * May use: runtime, config/snapshot.h. Used by: limiter, core.
 *
 * Control prepares each snapshot before it is published: every upstream and endpoint in it gets an
 * object here, the same one as before if it was there in the last snapshot, so that limits hold
 * over a reload. The snapshot points to them, and each core joins them when it adopts it. One that
 * the newest snapshot no longer has is freed when every core has acknowledged that, has let go of
 * it and has taken its last message.
 *
 * Thread: the registry is control's. The objects' atomic parts are anybody's.
 */
#ifndef MILLRACE_DATAPLANE_UPSTREAM_SHARED_H
#define MILLRACE_DATAPLANE_UPSTREAM_SHARED_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "config/snapshot.h"
#include "runtime/list.h"
#include "runtime/mailbox.h"
#include "runtime/permits.h"
#include "runtime/retry_budget.h"

/* One limited thing. */
struct shared_limits {
    struct permits *requests, *connections;
    atomic_uint users; /* cores that have joined and not left */
};

struct endpoint_shared {
    struct shared_limits limits;
    struct list_node node_;
    uint32_t addr_;
    uint16_t port_;
    uint64_t gone_; /* version of the first snapshot without it; 0: it is in the newest */
    struct fence *fence_;
};

struct upstream_shared {
    struct shared_limits limits;
    _Alignas(64) atomic_uint queued; /* requests that wait for a permit of it or its endpoints */
    struct retry_budget budget;
    struct list_node node_;
    char name_[64];
    struct list_node endpoints_;
    uint64_t gone_;
    struct fence *fence_;
};

struct upstream_registry;

/* How the registry sees the cores. */
struct registry_cores {
    void *ctx;
    unsigned n;
    /* Lowest snapshot version that all cores have acknowledged; UINT64_MAX without cores. */
    uint64_t (*acked)(void *ctx);
    /* NULL while there is no such core. */
    struct mailbox *(*mailbox)(void *ctx, unsigned core);
};

struct upstream_registry *upstream_registry_new(const struct registry_cores *c); /* or NULL */

/* The cores are gone. NULL is a no-op. */
void upstream_registry_free(struct upstream_registry *r);

/* Sets the pointers in `s`. 0 or -ENOMEM. One that is prepared and not published does no harm. */
int upstream_registry_prepare(struct upstream_registry *r, struct snapshot *s);

/* `s` is prepared, has its version and is about to be published: puts its limits and budgets in
 * force, a moment before the cores get its other values. Also frees what can go. */
void upstream_registry_commit(struct upstream_registry *r, const struct snapshot *s);

/* Objects that are there, those on their way out included. */
unsigned upstream_registry_count(const struct upstream_registry *r);

#endif
