/* The channel between cores, stepped by hand: every message is on its way for as long as the story
 * wants. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <errno.h>

#include <cmocka.h>

#include "runtime/chan_mpsc_remote.h"
#include "tests/kit/core_rig.h"
#include "tests/kit/future_task.h"

enum { LEFT, RIGHT, HOME, CORES };

static struct core_rig cores[CORES];
static struct mpsc_remote *ch;
static struct mpsc_port *port, *other; /* of LEFT and RIGHT; the receiver is at HOME */

static void *item_of(uintptr_t n)
{
    return (void *)n; // NOLINT(performance-no-int-to-ptr)
}

static void open_channel(uint32_t capacity)
{
    struct mailbox *senders[] = {&cores[LEFT].mailbox, &cores[RIGHT].mailbox};
    struct mpsc_remote_opts o = {
        .capacity = capacity, .nports = 2, .receiver = &cores[HOME].mailbox, .senders = senders};
    assert_int_equal(mpsc_remote_new(&o, &ch), 0);
    port = mpsc_remote_port(ch, LEFT);
    other = mpsc_remote_port(ch, RIGHT);
}

static int set_up(void **state)
{
    (void)state;
    for (unsigned i = 0; i < CORES; i++)
        if (core_rig_init(&cores[i]) != 0)
            return -1;
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    for (unsigned i = 0; i < CORES; i++)
        core_rig_stop(&cores[i]);
    core_rigs_settle(cores, CORES);
    mpsc_remote_free(ch);
    ch = NULL;
    for (unsigned i = 0; i < CORES; i++)
        core_rig_fini(&cores[i]);
    return 0;
}

static void settle(void)
{
    core_rigs_settle(cores, CORES);
}

static void fill(uintptr_t from, unsigned n)
{
    for (unsigned i = 0; i < n; i++)
        assert_int_equal(mpsc_port_try_send(port, item_of(from + i)), 0);
}

static void expect_items(uintptr_t from, unsigned n)
{
    void *item = NULL;
    for (unsigned i = 0; i < n; i++) {
        assert_int_equal(mpsc_remote_try_recv(ch, &item), 0);
        assert_int_equal((uintptr_t)item, from + i);
    }
}

static int try_recv(void)
{
    void *item = NULL;
    return mpsc_remote_try_recv(ch, &item);
}

struct sender {
    struct future_task task;
    struct mpsc_port_send send;
};

static void start_send(struct sender *s, uintptr_t n)
{
    mpsc_port_send_init(&s->send, port, item_of(n));
    future_task_spawn(&cores[LEFT].sched, &s->task, &s->send.future);
    core_rig_step(&cores[LEFT]);
}

struct receiver {
    struct future_task task;
    struct mpsc_remote_recv recv;
};

static void start_recv(struct receiver *r)
{
    mpsc_remote_recv_init(&r->recv, ch);
    future_task_spawn(&cores[HOME].sched, &r->task, &r->recv.future);
    core_rig_step(&cores[HOME]);
}

static void items_of_a_port_come_in_order_within_its_bound(void **state)
{
    (void)state;
    open_channel(3); /* not a power of two */
    for (unsigned round = 0; round < 5; round++) {
        fill(10 * round, 3);
        assert_int_equal(mpsc_port_try_send(port, item_of(99)), -EAGAIN);
        assert_int_equal(mpsc_remote_len(ch), 3);
        expect_items(10 * round, 3);
        assert_int_equal(try_recv(), -EAGAIN);
    }
    assert_false(mailbox_is_pending(&cores[HOME].mailbox)); /* nobody was parked */
}

static void ports_are_served_in_turn(void **state)
{
    (void)state;
    void *got[4];
    open_channel(4);
    fill(1, 4);
    mpsc_port_try_send(other, item_of(100));
    assert_int_equal(mpsc_remote_try_recv_many(ch, got, 2), 2);
    assert_int_equal((uintptr_t)got[1], 2);
    assert_int_equal(mpsc_remote_try_recv_many(ch, got, 2), 2);
    assert_int_equal((uintptr_t)got[0], 100);
    assert_int_equal((uintptr_t)got[1], 3);
    assert_int_equal(mpsc_remote_try_recv_many(ch, got, 4), 1);
    assert_int_equal((uintptr_t)got[0], 4);
}

