/* Stands for any call to somewhere: it takes its time and then has a status. */
#ifndef MILLRACE_EXAMPLES_CALL_H
#define MILLRACE_EXAMPLES_CALL_H

#include "runtime/future.h"
#include "runtime/sched.h"
#include "runtime/timer.h"

/* doc: call */
struct call {
    struct future f; /* first */
    uint64_t takes;
    int result; /* 0 or -errno */
    uint64_t at_;
    struct sleep sleep_;
};

static enum poll call_poll(struct future *f, struct task *t)
{
    struct call *c = container_of(f, struct call, f);
    if (!c->at_)
        c->at_ = task_now(t) + c->takes;
    if (task_now(t) < c->at_) {
        sleep_arm(&c->sleep_, t, c->at_);
        return POLL_PENDING;
    }
    sleep_cancel(&c->sleep_);
    f->status = c->result;
    return POLL_READY;
}

static void call_drop(struct future *f)
{
    sleep_cancel(&container_of(f, struct call, f)->sleep_);
}

static const struct future_kind call_kind = {"call", call_poll, call_drop};

/* Inert: the time runs from the first poll. */
static inline void call_init(struct call *c, uint64_t takes, int result)
{
    *c = (struct call){.takes = takes, .result = result};
    future_init(&c->f, &call_kind);
}
/* doc end */

#endif
