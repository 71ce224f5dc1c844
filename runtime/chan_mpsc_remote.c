#include "runtime/chan_mpsc_remote.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/sched.h"

/* Orders and their pairs:
 *  - A ring's tails: rte_ring's own release and acquire.
 *  - sent_ and state_: Dekker's pair, all accesses seq_cst. A sender writes sent_, then reads
 *    state_; the receiver writes MPSC_PARKED_, then reads every sent_. One sees the other.
 *  - MPSC_PARKED_ is cleared by one exchange (relaxed: the mailbox carries the rest): who finds it
 *    set posts the wake-up.
 *  - MPSC_CLOSED_ read relaxed is a hint; its delivery by go_on_ is what counts. A send that misses
 *    it is received: the end waits for MPSC_ENDED_ of every port.
 *  - Everything else goes by mailbox, or is one thread's. */

static_assert(offsetof(struct mpsc_port, mailbox_) == 64, "what a send touches is one line");

/* Acquire, both: what the other side did up to there is done. */
static uint32_t ring_taken(const struct rte_ring *r)
{
    return __atomic_load_n(&r->cons.tail, __ATOMIC_ACQUIRE);
}

static uint32_t ring_put(const struct rte_ring *r)
{
    return __atomic_load_n(&r->prod.tail, __ATOMIC_ACQUIRE);
}

/* Sender. */

/* What the receiver has done since we last looked. */
static void refresh(struct mpsc_port *p)
{
    struct chan_gate *g = &p->gate_;

    if (mpsc_port_is_closed(p)) {
        chan_gate_close(g);
        mpsc_port_settle_(p);
        return;
    }
    p->taken_ = ring_taken(p->ring_);
    uint32_t room = rte_ring_get_capacity(p->ring_) - (ring_put(p->ring_) - p->taken_);
    assert(room >= g->free_ + g->reserved_);
    chan_gate_grant(g, room - g->free_ - g->reserved_);
}

static void ask_for_room(struct mpsc_port *p)
{
    assert(p->mailbox_); /* nothing could wake us */
    if (p->asked_)
        return;
    p->asked_ = true;
    p->asked_at_ = p->taken_;
    mailbox_post(p->ch_->mailbox_, &p->room_wanted_);
}

static void on_go_on(struct mailbox_item *item)
{
    struct mpsc_port *p = container_of(item, struct mpsc_port, go_on_);

    p->asked_ = false;
    refresh(p);
    if (!wait_list_is_empty(&p->gate_.waiters_))
        ask_for_room(p);
}

int mpsc_port_take_slow_(struct mpsc_port *p)
{
    refresh(p);
    return chan_gate_try(&p->gate_);
}

int mpsc_port_claim_slow_(struct mpsc_port *p, struct chan_claim *c, struct task *t)
{
    if (!c->granted_)
        refresh(p);
    int rc = chan_gate_claim(&p->gate_, c, t);
    if (rc == -EAGAIN)
        ask_for_room(p);
    return rc;
}

void mpsc_port_wake_receiver_(struct mpsc_port *p)
{
    struct mpsc_remote *ch = p->ch_;

    if (atomic_fetch_and_explicit(&ch->state_, ~MPSC_PARKED_, memory_order_relaxed) & MPSC_PARKED_)
        mailbox_post(ch->mailbox_, &ch->wake_);
}

void mpsc_port_settle_(struct mpsc_port *p)
{
    bool over = p->gate_.closed_ && p->gate_.reserved_ == 0;

    if (!over || (p->count_ & MPSC_ENDED_))
        return;
    p->count_ |= MPSC_ENDED_;
    mpsc_port_publish_(p);
}

void mpsc_port_sender_put(struct mpsc_port *p)
{
    assert(p->senders_ > 0);
    if (--p->senders_ > 0)
        return;
    chan_gate_close(&p->gate_);
    mpsc_port_settle_(p);
}

uint32_t mpsc_port_try_send_many(struct mpsc_port *p, void *const *items, uint32_t n)
{
    if (p->gate_.free_ < n || mpsc_port_is_closed(p))
        refresh(p);
    n = n < p->gate_.free_ ? n : p->gate_.free_;
    if (n == 0)
        return 0;
    p->gate_.free_ -= n;
    mpsc_port_push_(p, items, n);
    return n;
}

