#include "runtime/delay.h"

#include "runtime/list.h"
#include "runtime/sched.h"

static struct delay *delay_of(struct future *f)
{
    return container_of(f, struct delay, f);
}

static enum poll delay_poll(struct future *f, struct task *t)
{
    struct delay *d = delay_of(f);
    if (deadline_is_past(d->at_, task_now(t))) {
        sleep_cancel(&d->sleep_);
        return POLL_READY;
    }
    if (d->at_ != DEADLINE_NONE)
        sleep_arm(&d->sleep_, t, d->at_);
    return POLL_PENDING;
}

static void delay_drop(struct future *f)
{
    sleep_cancel(&delay_of(f)->sleep_);
}

static const struct future_kind delay_kind = {"delay", delay_poll, delay_drop};

void delay_init(struct delay *d, uint64_t at)
{
    *d = (struct delay){.at_ = at};
    future_init(&d->f, &delay_kind);
}

void delay_reset(struct delay *d, uint64_t at)
{
    d->at_ = at;
    d->f.done_ = false;
    sleep_move(&d->sleep_, at);
}
