/* Ring of the last polls that ran too long, for people to look at.
 *
 * Written by the owner core alone (on its thread, or in a signal handler that has interrupted it),
 * read by any thread: a reader copies a record and checks its sequence number before and after, so
 * it never waits and never sees half a record.
 */
#ifndef MILLRACE_RUNTIME_STALL_H
#define MILLRACE_RUNTIME_STALL_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#define STALL_RING_SIZE   32
#define STALL_LABEL_BYTES 32 /* with the closing 0 */
#define STALL_LABEL_WORDS (STALL_LABEL_BYTES / 8)
#define STALL_FRAMES      32

struct stall_record {
    uint64_t at;                    /* `now` of the pass, ns */
    uint64_t ns;                    /* how long it took, or when `running`, had taken */
    bool running;                   /* it was sampled and hasn't ended */
    const char *kind;               /* static */
    char label[STALL_LABEL_BYTES];  /* a cut copy: the task may be gone */
    unsigned nframes;               /* 0: it wasn't sampled */
    uintptr_t frames[STALL_FRAMES]; /* innermost first: where it was when it was sampled */
};

struct stall_slot {
    atomic_uint_fast64_t seq; /* 2 * (index + 1) when whole, odd while written */
    atomic_uint_fast64_t at, ns;
    _Atomic(const char *) kind;
    atomic_uint_fast64_t label[STALL_LABEL_WORDS];
    atomic_uint_fast64_t nframes;
    atomic_uintptr_t frames[STALL_FRAMES];
};

/* Zeroed memory is an empty ring. */
struct stall_ring {
    atomic_uint_fast64_t written; /* records so far */
    struct stall_slot slots[STALL_RING_SIZE];
};

/* What stall_push() is told; `frames` innermost first, cut to STALL_FRAMES. */
struct stall_event {
    uint64_t at, ns;
    bool running;
    const char *kind, *label; /* label: NULL for none */
    const uintptr_t *frames;
    unsigned nframes;
};

/* Owner only; async-signal-safe, but must not interrupt itself. Returns the record's number, for
 * stall_settle(). */
uint64_t stall_push(struct stall_ring *r, const struct stall_event *e);

/* Owner only: record `number`, pushed as running, has ended and took `ns`. Overwritten meanwhile:
 * a no-op. */
void stall_settle(struct stall_ring *r, uint64_t number, uint64_t ns);

/* Any thread. Newest first, at most `max` and STALL_RING_SIZE; returns how many were read. A record
 * that is overwritten meanwhile is left out. */
unsigned stall_read(const struct stall_ring *r, struct stall_record *ret_records, unsigned max);

/* Any thread: records since start, also those overwritten. */
static inline uint64_t stall_count(const struct stall_ring *r)
{
    return atomic_load_explicit(&r->written, memory_order_relaxed);
}

#endif
