/* Join set: any number of tasks whose results come in the order in which they finish.
 *
 * A member is embedded in the object that its task drives; the set links it and allocates nothing.
 * It is the set's from join_set_spawn() until join_next yields it. For fan-outs over JOIN_MAX and
 * for a set that changes while it runs.
 *
 * Thread: single owner, all tasks on one core.
 */
#ifndef MILLRACE_RUNTIME_JOIN_SET_H
#define MILLRACE_RUNTIME_JOIN_SET_H

#include <stdbool.h>
#include <stdint.h>

#include "runtime/join.h"
#include "runtime/list.h"
#include "runtime/wait.h"

struct join_set {
    struct list_node running_;
    struct list_node ending_;   /* aborted; only one that is being polled now stays here */
    struct list_node finished_; /* not yielded yet, oldest first */
    struct wait_list waiters_;
    uint32_t nrunning_, nfinished_;
};

/* Zero before join_set_spawn(); task.label may be set. */
struct join_member {
    struct task task;
    struct list_node node_;
    struct join_set *set_; /* NULL: in none */
    struct future *root_;
    enum join_outcome outcome; /* these two valid when the member was yielded or is released */
    int status;                /* -ECANCELED when cancelled */
};

/* Static, one per kind of task: {.task = {JOIN_MEMBER("probe")}, .release = ...}. */
struct join_member_kind {
    struct task_kind task;
    /* join_set_fini() calls it for a member that was never yielded: its memory may go here. A
     * yielded member is its receiver's instead. NULL: it is embedded in something that stays. */
    void (*release)(struct join_member *m);
};

#define JOIN_MEMBER(text) .name = (text), .poll = join_member_poll_, .drop = join_member_drop_

void join_set_init(struct join_set *s);

/* Aborts what runs and releases all that was not yielded. Not from a member's own poll, and nobody
 * may wait any more (asserted). */
void join_set_fini(struct join_set *s);

/* Spawns `m`, which polls `root` (initialised, not polled yet) until it is ready. A `root` that
 * isn't finished when the task ends is dropped then; a finished one is the receiver's. */
void join_set_spawn(struct join_set *set, struct sched *s, struct join_member *m,
                    const struct join_member_kind *k, struct future *root);

/* Aborts every member that still runs: they are yielded as cancelled, behind those that finished
 * before. One that is being polled now ends after its poll. Nothing a drop does may spawn into the
 * set. */
void join_set_abort(struct join_set *s);

/* Aborts one, as join_abort() does. No-op when it has ended. */
void join_member_abort(struct join_member *m);

/* Members not yielded yet. */
static inline uint32_t join_set_count(const struct join_set *s)
{
    return s->nrunning_ + s->nfinished_;
}

/* The member that finished first and was not yielded yet, NULL when there is none; it is the
 * caller's then. */
struct join_member *join_set_try_next(struct join_set *s);

/* A future: yields the next member to finish. status: 0, or -ENOENT when the set is empty (`member`
 * is NULL). Cancel safe: dropping it loses nothing. */
struct join_next {
    struct future f;
    struct wait_node node_;
    struct join_set *set_;
    struct join_member *member;
};

/* Also after it was ready or dropped: for the next one. */
void join_next_init(struct join_next *n, struct join_set *s);

/* For struct join_member_kind. */
enum poll join_member_poll_(struct task *t);
void join_member_drop_(struct task *t);

#endif
