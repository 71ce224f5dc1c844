/* One core's cooperative scheduler: run queue, timer wheel, budgets, poll accounting.
 *
 * Thread: single owner. Nothing here reads a wall or monotonic clock for decisions: `now` comes in
 * through sched_step(), so a virtual clock drives it exactly. (The TSC is read for accounting only,
 * and only when opts.account is set.)
 */
#ifndef MILLRACE_RUNTIME_SCHED_H
#define MILLRACE_RUNTIME_SCHED_H

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

struct sched_opts {
    uint64_t now;    /* start of time, ns; not 0 in tests */
    bool account;    /* time every poll by TSC (real clock); false under a virtual clock */
    uint64_t tsc_hz; /* with account; 0: sched_init() measures it (10 ms) */
};

struct sched_stats {
    uint64_t polls, passes, spawned, finished, aborted, yields, budget_out, wakes, stalls;
    uint32_t live;      /* tasks spawned and not yet dropped */
    uint32_t run_depth; /* run queue length now */
};

struct sched {
    uint64_t now_;
    struct timer_wheel wheel;
    struct list_node run_;
    struct list_node yielded_; /* gave up in this pass: run in the next */
    struct list_node all_;
    struct task *current_;
    struct task *next_; /* wake-next slot */
    uint8_t next_streak_;
    bool account_;
    uint64_t tsc_;                                        /* start of the poll that runs now */
    uint64_t budget_tsc_, pass_tsc_, stall_tsc_, tsc_hz_; /* limits as cycles */
    struct sched_stats stats;
    struct hist poll_ns; /* time of each poll, when accounted */
    struct stall_ring stalls;
};

void sched_init(struct sched *s, const struct sched_opts *o);

/* Drops every live task. The wheel must be empty afterwards; asserted in debug builds. */
void sched_fini(struct sched *s);

/* One pass: fires due timers, then polls tasks within the pass' budget. `now_ns` never goes back.
 * True if anything ran. */
bool sched_step(struct sched *s, uint64_t now_ns);

/* True when a step with the same `now` would run something. */
bool sched_is_runnable(const struct sched *s);

/* When the next timer is due (absolute, ns), UINT64_MAX for none. Exact or early, never late. */
uint64_t sched_next_timeout(const struct sched *s);

/* Makes `now_ns` the time of the pass that begins, before its first input; sched_step() follows
 * with the same value. */
static inline void sched_latch(struct sched *s, uint64_t now_ns)
{
    s->now_ = now_ns;
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
