#include "runtime/mailbox.h"

#include <assert.h>
#include <errno.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "runtime/list.h"
#include "runtime/task.h"

/* Orders and their pairs:
 *  - head_: a poster's exchange-compare (seq_cst) publishes the item; the owner's exchange to NULL
 *    (acquire) takes it. Only the owner removes, and always everything, so there is no ABA.
 *  - queued: a poster's exchange to true pairs with the owner's exchange to false (both acq_rel).
 *    Who finds it true is seen by the delivery to come; who finds it false posts anew.
 *  - sleeping_ and head_ are Dekker's pair, all four accesses seq_cst: a poster writes head_, then
 *    reads sleeping_; the owner writes sleeping_, then reads head_. At least one sees the other. */

struct remote_slot {
    struct mailbox_item item;
    struct task *task;    /* owner's; NULL: free */
    _Atomic uint32_t gen; /* owner writes, wakers compare (relaxed: a hint against stale wakes) */
    uint32_t next_free;   /* index + 1 */
};

struct remote_chunk {
    struct remote_slot slots[REMOTE_CHUNK_SLOTS];
};

int mailbox_init(struct mailbox *mb)
{
    memset(mb, 0, sizeof(*mb));
    int fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
    if (fd < 0)
        return -errno;
    mb->fd_ = fd;
    return 0;
}

void mailbox_fini(struct mailbox *mb)
{
    while (mailbox_drain(mb, UINT_MAX) > 0)
        ;
    for (unsigned i = 0; i < REMOTE_CHUNKS; i++)
        free(atomic_load_explicit(&mb->chunks_[i], memory_order_relaxed));
    close(mb->fd_);
    mb->fd_ = -1;
}

static void ring_bell(struct mailbox *mb)
{
    if (!atomic_load_explicit(&mb->sleeping_, memory_order_seq_cst))
        return;
    /* One poster a sleep is enough; the exchange elects it. */
    if (atomic_exchange_explicit(&mb->sleeping_, false, memory_order_acq_rel))
        (void)eventfd_write(mb->fd_, 1); /* fails only when full, and then it is readable */
}

void mailbox_post(struct mailbox *mb, struct mailbox_item *item)
{
    assert(item->deliver);
    if (atomic_exchange_explicit(&item->queued, true, memory_order_acq_rel))
        return;
    struct mailbox_item *head = atomic_load_explicit(&mb->head_, memory_order_relaxed);
    do {
        item->next = head;
    } while (!atomic_compare_exchange_weak_explicit(&mb->head_, &head, item, memory_order_seq_cst,
                                                    memory_order_relaxed));
    ring_bell(mb);
}

/* Takes what has been posted and turns it round, oldest first. */
static struct mailbox_item *take_posted(struct mailbox *mb)
{
    if (!atomic_load_explicit(&mb->head_, memory_order_relaxed))
        return NULL;
    struct mailbox_item *item = atomic_exchange_explicit(&mb->head_, NULL, memory_order_acquire);
    struct mailbox_item *oldest = NULL;
    while (item) {
        struct mailbox_item *older = item->next;
        item->next = oldest;
        oldest = item;
        item = older;
    }
    return oldest;
}

unsigned mailbox_drain(struct mailbox *mb, unsigned max)
{
    unsigned n = 0;
    while (n < max) {
        if (!mb->inbox_) {
            /* Once a drain: what is posted meanwhile waits, so that posters can't hold us here. */
            if (n > 0 || !(mb->inbox_ = take_posted(mb)))
                break;
        }
        struct mailbox_item *item = mb->inbox_;
        mb->inbox_ = item->next;
        atomic_exchange_explicit(&item->queued, false, memory_order_acq_rel);
        item->deliver(item);
        n++;
    }
    mb->delivered += n;
    return n;
}

bool mailbox_is_pending(const struct mailbox *mb)
{
    return mb->inbox_ || atomic_load_explicit(&mb->head_, memory_order_relaxed);
}

int mailbox_fd(const struct mailbox *mb)
{
    return mb->fd_;
}

