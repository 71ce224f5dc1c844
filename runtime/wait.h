/* Wait lists: tasks parked until an event of the same core. FIFO.
 *
 * A future keeps a zeroed wait_node and parks it before returning POLL_PENDING; being woken unlinks
 * it. Spurious wake-ups happen (any task_wake): loop and re-check. Dropping the future must call
 * wait_cancel(). Thread: single owner.
 */
#ifndef MILLRACE_RUNTIME_WAIT_H
#define MILLRACE_RUNTIME_WAIT_H

#include "runtime/task.h"

struct wait_list {
    struct list_node head_;
};

struct wait_node {
    struct list_node node_;
    struct task *task_;
};

static inline void wait_list_init(struct wait_list *l)
{
    list_init(&l->head_);
}

static inline bool wait_list_is_empty(const struct wait_list *l)
{
    return list_is_empty(&l->head_);
}

/* Parks `t` at the end; an already parked node keeps its place and takes the new task. */
static inline void wait_park(struct wait_list *l, struct wait_node *n, struct task *t)
{
    n->task_ = t;
    if (!list_is_linked(&n->node_))
        list_push_tail(&l->head_, &n->node_);
}

static inline bool wait_is_parked(const struct wait_node *n)
{
    return list_is_linked(&n->node_);
}

static inline void wait_cancel(struct wait_node *n)
{
    list_remove(&n->node_);
}

/* Wakes the longest waiting task; false when none waits. A task that is dropped before it runs has
 * used up the wake-up: its future's drop must pass on what it was woken for. */
static inline bool wait_wake_one(struct wait_list *l)
{
    struct list_node *n = list_pop_head(&l->head_);
    if (!n)
        return false;
    task_wake(container_of(n, struct wait_node, node_)->task_);
    return true;
}

/* No task runs in here, so the list is taken whole. */
static inline void wait_wake_all(struct wait_list *l)
{
    struct list_node *n = l->head_.next;
    if (n == &l->head_)
        return;
    list_init(&l->head_);
    while (n != &l->head_) {
        struct list_node *next = n->next;
        n->next = n->prev = NULL;
        task_wake(container_of(n, struct wait_node, node_)->task_);
        n = next;
    }
}

#endif
