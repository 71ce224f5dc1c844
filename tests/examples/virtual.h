/* A scheduler on a virtual clock, for the examples. */
#ifndef MILLRACE_EXAMPLES_VIRTUAL_H
#define MILLRACE_EXAMPLES_VIRTUAL_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "runtime/sched.h"

#define START 161803398ull /* ns; a clock that starts at 0 hides "not set" */
#define US    1000ull
#define MS    1000000ull
#define S     1000000000ull

/* Jumps from timer to timer until nothing can happen any more by itself; the time it is then. */
static inline uint64_t virtual_run(struct sched *s)
{
    uint64_t now = sched_now(s);
    for (;;) {
        while (sched_step(s, now))
            ;
        uint64_t next = sched_next_timeout(s);
        if (next == UINT64_MAX)
            return now;
        now = next > now ? next : now;
    }
}

/* The same, up to a time that is reached exactly. */
static inline void virtual_run_until(struct sched *s, uint64_t until)
{
    uint64_t now = sched_now(s);
    for (;;) {
        while (sched_step(s, now))
            ;
        if (now == until)
            return;
        uint64_t next = sched_next_timeout(s);
        if (next > now)
            now = next < until ? next : until;
    }
}

#endif
