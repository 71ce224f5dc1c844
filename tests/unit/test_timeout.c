#include <errno.h>

#include "runtime/delay.h"
#include "runtime/join.h"
#include "runtime/rng.h"
#include "runtime/timeout.h"
#include "tests/kit/puppet.h"

#define START 314159265ull
#define MS    1000000ull

static struct sched sched;
static struct transcript said;
static struct puppet puppet;

static int set_up(void **state)
{
    (void)state;
    sched_init(&sched, &(struct sched_opts){.now = START});
    said = (struct transcript){0};
    puppet_init(&puppet, 'a', &said);
    return 0;
}

static void assert_ended(const struct timeout *to, const struct driver *d, int status, bool expired)
{
    assert_true(d->is_ready);
    assert_int_equal(to->f.status, status);
    assert_int_equal(to->is_expired, expired);
    assert_int_equal(timer_wheel_count(&sched.wheel), 0);
}

static void what_is_in_time_counts_with_its_own_status(void **state)
{
    (void)state;
    static const int status[] = {0, -EPIPE, -ETIMEDOUT};
    for (unsigned i = 0; i < 3; i++) {
        struct timeout to;
        struct driver d;
        puppet_init(&puppet, 'a', &said);
        timeout_init(&to, &puppet.f, sched_now(&sched) + 10 * MS);
        drive(&d, &sched, &to.f);
        settle(&sched);
        puppet_finish(&puppet, status[i]);
        settle(&sched);
        assert_ended(&to, &d, status[i], false);
        assert_transcript(&said, "aA");
    }
    sched_fini(&sched);
}

static void what_is_late_is_dropped_at_the_ns(void **state)
{
    (void)state;
    struct timeout to;
    struct driver d;
    unsigned permits = 0;
    puppet.permits = &permits;
    timeout_init(&to, &puppet.f, START + 10 * MS);
    drive(&d, &sched, &to.f);
    run_until(&sched, START + 10 * MS - 1);
    assert_false(d.is_ready);
    assert_int_equal(permits, 1);
    run_until(&sched, START + 10 * MS);
    assert_ended(&to, &d, -ETIMEDOUT, true);
    assert_int_equal(permits, 0);
    assert_transcript(&said, "aa!a");
    future_drop(&to.f);
    sched_fini(&sched);
}

static void at_the_deadline_the_future_has_the_last_word(void **state)
{
    (void)state;
    struct timeout to;
    struct delay inner;
    struct driver d;
    delay_init(&inner, START + 10 * MS);
    timeout_init(&to, &inner.f, START + 10 * MS);
    drive(&d, &sched, &to.f);
    run_until(&sched, START + 10 * MS);
    assert_ended(&to, &d, 0, false);
    sched_fini(&sched);
}

static void past_deadline_still_takes_what_is_there(void **state)
{
    (void)state;
    struct timeout to;
    struct driver d;
    puppet_init_ready(&puppet, 'a', &said, 0);
    timeout_init(&to, &puppet.f, 0);
    drive(&d, &sched, &to.f);
    settle(&sched);
    assert_ended(&to, &d, 0, false);
    puppet_init(&puppet, 'a', &said);
    timeout_init(&to, &puppet.f, START);
    drive(&d, &sched, &to.f);
    settle(&sched);
    assert_ended(&to, &d, -ETIMEDOUT, true);
    assert_int_equal(d.polls, 1);
    assert_transcript(&said, "Aa!a");
    sched_fini(&sched);
}

static void without_a_deadline_there_is_no_timer(void **state)
{
    (void)state;
    struct timeout to;
    struct driver d;
    timeout_init(&to, &puppet.f, DEADLINE_NONE);
    drive(&d, &sched, &to.f);
    settle(&sched);
    assert_int_equal(timer_wheel_count(&sched.wheel), 0);
    puppet_finish(&puppet, 0);
    run_until(&sched, START + 1000000 * MS);
    assert_ended(&to, &d, 0, false);
    sched_fini(&sched);
}

