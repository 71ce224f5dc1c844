/* Hierarchical timer wheel: O(1) arm and cancel, embedded nodes, times in absolute ns.
 *
 * A timer fires in the first timer_wheel_advance() whose `now` is at or past its time: never early,
 * and exactly then under a virtual clock. Within one advance timers fire in order of their time
 * slot, and each at most once: one that fired and is armed in a callback for a time already past
 * waits for the next advance, so a callback cannot starve the caller.
 *
 * Lazy re-arm: moving an armed timer later is a plain store; the wheel re-files it when the old
 * slot comes up. Moving it earlier re-files at once.
 *
 * Thread: single owner.
 */
#ifndef MILLRACE_RUNTIME_TIMER_H
#define MILLRACE_RUNTIME_TIMER_H

#include <stdbool.h>
#include <stdint.h>

#include "runtime/list.h"

#define TIMER_LEVELS    8
#define TIMER_SLOTS     64
#define TIMER_SLOT_BITS 6
#define TIMER_TICK_BITS 16 /* level-0 slot: 65.5 us; the top level then ends at 2^64 */

struct timer {
    struct list_node node_;
    uint64_t slot_at_; /* the time it is filed under */
    uint64_t at_;      /* the time it is due; >= slot_at_ */
    /* Called on the owner's core, unlinked; may re-arm itself or any other timer. */
    void (*fire)(struct timer *t, uint64_t now);
};

struct timer_wheel {
    uint64_t now_;     /* everything filed in slots_ is due after it, or in its own tick */
    uint64_t target_;  /* `now` of the advance that is running, else now_ */
    uint64_t count_;   /* armed timers */
    uint64_t soonest_; /* earliest in the slot of now_'s own tick; valid while that is occupied */
    uint64_t occupied_[TIMER_LEVELS]; /* one bit a slot */
    struct list_node late_;           /* armed for the past: fire first in the next advance */
    struct list_node due_;            /* taken from a level-0 slot, not all looked at yet */
    struct list_node cascade_;        /* taken from a higher slot, not all filed again yet */
    struct list_node slots_[TIMER_LEVELS][TIMER_SLOTS];
};

void timer_wheel_init(struct timer_wheel *w, uint64_t now);

/* `fire` must be set. Arming an armed timer moves it. */
void timer_arm(struct timer_wheel *w, struct timer *t, uint64_t at);

/* No-op when not armed. */
void timer_cancel(struct timer_wheel *w, struct timer *t);

static inline bool timer_is_armed(const struct timer *t)
{
    return list_is_linked(&t->node_);
}

/* Fires at most `max` due timers and files at most 4 * `max` again; returns how many fired. When it
 * stopped short, or a callback armed something for the past, timer_wheel_next() is at or before
 * `now`; otherwise it is after. `now` never goes back. */
unsigned timer_wheel_advance(struct timer_wheel *w, uint64_t now, unsigned max);

/* Next time anything may be due, UINT64_MAX for none. May be early (a lazily moved timer or a
 * coarse slot), never late. */
uint64_t timer_wheel_next(const struct timer_wheel *w);

/* Armed timers; a lazily moved one counts once. */
static inline uint64_t timer_wheel_count(const struct timer_wheel *w)
{
    return w->count_;
}

struct task;

/* A timer that wakes a task. Poll-style use: arm, return POLL_PENDING, compare task_now(). */
struct sleep {
    struct timer timer;
    struct task *task;
    struct timer_wheel *wheel_; /* where it is armed */
};

void sleep_arm(struct sleep *s, struct task *t, uint64_t at);
/* No-op when not armed, also for a zeroed sleep; the task need not be live any more. */
void sleep_cancel(struct sleep *s);
/* Moves an armed one for the same task; later is a plain store, UINT64_MAX cancels it. No-op when
 * not armed. */
void sleep_move(struct sleep *s, uint64_t at);
static inline bool sleep_is_armed(const struct sleep *s)
{
    return timer_is_armed(&s->timer);
}

#endif
