/* Retry: drives a future, and when it fails in a way that may pass, waits and drives a new one.
 *
 * Itself a future. Its owner gives the attempts: a callback initialises one and hands it over; the
 * retry polls it, and drops it before it waits (or when the retry is dropped, or its time is up),
 * so that nothing (no permit, no connection) is held during back-off. The last attempt is left as
 * it ended, for its result to be taken, until the retry is dropped. Nothing is allocated: attempts
 * usually share one struct, initialised anew each time.
 *
 * Bounds: attempts, and total time from the first poll on, cut by an absolute deadline; an attempt
 * that still runs then is dropped and the status is -ETIMEDOUT. A wait that would end past the time
 * isn't begun: the retry ends at once with the status of the last attempt. Otherwise the status is
 * that of the last attempt; `end` says why there was no other.
 *
 * The wait is full jitter (backoff.h). When the server gave a delay (Retry-After), it is that and
 * the jitter on top: never earlier than told, and not all at once.
 *
 * Cancel safe as far as its attempts are: a drop drops the attempt that runs, and the wait.
 *
 * Thread: the core of the task.
 */
#ifndef MILLRACE_RUNTIME_RETRY_H
#define MILLRACE_RUNTIME_RETRY_H

#include <stdbool.h>
#include <stdint.h>

#include "runtime/future.h"
#include "runtime/rng.h"
#include "runtime/timer.h"

struct retry;
struct retry_budget_core;

enum retry_end {
#define RETRY_END(name, text) RETRY_END_##name,
#include "runtime/retry_end.def"
#undef RETRY_END
};

/* Text of a value of the list; "?" for any other. */
const char *retry_end_text(enum retry_end e);

/* Static, one per kind of call. */
struct retry_ops {
    /* Initialises the future of attempt r->attempt (from 0) and returns it through ret_attempt; it
     * stays the retry's until the next start, or the retry's end. -errno ends the retry with that
     * status. */
    int (*start)(struct retry *r, struct future **ret_attempt);
    /* Whether the failure (status < 0) may pass. NULL: every one may. */
    bool (*is_transient)(struct retry *r, const struct future *attempt);
    /* The delay in ns that the server asked for with this failure; 0: none. May be NULL. */
    uint64_t (*server_delay)(struct retry *r, const struct future *attempt);
};

struct retry_policy {
    uint32_t attempts; /* in all, the first included; > 0 */
    uint64_t base;     /* ns, ceiling of the first wait; it doubles with each failure */
    uint64_t cap;      /* ns, of the ceiling */
    uint64_t total;    /* ns from the first poll; UINT64_MAX: none */
};

struct retry {
    struct future future;
    uint32_t attempt; /* the number of the running, coming or last one, from 0 */
    enum retry_end end;
    const struct retry_ops *ops_;
    const struct retry_policy *policy_;
    struct rng *rng_;
    struct retry_budget_core *budget_;
    uint64_t deadline_;
    uint64_t resume_; /* end of the wait */
    struct future *current_;
    struct sleep sleep_;
    uint8_t state_;
};

struct retry_opts {
    const struct retry_ops *ops;
    const struct retry_policy *policy; /* borrowed until the end */
    struct rng *rng;                   /* borrowed until the end */
    struct retry_budget_core *budget;  /* NULL: none. A retry is counted when it is decided, not
                                          when its wait is over; the request is the caller's to
                                          count */
    uint64_t deadline;                 /* absolute ns; UINT64_MAX: none */
};

void retry_init(struct retry *r, const struct retry_opts *o);

/* In a wait between two attempts. */
bool retry_is_waiting(const struct retry *r);

#endif
