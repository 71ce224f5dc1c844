/* Upstreams of one core: endpoints, the choice between them, and connections to them.
 *
 * May use: runtime, config/snapshot.h, stream, tcp, http. Used by: proxy, core.
 *
 * Objects are core-local and survive a reload by name (upstream) and address (endpoint): what runs
 * keeps the object it holds, a removed one goes when its last user has let go. Nothing here points
 * into a snapshot after upstreams_apply() has returned but `cfg`, which moves to the new one in the
 * same act and is NULL once the upstream is removed.
 *
 * Thread: the owner core.
 */
#ifndef MILLRACE_DATAPLANE_UPSTREAM_UPSTREAM_H
#define MILLRACE_DATAPLANE_UPSTREAM_UPSTREAM_H

#include <stdbool.h>
#include <stdint.h>

#include "config/snapshot.h"
#include "dataplane/stream/proxy_header.h"
#include "dataplane/stream/stream.h"
#include "dataplane/tcp/tcp.h"
#include "dataplane/upstream/balance.h"
#include "dataplane/upstream/endpoint_state.h"
#include "dataplane/upstream/limiter.h"
#include "runtime/list.h"
#include "runtime/rng.h"
#include "runtime/sched.h"
#include "runtime/slab.h"

#define UPSTREAM_NAME 64

struct upstream_counters {
    uint64_t requests, attempts, connects, connect_failed, reused, responses, resets, timeouts;
    uint64_t bytes_in, bytes_out;
    uint64_t retries;      /* decided */
    uint64_t no_budget;    /* retries that the budget didn't allow */
    uint64_t no_endpoint;  /* requests that found none usable */
    uint64_t pool_waits;   /* requests that waited for a connection to come free */
    uint64_t pool_timeout; /* and got none in time */
};

struct upstream {
    struct list_node node_;      /* upstreams.all_ */
    struct list_node endpoints_; /* struct endpoint */
    struct upstreams *set_;
    char name[UPSTREAM_NAME];
    uint32_t refs_;
    uint32_t nendpoints;
    bool removed_;
    bool named_;            /* by the snapshot that is being applied */
    struct balance balance; /* among those that are used now */
    const struct config_upstream *cfg;
    struct balance_tables fresh_; /* of an apply that is under way */
    uint32_t panic_;              /* % */
    uint32_t consecutive_;        /* failures in a row that are worth a report; 0: none are */
    uint64_t connect_timeout, request_timeout, idle_timeout;
    struct config_pool pool;
    struct config_retries retries;
    const char *deadline_header; /* of cfg */
    uint64_t try_timeout;
    unsigned proxy_protocol; /* version of the PROXY header that connections begin with; 0: none */
    struct limiter limiter;
    uint32_t active, idle; /* connections now */
    struct upstream_counters count;
};

struct endpoint_counters {
    uint64_t picks,
        failures; /* attempts begun, and those that went wrong by the endpoint's fault */
    uint64_t connects, reused;
    uint64_t ejections;
};

struct probe;

struct endpoint {
    struct list_node node_;
    struct upstream *upstream;
    uint32_t addr; /* network order */
    uint16_t port; /* host order */
    uint16_t weight;
    uint16_t place_; /* in upstream.balance; BALANCE_NOWHERE: not used now */
    uint8_t flags;   /* enum endpoint_flags, as control decided */
    bool backup;
    bool removed_;
    bool named_;              /* by the snapshot that is being adopted */
    uint32_t active;          /* connections in use */
    uint32_t conns_;          /* upconns alive */
    uint32_t refs_;           /* exchanges and tunnels that hold it */
    struct limiter_side side; /* its own limits */
    uint32_t warming_;
    uint32_t nidle_;
    uint32_t granted_;         /* waiters that were told to go ahead */
    struct list_node idle_;    /* most recently used first */
    struct list_node opening_; /* the warming_ ones */
    struct list_node waiters_; /* struct pool_wait, oldest first */
    struct list_node granted_list_;
    struct list_node warm_node_; /* upstreams.warm_: has fewer connections than pool.min */
    uint64_t warm_at_, warm_backoff_;
    uint32_t failed_in_a_row_;
    struct endpoint_tally *tally_; /* NULL: the upstream ejects none */
    struct probe *probe_;          /* NULL: not probed, or by another core */
    struct list_node report_node_; /* upstreams.reports_: has something to tell */
    struct endpoint_counters count;
};

