#include <stdio.h>

#include "runtime/interval.h"
#include "runtime/rng.h"
#include "tests/kit/puppet.h"

#define START 1000ull

static struct sched sched;

static int set_up(void **state)
{
    (void)state;
    sched_init(&sched, &(struct sched_opts){.now = START});
    return 0;
}

/* A task that takes ticks, but not before `busy_until`, and keeps when it took them. */
struct taker {
    struct task task;
    struct interval every;
    uint64_t busy_until;
    unsigned n;
    uint64_t taken_at[64], tick[64];
};

static enum poll taker_poll(struct task *t)
{
    struct taker *k = (struct taker *)t;
    if (task_now(t) < k->busy_until)
        return POLL_PENDING;
    while (future_poll(&k->every.f, t) == POLL_READY) {
        assert_true(k->n < 64);
        k->taken_at[k->n] = task_now(t) - START;
        k->tick[k->n++] = k->every.tick - START;
        interval_next(&k->every);
    }
    return POLL_PENDING;
}

static void taker_drop(struct task *t)
{
    future_drop(&((struct taker *)t)->every.f);
}

static const struct task_kind taker_kind = {"taker", taker_poll, taker_drop};

static void start(struct taker *k, uint64_t first, uint64_t period, enum interval_missed m)
{
    *k = (struct taker){0};
    interval_init(&k->every, first, period, m);
    task_spawn(&sched, &k->task, &taker_kind);
}

static void assert_times(const uint64_t *times, unsigned n, const char *want)
{
    char text[256] = "";
    for (unsigned i = 0, at = 0; i < n; i++)
        at += (unsigned)snprintf(text + at, sizeof(text) - at, i ? " %lu" : "%lu", times[i]);
    assert_string_equal(text, want);
}

static void ticks_come_at_the_period(void **state)
{
    (void)state;
    for (enum interval_missed m = INTERVAL_BURST; m <= INTERVAL_SKIP; m++) {
        struct taker k;
        set_up(NULL);
        start(&k, START, 10, m);
        run_until(&sched, START + 45);
        assert_times(k.taken_at, k.n, "0 10 20 30 40");
        assert_times(k.tick, k.n, "0 10 20 30 40");
        assert_int_equal(k.every.skipped, 0);
        sched_fini(&sched);
    }
}

/* The example of the header: busy from 10 to 35. */
static void missed_ticks_go_by_the_policy(void **state)
{
    (void)state;
    static const struct {
        enum interval_missed policy;
        const char *taken_at, *tick;
        uint64_t skipped;
    } table[] = {
        {INTERVAL_BURST, "0 35 35 35 40 50 60", "0 10 20 30 40 50 60", 0},
        {INTERVAL_DELAY, "0 35 45 55 65", "0 10 45 55 65", 2},
        {INTERVAL_SKIP, "0 35 40 50 60", "0 10 40 50 60", 2},
    };
    for (unsigned i = 0; i < 3; i++) {
        struct taker k;
        set_up(NULL);
        start(&k, START, 10, table[i].policy);
        run_until(&sched, START + 5);
        k.busy_until = START + 35;
        run_until(&sched, START + 34);
        task_wake(&k.task);
        sched_step(&sched, START + 35);
        run_until(&sched, START + 69);
        assert_times(k.taken_at, k.n, table[i].taken_at);
        assert_times(k.tick, k.n, table[i].tick);
        assert_int_equal(k.every.skipped, table[i].skipped);
        sched_fini(&sched);
    }
}

static void a_little_late_shifts_only_the_delaying_one(void **state)
{
    (void)state;
    static const char *const want[] = {"0 13 20 30 40", "0 13 23 33 43", "0 13 20 30 40"};
    for (enum interval_missed m = INTERVAL_BURST; m <= INTERVAL_SKIP; m++) {
        struct taker k;
        set_up(NULL);
        start(&k, START, 10, m);
        run_until(&sched, START + 5);
        k.busy_until = START + 13;
        run_until(&sched, START + 12);
        task_wake(&k.task);
        sched_step(&sched, START + 13);
        run_until(&sched, START + 44);
        assert_times(k.taken_at, k.n, want[m]);
        assert_int_equal(k.every.skipped, 0);
        sched_fini(&sched);
    }
}

static void the_first_may_come_later_and_the_period_change(void **state)
{
    (void)state;
    struct taker k;
    start(&k, START + 7, 10, INTERVAL_SKIP);
    run_until(&sched, START + 20);
    interval_reset(&k.every, sched_now(&sched), 3);
    run_until(&sched, START + 30);
    interval_reset(&k.every, sched_now(&sched), 100);
    run_until(&sched, START + 130);
    assert_times(k.taken_at, k.n, "7 17 23 26 29 130");
    sched_fini(&sched);
}

