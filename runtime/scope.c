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
    s->live_ = 0;
    s->cancelled_ = parent && parent->cancelled_;
    if (parent)
        list_push_tail(&parent->children_, &s->sibling_);
}

void scope_fini(struct scope *s)
{
    assert(s->live_ == 0 && list_is_empty(&s->members_) && list_is_empty(&s->leaving_));
    assert(list_is_empty(&s->children_) && list_is_empty(&s->spent_));
    assert(wait_list_is_empty(&s->waiters_));
    list_remove(&s->sibling_);
    s->parent_ = NULL;
}

int scope_join(struct scope *s, struct scope_member *m, struct task *t)
{
    assert(!m->scope_);
    if (s->cancelled_)
        return -ECANCELED;
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

void scope_cancel(struct scope *s)
{
    if (s->cancelled_)
        return; /* and so is everything below */
    s->cancelled_ = true;
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
