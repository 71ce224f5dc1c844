#include "runtime/chan_oneshot_remote.h"

#include <assert.h>
#include <string.h>

/* state_ leaves OPEN once, by an exchange-compare (acq_rel). Who wins tells the other side by
 * mailbox and no longer touches the struct; the other side releases it when it is done and has been
 * told. Who loses is the last, and releases at once, or when the winner's message has come. */

/* True: we were first. */
static bool leave(struct oneshot_remote *o, enum oneshot_remote_state to)
{
    unsigned open = ONESHOT_REMOTE_OPEN;

    return atomic_compare_exchange_strong_explicit(&o->state_, &open, to, memory_order_acq_rel,
                                                   memory_order_acquire);
}

static void on_sent(struct mailbox_item *item)
{
    struct oneshot_remote *o = container_of(item, struct oneshot_remote, sent_);

    o->rx_told_ = true;
    if (o->rx_gone_)
        o->release(o);
    else if (o->rx_task_)
        task_wake(o->rx_task_);
}

static void on_left(struct mailbox_item *item)
{
    struct oneshot_remote *o = container_of(item, struct oneshot_remote, left_);

    o->tx_told_ = true;
    if (o->tx_gone_)
        o->release(o);
    else if (o->tx_task_)
        task_wake(o->tx_task_);
}

void oneshot_remote_init(struct oneshot_remote *o, struct mailbox *rx, struct mailbox *tx,
                         void (*release)(struct oneshot_remote *o))
{
    assert(rx && release);
    memset(o, 0, sizeof(*o));
    o->release = release;
    o->rx_mailbox_ = rx;
    o->tx_mailbox_ = tx;
    o->sent_.deliver = on_sent;
    o->left_.deliver = on_left;
}

/* The receiver was first: `o` is ours alone, but for its message that may be under way. */
static void tx_is_last(struct oneshot_remote *o)
{
    o->value = NULL;
    if (o->tx_mailbox_ && !o->tx_told_)
        o->tx_gone_ = true;
    else
        o->release(o);
}

static int finish(struct oneshot_remote *o, int status, void *value)
{
    o->status_ = status;
    o->value = value;
    o->tx_task_ = NULL;
    if (!leave(o, ONESHOT_REMOTE_SENT)) {
        tx_is_last(o);
        return -EPIPE;
    }
    mailbox_post(o->rx_mailbox_, &o->sent_);
    return 0;
}

int oneshot_remote_send(struct oneshot_remote *o, void *value)
{
    return finish(o, 0, value);
}

void oneshot_remote_tx_drop(struct oneshot_remote *o)
{
    (void)finish(o, -EPIPE, NULL);
}

enum poll oneshot_remote_closed_poll(struct oneshot_remote_closed *c, struct task *t)
{
    assert(c->o_->tx_mailbox_); /* nothing could wake us */
    if (!oneshot_remote_is_closed(c->o_)) {
        c->o_->tx_task_ = t;
        return POLL_PENDING;
    }
    oneshot_remote_closed_drop(c);
    return POLL_READY;
}

void oneshot_remote_closed_drop(struct oneshot_remote_closed *c)
{
    if (c->o_)
        c->o_->tx_task_ = NULL;
    c->o_ = NULL;
}

enum poll oneshot_remote_recv_poll(struct oneshot_remote_recv *r, struct task *t)
{
    struct oneshot_remote *o = r->o_;

    if (!o->rx_told_) {
        o->rx_task_ = t;
        return POLL_PENDING;
    }
    r->future.status = o->status_;
    r->value = o->value;
    r->o_ = NULL;
    o->value = NULL;
    o->release(o);
    return POLL_READY;
}

void oneshot_remote_recv_drop(struct oneshot_remote_recv *r)
{
    struct oneshot_remote *o = r->o_;

    if (!o)
        return;
    r->o_ = NULL;
    o->rx_task_ = NULL;
    if (o->rx_told_)
        o->release(o);
    else if (!leave(o, ONESHOT_REMOTE_LEFT))
        o->rx_gone_ = true;
    else if (o->tx_mailbox_)
        mailbox_post(o->tx_mailbox_, &o->left_);
}

static enum poll poll_closed(struct future *f, struct task *t)
{
    return oneshot_remote_closed_poll(container_of(f, struct oneshot_remote_closed, future), t);
}

static void drop_closed(struct future *f)
{
    oneshot_remote_closed_drop(container_of(f, struct oneshot_remote_closed, future));
}

const struct future_kind oneshot_remote_closed_kind = {"oneshot_remote_closed", poll_closed,
                                                       drop_closed};

static enum poll poll_recv(struct future *f, struct task *t)
{
    return oneshot_remote_recv_poll(container_of(f, struct oneshot_remote_recv, future), t);
}

static void drop_recv(struct future *f)
{
    oneshot_remote_recv_drop(container_of(f, struct oneshot_remote_recv, future));
}

const struct future_kind oneshot_remote_recv_kind = {"oneshot_remote_recv", poll_recv, drop_recv};
