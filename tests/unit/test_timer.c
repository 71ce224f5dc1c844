/* The wheel against stories, and against a list that is searched in full. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "runtime/rng.h"
#include "runtime/timer.h"

#define START 1234567890123ull
#define TICK  (1ull << TIMER_TICK_BITS)

struct probe {
    struct timer timer;
    struct timer_wheel *wheel;
    unsigned fired;
    uint64_t fired_at;
    uint64_t again_at; /* armed anew by the callback when not 0 */
    struct probe *victim;
};

static void on_fire(struct timer *t, uint64_t now)
{
    struct probe *p = container_of(t, struct probe, timer);
    assert_false(timer_is_armed(t));
    p->fired++;
    p->fired_at = now;
    if (p->again_at)
        timer_arm(p->wheel, t, p->again_at);
    if (p->victim)
        timer_cancel(p->wheel, &p->victim->timer);
}

static struct timer_wheel *new_wheel(void)
{
    static struct timer_wheel w;
    timer_wheel_init(&w, START);
    return &w;
}

static void probe_init(struct probe *p, struct timer_wheel *w)
{
    *p = (struct probe){.timer.fire = on_fire, .wheel = w};
}

static unsigned advance(struct timer_wheel *w, uint64_t now)
{
    return timer_wheel_advance(w, now, 1000);
}

static void fires_at_its_ns_and_not_before(void **state)
{
    (void)state;
    static const uint64_t after[] = {1,
                                     2,
                                     TICK - 1,
                                     TICK,
                                     TICK + 1,
                                     64 * TICK - 1,
                                     64 * TICK,
                                     4096 * TICK + 5,
                                     1000000000ull,
                                     3600ull * 1000000000,
                                     1ull << 50,
                                     1ull << 62,
                                     UINT64_MAX - START};
    for (unsigned i = 0; i < sizeof(after) / sizeof(after[0]); i++) {
        struct timer_wheel *w = new_wheel();
        struct probe p;
        probe_init(&p, w);
        uint64_t at = START + after[i];
        timer_arm(w, &p.timer, at);
        assert_int_equal(timer_wheel_count(w), 1);
        assert_int_equal(advance(w, at - 1), 0);
        assert_true(timer_is_armed(&p.timer));
        assert_int_equal(timer_wheel_next(w), at);
        assert_int_equal(advance(w, at), 1);
        assert_int_equal(p.fired_at, at);
        assert_int_equal(timer_wheel_count(w), 0);
        assert_int_equal(timer_wheel_next(w), UINT64_MAX);
    }
}

static void past_deadline_fires_in_the_next_advance(void **state)
{
    (void)state;
    struct timer_wheel *w = new_wheel();
    struct probe p;
    probe_init(&p, w);
    timer_arm(w, &p.timer, 0);
    assert_true(timer_wheel_next(w) <= START);
    assert_int_equal(advance(w, START), 1);
    assert_int_equal(p.fired_at, START);
}

static void callback_cannot_loop_within_one_advance(void **state)
{
    (void)state;
    struct timer_wheel *w = new_wheel();
    struct probe p;
    probe_init(&p, w);
    p.again_at = 1;
    timer_arm(w, &p.timer, START + 10);
    assert_int_equal(advance(w, START + 3 * TICK), 1);
    assert_true(timer_wheel_next(w) <= START + 3 * TICK);
    assert_int_equal(advance(w, START + 3 * TICK), 1);
    p.again_at = 0;
    assert_int_equal(advance(w, START + 3 * TICK), 1);
    assert_int_equal(advance(w, START + 3 * TICK), 0);
}

static void rearm_ahead_in_the_callback_fires_later(void **state)
{
    (void)state;
    struct timer_wheel *w = new_wheel();
    struct probe p;
    probe_init(&p, w);
    p.again_at = START + 20;
    timer_arm(w, &p.timer, START + 10);
    assert_int_equal(advance(w, START + 10), 1);
    p.again_at = 0;
    assert_int_equal(timer_wheel_next(w), START + 20);
    assert_int_equal(advance(w, START + 19), 0);
    assert_int_equal(advance(w, START + 20), 1);
}

static void moving_later_is_lazy_and_exact(void **state)
{
    (void)state;
    struct timer_wheel *w = new_wheel();
    struct probe p;
    probe_init(&p, w);
    timer_arm(w, &p.timer, START + 1000);
    timer_arm(w, &p.timer, START + 900000000);
    assert_int_equal(p.timer.slot_at_, START + 1000);
    assert_int_equal(timer_wheel_count(w), 1);
    assert_int_equal(advance(w, START + 2000), 0);
    assert_int_equal(p.timer.slot_at_, START + 900000000);
    assert_int_equal(advance(w, START + 899999999), 0);
    assert_int_equal(advance(w, START + 900000000), 1);
    assert_int_equal(p.fired, 1);
}

