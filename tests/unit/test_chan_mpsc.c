#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <errno.h>
#include <string.h>

#include <cmocka.h>

#include "runtime/chan_mpsc.h"
#include "runtime/sched.h"
#include "tests/kit/future_task.h"

#define START 77777ull

static struct sched sched;
static struct mpsc ch;
static void *slots[8];

static void *item_of(uintptr_t n)
{
    return (void *)n; // NOLINT(performance-no-int-to-ptr)
}

static void run(void)
{
    while (sched_step(&sched, START))
        ;
}

static void open_channel(uint32_t capacity)
{
    sched_init(&sched, &(struct sched_opts){.now = START});
    mpsc_init(&ch, slots, capacity);
}

static void close_world(void)
{
    sched_fini(&sched);
    mpsc_fini(&ch);
}

static void fill(uintptr_t from, unsigned n)
{
    for (unsigned i = 0; i < n; i++)
        assert_int_equal(mpsc_try_send(&ch, item_of(from + i)), 0);
}

static void expect_items(uintptr_t from, unsigned n)
{
    void *item = NULL;
    for (unsigned i = 0; i < n; i++) {
        assert_int_equal(mpsc_try_recv(&ch, &item), 0);
        assert_int_equal((uintptr_t)item, from + i);
    }
}

struct sender {
    struct future_task task;
    struct mpsc_send send;
};

static void start_send(struct sender *s, uintptr_t n)
{
    mpsc_send_init(&s->send, &ch, item_of(n));
    future_task_spawn(&sched, &s->task, &s->send.future);
    run();
}

struct reserver {
    struct future_task task;
    struct mpsc_reserve reserve;
};

static void start_reserve(struct reserver *r)
{
    mpsc_reserve_init(&r->reserve, &ch);
    future_task_spawn(&sched, &r->task, &r->reserve.future);
    run();
}

static void items_come_in_order_through_a_ring_that_wraps(void **state)
{
    (void)state;
    void *item = NULL;
    open_channel(3);
    assert_int_equal(mpsc_capacity(&ch), 3);
    for (unsigned round = 0; round < 5; round++) {
        fill(10 * round, 2);
        assert_int_equal(mpsc_len(&ch), 2);
        assert_int_equal(mpsc_free(&ch), 1);
        expect_items(10 * round, 2);
        assert_int_equal(mpsc_try_recv(&ch, &item), -EAGAIN);
    }
    close_world();
}

static void full_channel_refuses_and_keeps_its_bound(void **state)
{
    (void)state;
    open_channel(2);
    fill(1, 2);
    assert_int_equal(mpsc_try_send(&ch, item_of(3)), -EAGAIN);
    assert_int_equal(mpsc_free(&ch), 0);
    expect_items(1, 1);
    fill(3, 1);
    expect_items(2, 2);
    close_world();
}

static void senders_wait_their_turn_and_nobody_overtakes(void **state)
{
    (void)state;
    struct sender s[3];
    open_channel(1);
    fill(1, 1);
    for (unsigned i = 0; i < 3; i++)
        start_send(&s[i], 2 + i);
    expect_items(1, 1);
    /* The slot is the first sender's, although it has not run yet. */
    assert_int_equal(mpsc_try_send(&ch, item_of(99)), -EAGAIN);
    for (unsigned i = 0; i < 3; i++) {
        run();
        assert_true(s[i].task.ready);
        assert_int_equal(s[i].send.future.status, 0);
        assert_int_equal(s[i].task.polls, 2);
        assert_int_equal(mpsc_len(&ch), 1);
        expect_items(2 + i, 1);
    }
    close_world();
}

static void spurious_wake_keeps_the_place_in_line(void **state)
{
    (void)state;
    struct sender s[2];
    open_channel(1);
    fill(1, 1);
    start_send(&s[0], 2);
    start_send(&s[1], 3);
    task_wake(&s[0].task.task);
    run();
    expect_items(1, 1);
    run();
    assert_true(s[0].task.ready);
    assert_false(s[1].task.ready);
    expect_items(2, 1);
    run();
    expect_items(3, 1);
    close_world();
}

static void dropped_send_has_sent_nothing(void **state)
{
    (void)state;
    struct sender s[3];
    open_channel(1);
    fill(1, 1);
    for (unsigned i = 0; i < 3; i++)
        start_send(&s[i], 2 + i);
    task_abort(&s[0].task.task); /* while it waits */
    expect_items(1, 1);
    task_abort(&s[1].task.task); /* with a slot granted, which goes on to the third */
    run();
    assert_true(s[2].task.ready);
    expect_items(4, 1);
    assert_int_equal(mpsc_free(&ch), 1);
    close_world();
}