static void many_are_sent_as_far_as_there_is_room(void **state)
{
    (void)state;
    void *items[4] = {item_of(1), item_of(2), item_of(3), item_of(4)};
    open_channel(3);
    assert_int_equal(mpsc_port_try_send_many(port, items, 2), 2);
    assert_int_equal(mpsc_port_try_send_many(port, items + 2, 2), 1);
    assert_int_equal(mpsc_port_try_send_many(port, items + 3, 1), 0);
    expect_items(1, 2);
    assert_int_equal(mpsc_port_try_send_many(port, items + 3, 1), 1);
    expect_items(3, 2);
    mpsc_remote_close(ch);
    assert_int_equal(mpsc_port_try_send_many(port, items, 4), 0);
}

static void parked_receiver_is_woken_once(void **state)
{
    (void)state;
    struct receiver r;
    open_channel(4);
    start_recv(&r);
    assert_false(r.task.ready);
    fill(1, 3);
    assert_int_equal(mailbox_drain(&cores[HOME].mailbox, 10), 1);
    core_rig_step(&cores[HOME]);
    assert_int_equal(r.task.polls, 2);
    assert_int_equal((uintptr_t)r.recv.item, 1);
    expect_items(2, 2);
}

static void dropped_receive_loses_nothing_and_isnt_woken(void **state)
{
    (void)state;
    struct receiver r;
    open_channel(4);
    start_recv(&r);
    task_abort(&r.task.task);
    fill(1, 1);
    settle();
    assert_int_equal(r.task.polls, 1);
    expect_items(1, 1);
    start_recv(&r); /* parks again */
    fill(2, 1);
    settle();
    assert_int_equal((uintptr_t)r.recv.item, 2);
}

static void receiver_found_ready_after_all_leaves_no_trace(void **state)
{
    (void)state;
    struct receiver r, next;
    open_channel(4);
    start_recv(&r);
    fill(1, 1);
    task_wake(&r.task.task); /* comes before the wake-up from the other core */
    sched_step(&cores[HOME].sched, ++cores[HOME].now);
    assert_true(r.task.ready);
    settle(); /* the late one must not touch a task that is gone */
    start_recv(&next);
    fill(2, 1);
    settle();
    assert_int_equal((uintptr_t)next.recv.item, 2);
}

static void receiving_many_waits_for_the_first(void **state)
{
    (void)state;
    void *got[8];
    struct mpsc_remote_recv_many many;
    struct future_task task;
    open_channel(4);
    mpsc_remote_recv_many_init(&many, ch, got, 8);
    future_task_spawn(&cores[HOME].sched, &task, &many.future);
    settle();
    assert_false(task.ready);
    fill(1, 2);
    mpsc_port_try_send(other, item_of(3));
    settle();
    assert_int_equal(many.future.status, 0);
    assert_int_equal(many.n, 3);
}

static void sender_waits_for_room_and_gets_it(void **state)
{
    (void)state;
    struct sender s;
    open_channel(2);
    fill(1, 2);
    start_send(&s, 3);
    settle();
    assert_false(s.task.ready);
    expect_items(1, 1);
    settle();
    assert_true(s.task.ready);
    assert_int_equal(s.send.future.status, 0);
    assert_int_equal(s.task.polls, 2);
    expect_items(2, 2);
}

/* The receiver takes an item after the sender has found the port full, before it hears of that. */
static void room_made_while_the_request_is_under_way_counts(void **state)
{
    (void)state;
    struct sender s;
    open_channel(2);
    fill(1, 2);
    start_send(&s, 3);
    assert_true(mailbox_is_pending(&cores[HOME].mailbox));
    expect_items(1, 2);
    settle();
    assert_true(s.task.ready);
    expect_items(3, 1);
}

static void senders_of_a_port_are_served_in_order(void **state)
{
    (void)state;
    struct sender s[3];
    open_channel(1);
    fill(1, 1);
    for (unsigned i = 0; i < 3; i++)
        start_send(&s[i], 2 + i);
    settle();
    expect_items(1, 1);
    assert_int_equal(mpsc_port_try_send(port, item_of(99)), -EAGAIN); /* room, but not for us */
    for (unsigned i = 0; i < 3; i++) {
        settle();
        assert_true(s[i].task.ready);
        assert_int_equal(mpsc_remote_len(ch), 1);
        expect_items(2 + i, 1);
    }
}