bool mailbox_prepare_sleep(struct mailbox *mb)
{
    if (mb->inbox_)
        return false;
    atomic_store_explicit(&mb->sleeping_, true, memory_order_seq_cst);
    if (!atomic_load_explicit(&mb->head_, memory_order_seq_cst))
        return true;
    /* If a poster has already taken the flag, its write makes one later sleep short. */
    atomic_store_explicit(&mb->sleeping_, false, memory_order_relaxed);
    return false;
}

void mailbox_end_sleep(struct mailbox *mb)
{
    eventfd_t unused;
    atomic_store_explicit(&mb->sleeping_, false, memory_order_relaxed);
    /* Always, as the fd may hold the write of a poster from an earlier sleep. */
    (void)eventfd_read(mb->fd_, &unused);
}

static struct remote_slot *slot_at(struct mailbox *mb, uint32_t index)
{
    /* Acquire pairs with the release in grow(). */
    struct remote_chunk *chunk =
        atomic_load_explicit(&mb->chunks_[index / REMOTE_CHUNK_SLOTS], memory_order_acquire);
    return &chunk->slots[index % REMOTE_CHUNK_SLOTS];
}

static void push_free(struct mailbox *mb, struct remote_slot *slot, uint32_t index)
{
    slot->next_free = 0;
    if (mb->free_tail_)
        slot_at(mb, mb->free_tail_ - 1)->next_free = index + 1;
    else
        mb->free_head_ = index + 1;
    mb->free_tail_ = index + 1;
}

static void deliver_wake(struct mailbox_item *item)
{
    struct remote_slot *slot = container_of(item, struct remote_slot, item);
    if (slot->task)
        task_wake(slot->task);
}

static int grow(struct mailbox *mb)
{
    uint32_t first = mb->nslots_;
    if (first == REMOTE_CHUNKS * REMOTE_CHUNK_SLOTS)
        return -ENOSPC;
    struct remote_chunk *chunk = calloc(1, sizeof(*chunk));
    if (!chunk)
        return -ENOMEM;
    atomic_store_explicit(&mb->chunks_[first / REMOTE_CHUNK_SLOTS], chunk, memory_order_release);
    mb->nslots_ += REMOTE_CHUNK_SLOTS;
    for (uint32_t i = 0; i < REMOTE_CHUNK_SLOTS; i++) {
        chunk->slots[i].item.deliver = deliver_wake;
        atomic_store_explicit(&chunk->slots[i].gen, 1, memory_order_relaxed);
        push_free(mb, &chunk->slots[i], first + i);
    }
    return 0;
}

int remote_slot_take(struct mailbox *mb, struct task *task, struct remote_waker *ret_waker)
{
    if (!mb->free_head_) {
        int rc = grow(mb);
        if (rc < 0)
            return rc;
    }
    uint32_t index = mb->free_head_ - 1;
    struct remote_slot *slot = slot_at(mb, index);
    mb->free_head_ = slot->next_free;
    if (!mb->free_head_)
        mb->free_tail_ = 0;
    slot->task = task;
    mb->taken_++;
    ret_waker->mb = mb;
    ret_waker->slot = index;
    ret_waker->gen = atomic_load_explicit(&slot->gen, memory_order_relaxed);
    return 0;
}

void remote_slot_put(struct remote_waker *w)
{
    struct mailbox *mb = w->mb;
    if (!mb)
        return;
    struct remote_slot *slot = slot_at(mb, w->slot);
    uint32_t gen = atomic_load_explicit(&slot->gen, memory_order_relaxed);
    assert(slot->task && gen == w->gen);
    atomic_store_explicit(&slot->gen, gen + 1, memory_order_relaxed);
    slot->task = NULL;
    /* First in, first out: the longer a slot rests, the rarer a late wake meets its next task. */
    push_free(mb, slot, w->slot);
    mb->taken_--;
    memset(w, 0, sizeof(*w));
}

uint32_t remote_slots_taken(const struct mailbox *mb)
{
    return mb->taken_;
}

void remote_wake(struct remote_waker w)
{
    if (!w.mb)
        return;
    struct remote_slot *slot = slot_at(w.mb, w.slot);
    if (atomic_load_explicit(&slot->gen, memory_order_relaxed) == w.gen)
        mailbox_post(w.mb, &slot->item);
}
