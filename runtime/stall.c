#include "runtime/stall.h"

#include <string.h>

/* A seqlock whose data are atomics: release stores and acquire loads rather than fences, which
 * ThreadSanitizer doesn't model. Each data store releases the odd seq before it, so a reader that
 * saw any new datum (acquire) sees that seq, or a later one, on its second look, and drops the
 * copy. The closing even seq (release) pairs with the reader's first look (acquire). */

/* In slot->ns: one word, so that a record settles in one store. */
#define RUNNING (1ull << 63)

static void load_label(uint64_t *words, const char *label)
{
    memset(words, 0, STALL_LABEL_BYTES);
    if (label)
        memcpy(words, label, strnlen(label, STALL_LABEL_BYTES - 1));
}

static struct stall_slot *slot_of(struct stall_ring *r, uint64_t index)
{
    return &r->slots[index % STALL_RING_SIZE];
}

uint64_t stall_push(struct stall_ring *r, const struct stall_event *e)
{
    uint64_t index = atomic_load_explicit(&r->written, memory_order_relaxed);
    struct stall_slot *slot = slot_of(r, index);
    unsigned nframes = e->nframes < STALL_FRAMES ? e->nframes : STALL_FRAMES;
    uint64_t words[STALL_LABEL_WORDS];
    load_label(words, e->label);

    atomic_store_explicit(&slot->seq, 2 * index + 1, memory_order_relaxed);
    atomic_store_explicit(&slot->at, e->at, memory_order_release);
    atomic_store_explicit(&slot->ns, e->ns | (e->running ? RUNNING : 0), memory_order_release);
    atomic_store_explicit(&slot->kind, e->kind, memory_order_release);
    for (unsigned i = 0; i < STALL_LABEL_WORDS; i++)
        atomic_store_explicit(&slot->label[i], words[i], memory_order_release);
    atomic_store_explicit(&slot->nframes, nframes, memory_order_release);
    for (unsigned i = 0; i < nframes; i++)
        atomic_store_explicit(&slot->frames[i], e->frames[i], memory_order_release);
    atomic_store_explicit(&slot->seq, 2 * (index + 1), memory_order_release);
    atomic_store_explicit(&r->written, index + 1, memory_order_release);
    return index;
}

void stall_settle(struct stall_ring *r, uint64_t number, uint64_t ns)
{
    struct stall_slot *slot = slot_of(r, number);
    if (atomic_load_explicit(&slot->seq, memory_order_relaxed) == 2 * (number + 1))
        atomic_store_explicit(&slot->ns, ns, memory_order_release);
}

static bool read_slot(const struct stall_slot *slot, uint64_t index, struct stall_record *ret)
{
    uint64_t words[STALL_LABEL_WORDS];
    struct stall_record rec = {0};
    if (atomic_load_explicit(&slot->seq, memory_order_acquire) != 2 * (index + 1))
        return false;
    rec.at = atomic_load_explicit(&slot->at, memory_order_acquire);
    rec.ns = atomic_load_explicit(&slot->ns, memory_order_acquire);
    rec.kind = atomic_load_explicit(&slot->kind, memory_order_acquire);
    for (unsigned i = 0; i < STALL_LABEL_WORDS; i++)
        words[i] = atomic_load_explicit(&slot->label[i], memory_order_acquire);
    rec.nframes = (unsigned)atomic_load_explicit(&slot->nframes, memory_order_acquire);
    for (unsigned i = 0; i < rec.nframes; i++)
        rec.frames[i] = atomic_load_explicit(&slot->frames[i], memory_order_acquire);
    if (atomic_load_explicit(&slot->seq, memory_order_relaxed) != 2 * (index + 1))
        return false;
    memcpy(rec.label, words, sizeof(rec.label));
    rec.running = rec.ns & RUNNING;
    rec.ns &= ~RUNNING;
    *ret = rec;
    return true;
}

unsigned stall_read(const struct stall_ring *r, struct stall_record *ret_records, unsigned max)
{
    uint64_t written = atomic_load_explicit(&r->written, memory_order_acquire);
    unsigned n = 0;
    for (uint64_t back = 1; back <= written && back <= STALL_RING_SIZE && n < max; back++)
        n += read_slot(&r->slots[(written - back) % STALL_RING_SIZE], written - back,
                       &ret_records[n]);
    return n;
}