static void moving_earlier_takes_effect_at_once(void **state)
{
    (void)state;
    struct timer_wheel *w = new_wheel();
    struct probe p;
    probe_init(&p, w);
    timer_arm(w, &p.timer, START + 900000000);
    timer_arm(w, &p.timer, START + 5);
    assert_int_equal(timer_wheel_count(w), 1);
    assert_int_equal(timer_wheel_next(w), START + 5);
    assert_int_equal(advance(w, START + 5), 1);
    assert_int_equal(advance(w, START + 900000001), 0);
}

static void cancel_is_idempotent_and_empties_the_wheel(void **state)
{
    (void)state;
    struct timer_wheel *w = new_wheel();
    struct probe p;
    probe_init(&p, w);
    timer_cancel(w, &p.timer);
    timer_arm(w, &p.timer, START + 12345678);
    timer_cancel(w, &p.timer);
    timer_cancel(w, &p.timer);
    assert_int_equal(timer_wheel_count(w), 0);
    assert_int_equal(timer_wheel_next(w), UINT64_MAX);
    assert_int_equal(advance(w, START + 99999999), 0);
}

static void callback_may_cancel_one_due_in_the_same_slot(void **state)
{
    (void)state;
    struct timer_wheel *w = new_wheel();
    struct probe a, b, c;
    probe_init(&a, w);
    probe_init(&b, w);
    probe_init(&c, w);
    a.victim = &b;
    timer_arm(w, &a.timer, START + 100);
    timer_arm(w, &b.timer, START + 100);
    timer_arm(w, &c.timer, START + 100);
    assert_int_equal(advance(w, START + TICK), 2);
    assert_int_equal(b.fired, 0);
    assert_int_equal(c.fired, 1);
    assert_int_equal(timer_wheel_count(w), 0);
}

static void one_advance_is_bounded_and_the_rest_follows(void **state)
{
    (void)state;
    static struct probe probes[10000];
    struct timer_wheel *w = new_wheel();
    for (unsigned i = 0; i < 10000; i++) {
        probe_init(&probes[i], w);
        timer_arm(w, &probes[i].timer, START + 40 * 4096 * TICK + i * 100);
    }
    uint64_t now = START + (1ull << 40);
    unsigned fired = 0, calls = 0;
    while (timer_wheel_next(w) <= now) {
        unsigned n = timer_wheel_advance(w, now, 64);
        assert_true(n <= 64);
        fired += n;
        calls++;
    }
    assert_int_equal(fired, 10000);
    assert_true(calls >= 10000 / 64 && calls < 10000 / 16);
    assert_int_equal(timer_wheel_count(w), 0);
}

static uint64_t order_seen;

static void on_ordered(struct timer *t, uint64_t now)
{
    (void)now;
    uint64_t tick = t->at_ >> TIMER_TICK_BITS;
    assert_true(tick >= order_seen);
    order_seen = tick;
}

static void big_jump_fires_in_order_of_time(void **state)
{
    (void)state;
    static struct probe probes[2000];
    struct timer_wheel *w = new_wheel();
    struct rng rng = {42};
    order_seen = 0;
    for (unsigned i = 0; i < 2000; i++) {
        probe_init(&probes[i], w);
        probes[i].timer.fire = on_ordered;
        timer_arm(w, &probes[i].timer, START + (rng_next(&rng) >> (8 + rng_below(&rng, 48))));
    }
    unsigned fired = 0;
    while (timer_wheel_next(w) != UINT64_MAX)
        fired += timer_wheel_advance(w, UINT64_MAX - 1, 256);
    assert_int_equal(fired, 2000);
}

/* The model: what is armed, and for when. */
#define MODEL_TIMERS 48
#define MODEL_ROOM   1000 /* an advance with this limit fires all that is due */

struct model {
    struct timer_wheel wheel;
    uint64_t now;
    struct rng rng;
    struct probe probes[MODEL_TIMERS];
    bool armed[MODEL_TIMERS];
    uint64_t at[MODEL_TIMERS];
    bool may_fire[MODEL_TIMERS]; /* armed when the advance began and not fired in it yet */
    bool was_due[MODEL_TIMERS];  /* the same, and its time had come */
    bool touched[MODEL_TIMERS];  /* armed by a callback of that advance */
    uint64_t target;
    uint64_t seed;
    char log[65536];
    size_t log_len;
};

static struct model model;

static void __attribute__((format(printf, 2, 3))) note(struct model *m, const char *fmt, ...)
{
    va_list ap;
    if (m->log_len + 100 > sizeof(m->log))
        m->log_len = 0;
    va_start(ap, fmt);
    m->log_len += (size_t)vsnprintf(m->log + m->log_len, sizeof(m->log) - m->log_len, fmt, ap);
    va_end(ap);
}

