/* Semaphore of one core: fair, weighted, with a limit that may change while in use.
 *
 * A permit is a struct that its holder gives back with permit_put(), in its drop at the latest:
 * cancelling or failing then loses none. Waiters are served in the order of their first poll. One
 * that wants much holds up those behind it until it fits, so that it is not starved by small ones;
 * only a waiter that wants more than the limit itself stands aside (it keeps its place, for the
 * limit may be raised). What comes free is handed to the waiter before it runs: nobody barges in.
 *
 * A lowered limit takes nothing away; it grants nothing until what is in use is under it.
 *
 * Acquiring is cancel safe: a drop gives up the place in the queue, or the permit if it had already
 * been granted. Errors: -ESHUTDOWN closed, -EAGAIN (try) nothing free or others wait, -EBUSY the
 * queue is full, -ETIMEDOUT. For a limit over several cores see permits.h.
 *
 * Thread: single owner.
 */
#ifndef MILLRACE_RUNTIME_SEMAPHORE_H
#define MILLRACE_RUNTIME_SEMAPHORE_H

#include <assert.h>
#include <errno.h>
#include <stdbool.h>
#include <stdint.h>

#include "runtime/future.h"
#include "runtime/list.h"
#include "runtime/timer.h"

struct semaphore {
    uint32_t limit_;
    uint32_t in_use_; /* over limit_ after it was lowered */
    uint32_t waiting_;
    bool closed_;
    uint32_t queue_max; /* waiters at the most; may be set at any time, UINT32_MAX at first */
    struct list_node queue_;
};

/* Zeroed: none held. Move it with permit_take(), never by copying. */
struct permit {
    struct semaphore *sem_;
    uint32_t n_;
};

/* A future: status 0 (the permit is in `permit`), -ESHUTDOWN or -EBUSY. */
struct semaphore_acquire {
    struct future future;
    struct permit permit; /* once granted; take it, or the drop gives it back */
    struct semaphore *sem_;
    struct task *task_; /* while waiting */
    struct list_node node_;
    uint32_t want_;
};

/* The same with an absolute deadline, for one more status: -ETIMEDOUT. What is free at the first
 * poll is granted whatever the time. */
struct semaphore_timed {
    struct semaphore_acquire acquire;
    struct sleep sleep_;
    uint64_t deadline_;
};

void semaphore_init(struct semaphore *s, uint32_t limit);

/* Nothing may be in use and nobody wait (asserted). */
void semaphore_fini(struct semaphore *s);

/* n > 0. The futures may be dropped, moved (before the first poll) or initialised anew after they
 * have finished and their permit has been taken. */
void semaphore_acquire_init(struct semaphore_acquire *a, struct semaphore *s, uint32_t n);
void semaphore_timed_init(struct semaphore_timed *a, struct semaphore *s, uint32_t n,
                          uint64_t deadline);

/* Fails all who wait and all who come with -ESHUTDOWN. Permits that are out stay good. Idempotent.
 */
void semaphore_close(struct semaphore *s);

/* Grants at once what a raised limit allows. */
void semaphore_set_limit(struct semaphore *s, uint32_t limit);

/* Raises the limit by n. */
void semaphore_add(struct semaphore *s, uint32_t n);

/* Lowers the limit by what the permit is worth (down to 0) and drops the permit. */
void permit_forget(struct permit *p);

/* Out-of-line halves of the two below. */
int semaphore_try_slow_(struct semaphore *s, uint32_t n, struct permit *ret_permit);
void semaphore_grant_(struct semaphore *s);

/* 0, -EAGAIN or -ESHUTDOWN; never overtakes a waiter. n > 0. */
static inline int semaphore_try_acquire(struct semaphore *s, uint32_t n, struct permit *ret_permit)
{
    uint64_t then = (uint64_t)s->in_use_ + n;
    assert(n > 0);
    if (s->waiting_ || s->closed_ || then > s->limit_)
        return semaphore_try_slow_(s, n, ret_permit);
    s->in_use_ = (uint32_t)then;
    *ret_permit = (struct permit){.sem_ = s, .n_ = n};
    return 0;
}

/* Gives it back and wakes whom it lets in; no-op when none is held. */
static inline void permit_put(struct permit *p)
{
    struct semaphore *s = p->sem_;
    if (!s)
        return;
    assert(s->in_use_ >= p->n_);
    s->in_use_ -= p->n_;
    p->sem_ = NULL;
    if (s->waiting_)
        semaphore_grant_(s);
}

static inline struct permit permit_take(struct permit *from)
{
    struct permit p = *from;
    *from = (struct permit){NULL, 0};
    return p;
}

static inline bool permit_is_held(const struct permit *p)
{
    return p->sem_ != NULL;
}

/* Permits that are free; 0 also while over a lowered limit. */
static inline uint32_t semaphore_available(const struct semaphore *s)
{
    return s->limit_ > s->in_use_ ? s->limit_ - s->in_use_ : 0;
}

static inline uint32_t semaphore_in_use(const struct semaphore *s)
{
    return s->in_use_;
}

static inline uint32_t semaphore_limit(const struct semaphore *s)
{
    return s->limit_;
}

/* Waiters, whatever they want. */
static inline uint32_t semaphore_waiting(const struct semaphore *s)
{
    return s->waiting_;
}

static inline bool semaphore_is_closed(const struct semaphore *s)
{
    return s->closed_;
}

#endif
