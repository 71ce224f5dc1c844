/* Batcher: items from many tasks, handed to one flusher in batches. A batch is due when it is full,
 * when its first item has waited max_delay, when someone asks for a flush, or at close.
 *
 * Two buffers: while one is being flushed, the other fills; when that is full as well, adding waits
 * (backpressure), first come first served, and none that came later gets in before. The flusher is
 * a task that takes a batch, does with it what it likes, and says it is done:
 *
 *     batch_take_init(&take, &batcher);
 *     if (future_poll(&take.f, t) == POLL_PENDING) return POLL_PENDING;
 *     if (take.f.status < 0) ... closed, and nothing is left
 *     ... take.items, take.count ...
 *     batch_take_done(&take, status);
 *
 * Who adds chooses whether to go on once the item is in, or to wait for what became of it.
 *
 * Thread: single owner, all on one core.
 */
#ifndef MILLRACE_RUNTIME_BATCHER_H
#define MILLRACE_RUNTIME_BATCHER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "runtime/future.h"
#include "runtime/list.h"
#include "runtime/sched.h"
#include "runtime/timer.h"

enum batch_why {
    BATCH_SIZE,
    BATCH_DELAY,
    BATCH_ASKED,
    BATCH_CLOSED,
    BATCH_WHYS,
};

struct batcher_opts {
    struct sched *sched;
    uint32_t max_items;    /* a batch; > 0 */
    size_t item_size;      /* bytes, copied; items lie one behind the other. > 0 */
    uint64_t max_delay_ns; /* of a batch's first item; 0: due at once; DEADLINE_NONE: no timer */
};

struct batcher_stats {
    uint64_t added;               /* items accepted */
    uint64_t refused;             /* batcher_try_add() without room */
    uint64_t waited;              /* adds that had to wait for room */
    uint64_t flushed, failed;     /* items, by the status their batch ended with */
    uint64_t batches[BATCH_WHYS]; /* taken, by why they were due */
};

struct batch_buffer {
    char *items_;
    uint32_t count_;
    struct list_node callers_; /* batch_adds that wait for the outcome */
};

struct batch_take;

struct batcher {
    struct batcher_opts o_;
    struct batch_buffer buffers_[2];
    uint8_t filling_; /* index; the other is empty or being flushed */
    bool asked_;      /* for a flush of what is in */
    bool closed_;
    struct list_node waiting_; /* batch_adds without room */
    struct batch_take *taker_; /* waits for a batch */
    struct batch_take *flush_; /* holds one */
    uint64_t due_at_;          /* of what is in, by its first item */
    struct batcher_stats stats;
};

/* One item on its way in. Zeroed memory needs no drop. */
struct batch_add {
    struct future f; /* kind is "batch_add" */
    struct batcher *batcher_;
    const void *item_;
    struct list_node node_; /* in waiting_ or a buffer's callers_ */
    struct task *task_;
    uint8_t state_;
    bool await_flush_;
    bool is_in; /* accepted: it will be in a batch, whatever becomes of this future */
};

/* The flusher's. Zeroed memory needs no drop. */
struct batch_take {
    struct future f; /* kind is "batch_take" */
    struct batcher *batcher_;
    struct task *task_;
    struct sleep sleep_; /* until what is in has waited long enough */
    const void *items;   /* once ready with 0, until batch_take_done() or drop */
    uint32_t count;
    enum batch_why why;
};

/* Allocates both buffers. 0 or -ENOMEM. */
int batcher_init(struct batcher *b, const struct batcher_opts *o);

/* No add and no take may be left (asserted). Items that nobody took are gone. */
void batcher_fini(struct batcher *b);

/* 0: the item is in; -EBUSY: no room, or others wait for it already; -EPIPE: closed. */
int batcher_try_add(struct batcher *b, const void *item);

/* Adds an item, borrowed until ready or dropped. With `await_flush` ready when its batch is done,
 * with the status of batch_take_done(); otherwise when it is in, with 0. -EPIPE: closed before it
 * was in. Cancel safe while it waits for room: the item is not in. Afterwards (`is_in`) the item
 * stays in its batch and dropping loses only the answer. */
void batch_add_init(struct batch_add *a, struct batcher *b, const void *item, bool await_flush);

/* Waits for a batch that is due; one take at a time may wait or hold one (asserted). Ready with 0
 * and at least one item, or with -EPIPE: closed, and everything has been taken. Cancel safe before
 * it is ready; dropping it with a batch in hand ends that batch with -ECANCELED. */
void batch_take_init(struct batch_take *k, struct batcher *b);

/* The batch in hand is done, status 0 or -errno: answers who waited for it. */
void batch_take_done(struct batch_take *k, int status);

/* Makes what is in due now; no-op when nothing is. */
void batcher_flush(struct batcher *b);

/* No more adds: those without room end with -EPIPE, what is in becomes due. Idempotent. */
void batcher_close(struct batcher *b);

/* Items in and not yet taken. */
static inline uint32_t batcher_pending(const struct batcher *b)
{
    return b->buffers_[b->filling_].count_;
}

#endif
