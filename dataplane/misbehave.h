/* Debug builds only (meson option debug_verbs): has a core do what it must never do, so that tests
 * can see it caught. */
#ifndef MILLRACE_DATAPLANE_MISBEHAVE_H
#define MILLRACE_DATAPLANE_MISBEHAVE_H

#ifdef MILLRACE_DEBUG_VERBS

#include <stdbool.h>
#include <stdint.h>

#include "runtime/task.h"

struct sched;

/* The caller's; zeroed but for the orders. It is the core's from misbehave_start() until
 * `finished`. */
struct misbehaviour {
    uint64_t ns; /* how long */
    bool sleeps; /* by nanosleep() instead of computing: the trap stops it */
    const char *label;
    void (*finished)(struct misbehaviour *m); /* core's thread: wake someone, no more */
    struct task task_;
};

/* The core's thread: blocks the core for m->ns in a task of the kind "misbehaviour". */
void misbehave_start(struct misbehaviour *m, struct sched *s);

#endif
#endif
