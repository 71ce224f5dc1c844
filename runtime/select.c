#include "runtime/select.h"

#include <assert.h>
#include <errno.h>

#include "runtime/list.h"

static enum poll win(struct select *s, unsigned winner)
{
    s->winner = (uint8_t)winner;
    s->f.status = s->of_[winner]->status;
    if (s->is_fair_)
        s->first_ = (uint8_t)((winner + 1) % s->n_);
    return POLL_READY;
}

static enum poll select_poll(struct future *f, struct task *t)
{
    struct select *s = container_of(f, struct select, f);
    bool is_any = false;
    for (unsigned i = 0; i < s->n_; i++) {
        unsigned at = (s->first_ + i) % s->n_;
        if (future_is_done(s->of_[at]))
            continue;
        if (future_poll(s->of_[at], t) == POLL_READY)
            return win(s, at);
        is_any = true;
    }
    if (is_any)
        return POLL_PENDING;
    s->winner = s->n_;
    f->status = -ENOENT;
    return POLL_READY;
}

static void select_drop(struct future *f)
{
    struct select *s = container_of(f, struct select, f);
    for (unsigned i = 0; i < s->n_; i++)
        future_drop(s->of_[i]);
}

static const struct future_kind select_kind = {"select", select_poll, select_drop};

static void init(struct select *s, struct future *const *of, unsigned n, bool is_fair)
{
    assert(n <= SELECT_MAX);
    future_init(&s->f, &select_kind);
    s->of_ = of;
    s->n_ = (uint8_t)n;
    s->first_ = 0;
    s->is_fair_ = is_fair;
    s->winner = (uint8_t)n;
}

void select_init_biased(struct select *s, struct future *const *of, unsigned n)
{
    init(s, of, n, false);
}

void select_init_fair(struct select *s, struct future *const *of, unsigned n)
{
    init(s, of, n, true);
}

void select_next(struct select *s)
{
    s->f.status = 0;
    s->f.done_ = false;
    s->winner = s->n_;
}
