#include "runtime/interval.h"

#include <assert.h>

#include "runtime/list.h"
#include "runtime/sched.h"

static struct interval *interval_of(struct future *f)
{
    return container_of(f, struct interval, f);
}

/* The tick due at next_ is taken at `now`. */
static void take_tick(struct interval *i, uint64_t now)
{
    uint64_t missed = (now - i->next_) / i->period_;
    uint64_t from = i->next_;
    i->tick = i->next_;
    if (i->policy_ == INTERVAL_DELAY)
        from = now;
    else if (i->policy_ == INTERVAL_SKIP)
        from += missed * i->period_;
    if (i->policy_ != INTERVAL_BURST)
        i->skipped += missed;
    i->next_ = deadline_after(from, i->period_);
}

static enum poll interval_poll(struct future *f, struct task *t)
{
    struct interval *i = interval_of(f);
    if (deadline_is_past(i->next_, task_now(t))) {
        sleep_cancel(&i->sleep_);
        take_tick(i, task_now(t));
        return POLL_READY;
    }
    if (i->next_ != DEADLINE_NONE)
        sleep_arm(&i->sleep_, t, i->next_);
    return POLL_PENDING;
}

static void interval_drop(struct future *f)
{
    sleep_cancel(&interval_of(f)->sleep_);
}

static const struct future_kind interval_kind = {"interval", interval_poll, interval_drop};

void interval_init(struct interval *i, uint64_t first, uint64_t period, enum interval_missed m)
{
    assert(period > 0);
    *i = (struct interval){.next_ = first, .period_ = period, .policy_ = m};
    future_init(&i->f, &interval_kind);
}

void interval_next(struct interval *i)
{
    i->f.done_ = false;
}

void interval_reset(struct interval *i, uint64_t now, uint64_t period)
{
    assert(period > 0);
    i->period_ = period;
    i->next_ = deadline_after(now, period);
    i->f.done_ = false;
    sleep_move(&i->sleep_, i->next_);
}
