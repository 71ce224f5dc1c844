/* Bounded channel on one core: many senders, one receiver, items of pointer size by value.
 *
 * The storage is the caller's and nothing is allocated to wait. Senders are served first come first
 * served: as long as one waits, no other gets a slot, so mpsc_try_send() can't overtake it. Items
 * of one sender arrive in its order. At no time are more than `capacity` items queued or reserved.
 *
 * An item belongs to the sender until a send says 0, then to the channel, and to the receiver once
 * received. What the receiver closed and did not take is for mpsc_try_recv() to drain.
 *
 * Ends: the receiver closes (mpsc_close(): senders get -EPIPE, what is queued or reserved can still
 * be received), or the last sender leaves (mpsc_sender_put(): the receiver drains, then gets
 * -EPIPE).
 *
 * No poll here takes from the task's budget: on one core a poll can't send or receive more than
 * `capacity` items, as the other side doesn't run meanwhile. What the task does with an item
 * counts.
 *
 * Thread: single owner; between cores use chan_mpsc_remote.h.
 */
#ifndef MILLRACE_RUNTIME_CHAN_MPSC_H
#define MILLRACE_RUNTIME_CHAN_MPSC_H

#include <errno.h>
#include <stdbool.h>
#include <stdint.h>

#include "runtime/chan_gate.h"
#include "runtime/future.h"

struct mpsc {
    void **slots_;
    uint32_t capacity_;
    uint32_t head_; /* index of the oldest item */
    uint32_t tail_; /* index of the next one to come */
    uint32_t len_;
    struct task *receiver_; /* parked; NULL: not */
    struct chan_gate gate_; /* free_ + reserved_ + len_ == capacity_ until closed */
    uint32_t senders_;
};

/* `slots` holds `capacity` (> 0) items and must outlive the channel. One sender is there: its
 * maker, who leaves by mpsc_sender_put(). */
void mpsc_init(struct mpsc *ch, void **slots, uint32_t capacity);

/* Nothing may be queued, reserved or parked (asserted). */
void mpsc_fini(struct mpsc *ch);

/* Counts those who may still send. The last put lets the receiver see the end. */
static inline void mpsc_sender_get(struct mpsc *ch)
{
    ch->senders_++;
}
void mpsc_sender_put(struct mpsc *ch);

/* Receiver: no more, please. Idempotent. */
void mpsc_close(struct mpsc *ch);

static inline bool mpsc_is_closed(const struct mpsc *ch)
{
    return ch->gate_.closed_;
}

/* Gauges, in items. Free: what a try_send would find; 0 once closed. */
static inline uint32_t mpsc_capacity(const struct mpsc *ch)
{
    return ch->capacity_;
}

static inline uint32_t mpsc_len(const struct mpsc *ch)
{
    return ch->len_;
}

static inline uint32_t mpsc_free(const struct mpsc *ch)
{
    return ch->gate_.free_;
}

static inline uint32_t mpsc_reserved(const struct mpsc *ch)
{
    return ch->gate_.reserved_;
}

static inline void mpsc_wake_receiver_(struct mpsc *ch)
{
    struct task *t = ch->receiver_;
    if (t) {
        ch->receiver_ = NULL;
        task_wake(t);
    }
}

/* Into a slot that is the caller's. */
static inline void mpsc_push_(struct mpsc *ch, void *item)
{
    assert(ch->len_ < ch->capacity_);
    ch->slots_[ch->tail_] = item;
    ch->tail_ = ch->tail_ + 1 == ch->capacity_ ? 0 : ch->tail_ + 1;
    ch->len_++;
    mpsc_wake_receiver_(ch);
}

/* After a reservation went unused: it may have been all that the end was waiting for. */
void mpsc_unreserved_(struct mpsc *ch);

/* 0; -EAGAIN: full, or others wait; -EPIPE: closed. */
static inline int mpsc_try_send(struct mpsc *ch, void *item)
{
    int rc = chan_gate_try(&ch->gate_);
    if (rc == 0)
        mpsc_push_(ch, item);
    return rc;
}

/* A reserved slot: a send that cannot fail, also after mpsc_close(). Zeroed: none. Hand it on by
 * assignment, but use only one copy. */
struct mpsc_permit {
    struct mpsc *ch_;
};

/* As mpsc_try_send(). */
static inline int mpsc_try_reserve(struct mpsc *ch, struct mpsc_permit *ret_permit)
{
    int rc = chan_gate_try(&ch->gate_);
    if (rc == 0) {
        chan_gate_reserve(&ch->gate_);
        ret_permit->ch_ = ch;
    }
    return rc;
}

/* Uses the permit up. */
static inline void mpsc_permit_send(struct mpsc_permit *p, void *item)
{
    struct mpsc *ch = p->ch_;
    p->ch_ = NULL;
    chan_gate_unreserve(&ch->gate_);
    mpsc_push_(ch, item);
}

/* Gives the slot back, to the longest waiting sender if there is one. No-op for none. */
static inline void mpsc_permit_put(struct mpsc_permit *p)
{
    struct mpsc *ch = p->ch_;
    if (!ch)
        return;
    p->ch_ = NULL;
    chan_gate_unreserve(&ch->gate_);
    chan_gate_put(&ch->gate_, 1);
    mpsc_unreserved_(ch);
}

