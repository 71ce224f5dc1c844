#include "runtime/chan_mpsc.h"

#include <assert.h>
#include <string.h>

void mpsc_init(struct mpsc *ch, void **slots, uint32_t capacity)
{
    assert(slots && capacity > 0);
    *ch = (struct mpsc){.slots_ = slots, .capacity_ = capacity, .senders_ = 1};
    chan_gate_init(&ch->gate_, capacity);
}

void mpsc_fini(struct mpsc *ch)
{
    assert(ch->len_ == 0 && ch->gate_.reserved_ == 0);
    assert(wait_list_is_empty(&ch->gate_.waiters_) && !ch->receiver_);
    ch->slots_ = NULL;
}

void mpsc_sender_put(struct mpsc *ch)
{
    assert(ch->senders_ > 0);
    if (--ch->senders_ == 0)
        mpsc_wake_receiver_(ch);
}

void mpsc_close(struct mpsc *ch)
{
    chan_gate_close(&ch->gate_);
    mpsc_wake_receiver_(ch);
}

void mpsc_unreserved_(struct mpsc *ch)
{
    if (ch->gate_.reserved_ == 0 && (ch->gate_.closed_ || ch->senders_ == 0))
        mpsc_wake_receiver_(ch);
}

void mpsc_send_drop(struct mpsc_send *s)
{
    chan_claim_drop(&s->ch_->gate_, &s->claim_);
    mpsc_unreserved_(s->ch_);
}

void mpsc_reserve_drop(struct mpsc_reserve *r)
{
    chan_claim_drop(&r->ch_->gate_, &r->claim_);
    mpsc_permit_put(&r->permit);
    mpsc_unreserved_(r->ch_);
}

uint32_t mpsc_try_recv_many(struct mpsc *ch, void **ret_items, uint32_t max)
{
    uint32_t n = max < ch->len_ ? max : ch->len_;
    uint32_t first = n < ch->capacity_ - ch->head_ ? n : ch->capacity_ - ch->head_;

    memcpy(ret_items, ch->slots_ + ch->head_, first * sizeof(*ret_items));
    memcpy(ret_items + first, ch->slots_, (n - first) * sizeof(*ret_items));
    ch->head_ = n < ch->capacity_ - ch->head_ ? ch->head_ + n : n - first;
    ch->len_ -= n;
    chan_gate_put(&ch->gate_, n);
    return n;
}

enum poll mpsc_recv_many_poll(struct mpsc_recv_many *r, struct task *t)
{
    struct mpsc_recv one = {.ch_ = r->ch_};

    r->n = mpsc_try_recv_many(r->ch_, r->items_, r->max_);
    /* When nothing was there this parks, or tells the end. */
    enum poll p = r->n > 0 ? POLL_READY : mpsc_recv_poll(&one, t);
    r->future.status = one.future.status;
    r->parked_ = one.parked_;
    return p;
}

void mpsc_recv_drop(struct mpsc_recv *r)
{
    if (r->parked_)
        r->ch_->receiver_ = NULL;
    r->parked_ = false;
}

void mpsc_recv_many_drop(struct mpsc_recv_many *r)
{
    if (r->parked_)
        r->ch_->receiver_ = NULL;
    r->parked_ = false;
}

static enum poll poll_send(struct future *f, struct task *t)
{
    return mpsc_send_poll(container_of(f, struct mpsc_send, future), t);
}

static void drop_send(struct future *f)
{
    mpsc_send_drop(container_of(f, struct mpsc_send, future));
}

const struct future_kind mpsc_send_kind = {"mpsc_send", poll_send, drop_send};

static enum poll poll_reserve(struct future *f, struct task *t)
{
    return mpsc_reserve_poll(container_of(f, struct mpsc_reserve, future), t);
}

static void drop_reserve(struct future *f)
{
    mpsc_reserve_drop(container_of(f, struct mpsc_reserve, future));
}

const struct future_kind mpsc_reserve_kind = {"mpsc_reserve", poll_reserve, drop_reserve};

static enum poll poll_recv(struct future *f, struct task *t)
{
    return mpsc_recv_poll(container_of(f, struct mpsc_recv, future), t);
}

static void drop_recv(struct future *f)
{
    mpsc_recv_drop(container_of(f, struct mpsc_recv, future));
}

const struct future_kind mpsc_recv_kind = {"mpsc_recv", poll_recv, drop_recv};

static enum poll poll_recv_many(struct future *f, struct task *t)
{
    return mpsc_recv_many_poll(container_of(f, struct mpsc_recv_many, future), t);
}

static void drop_recv_many(struct future *f)
{
    mpsc_recv_many_drop(container_of(f, struct mpsc_recv_many, future));
}

const struct future_kind mpsc_recv_many_kind = {"mpsc_recv_many", poll_recv_many, drop_recv_many};
