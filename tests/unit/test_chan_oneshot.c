#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <errno.h>

#include <cmocka.h>

#include "runtime/chan_oneshot.h"
#include "runtime/sched.h"
#include "tests/kit/future_task.h"

#define START 77777ull

static struct sched sched;
static int answer = 42;

static void run(void)
{
    while (sched_step(&sched, START))
        ;
}

struct receiver {
    struct future_task task;
    struct oneshot_rx rx;
};

/* A receiver that already waits. */
static void start(struct oneshot_tx *tx, struct receiver *r)
{
    sched_init(&sched, &(struct sched_opts){.now = START});
    oneshot_init(tx, &r->rx);
    future_task_spawn(&sched, &r->task, &r->rx.future);
    run();
    assert_false(r->task.ready);
}

static void value_reaches_a_receiver_that_waits(void **state)
{
    (void)state;
    struct oneshot_tx tx;
    struct receiver r;
    start(&tx, &r);
    assert_false(oneshot_is_closed(&tx));
    assert_int_equal(oneshot_send(&tx, &answer), 0);
    assert_true(oneshot_is_closed(&tx));
    run();
    assert_int_equal(r.task.polls, 2);
    assert_int_equal(r.rx.future.status, 0);
    assert_ptr_equal(r.rx.value, &answer);
    assert_int_equal(oneshot_send(&tx, &answer), -EPIPE); /* once only */
    oneshot_tx_drop(&tx);
    sched_fini(&sched);
}

static void value_waits_for_a_receiver_that_comes_later(void **state)
{
    (void)state;
    struct oneshot_tx tx;
    struct oneshot_rx rx;
    void *value = NULL;
    oneshot_init(&tx, &rx);
    assert_int_equal(oneshot_try_recv(&rx, &value), -EAGAIN);
    assert_int_equal(oneshot_send(&tx, NULL), 0); /* a value like any other */
    value = &answer;
    assert_int_equal(oneshot_try_recv(&rx, &value), 0);
    assert_null(value);
    assert_int_equal(oneshot_try_recv(&rx, &value), -EPIPE); /* taken */
}

static void receiver_is_told_that_the_sender_was_dropped(void **state)
{
    (void)state;
    struct oneshot_tx tx;
    struct receiver r;
    start(&tx, &r);
    oneshot_tx_drop(&tx);
    oneshot_tx_drop(&tx);
    run();
    assert_int_equal(r.rx.future.status, -EPIPE);
    sched_fini(&sched);
}

static void sender_is_told_that_the_receiver_has_gone(void **state)
{
    (void)state;
    struct oneshot_tx tx;
    struct receiver r;
    start(&tx, &r);
    task_abort(&r.task.task);
    assert_true(oneshot_is_closed(&tx));
    assert_int_equal(oneshot_send(&tx, &answer), -EPIPE);
    oneshot_tx_drop(&tx);
    sched_fini(&sched);
}

static void sender_may_wait_for_the_receiver_to_go(void **state)
{
    (void)state;
    struct oneshot_tx tx;
    struct receiver r;
    struct oneshot_closed closed;
    struct future_task task;
    start(&tx, &r);
    oneshot_closed_init(&closed, &tx);
    future_task_spawn(&sched, &task, &closed.future);
    run();
    assert_false(task.ready);
    task_abort(&r.task.task);
    run();
    assert_true(task.ready);
    assert_int_equal(closed.future.status, 0);
    assert_int_equal(task.polls, 2);

    /* Dropped while it waits, it is not woken. */
    start(&tx, &r);
    oneshot_closed_init(&closed, &tx);
    future_task_spawn(&sched, &task, &closed.future);
    run();
    task_abort(&task.task);
    task_abort(&r.task.task);
    run();
    assert_int_equal(task.polls, 1);
    sched_fini(&sched);
}

static void unread_value_is_still_there_after_the_drop(void **state)
{
    (void)state;
    struct oneshot_tx tx;
    struct receiver r;
    void *value = NULL;
    start(&tx, &r);
    oneshot_send(&tx, &answer);
    task_abort(&r.task.task);
    assert_int_equal(oneshot_try_recv(&r.rx, &value), 0);
    assert_ptr_equal(value, &answer);
    sched_fini(&sched);
}

static void senders_end_moves_with_its_owner(void **state)
{
    (void)state;
    struct oneshot_tx first, second;
    struct receiver r;
    start(&first, &r);
    oneshot_tx_move(&second, &first);
    assert_true(oneshot_is_closed(&first));
    oneshot_tx_drop(&first);
    assert_int_equal(oneshot_send(&second, &answer), 0);
    run();
    assert_ptr_equal(r.rx.value, &answer);

    start(&first, &r);
    oneshot_tx_move(&second, &first);
    task_abort(&r.task.task);
    assert_true(oneshot_is_closed(&second));
    oneshot_tx_move(&first, &second); /* one that is used up moves too */
    assert_int_equal(oneshot_send(&first, &answer), -EPIPE);
    sched_fini(&sched);
}

static void zeroed_ends_are_used_up(void **state)
{
    (void)state;
    struct oneshot_tx tx = {0};
    struct oneshot_rx rx = {0};
    void *value = NULL;
    assert_true(oneshot_is_closed(&tx));
    assert_int_equal(oneshot_send(&tx, &answer), -EPIPE);
    oneshot_tx_drop(&tx);
    oneshot_rx_drop(&rx);
    assert_int_equal(oneshot_try_recv(&rx, &value), -EPIPE);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(value_reaches_a_receiver_that_waits),
        cmocka_unit_test(value_waits_for_a_receiver_that_comes_later),
        cmocka_unit_test(receiver_is_told_that_the_sender_was_dropped),
        cmocka_unit_test(sender_is_told_that_the_receiver_has_gone),
        cmocka_unit_test(sender_may_wait_for_the_receiver_to_go),
        cmocka_unit_test(unread_value_is_still_there_after_the_drop),
        cmocka_unit_test(senders_end_moves_with_its_owner),
        cmocka_unit_test(zeroed_ends_are_used_up),
    };
    return cmocka_run_group_tests_name("chan_oneshot", tests, NULL, NULL);
}