static void dropped_send_gives_its_turn_to_the_next(void **state)
{
    (void)state;
    struct sender s[2];
    open_channel(1);
    fill(1, 1);
    start_send(&s[0], 2);
    start_send(&s[1], 3);
    settle();
    expect_items(1, 1);
    mailbox_drain(&cores[LEFT].mailbox, 10); /* grants the slot; the task hasn't run */
    task_abort(&s[0].task.task);
    settle();
    assert_true(s[1].task.ready);
    expect_items(3, 1);
    /* An answer for nobody, then a normal life. */
    fill(4, 1);
    start_send(&s[0], 5);
    task_abort(&s[0].task.task);
    settle();
    expect_items(4, 1);
    settle();
    fill(6, 1);
    expect_items(6, 1);
}

static void permits_hold_their_room(void **state)
{
    (void)state;
    struct mpsc_port_permit a, b, c = {0};
    struct mpsc_port_reserve reserve;
    struct future_task task;
    open_channel(2);
    assert_int_equal(mpsc_port_try_reserve(port, &a), 0);
    assert_int_equal(mpsc_port_try_reserve(port, &b), 0);
    assert_int_equal(mpsc_port_try_reserve(port, &c), -EAGAIN);
    assert_int_equal(mpsc_port_reserved(port), 2);
    assert_int_equal(mpsc_port_try_send(port, item_of(9)), -EAGAIN);
    mpsc_port_reserve_init(&reserve, port);
    future_task_spawn(&cores[LEFT].sched, &task, &reserve.future);
    settle();
    assert_false(task.ready);
    mpsc_port_permit_put(&b);
    settle();
    assert_true(task.ready); /* and dropped with its task */
    mpsc_port_permit_send(&a, item_of(1));
    assert_int_equal(mpsc_port_reserved(port), 0);
    assert_int_equal(mpsc_port_free(port), 1);
    expect_items(1, 1);
}

/* Half the port is reserved, so an item less in the ring is room although it was never full. */
static void sender_waits_behind_permits_too(void **state)
{
    (void)state;
    struct mpsc_port_permit permit;
    struct sender s;
    open_channel(2);
    fill(1, 1);
    assert_int_equal(mpsc_port_try_reserve(port, &permit), 0);
    start_send(&s, 2);
    settle();
    assert_false(s.task.ready);
    expect_items(1, 1);
    settle();
    assert_true(s.task.ready);
    mpsc_port_permit_put(&permit);
    expect_items(2, 1);
}

static void end_comes_when_every_port_has_ended(void **state)
{
    (void)state;
    struct receiver r;
    open_channel(4);
    mpsc_port_sender_get(port);
    fill(1, 1);
    mpsc_port_sender_put(port);
    mpsc_port_sender_put(other);
    expect_items(1, 1);
    assert_int_equal(try_recv(), -EAGAIN);
    start_recv(&r);
    fill(2, 1);
    mpsc_port_sender_put(port);
    assert_int_equal(mpsc_port_try_send(port, item_of(3)), -EPIPE);
    settle();
    assert_int_equal((uintptr_t)r.recv.item, 2);
    start_recv(&r);
    assert_int_equal(r.recv.future.status, -EPIPE);
    assert_int_equal(try_recv(), -EPIPE);
}

static void last_end_wakes_the_receiver(void **state)
{
    (void)state;
    struct receiver r;
    struct mpsc_port_permit permit;
    open_channel(4);
    mpsc_port_sender_put(other);
    assert_int_equal(mpsc_port_try_reserve(port, &permit), 0);
    mpsc_port_sender_put(port);
    start_recv(&r);
    settle();
    assert_false(r.task.ready); /* a permit is still out */
    mpsc_port_permit_put(&permit);
    settle();
    assert_int_equal(r.recv.future.status, -EPIPE);
}

