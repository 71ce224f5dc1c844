/* Level L's slots split time by the L-th group of SLOT_BITS above the tick. A timer is filed at the
 * highest level whose group differs between its time and now_, so every timer at one level is due
 * before every timer above it, and no slot ever wraps. */
#include "runtime/timer.h"

#include <assert.h>

#include "runtime/sched.h"

static_assert(TIMER_TICK_BITS + TIMER_LEVELS * TIMER_SLOT_BITS == 64, "the wheel covers all time");
static_assert(sizeof(struct task) + sizeof(struct sleep) <= 128, "a parked task with a timer");
static_assert(1u << TIMER_SLOT_BITS == TIMER_SLOTS && TIMER_SLOTS == 64, "one bit a slot");

#define CASCADE_PER_FIRE 4 /* timers filed again, per timer that may fire */
#define NEXT_SCAN        8 /* timers looked at for an exact next time */

static unsigned level_shift(unsigned level)
{
    return TIMER_TICK_BITS + level * TIMER_SLOT_BITS;
}

static uint64_t tick_of(uint64_t t)
{
    return t >> TIMER_TICK_BITS;
}

static unsigned slot_of(uint64_t t, unsigned level)
{
    return (t >> level_shift(level)) & (TIMER_SLOTS - 1);
}

static uint64_t slot_start(uint64_t now, unsigned level, unsigned slot)
{
    unsigned shift = level_shift(level);
    uint64_t above =
        level + 1 < TIMER_LEVELS ? now >> (shift + TIMER_SLOT_BITS) << TIMER_SLOT_BITS : 0;
    return (above | slot) << shift;
}

void timer_wheel_init(struct timer_wheel *w, uint64_t now)
{
    w->now_ = w->target_ = now;
    w->count_ = 0;
    w->soonest_ = UINT64_MAX;
    list_init(&w->late_);
    list_init(&w->due_);
    list_init(&w->cascade_);
    for (unsigned level = 0; level < TIMER_LEVELS; level++) {
        w->occupied_[level] = 0;
        for (unsigned slot = 0; slot < TIMER_SLOTS; slot++)
            list_init(&w->slots_[level][slot]);
    }
}

static void file_timer(struct timer_wheel *w, struct timer *t)
{
    assert(t->at_ >= w->now_);
    uint64_t differ = tick_of(t->at_) ^ tick_of(w->now_);
    unsigned level = differ ? (63 - (unsigned)__builtin_clzll(differ)) / TIMER_SLOT_BITS : 0;
    unsigned slot = slot_of(t->at_, level);
    if (differ == 0) {
        bool is_first = !(w->occupied_[0] & (1ull << slot));
        if (is_first || t->at_ < w->soonest_)
            w->soonest_ = t->at_;
    }
    t->slot_at_ = t->at_;
    list_push_tail(&w->slots_[level][slot], &t->node_);
    w->occupied_[level] |= 1ull << slot;
}

static void unfile_timer(struct timer_wheel *w, struct timer *t)
{
    struct list_node *prev = t->node_.prev;
    list_remove(&t->node_);
    if (!list_is_empty(prev))
        return;
    /* It was alone, so prev is the head of its list: one of the slots, or late_, due_, cascade_. */
    struct list_node *first = &w->slots_[0][0];
    if (prev >= first && prev < first + TIMER_LEVELS * TIMER_SLOTS) {
        size_t index = (size_t)(prev - first);
        w->occupied_[index / TIMER_SLOTS] &= ~(1ull << (index % TIMER_SLOTS));
    }
}

void timer_arm(struct timer_wheel *w, struct timer *t, uint64_t at)
{
    assert(t->fire);
    if (timer_is_armed(t)) {
        if (at >= t->slot_at_) {
            t->at_ = at;
            return;
        }
        unfile_timer(w, t);
        w->count_--;
    }
    w->count_++;
    t->at_ = at;
    if (at <= w->target_) {
        t->slot_at_ = at;
        list_push_tail(&w->late_, &t->node_);
    } else {
        file_timer(w, t);
    }
}

void timer_cancel(struct timer_wheel *w, struct timer *t)
{
    if (!timer_is_armed(t))
        return;
    unfile_timer(w, t);
    w->count_--;
}

/* The slot that is due first. False when the slots are empty. */
static bool first_slot(const struct timer_wheel *w, unsigned *ret_level, unsigned *ret_slot)
{
    for (unsigned level = 0; level < TIMER_LEVELS; level++) {
        if (w->occupied_[level]) {
            *ret_level = level;
            *ret_slot = (unsigned)__builtin_ctzll(w->occupied_[level]);
            return true;
        }
    }
    return false;
}

