/* Room in a bounded channel: free slots, reserved slots and those who wait for one, first come
 * first served. What chan_mpsc and a port of chan_mpsc_remote have in common; not for others.
 *
 * A slot is free, reserved, or the channel's (an item is in it). While anyone waits nothing is
 * free: a slot that comes back goes to the longest waiting claim, so nobody can overtake it.
 *
 * Thread: single owner.
 */
#ifndef MILLRACE_RUNTIME_CHAN_GATE_H
#define MILLRACE_RUNTIME_CHAN_GATE_H

#include <assert.h>
#include <errno.h>
#include <stdbool.h>
#include <stdint.h>

#include "runtime/wait.h"

struct chan_gate {
    struct wait_list waiters_; /* claims; not empty only while free_ is 0 */
    uint32_t free_;            /* 0 once closed */
    uint32_t reserved_;        /* by permits and granted claims */
    bool closed_;
};

/* A place in the line. Zeroed before use. */
struct chan_claim {
    struct wait_node node_;
    bool granted_; /* a reserved slot is ours */
};

static inline void chan_gate_init(struct chan_gate *g, uint32_t free)
{
    *g = (struct chan_gate){.free_ = free};
    wait_list_init(&g->waiters_);
}

/* 0: a slot is the caller's. -EPIPE: closed. -EAGAIN: none is free. */
static inline int chan_gate_try(struct chan_gate *g)
{
    if (__builtin_expect(g->free_ > 0, 1)) {
        g->free_--;
        return 0;
    }
    return g->closed_ ? -EPIPE : -EAGAIN;
}

/* As chan_gate_claim(), where nothing is free. */
int chan_gate_wait(struct chan_gate *g, struct chan_claim *c, struct task *t);

/* As chan_gate_try(), but -EAGAIN has parked the claim: it will be granted a slot and `t` woken. A
 * claim that was granted one before the gate was closed still has it. */
static inline int chan_gate_claim(struct chan_gate *g, struct chan_claim *c, struct task *t)
{
    if (__builtin_expect(g->free_ > 0 && !c->granted_, 1)) {
        g->free_--;
        return 0;
    }
    return chan_gate_wait(g, c, t);
}

/* Leaves the line; a slot that was granted goes to the next. Idempotent. */
void chan_claim_drop(struct chan_gate *g, struct chan_claim *c);

/* Gives slots to those who wait, the rest is free; a closed gate forgets them. */
void chan_gate_grant(struct chan_gate *g, uint32_t slots);

/* `slots` that the channel or a permit held are empty again. */
static inline void chan_gate_put(struct chan_gate *g, uint32_t slots)
{
    if (__builtin_expect(wait_list_is_empty(&g->waiters_) && !g->closed_, 1))
        g->free_ += slots;
    else
        chan_gate_grant(g, slots);
}

/* The caller's slot becomes a permit's, and back. */
static inline void chan_gate_reserve(struct chan_gate *g)
{
    g->reserved_++;
}

static inline void chan_gate_unreserve(struct chan_gate *g)
{
    assert(g->reserved_ > 0);
    g->reserved_--;
}

/* Nothing is free any more, and all who wait learn it. Reserved slots stay so. Idempotent. */
void chan_gate_close(struct chan_gate *g);

#endif