static void receiver_closes_and_drains(void **state)
{
    (void)state;
    struct sender granted, waits;
    struct mpsc_port_permit permit;
    struct receiver r;
    open_channel(3);
    fill(1, 2);
    assert_int_equal(mpsc_port_try_reserve(port, &permit), 0);
    start_send(&granted, 3);
    start_send(&waits, 4);
    settle();
    expect_items(1, 1);
    mailbox_drain(&cores[HOME].mailbox, 10);
    mailbox_drain(&cores[LEFT].mailbox, 10); /* the first has room now, but hasn't run */
    mpsc_remote_close(ch);
    mpsc_remote_close(ch);
    assert_int_equal(mpsc_port_try_send(other, item_of(9)), -EPIPE); /* at once */
    settle();
    assert_int_equal(granted.send.future.status, 0);
    assert_int_equal(waits.send.future.status, -EPIPE);
    expect_items(2, 2);
    assert_int_equal(try_recv(), -EAGAIN); /* a permit is still out */
    start_recv(&r);
    mpsc_port_permit_send(&permit, item_of(4));
    settle();
    assert_int_equal((uintptr_t)r.recv.item, 4);
    assert_int_equal(try_recv(), -EPIPE);
    mpsc_port_sender_put(port);
    mpsc_port_sender_put(other);
}

static unsigned times_ready;

static void on_ready(void *ctx)
{
    assert_ptr_equal(ctx, &times_ready);
    times_ready++;
}

static void receiver_that_is_no_task_is_called(void **state)
{
    (void)state;
    struct mailbox *senders[] = {NULL}; /* nor has the sender a mailbox */
    struct mpsc_remote_opts o = {.capacity = 1,
                                 .nports = 1,
                                 .receiver = &cores[HOME].mailbox,
                                 .senders = senders,
                                 .ready = on_ready,
                                 .ctx = &times_ready};
    assert_int_equal(mpsc_remote_new(&o, &ch), 0);
    port = mpsc_remote_port(ch, 0);
    times_ready = 0;
    fill(1, 1);
    assert_false(mpsc_remote_arm(ch));
    expect_items(1, 1);
    assert_true(mpsc_remote_arm(ch));
    fill(2, 1);
    settle();
    assert_int_equal(times_ready, 1);
    expect_items(2, 1);
    fill(3, 1); /* not armed */
    settle();
    assert_int_equal(times_ready, 1);
    expect_items(3, 1);
    assert_int_equal(mpsc_port_try_send(port, item_of(4)), 0);
    assert_int_equal(mpsc_port_try_send(port, item_of(5)), -EAGAIN);
    mpsc_remote_close(ch);
    expect_items(4, 1);
    assert_int_equal(try_recv(), -EAGAIN);
    assert_true(mpsc_remote_arm(ch));
    assert_int_equal(mpsc_port_try_send(port, item_of(5)), -EPIPE); /* answers the close */
    settle();
    assert_int_equal(times_ready, 2);
    assert_int_equal(try_recv(), -EPIPE);
}

static void too_large_a_capacity_is_refused(void **state)
{
    (void)state;
    struct mailbox *senders[] = {&cores[LEFT].mailbox};
    struct mpsc_remote_opts o = {
        .capacity = UINT32_MAX, .nports = 1, .receiver = &cores[HOME].mailbox, .senders = senders};
    assert_int_equal(mpsc_remote_new(&o, &ch), -EINVAL);
    assert_null(ch);
}

#define story(f) cmocka_unit_test_setup_teardown(f, set_up, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        story(items_of_a_port_come_in_order_within_its_bound),
        story(ports_are_served_in_turn),
        story(many_are_sent_as_far_as_there_is_room),
        story(parked_receiver_is_woken_once),
        story(dropped_receive_loses_nothing_and_isnt_woken),
        story(receiver_found_ready_after_all_leaves_no_trace),
        story(receiving_many_waits_for_the_first),
        story(sender_waits_for_room_and_gets_it),
        story(room_made_while_the_request_is_under_way_counts),
        story(senders_of_a_port_are_served_in_order),
        story(dropped_send_gives_its_turn_to_the_next),
        story(permits_hold_their_room),
        story(sender_waits_behind_permits_too),
        story(end_comes_when_every_port_has_ended),
        story(last_end_wakes_the_receiver),
        story(receiver_closes_and_drains),
        story(receiver_that_is_no_task_is_called),
        story(too_large_a_capacity_is_refused),
    };
    return cmocka_run_group_tests_name("chan_mpsc_remote", tests, NULL, NULL);
}
