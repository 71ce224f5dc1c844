#include "runtime/semaphore.h"

#include "runtime/sched.h"

void semaphore_init(struct semaphore *s, uint32_t limit)
{
    *s = (struct semaphore){.limit_ = limit, .queue_max = UINT32_MAX};
    list_init(&s->queue_);
}

void semaphore_fini(struct semaphore *s)
{
    assert(s->in_use_ == 0 && s->waiting_ == 0 && list_is_empty(&s->queue_));
}

static void hold(struct semaphore *s, uint32_t n, struct permit *ret_permit)
{
    s->in_use_ += n;
    *ret_permit = (struct permit){.sem_ = s, .n_ = n};
}

static bool has_room(const struct semaphore *s, uint32_t n)
{
    return (uint64_t)s->in_use_ + n <= s->limit_;
}

/* Whose turn it is: the longest waiting of those that the limit could ever satisfy. */
static struct semaphore_acquire *first_in_turn(const struct semaphore *s)
{
    list_for_each(n, &s->queue_)
    {
        struct semaphore_acquire *a = container_of(n, struct semaphore_acquire, node_);
        if (a->want_ <= s->limit_)
            return a;
    }
    return NULL;
}

static void leave_queue(struct semaphore_acquire *a)
{
    list_remove(&a->node_);
    a->sem_->waiting_--;
}

void semaphore_grant_(struct semaphore *s)
{
    struct semaphore_acquire *a;
    while ((a = first_in_turn(s)) && has_room(s, a->want_)) {
        leave_queue(a);
        hold(s, a->want_, &a->permit);
        task_wake(a->task_);
    }
}

int semaphore_try_slow_(struct semaphore *s, uint32_t n, struct permit *ret_permit)
{
    if (s->closed_)
        return -ESHUTDOWN;
    if (!has_room(s, n) || first_in_turn(s))
        return -EAGAIN;
    hold(s, n, ret_permit);
    return 0;
}

void semaphore_close(struct semaphore *s)
{
    struct list_node *n;
    s->closed_ = true;
    while ((n = list_first(&s->queue_))) {
        struct semaphore_acquire *a = container_of(n, struct semaphore_acquire, node_);
        leave_queue(a);
        task_wake(a->task_);
    }
}

void semaphore_set_limit(struct semaphore *s, uint32_t limit)
{
    s->limit_ = limit;
    semaphore_grant_(s);
}

void semaphore_add(struct semaphore *s, uint32_t n)
{
    assert(n <= UINT32_MAX - s->limit_);
    semaphore_set_limit(s, s->limit_ + n);
}

void permit_forget(struct permit *p)
{
    struct semaphore *s = p->sem_;
    if (!s)
        return;
    s->limit_ -= p->n_ < s->limit_ ? p->n_ : s->limit_;
    permit_put(p);
}

/* First poll: takes what is free or joins the queue. */
static enum poll begin(struct semaphore_acquire *a, struct task *t)
{
    struct semaphore *s = a->sem_;
    int rc = semaphore_try_acquire(s, a->want_, &a->permit);
    if (rc == -EAGAIN && s->waiting_ < s->queue_max) {
        a->task_ = t;
        list_push_tail(&s->queue_, &a->node_);
        s->waiting_++;
        return POLL_PENDING;
    }
    a->future.status = rc == -EAGAIN ? -EBUSY : rc;
    return POLL_READY;
}

static enum poll acquire_poll(struct future *f, struct task *t)
{
    struct semaphore_acquire *a = container_of(f, struct semaphore_acquire, future);
    if (list_is_linked(&a->node_)) {
        a->task_ = t;
        return POLL_PENDING;
    }
    if (!task_consume(t, 1))
        return POLL_PENDING;
    if (!a->task_)
        return begin(a, t);
    /* Out of the queue: it was granted or the semaphore has been closed. */
    a->future.status = permit_is_held(&a->permit) ? 0 : -ESHUTDOWN;
    return POLL_READY;
}

static void acquire_drop(struct future *f)
{
    struct semaphore_acquire *a = container_of(f, struct semaphore_acquire, future);
    if (list_is_linked(&a->node_)) {
        leave_queue(a);
        semaphore_grant_(a->sem_); /* it may have held up smaller ones */
    }
    permit_put(&a->permit);
}

static const struct future_kind acquire_kind = {"semaphore_acquire", acquire_poll, acquire_drop};

void semaphore_acquire_init(struct semaphore_acquire *a, struct semaphore *s, uint32_t n)
{
    assert(n > 0);
    *a = (struct semaphore_acquire){.sem_ = s, .want_ = n};
    future_init(&a->future, &acquire_kind);
}

static enum poll timed_poll(struct future *f, struct task *t)
{
    struct semaphore_timed *a = container_of(f, struct semaphore_timed, acquire.future);
    enum poll p = acquire_poll(f, t);
    if (p == POLL_PENDING && list_is_linked(&a->acquire.node_)) {
        if (task_now(t) < a->deadline_) {
            if (a->deadline_ != UINT64_MAX)
                sleep_arm(&a->sleep_, t, a->deadline_);
            return POLL_PENDING;
        }
        acquire_drop(f);
        f->status = -ETIMEDOUT;
        p = POLL_READY;
    }
    if (p == POLL_READY)
        sleep_cancel(&a->sleep_);
    return p;
}

static void timed_drop(struct future *f)
{
    struct semaphore_timed *a = container_of(f, struct semaphore_timed, acquire.future);
    sleep_cancel(&a->sleep_);
    acquire_drop(f);
}

static const struct future_kind timed_kind = {"semaphore_timed", timed_poll, timed_drop};

void semaphore_timed_init(struct semaphore_timed *a, struct semaphore *s, uint32_t n,
                          uint64_t deadline)
{
    semaphore_acquire_init(&a->acquire, s, n);
    a->sleep_.timer.node_ = (struct list_node){NULL, NULL}; /* not armed: all that it needs */
    a->deadline_ = deadline;
    a->acquire.future.kind = &timed_kind;
}
