/* Deadlines, and the future that waits for one. */
#include "runtime/delay.h"
#include "tests/kit/puppet.h"

#define START 314159265ull
#define MS    1000000ull

static struct sched sched;

static int set_up(void **state)
{
    (void)state;
    sched_init(&sched, &(struct sched_opts){.now = START});
    return 0;
}

static void deadlines_add_up_to_never_and_the_nearest_counts(void **state)
{
    (void)state;
    assert_int_equal(deadline_after(START, 5), START + 5);
    assert_int_equal(deadline_after(START, 0), START);
    assert_int_equal(deadline_after(START, DEADLINE_NONE), DEADLINE_NONE);
    assert_int_equal(deadline_after(UINT64_MAX - 5, 5), DEADLINE_NONE);
    assert_int_equal(deadline_after(UINT64_MAX - 5, 6), DEADLINE_NONE);
    assert_int_equal(deadline_after(UINT64_MAX - 5, 4), UINT64_MAX - 1);
    assert_int_equal(deadline_min(DEADLINE_NONE, START), START);
    assert_int_equal(deadline_min(3, 4), 3);
    assert_false(deadline_is_past(START, START - 1));
    assert_true(deadline_is_past(START, START));
    assert_true(deadline_is_past(0, START));
    assert_false(deadline_is_past(DEADLINE_NONE, UINT64_MAX));
    assert_int_equal(deadline_left(START + 7, START), 7);
    assert_int_equal(deadline_left(START, START + 7), 0);
    assert_int_equal(deadline_left(DEADLINE_NONE, START), DEADLINE_NONE);
}

static void is_ready_at_its_ns(void **state)
{
    (void)state;
    static const uint64_t after[] = {1, 65536, 200 * MS, 1ull << 62, UINT64_MAX - 1 - START};
    for (unsigned i = 0; i < sizeof(after) / sizeof(after[0]); i++) {
        struct delay d;
        struct driver who;
        sched_fini(&sched);
        sched_init(&sched, &(struct sched_opts){.now = START});
        delay_init(&d, START + after[i]);
        drive(&who, &sched, &d.f);
        settle(&sched);
        assert_int_equal(sched_next_timeout(&sched), START + after[i]);
        sched_step(&sched, START + after[i] - 1);
        assert_false(who.is_ready);
        sched_step(&sched, START + after[i]);
        assert_true(who.is_ready);
        assert_int_equal(who.polls, 2);
        assert_int_equal(timer_wheel_count(&sched.wheel), 0);
    }
    sched_fini(&sched);
}

static void one_that_is_past_is_ready_in_its_first_poll(void **state)
{
    (void)state;
    static const uint64_t at[] = {0, START - 1, START};
    for (unsigned i = 0; i < 3; i++) {
        struct delay d;
        struct driver who;
        delay_init(&d, at[i]);
        drive(&who, &sched, &d.f);
        settle(&sched);
        assert_true(who.is_ready);
        assert_int_equal(who.polls, 1);
    }
    sched_fini(&sched);
}

static void without_a_time_it_never_is_and_has_no_timer(void **state)
{
    (void)state;
    struct delay d;
    struct driver who;
    delay_init(&d, DEADLINE_NONE);
    drive(&who, &sched, &d.f);
    settle(&sched);
    assert_int_equal(timer_wheel_count(&sched.wheel), 0);
    assert_int_equal(sched_next_timeout(&sched), UINT64_MAX);
    sched_step(&sched, UINT64_MAX);
    assert_false(who.is_ready);
    sched_fini(&sched);
}

static void moving_later_touches_no_slot(void **state)
{
    (void)state;
    struct delay d;
    struct driver who;
    delay_init(&d, START + 10 * MS);
    drive(&who, &sched, &d.f);
    settle(&sched);
    uint64_t slot = d.sleep_.timer.slot_at_;
    for (unsigned i = 11; i < 500; i++)
        delay_reset(&d, START + i * MS);
    assert_int_equal(d.sleep_.timer.slot_at_, slot);
    run_until(&sched, START + 499 * MS - 1);
    assert_false(who.is_ready);
    assert_int_equal(who.polls, 1); /* not even woken at the old time */
    run_until(&sched, START + 499 * MS);
    assert_true(who.is_ready);
    sched_fini(&sched);
}

static void moving_earlier_takes_effect_at_once(void **state)
{
    (void)state;
    struct delay d;
    struct driver who;
    delay_init(&d, START + 500 * MS);
    drive(&who, &sched, &d.f);
    settle(&sched);
    delay_reset(&d, START + 3);
    run_until(&sched, START + 3);
    assert_true(who.is_ready);
    assert_int_equal(who.ready_at, START + 3);
    sched_fini(&sched);
}

static void moved_to_never_it_gives_its_timer_up(void **state)
{
    (void)state;
    struct delay d;
    struct driver who;
    delay_init(&d, START + 5);
    drive(&who, &sched, &d.f);
    settle(&sched);
    delay_reset(&d, DEADLINE_NONE);
    assert_int_equal(timer_wheel_count(&sched.wheel), 0);
    run_until(&sched, START + 500 * MS);
    assert_false(who.is_ready);
    delay_reset(&d, START + 600 * MS);
    task_wake(&who.task);
    run_until(&sched, START + 600 * MS);
    assert_true(who.is_ready);
    sched_fini(&sched);
}

static void it_can_be_used_again(void **state)
{
    (void)state;
    struct delay d;
    delay_init(&d, START);
    for (unsigned i = 1; i <= 5; i++) {
        struct driver who;
        delay_reset(&d, START + i * MS);
        drive(&who, &sched, &d.f);
        run_until(&sched, START + i * MS - 1);
        assert_false(who.is_ready);
        run_until(&sched, START + i * MS);
        assert_true(who.is_ready);
    }
    sched_fini(&sched);
}

static void dropped_it_leaves_no_timer(void **state)
{
    (void)state;
    struct delay d;
    struct driver who;
    delay_init(&d, START + 5);
    future_drop(&d.f);
    delay_init(&d, START + 5);
    drive(&who, &sched, &d.f);
    settle(&sched);
    task_abort(&who.task);
    assert_int_equal(timer_wheel_count(&sched.wheel), 0);
    future_drop(&d.f);
    sched_fini(&sched);
}

static void ready_before_its_timer_fired_it_leaves_none(void **state)
{
    (void)state;
    static struct timer crowd[CROWD_TIMERS];
    struct delay d;
    struct driver who;
    crowd_arm(&sched, crowd, START + 10);
    delay_init(&d, START + 10);
    drive(&who, &sched, &d.f);
    settle(&sched);
    task_wake(&who.task);
    sched_step(&sched, START + 10);
    assert_true(who.is_ready);
    assert_int_equal(timer_wheel_count(&sched.wheel), CROWD_TIMERS - SCHED_TIMERS_STEP);
    run_until(&sched, START + 10);
    sched_fini(&sched);
}

#define story(f) cmocka_unit_test_setup(f, set_up)

int main(void)
{
    const struct CMUnitTest tests[] = {
        story(deadlines_add_up_to_never_and_the_nearest_counts),
        story(is_ready_at_its_ns),
        story(one_that_is_past_is_ready_in_its_first_poll),
        story(without_a_time_it_never_is_and_has_no_timer),
        story(moving_later_touches_no_slot),
        story(moving_earlier_takes_effect_at_once),
        story(moved_to_never_it_gives_its_timer_up),
        story(it_can_be_used_again),
        story(dropped_it_leaves_no_timer),
        story(ready_before_its_timer_fired_it_leaves_none),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
