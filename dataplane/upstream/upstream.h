/* Upstreams of one core: endpoints, the choice between them, and pooled connections.
 *
 * May use: runtime, config/snapshot.h, stream, tcp. Used by: proxy, core.
 *
 * Objects are core-local and survive a reload by name (upstream) and address (endpoint): what runs
 * keeps the object it holds, a removed one goes when its last user has let go. All values are
 * copied out of the snapshot, so nothing here points into it after upstreams_apply() has returned.
 *
 * Thread: the owner core.
 */
#ifndef MILLRACE_DATAPLANE_UPSTREAM_UPSTREAM_H
#define MILLRACE_DATAPLANE_UPSTREAM_UPSTREAM_H

#include <stdbool.h>
#include <stdint.h>

#include "config/snapshot.h"
#include "dataplane/stream/stream.h"
#include "dataplane/tcp/tcp.h"
#include "runtime/list.h"
#include "runtime/rng.h"
#include "runtime/sched.h"
#include "runtime/slab.h"

#define UPSTREAM_NAME 64

struct upstream_counters {
    uint64_t requests, attempts, connects, connect_failed, reused, responses, resets, timeouts;
    uint64_t bytes_in, bytes_out;
};

struct upstream {
    struct list_node node_;      /* upstreams.all_ */
    struct list_node endpoints_; /* struct endpoint, in the order of the file */
    struct upstreams *set_;
    char name[UPSTREAM_NAME];
    uint32_t refs_;
    uint32_t nendpoints;
    uint32_t next_; /* round robin */
    bool removed_;
    bool named_; /* by the snapshot that is being applied */
    enum config_balance balance;
    uint64_t connect_timeout, request_timeout, idle_timeout;
    uint32_t pool;
    uint32_t active, idle; /* connections now */
    struct upstream_counters count;
};

struct endpoint {
    struct list_node node_;
    struct upstream *upstream;
    uint32_t addr; /* network order */
    uint16_t port; /* host order */
    bool removed_;
    uint32_t conns_; /* upconns alive */
    uint32_t active; /* of them in use */
    uint32_t nidle_;
    struct list_node idle_; /* most recently used first */
};

/* One connection to an endpoint. While in use its stream's wake-ups go to the user's task; while
 * idle, to a task of its own that closes it when the origin does. */
struct upconn {
    struct task task_;
    struct sleep idle_;
    struct list_node node_; /* endpoint.idle_ */
    struct stream *stream;
    struct endpoint *endpoint;
    uint32_t requests; /* served so far, the present one not counted */
    bool in_use_;
};

struct upstreams {
    struct sched *sched;
    struct tcp *tcp;
    struct rng rng;
    struct list_node all_;
    struct list_node *found_; /* of all_: looked up last; or NULL */
    struct upstream **by_index_; /* of the snapshot applied last */
    size_t nby_index_;
    struct slab conns_, endpoints_, upstreams_;
    bool closing_; /* nothing is pooled any more */
};

void upstreams_init(struct upstreams *u, struct sched *sched, struct tcp *tcp, uint64_t seed);
/* Closes pooled connections. No upconn may be in use and no reference held. */
void upstreams_fini(struct upstreams *u);

/* Takes over the upstreams of `s`. -ENOMEM leaves the old set in force. */
int upstreams_apply(struct upstreams *u, const struct snapshot *s);

/* The core's object for a config_upstream of the snapshot applied last, with a reference. */
struct upstream *upstream_get(struct upstreams *u, const struct snapshot *s,
                              const struct config_upstream *cfg);
void upstream_put(struct upstream *up);

/* Picks an endpoint by the upstream's balancer, `avoid` only when it is the one left. NULL: none.
 */
struct endpoint *upstream_pick(struct upstream *up, const struct endpoint *avoid);

/* A connection to `ep` for the caller's task, which is registered for both directions: a pooled
 * one that is alive, silent and not closed by the origin (*ret_reused), else (or with `fresh`) a
 * new one that is still connecting. -ENETUNREACH, -EADDRNOTAVAIL, -ENOBUFS as tcp_connect(). */
int pool_acquire(struct endpoint *ep, struct task *t, bool fresh, struct upconn **ret_conn,
                 bool *ret_reused);

/* Gives back a connection whose last exchange ended cleanly: kept for the next, or closed when the
 * pool is full or the endpoint has been removed. */
void pool_release(struct upconn *c);

/* Ends the connection: RST with `abort`, else FIN after what was written. */
void pool_discard(struct upconn *c, bool abort);

/* Closes every idle connection; those in use are closed when they are given back. */
void upstreams_close_idle(struct upstreams *u);

#endif
