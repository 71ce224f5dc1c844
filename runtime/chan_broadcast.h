/* Every event to every receiver of one core, who may be slow: a ring of the newest events.
 *
 * The sender never waits. A receiver that falls more than the ring's length behind loses the oldest
 * events, is told how many, and goes on at the oldest that is left. A subscriber gets what is sent
 * after it came. Events are copied in and out (`item_size` bytes), so nobody owns anything.
 *
 * Events of other cores come over a chan_mpsc_remote to the core (or thread) of the broadcast: the
 * slow reader must hold up nobody on the way, and one channel's loss is easier told than two.
 *
 * Thread: single owner.
 */
#ifndef MILLRACE_RUNTIME_CHAN_BROADCAST_H
#define MILLRACE_RUNTIME_CHAN_BROADCAST_H

#include <assert.h>
#include <errno.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#include "runtime/future.h"
#include "runtime/wait.h"

struct broadcast {
    unsigned char *slots_;
    uint32_t mask_;
    uint32_t item_size_;
    uint64_t sent_; /* events so far; event i is in slot i & mask_ */
    struct wait_list waiters_;
    uint32_t receivers_;
    bool closed_;
};

/* `slots`: capacity * item_size bytes that outlive the channel; capacity is a power of two. */
void broadcast_init(struct broadcast *ch, void *slots, uint32_t capacity, uint32_t item_size);

/* All receivers must have left (asserted). */
void broadcast_fini(struct broadcast *ch);

/* Copies `item` in and wakes who waits. How many receivers there are; 0 also once closed, and then
 * nothing was sent. */
static inline uint32_t broadcast_send(struct broadcast *ch, const void *item)
{
    if (ch->closed_)
        return 0;
    memcpy(ch->slots_ + (size_t)(ch->sent_ & ch->mask_) * ch->item_size_, item, ch->item_size_);
    ch->sent_++;
    wait_wake_all(&ch->waiters_);
    return ch->receivers_;
}

/* Sender: that was all. Receivers get what is left, then -EPIPE. Idempotent. */
void broadcast_close(struct broadcast *ch);

/* Events so far. */
static inline uint64_t broadcast_sent(const struct broadcast *ch)
{
    return ch->sent_;
}

/* A subscription, which is also the future of the next event: ready with status
 *   0          and a copy of the event in `into`,
 *   -EOVERFLOW nothing copied: `lagged` events were lost, the next poll gives the oldest left,
 *   -EPIPE     closed, and all that was left has been received.
 * May be polled again after ready. Dropping the future loses nothing: the subscription stays, and
 * with it its place, until broadcast_unsubscribe(). */
struct broadcast_rx {
    struct future future;
    struct broadcast *ch_;
    uint64_t next_;        /* event to read next */
    void *into;            /* item_size bytes; may be changed between polls */
    uint64_t lagged;       /* lost, as of the last -EOVERFLOW */
    uint64_t lagged_total; /* in the life of the subscription */
    struct wait_node node_;
};

extern const struct future_kind broadcast_recv_kind;

/* From the next event on. A closed channel may be subscribed to: its end is read at once. */
void broadcast_subscribe(struct broadcast *ch, struct broadcast_rx *rx, void *into);

/* Idempotent, also for a zeroed one. */
void broadcast_unsubscribe(struct broadcast_rx *rx);

/* Events sent and not yet read, also those that are lost already. */
static inline uint64_t broadcast_behind(const struct broadcast_rx *rx)
{
    return rx->ch_->sent_ - rx->next_;
}

/* Status as above, or -EAGAIN: nothing new. */
static inline int broadcast_try_recv(struct broadcast_rx *rx)
{
    const struct broadcast *ch = rx->ch_;
    uint64_t behind = ch->sent_ - rx->next_;
    if (behind == 0)
        return ch->closed_ ? -EPIPE : -EAGAIN;
    if (__builtin_expect(behind > (uint64_t)ch->mask_ + 1, 0)) {
        rx->lagged = behind - ch->mask_ - 1;
        rx->lagged_total += rx->lagged;
        rx->next_ += rx->lagged;
        return -EOVERFLOW;
    }
    memcpy(rx->into, ch->slots_ + (size_t)(rx->next_ & ch->mask_) * ch->item_size_, ch->item_size_);
    rx->next_++;
    return 0;
}

static inline enum poll broadcast_recv_poll(struct broadcast_rx *rx, struct task *t)
{
    int rc = broadcast_try_recv(rx);
    if (rc == -EAGAIN) {
        wait_park(&rx->ch_->waiters_, &rx->node_, t);
        return POLL_PENDING;
    }
    wait_cancel(&rx->node_);
    rx->future.status = rc;
    return POLL_READY;
}

#endif
