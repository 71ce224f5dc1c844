/* The newest value of something, for any number of readers on one core: latest wins.
 *
 * The writer replaces the value and gets the old one back; it never waits. A reader borrows the
 * value until it returns from its poll, and learns of changes by version: a reader that was away
 * sees the newest only, once.
 *
 * Thread: single owner; between cores use chan_watch_remote.h.
 */
#ifndef MILLRACE_RUNTIME_CHAN_WATCH_H
#define MILLRACE_RUNTIME_CHAN_WATCH_H

#include <errno.h>
#include <stdbool.h>
#include <stdint.h>

#include "runtime/future.h"
#include "runtime/wait.h"

struct watch {
    void *value_;
    uint64_t version_; /* 1: as it was made */
    struct wait_list waiters_;
    bool closed_;
};

void watch_init(struct watch *w, void *value);

/* The last value, to be freed. Nobody may be parked (asserted). */
void *watch_fini(struct watch *w);

/* Borrowed until the caller returns from its poll. */
static inline void *watch_get(const struct watch *w)
{
    return w->value_;
}

static inline uint64_t watch_version(const struct watch *w)
{
    return w->version_;
}

/* The old value, which is the caller's again: between two polls nobody refers to it. Writing into
 * the value in place is fine too: send the same pointer. */
static inline void *watch_send(struct watch *w, void *value)
{
    void *old = w->value_;
    w->value_ = value;
    w->version_++;
    wait_wake_all(&w->waiters_);
    return old;
}

/* Writer: it stays as it is now. Idempotent. */
void watch_close(struct watch *w);

/* One reader: which version it has seen, and the future of a newer one. Ready with status 0 (`seen`
 * is the newest now), or -EPIPE: closed and seen. May be polled again after ready. Cancel safe: a
 * change not told yet is told by the next poll. */
struct watch_changed {
    struct future future;
    struct watch *w_;
    uint64_t seen; /* set it to 0 to be told the present value first */
    struct wait_node node_;
};

extern const struct future_kind watch_changed_kind;

/* The value of now counts as seen. */
static inline void watch_changed_init(struct watch_changed *c, struct watch *w)
{
    *c = (struct watch_changed){
        .future = {.kind = &watch_changed_kind}, .w_ = w, .seen = w->version_};
}

static inline bool watch_has_changed(const struct watch_changed *c)
{
    return c->seen != c->w_->version_;
}

static inline enum poll watch_changed_poll(struct watch_changed *c, struct task *t)
{
    if (watch_has_changed(c)) {
        c->seen = c->w_->version_;
        c->future.status = 0;
    } else if (c->w_->closed_) {
        c->future.status = -EPIPE;
    } else {
        wait_park(&c->w_->waiters_, &c->node_, t);
        return POLL_PENDING;
    }
    wait_cancel(&c->node_);
    return POLL_READY;
}

static inline void watch_changed_drop(struct watch_changed *c)
{
    wait_cancel(&c->node_);
}

#endif
