#include "runtime/join_set.h"

#include <assert.h>
#include <errno.h>

#include "runtime/sched.h"

static struct join_member *member_of(struct task *t)
{
    return container_of(t, struct join_member, task);
}

static struct join_member *member_at(struct list_node *n)
{
    return container_of(n, struct join_member, node_);
}

void join_set_init(struct join_set *s)
{
    list_init(&s->running_);
    list_init(&s->ending_);
    list_init(&s->finished_);
    wait_list_init(&s->waiters_);
    s->nrunning_ = s->nfinished_ = 0;
}

void join_set_spawn(struct join_set *set, struct sched *s, struct join_member *m,
                    const struct join_member_kind *k, struct future *root)
{
    assert(!m->set_ && !root->done_);
    m->set_ = set;
    m->root_ = root;
    m->outcome = JOIN_RUNNING;
    m->status = 0;
    list_push_tail(&set->running_, &m->node_);
    set->nrunning_++;
    task_spawn(s, &m->task, &k->task);
}

enum poll join_member_poll_(struct task *t)
{
    return future_poll(member_of(t)->root_, t);
}

void join_member_drop_(struct task *t)
{
    struct join_member *m = member_of(t);
    struct join_set *set = m->set_;
    if (future_is_done(m->root_)) {
        m->status = m->root_->status;
        m->outcome = m->status ? JOIN_FAILED : JOIN_DONE;
    } else {
        future_drop(m->root_);
        m->status = -ECANCELED;
        m->outcome = JOIN_CANCELLED;
    }
    list_remove(&m->node_);
    list_push_tail(&set->finished_, &m->node_);
    assert(set->nrunning_ > 0);
    set->nrunning_--;
    set->nfinished_++;
    wait_wake_all(&set->waiters_);
}

void join_member_abort(struct join_member *m)
{
    task_abort(&m->task);
}

/* Drops run in here and may take other members off running_, so its first entry is taken over to
 * ending_ each time; the one that is being polled now stays there until its poll has ended. */
void join_set_abort(struct join_set *s)
{
    struct list_node *n;
    while ((n = list_pop_head(&s->running_))) {
        list_push_tail(&s->ending_, n);
        task_abort(&member_at(n)->task);
    }
}

struct join_member *join_set_try_next(struct join_set *s)
{
    struct list_node *n = list_pop_head(&s->finished_);
    if (!n)
        return NULL;
    struct join_member *m = member_at(n);
    m->set_ = NULL;
    s->nfinished_--;
    return m;
}

void join_set_fini(struct join_set *s)
{
    struct join_member *m;
    join_set_abort(s);
    assert(s->nrunning_ == 0 && list_is_empty(&s->ending_));
    assert(wait_list_is_empty(&s->waiters_));
    while ((m = join_set_try_next(s))) {
        const struct join_member_kind *k =
            container_of(m->task.kind_, const struct join_member_kind, task);
        if (k->release)
            k->release(m);
    }
}

static enum poll next_poll(struct future *f, struct task *t)
{
    struct join_next *n = container_of(f, struct join_next, f);
    n->member = join_set_try_next(n->set_);
    if (!n->member && n->set_->nrunning_ > 0) {
        wait_park(&n->set_->waiters_, &n->node_, t);
        return POLL_PENDING;
    }
    assert(!wait_is_parked(&n->node_)); /* the last one to finish woke it */
    f->status = n->member ? 0 : -ENOENT;
    return POLL_READY;
}

static void next_drop(struct future *f)
{
    wait_cancel(&container_of(f, struct join_next, f)->node_);
}

static const struct future_kind next_kind = {"join_next", next_poll, next_drop};

void join_next_init(struct join_next *n, struct join_set *s)
{
    *n = (struct join_next){.set_ = s};
    future_init(&n->f, &next_kind);
}