static void moving_later_is_lazy_and_earlier_is_at_once(void **state)
{
    (void)state;
    struct timeout to;
    struct driver d;
    timeout_init(&to, &puppet.f, START + 10 * MS);
    drive(&d, &sched, &to.f);
    settle(&sched);
    uint64_t slot = to.sleep_.timer.slot_at_;
    timeout_move(&to, START + 900 * MS);
    assert_int_equal(to.sleep_.timer.slot_at_, slot);
    run_until(&sched, START + 800 * MS);
    assert_int_equal(d.polls, 1);
    timeout_move(&to, START + 801 * MS);
    run_until(&sched, START + 801 * MS);
    assert_int_equal(d.ready_at, START + 801 * MS);
    assert_ended(&to, &d, -ETIMEDOUT, true);
    sched_fini(&sched);
}

static void dropped_it_takes_the_future_along(void **state)
{
    (void)state;
    struct timeout to;
    struct driver d;
    timeout_init(&to, &puppet.f, START + 10 * MS);
    drive(&d, &sched, &to.f);
    settle(&sched);
    task_abort(&d.task);
    assert_transcript(&said, "a!a");
    assert_int_equal(timer_wheel_count(&sched.wheel), 0);
    sched_fini(&sched);
}

static const struct join_kind child_kind = {.task = {JOIN_TASK("child")}};

static void a_child_task_that_takes_too_long_is_aborted(void **state)
{
    (void)state;
    struct join_task child = {0};
    struct join_handle h;
    struct timeout to;
    struct driver d;
    join_spawn(&sched, &child, &child_kind, &puppet.f, &h);
    timeout_init(&to, &h.f, START + 10 * MS);
    drive(&d, &sched, &to.f);
    run_until(&sched, START + 10 * MS);
    assert_ended(&to, &d, -ETIMEDOUT, true);
    assert_transcript(&said, "a!a");
    assert_false(task_is_live(&child.task));
    sched_fini(&sched);
}

/* A request that passes its deadline down: each layer adds its own limit, the nearest one counts,
 * and the layer that has it is the one that expired. */
#define LAYERS 6

static void random_run(uint64_t seed)
{
    struct rng rng = {seed};
    struct timeout layer[LAYERS];
    struct delay work;
    struct driver d;
    uint64_t deadline = DEADLINE_NONE, limit[LAYERS];
    sched_init(&sched, &(struct sched_opts){.now = START});
    uint64_t done_at = START + rng_below(&rng, 2000);
    delay_init(&work, done_at);
    for (unsigned i = 0; i < LAYERS; i++) {
        uint64_t own = rng_chance(&rng, 300000) ? DEADLINE_NONE : rng_below(&rng, 2000);
        deadline = deadline_min(deadline, deadline_after(START, own));
        limit[i] = deadline;
    }
    for (unsigned i = LAYERS; i-- > 0;)
        timeout_init(&layer[i], i + 1 < LAYERS ? &layer[i + 1].f : &work.f, limit[i]);
    drive(&d, &sched, &layer[0].f);
    run_until(&sched, START + 3000);
    bool in_time = done_at <= deadline;
    bool good = d.is_ready && d.ready_at == deadline_min(done_at, deadline) &&
                layer[0].f.status == (in_time ? 0 : -ETIMEDOUT) &&
                layer[LAYERS - 1].is_expired == !in_time && timer_wheel_count(&sched.wheel) == 0;
    if (!good)
        fail_msg("seed %lu", seed);
    sched_fini(&sched);
}

static void the_nearest_deadline_counts_at_any_depth(void **state)
{
    (void)state;
    sched_fini(&sched);
    for (uint64_t seed = 1; seed <= 3000; seed++)
        random_run(seed);
}

#define story(f) cmocka_unit_test_setup(f, set_up)

int main(void)
{
    const struct CMUnitTest tests[] = {
        story(what_is_in_time_counts_with_its_own_status),
        story(what_is_late_is_dropped_at_the_ns),
        story(at_the_deadline_the_future_has_the_last_word),
        story(past_deadline_still_takes_what_is_there),
        story(without_a_deadline_there_is_no_timer),
        story(moving_later_is_lazy_and_earlier_is_at_once),
        story(dropped_it_takes_the_future_along),
        story(a_child_task_that_takes_too_long_is_aborted),
        story(the_nearest_deadline_counts_at_any_depth),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
