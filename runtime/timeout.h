/* Timeout: any future, up to an absolute deadline. Thread: the core of the task. */
#ifndef MILLRACE_RUNTIME_TIMEOUT_H
#define MILLRACE_RUNTIME_TIMEOUT_H

#include <stdbool.h>
#include <stdint.h>

#include "runtime/deadline.h"
#include "runtime/future.h"
#include "runtime/timer.h"

/* status: that of the future; -ETIMEDOUT when the deadline came first: it has been dropped then.
 * The future is polled before the clock is looked at, so one that is ready at the deadline, or in
 * its first poll after it, still counts.
 *
 * Dropping it drops the future. Cancel safe as far as the future is, which by then it must be: a
 * timeout drops it half-way. */
struct timeout {
    struct future f;
    struct future *of_;
    struct sleep sleep_;
    uint64_t at_;
    bool is_expired; /* tells our -ETIMEDOUT from one of the future's own */
};

/* Combine: timeout_init(&t, &f, deadline_min(request_deadline, deadline_after(now, try_ns))).
 * DEADLINE_NONE: no limit, and no timer. `of` is borrowed until the end; it may have been polled
 * already, by this task. */
void timeout_init(struct timeout *to, struct future *of, uint64_t deadline);

/* Moves the deadline of one that isn't ready. Later is a plain store; earlier files the timer at
 * once. One that had no deadline gets its timer in its next poll. */
void timeout_move(struct timeout *to, uint64_t deadline);

#endif