static void beyond_the_clock_there_is_no_tick(void **state)
{
    (void)state;
    for (enum interval_missed m = INTERVAL_BURST; m <= INTERVAL_SKIP; m++) {
        struct taker k;
        set_up(NULL);
        start(&k, START, UINT64_MAX / 2, m);
        run_until(&sched, UINT64_MAX - START);
        assert_int_equal(k.n, 2); /* a third would lie past the end */
        assert_int_equal(timer_wheel_count(&sched.wheel), 0);
        sched_fini(&sched);
    }
}

static void a_drop_between_ticks_loses_none(void **state)
{
    (void)state;
    struct interval every;
    struct driver d;
    interval_init(&every, START + 10, 10, INTERVAL_BURST);
    drive(&d, &sched, &every.f);
    run_until(&sched, START + 9);
    task_abort(&d.task);
    assert_int_equal(timer_wheel_count(&sched.wheel), 0);
    interval_next(&every);
    drive(&d, &sched, &every.f);
    run_until(&sched, START + 10);
    assert_true(d.is_ready);
    assert_int_equal(timer_wheel_count(&sched.wheel), 0);
    sched_fini(&sched);
}

static void a_tick_taken_before_its_timer_fired_leaves_none(void **state)
{
    (void)state;
    static struct timer crowd[CROWD_TIMERS];
    struct interval every;
    struct driver d;
    crowd_arm(&sched, crowd, START + 10);
    interval_init(&every, START + 10, 10, INTERVAL_BURST);
    drive(&d, &sched, &every.f);
    settle(&sched);
    task_wake(&d.task);
    sched_step(&sched, START + 10);
    assert_true(d.is_ready);
    assert_int_equal(timer_wheel_count(&sched.wheel), CROWD_TIMERS - SCHED_TIMERS_STEP);
    run_until(&sched, START + 10);
    sched_fini(&sched);
}

/* Whatever the delays: never early, never more than one tick a period on average, and each policy
 * keeps its promise. */
static void random_run(uint64_t seed, enum interval_missed m)
{
    struct rng rng = {seed};
    struct taker k;
    uint64_t period = 1 + rng_below(&rng, 1000), first = START + rng_below(&rng, 1000);
    set_up(NULL);
    start(&k, first, period, m);
    for (unsigned i = 0; i < 12 && k.n < 32; i++) {
        uint64_t now = sched_now(&sched);
        k.busy_until = now + rng_below(&rng, (uint32_t)(4 * period));
        run_until(&sched, k.busy_until);
        task_wake(&k.task);
        run_until(&sched, k.busy_until + rng_below(&rng, (uint32_t)(2 * period)));
    }
    for (unsigned i = 0; i < k.n; i++) {
        uint64_t tick = k.tick[i] + START, at = k.taken_at[i] + START;
        bool good = at >= tick;
        if (m != INTERVAL_DELAY)
            good &= (tick - first) % period == 0;
        if (i > 0 && m == INTERVAL_BURST)
            good &= tick == k.tick[i - 1] + START + period;
        if (i > 0 && m == INTERVAL_DELAY)
            good &= tick == k.taken_at[i - 1] + START + period;
        if (i > 0 && m == INTERVAL_SKIP)
            good &= tick > k.taken_at[i - 1] + START && tick <= k.taken_at[i - 1] + START + period;
        if (!good)
            fail_msg("seed %lu policy %d: tick %u", seed, (int)m, i);
    }
    if (m == INTERVAL_SKIP && k.n > 0)
        assert_int_equal(k.every.skipped + k.n, (k.every.next_ - first) / period);
    sched_fini(&sched);
}

static void every_policy_keeps_its_promise(void **state)
{
    (void)state;
    for (uint64_t seed = 1; seed <= 1000; seed++)
        for (enum interval_missed m = INTERVAL_BURST; m <= INTERVAL_SKIP; m++)
            random_run(seed, m);
}

#define story(f) cmocka_unit_test_setup(f, set_up)

int main(void)
{
    const struct CMUnitTest tests[] = {
        story(ticks_come_at_the_period),
        story(missed_ticks_go_by_the_policy),
        story(a_little_late_shifts_only_the_delaying_one),
        story(the_first_may_come_later_and_the_period_change),
        story(beyond_the_clock_there_is_no_tick),
        story(a_drop_between_ticks_loses_none),
        story(a_tick_taken_before_its_timer_fired_leaves_none),
        story(every_policy_keeps_its_promise),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
