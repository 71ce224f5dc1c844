#include "runtime/scope.h"

#include <assert.h>
#include <errno.h>

void scope_init(struct scope *s, struct scope *parent)
{
    s->parent_ = parent;
    s->sibling_ = (struct list_node){NULL, NULL};
    list_init(&s->children_);
    list_init(&s->spent_);
    list_init(&s->members_);
    list_init(&s->leaving_);
    wait_list_init(&s->waiters_);
    wait_list_init(&s->cancel_waiters_);
    s->live_ = 0;
    s->cancelled_ = parent && parent->cancelled_;
    s->closed_ = false;
    if (parent)
        list_push_tail(&parent->children_, &s->sibling_);
}

void scope_fini(struct scope *s)
{
    assert(s->live_ == 0 && list_is_empty(&s->members_) && list_is_empty(&s->leaving_));
    assert(list_is_empty(&s->children_) && list_is_empty(&s->spent_));
    assert(wait_list_is_empty(&s->waiters_) && wait_list_is_empty(&s->cancel_waiters_));
    list_remove(&s->sibling_);
    s->parent_ = NULL;
}

int scope_join(struct scope *s, struct scope_member *m, struct task *t)
{
    assert(!m->scope_);
    if (s->cancelled_)
        return -ECANCELED;
    if (scope_is_closed(s))
        return -ESHUTDOWN;
    m->scope_ = s;
    m->task_ = t;
    list_push_tail(&s->members_, &m->node_);
    for (; s; s = s->parent_)
        s->live_++;
    return 0;
}

void scope_leave(struct scope_member *m)
{
    struct scope *s = m->scope_;
    if (!s)
        return;
    list_remove(&m->node_);
    m->scope_ = NULL;
    m->task_ = NULL;
    for (; s; s = s->parent_) {
        assert(s->live_ > 0);
        if (--s->live_ == 0)
            wait_wake_all(&s->waiters_);
    }
}

void scope_close(struct scope *s)
{
    s->closed_ = true;
}

bool scope_is_closed(const struct scope *s)
{
    while (s && !s->closed_)
        s = s->parent_;
    return s != NULL;
}

void scope_cancel(struct scope *s)
{
    if (s->cancelled_)
        return; /* and so is everything below */
    s->cancelled_ = true;
    wait_wake_all(&s->cancel_waiters_);
    list_for_each(n, &s->members_)
    {
        task_wake(container_of(n, struct scope_member, node_)->task_);
    }
    list_for_each(n, &s->children_)
    {
        scope_cancel(container_of(n, struct scope, sibling_));
    }
}

/* Drops run in here and take members and finished scopes off their lists, so every list is walked
 * by taking its first entry over to a second one. Nothing joins a cancelled scope meanwhile. */
static void abort_members(struct scope *s)
{
    struct list_node *n;
    while ((n = list_pop_head(&s->children_))) {
        list_push_tail(&s->spent_, n);
        abort_members(container_of(n, struct scope, sibling_));
    }
    while ((n = list_pop_head(&s->members_))) {
        list_push_tail(&s->leaving_, n);
        task_abort(container_of(n, struct scope_member, node_)->task_);
    }
}

void scope_abort(struct scope *s)
{
    scope_cancel(s);
    abort_members(s);
}

enum poll scope_wait_poll(struct scope *s, struct wait_node *n, struct task *t)
{
    if (s->live_ == 0) {
        wait_cancel(n);
        return POLL_READY;
    }
    wait_park(&s->waiters_, n, t);
    return POLL_PENDING;
}

static struct scope_wait *scope_wait_of(struct future *f)
{
    return container_of(f, struct scope_wait, f);
}

static enum poll wait_poll(struct future *f, struct task *t)
{
    struct scope_wait *w = scope_wait_of(f);
    return scope_wait_poll(w->scope_, &w->node_, t);
}

static void wait_drop(struct future *f)
{
    wait_cancel(&scope_wait_of(f)->node_);
}

static const struct future_kind wait_kind = {"scope_wait", wait_poll, wait_drop};

void scope_wait_init(struct scope_wait *w, struct scope *s)
{
    *w = (struct scope_wait){.scope_ = s};
    future_init(&w->f, &wait_kind);
}

static struct scope_cancelled *scope_cancelled_of(struct future *f)
{
    return container_of(f, struct scope_cancelled, f);
}

static enum poll cancelled_poll(struct future *f, struct task *t)
{
    struct scope_cancelled *c = scope_cancelled_of(f);
    if (c->scope_->cancelled_) {
        wait_cancel(&c->node_);
        return POLL_READY;
    }
    wait_park(&c->scope_->cancel_waiters_, &c->node_, t);
    return POLL_PENDING;
}

static void cancelled_drop(struct future *f)
{
    wait_cancel(&scope_cancelled_of(f)->node_);
}

static const struct future_kind cancelled_kind = {"scope_cancelled", cancelled_poll,
                                                  cancelled_drop};

void scope_cancelled_init(struct scope_cancelled *c, struct scope *s)
{
    *c = (struct scope_cancelled){.scope_ = s};
    future_init(&c->f, &cancelled_kind);
}
