#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <errno.h>
#include <inttypes.h>

#include <cmocka.h>

#include "runtime/chan_broadcast.h"
#include "runtime/rng.h"
#include "runtime/sched.h"
#include "tests/kit/future_task.h"

#define START    77777ull
#define CAPACITY 4

struct event {
    uint64_t n, twice;
};

static struct sched sched;
static struct broadcast ch;
static struct event slots[CAPACITY];

static void send(uint64_t n)
{
    broadcast_send(&ch, &(struct event){n, 2 * n});
}

static void run(void)
{
    while (sched_step(&sched, START))
        ;
}

static int set_up(void **state)
{
    (void)state;
    sched_init(&sched, &(struct sched_opts){.now = START});
    broadcast_init(&ch, slots, CAPACITY, sizeof(struct event));
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    sched_fini(&sched);
    broadcast_fini(&ch);
    return 0;
}

static void expect(struct broadcast_rx *rx, uint64_t n)
{
    const struct event *e = rx->into;
    assert_int_equal(broadcast_try_recv(rx), 0);
    assert_int_equal(e->n, n);
    assert_int_equal(e->twice, 2 * n);
}

static void every_receiver_gets_every_event(void **state)
{
    (void)state;
    struct event got[2];
    struct broadcast_rx rx[2];
    assert_int_equal(broadcast_send(&ch, &(struct event){0}), 0); /* nobody is there */
    broadcast_subscribe(&ch, &rx[0], &got[0]);
    broadcast_subscribe(&ch, &rx[1], &got[1]);
    for (uint64_t n = 1; n <= 3; n++)
        assert_int_equal(broadcast_send(&ch, &(struct event){n, 2 * n}), 2);
    for (unsigned i = 0; i < 2; i++) {
        assert_int_equal(broadcast_behind(&rx[i]), 3);
        for (uint64_t n = 1; n <= 3; n++)
            expect(&rx[i], n);
        assert_int_equal(broadcast_try_recv(&rx[i]), -EAGAIN);
        broadcast_unsubscribe(&rx[i]);
        broadcast_unsubscribe(&rx[i]);
    }
    assert_int_equal(broadcast_sent(&ch), 4);
}

static void slow_receiver_learns_what_it_lost_and_goes_on_at_the_oldest(void **state)
{
    (void)state;
    struct event got;
    struct broadcast_rx rx;
    broadcast_subscribe(&ch, &rx, &got);
    for (uint64_t n = 1; n <= CAPACITY; n++)
        send(n);
    expect(&rx, 1); /* exactly the ring's length is no loss */
    for (uint64_t n = CAPACITY + 1; n <= 10; n++)
        send(n);
    assert_int_equal(broadcast_try_recv(&rx), -EOVERFLOW);
    assert_int_equal(rx.lagged, 5); /* 2 to 6 */
    assert_int_equal(got.n, 1);
    for (uint64_t n = 7; n <= 10; n++)
        expect(&rx, n);
    assert_int_equal(broadcast_try_recv(&rx), -EAGAIN);
    for (uint64_t n = 11; n <= 15; n++)
        send(n);
    assert_int_equal(broadcast_try_recv(&rx), -EOVERFLOW);
    assert_int_equal(rx.lagged, 1);
    assert_int_equal(rx.lagged_total, 6);
    broadcast_unsubscribe(&rx);
}

static void late_subscriber_gets_what_comes_after_it(void **state)
{
    (void)state;
    struct event got;
    struct broadcast_rx rx;
    send(1);
    send(2);
    broadcast_subscribe(&ch, &rx, &got);
    assert_int_equal(broadcast_try_recv(&rx), -EAGAIN);
    send(3);
    expect(&rx, 3);
    broadcast_unsubscribe(&rx);
}

