/* One core's cooperative scheduler: run queue, timer wheel, budgets, poll accounting.
 *
 * Thread: single owner. Nothing here reads a wall or monotonic clock for decisions: `now` comes in
 * through sched_step(), so a virtual clock drives it exactly. (The TSC is read for accounting only,
 * and only when opts.account is set.)
 */
#ifndef MILLRACE_RUNTIME_SCHED_H
#define MILLRACE_RUNTIME_SCHED_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "runtime/hist.h"
#include "runtime/list.h"
#include "runtime/stall.h"
#include "runtime/task.h"
#include "runtime/timer.h"

#define SCHED_BUDGET_OPS  64     /* operations a poll */
#define SCHED_BUDGET_NS   50000  /* time a poll; real clock only */
#define SCHED_PASS_NS     100000 /* aim of one pass; real clock only */
#define SCHED_PASS_POLLS  256    /* polls a pass at the most, whatever the clock */
#define SCHED_WAKE_NEXT   3      /* just-woken tasks that may jump the queue in a row */
#define SCHED_TIMERS_STEP 256    /* timers fired a pass at the most */
#define SCHED_STALL_NS    1000000
#define SCHED_KINDS       16 /* told apart; what comes later is counted as "other" */

struct sched_opts {
    uint64_t now;    /* start of time, ns; not 0 in tests */
    bool account;    /* time every poll by TSC (real clock); false under a virtual clock */
    uint64_t tsc_hz; /* with account; 0: sched_init() measures it (10 ms) */
};

struct sched_stats {
    uint64_t polls; /* up to the last pass */
    uint64_t passes, spawned, finished, aborted, yields, budget_out, stalls;
    uint64_t wakes;         /* that queued a task */
    uint64_t fruitless;     /* polls after a wake-up that found nothing to do */
    uint32_t live;          /* tasks spawned and not yet dropped */
    uint32_t run_depth;     /* run queue length; within a pass also what it has polled so far */
    uint32_t run_depth_max; /* the most that a pass has found queued */
};

/* What is kept of one kind of task. */
struct sched_kind {
    const struct task_kind *kind;
    uint64_t polls, fruitless, stalls;
    uint32_t live;
    struct hist poll_ns; /* when accounted */
};

/* Where a core is, for other threads (sampler.h, the watchdog): stores of the owner, relaxed. Beat
 * and kind together name one poll, or one stretch between two polls. */
struct sched_watch {
    /* Of the poll that runs; &sched_pass_kind in a pass but in no poll; NULL between passes. Who
     * doesn't account is seen in one poll until the next begins. */
    _Atomic(const struct task_kind *) kind;
    atomic_uint_fast64_t beat; /* passes and polls begun */
};

static inline void sched_watch_begin_(struct sched_watch *w, const struct task_kind *kind,
                                      uint64_t beat)
{
    atomic_store_explicit(&w->kind, kind, memory_order_relaxed);
    atomic_store_explicit(&w->beat, beat, memory_order_relaxed);
}

/* Stands for the parts of a pass that are no poll: input, timers, drops, output. */
extern const struct task_kind sched_pass_kind;

/* The sampler's signal handler, which interrupts the owner, and the owner's end of what it has
 * interrupted. The numbers are those of stall_push() plus one; 0: nothing open. */
struct sched_sample {
    uint64_t stretch;      /* sampled last (twice the beat, plus 1 in a poll): never twice */
    uint64_t poll, pass;   /* open records */
    volatile bool pushing; /* the owner writes to the ring: the handler must not */
};

struct sched {
    uint64_t now_;
    struct timer_wheel wheel;
    struct list_node run_;
    struct list_node yielded_; /* gave up in this pass: run in the next */
    struct list_node all_;
    struct task *current_;
    struct task *next_; /* last woken in this pass: in run_, but runs next */
    uint8_t next_streak_;
    bool account_;
    uint64_t tsc_;                                        /* start of the poll that runs now */
    uint64_t budget_tsc_, pass_tsc_, stall_tsc_, tsc_hz_; /* limits as cycles */
    uint64_t tsc_ns_;                                     /* ns a cycle, times 2^32 */
    uint64_t queued_;                                     /* tasks put on the queue, ever */
    uint64_t unqueued_;                                   /* taken off it unpolled */
    uint64_t turned_; /* put on it since they had given up their turn */
    /* But wakes, fruitless and run_depth: sched_read_stats() makes them from others, since every
     * store on the way of a wake-up and its poll counts. */
    struct sched_stats stats;
    struct sched_watch watch;
    const struct task_kind *kind_of_[SCHED_KINDS]; /* those of `kinds`, close together */
    unsigned nkinds;
    struct sched_kind kinds[SCHED_KINDS];
    struct stall_ring stalls;
    struct sched_sample sample_;
};

void sched_init(struct sched *s, const struct sched_opts *o);

/* Drops every live task. The wheel must be empty afterwards; asserted in debug builds. */
void sched_fini(struct sched *s);

/* One pass: fires due timers, then polls tasks within the pass' budget. `now_ns` never goes back.
 * True if anything ran. */
bool sched_step(struct sched *s, uint64_t now_ns);

/* True when a step with the same `now` would run something. */
bool sched_is_runnable(const struct sched *s);

void sched_read_stats(const struct sched *s, struct sched_stats *ret_stats);

/* When the next timer is due (absolute, ns), UINT64_MAX for none. Exact or early, never late. */
uint64_t sched_next_timeout(const struct sched *s);

/* Makes `now_ns` the time of the pass that begins, before its first input; sched_step() follows
 * with the same value. */
static inline void sched_latch(struct sched *s, uint64_t now_ns)
{
    s->now_ = now_ns;
    uint64_t beat = atomic_load_explicit(&s->watch.beat, memory_order_relaxed) + 1;
    sched_watch_begin_(&s->watch, &sched_pass_kind, beat);
}

/* The pass is over: what was left to do after sched_step() is done, and the core may sleep. Who is
 * watched by a sampler must say so. */
void sched_pass_end(struct sched *s);

/* Time of all polls, whatever their kind; empty unless accounted. */
void sched_poll_hist(const struct sched *s, struct hist *ret_hist);

/* For signal handlers: the scheduler that this thread drives, or NULL. */
void sched_bind_thread(struct sched *s);
struct sched *sched_of_thread(void);

/* Signal handler of the owner's thread: puts where it is into the stall ring, unless that has been
 * done before or the core is between two passes. Async-signal-safe. */
void sched_sample(struct sched *s, const uintptr_t *frames, unsigned nframes);

/* The poll that runs now, for a handler on the owner's thread; NULL: none. */
static inline const struct task *sched_current(const struct sched *s)
{
    return s->current_;
}

/* The time latched for this pass. */
static inline uint64_t sched_now(const struct sched *s)
{
    return s->now_;
}

static inline uint64_t task_now(const struct task *t)
{
    return t->sched_->now_;
}

#endif
