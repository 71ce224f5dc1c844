/* Delay: a future that is ready at a time. Thread: the core of the task. */
#ifndef MILLRACE_RUNTIME_DELAY_H
#define MILLRACE_RUNTIME_DELAY_H

#include <stdint.h>

#include "runtime/deadline.h"
#include "runtime/future.h"
#include "runtime/timer.h"

/* status: 0. Cancel safe: it holds nothing but a timer. */
struct delay {
    struct future f;
    struct sleep sleep_;
    uint64_t at_;
};

/* Ready in the first poll with task_now() at or past `at`, never early; DEADLINE_NONE: never. The
 * timer is armed by the first poll. */
void delay_init(struct delay *d, uint64_t at);

/* Moves it, and makes one that was ready or dropped pollable again. Later is a plain store: the
 * wheel files it anew when the old time comes up. Earlier files it at once. One that was parked
 * without a time, ready or dropped gets its timer in its next poll. */
void delay_reset(struct delay *d, uint64_t at);

#endif
