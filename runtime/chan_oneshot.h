/* One value from one task to another of the same core.
 *
 * The two ends lie in their owners' structs and point at each other; there is nothing between them.
 * An end that goes tells the other: the receiver gets -EPIPE when the sender was dropped unused,
 * and oneshot_send() gives -EPIPE, and the value back, when the receiver has gone. So either owner
 * may die first. An end must not be copied or moved in memory but by oneshot_tx_move().
 *
 * Thread: single owner; between cores use chan_oneshot_remote.h.
 */
#ifndef MILLRACE_RUNTIME_CHAN_ONESHOT_H
#define MILLRACE_RUNTIME_CHAN_ONESHOT_H

#include <assert.h>
#include <errno.h>
#include <stdbool.h>

#include "runtime/future.h"

struct oneshot_rx;

/* Zeroed: an end without a receiver. */
struct oneshot_tx {
    struct oneshot_rx *rx_; /* NULL: used, or the receiver has gone */
    struct task *task_;     /* waits for the receiver to go */
};

enum oneshot_state {
    ONESHOT_GONE,  /* no sender and no value, or it was taken */
    ONESHOT_OPEN,  /* the sender is there */
    ONESHOT_VALUE, /* sent and not taken */
};

/* The receiver is itself the future. Ready with status 0 and `value`, or -EPIPE: the sender was
 * dropped. Cancel safe up to a value that was sent meanwhile: oneshot_try_recv() still gives it
 * after the drop, for its owner to release. */
struct oneshot_rx {
    struct future future;
    struct oneshot_tx *tx_;
    struct task *task_;
    void *value; /* valid once ready with status 0 */
    enum oneshot_state state_;
};

extern const struct future_kind oneshot_recv_kind;

/* Ties two ends together, whatever was in them. */
static inline void oneshot_init(struct oneshot_tx *tx, struct oneshot_rx *rx)
{
    *tx = (struct oneshot_tx){.rx_ = rx};
    *rx = (struct oneshot_rx){
        .future = {.kind = &oneshot_recv_kind}, .tx_ = tx, .state_ = ONESHOT_OPEN};
}

/* Lets the receiver know; private. */
static inline void oneshot_settle_(struct oneshot_tx *tx, enum oneshot_state s)
{
    struct oneshot_rx *rx = tx->rx_;
    struct task *t = rx->task_;
    tx->rx_ = NULL;
    rx->tx_ = NULL;
    rx->state_ = s;
    rx->task_ = NULL;
    if (t)
        task_wake(t);
}

/* Uses the sender's end up. 0: the value is the receiver's; -EPIPE: it is still the caller's. */
static inline int oneshot_send(struct oneshot_tx *tx, void *value)
{
    if (!tx->rx_)
        return -EPIPE;
    tx->rx_->value = value;
    oneshot_settle_(tx, ONESHOT_VALUE);
    return 0;
}

/* Nothing will be sent. No-op when used up. */
static inline void oneshot_tx_drop(struct oneshot_tx *tx)
{
    if (tx->rx_)
        oneshot_settle_(tx, ONESHOT_GONE);
    tx->task_ = NULL;
}

/* Nobody waits for a value: it was sent, or the receiver has gone. */
static inline bool oneshot_is_closed(const struct oneshot_tx *tx)
{
    return !tx->rx_;
}

/* The sender's end now lies in `to`; `from` is used up. */
static inline void oneshot_tx_move(struct oneshot_tx *to, struct oneshot_tx *from)
{
    *to = *from;
    *from = (struct oneshot_tx){0};
    if (to->rx_)
        to->rx_->tx_ = to;
}

/* 0 and the value, once; -EAGAIN: not yet; -EPIPE: never, or taken already. */
static inline int oneshot_try_recv(struct oneshot_rx *rx, void **ret_value)
{
    if (rx->state_ == ONESHOT_OPEN)
        return -EAGAIN;
    if (rx->state_ == ONESHOT_GONE)
        return -EPIPE;
    *ret_value = rx->value;
    rx->state_ = ONESHOT_GONE;
    return 0;
}

static inline enum poll oneshot_recv_poll(struct oneshot_rx *rx, struct task *t)
{
    int rc = oneshot_try_recv(rx, &rx->value);
    if (rc == -EAGAIN) {
        rx->task_ = t;
        return POLL_PENDING;
    }
    rx->future.status = rc;
    return POLL_READY;
}

/* The sender learns it. Idempotent, also for a zeroed receiver. */
static inline void oneshot_rx_drop(struct oneshot_rx *rx)
{
    struct oneshot_tx *tx = rx->tx_;
    if (!tx)
        return;
    struct task *t = tx->task_;
    tx->rx_ = NULL;
    tx->task_ = NULL;
    rx->tx_ = NULL;
    rx->task_ = NULL;
    rx->state_ = ONESHOT_GONE;
    if (t)
        task_wake(t);
}

/* The sender waits for the receiver to go, to stop work that nobody wants. Ready with status 0.
 * Cancel safe. The end must stay where it is meanwhile. */
struct oneshot_closed {
    struct future future;
    struct oneshot_tx *tx_;
};

extern const struct future_kind oneshot_closed_kind;

static inline void oneshot_closed_init(struct oneshot_closed *c, struct oneshot_tx *tx)
{
    *c = (struct oneshot_closed){.future = {.kind = &oneshot_closed_kind}, .tx_ = tx};
}

static inline enum poll oneshot_closed_poll(struct oneshot_closed *c, struct task *t)
{
    if (oneshot_is_closed(c->tx_))
        return POLL_READY;
    c->tx_->task_ = t;
    return POLL_PENDING;
}

static inline void oneshot_closed_drop(struct oneshot_closed *c)
{
    c->tx_->task_ = NULL;
}

#endif
