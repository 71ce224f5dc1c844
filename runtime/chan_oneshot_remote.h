/* One value from a task or thread to a task of another core.
 *
 * Both ends share a struct that lies in whatever asks for the value (an admin request, a job). Each
 * end is used up once: the sender's by send or drop, the receiver's by being ready or dropped. The
 * end that comes last calls `release` on its thread, which frees the memory, and the value if it
 * was sent and nobody took it. So either side may go at any time.
 *
 * The value comes by the receiver's mailbox; what the sender wrote before is visible with it.
 */
#ifndef MILLRACE_RUNTIME_CHAN_ONESHOT_REMOTE_H
#define MILLRACE_RUNTIME_CHAN_ONESHOT_REMOTE_H

#include <errno.h>
#include <stdatomic.h>
#include <stdbool.h>

#include "runtime/future.h"
#include "runtime/mailbox.h"

enum oneshot_remote_state {
    ONESHOT_REMOTE_OPEN,
    ONESHOT_REMOTE_SENT, /* or dropped: the sender is done */
    ONESHOT_REMOTE_LEFT, /* the receiver is */
};

struct oneshot_remote {
    atomic_uint state_; /* one exchange-compare decides who was first */
    int status_;        /* sender's word: 0 or -EPIPE */
    void *value;        /* for `release`: what was sent and not taken; else NULL */
    void (*release)(struct oneshot_remote *o);
    struct mailbox *rx_mailbox_, *tx_mailbox_;
    struct mailbox_item sent_; /* to the receiver */
    struct mailbox_item left_; /* to the sender, if it has a mailbox */
    /* The receiver's own. */
    struct task *rx_task_;
    bool rx_told_; /* sent_ has come */
    bool rx_gone_; /* dropped while sent_ was on its way */
    /* The sender's own. */
    struct task *tx_task_;
    bool tx_told_, tx_gone_;
};

/* Any thread, before the ends are given to theirs. `tx`: NULL if the sender's thread has no
 * mailbox; it can then look (oneshot_remote_is_closed()) but not wait. `release`: see above. Both
 * mailboxes must outlive it. */
void oneshot_remote_init(struct oneshot_remote *o, struct mailbox *rx, struct mailbox *tx,
                         void (*release)(struct oneshot_remote *o));

/* Sender's thread. Uses the end up. 0: the value is the receiver's, or for `release`; -EPIPE: the
 * receiver has gone and the value is still the caller's. */
int oneshot_remote_send(struct oneshot_remote *o, void *value);

/* Sender's thread. Uses the end up; the receiver gets -EPIPE. */
void oneshot_remote_tx_drop(struct oneshot_remote *o);

/* Sender's thread: the receiver has gone. */
static inline bool oneshot_remote_is_closed(const struct oneshot_remote *o)
{
    return atomic_load_explicit(&o->state_, memory_order_relaxed) == ONESHOT_REMOTE_LEFT;
}

/* The sender waits for the receiver to go. Ready with status 0. Cancel safe. Must be dropped before
 * the end is used up. */
struct oneshot_remote_closed {
    struct future future;
    struct oneshot_remote *o_;
};

extern const struct future_kind oneshot_remote_closed_kind;

static inline void oneshot_remote_closed_init(struct oneshot_remote_closed *c,
                                              struct oneshot_remote *o)
{
    *c = (struct oneshot_remote_closed){.future = {.kind = &oneshot_remote_closed_kind}, .o_ = o};
}

enum poll oneshot_remote_closed_poll(struct oneshot_remote_closed *c, struct task *t);
void oneshot_remote_closed_drop(struct oneshot_remote_closed *c);

/* The receiver's end. Ready with status 0 and `value`, or -EPIPE: the sender was dropped. Either
 * way the end is used up. Dropping it loses the value, also one that has been sent, to `release`.
 */
struct oneshot_remote_recv {
    struct future future;
    struct oneshot_remote *o_; /* NULL: used up */
    void *value;
};

extern const struct future_kind oneshot_remote_recv_kind;

static inline void oneshot_remote_recv_init(struct oneshot_remote_recv *r, struct oneshot_remote *o)
{
    *r = (struct oneshot_remote_recv){.future = {.kind = &oneshot_remote_recv_kind}, .o_ = o};
}

enum poll oneshot_remote_recv_poll(struct oneshot_remote_recv *r, struct task *t);
/* Idempotent. */
void oneshot_remote_recv_drop(struct oneshot_remote_recv *r);

#endif
