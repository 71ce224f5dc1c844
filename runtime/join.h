/* Tasks whose end somebody waits for, and several futures that one task waits for.
 *
 * join_spawn() runs a future as a task of its own and gives its parent a handle. The handle is a
 * future: ready when the task is gone. Dropping it aborts the task, so that no child outlives who
 * asked for it; join_detach() is the only way to let one go on alone.
 *
 * struct join and try_join drive up to JOIN_MAX futures inside the task that polls them. There are
 * no wakers below a task: each poll polls every future that isn't finished, in the order of the
 * array. What are more than that, or costly to poll, are tasks of their own (join_set.h).
 *
 * Thread: the core of the task.
 */
#ifndef MILLRACE_RUNTIME_JOIN_H
#define MILLRACE_RUNTIME_JOIN_H

#include <stdbool.h>
#include <stdint.h>

#include "runtime/future.h"
#include "runtime/task.h"

#define JOIN_MAX 8

/* How a task ended: its future finished with 0, or with -errno (-ECANCELED too, when by itself), or
 * it was dropped by an abort or by sched_fini(). */
#define JOIN_OUTCOMES(X)                                                                           \
    X(RUNNING, "running")                                                                          \
    X(DONE, "done")                                                                                \
    X(FAILED, "failed")                                                                            \
    X(CANCELLED, "cancelled")

enum join_outcome {
#define X(name, text) JOIN_##name,
    JOIN_OUTCOMES(X)
#undef X
};

const char *join_outcome_text(enum join_outcome o);

struct join_handle;

/* Embed in the object that the task drives. Zero before join_spawn(); task.label may be set. */
struct join_task {
    struct task task;
    struct future *root_;
    struct join_handle *handle_; /* NULL: nobody wants to know */
};

/* Static, one per kind of task: {.task = {JOIN_TASK("probe")}, .release = ...}. */
struct join_kind {
    struct task_kind task;
    /* The task's last step: its memory may go here. NULL: it is embedded in something that stays.
     */
    void (*release)(struct join_task *j);
};

#define JOIN_TASK(text) .name = (text), .poll = join_task_poll_, .drop = join_task_drop_

/* A future: status is that of the task's future, -ECANCELED when it was cancelled. The task need
 * not outlive it, nor it the task.
 * Not cancel safe: dropping it before it is ready aborts the task, whose result is lost. */
struct join_handle {
    struct future f;
    struct join_task *task_; /* NULL: ended, detached or dropped */
    struct task *waiter_;
    enum join_outcome outcome_;
};

/* Spawns `j`, which polls `root` (initialised, not polled yet) until it is ready. Cannot fail.
 *
 * When the task ends, in this order: a `root` that isn't finished is dropped (so its permits and
 * places are free again), the handle learns the outcome and wakes who waits, release runs. A
 * finished `root` isn't dropped: what it has brought is release's, or the owner's to take after
 * the join. */
void join_spawn(struct sched *s, struct join_task *j, const struct join_kind *k,
                struct future *root, struct join_handle *ret_handle);

/* Ends the task at the next boundary between polls: at once when it isn't the one being polled now
 * (it is gone, and the handle ready, when this returns), else right after that poll; a poll that
 * finishes wins over the abort. No-op when the task has ended. The handle stays pollable. */
void join_abort(struct join_handle *h);

/* Lets the task go on alone; nobody learns its outcome. The handle counts as dropped. */
void join_detach(struct join_handle *h);

/* Without waiting. */
static inline enum join_outcome join_outcome(const struct join_handle *h)
{
    return h->outcome_;
}

/* Futures: ready when every one of `of` is ready (join); or at the first that fails, the others
 * then being dropped (try_join).
 *
 * status: join: 0, or that of the lowest index that failed; each future keeps its own.
 *         try_join: 0, or that of the one that failed, whose index is in `failed`; where several
 *         fail in one poll, the lowest index.
 * An empty set is ready at once. Dropping drops all of `of`, finished ones too, so that results
 * nobody took go back: take them out before. Cancel safe as far as every one of `of` is. */
struct join {
    struct future f;
    struct future *const *of_;
    uint8_t n_;
    uint8_t failed; /* valid with status != 0 */
};

/* `of` is borrowed until the end: n <= JOIN_MAX distinct futures that this task alone polls. They
 * may be polled, and even finished, already. */
void join_init(struct join *j, struct future *const *of, unsigned n);
void try_join_init(struct join *j, struct future *const *of, unsigned n);

/* For struct join_kind. */
enum poll join_task_poll_(struct task *t);
void join_task_drop_(struct task *t);

#endif
