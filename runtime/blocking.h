/* Blocking pool: threads for what would hold a core up too long (handshakes, big parses).
 *
 * A core submits an embedded job, a pool thread runs it, and `done` is called on the core that is
 * behind `reply`. Every accepted job gets exactly one `done`, also when it was cancelled or the
 * pool stopped first (status -ECANCELED: it never ran). Between submit and `done` the job and what
 * it uses belong to the pool.
 *
 * Jobs come in classes, named when the pool is made. Each has a cap on the jobs that run at once
 * and a bound on those that wait, so that no class can fill the pool for the others. Within a class
 * jobs start in the order of submission (per submitter); a free thread takes from the classes
 * in turn, of those that have a job and are below their cap.
 *
 * Submitting takes no lock and never blocks. Idle threads spin a little, then park on a semaphore,
 * whose post does not block the submitter either.
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

/* Embed; zero it and set run, done, reply and class. May be submitted again from its `done` on. */
struct blocking_job {
    void (*run)(struct blocking_job *job);  /* a pool thread; may block */
    void (*done)(struct blocking_job *job); /* owner of `reply`; the job is the submitter's again */
    struct mailbox *reply;
    unsigned class; /* index into the pool's classes */
    int status;     /* valid in done: 0 it ran, -ECANCELED it did not */
    struct blocking_job *next_;
    struct mailbox_item item_;
    uint64_t submitted_; /* monotonic ns */
    atomic_uint state_;
};

/* A kind of job. The name is borrowed. */
struct blocking_class {
    const char *name;
    unsigned max_running; /* at once; 0: as many as there are threads */
    unsigned max_queued;  /* that may wait; > 0 */
};

#define BLOCKING_CLASSES 16

struct blocking_opts {
    unsigned threads;                     /* > 0; named mr-block/0... */
    const struct blocking_class *classes; /* copied */
    unsigned nclasses;                    /* 1 to BLOCKING_CLASSES */
    uint64_t spin_ns;                     /* idle time before a thread parks */
    const cpu_set_t *cpus;                /* affinity of the threads; NULL: as the caller's */
};

struct blocking_stats { /* of a class */
    const char *name;
    uint64_t submitted, refused, completed, cancelled;
    unsigned queued, running; /* now */
    struct hist queue_ns;     /* submit to start */
    struct hist run_ns;       /* start to end */
};

enum blocking_end {
    BLOCKING_RETURN, /* jobs that have not started go back with -ECANCELED */
    BLOCKING_DRAIN,  /* they run first */
};

/* Set-up thread. 0/-errno. */
int blocking_new(const struct blocking_opts *o, struct blocking **ret_pool);

/* Any thread, never blocks. -EBUSY: as many of its class wait as may; -ESHUTDOWN: the pool stops or
 * has stopped. In both cases the job is still the caller's and `done` will not come. */
int blocking_submit(struct blocking *p, struct blocking_job *job);

/* Submitter's core, which has no pool (tests on virtual time): runs the job here and now; `done`
 * comes by the mailbox as ever. */
void blocking_run_inline(struct blocking_job *job);

/* Submitter's core. True when the job will not run; its `done` still comes, when a thread meets it:
 * until then it keeps its place in the queue. False when it runs or has run. */
bool blocking_cancel(struct blocking_job *job);

/* Refuses jobs from now on and blocks until those that run, with BLOCKING_DRAIN also those that
 * wait, have ended and the threads are gone. Mailboxes must still be there; draining them delivers
 * the last `done`s. The second call does nothing. */
void blocking_stop(struct blocking *p, enum blocking_end how);

/* After blocking_stop(). NULL is a no-op. */
void blocking_free(struct blocking *p);

/* Any thread but a core's (takes locks that pool threads hold for moments). */
void blocking_stats_get(struct blocking *p, unsigned class, struct blocking_stats *ret_stats);
unsigned blocking_classes(const struct blocking *p);

/* Times a thread has parked, and threads parked now; as above. */
uint64_t blocking_parks(struct blocking *p, unsigned *ret_parked);

#endif
