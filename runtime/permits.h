/* Leased permits: one limit over all cores, exact, and without a shared cache line that anyone
 * writes while nobody has to wait.
 *
 * Each core leases permits from one atomic word in chunks of max(1, limit / (8 * cores)) and serves
 * its tasks from them; it keeps at most two chunks unused, and gives them back when it has not
 * needed any for PERMITS_IDLE_NS. As soon as any core waits (one bit a core), the caches of all
 * drop to nothing, what is released goes to the word, and the waiting cores get it in turn, by a
 * message to their mailbox. Cores take turns; within a core it is first in, first out, or what the
 * discipline says. Who comes while others wait queues behind them. A cache from before the limit
 * fell isn't used any more.
 *
 * Exactly: permits in flight, all cores together, never exceed the limit at any instant. After
 * permits_set_limit() with a lower one has returned, nothing is granted until what is in flight is
 * under it. Not exactly: permits_try() can fail while up to a quarter of the limit rests in other
 * cores' caches; it asks them to give it back. A wait asks too, and gets it.
 *
 * Errors: -EBUSY this core's queue is full, -ETIMEDOUT, -ESHUTDOWN closed, -EAGAIN (try).
 * Acquiring is cancel safe: a drop gives up the place, or the permit if it had been granted.
 *
 * Life: control makes the object, each core joins, and later leaves; the object may be freed when
 * every core has left, has passed a pass in which it could have used it (QSBR), and has drained its
 * mailbox since.
 *
 * Thread: a struct permits_core and all that takes one belongs to its core; what takes a struct
 * permits may be called from any thread.
 */
#ifndef MILLRACE_RUNTIME_PERMITS_H
#define MILLRACE_RUNTIME_PERMITS_H

#include <assert.h>
#include <errno.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "runtime/counter.h"
#include "runtime/future.h"
#include "runtime/list.h"
#include "runtime/mailbox.h"
#include "runtime/sched.h"
#include "runtime/timer.h"

#define PERMITS_MAX_CORES 64
#define PERMITS_IDLE_NS   10000000ull

struct permits;
struct permits_core;
struct permits_acquire;

/* Which of a core's waiters goes next. Static. `pick` is called when a permit is there for one; it
 * may first refuse some with permits_refuse(), and returns one that waits, or NULL when none is
 * left. To keep data of its own per waiter, embed struct permits_acquire. */
struct permits_discipline {
    const char *name;
    struct permits_acquire *(*pick)(struct permits_core *c, uint64_t now);
};
extern const struct permits_discipline permits_fifo;

struct permits_opts {
    uint32_t limit;
    unsigned cores;                              /* 1 to PERMITS_MAX_CORES */
    uint32_t queue;                              /* waiters of each core, at the most */
    const struct permits_discipline *discipline; /* NULL: permits_fifo */
    /* Called on every core that has joined, from its mailbox, when someone begins to wait (and
     * sometimes while someone does): a chance to release what is held without need (idle
     * connections). Whoever releases later looks at permits_is_wanted(). May be NULL. */
    void (*wanted)(struct permits_core *c);
};

struct permits_core {
    /* The core's own. */
    struct permits *permits_;
    uint32_t cached_;     /* leased and unused */
    uint32_t cached_max_; /* two chunks, at the size of the last lease */
    uint64_t epoch_;      /* of permits_, under which the cache was leased */
    struct counter in_use_;
    bool keeps_; /* what is released may be cached; others know (holders_) */
    bool used_;  /* the cache, since the idle timer looked */
    bool left_;
    uint8_t index_;
    uint32_t nqueue_;
    struct list_node queue_; /* struct permits_acquire */

    _Alignas(64) struct sched *sched_;
    struct timer idle_;
    void *user; /* for `wanted`; set it after joining */
    /* How waits began and ended. */
    struct counter waits, refused, timed_out, waiting;

    /* Written by whoever has a message. */
    _Alignas(64) _Atomic uint32_t gifts_; /* permits leased for us by others */
    struct mailbox_item item_;
    struct mailbox *mailbox_;
};

struct permits {
    /* Read by all, written only when a wait begins or ends, or the limit changes. */
    _Alignas(64) atomic_uint_fast64_t waiting_; /* cores with a queue */
    atomic_uint_fast64_t epoch_;                /* moves when the limit falls; bit 0: closed */
    unsigned ncores_;
    uint32_t queue_max_;
    const struct permits_discipline *discipline_;
    void (*wanted_)(struct permits_core *c);

    /* Written once a lease. */
    _Alignas(64) atomic_uint_fast64_t word_; /* limit << 32 | permits leased */
    atomic_uint_fast64_t holders_;           /* cores that may have some cached */
    atomic_uint_fast64_t joined_;
    atomic_uint last_; /* core that had the last turn */

    struct permits_core cores_[];
};

/* Zeroed: none held. Belongs to the core that acquired it. */
struct leased_permit {
    struct permits_core *core_;
};

