/* Blocking pool: threads for what would hold a core up too long (handshakes, big parses).
 *
 * A core submits an embedded job, a pool thread runs it, and `done` is called on the core that is
 * behind `reply`. Every accepted job gets exactly one `done`, also when it was cancelled or the
 * pool stopped first (status -ECANCELED: it never ran). Between submit and `done` the job and what
 * it uses belong to the pool.
 *
 * The queue is bounded; submitting takes no lock and never blocks. Idle threads spin a little, then
 * park on a semaphore, whose post does not block the submitter either.
 */
#ifndef MILLRACE_RUNTIME_BLOCKING_H
#define MILLRACE_RUNTIME_BLOCKING_H

#include <sched.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "runtime/hist.h"
#include "runtime/mailbox.h"

struct blocking;

/* Embed; zero it and set run, done and reply. May be submitted again from its `done` on. */
struct blocking_job {
    void (*run)(struct blocking_job *job);  /* a pool thread; may block */
    void (*done)(struct blocking_job *job); /* owner of `reply`; the job is the submitter's again */
    struct mailbox *reply;
    int status; /* valid in done: 0 it ran, -ECANCELED it did not */
    struct blocking_job *next_;
    struct mailbox_item item_;
    uint64_t submitted_; /* monotonic ns */
    atomic_uint state_;
};

struct blocking_opts {
    unsigned threads;      /* > 0; named mr-block/0... */
    unsigned queue;        /* jobs that may wait */
    uint64_t spin_ns;      /* idle time before a thread parks */
    const cpu_set_t *cpus; /* affinity of the threads; NULL: as the caller's */
};

struct blocking_stats {
    uint64_t submitted, refused, completed, cancelled;
    unsigned queued;      /* now */
    struct hist queue_ns; /* submit to start */
    struct hist run_ns;   /* start to end */
};

/* Set-up thread. 0/-errno. */
int blocking_new(const struct blocking_opts *o, struct blocking **ret_pool);

/* Any thread, never blocks. -EBUSY: the queue is full; -ESHUTDOWN: the pool has stopped. In both
 * cases the job is still the caller's and `done` will not come. */
int blocking_submit(struct blocking *p, struct blocking_job *job);

/* Submitter's core. True when the job will not run; its `done` still comes. False when it runs or
 * has run. */
bool blocking_cancel(struct blocking_job *job);

/* Blocks until running jobs have ended and the threads are gone; jobs that have not started go back
 * with -ECANCELED. Mailboxes must still be there; draining them delivers the last `done`s.
 * Idempotent. */
void blocking_stop(struct blocking *p);

/* After blocking_stop(). NULL is a no-op. */
void blocking_free(struct blocking *p);

/* Any thread but a core's (takes locks that pool threads hold for moments). */
void blocking_stats_get(struct blocking *p, struct blocking_stats *ret_stats);

#endif