static void all_who_wait_are_woken(void **state)
{
    (void)state;
    struct event got[3];
    struct broadcast_rx rx[3];
    struct future_task task[3];
    for (unsigned i = 0; i < 3; i++) {
        broadcast_subscribe(&ch, &rx[i], &got[i]);
        future_task_spawn(&sched, &task[i], &rx[i].future);
    }
    run();
    task_abort(&task[1].task);
    broadcast_unsubscribe(&rx[2]);
    send(7);
    run();
    assert_true(task[0].ready);
    assert_int_equal(rx[0].future.status, 0);
    assert_int_equal(got[0].n, 7);
    assert_int_equal(task[1].polls, 1);
    assert_int_equal(task[2].polls, 1);
    expect(&rx[1], 7); /* the future was dropped, the subscription wasn't */
    task_abort(&task[2].task);
    broadcast_unsubscribe(&rx[0]);
    broadcast_unsubscribe(&rx[1]);
}

static void receivers_drain_a_closed_channel_to_its_end(void **state)
{
    (void)state;
    struct event got, late_got;
    struct broadcast_rx rx, late;
    struct future_task task;
    broadcast_subscribe(&ch, &rx, &got);
    send(1);
    broadcast_close(&ch);
    assert_int_equal(broadcast_send(&ch, &(struct event){2, 4}), 0);
    expect(&rx, 1);
    assert_int_equal(broadcast_try_recv(&rx), -EPIPE);
    broadcast_subscribe(&ch, &late, &late_got);
    future_task_spawn(&sched, &task, &late.future);
    run();
    assert_int_equal(late.future.status, -EPIPE);
    broadcast_unsubscribe(&rx);
    broadcast_unsubscribe(&late);
}

static void close_wakes_who_waits(void **state)
{
    (void)state;
    struct event got;
    struct broadcast_rx rx;
    struct future_task task;
    broadcast_subscribe(&ch, &rx, &got);
    future_task_spawn(&sched, &task, &rx.future);
    run();
    broadcast_close(&ch);
    run();
    assert_true(task.ready);
    assert_int_equal(rx.future.status, -EPIPE);
    broadcast_unsubscribe(&rx);
}

/* Whatever the order of sends and receives: a receiver gets the events in order, and those that it
 * gets and those that it is told to have lost are all that were sent. */
static void received_and_lost_add_up(void **state)
{
    enum { RECEIVERS = 3, STEPS = 3000 };
    (void)state;
    for (uint64_t seed = 1; seed <= 50; seed++) {
        struct rng rng = {seed};
        struct event got[RECEIVERS];
        struct broadcast_rx rx[RECEIVERS];
        uint64_t count[RECEIVERS] = {0}, start = broadcast_sent(&ch);
        for (unsigned i = 0; i < RECEIVERS; i++)
            broadcast_subscribe(&ch, &rx[i], &got[i]);
        for (unsigned step = 0; step < STEPS; step++) {
            unsigned i = rng_below(&rng, 2 * RECEIVERS);
            if (i >= RECEIVERS) {
                send(broadcast_sent(&ch));
                continue;
            }
            int rc = broadcast_try_recv(&rx[i]);
            if (rc == 0 && got[i].n != start + count[i]++ + rx[i].lagged_total)
                fail_msg("seed %" PRIu64 ": receiver %u got event %" PRIu64, seed, i, got[i].n);
        }
        for (unsigned i = 0; i < RECEIVERS; i++) {
            uint64_t all = count[i] + rx[i].lagged_total + broadcast_behind(&rx[i]);
            if (all != broadcast_sent(&ch) - start || rx[i].lagged_total == 0)
                fail_msg("seed %" PRIu64 ": receiver %u saw %" PRIu64 " events", seed, i, all);
            broadcast_unsubscribe(&rx[i]);
        }
    }
}

#define story(f) cmocka_unit_test_setup_teardown(f, set_up, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        story(every_receiver_gets_every_event),
        story(slow_receiver_learns_what_it_lost_and_goes_on_at_the_oldest),
        story(late_subscriber_gets_what_comes_after_it),
        story(all_who_wait_are_woken),
        story(receivers_drain_a_closed_channel_to_its_end),
        story(close_wakes_who_waits),
        story(received_and_lost_add_up),
    };
    return cmocka_run_group_tests_name("chan_broadcast", tests, NULL, NULL);
}
