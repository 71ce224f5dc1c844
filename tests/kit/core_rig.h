/* What a core is to the runtime: tasks and a mailbox. Stepped by hand, or run on a thread of its
 * own until it is done; then it sleeps when it has nothing to do, so a wake-up that gets lost
 * shows. */
#ifndef MILLRACE_TESTS_KIT_CORE_RIG_H
#define MILLRACE_TESTS_KIT_CORE_RIG_H

#include <poll.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>

#include "runtime/mailbox.h"
#include "runtime/sched.h"

#define CORE_RIG_START       77777ull
#define CORE_RIG_PATIENCE_MS 60000 /* what takes longer to come is lost */

struct core_rig {
    struct sched sched;
    struct mailbox mailbox;
    uint64_t now;
};

static inline int core_rig_init(struct core_rig *c)
{
    c->now = CORE_RIG_START;
    sched_init(&c->sched, &(struct sched_opts){.now = c->now});
    return mailbox_init(&c->mailbox);
}

/* Drops all tasks. Other cores may still post; core_rig_fini() when none does any more. */
static inline void core_rig_stop(struct core_rig *c)
{
    sched_fini(&c->sched);
    sched_init(&c->sched, &(struct sched_opts){.now = c->now});
}

static inline void core_rig_fini(struct core_rig *c)
{
    mailbox_fini(&c->mailbox);
}

/* One pass. */
static inline bool core_rig_step(struct core_rig *c)
{
    bool any = mailbox_drain(&c->mailbox, 64) > 0;
    return sched_step(&c->sched, ++c->now) || any;
}

static inline bool core_rig_is_idle(const struct core_rig *c)
{
    return !mailbox_is_pending(&c->mailbox) && !sched_is_runnable(&c->sched);
}

static inline void core_rig_sleep(struct core_rig *c)
{
    if (!mailbox_prepare_sleep(&c->mailbox))
        return;
    struct pollfd pfd = {.fd = mailbox_fd(&c->mailbox), .events = POLLIN};
    int rc = poll(&pfd, 1, CORE_RIG_PATIENCE_MS);
    mailbox_end_sleep(&c->mailbox);
    if (rc == 0) {
        fprintf(stderr, "a core slept for %d ms: a wake-up was lost\n", CORE_RIG_PATIENCE_MS);
        abort();
    }
}

/* On the thread of the core, until no task is left. */
static inline void core_rig_run(struct core_rig *c)
{
    while (c->sched.stats.live > 0) {
        if (!core_rig_step(c) && core_rig_is_idle(c))
            core_rig_sleep(c);
    }
}

/* Both, or all, by hand until nothing is left to do. */
static inline void core_rigs_settle(struct core_rig *cores, unsigned n)
{
    for (unsigned i = 0; i < n; i++)
        if (core_rig_step(&cores[i]))
            i = (unsigned)-1;
}

#endif
