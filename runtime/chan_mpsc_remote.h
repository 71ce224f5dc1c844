/* Bounded channel between cores: several sending threads, one receiving thread, items of pointer
 * size.
 *
 * Each sending thread has a port of its own, an rte_ring with one producer and one consumer, so
 * senders share no cache line that they write, and none can hold another up. The bound is
 * `capacity` items queued or reserved a port. On its thread a port is what a struct mpsc is there:
 * any number of tasks send, first come first served, and chan_mpsc.h says what send, reserve and
 * permit mean. The receiver takes from the ports in turn; items of one port arrive in its order.
 *
 * No wake-up is lost, and none is a system call unless a thread sleeps: a receiver that found
 * nothing says so before it looks once more; a sender that found no room asks for it by the
 * receiver's mailbox, and is answered by its own.
 *
 * An item belongs to the sender until a send says 0, then to the channel; each one sent is
 * received, as long as the receiver goes on until -EPIPE.
 *
 * Ends: mpsc_remote_close() makes sends fail with -EPIPE from their next call on (those who wait
 * are woken); what got in before, and permits, can still be received. A port whose last sender has
 * left has ended. The receiver gets -EPIPE when all ports have ended, or answered the close, and
 * are empty.
 *
 * Life: made and freed on a set-up thread; the mailboxes must outlive it. In between a function is
 * for the thread it names: "sender", the port's, or "receiver".
 */
#ifndef MILLRACE_RUNTIME_CHAN_MPSC_REMOTE_H
#define MILLRACE_RUNTIME_CHAN_MPSC_REMOTE_H

#include <errno.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include <rte_ring.h>

#include "runtime/chan_gate.h"
#include "runtime/future.h"
#include "runtime/mailbox.h"

#define MPSC_PARKED_ 1u /* in state_: the receiver found nothing and will not look again */
#define MPSC_CLOSED_ 2u /* by the receiver */
#define MPSC_ENDED_  (1ull << 63) /* in sent_: nothing will follow */

struct mpsc_remote;

struct mpsc_port {
    /* The sender's own: a line for every send, and one for waiting. */
    _Alignas(64) struct mpsc_remote *ch_;
    struct rte_ring *ring_;
    struct chan_gate gate_; /* room as known here: never more than there is */
    uint64_t count_;        /* what sent_ says */
    uint32_t senders_;
    uint32_t taken_;          /* the ring's consumer index as last seen */
    struct mailbox *mailbox_; /* NULL: the thread has none */
    bool asked_;              /* for room; the answer is still to come */
    /* From the sender; the receiver reads it before it parks. */
    _Alignas(64) _Atomic uint64_t sent_; /* items so far, and MPSC_ENDED_ */
    uint32_t asked_at_;                  /* taken_, of which the sender knew when it asked */
    struct mailbox_item room_wanted_;    /* to the receiver's mailbox */
    /* The receiver's own. */
    _Alignas(64) uint64_t seen_; /* of sent_: items taken, and MPSC_ENDED_ */
    bool starved_;               /* the sender waits for room */
    struct mailbox_item go_on_;  /* to the sender's mailbox: there is room, or it is closed */
};

struct mpsc_remote {
    /* Read by all senders; written when the receiver parks, is woken, or closes. */
    _Alignas(64) atomic_uint state_;
    /* The receiver's own. */
    _Alignas(64) struct task *task_; /* parked */
    struct mailbox *mailbox_;
    uint32_t next_; /* port to take from */
    uint32_t nports_;
    void (*ready_)(void *ctx);
    void *ctx_;
    struct mailbox_item wake_;
    struct mpsc_port ports_[];
};

struct mpsc_remote_opts {
    uint32_t capacity;        /* > 0, items a port */
    uint32_t nports;          /* > 0 */
    struct mailbox *receiver; /* the receiving thread's */
    /* [nports], the sending threads'. NULL for a thread without one: it can only try to send, and
     * learns of a close by its next try. */
    struct mailbox *const *senders;
    /* For a receiver that isn't a task (control): called on its thread, from its mailbox, once
     * after each mpsc_remote_arm() that said true. NULL: none. */
    void (*ready)(void *ctx);
    void *ctx;
};

/* 0, -EINVAL (too large a capacity) or -ENOMEM. Every port has one sender. */
int mpsc_remote_new(const struct mpsc_remote_opts *o, struct mpsc_remote **ret_ch);

/* No thread uses the channel any more, the queues are empty and the mailboxes drained (asserted).
 * NULL is a no-op. */
