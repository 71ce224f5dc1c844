#include "runtime/timeout.h"

#include <errno.h>

#include "runtime/list.h"
#include "runtime/sched.h"

static struct timeout *timeout_of(struct future *f)
{
    return container_of(f, struct timeout, f);
}

static enum poll expire(struct timeout *to)
{
    future_drop(to->of_);
    to->is_expired = true;
    to->f.status = -ETIMEDOUT;
    return POLL_READY;
}

static enum poll timeout_poll(struct future *f, struct task *t)
{
    struct timeout *to = timeout_of(f);
    enum poll p = future_poll(to->of_, t);
    if (p == POLL_READY)
        f->status = to->of_->status;
    else if (deadline_is_past(to->at_, task_now(t)))
        p = expire(to);
    else if (to->at_ != DEADLINE_NONE)
        sleep_arm(&to->sleep_, t, to->at_);
    if (p == POLL_READY)
        sleep_cancel(&to->sleep_);
    return p;
}

static void timeout_drop(struct future *f)
{
    struct timeout *to = timeout_of(f);
    sleep_cancel(&to->sleep_);
    future_drop(to->of_);
}

static const struct future_kind timeout_kind = {"timeout", timeout_poll, timeout_drop};

void timeout_init(struct timeout *to, struct future *of, uint64_t deadline)
{
    *to = (struct timeout){.of_ = of, .at_ = deadline};
    future_init(&to->f, &timeout_kind);
}

void timeout_move(struct timeout *to, uint64_t deadline)
{
    to->at_ = deadline;
    sleep_move(&to->sleep_, deadline);
}
