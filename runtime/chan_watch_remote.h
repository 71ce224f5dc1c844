/* The newest value of something, from one writing thread to readers on any number of cores.
 *
 * Reading is one load, and no reader ever holds the writer up: it replaces a pointer, and frees an
 * old value when all reader threads have said that they hold nothing older (QSBR, qsbr.h). So a
 * borrowed value is good until the reader's thread says so, that is until the end of its pass; who
 * needs something of it longer copies it, or counts it on its own core.
 *
 * For values that a core keeps using over passes until it has taken the next one, as it does with
 * the configuration, that is the wrong contract: see docs/design/0001.
 *
 * The value embeds a struct watch_value. It belongs to the channel from publish on.
 */
#ifndef MILLRACE_RUNTIME_CHAN_WATCH_REMOTE_H
#define MILLRACE_RUNTIME_CHAN_WATCH_REMOTE_H

#include <errno.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "runtime/future.h"
#include "runtime/mailbox.h"
#include "runtime/qsbr.h"
#include "runtime/wait.h"

/* Embed in the value. */
struct watch_value {
    uint64_t version;           /* set by publish: 1, 2, ... */
    uint64_t token_;            /* once retired: whom to wait for */
    struct watch_value *newer_; /* retired after it */
};

struct watch_remote;

/* One reading thread's part. */
struct watch_reader {
    _Alignas(64) struct watch_remote *w_;
    struct mailbox *mailbox_;
    struct wait_list waiters_;
    atomic_bool waiting_; /* the writer shall tell us of the next change */
    struct mailbox_item changed_;
};

struct watch_remote {
    /* Read by all. */
    _Alignas(64) _Atomic(struct watch_value *) newest_;
    atomic_bool closed_;
    /* The writer's own. */
    _Alignas(64) struct rte_rcu_qsbr *qsbr_;
    struct watch_reader *readers_;
    unsigned nreaders_;
    unsigned nretired_;
    struct watch_value *oldest_, *youngest_; /* retired */
    uint64_t version_;
    void (*free_)(struct watch_value *v);
};

struct watch_remote_opts {
    struct watch_value *first;    /* what readers find at first: version 1 */
    struct rte_rcu_qsbr *qsbr;    /* with an id for every reading thread */
    struct watch_reader *readers; /* [nreaders], uninitialised; outlives the channel */
    struct mailbox *const
        *mailboxes; /* [nreaders], the reading threads'; they outlive the channel */
    unsigned nreaders;
    void (*free)(struct watch_value *v); /* writer's thread */
};

/* Set-up thread, before readers run. */
void watch_remote_init(struct watch_remote *w, const struct watch_remote_opts *o);

/* Frees all values. No reader runs any more, none is parked, their mailboxes are drained
 * (asserted). */
void watch_remote_fini(struct watch_remote *w);

/* Writer. Replaces the value, wakes those who wait for a change, and frees what it can of the
 * retired. Never waits. */
void watch_remote_publish(struct watch_remote *w, struct watch_value *v);

/* Writer. Frees what no reader can hold any more; how many retired values still wait. Call it now
 * and then: a publish alone frees its predecessors, not the value it replaces. */
unsigned watch_remote_reclaim(struct watch_remote *w);

/* Writer: retired and not yet free. A count that keeps growing means a reader that is stuck in one
 * pass: refuse to publish more than is good for the memory. */
static inline unsigned watch_remote_retired(const struct watch_remote *w)
{
    return w->nretired_;
}

/* Writer: it stays as it is now. Idempotent. */
void watch_remote_close(struct watch_remote *w);

/* A reading thread that is online: borrowed until it says quiescent, or goes offline. */
static inline struct watch_value *watch_remote_get(const struct watch_remote *w)
{
    /* Acquire: what the writer put into the value; pairs with the exchange of publish. */
    return atomic_load_explicit(&w->newest_, memory_order_acquire);
}

/* One reader on the thread of `r`: which version it has seen, and the future of a newer one. Ready
 * with status 0 and `value`, borrowed as above, or -EPIPE: closed and seen. Takes one operation of
 * the task's budget a poll. May be polled again after ready. Cancel safe: a change not told yet is
 * told by the next poll. */
struct watch_remote_changed {
    struct future future;
    struct watch_reader *r_;
    uint64_t seen; /* set it to 0 to be told the present value first */
    struct watch_value *value;
    struct wait_node node_;
};

extern const struct future_kind watch_remote_changed_kind;

/* The value of now counts as seen. */
static inline void watch_remote_changed_init(struct watch_remote_changed *c, struct watch_reader *r)
{
    *c = (struct watch_remote_changed){.future = {.kind = &watch_remote_changed_kind},
                                       .r_ = r,
                                       .seen = watch_remote_get(r->w_)->version};
}

enum poll watch_remote_changed_poll(struct watch_remote_changed *c, struct task *t);

static inline void watch_remote_changed_drop(struct watch_remote_changed *c)
{
    wait_cancel(&c->node_);
}

#endif