static void permit_is_a_send_that_cannot_fail(void **state)
{
    (void)state;
    struct mpsc_permit a, b, c = {0};
    open_channel(2);
    assert_int_equal(mpsc_try_reserve(&ch, &a), 0);
    assert_int_equal(mpsc_try_reserve(&ch, &b), 0);
    assert_int_equal(mpsc_reserved(&ch), 2);
    assert_int_equal(mpsc_try_reserve(&ch, &c), -EAGAIN);
    assert_int_equal(mpsc_try_send(&ch, item_of(9)), -EAGAIN);
    mpsc_permit_send(&b, item_of(1));
    mpsc_permit_put(&b); /* used up: nothing to give back */
    mpsc_permit_put(&c);
    mpsc_permit_put(&a);
    assert_int_equal(mpsc_free(&ch), 1);
    expect_items(1, 1);
    close_world();
}

static void dropped_reservation_goes_to_who_waits(void **state)
{
    (void)state;
    struct mpsc_permit held;
    struct reserver r[2];
    struct sender s;
    open_channel(1);
    assert_int_equal(mpsc_try_reserve(&ch, &held), 0);
    start_reserve(&r[0]);
    start_reserve(&r[1]);
    start_send(&s, 5);
    mpsc_permit_put(&held);
    run();
    /* Ready, but nobody took the permit out: it went with the task. So did the second one's. */
    assert_true(r[0].task.ready && r[0].task.dropped);
    assert_true(r[1].task.ready && r[1].task.dropped);
    assert_true(s.task.ready);
    expect_items(5, 1);
    close_world();
}

struct keeper {
    struct task task;
    struct mpsc_reserve reserve;
    struct mpsc_permit permit;
};

static enum poll keeper_poll(struct task *t)
{
    struct keeper *k = container_of(t, struct keeper, task);
    if (mpsc_reserve_poll(&k->reserve, t) == POLL_READY)
        k->permit = mpsc_permit_take(&k->reserve.permit);
    return k->permit.ch_ ? POLL_READY : POLL_PENDING;
}

static void keeper_drop(struct task *t)
{
    mpsc_reserve_drop(&container_of(t, struct keeper, task)->reserve);
}

static const struct task_kind keeper_kind = {"keeper", keeper_poll, keeper_drop};

static void permit_outlives_the_future_that_got_it(void **state)
{
    (void)state;
    struct keeper k = {0};
    open_channel(1);
    fill(1, 1);
    mpsc_reserve_init(&k.reserve, &ch);
    task_spawn(&sched, &k.task, &keeper_kind);
    run();
    expect_items(1, 1);
    run();
    assert_int_equal(mpsc_reserved(&ch), 1);
    mpsc_permit_send(&k.permit, item_of(2));
    expect_items(2, 1);
    close_world();
}

struct receiver {
    struct future_task task;
    struct mpsc_recv recv;
};

static void start_recv(struct receiver *r)
{
    mpsc_recv_init(&r->recv, &ch);
    future_task_spawn(&sched, &r->task, &r->recv.future);
    run();
}

static void receiver_sleeps_until_an_item_comes(void **state)
{
    (void)state;
    struct receiver r;
    open_channel(2);
    start_recv(&r);
    assert_false(r.task.ready);
    fill(1, 2);
    run();
    assert_int_equal(r.task.polls, 2);
    assert_int_equal(r.recv.future.status, 0);
    assert_int_equal((uintptr_t)r.recv.item, 1);
    expect_items(2, 1);
    close_world();
}

static void dropped_receive_loses_nothing(void **state)
{
    (void)state;
    struct receiver r;
    open_channel(2);
    start_recv(&r);
    fill(1, 1);
    task_abort(&r.task.task);
    expect_items(1, 1);

    /* A dropped one doesn't take the place of one that waits. */
    struct mpsc_recv old;
    mpsc_recv_init(&old, &ch);
    fill(2, 1);
    assert_int_equal(mpsc_recv_poll(&old, &r.task.task), POLL_READY);
    start_recv(&r);
    mpsc_recv_drop(&old);
    fill(3, 1);
    run();
    assert_true(r.task.ready);
    close_world();
}

static void receive_many_takes_what_is_there(void **state)
{
    (void)state;
    void *got[8];
    struct mpsc_recv_many many;
    struct future_task task;
    open_channel(5);
    fill(0, 3);
    expect_items(0, 3);
    fill(10, 5); /* wraps */
    assert_int_equal(mpsc_try_recv_many(&ch, got, 4), 4);
    for (unsigned i = 0; i < 4; i++)
        assert_int_equal((uintptr_t)got[i], 10 + i);
    assert_int_equal(mpsc_try_recv_many(&ch, got, 4), 1);
    assert_int_equal((uintptr_t)got[0], 14);
    assert_int_equal(mpsc_try_recv_many(&ch, got, 4), 0);

    mpsc_recv_many_init(&many, &ch, got, 8);
    future_task_spawn(&sched, &task, &many.future);
    run();
    assert_false(task.ready);
    fill(20, 2);
    run();
    assert_true(task.ready);
    assert_int_equal(many.n, 2);
    assert_int_equal((uintptr_t)got[1], 21);

    mpsc_recv_many_init(&many, &ch, got, 8);
    future_task_spawn(&sched, &task, &many.future);
    run();
    mpsc_sender_put(&ch);
    run();
    assert_true(task.ready);
    assert_int_equal(many.future.status, -EPIPE);
    assert_int_equal(many.n, 0);
    close_world();
}

