#include "dataplane/proxy/access_log.h"

#include <stdatomic.h>
#include <stdlib.h>

/* Single producer, single consumer. `tail_` is written by the core with release and read by the log
 * thread with acquire: it publishes the record. `head_` is written by the log thread with release
 * and read by the core with acquire: it gives the slot back. */
struct access_ring {
    uint32_t mask;
    _Alignas(64) _Atomic uint32_t head_;
    _Alignas(64) _Atomic uint32_t tail_;
    _Atomic uint64_t dropped_;
    _Alignas(64) struct access_record records[];
};

static const char *const reason_names[] = {
#define REASON(name, text) #name,
#include "dataplane/proxy/reason.def"
#undef REASON
};

const char *access_reason_name(enum access_reason r)
{
    return (unsigned)r < ACCESS_REASON_COUNT ? reason_names[r] : "?";
}

struct access_ring *access_ring_new(uint32_t size)
{
    uint32_t n = 16;
    while (n < size && n < 1u << 24)
        n <<= 1;
    size_t bytes = sizeof(struct access_ring) + (size_t)n * sizeof(struct access_record);
    struct access_ring *r = aligned_alloc(64, (bytes + 63) & ~(size_t)63);
    if (!r)
        return NULL;
    r->mask = n - 1;
    atomic_init(&r->head_, 0);
    atomic_init(&r->tail_, 0);
    atomic_init(&r->dropped_, 0);
    return r;
}

void access_ring_free(struct access_ring *r)
{
    free(r);
}

struct access_record *access_ring_reserve(struct access_ring *r)
{
    uint32_t tail = atomic_load_explicit(&r->tail_, memory_order_relaxed);
    uint32_t head = atomic_load_explicit(&r->head_, memory_order_acquire);
    if (tail - head > r->mask) {
        atomic_fetch_add_explicit(&r->dropped_, 1, memory_order_relaxed);
        return NULL;
    }
    return &r->records[tail & r->mask];
}

void access_ring_commit(struct access_ring *r)
{
    uint32_t tail = atomic_load_explicit(&r->tail_, memory_order_relaxed);
    atomic_store_explicit(&r->tail_, tail + 1, memory_order_release);
}

const struct access_record *access_ring_peek(struct access_ring *r)
{
    uint32_t head = atomic_load_explicit(&r->head_, memory_order_relaxed);
    uint32_t tail = atomic_load_explicit(&r->tail_, memory_order_acquire);
    return head == tail ? NULL : &r->records[head & r->mask];
}

void access_ring_pop(struct access_ring *r)
{
    uint32_t head = atomic_load_explicit(&r->head_, memory_order_relaxed);
    atomic_store_explicit(&r->head_, head + 1, memory_order_release);
}

uint64_t access_ring_dropped(const struct access_ring *r)
{
    return atomic_load_explicit(&r->dropped_, memory_order_relaxed);
}