/* What allows one connection. Zeroed: nothing is held. */
struct conn_permits {
    struct leased_permit upstream, endpoint;
};
void conn_permits_put(struct conn_permits *p);

/* Whose connections to origins are nobody else's, since a PROXY header has told the origin whose
 * they are: a client's connection. Zeroed before use. */
struct pool_owner {
    struct list_node conns_; /* struct upconn */
};
/* The client's connection has ended, and nothing of it is in use any more: closes them. */
void pool_owner_end(struct pool_owner *o);

/* One connection to an endpoint. While in use its stream's wake-ups go to the user's task; before
 * (opened ahead) and between, to a task of its own that closes it when the origin does. */
struct upconn {
    struct task task_;
    struct sleep idle_;
    struct list_node node_;       /* endpoint.idle_ or opening_ */
    struct list_node owner_node_; /* pool_owner.conns_; unlinked: anybody's */
    struct stream *stream;
    struct endpoint *endpoint;
    struct conn_permits permits_;
    uint32_t requests;   /* served so far, the present one not counted */
    uint8_t state_;      /* enum upconn_state */
    uint8_t greeted_;    /* version of the PROXY header that was sent on it; 0: none */
    uint64_t expires_;   /* end of its life; UINT64_MAX: none */
    uint64_t keep_alive; /* what the origin announced, ns; 0: nothing */
};

struct upstreams_opts {
    struct sched *sched;
    struct tcp *tcp;
    struct rope_pool *ropes;
    struct mailbox *mailbox; /* the core's */
    uint64_t seed;
    unsigned core, cores; /* an upstream is probed by one of them */
    /* Takes in what has been received since the pass began, so that a FIN that has arrived is
     * seen before a pooled connection is used again. May be NULL. */
    void (*receive)(void *ctx);
    /* upstreams_take_reports() has something to give. May be NULL. */
    void (*on_report)(void *ctx);
    void *ctx;
};

struct upstreams {
    struct upstreams_opts o_;
    struct sched *sched;
    struct tcp *tcp;
    struct rng rng;
    struct list_node all_;
    struct list_node *found_;    /* of all_: looked up last; or NULL */
    struct upstream **by_index_; /* of the snapshot applied last */
    size_t nby_index_;
    struct slab conns_, endpoints_, upstreams_, tallies_, probes_;
    struct list_node warm_; /* struct endpoint */
    struct task warmer_;
    struct sleep warmer_sleep_;
    struct list_node reports_; /* struct endpoint */
    char *scratch_;            /* of probes */
    bool closing_;             /* nothing is pooled or probed any more */
};

void upstreams_init(struct upstreams *u, const struct upstreams_opts *o);
/* Closes pooled connections. No upconn may be in use and no reference held. */
void upstreams_fini(struct upstreams *u);

/* Takes over the upstreams of `s`. -ENOMEM leaves the old set in force. */
int upstreams_apply(struct upstreams *u, const struct snapshot *s);

/* The core's object for a config_upstream of the snapshot applied last, with a reference. */
struct upstream *upstream_get(struct upstreams *u, const struct snapshot *s,
                              const struct config_upstream *cfg);
void upstream_put(struct upstream *up);

/* Endpoints that one request has tried in vain, the last ones; compared, never followed. Zeroed:
 * none. */
#define TRIED_MAX 4
struct tried {
    const struct endpoint *endpoints[TRIED_MAX];
    uint8_t n;
};
void tried_add(struct tried *t, const struct endpoint *ep);
bool tried_has(const struct tried *t, const struct endpoint *ep);

