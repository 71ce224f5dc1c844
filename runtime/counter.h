/* Counters that one thread writes and others read, without a lock-prefixed instruction.
 *
 * Group the counters of one writer in a struct marked COUNTER_BLOCK, so that no other writer shares
 * its cache lines. Reads see each counter whole, but a group not at one instant.
 */
#ifndef MILLRACE_RUNTIME_COUNTER_H
#define MILLRACE_RUNTIME_COUNTER_H

#include <stdatomic.h>
#include <stdint.h>

/* struct my_counters { struct counter a, b; } COUNTER_BLOCK; */
#define COUNTER_BLOCK __attribute__((aligned(64)))

struct counter {
    atomic_uint_fast64_t v_; /* relaxed both ways: nothing is published through a counter */
};

/* Writer only. */
static inline void counter_add(struct counter *c, uint64_t n)
{
    uint64_t v = atomic_load_explicit(&c->v_, memory_order_relaxed);
    atomic_store_explicit(&c->v_, v + n, memory_order_relaxed);
}

static inline void counter_inc(struct counter *c)
{
    counter_add(c, 1);
}

/* Writer only: for gauges. */
static inline void counter_set(struct counter *c, uint64_t v)
{
    atomic_store_explicit(&c->v_, v, memory_order_relaxed);
}

/* Any thread. */
static inline uint64_t counter_get(const struct counter *c)
{
    return atomic_load_explicit(&c->v_, memory_order_relaxed);
}

#endif