void mpsc_port_permit_send(struct mpsc_port_permit *permit, void *item)
{
    struct mpsc_port *p = mpsc_port_permit_take(permit).port_;

    chan_gate_unreserve(&p->gate_);
    mpsc_port_push_(p, &item, 1);
    mpsc_port_settle_(p);
}

void mpsc_port_permit_put(struct mpsc_port_permit *permit)
{
    struct mpsc_port *p = mpsc_port_permit_take(permit).port_;

    if (!p)
        return;
    chan_gate_unreserve(&p->gate_);
    chan_gate_put(&p->gate_, 1);
    mpsc_port_settle_(p);
}

void mpsc_port_send_drop(struct mpsc_port_send *s)
{
    chan_claim_drop(&s->port_->gate_, &s->claim_);
    mpsc_port_settle_(s->port_);
}

enum poll mpsc_port_reserve_poll(struct mpsc_port_reserve *r, struct task *t)
{
    int rc = mpsc_port_claim_(r->port_, &r->claim_, t);

    if (rc == -EAGAIN)
        return POLL_PENDING;
    if (rc == 0) {
        chan_gate_reserve(&r->port_->gate_);
        r->permit.port_ = r->port_;
    }
    r->future.status = rc;
    return POLL_READY;
}

void mpsc_port_reserve_drop(struct mpsc_port_reserve *r)
{
    chan_claim_drop(&r->port_->gate_, &r->claim_);
    mpsc_port_permit_put(&r->permit);
    mpsc_port_settle_(r->port_);
}

/* Receiver. */

static void feed(struct mpsc_port *p)
{
    p->starved_ = false;
    mailbox_post(p->mailbox_, &p->go_on_);
}

static void on_room_wanted(struct mailbox_item *item)
{
    struct mpsc_port *p = container_of(item, struct mpsc_port, room_wanted_);

    p->starved_ = true;
    /* Not "is there room": what is left may be reserved, and we would send answers to and fro. */
    if (ring_taken(p->ring_) != p->asked_at_)
        feed(p);
}

static void on_wake(struct mailbox_item *item)
{
    struct mpsc_remote *ch = container_of(item, struct mpsc_remote, wake_);
    struct task *t = ch->task_;

    ch->task_ = NULL;
    if (t)
        task_wake(t);
    else if (ch->ready_)
        ch->ready_(ch->ctx_);
}

void mpsc_remote_close(struct mpsc_remote *ch)
{
    atomic_fetch_or_explicit(&ch->state_, MPSC_CLOSED_, memory_order_release);
    for (uint32_t i = 0; i < ch->nports_; i++)
        if (ch->ports_[i].mailbox_ && !(ch->ports_[i].seen_ & MPSC_ENDED_))
            mailbox_post(ch->ports_[i].mailbox_, &ch->ports_[i].go_on_);
}

uint32_t mpsc_remote_len(const struct mpsc_remote *ch)
{
    uint32_t n = 0;

    for (uint32_t i = 0; i < ch->nports_; i++) {
        uint32_t taken = ring_taken(ch->ports_[i].ring_);
        n += ring_put(ch->ports_[i].ring_) - taken;
    }
    return n;
}

static uint32_t take_from(struct mpsc_port *p, void **ret_items, uint32_t max)
{
    uint32_t n = rte_ring_sc_dequeue_burst(p->ring_, ret_items, max, NULL);

    p->seen_ += n;
    if (n > 0 && p->starved_)
        feed(p);
    return n;
}

uint32_t mpsc_remote_try_recv_many(struct mpsc_remote *ch, void **ret_items, uint32_t max)
{
    uint32_t n = 0;

    for (uint32_t i = 0; i < ch->nports_ && n < max; i++) {
        struct mpsc_port *p = &ch->ports_[ch->next_];
        ch->next_ = ch->next_ + 1 == ch->nports_ ? 0 : ch->next_ + 1;
        n += take_from(p, ret_items + n, max - n);
    }
    return n;
}

