#include "runtime/join.h"

#include <assert.h>
#include <errno.h>

#include "runtime/list.h"
#include "runtime/sched.h"

const char *join_outcome_text(enum join_outcome o)
{
    static const char *const text[] = {
#define X(name, text) text,
        JOIN_OUTCOMES(X)
#undef X
    };
    return (unsigned)o < sizeof(text) / sizeof(text[0]) ? text[o] : "unknown";
}

/* --- a task and its handle --- */

static struct join_task *join_task_of(struct task *t)
{
    return container_of(t, struct join_task, task);
}

enum poll join_task_poll_(struct task *t)
{
    return future_poll(join_task_of(t)->root_, t);
}

static enum poll handle_poll(struct future *f, struct task *t)
{
    struct join_handle *h = container_of(f, struct join_handle, f);
    if (h->outcome_ == JOIN_RUNNING) {
        h->waiter_ = t;
        return POLL_PENDING;
    }
    h->waiter_ = NULL;
    return POLL_READY;
}

/* Neither knows of the other any more. */
static struct join_task *sever(struct join_handle *h)
{
    struct join_task *j = h->task_;
    h->task_ = NULL;
    h->waiter_ = NULL;
    if (j)
        j->handle_ = NULL;
    return j;
}

static void handle_drop(struct future *f)
{
    struct join_task *j = sever(container_of(f, struct join_handle, f));
    if (j)
        task_abort(&j->task);
}

static const struct future_kind handle_kind = {"join_handle", handle_poll, handle_drop};

void join_spawn(struct sched *s, struct join_task *j, const struct join_kind *k,
                struct future *root, struct join_handle *ret_handle)
{
    assert(!root->done_);
    j->root_ = root;
    j->handle_ = ret_handle;
    future_init(&ret_handle->f, &handle_kind);
    ret_handle->task_ = j;
    ret_handle->waiter_ = NULL;
    ret_handle->outcome_ = JOIN_RUNNING;
    task_spawn(s, &j->task, &k->task);
}

void join_task_drop_(struct task *t)
{
    struct join_task *j = join_task_of(t);
    const struct join_kind *k = container_of(t->kind_, const struct join_kind, task);
    bool is_cancelled = !future_is_done(j->root_);
    if (is_cancelled)
        future_drop(j->root_);
    struct join_handle *h = j->handle_; /* the drop may have dropped it */
    if (h) {
        int status = is_cancelled ? -ECANCELED : j->root_->status;
        struct task *waiter = h->waiter_;
        sever(h);
        h->f.status = status;
        h->outcome_ = is_cancelled ? JOIN_CANCELLED : status ? JOIN_FAILED : JOIN_DONE;
        if (waiter)
            task_wake(waiter);
    }
    if (k->release)
        k->release(j);
}

void join_abort(struct join_handle *h)
{
    if (h->task_)
        task_abort(&h->task_->task);
}

void join_detach(struct join_handle *h)
{
    sever(h);
    h->f.done_ = true;
}

/* --- several futures in one task --- */

static struct join *join_of(struct future *f)
{
    return container_of(f, struct join, f);
}

static void join_drop(struct future *f)
{
    struct join *j = join_of(f);
    for (unsigned i = 0; i < j->n_; i++)
        future_drop(j->of_[i]);
}

static enum poll join_poll(struct future *f, struct task *t)
{
    struct join *j = join_of(f);
    bool is_ready = true;
    for (unsigned i = 0; i < j->n_; i++)
        if (!future_is_done(j->of_[i]) && future_poll(j->of_[i], t) == POLL_PENDING)
            is_ready = false;
    if (!is_ready)
        return POLL_PENDING;
    for (unsigned i = 0; i < j->n_ && f->status == 0; i++) {
        f->status = j->of_[i]->status;
        j->failed = (uint8_t)i;
    }
    return POLL_READY;
}

static enum poll try_join_fail(struct join *j, unsigned failed)
{
    j->f.status = j->of_[failed]->status;
    j->failed = (uint8_t)failed;
    for (unsigned i = 0; i < j->n_; i++)
        if (i != failed)
            future_drop(j->of_[i]);
    return POLL_READY;
}

static enum poll try_join_poll(struct future *f, struct task *t)
{
    struct join *j = join_of(f);
    bool is_ready = true;
    for (unsigned i = 0; i < j->n_; i++) {
        struct future *one = j->of_[i];
        if (!future_is_done(one) && future_poll(one, t) == POLL_PENDING)
            is_ready = false;
        else if (one->status != 0)
            return try_join_fail(j, i);
    }
    return is_ready ? POLL_READY : POLL_PENDING;
}

static const struct future_kind join_kind = {"join", join_poll, join_drop};
static const struct future_kind try_join_kind = {"try_join", try_join_poll, join_drop};

static void init(struct join *j, const struct future_kind *k, struct future *const *of, unsigned n)
{
    assert(n <= JOIN_MAX);
    future_init(&j->f, k);
    j->of_ = of;
    j->n_ = (uint8_t)n;
    j->failed = 0;
}

void join_init(struct join *j, struct future *const *of, unsigned n)
{
    init(j, &join_kind, of, n);
}

void try_join_init(struct join *j, struct future *const *of, unsigned n)
{
    init(j, &try_join_kind, of, n);
}
