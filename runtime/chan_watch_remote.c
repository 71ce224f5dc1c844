#include "runtime/chan_watch_remote.h"

#include <assert.h>
#include <string.h>

#include "runtime/sched.h"

/* Orders and their pairs:
 *  - newest_ and closed_ with a reader's waiting_ are Dekker's pairs, all accesses seq_cst but the
 *    plain read of watch_remote_get(): the writer writes the former, then reads the latter; a
 * reader that parks writes the latter, then reads the former. At least one sees the other.
 *  - newest_ and QSBR's token: the value is replaced before the token is raised (release), and a
 *    reader that reports the new token (acquire) reads newest_ anew.
 *  - waiting_ is cleared by one exchange (relaxed: the mailbox carries the rest): who finds it set
 *    posts. */

static void on_changed(struct mailbox_item *item)
{
    wait_wake_all(&container_of(item, struct watch_reader, changed_)->waiters_);
}

static void reader_init(struct watch_reader *r, struct watch_remote *w, struct mailbox *mb)
{
    memset(r, 0, sizeof(*r));
    r->w_ = w;
    r->mailbox_ = mb;
    r->changed_.deliver = on_changed;
    wait_list_init(&r->waiters_);
}

void watch_remote_init(struct watch_remote *w, const struct watch_remote_opts *o)
{
    assert(o->first && o->qsbr && o->free);
    memset(w, 0, sizeof(*w));
    w->qsbr_ = o->qsbr;
    w->readers_ = o->readers;
    w->nreaders_ = o->nreaders;
    w->free_ = o->free;
    w->version_ = o->first->version = 1;
    atomic_store_explicit(&w->newest_, o->first, memory_order_release);
    for (unsigned i = 0; i < o->nreaders; i++)
        reader_init(&o->readers[i], w, o->mailboxes[i]);
}

static void tell_readers(struct watch_remote *w)
{
    for (unsigned i = 0; i < w->nreaders_; i++) {
        struct watch_reader *r = &w->readers_[i];
        if (atomic_load_explicit(&r->waiting_, memory_order_seq_cst) &&
            atomic_exchange_explicit(&r->waiting_, false, memory_order_relaxed))
            mailbox_post(r->mailbox_, &r->changed_);
    }
}

static void retire(struct watch_remote *w, struct watch_value *v)
{
    v->token_ = rte_rcu_qsbr_start(w->qsbr_);
    v->newer_ = NULL;
    if (w->youngest_)
        w->youngest_->newer_ = v;
    else
        w->oldest_ = v;
    w->youngest_ = v;
    w->nretired_++;
}

static void free_oldest(struct watch_remote *w)
{
    struct watch_value *v = w->oldest_;

    w->oldest_ = v->newer_;
    if (!w->oldest_)
        w->youngest_ = NULL;
    w->nretired_--;
    w->free_(v);
}

void watch_remote_publish(struct watch_remote *w, struct watch_value *v)
{
    assert(!w->closed_);
    v->version = ++w->version_;
    retire(w, atomic_exchange_explicit(&w->newest_, v, memory_order_seq_cst));
    tell_readers(w);
    watch_remote_reclaim(w);
}

unsigned watch_remote_reclaim(struct watch_remote *w)
{
    while (w->oldest_ && rte_rcu_qsbr_check(w->qsbr_, w->oldest_->token_, false))
        free_oldest(w);
    return w->nretired_;
}

void watch_remote_close(struct watch_remote *w)
{
    atomic_store_explicit(&w->closed_, true, memory_order_seq_cst);
    tell_readers(w);
}

void watch_remote_fini(struct watch_remote *w)
{
    for (unsigned i = 0; i < w->nreaders_; i++) {
        struct watch_reader *r = &w->readers_[i];
        assert(wait_list_is_empty(&r->waiters_));
        assert(!atomic_load_explicit(&r->changed_.queued, memory_order_relaxed));
        (void)r;
    }
    while (w->oldest_)
        free_oldest(w);
    w->free_(atomic_exchange_explicit(&w->newest_, NULL, memory_order_relaxed));
}

/* True when there is something to tell. */
static bool look(struct watch_remote_changed *c)
{
    struct watch_remote *w = c->r_->w_;
    /* closed_ first: what was published before it is seen with it. */
    bool closed = atomic_load_explicit(&w->closed_, memory_order_seq_cst);
    struct watch_value *v = atomic_load_explicit(&w->newest_, memory_order_seq_cst);

    if (v->version == c->seen && !closed)
        return false;
    c->future.status = v->version == c->seen ? -EPIPE : 0;
    c->seen = v->version;
    c->value = v;
    return true;
}

enum poll watch_remote_changed_poll(struct watch_remote_changed *c, struct task *t)
{
    struct watch_reader *r = c->r_;

    if (!task_consume(t, 1))
        return POLL_PENDING;
    if (!look(c)) {
        wait_park(&r->waiters_, &c->node_, t);
        atomic_store_explicit(&r->waiting_, true, memory_order_seq_cst);
        if (!look(c))
            return POLL_PENDING;
    }
    wait_cancel(&c->node_);
    return POLL_READY;
}

static enum poll poll_changed(struct future *f, struct task *t)
{
    return watch_remote_changed_poll(container_of(f, struct watch_remote_changed, future), t);
}

static void drop_changed(struct future *f)
{
    watch_remote_changed_drop(container_of(f, struct watch_remote_changed, future));
}

const struct future_kind watch_remote_changed_kind = {"watch_remote_changed", poll_changed,
                                                      drop_changed};
