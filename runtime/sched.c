#include "runtime/sched.h"

#include <assert.h>
#include <string.h>

#include "runtime/clock.h"

/* task.flags_, beside TASK_LIVE_. */
#define TASK_QUEUED  0x02 /* in run_ or yielded_; only then does its run_ mean anything */
#define TASK_RUNNING 0x04
#define TASK_REWAKE  0x08 /* woken while it ran */
#define TASK_YIELDED 0x10 /* gave up in this poll */
#define TASK_ABORTED 0x20 /* while it ran */
#define TASK_POLLED  0x40 /* once at least: a poll comes by a wake-up now */

#define BUDGET_CLOCK_MASK 7 /* look at the clock every so many operations */

const struct task_kind sched_pass_kind = {.name = "pass"};
static const struct task_kind other_kind = {.name = "other"};

/* A signal handler has no other way to its core. */
static _Thread_local struct sched *of_thread;

void sched_bind_thread(struct sched *s)
{
    of_thread = s;
}

struct sched *sched_of_thread(void)
{
    return of_thread;
}

static uint64_t ns_to_tsc(uint64_t ns, uint64_t hz)
{
    return (uint64_t)((unsigned __int128)ns * hz / CLOCK_NS_PER_S);
}

void sched_init(struct sched *s, const struct sched_opts *o)
{
    memset(s, 0, sizeof(*s));
    s->now_ = o->now;
    timer_wheel_init(&s->wheel, o->now);
    list_init(&s->run_);
    list_init(&s->yielded_);
    list_init(&s->all_);
    s->account_ = o->account;
    if (s->account_) {
        s->tsc_hz_ = o->tsc_hz ? o->tsc_hz : clock_tsc_calibrate();
        s->budget_tsc_ = ns_to_tsc(SCHED_BUDGET_NS, s->tsc_hz_);
        s->pass_tsc_ = ns_to_tsc(SCHED_PASS_NS, s->tsc_hz_);
        s->stall_tsc_ = ns_to_tsc(SCHED_STALL_NS, s->tsc_hz_);
        s->tsc_ns_ = (uint64_t)(((unsigned __int128)CLOCK_NS_PER_S << 32) / s->tsc_hz_);
    }
}

static void push_run(struct sched *s, struct list_node *queue, struct task *t)
{
    assert(!(t->flags_ & TASK_QUEUED));
    t->flags_ |= TASK_QUEUED;
    list_push_tail(queue, &t->run_);
    s->queued_++;
}

static void unqueue(struct sched *s, struct task *t)
{
    if (!(t->flags_ & TASK_QUEUED))
        return;
    t->flags_ &= ~TASK_QUEUED;
    s->unqueued_++;
    if (s->next_ == t)
        s->next_ = NULL;
    list_remove(&t->run_);
}

/* Kinds are few and static: a core meets all of its own soon. */
static unsigned slot_of_kind(struct sched *s, const struct task_kind *k)
{
    unsigned i = 0;
    while (i < s->nkinds && s->kind_of_[i] != k)
        i++;
    if (i < s->nkinds)
        return i;
    if (i == SCHED_KINDS)
        return SCHED_KINDS - 1;
    s->kinds[i].kind = s->kind_of_[i] = i == SCHED_KINDS - 1 ? &other_kind : k;
    s->nkinds++;
    return i;
}

void task_spawn(struct sched *s, struct task *t, const struct task_kind *k)
{
    assert(!task_is_live(t) && k->poll && k->drop);
    t->kind_ = k;
    t->sched_ = s;
    t->budget_ = 0;
    t->flags_ = TASK_LIVE_;
    t->kind_slot_ = (uint8_t)slot_of_kind(s, k);
    t->run_ = (struct list_node){NULL, NULL};
    t->all_ = (struct list_node){NULL, NULL};
    list_push_tail(&s->all_, &t->all_);
    s->stats.spawned++;
    s->stats.live++;
    s->kinds[t->kind_slot_].live++;
    push_run(s, &s->run_, t);
}

/* The last woken runs next, while what it was woken for is warm in the cache. It has its turn in
 * the queue all the same, and keeps it when another one is woken. */
void task_wake(struct task *t)
{
    uint8_t state = t->flags_ & (TASK_LIVE_ | TASK_QUEUED | TASK_REWAKE | TASK_RUNNING);
    struct sched *s = t->sched_;
    if (state == TASK_LIVE_) {
        if (s->current_)
            s->next_ = t;
        push_run(s, &s->run_, t);
    } else if (state == (TASK_LIVE_ | TASK_RUNNING)) {
        t->flags_ |= TASK_REWAKE;
    }
}

/* The only way out of life; `t` may be freed memory afterwards. */
static void finish(struct sched *s, struct task *t)
{
    assert(task_is_live(t));
    unqueue(s, t);
    list_remove(&t->all_);
    t->flags_ = 0;
    s->stats.live--;
    s->kinds[t->kind_slot_].live--;
    t->kind_->drop(t);
}

