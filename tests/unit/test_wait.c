#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "runtime/sched.h"
#include "runtime/wait.h"

#define START 55555ull

/* A task that waits for `tokens` and takes one a wake-up. */
struct waiter {
    struct task task;
    struct wait_node node;
    unsigned polls, got, drops;
};

static struct sched sched;
static struct wait_list list;
static unsigned tokens;

static enum poll waiter_poll(struct task *t)
{
    struct waiter *w = container_of(t, struct waiter, task);
    w->polls++;
    if (tokens == 0) {
        wait_park(&list, &w->node, t);
        return POLL_PENDING;
    }
    tokens--;
    w->got++;
    return POLL_READY;
}

static void waiter_drop(struct task *t)
{
    struct waiter *w = container_of(t, struct waiter, task);
    wait_cancel(&w->node);
    w->drops++;
}

static const struct task_kind waiter_kind = {"waiter", waiter_poll, waiter_drop};

static int set_up(void **state)
{
    (void)state;
    sched_init(&sched, &(struct sched_opts){.now = START});
    wait_list_init(&list);
    tokens = 0;
    return 0;
}

static void spawn_all(struct waiter *w, unsigned n)
{
    for (unsigned i = 0; i < n; i++) {
        w[i] = (struct waiter){0};
        task_spawn(&sched, &w[i].task, &waiter_kind);
    }
    sched_step(&sched, START);
}

static void longest_waiting_is_served_first(void **state)
{
    (void)state;
    struct waiter w[3];
    spawn_all(w, 3);
    for (unsigned i = 0; i < 3; i++) {
        assert_true(wait_is_parked(&w[i].node));
        tokens = 1;
        assert_true(wait_wake_one(&list));
        sched_step(&sched, START);
        assert_int_equal(w[i].got, 1);
    }
    assert_true(wait_list_is_empty(&list));
    assert_false(wait_wake_one(&list));
    sched_fini(&sched);
}

static void spurious_wake_keeps_the_place_in_line(void **state)
{
    (void)state;
    struct waiter w[2];
    spawn_all(w, 2);
    task_wake(&w[0].task);
    sched_step(&sched, START);
    assert_int_equal(w[0].polls, 2);
    tokens = 1;
    wait_wake_one(&list);
    sched_step(&sched, START);
    assert_int_equal(w[0].got, 1);
    assert_int_equal(w[1].got, 0);
    sched_fini(&sched);
    assert_int_equal(w[1].drops, 1);
}

static void wake_all_reaches_each_once(void **state)
{
    (void)state;
    struct waiter w[4];
    spawn_all(w, 4);
    tokens = 3;
    wait_wake_all(&list);
    assert_true(wait_list_is_empty(&list));
    sched_step(&sched, START);
    assert_int_equal(w[0].got + w[1].got + w[2].got + w[3].got, 3);
    assert_true(wait_is_parked(&w[3].node)); /* came too late and waits anew */
    sched_fini(&sched);
}

static void dropped_waiter_leaves_the_line(void **state)
{
    (void)state;
    struct waiter w[3];
    spawn_all(w, 3);
    task_abort(&w[0].task);
    tokens = 1;
    wait_wake_one(&list);
    sched_step(&sched, START);
    assert_int_equal(w[1].got, 1);
    sched_fini(&sched);
    assert_true(wait_list_is_empty(&list));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(longest_waiting_is_served_first, set_up),
        cmocka_unit_test_setup(spurious_wake_keeps_the_place_in_line, set_up),
        cmocka_unit_test_setup(wake_all_reaches_each_once, set_up),
        cmocka_unit_test_setup(dropped_waiter_leaves_the_line, set_up),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
