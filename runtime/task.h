/* Tasks and futures (stackless).
 *
 * A future is a struct with a `_poll(self, task)` function, embedded in its parent's struct. A task
 * is a root future plus its place on one core's run queue. Nothing is allocated to wait: wait nodes
 * and timers are embedded, and dropping a future unlinks them.
 *
 * Thread: every function here belongs to the core that owns the task's sched. From anywhere else
 * use a remote waker (mailbox.h).
 */
#ifndef MILLRACE_RUNTIME_TASK_H
#define MILLRACE_RUNTIME_TASK_H

#include <stdbool.h>
#include <stdint.h>

#include "runtime/list.h"

#define TASK_LIVE_ 0x01 /* in flags_: spawned and not yet finished */

struct sched;
struct task;

enum poll {
    POLL_PENDING = 0, /* a waker has been registered: someone will task_wake() us */
    POLL_READY = 1,   /* finished; for a root future the task's kind->drop runs next */
};

/* Static, one per kind of task; `name` shows up in stalls and metrics. */
struct task_kind {
    const char *name;
    /* Runs until it must wait or its budget is spent. Must not block. */
    enum poll (*poll)(struct task *t);
    /* Releases everything the task owns, usually the memory it is embedded in. Called exactly once:
     * after POLL_READY, or by task_abort(), or at sched_fini(). The task is already off every
     * queue of the scheduler and no longer live, but task_now() and task_sched() still work; wait
     * nodes and timers of its futures are the drop's to unlink. */
    void (*drop)(struct task *t);
    uint32_t size; /* bytes of the object that the task drives, for the memory by kind; 0: untold */
};

/* Embed in the object that the task drives. Zero before task_spawn(). */
struct task {
    struct list_node run_; /* run queue of sched_, or unlinked */
    struct list_node all_; /* every live task of sched_ */
    const struct task_kind *kind_;
    struct sched *sched_;
    const char *label; /* route or upstream, for stall reports; borrowed; may be NULL */
    uint16_t budget_;  /* operations left in this poll */
    uint8_t flags_;
    uint8_t kind_slot_; /* of sched_->kinds */
};

/* Puts a zeroed task under `s`; its first poll comes in this or the next pass. Cannot fail. */
void task_spawn(struct sched *s, struct task *t, const struct task_kind *k);

/* Queues the task for a poll. Idempotent; harmless on the task that is running now (it runs again)
 * and on one never spawned or already finished as long as its memory lives (a no-op). */
void task_wake(struct task *t);

/* Ends the task: its drop runs before this returns, or, if the task is the one being polled now,
 * right after that poll returns. A finished or never spawned task: no-op. */
void task_abort(struct task *t);

/* Takes `n` operations from the budget of the running poll; the last one may overdraw it. False
 * when it is spent: the task has been put at the back of the run queue (it runs in the next pass)
 * and the caller must return POLL_PENDING. Only for the task that is being polled. */
bool task_consume(struct task *t, unsigned n);

/* Back of the queue, to run in the next pass; the caller returns POLL_PENDING. Only for the task
 * that is being polled. */
void task_yield(struct task *t);

static inline bool task_is_live(const struct task *t)
{
    return t->flags_ & TASK_LIVE_;
}

static inline struct sched *task_sched(const struct task *t)
{
    return t->sched_;
}

#endif