/* A future: status 0 (the permit is in `permit`), -EBUSY, -ETIMEDOUT or -ESHUTDOWN. What is free at
 * the first poll is granted whatever the time. */
struct permits_acquire {
    struct future future;
    struct leased_permit permit; /* once granted; take it, or the drop gives it back */
    uint64_t deadline;           /* absolute ns; UINT64_MAX: none. For disciplines to read */
    uint64_t since;              /* when the wait began, absolute ns */
    struct permits_core *core_;
    struct task *task_; /* while waiting */
    struct list_node node_;
    struct sleep sleep_;
};

/* Set-up thread. 0 or -ENOMEM. */
int permits_new(const struct permits_opts *o, struct permits **ret_permits);

/* See "Life" above; everything must be back (asserted). NULL is a no-op. */
void permits_free(struct permits *p);

/* Any thread. In force when it returns; a raised limit lets waiters in by messages. No-op after
 * permits_close(). */
void permits_set_limit(struct permits *p, uint32_t limit);

/* Any thread. Who comes gets -ESHUTDOWN from now on, who waits as soon as its core has drained its
 * mailbox. Permits that are out stay good. Idempotent. */
void permits_close(struct permits *p);

uint32_t permits_limit(const struct permits *p);

/* Permits in flight: the sum of what the cores tell at about the same time. */
uint32_t permits_in_use(const struct permits *p);

/* The same and what rests in caches; exact. */
uint32_t permits_leased(const struct permits *p);

/* Waiters of all cores; and how waits began and ended. */
struct permits_stats {
    uint64_t waits, refused, timed_out;
    uint32_t waiting;
};
void permits_stats_get(const struct permits *p, struct permits_stats *ret_stats);

/* The owner's, once for each index under opts.cores. */
struct permits_core *permits_join(struct permits *p, unsigned index, struct sched *s,
                                  struct mailbox *mb);

/* Fails those who wait with -ESHUTDOWN and gives back what is cached. Everything this core had in
 * flight must be back (asserted). */
void permits_leave(struct permits_core *c);

void permits_acquire_init(struct permits_acquire *a, struct permits_core *c, uint64_t deadline);

/* Ends a wait: the future becomes ready with `status`. Only for one that waits. */
void permits_refuse(struct permits_acquire *a, int status);

/* The queue, for disciplines: oldest first. NULL at the end. */
struct permits_acquire *permits_queue_first(struct permits_core *c);
struct permits_acquire *permits_queue_last(struct permits_core *c);
struct permits_acquire *permits_queue_next(struct permits_core *c, struct permits_acquire *a);

/* Out-of-line halves of the two below. */
int permits_try_slow_(struct permits_core *c, struct leased_permit *ret_permit);
void permits_put_slow_(struct permits_core *c);

/* Someone waits somewhere: better not hold on to what isn't needed. */
static inline bool permits_is_wanted(const struct permits_core *c)
{
    return atomic_load_explicit(&c->permits_->waiting_, memory_order_relaxed) != 0;
}

/* The cache may be used: nobody waits and the limit hasn't fallen. Relaxed is enough, because who
 * changes either also sends a message to every core that keeps a cache; what is seen here only
 * makes it sooner. */
static inline bool permits_is_calm_(const struct permits_core *c)
{
    const struct permits *p = c->permits_;
    return atomic_load_explicit(&p->waiting_, memory_order_relaxed) == 0 &&
           atomic_load_explicit(&p->epoch_, memory_order_relaxed) == c->epoch_;
}

static inline bool permits_try_cache_(struct permits_core *c, struct leased_permit *ret_permit)
{
    if (c->cached_ == 0 || !permits_is_calm_(c))
        return false;
    c->cached_--;
    c->used_ = true;
    counter_add(&c->in_use_, 1);
    ret_permit->core_ = c;
    return true;
}

/* 0, -EAGAIN or -ESHUTDOWN; never overtakes a waiter. */
static inline int permits_try(struct permits_core *c, struct leased_permit *ret_permit)
{
    return permits_try_cache_(c, ret_permit) ? 0 : permits_try_slow_(c, ret_permit);
}

/* Gives it back and lets in who waits for it; no-op when none is held. */
static inline void leased_permit_put(struct leased_permit *p)
{
    struct permits_core *c = p->core_;
    if (!c)
        return;
    p->core_ = NULL;
    counter_add(&c->in_use_, (uint64_t)-1);
    c->cached_++;
    if (!c->keeps_ || c->cached_ > c->cached_max_ || !permits_is_calm_(c))
        permits_put_slow_(c);
}

static inline struct leased_permit leased_permit_take(struct leased_permit *from)
{
    struct leased_permit p = *from;
    from->core_ = NULL;
    return p;
}

static inline bool leased_permit_is_held(const struct leased_permit *p)
{
    return p->core_ != NULL;
}

#endif
