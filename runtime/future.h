/* A future as a value: what a combinator needs to know of the future that it drives.
 *
 * Most futures are polled by their own name (`mpsc_recv_poll(&r, t)`). One that select, join,
 * timeout or retry shall drive embeds a struct future as its first member and fills in a kind.
 * Polling a finished future is a fault (asserted). A future belongs to one task at a time; its
 * waker is the task of the last poll.
 *
 * Dropping: future_drop() unlinks every wait node and timer and gives back what the future holds
 * (permits, slots, places in a queue). Idempotent, also on one never polled or already finished.
 * "Cancel safe" in a header means that dropping it before POLL_READY loses nothing but the place in
 * a queue.
 *
 * Thread: the core of the task.
 */
#ifndef MILLRACE_RUNTIME_FUTURE_H
#define MILLRACE_RUNTIME_FUTURE_H

#include <assert.h>
#include <stdbool.h>

#include "runtime/task.h"

struct future;

/* Static, one per kind of future. */
struct future_kind {
    const char *name;
    /* May finish with status set to 0 or -errno; POLL_PENDING: a waker has been registered. */
    enum poll (*poll)(struct future *f, struct task *t);
    void (*drop)(struct future *f); /* NULL: nothing to unlink */
};

/* Zeroed but for the kind before the first poll. */
struct future {
    const struct future_kind *kind;
    int status; /* valid once ready: 0 or -errno */
    bool done_; /* ready has been returned, or it was dropped */
};

static inline void future_init(struct future *f, const struct future_kind *k)
{
    *f = (struct future){.kind = k};
}

static inline enum poll future_poll(struct future *f, struct task *t)
{
    assert(!f->done_);
    enum poll p = f->kind->poll(f, t);
    f->done_ = p == POLL_READY;
    return p;
}

static inline void future_drop(struct future *f)
{
    f->done_ = true;
    if (f->kind && f->kind->drop)
        f->kind->drop(f);
}

static inline bool future_is_done(const struct future *f)
{
    return f->done_;
}

#endif
