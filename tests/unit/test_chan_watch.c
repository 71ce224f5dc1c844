#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <errno.h>

#include <cmocka.h>

#include "runtime/chan_watch.h"
#include "runtime/sched.h"
#include "tests/kit/future_task.h"

#define START 77777ull

static struct sched sched;
static struct watch w;
static int one = 1, two = 2, three = 3;

static void run(void)
{
    while (sched_step(&sched, START))
        ;
}

static int set_up(void **state)
{
    (void)state;
    sched_init(&sched, &(struct sched_opts){.now = START});
    watch_init(&w, &one);
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    sched_fini(&sched);
    assert_non_null(watch_fini(&w));
    return 0;
}

struct reader {
    struct future_task task;
    struct watch_changed changed;
};

static void start(struct reader *r)
{
    watch_changed_init(&r->changed, &w);
    future_task_spawn(&sched, &r->task, &r->changed.future);
}

static void readers_see_the_newest_and_the_writer_gets_the_old_back(void **state)
{
    (void)state;
    assert_ptr_equal(watch_get(&w), &one);
    assert_int_equal(watch_version(&w), 1);
    assert_ptr_equal(watch_send(&w, &two), &one);
    assert_ptr_equal(watch_get(&w), &two);
    assert_ptr_equal(watch_send(&w, &two), &two); /* changed in place */
    assert_int_equal(watch_version(&w), 3);
}

static void change_wakes_all_who_wait(void **state)
{
    (void)state;
    struct reader r[3];
    for (unsigned i = 0; i < 3; i++)
        start(&r[i]);
    run();
    task_abort(&r[1].task.task);
    watch_send(&w, &two);
    run();
    for (unsigned i = 0; i < 3; i++) {
        assert_int_equal(r[i].task.ready, i != 1);
        assert_int_equal(r[i].task.polls, i != 1 ? 2 : 1);
    }
    assert_int_equal(r[0].changed.future.status, 0);
    assert_int_equal(r[0].changed.seen, 2);
}

static void many_changes_are_told_once(void **state)
{
    (void)state;
    struct reader r;
    start(&r);
    run();
    watch_send(&w, &two);
    watch_send(&w, &three);
    run();
    assert_true(r.task.ready);
    assert_int_equal(r.changed.seen, 3);
    assert_ptr_equal(watch_get(&w), &three);
    assert_false(watch_has_changed(&r.changed));
}

static void change_between_two_polls_is_not_missed(void **state)
{
    (void)state;
    struct reader r;
    watch_changed_init(&r.changed, &w);
    watch_send(&w, &two);
    future_task_spawn(&sched, &r.task, &r.changed.future);
    run();
    assert_true(r.task.ready);
    assert_int_equal(r.task.polls, 1);
}

static void reader_may_ask_for_the_present_value_first(void **state)
{
    (void)state;
    struct reader r;
    start(&r);
    r.changed.seen = 0;
    run();
    assert_true(r.task.ready);
    assert_int_equal(r.changed.seen, 1);
}

static void closed_watch_keeps_its_last_value(void **state)
{
    (void)state;
    struct reader waits, behind;
    start(&waits);
    run();
    watch_changed_init(&behind.changed, &w);
    watch_send(&w, &two);
    watch_close(&w);
    run();
    assert_int_equal(waits.changed.future.status, 0); /* the change comes before the end */
    future_task_spawn(&sched, &behind.task, &behind.changed.future);
    start(&waits);
    run();
    assert_int_equal(behind.changed.future.status, 0);
    assert_int_equal(waits.changed.future.status, -EPIPE);
    assert_ptr_equal(watch_get(&w), &two);
}

static void close_wakes_who_waits(void **state)
{
    (void)state;
    struct reader r;
    start(&r);
    run();
    watch_close(&w);
    run();
    assert_true(r.task.ready);
    assert_int_equal(r.changed.future.status, -EPIPE);
}

#define story(f) cmocka_unit_test_setup_teardown(f, set_up, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        story(readers_see_the_newest_and_the_writer_gets_the_old_back),
        story(change_wakes_all_who_wait),
        story(many_changes_are_told_once),
        story(change_between_two_polls_is_not_missed),
        story(reader_may_ask_for_the_present_value_first),
        story(closed_watch_keeps_its_last_value),
        story(close_wakes_who_waits),
    };
    return cmocka_run_group_tests_name("chan_watch", tests, NULL, NULL);
}
