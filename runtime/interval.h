/* Interval: ticks at a period, with a stated policy for those that were missed.
 * Thread: the core of the task. */
#ifndef MILLRACE_RUNTIME_INTERVAL_H
#define MILLRACE_RUNTIME_INTERVAL_H

#include <stdint.h>

#include "runtime/deadline.h"
#include "runtime/future.h"
#include "runtime/timer.h"

/* A tick taken late (the task was busy, the core stalled). With a period of 10, ticks due at 0, 10,
 * 20 ... and the tick of 10 taken at 35, the next are due at: */
enum interval_missed {
    INTERVAL_BURST, /* 20, 30, 40: all of them, at once until it has caught up */
    INTERVAL_DELAY, /* 45, 55: a period after the one that was taken; never closer than a period */
    INTERVAL_SKIP,  /* 40, 50: those missed are left out; stays in step with the first */
};

/* status: 0. Cancel safe: dropping it before it is ready loses no tick; interval_next() goes on. */
struct interval {
    struct future f;
    struct sleep sleep_;
    uint64_t next_;   /* due; DEADLINE_NONE beyond the clock's range: never */
    uint64_t period_; /* > 0 */
    enum interval_missed policy_;
    uint64_t tick;    /* the time for which the last tick was due */
    uint64_t skipped; /* ticks left out so far */
};

/* `first` is absolute (now: a tick at once). period > 0. */
void interval_init(struct interval *i, uint64_t first, uint64_t period, enum interval_missed m);

/* After a tick or a drop: makes it pollable for the next tick. */
void interval_next(struct interval *i);

/* A new period, counted from `now`; it is pollable for that tick. */
void interval_reset(struct interval *i, uint64_t now, uint64_t period);

#endif