void task_abort(struct task *t)
{
    if (!task_is_live(t))
        return;
    struct sched *s = t->sched_;
    if (t->flags_ & TASK_RUNNING) {
        t->flags_ |= TASK_ABORTED;
        return;
    }
    s->stats.aborted++;
    finish(s, t);
}

static bool is_out_of_time(const struct sched *s)
{
    return s->account_ && clock_tsc() - s->tsc_ > s->budget_tsc_;
}

bool task_consume(struct task *t, unsigned n)
{
    struct sched *s = t->sched_;
    assert(t->flags_ & TASK_RUNNING);
    if (t->budget_ > 0) {
        unsigned left = n < t->budget_ ? t->budget_ - n : 0;
        bool look = (t->budget_ & ~BUDGET_CLOCK_MASK) != (left & ~BUDGET_CLOCK_MASK);
        t->budget_ = (uint16_t)left;
        if (!look || !is_out_of_time(s))
            return true;
        t->budget_ = 0;
    }
    if (!(t->flags_ & TASK_YIELDED))
        s->stats.budget_out++;
    t->flags_ |= TASK_YIELDED;
    return false;
}

void task_yield(struct task *t)
{
    assert(t->flags_ & TASK_RUNNING);
    if (!(t->flags_ & TASK_YIELDED))
        t->sched_->stats.yields++;
    t->flags_ |= TASK_YIELDED;
}

/* Tasks on the queue, and those that the running pass has polled. */
static uint32_t run_depth(const struct sched *s)
{
    return (uint32_t)(s->queued_ - s->unqueued_ - s->stats.polls);
}

/* NULL when nothing is queued. The task still says TASK_QUEUED, and run_depth() counts it: the pass
 * settles that for all that it has polled. */
static struct task *pick(struct sched *s)
{
    struct task *t = s->next_;
    if (t) {
        s->next_ = NULL;
        if (s->next_streak_ < SCHED_WAKE_NEXT) {
            s->next_streak_++;
            list_remove(&t->run_);
            return t;
        }
    }
    if (s->next_streak_)
        s->next_streak_ = 0;
    struct list_node *n = s->run_.next, *second = n->next;
    if (n == &s->run_)
        return NULL;
    s->run_.next = second;
    second->prev = &s->run_;
    return container_of(n, struct task, run_);
}

static void restart_clock(struct sched *s)
{
    if (s->account_)
        s->tsc_ = clock_tsc();
}

/* A handler that comes after the store of watch.kind leaves the open record alone, and one that
 * comes while we push leaves the ring alone. */
static void record_stall(struct sched *s, struct sched_kind *k, const struct task *t, uint64_t ns)
{
    s->stats.stalls++;
    k->stalls++;
    if (s->sample_.poll) {
        stall_settle(&s->stalls, s->sample_.poll - 1, ns);
        s->sample_.poll = 0;
        return;
    }
    struct stall_event e = {.at = s->now_, .ns = ns, .kind = t->kind_->name, .label = t->label};
    s->sample_.pushing = true;
    atomic_signal_fence(memory_order_seq_cst);
    stall_push(&s->stalls, &e);
    atomic_signal_fence(memory_order_seq_cst);
    s->sample_.pushing = false;
}

/* One reading ends this poll and starts the next. The watch is set back first: see record_stall().
 * Who doesn't account isn't sampled, and its watch tells the poll that has ended until the next. */
static void account_poll(struct sched *s, struct sched_kind *k, const struct task *t)
{
    atomic_store_explicit(&s->watch.kind, &sched_pass_kind, memory_order_relaxed);
    atomic_signal_fence(memory_order_seq_cst);
    uint64_t end = clock_tsc();
    uint64_t cycles = end - s->tsc_;
    uint64_t ns = (uint64_t)(((unsigned __int128)cycles * s->tsc_ns_) >> 32);
    s->tsc_ = end;
    hist_record(&k->poll_ns, ns);
    if (cycles > s->stall_tsc_ || s->sample_.poll)
        record_stall(s, k, t, ns);
}

static enum poll run_poll(struct sched *s, struct task *t, uint64_t beat)
{
    const struct task_kind *kind = t->kind_;
    t->budget_ = SCHED_BUDGET_OPS;
    t->flags_ = (uint8_t)((t->flags_ & ~TASK_QUEUED) | TASK_RUNNING);
    s->current_ = t;
    sched_watch_begin_(&s->watch, kind, beat);
    return kind->poll(t);
}

/* After a poll that did more than to go on waiting; `flags` as it has left them. Apart, so that the
 * loop stays short. */
static __attribute__((noinline)) void settle_poll(struct sched *s, struct task *t, enum poll result,
                                                  uint8_t flags)
{
    s->current_ = NULL;
    if (result == POLL_READY) {
        s->stats.finished++;
        finish(s, t);
        restart_clock(s);
    } else if (flags & TASK_ABORTED) {
        s->stats.aborted++;
        finish(s, t);
        restart_clock(s);
    } else if (flags & TASK_YIELDED) {
        s->turned_++;
        push_run(s, &s->yielded_, t);
    } else if (flags & TASK_REWAKE) {
        push_run(s, &s->run_, t);
    }
}