void mpsc_remote_free(struct mpsc_remote *ch);

/* Any thread. */
static inline struct mpsc_port *mpsc_remote_port(struct mpsc_remote *ch, uint32_t index)
{
    assert(index < ch->nports_);
    return &ch->ports_[index];
}

/* Sender. */

/* Counts those who may still send; with the last put, and the last permit, the port has ended. */
static inline void mpsc_port_sender_get(struct mpsc_port *p)
{
    assert(p->senders_ > 0);
    p->senders_++;
}
void mpsc_port_sender_put(struct mpsc_port *p);

static inline bool mpsc_port_is_closed(const struct mpsc_port *p)
{
    return p->gate_.closed_ ||
           (atomic_load_explicit(&p->ch_->state_, memory_order_relaxed) & MPSC_CLOSED_);
}

/* Gauge, in items: room as known here, at most what there is. */
static inline uint32_t mpsc_port_free(const struct mpsc_port *p)
{
    return p->gate_.free_;
}

static inline uint32_t mpsc_port_reserved(const struct mpsc_port *p)
{
    return p->gate_.reserved_;
}

int mpsc_port_take_slow_(struct mpsc_port *p);
int mpsc_port_claim_slow_(struct mpsc_port *p, struct chan_claim *c, struct task *t);
void mpsc_port_wake_receiver_(struct mpsc_port *p);
/* Ends the port if nothing can follow. */
void mpsc_port_settle_(struct mpsc_port *p);

static inline bool mpsc_port_has_room_(const struct mpsc_port *p)
{
    return __builtin_expect(p->gate_.free_ > 0 && !mpsc_port_is_closed(p), 1);
}

static inline int mpsc_port_take_(struct mpsc_port *p)
{
    if (!mpsc_port_has_room_(p))
        return mpsc_port_take_slow_(p);
    p->gate_.free_--;
    return 0;
}

/* Tells the receiver of sent_'s new value. The store and the load are one side of Dekker's pair
 * (both seq_cst); the receiver's is in mpsc_remote_arm(). */
static inline void mpsc_port_publish_(struct mpsc_port *p)
{
    atomic_store_explicit(&p->sent_, p->count_, memory_order_seq_cst);
    if (__builtin_expect(atomic_load_explicit(&p->ch_->state_, memory_order_seq_cst) & MPSC_PARKED_,
                         0))
        mpsc_port_wake_receiver_(p);
}

/* Into slots that are the caller's. */
static inline void mpsc_port_push_(struct mpsc_port *p, void *const *items, uint32_t n)
{
    unsigned pushed = rte_ring_sp_enqueue_bulk(p->ring_, items, n, NULL);
    assert(pushed == n);
    (void)pushed;
    p->count_ += n;
    mpsc_port_publish_(p);
}

/* 0; -EAGAIN: full, or others wait; -EPIPE: closed. */
static inline int mpsc_port_try_send(struct mpsc_port *p, void *item)
{
    int rc = mpsc_port_take_(p);
    if (rc == 0)
        mpsc_port_push_(p, &item, 1);
    return rc;
}

/* Sends the first of `items`, as many as there is room for, at the price of little more than one.
 * How many; 0 also when closed. */
uint32_t mpsc_port_try_send_many(struct mpsc_port *p, void *const *items, uint32_t n);

/* As struct mpsc_permit. */
struct mpsc_port_permit {
    struct mpsc_port *port_;
};

static inline int mpsc_port_try_reserve(struct mpsc_port *p, struct mpsc_port_permit *ret_permit)
{
    int rc = mpsc_port_take_(p);
    if (rc == 0) {
        chan_gate_reserve(&p->gate_);
        ret_permit->port_ = p;
    }
    return rc;
}

void mpsc_port_permit_send(struct mpsc_port_permit *permit, void *item);
void mpsc_port_permit_put(struct mpsc_port_permit *permit);

static inline struct mpsc_port_permit mpsc_port_permit_take(struct mpsc_port_permit *permit)
{
    struct mpsc_port_permit taken = *permit;
    permit->port_ = NULL;
    return taken;
}

/* Waits for a slot and sends. Status 0, or -EPIPE and the item is still the sender's. Needs the
 * port's mailbox. Cancel safe: dropped before ready it has sent nothing. */
struct mpsc_port_send {
    struct future future;
    struct mpsc_port *port_;
    void *item_;
    struct chan_claim claim_;
};

extern const struct future_kind mpsc_port_send_kind;