/* Picks an endpoint by the upstream's balancer. One that is in `t` only when there is no other: who
 * has tried all that are used goes to ejected ones first, since an ejection only foretells what an
 * attempt finds out; and has then tried none but the last. `hash` is for consistent hashing, others
 * ignore it. NULL: none is usable. */
struct endpoint *upstream_pick(struct upstream *up, uint64_t hash, struct tried *t);

/* The same for a first attempt, or any other than `avoid` (may be NULL) if there is one. */
struct endpoint *upstream_pick_other(struct upstream *up, uint64_t hash,
                                     const struct endpoint *avoid);

/* What an attempt on `ep` came to. */
enum attempt_result {
    ATTEMPT_OK,     /* an answer, but 5xx */
    ATTEMPT_FAILED, /* 5xx, no connection, no answer, no answer in time */
};
/* Once for each attempt that says something about the endpoint. `latency`: request sent to head
 * received, ns; with ATTEMPT_OK, 0: not known. */
void endpoint_judge(struct endpoint *ep, enum attempt_result r, uint64_t latency);

/* What control decided. False: there is no such endpoint here. */
bool upstreams_set_endpoint(struct upstreams *u, const struct endpoint_update *update);

/* Fills `ret` with what is new about endpoints; `all`: also with tallies that aren't worth a report
 * by themselves. How many; `max`: there may be more. */
unsigned upstreams_take_reports(struct upstreams *u, bool all, struct endpoint_report *ret,
                                unsigned max);

/* A place in the queue for a connection to an endpoint that has as many as it may. Zero before
 * use; embedded by the one who waits. */
struct pool_wait {
    struct list_node node_;
    struct task *task_;
    struct endpoint *endpoint; /* NULL: not waiting, or the endpoint is no longer used */
    bool granted;              /* call pool_acquire() again, it will not be -EAGAIN */
};

/* A connection to `ep` for the caller's task, which is registered for both directions: a pooled
 * one that is alive, silent and not closed by the origin (*ret_reused), else (or with `fresh`) a
 * new one that is still connecting. -EAGAIN: all are in use, `wait` is in the queue and the task is
 * woken when it is granted one or the endpoint is no longer used. -EDQUOT: a new one needs a permit
 * from *ret_from; get it into the right half of `permits` and come again. What is in `permits` is
 * used for a new connection, or else given back. -ENETUNREACH, -EHOSTUNREACH, -EADDRNOTAVAIL,
 * -ENOBUFS as tcp_connect(). */
struct pool_request {
    struct task *task;
    bool fresh;
    struct pool_wait *wait;
    struct conn_permits *permits;
    struct pool_owner *owner; /* NULL: what it takes is never given back to the pool */
};
struct pool_grant {
    struct upconn *conn;
    bool reused;
    struct permits_core *from;
};
int pool_acquire(struct endpoint *ep, const struct pool_request *r, struct pool_grant *ret_grant);

/* The connection stands and nothing has been written to it yet: says whose it is, if the upstream
 * wants to be told. 0, or -errno: the connection is of no use. */
static inline bool upconn_wants_header(const struct upconn *c)
{
    return c->endpoint->upstream->proxy_protocol != 0 && c->greeted_ == 0;
}
int upconn_greet(struct upconn *c, const struct proxy_header *h);

/* An attempt goes there: counts it, and keeps the object meanwhile, also when it is removed. */
void endpoint_hold(struct endpoint *ep);
void endpoint_release(struct endpoint *ep);

/* Leaves the queue, or lets the next one have what was granted. Idempotent, also when zero. */
void pool_wait_cancel(struct pool_wait *wait);

/* Gives back a connection whose last exchange ended cleanly: kept for the next, or closed when the
 * pool is full, its time is over or the endpoint isn't used any more. */
void pool_release(struct upconn *c);

/* Ends the connection: RST with `abort`, else FIN after what was written. */
void pool_discard(struct upconn *c, bool abort);

/* Closes every idle connection and ends probes; connections in use are closed when they are given
 * back. */
void upstreams_close_idle(struct upstreams *u);

#endif
