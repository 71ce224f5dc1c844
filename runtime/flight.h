/* Single flight: work that is in progress for a key is not started again; all who ask for the key
 * meanwhile share what comes of it, failures too. What has landed is forgotten: the next to ask
 * starts anew (a memory is ttl_cache.h).
 *
 * The rule when a caller goes: the work belongs to the group, not to the call that asked first. It
 * is a future in a slot of the group, driven by a task of its own. So a caller that is dropped, or
 * whose deadline passes, leaves alone, and nothing restarts for the others. When the last one has
 * left, the work is dropped, unless opts.keep_unwanted.
 *
 * Nothing is allocated to wait or to start: slots come from a slab with a bound, calls are
 * embedded. Work that may outlive its callers bounds its own time. Work that asks its own group for
 * its own key waits for itself until its deadline.
 *
 * Thread: single owner, all on one core.
 */
#ifndef MILLRACE_RUNTIME_FLIGHT_H
#define MILLRACE_RUNTIME_FLIGHT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "runtime/future.h"
#include "runtime/key_table.h"
#include "runtime/sched.h"
#include "runtime/slab.h"
#include "runtime/wait.h"

struct flight;

/* First member of the work's own struct; the rest of that is zeroed. */
struct flight_work {
    struct future f; /* `start` sets the kind; dropped when it has finished or is given up */
    struct flight *flight;
    const void *key; /* as long as the work */
    uint16_t key_len;
    /* kind->value_size bytes, zeroed, the work's to write. The group owns them from POLL_READY with
     * status 0 on; until then, and on a failure, what they refer to is the work's to release. */
    void *value;
};

/* Static, one per kind of work. */
struct flight_kind {
    const char *name; /* of the work's tasks, in stalls and metrics */
    size_t work_size; /* of the struct that begins with a struct flight_work */
    size_t value_size;
    /* Sets up work->f; it is polled later. What can fail, fails there. */
    void (*start)(struct flight_work *w);
    /* May be NULL. The work has finished by itself, status in w->f: before any caller sees
     * it. */
    void (*landed)(struct flight_work *w);
    /* For values that refer to something counted; NULL for plain bytes. Each caller gets a copy of
     * its own: `share` makes one more of it, `release` ends one that the group held. */
    void (*share)(void *value);
    void (*release)(void *value);
};

struct flight_opts {
    const struct flight_kind *kind;
    void *arg; /* flight_arg() */
    struct sched *sched;
    struct siphash_key secret; /* of the keys' hash */
    uint32_t max;              /* pieces of work with their unread answers; > 0 */
    uint16_t key_max;          /* bytes */
    bool keep_unwanted;        /* work goes on when its last caller has left */
};

struct flight_stats {
    uint64_t started;   /* pieces of work */
    uint64_t shared;    /* calls that found work in progress */
    uint64_t refused;   /* -EBUSY: no slot */
    uint64_t failed;    /* landed with an error */
    uint64_t unwanted;  /* given up because the last caller left */
    uint64_t timed_out; /* calls past their deadline */
    uint32_t running;   /* now */
    uint32_t waiting;   /* calls, now */
};

struct flight {
    struct flight_opts o_;
    struct task_kind task_kind_;
    struct key_table table_;
    struct slab slots_;
    struct list_node running_;
    uint32_t value_at_, key_at_; /* in a slot */
    struct flight_stats stats;
};

struct flight_slot;

/* One caller. Zeroed memory needs no drop. */
struct flight_call {
    struct future f; /* kind is "flight" */
    struct flight *flight_;
    struct flight_slot *slot_;
    struct wait_node node_;
    struct sleep alarm_;
    uint64_t deadline_;
    const void *key_;
    size_t key_len_;
    void *value_;
    bool is_shared; /* once polled: someone else had started the work */
};

/* 0 or -ENOMEM. */
int flight_init(struct flight *f, const struct flight_opts *o);

/* Gives all work up (its callers get -ECANCELED). No call may be left that has not read its answer
 * or been dropped, and none of the work may be running (asserted). */
void flight_fini(struct flight *f);

/* A call for `key`, borrowed until the first poll. `deadline` is absolute ns or DEADLINE_NONE.
 * Ready with
 *   0           `ret_value` (value_size bytes; may be NULL) holds the caller's own copy
 *   the work's  error, the same for everyone
 *   -ECANCELED  the work was given up by flight_cancel_all() or by the end of its scheduler
 *   -ETIMEDOUT  this call's deadline; the work goes on for others
 *   -EBUSY      no slot: nothing has been started
 *   -EINVAL     the key is longer than opts.key_max
 * An answer that is there is given also past the deadline. Cancel safe: dropping it loses nothing
 * but this caller's interest. */
void flight_call_init(struct flight_call *c, struct flight *f, const void *key, size_t key_len,
                      uint64_t deadline, void *ret_value);

/* Starts work that no caller needs to want: it goes on to its end. 0, also when some is in progress
 * (that is kept from now on), -EBUSY or -EINVAL as above. */
int flight_start(struct flight *f, const void *key, size_t key_len);

/* Callers from now on start anew; work in progress lands for those who wait for it already. True
 * when there was any. */
bool flight_forget(struct flight *f, const void *key, size_t key_len);

/* In progress and not forgotten. */
bool flight_is_running(const struct flight *f, const void *key, size_t key_len);

/* From a kind's functions: false when the key has been forgotten since the start. */
bool flight_is_current(const struct flight_work *w);

static inline void *flight_arg(const struct flight_work *w)
{
    return w->flight->o_.arg;
}

/* Gives all work up; who waits gets -ECANCELED. Not from within the work. */
void flight_cancel_all(struct flight *f);

#endif