/* Waits for a slot and sends. Status 0, or -EPIPE and the item is still the sender's.
 * Cancel safe: dropped before ready it has sent nothing and loses its place in the line. */
struct mpsc_send {
    struct future future;
    struct mpsc *ch_;
    void *item_;
    struct chan_claim claim_;
};

extern const struct future_kind mpsc_send_kind;

static inline void mpsc_send_init(struct mpsc_send *s, struct mpsc *ch, void *item)
{
    *s = (struct mpsc_send){.future = {.kind = &mpsc_send_kind}, .ch_ = ch, .item_ = item};
}

static inline enum poll mpsc_send_poll(struct mpsc_send *s, struct task *t)
{
    int rc = chan_gate_claim(&s->ch_->gate_, &s->claim_, t);
    if (rc == -EAGAIN)
        return POLL_PENDING;
    if (rc == 0)
        mpsc_push_(s->ch_, s->item_);
    s->future.status = rc;
    return POLL_READY;
}

void mpsc_send_drop(struct mpsc_send *s);

/* Waits for a slot and keeps it. Status 0: `permit` is the caller's; or -EPIPE. Cancel safe, and a
 * permit that was not taken out yet is dropped with it. */
struct mpsc_reserve {
    struct future future;
    struct mpsc *ch_;
    struct mpsc_permit permit; /* move it out once ready: mpsc_permit_take() */
    struct chan_claim claim_;
};

extern const struct future_kind mpsc_reserve_kind;

static inline void mpsc_reserve_init(struct mpsc_reserve *r, struct mpsc *ch)
{
    *r = (struct mpsc_reserve){.future = {.kind = &mpsc_reserve_kind}, .ch_ = ch};
}

static inline enum poll mpsc_reserve_poll(struct mpsc_reserve *r, struct task *t)
{
    int rc = chan_gate_claim(&r->ch_->gate_, &r->claim_, t);
    if (rc == -EAGAIN)
        return POLL_PENDING;
    if (rc == 0) {
        chan_gate_reserve(&r->ch_->gate_);
        r->permit.ch_ = r->ch_;
    }
    r->future.status = rc;
    return POLL_READY;
}

void mpsc_reserve_drop(struct mpsc_reserve *r);

static inline struct mpsc_permit mpsc_permit_take(struct mpsc_permit *p)
{
    struct mpsc_permit taken = *p;
    p->ch_ = NULL;
    return taken;
}

/* 0; -EAGAIN: nothing yet; -EPIPE: nothing ever. */
static inline int mpsc_try_recv(struct mpsc *ch, void **ret_item)
{
    if (ch->len_ == 0) {
        bool more = ch->gate_.reserved_ > 0 || (ch->senders_ > 0 && !ch->gate_.closed_);
        return more ? -EAGAIN : -EPIPE;
    }
    *ret_item = ch->slots_[ch->head_];
    ch->head_ = ch->head_ + 1 == ch->capacity_ ? 0 : ch->head_ + 1;
    ch->len_--;
    chan_gate_put(&ch->gate_, 1);
    return 0;
}

/* How many of at most `max` were there, oldest first. */
uint32_t mpsc_try_recv_many(struct mpsc *ch, void **ret_items, uint32_t max);

/* Waits for an item. Status 0 and `item`, or -EPIPE at the end. Cancel safe: an item is either in
 * the queue or returned. One may be polled again after ready, for the next item; only one future
 * may wait at a time. */
struct mpsc_recv {
    struct future future;
    struct mpsc *ch_;
    void *item;
    bool parked_; /* we are ch_->receiver_ */
};

extern const struct future_kind mpsc_recv_kind;

static inline void mpsc_recv_init(struct mpsc_recv *r, struct mpsc *ch)
{
    *r = (struct mpsc_recv){.future = {.kind = &mpsc_recv_kind}, .ch_ = ch};
}

static inline enum poll mpsc_recv_poll(struct mpsc_recv *r, struct task *t)
{
    int rc = mpsc_try_recv(r->ch_, &r->item);
    r->parked_ = rc == -EAGAIN;
    if (r->parked_) {
        r->ch_->receiver_ = t;
        return POLL_PENDING;
    }
    r->future.status = rc;
    return POLL_READY;
}

void mpsc_recv_drop(struct mpsc_recv *r);

/* Waits for the first of up to `max` items and takes as many as are there: `n` of them. Status,
 * cancel safety and use again as mpsc_recv. */
struct mpsc_recv_many {
    struct future future;
    struct mpsc *ch_;
    void **items_;
    uint32_t max_;
    uint32_t n;
    bool parked_;
};

extern const struct future_kind mpsc_recv_many_kind;

static inline void mpsc_recv_many_init(struct mpsc_recv_many *r, struct mpsc *ch, void **items,
                                       uint32_t max)
{
    *r = (struct mpsc_recv_many){
        .future = {.kind = &mpsc_recv_many_kind}, .ch_ = ch, .items_ = items, .max_ = max};
}

enum poll mpsc_recv_many_poll(struct mpsc_recv_many *r, struct task *t);
void mpsc_recv_many_drop(struct mpsc_recv_many *r);

#endif