static inline void mpsc_port_send_init(struct mpsc_port_send *s, struct mpsc_port *p, void *item)
{
    *s = (struct mpsc_port_send){
        .future = {.kind = &mpsc_port_send_kind}, .port_ = p, .item_ = item};
}

static inline int mpsc_port_claim_(struct mpsc_port *p, struct chan_claim *c, struct task *t)
{
    if (c->granted_ || !mpsc_port_has_room_(p))
        return mpsc_port_claim_slow_(p, c, t);
    p->gate_.free_--;
    return 0;
}

static inline enum poll mpsc_port_send_poll(struct mpsc_port_send *s, struct task *t)
{
    int rc = mpsc_port_claim_(s->port_, &s->claim_, t);
    if (rc == -EAGAIN)
        return POLL_PENDING;
    if (rc == 0) {
        mpsc_port_push_(s->port_, &s->item_, 1);
        if (__builtin_expect(s->port_->gate_.closed_, 0))
            mpsc_port_settle_(s->port_);
    }
    s->future.status = rc;
    return POLL_READY;
}

void mpsc_port_send_drop(struct mpsc_port_send *s);

/* Waits for a slot and keeps it. Status 0: `permit` is the caller's (mpsc_port_permit_take()); or
 * -EPIPE. Cancel safe, and a permit not taken out yet is dropped with it. */
struct mpsc_port_reserve {
    struct future future;
    struct mpsc_port *port_;
    struct mpsc_port_permit permit;
    struct chan_claim claim_;
};

extern const struct future_kind mpsc_port_reserve_kind;

static inline void mpsc_port_reserve_init(struct mpsc_port_reserve *r, struct mpsc_port *p)
{
    *r = (struct mpsc_port_reserve){.future = {.kind = &mpsc_port_reserve_kind}, .port_ = p};
}

enum poll mpsc_port_reserve_poll(struct mpsc_port_reserve *r, struct task *t);
void mpsc_port_reserve_drop(struct mpsc_port_reserve *r);

/* Receiver. */

/* No more, please. Idempotent. */
void mpsc_remote_close(struct mpsc_remote *ch);

/* Items queued in all ports, about. */
uint32_t mpsc_remote_len(const struct mpsc_remote *ch);

/* 0; -EAGAIN: nothing yet; -EPIPE: nothing ever. */
int mpsc_remote_try_recv(struct mpsc_remote *ch, void **ret_item);

/* How many of at most `max` were there. */
uint32_t mpsc_remote_try_recv_many(struct mpsc_remote *ch, void **ret_items, uint32_t max);

/* For a receiver that isn't a task. True: nothing is there, `ready` will be called once something
 * is (or the end). False: look again. */
bool mpsc_remote_arm(struct mpsc_remote *ch);

/* Waits for an item. Status 0 and `item`, or -EPIPE at the end. Takes one operation of the task's
 * budget a poll, as senders on other cores may never let the queue run dry. Cancel safe. May be
 * polled again after ready; only one future may wait at a time. */
struct mpsc_remote_recv {
    struct future future;
    struct mpsc_remote *ch_;
    void *item;
    bool parked_; /* its task is ch_->task_ */
};

extern const struct future_kind mpsc_remote_recv_kind;

static inline void mpsc_remote_recv_init(struct mpsc_remote_recv *r, struct mpsc_remote *ch)
{
    *r = (struct mpsc_remote_recv){.future = {.kind = &mpsc_remote_recv_kind}, .ch_ = ch};
}

enum poll mpsc_remote_recv_poll(struct mpsc_remote_recv *r, struct task *t);
void mpsc_remote_recv_drop(struct mpsc_remote_recv *r);

/* Waits for the first of up to `max` items and takes as many as are there: `n`. Else as
 * mpsc_remote_recv. */
struct mpsc_remote_recv_many {
    struct future future;
    struct mpsc_remote *ch_;
    void **items_;
    uint32_t max_;
    uint32_t n;
    bool parked_;
};

extern const struct future_kind mpsc_remote_recv_many_kind;

static inline void mpsc_remote_recv_many_init(struct mpsc_remote_recv_many *r,
                                              struct mpsc_remote *ch, void **items, uint32_t max)
{
    *r = (struct mpsc_remote_recv_many){
        .future = {.kind = &mpsc_remote_recv_many_kind}, .ch_ = ch, .items_ = items, .max_ = max};
}

enum poll mpsc_remote_recv_many_poll(struct mpsc_remote_recv_many *r, struct task *t);
void mpsc_remote_recv_many_drop(struct mpsc_remote_recv_many *r);

#endif