/* Many slots come free at once: as many senders go on, in order. */
static void receive_many_lets_many_on(void **state)
{
    (void)state;
    void *got[4];
    struct sender s[3];
    open_channel(2);
    fill(1, 2);
    for (unsigned i = 0; i < 3; i++)
        start_send(&s[i], 3 + i);
    assert_int_equal(mpsc_try_recv_many(&ch, got, 4), 2);
    run();
    assert_true(s[0].task.ready && s[1].task.ready && !s[2].task.ready);
    expect_items(3, 1);
    run();
    expect_items(4, 2);
    assert_int_equal(mpsc_free(&ch), 2);
    close_world();
}

static void receiver_closes_and_drains(void **state)
{
    (void)state;
    void *item = NULL;
    struct mpsc_permit permit;
    struct sender waits, granted;
    struct receiver r;
    open_channel(3);
    fill(1, 2);
    assert_int_equal(mpsc_try_reserve(&ch, &permit), 0);
    start_send(&granted, 3);
    start_send(&waits, 4);
    expect_items(1, 1); /* the first of both has a slot now */
    mpsc_close(&ch);
    mpsc_close(&ch);
    assert_true(mpsc_is_closed(&ch));
    assert_int_equal(mpsc_free(&ch), 0);
    run();
    assert_int_equal(granted.send.future.status, 0);
    assert_int_equal(waits.send.future.status, -EPIPE);
    assert_int_equal(mpsc_try_send(&ch, item_of(9)), -EPIPE);
    expect_items(2, 2);
    /* Not the end yet: a permit is out. */
    assert_int_equal(mpsc_try_recv(&ch, &item), -EAGAIN);
    start_recv(&r);
    mpsc_permit_send(&permit, item_of(4));
    run();
    assert_int_equal((uintptr_t)r.recv.item, 4);
    assert_int_equal(mpsc_try_recv(&ch, &item), -EPIPE);
    close_world();
}

static void end_comes_when_the_last_permit_is_given_back(void **state)
{
    (void)state;
    struct mpsc_permit permit;
    struct receiver r;
    open_channel(1);
    assert_int_equal(mpsc_try_reserve(&ch, &permit), 0);
    mpsc_close(&ch);
    start_recv(&r);
    assert_false(r.task.ready);
    mpsc_permit_put(&permit);
    run();
    assert_int_equal(r.recv.future.status, -EPIPE);
    close_world();
}

static void end_comes_when_the_last_sender_has_left(void **state)
{
    (void)state;
    struct receiver r;
    void *item = NULL;
    open_channel(2);
    mpsc_sender_get(&ch);
    fill(1, 1);
    mpsc_sender_put(&ch);
    expect_items(1, 1);
    start_recv(&r);
    assert_false(r.task.ready);
    mpsc_sender_put(&ch);
    run();
    assert_int_equal(r.recv.future.status, -EPIPE);
    assert_int_equal(mpsc_try_recv(&ch, &item), -EPIPE);
    close_world();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(items_come_in_order_through_a_ring_that_wraps),
        cmocka_unit_test(full_channel_refuses_and_keeps_its_bound),
        cmocka_unit_test(senders_wait_their_turn_and_nobody_overtakes),
        cmocka_unit_test(spurious_wake_keeps_the_place_in_line),
        cmocka_unit_test(dropped_send_has_sent_nothing),
        cmocka_unit_test(permit_is_a_send_that_cannot_fail),
        cmocka_unit_test(dropped_reservation_goes_to_who_waits),
        cmocka_unit_test(permit_outlives_the_future_that_got_it),
        cmocka_unit_test(receiver_sleeps_until_an_item_comes),
        cmocka_unit_test(dropped_receive_loses_nothing),
        cmocka_unit_test(receive_many_takes_what_is_there),
        cmocka_unit_test(receive_many_lets_many_on),
        cmocka_unit_test(receiver_closes_and_drains),
        cmocka_unit_test(end_comes_when_the_last_permit_is_given_back),
        cmocka_unit_test(end_comes_when_the_last_sender_has_left),
    };
    return cmocka_run_group_tests_name("chan_mpsc", tests, NULL, NULL);
}