/* Files what came from a higher slot again. False when `*moves` ran out first. */
static bool run_cascade(struct timer_wheel *w, unsigned *moves)
{
    struct list_node *n;
    while ((n = list_first(&w->cascade_))) {
        if (*moves == 0)
            return false;
        --*moves;
        list_remove(n);
        file_timer(w, container_of(n, struct timer, node_));
    }
    return true;
}

/* Fires or files again what came from a level-0 slot: also one that is due by target_ but in a
 * later slot, as it was moved; those between go first. False when a limit was reached first. */
static bool run_due(struct timer_wheel *w, unsigned *fires, unsigned *moves)
{
    struct list_node *n;
    while ((n = list_first(&w->due_))) {
        struct timer *t = container_of(n, struct timer, node_);
        bool is_due = t->at_ <= w->target_ && tick_of(t->at_) <= tick_of(w->now_);
        unsigned *limit = is_due ? fires : moves;
        if (*limit == 0)
            return false;
        --*limit;
        list_remove(n);
        if (is_due) {
            w->count_--;
            t->fire(t, w->target_);
        } else {
            file_timer(w, t);
        }
    }
    return true;
}

/* Takes the first slot out if it holds anything to look at by target_. */
static bool take_first_slot(struct timer_wheel *w)
{
    unsigned level, slot;
    if (!first_slot(w, &level, &slot))
        return false;
    uint64_t start = slot_start(w->now_, level, slot);
    if (start > w->target_)
        return false;
    bool is_current = level == 0 && tick_of(start) == tick_of(w->now_);
    if (is_current && w->soonest_ > w->target_)
        return false;
    if (start > w->now_)
        w->now_ = start;
    w->occupied_[level] &= ~(1ull << slot);
    list_splice_tail(level ? &w->cascade_ : &w->due_, &w->slots_[level][slot]);
    return true;
}

unsigned timer_wheel_advance(struct timer_wheel *w, uint64_t now, unsigned max)
{
    assert(now >= w->target_);
    unsigned fires = max, moves = max * CASCADE_PER_FIRE;
    w->target_ = now;
    list_splice_tail(&w->due_, &w->late_);
    do {
        if (!run_cascade(w, &moves) || !run_due(w, &fires, &moves))
            return max - fires;
    } while (take_first_slot(w));
    w->now_ = now;
    return max - fires;
}

uint64_t timer_wheel_next(const struct timer_wheel *w)
{
    if (!list_is_empty(&w->late_) || !list_is_empty(&w->due_) || !list_is_empty(&w->cascade_))
        return w->now_;
    unsigned level, slot;
    if (!first_slot(w, &level, &slot))
        return UINT64_MAX;
    uint64_t start = slot_start(w->now_, level, slot);
    if (level == 0 && tick_of(start) == tick_of(w->now_))
        return w->soonest_;

    /* A lazily moved timer may have left for a time when another slot is due before it. */
    uint64_t soonest = start + ((1ull << level_shift(level)) - 1);
    unsigned seen = 0;
    list_for_each(n, &w->slots_[level][slot])
    {
        const struct timer *t = container_of(n, const struct timer, node_);
        if (++seen > NEXT_SCAN)
            return start;
        if (t->at_ < soonest)
            soonest = t->at_;
    }
    return soonest;
}

static void on_sleep_fire(struct timer *t, uint64_t now)
{
    (void)now;
    task_wake(container_of(t, struct sleep, timer)->task);
}

void sleep_arm(struct sleep *s, struct task *t, uint64_t at)
{
    assert(task_is_live(t));
    struct timer_wheel *wheel = &task_sched(t)->wheel;
    if (timer_is_armed(&s->timer) && s->wheel_ != wheel)
        sleep_cancel(s);
    s->task = t;
    s->wheel_ = wheel;
    s->timer.fire = on_sleep_fire;
    timer_arm(wheel, &s->timer, at);
}

void sleep_cancel(struct sleep *s)
{
    if (timer_is_armed(&s->timer))
        timer_cancel(s->wheel_, &s->timer);
}

void sleep_move(struct sleep *s, uint64_t at)
{
    if (at == UINT64_MAX)
        sleep_cancel(s);
    else if (timer_is_armed(&s->timer))
        timer_arm(s->wheel_, &s->timer, at);
}
