/* Scopes: a tree of cancellation tokens that also knows which tasks are still there.
 *
 * A task joins a scope through an embedded member and leaves in its drop. Cancelling a scope marks
 * it and everything below, and wakes the members and whoever waits in scope_cancelled: they look at
 * scope_is_cancelled() and finish in their own way. Aborting ends the members at once. Closing only
 * refuses new ones. scope_wait is ready when the last one has left: with a scope that is closed or
 * cancelled nobody comes after.
 *
 * Thread: single owner, all tasks on one core.
 */
#ifndef MILLRACE_RUNTIME_SCOPE_H
#define MILLRACE_RUNTIME_SCOPE_H

#include <stdbool.h>
#include <stdint.h>

#include "runtime/future.h"
#include "runtime/list.h"
#include "runtime/task.h"
#include "runtime/wait.h"

struct scope {
    struct scope *parent_;
    struct list_node sibling_; /* in the parent's children_ or spent_ */
    struct list_node children_;
    struct list_node spent_; /* children already aborted */
    struct list_node members_;
    struct list_node leaving_; /* members already aborted that have yet to leave */
    struct wait_list waiters_; /* for the last member to leave */
    struct wait_list cancel_waiters_;
    uint32_t live_; /* members here and below */
    bool cancelled_;
    bool closed_;
};

struct scope_member {
    struct list_node node_;
    struct scope *scope_; /* NULL: in none */
    struct task *task_;
};

/* `parent` may be NULL and must outlive the child. A child of a cancelled scope starts cancelled.
 */
void scope_init(struct scope *s, struct scope *parent);

/* No members, children or waiters may be left (asserted). */
void scope_fini(struct scope *s);

/* Puts a zeroed member in. 0; or -ECANCELED, -ESHUTDOWN (it or one above is closed) and not in. */
int scope_join(struct scope *s, struct scope_member *m, struct task *t);

/* No-op when in none. Wakes who waits for the scope, or one above it, when it was the last. */
void scope_leave(struct scope_member *m);

/* From now on nobody joins here or below; members go on undisturbed. Idempotent. */
void scope_close(struct scope *s);

/* Marks and wakes. Idempotent. */
void scope_cancel(struct scope *s);

/* Cancels, then aborts every member here and below, children first. One that is being polled now
 * is dropped after its poll. No drop may end a scope that is being aborted; the others may. */
void scope_abort(struct scope *s);

static inline bool scope_is_cancelled(const struct scope *s)
{
    return s->cancelled_;
}

/* It or one above. */
bool scope_is_closed(const struct scope *s);

/* Members here and below. */
static inline uint32_t scope_live(const struct scope *s)
{
    return s->live_;
}

/* Ready when no member is left here or below; parks `n` otherwise. Drop with wait_cancel(). */
enum poll scope_wait_poll(struct scope *s, struct wait_node *n, struct task *t);

/* The same as a future. status: 0. Cancel safe: holds nothing but its place. */
struct scope_wait {
    struct future f;
    struct wait_node node_;
    struct scope *scope_;
};

void scope_wait_init(struct scope_wait *w, struct scope *s);

/* A future: ready when the scope is cancelled. For a task that isn't a member, or a select in one:
 * {cancelled, work} in biased order gives up at the first poll after the cancel. status: 0. Cancel
 * safe: holds nothing but its place. */
struct scope_cancelled {
    struct future f;
    struct wait_node node_;
    struct scope *scope_;
};

void scope_cancelled_init(struct scope_cancelled *c, struct scope *s);

#endif
