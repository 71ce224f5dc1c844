/* A task that drives one future to its end and remembers how it went. Zero it, set `f`, spawn it.
 */
#ifndef MILLRACE_TESTS_KIT_FUTURE_TASK_H
#define MILLRACE_TESTS_KIT_FUTURE_TASK_H

#include <stdbool.h>

#include "runtime/future.h"
#include "runtime/list.h"

struct future_task {
    struct task task;
    struct future *f;
    unsigned polls;
    bool ready;   /* f->status is its answer */
    bool dropped; /* the task has gone, and the future with it */
};

static inline enum poll future_task_poll_(struct task *t)
{
    struct future_task *ft = container_of(t, struct future_task, task);
    ft->polls++;
    enum poll p = future_poll(ft->f, t);
    ft->ready = p == POLL_READY;
    return p;
}

static inline void future_task_drop_(struct task *t)
{
    struct future_task *ft = container_of(t, struct future_task, task);
    future_drop(ft->f);
    ft->dropped = true;
}

static inline void future_task_spawn(struct sched *s, struct future_task *ft, struct future *f)
{
    static const struct task_kind kind = {"future", future_task_poll_, future_task_drop_};
    *ft = (struct future_task){.f = f};
    task_spawn(s, &ft->task, &kind);
}

#endif
