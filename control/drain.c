#include "control/drain.h"

#include <string.h>

void drain_init(struct drain *d, const struct cores *cores)
{
    memset(d, 0, sizeof(*d));
    d->cores = *cores;
}

/* The core's thread ends: that is what we wait for, not the message. */
static void on_told(struct core_msg *m)
{
    (void)m;
}

static void tell(struct drain *d, struct core_msg *msgs, enum core_msg_kind kind)
{
    for (unsigned i = 0; i < d->cores.n; i++) {
        if (!cores_is_running(&d->cores, i))
            continue;
        msgs[i].kind = kind;
        msgs[i].deadline = d->deadline;
        msgs[i].done = on_told;
        cores_post(&d->cores, i, &msgs[i]);
    }
}

bool drain_start(struct drain *d, uint64_t deadline_ns)
{
    if (d->started || d->stopped)
        return false;
    d->started = true;
    d->deadline = deadline_ns;
    tell(d, d->drain_msgs, CORE_MSG_DRAIN);
    return true;
}

void drain_stop(struct drain *d)
{
    if (d->stopped)
        return;
    d->stopped = true;
    tell(d, d->stop_msgs, CORE_MSG_STOP);
}

bool drain_is_done(const struct drain *d)
{
    return cores_running(&d->cores) == 0;
}