static void model_fail(const struct model *m, const char *what)
{
    print_error("%s\n", m->log);
    fail_msg("seed %lu: not %s", m->seed, what);
}

#define model_check(m, cond) ((cond) ? (void)0 : model_fail(m, #cond))

static uint64_t model_later(const struct model *m, uint64_t ahead)
{
    return ahead > UINT64_MAX - m->now ? UINT64_MAX : m->now + ahead;
}

/* A time ahead whose size is drawn first, so that every level gets its share; or in the past. */
static uint64_t model_time(struct model *m)
{
    uint64_t ahead = rng_next(&m->rng) >> rng_below(&m->rng, 64);
    if (rng_chance(&m->rng, 50000))
        return rng_below(&m->rng, 2) ? m->now : m->now - m->now % (1 + rng_below(&m->rng, 1000000));
    return model_later(m, ahead);
}

static void model_arm(struct model *m, unsigned i, uint64_t at)
{
    note(m, "arm %u %lu\n", i, at);
    m->armed[i] = true;
    m->at[i] = at;
    m->touched[i] = true;
    timer_arm(&m->wheel, &m->probes[i].timer, at);
}

static void model_change(struct model *m)
{
    unsigned i = rng_below(&m->rng, MODEL_TIMERS);
    switch (rng_below(&m->rng, 4)) {
    case 0:
        note(m, "cancel %u\n", i);
        m->armed[i] = false;
        timer_cancel(&m->wheel, &m->probes[i].timer);
        break;
    case 1: /* later: lazily */
        if (m->armed[i] && m->at[i] < UINT64_MAX - (1ull << 40))
            model_arm(m, i, m->at[i] + (rng_next(&m->rng) >> (24 + rng_below(&m->rng, 40))));
        break;
    default:
        model_arm(m, i, model_time(m));
    }
}

static void on_model_fire(struct timer *t, uint64_t now)
{
    struct model *m = &model;
    unsigned i = (unsigned)(container_of(t, struct probe, timer) - m->probes);
    note(m, "fire %u\n", i);
    model_check(m, now == m->target);
    model_check(m, m->armed[i]);
    model_check(m, m->at[i] <= now);
    model_check(m, m->may_fire[i]);
    m->armed[i] = false;
    m->may_fire[i] = false;
    m->was_due[i] = false;
    if (rng_chance(&m->rng, 300000)) {
        unsigned other = rng_below(&m->rng, MODEL_TIMERS);
        model_arm(m, other, model_time(m));
    }
}

/* Never late, none when there is none, and the past means at once. */
static void model_check_next(struct model *m)
{
    uint64_t soonest = UINT64_MAX;
    unsigned count = 0;
    for (unsigned i = 0; i < MODEL_TIMERS; i++) {
        model_check(m, m->armed[i] == timer_is_armed(&m->probes[i].timer));
        count += m->armed[i];
        if (m->armed[i] && m->at[i] < soonest)
            soonest = m->at[i];
    }
    uint64_t next = timer_wheel_next(&m->wheel);
    model_check(m, timer_wheel_count(&m->wheel) == count);
    model_check(m, count > 0 || next == UINT64_MAX);
    model_check(m, next <= (soonest > m->now ? soonest : m->now));
}

static void model_advance(struct model *m, uint64_t now, unsigned max)
{
    note(m, "advance %lu max %u\n", now, max);
    m->now = m->target = now;
    for (unsigned i = 0; i < MODEL_TIMERS; i++) {
        m->was_due[i] = m->armed[i] && m->at[i] <= now;
        m->may_fire[i] = m->armed[i];
        m->touched[i] = false;
    }
    model_check(m, timer_wheel_advance(&m->wheel, now, max) <= max);
    model_check_next(m);
    if (max < MODEL_ROOM)
        return;
    bool overdue = false;
    for (unsigned i = 0; i < MODEL_TIMERS; i++) {
        model_check(m, !m->was_due[i] || m->touched[i]);
        overdue |= m->armed[i] && m->at[i] <= now;
    }
    if (overdue)
        return;
    /* Progress: next lies ahead, at the latest after a second look at what callbacks moved. */
    if (timer_wheel_next(&m->wheel) <= now)
        model_check(m, timer_wheel_advance(&m->wheel, now, max) == 0);
    model_check(m, timer_wheel_next(&m->wheel) > now || now == UINT64_MAX);
}

static uint64_t model_jump(struct model *m)
{
    uint64_t next = timer_wheel_next(&m->wheel);
    switch (rng_below(&m->rng, 4)) {
    case 0:
        return m->now;
    case 1:
        return next == UINT64_MAX || next < m->now ? m->now : next;
    case 2:
        return model_later(m, rng_below(&m->rng, 200000));
    default:
        return model_later(m, rng_next(&m->rng) >> (8 + rng_below(&m->rng, 56)));
    }
}

