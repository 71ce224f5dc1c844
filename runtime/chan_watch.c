#include "runtime/chan_watch.h"

void watch_init(struct watch *w, void *value)
{
    *w = (struct watch){.value_ = value, .version_ = 1};
    wait_list_init(&w->waiters_);
}

void *watch_fini(struct watch *w)
{
    void *last = w->value_;
    assert(wait_list_is_empty(&w->waiters_));
    w->value_ = NULL;
    return last;
}

void watch_close(struct watch *w)
{
    w->closed_ = true;
    wait_wake_all(&w->waiters_);
}

static enum poll poll_changed(struct future *f, struct task *t)
{
    return watch_changed_poll(container_of(f, struct watch_changed, future), t);
}

static void drop_changed(struct future *f)
{
    watch_changed_drop(container_of(f, struct watch_changed, future));
}

const struct future_kind watch_changed_kind = {"watch_changed", poll_changed, drop_changed};
