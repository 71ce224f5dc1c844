/* The ways to an end. Draining: every core is told to stop accepting, to close what idles and to
 * finish what runs until a deadline; then its thread ends by itself. Stopping: each aborts what it
 * has and ends. Over once the last one has.
 *
 * Thread: control's loop.
 */
#ifndef MILLRACE_CONTROL_DRAIN_H
#define MILLRACE_CONTROL_DRAIN_H

#include "control/cores.h"

struct drain {
    struct cores cores;
    bool started;
    uint64_t deadline; /* monotonic ns */
    bool stopped;
    /* A core may hold its own until it has ended. */
    struct core_msg drain_msgs[CONFIG_MAX_CORES], stop_msgs[CONFIG_MAX_CORES];
};

void drain_init(struct drain *d, const struct cores *cores);

/* False when one is under way already: its deadline stays. */
bool drain_start(struct drain *d, uint64_t deadline_ns);

/* Idempotent. */
void drain_stop(struct drain *d);

/* No core runs any more. */
bool drain_is_done(const struct drain *d);

#endif
