/* Admission to an upstream and its endpoints, one core's side: permits that are exact over all
 * cores, and the queue for them.
 *
 * May use: runtime, shared. Used by: cluster, pool, proxy.
 *
 * A request holds a permit of the upstream and one of its endpoint while an attempt is under way,
 * and gives both up in back-off. A connection, in use or idle, holds one of each for connections;
 * an idle one, or one that is being opened ahead of requests, is closed when somebody waits for a
 * connection.
 *
 * The queue is bounded over all cores together and over all limits of one upstream. Within a core
 * the highest priority goes first, and in it the oldest. With `adaptive` order, a queue whose
 * oldest has waited longer than the target for LIMITER_INTERVAL_NS is overload: then the newest
 * goes first, since it can still be answered in time, and who has waited longer than the interval
 * is refused (CoDel's idea of a standing queue, applied to requests). A request that can't be
 * answered before its deadline, by the quickest answer of late, is refused before it is started.
 *
 * Thread: the owner core.
 */
#ifndef MILLRACE_DATAPLANE_UPSTREAM_LIMITER_H
#define MILLRACE_DATAPLANE_UPSTREAM_LIMITER_H

#include <stdbool.h>
#include <stdint.h>

#include "config/snapshot.h"
#include "dataplane/upstream/shared.h"
#include "runtime/permits.h"
#include "runtime/retry_budget.h"

#define LIMITER_INTERVAL_NS 100000000ull
#define LIMITER_WINDOW_NS   5000000000ull /* of the quickest answer */

/* The core's half of a struct shared_limits. */
struct limiter_side {
    struct shared_limits *shared;
    struct permits_core *requests, *connections;
    /* Someone waits for a connection permit: closes up to `n` connections that are idle or being
     * opened ahead. May be NULL. */
    void (*close_idle)(void *ctx, uint32_t n);
    void *ctx;
};

struct limiter_counters {
    uint64_t queued, queue_full, queue_timeout, too_late, shed;
};

struct limiter {
    struct limiter_side side;
    struct upstream_shared *shared;
    struct retry_budget_core budget;
    uint32_t queue_max;
    uint64_t queue_timeout, target;
    bool adaptive;
    struct list_node waiting_[CONFIG_PRIORITIES]; /* struct admission, oldest first */
    uint64_t calm_;                 /* last time that the queue was empty or its oldest young */
    uint64_t quickest_[2], window_; /* answers' least time, in this window and the last */
    struct limiter_counters count;
};

extern const struct permits_discipline limiter_discipline;

/* permits_opts.wanted of connection permits: asks the side to close idle connections. */
void limiter_connection_wanted(struct permits_core *c);

void limiter_side_join(struct limiter_side *side, struct shared_limits *shared, unsigned core,
                       struct sched *s, struct mailbox *mb);
/* Everything must be back (asserted). */
void limiter_side_leave(struct limiter_side *side);

void limiter_init(struct limiter *l, struct upstream_shared *shared, unsigned core, struct sched *s,
                  struct mailbox *mb);
void limiter_fini(struct limiter *l);

/* Takes over the settings; waiters go by them from the next permit on. */
void limiter_apply(struct limiter *l, const struct config_limits *cfg);

/* An answer's head took that long from the moment the request was admitted, ns. */
void limiter_answered(struct limiter *l, uint64_t now, uint64_t ns);

/* The least time that an answer takes, ns; 0: not known. */
uint64_t limiter_quickest(const struct limiter *l);

/* One wait for one permit. Zeroed: idle. Cancel safe: admission_cancel() loses the place only. */
struct admission {
    struct permits_acquire acquire_;
    struct list_node node_;
    struct limiter *limiter_; /* NULL: not waiting */
    uint64_t since_, deadline_;
};

/* A permit out of `from`: 0, and `ret_permit` holds it; or -EAGAIN: the admission is in the queue,
 * poll it; or
 *   -EBUSY     the queue is full
 *   -ETIME     no time left to be answered
 *   -ESHUTDOWN the upstream is gone.
 * `deadline` is the request's, absolute ns. */
int admission_begin(struct admission *a, struct limiter *l, struct permits_core *from,
                    enum config_priority p, struct task *t, uint64_t now, uint64_t deadline,
                    struct leased_permit *ret_permit);

/* 0, -EAGAIN (the task will be woken), or as above, and
 *   -ETIMEDOUT queue_timeout or the deadline has passed
 *   -ECANCELED shed by the adaptive order. */
int admission_poll(struct admission *a, struct task *t, struct leased_permit *ret_permit);

/* Leaves the queue; idempotent. */
void admission_cancel(struct admission *a);

static inline bool admission_is_waiting(const struct admission *a)
{
    return a->limiter_ != NULL;
}

#endif