static void poll_task(struct sched *s, struct task *t, uint64_t beat)
{
    enum poll result = run_poll(s, t, beat);
    struct sched_kind *k = &s->kinds[t->kind_slot_];
    uint8_t flags = t->flags_;
    k->polls++;
    if (s->account_)
        account_poll(s, k, t);
    /* Woken for nothing: no operation consumed, no turn given up, no end. */
    if (result == POLL_PENDING && t->budget_ == SCHED_BUDGET_OPS &&
        (flags & (TASK_POLLED | TASK_YIELDED | TASK_ABORTED)) == TASK_POLLED)
        k->fruitless++;
    t->flags_ = TASK_LIVE_ | TASK_POLLED;
    if (result == POLL_READY || (flags & (TASK_ABORTED | TASK_YIELDED | TASK_REWAKE)))
        settle_poll(s, t, result, flags);
}

/* What is queued, within the pass' budget; how many polls. */
static unsigned poll_queued(struct sched *s, uint64_t start)
{
    uint64_t beat = atomic_load_explicit(&s->watch.beat, memory_order_relaxed);
    unsigned polls = 0;
    struct task *t;
    while (polls < SCHED_PASS_POLLS && (t = pick(s))) {
        polls++;
        poll_task(s, t, beat + polls);
        if (s->account_ && s->tsc_ - start > s->pass_tsc_)
            break;
    }
    s->current_ = NULL;
    atomic_store_explicit(&s->watch.kind, &sched_pass_kind, memory_order_relaxed);
    s->stats.polls += polls;
    return polls;
}

bool sched_step(struct sched *s, uint64_t now_ns)
{
    assert(now_ns >= s->now_ && !s->current_);
    s->now_ = now_ns;
    atomic_store_explicit(&s->watch.kind, &sched_pass_kind, memory_order_relaxed);
    s->stats.passes++;
    restart_clock(s);
    uint64_t start = s->tsc_;
    unsigned fired = timer_wheel_advance(&s->wheel, now_ns, SCHED_TIMERS_STEP);
    if (fired)
        restart_clock(s);
    if (run_depth(s) > s->stats.run_depth_max)
        s->stats.run_depth_max = run_depth(s);
    unsigned polls = poll_queued(s, start);
    list_splice_tail(&s->run_, &s->yielded_);
    return polls > 0 || fired > 0;
}

void sched_pass_end(struct sched *s)
{
    atomic_store_explicit(&s->watch.kind, NULL, memory_order_relaxed);
    atomic_signal_fence(memory_order_seq_cst);
    if (!s->sample_.pass)
        return;
    stall_settle(&s->stalls, s->sample_.pass - 1, clock_now_ns() - s->now_);
    s->sample_.pass = 0;
}

/* The owner stands still while this runs, so its plain fields are as good as our own. */
void sched_sample(struct sched *s, const uintptr_t *frames, unsigned nframes)
{
    const struct task_kind *kind = atomic_load_explicit(&s->watch.kind, memory_order_relaxed);
    if (!kind || s->sample_.pushing || !s->account_)
        return;
    bool in_poll = kind != &sched_pass_kind;
    uint64_t stretch = 2 * atomic_load_explicit(&s->watch.beat, memory_order_relaxed) + in_poll;
    if (stretch == s->sample_.stretch || (!in_poll && s->sample_.pass))
        return;
    struct stall_event e = {
        .at = s->now_, .running = true, .kind = kind->name, .frames = frames, .nframes = nframes};
    if (in_poll) {
        e.ns = clock_tsc_to_ns(clock_tsc() - s->tsc_, s->tsc_hz_);
        e.label = s->current_ ? s->current_->label : NULL;
    } else {
        e.ns = clock_now_ns() - s->now_;
    }
    s->sample_.stretch = stretch;
    uint64_t open = stall_push(&s->stalls, &e) + 1;
    *(in_poll ? &s->sample_.poll : &s->sample_.pass) = open;
}

void sched_poll_hist(const struct sched *s, struct hist *ret_hist)
{
    hist_init(ret_hist);
    for (unsigned i = 0; i < s->nkinds; i++)
        hist_merge(ret_hist, &s->kinds[i].poll_ns);
}

void sched_read_stats(const struct sched *s, struct sched_stats *ret_stats)
{
    *ret_stats = s->stats;
    ret_stats->run_depth = run_depth(s);
    ret_stats->wakes = s->queued_ - s->turned_ - s->stats.spawned;
    ret_stats->fruitless = 0;
    for (unsigned i = 0; i < s->nkinds; i++)
        ret_stats->fruitless += s->kinds[i].fruitless;
}

bool sched_is_runnable(const struct sched *s)
{
    return run_depth(s) > 0 || timer_wheel_next(&s->wheel) <= s->now_;
}

uint64_t sched_next_timeout(const struct sched *s)
{
    return timer_wheel_next(&s->wheel);
}

void sched_fini(struct sched *s)
{
    struct list_node *n;
    assert(!s->current_);
    while ((n = list_first(&s->all_)))
        task_abort(container_of(n, struct task, all_));
    assert(timer_wheel_count(&s->wheel) == 0);
}
