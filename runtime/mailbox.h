/* The way into a core from other threads: an unbounded, intrusive, multi-producer inbox, and the
 * wakers that use it.
 *
 * Any thread posts, the owner drains. An item is embedded in what it stands for, so posting neither
 * allocates nor fails. The owner may sleep on mailbox_fd(); a poster writes to it only when the
 * owner has said that it sleeps.
 *
 * Owner's idle loop:
 *     if (mailbox_prepare_sleep(mb)) {
 *         ppoll(... mailbox_fd(mb) ..., until the next timer);
 *         mailbox_end_sleep(mb);
 *     }
 */
#ifndef MILLRACE_RUNTIME_MAILBOX_H
#define MILLRACE_RUNTIME_MAILBOX_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

struct task;

/* Embed; zero it and set `deliver`. Its memory must live until it has been delivered. */
struct mailbox_item {
    struct mailbox_item *next;
    atomic_bool queued;
    /* Owner's thread. The item is free again by then: it may be posted anew, or its memory freed.
     */
    void (*deliver)(struct mailbox_item *item);
};

#define REMOTE_CHUNK_SLOTS 256
#define REMOTE_CHUNKS      256 /* 65,536 slots a core at the most */

struct remote_chunk;

struct mailbox {
    /* Posters' line. */
    _Alignas(64) _Atomic(struct mailbox_item *) head_; /* newest first */
    atomic_bool sleeping_;
    int fd_;
    _Atomic(struct remote_chunk *) chunks_[REMOTE_CHUNKS]; /* set once, never moved */

    /* Owner's own. */
    _Alignas(64) struct mailbox_item *inbox_; /* taken, oldest first */
    uint32_t nslots_;
    uint32_t free_head_, free_tail_; /* slot index + 1; 0 for none */
    uint32_t taken_;
    uint64_t delivered; /* statistics: items so far */
};

/* 0, or -errno when there is no eventfd. */
int mailbox_init(struct mailbox *mb);

/* No other thread may use the mailbox or its wakers any more. Items still inside are delivered. */
void mailbox_fini(struct mailbox *mb);

/* Any thread. Idempotent while queued; what the poster wrote before is visible to `deliver`. */
void mailbox_post(struct mailbox *mb, struct mailbox_item *item);

/* Owner. Delivers at most `max` items in the order of posting (per poster); returns how many. */
unsigned mailbox_drain(struct mailbox *mb, unsigned max);

/* Owner: anything to drain? */
bool mailbox_is_pending(const struct mailbox *mb);

/* Readable when a poster found the owner asleep. */
int mailbox_fd(const struct mailbox *mb);

/* Owner: announces sleep. False (and awake) when something is pending: drain first. */
bool mailbox_prepare_sleep(struct mailbox *mb);

/* Owner, after a true mailbox_prepare_sleep(): awake, and the fd is cleared. */
void mailbox_end_sleep(struct mailbox *mb);

/* Wakes a task from any thread. A plain value: copy it freely. One that outlived its slot does
 * nothing, or at worst gives the slot's next task a spurious wake-up. Zeroed: wakes nothing. */
struct remote_waker {
    struct mailbox *mb;
    uint32_t slot, gen;
};

/* Owner: takes a slot for `task`. 0, -ENOMEM, or -ENOSPC when all slots are taken. Put it back
 * before the task's memory goes. */
int remote_slot_take(struct mailbox *mb, struct task *task, struct remote_waker *ret_waker);

/* Owner: gives the slot back and zeroes the waker; a zeroed waker is a no-op. */
void remote_slot_put(struct remote_waker *w);

/* Owner: slots in use. */
uint32_t remote_slots_taken(const struct mailbox *mb);

/* Any thread, as long as the mailbox lives. */
void remote_wake(struct remote_waker w);

#endif