/* All ports have ended and are empty. */
static bool is_over(struct mpsc_remote *ch)
{
    uint32_t ended = 0;

    for (uint32_t i = 0; i < ch->nports_; i++) {
        struct mpsc_port *p = &ch->ports_[i];
        /* Acquire: what the senders did before they left is done. */
        if (atomic_load_explicit(&p->sent_, memory_order_acquire) == (p->seen_ | MPSC_ENDED_))
            p->seen_ |= MPSC_ENDED_;
        ended += p->seen_ & MPSC_ENDED_ ? 1 : 0;
    }
    return ended == ch->nports_;
}

int mpsc_remote_try_recv(struct mpsc_remote *ch, void **ret_item)
{
    void *item;

    if (mpsc_remote_try_recv_many(ch, &item, 1) == 0)
        return is_over(ch) ? -EPIPE : -EAGAIN;
    *ret_item = item;
    return 0;
}

bool mpsc_remote_arm(struct mpsc_remote *ch)
{
    atomic_fetch_or_explicit(&ch->state_, MPSC_PARKED_, memory_order_seq_cst);
    for (uint32_t i = 0; i < ch->nports_; i++) {
        struct mpsc_port *p = &ch->ports_[i];
        /* Less than we have seen: an item is taken that its sender has yet to count, and then it
         * wakes us for nothing. To wait for that here would be to wait for its core. */
        if (atomic_load_explicit(&p->sent_, memory_order_seq_cst) > p->seen_) {
            /* A sender who found the flag first wakes us for nothing. */
            atomic_fetch_and_explicit(&ch->state_, ~MPSC_PARKED_, memory_order_relaxed);
            return false;
        }
    }
    return true;
}

/* Ready: *ret_n items, or none and *ret_status says why. */
static enum poll recv_poll(struct mpsc_remote *ch, struct task *t, void **items, uint32_t max,
                           uint32_t *ret_n, int *ret_status)
{
    ch->task_ = NULL;
    if (!task_consume(t, 1))
        return POLL_PENDING;
    for (;;) {
        uint32_t n = mpsc_remote_try_recv_many(ch, items, max);
        if (n > 0 || is_over(ch)) {
            *ret_n = n;
            *ret_status = n > 0 ? 0 : -EPIPE;
            return POLL_READY;
        }
        ch->task_ = t;
        if (mpsc_remote_arm(ch))
            return POLL_PENDING;
        ch->task_ = NULL;
    }
}

static void unpark(struct mpsc_remote *ch, bool *parked)
{
    if (*parked)
        ch->task_ = NULL;
    *parked = false;
}

enum poll mpsc_remote_recv_poll(struct mpsc_remote_recv *r, struct task *t)
{
    uint32_t n = 0;
    enum poll p = recv_poll(r->ch_, t, &r->item, 1, &n, &r->future.status);

    r->parked_ = p == POLL_PENDING;
    return p;
}

void mpsc_remote_recv_drop(struct mpsc_remote_recv *r)
{
    unpark(r->ch_, &r->parked_);
}

enum poll mpsc_remote_recv_many_poll(struct mpsc_remote_recv_many *r, struct task *t)
{
    enum poll p = recv_poll(r->ch_, t, r->items_, r->max_, &r->n, &r->future.status);

    r->parked_ = p == POLL_PENDING;
    return p;
}

void mpsc_remote_recv_many_drop(struct mpsc_remote_recv_many *r)
{
    unpark(r->ch_, &r->parked_);
}

/* As values. */

static enum poll poll_send(struct future *f, struct task *t)
{
    return mpsc_port_send_poll(container_of(f, struct mpsc_port_send, future), t);
}

static void drop_send(struct future *f)
{
    mpsc_port_send_drop(container_of(f, struct mpsc_port_send, future));
}

const struct future_kind mpsc_port_send_kind = {"mpsc_port_send", poll_send, drop_send};

static enum poll poll_reserve(struct future *f, struct task *t)
{
    return mpsc_port_reserve_poll(container_of(f, struct mpsc_port_reserve, future), t);
}

static void drop_reserve(struct future *f)
{
    mpsc_port_reserve_drop(container_of(f, struct mpsc_port_reserve, future));
}