/* Every third run starts anywhere in 2^64 ns, and every third so late that the end is near. */
static uint64_t model_start(struct model *m)
{
    uint64_t any = rng_next(&m->rng) >> rng_below(&m->rng, 64);
    switch (m->seed % 3) {
    case 0:
        return any | 1;
    case 1:
        return UINT64_MAX - any / 2;
    default:
        return START + m->seed * 7919;
    }
}

static void model_run(uint64_t seed)
{
    struct model *m = &model;
    memset(m, 0, sizeof(*m));
    m->seed = seed;
    m->rng.state = seed;
    m->now = model_start(m);
    timer_wheel_init(&m->wheel, m->now);
    for (unsigned i = 0; i < MODEL_TIMERS; i++)
        m->probes[i].timer.fire = on_model_fire;
    for (unsigned step = 0; step < 400 && m->now < UINT64_MAX; step++) {
        for (unsigned n = rng_below(&m->rng, 6); n > 0; n--)
            model_change(m);
        model_check_next(m);
        unsigned max = rng_chance(&m->rng, 300000) ? 1 + rng_below(&m->rng, 8) : MODEL_ROOM;
        model_advance(m, model_jump(m), max);
    }
    for (unsigned i = 0; i < MODEL_TIMERS; i++) {
        m->armed[i] = false;
        timer_cancel(&m->wheel, &m->probes[i].timer);
    }
    model_check(m, timer_wheel_count(&m->wheel) == 0);
    model_check(m, timer_wheel_next(&m->wheel) == UINT64_MAX);
}

/* One jump, from any time to any later one, over timers that lie anywhere between: those before it
 * fire, each once and no other, in the order of their slots. */
#define JUMP_TIMERS 300

static void jump_run(uint64_t seed)
{
    static struct timer_wheel w;
    static struct probe probes[JUMP_TIMERS];
    static uint64_t at[JUMP_TIMERS];
    struct rng rng = {seed};
    uint64_t start = rng_next(&rng) >> rng_below(&rng, 64);
    uint64_t now = start + ((UINT64_MAX - start) >> rng_below(&rng, 64));
    unsigned due = 0, fired = 0;
    timer_wheel_init(&w, start);
    order_seen = 0;
    for (unsigned i = 0; i < JUMP_TIMERS; i++) {
        probe_init(&probes[i], &w);
        probes[i].timer.fire = on_ordered;
        at[i] = start + ((UINT64_MAX - start) >> rng_below(&rng, 64));
        timer_arm(&w, &probes[i].timer, at[i]);
        if (rng_below(&rng, 2)) { /* again: later lazily, earlier at once */
            at[i] = start + ((UINT64_MAX - start) >> rng_below(&rng, 64));
            timer_arm(&w, &probes[i].timer, at[i]);
        }
        due += at[i] <= now;
    }
    while (timer_wheel_next(&w) <= now && fired < due)
        fired += timer_wheel_advance(&w, now, 1 + rng_below(&rng, 100));
    fired += timer_wheel_advance(&w, now, JUMP_TIMERS);
    bool is_good = fired == due && timer_wheel_count(&w) == JUMP_TIMERS - due;
    for (unsigned i = 0; i < JUMP_TIMERS; i++)
        is_good &= timer_is_armed(&probes[i].timer) == (at[i] > now);
    if (!is_good)
        fail_msg("seed %lu: from %lu to %lu fired %u of %u", seed, start, now, fired, due);
}

static void one_jump_fires_what_lies_before_it(void **state)
{
    (void)state;
    for (uint64_t seed = 1; seed <= 3000; seed++)
        jump_run(seed);
}

static void agrees_with_a_searched_list(void **state)
{
    (void)state;
    for (uint64_t seed = 1; seed <= 1200; seed++)
        model_run(seed);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(fires_at_its_ns_and_not_before),
        cmocka_unit_test(past_deadline_fires_in_the_next_advance),
        cmocka_unit_test(callback_cannot_loop_within_one_advance),
        cmocka_unit_test(rearm_ahead_in_the_callback_fires_later),
        cmocka_unit_test(moving_later_is_lazy_and_exact),
        cmocka_unit_test(moving_earlier_takes_effect_at_once),
        cmocka_unit_test(cancel_is_idempotent_and_empties_the_wheel),
        cmocka_unit_test(callback_may_cancel_one_due_in_the_same_slot),
        cmocka_unit_test(one_advance_is_bounded_and_the_rest_follows),
        cmocka_unit_test(big_jump_fires_in_order_of_time),
        cmocka_unit_test(one_jump_fires_what_lies_before_it),
        cmocka_unit_test(agrees_with_a_searched_list),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