const struct future_kind mpsc_port_reserve_kind = {"mpsc_port_reserve", poll_reserve, drop_reserve};

static enum poll poll_recv(struct future *f, struct task *t)
{
    return mpsc_remote_recv_poll(container_of(f, struct mpsc_remote_recv, future), t);
}

static void drop_recv(struct future *f)
{
    mpsc_remote_recv_drop(container_of(f, struct mpsc_remote_recv, future));
}

const struct future_kind mpsc_remote_recv_kind = {"mpsc_remote_recv", poll_recv, drop_recv};

static enum poll poll_recv_many(struct future *f, struct task *t)
{
    return mpsc_remote_recv_many_poll(container_of(f, struct mpsc_remote_recv_many, future), t);
}

static void drop_recv_many(struct future *f)
{
    mpsc_remote_recv_many_drop(container_of(f, struct mpsc_remote_recv_many, future));
}

const struct future_kind mpsc_remote_recv_many_kind = {"mpsc_remote_recv_many", poll_recv_many,
                                                       drop_recv_many};

/* Life. */

static int ring_new(uint32_t capacity, struct rte_ring **ret_ring)
{
    if (capacity > RTE_RING_SZ_MASK)
        return -EINVAL;
    ssize_t size = rte_ring_get_memsize(rte_align32pow2(capacity + 1));
    struct rte_ring *r = aligned_alloc(64, ((size_t)size + 63) & ~(size_t)63);
    if (!r)
        return -ENOMEM;
    int rc = rte_ring_init(r, "mpsc", capacity, RING_F_SP_ENQ | RING_F_SC_DEQ | RING_F_EXACT_SZ);
    if (rc < 0) {
        free(r);
        return rc;
    }
    *ret_ring = r;
    return 0;
}

static int port_init(struct mpsc_port *p, struct mpsc_remote *ch, struct mailbox *sender,
                     uint32_t capacity)
{
    p->ch_ = ch;
    p->mailbox_ = sender;
    p->senders_ = 1;
    p->room_wanted_.deliver = on_room_wanted;
    p->go_on_.deliver = on_go_on;
    chan_gate_init(&p->gate_, capacity);
    return ring_new(capacity, &p->ring_);
}

static void ports_fini(struct mpsc_remote *ch)
{
    for (uint32_t i = 0; i < ch->nports_; i++)
        free(ch->ports_[i].ring_);
}

int mpsc_remote_new(const struct mpsc_remote_opts *o, struct mpsc_remote **ret_ch)
{
    assert(o->nports > 0 && o->capacity > 0 && o->receiver);
    size_t size = sizeof(struct mpsc_remote) + o->nports * sizeof(struct mpsc_port);
    struct mpsc_remote *ch = aligned_alloc(64, size);
    int rc = 0;

    if (!ch)
        return -ENOMEM;
    memset(ch, 0, size);
    ch->mailbox_ = o->receiver;
    ch->nports_ = o->nports;
    ch->ready_ = o->ready;
    ch->ctx_ = o->ctx;
    ch->wake_.deliver = on_wake;
    for (uint32_t i = 0; i < o->nports && rc == 0; i++)
        rc = port_init(&ch->ports_[i], ch, o->senders[i], o->capacity);
    if (rc < 0) {
        ports_fini(ch);
        free(ch);
        return rc;
    }
    *ret_ch = ch;
    return 0;
}

/* Asked by assertions alone. */
__attribute__((unused)) static bool is_posted(const struct mailbox_item *item)
{
    return atomic_load_explicit(&item->queued, memory_order_relaxed);
}

void mpsc_remote_free(struct mpsc_remote *ch)
{
    if (!ch)
        return;
    assert(mpsc_remote_len(ch) == 0 && !is_posted(&ch->wake_));
    for (uint32_t i = 0; i < ch->nports_; i++) {
        struct mpsc_port *p = &ch->ports_[i];
        assert(p->gate_.reserved_ == 0 && wait_list_is_empty(&p->gate_.waiters_));
        assert(!is_posted(&p->room_wanted_) && !is_posted(&p->go_on_));
        (void)p;
    }
    ports_fini(ch);
    free(ch);
}
