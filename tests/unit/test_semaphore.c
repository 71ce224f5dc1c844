#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdlib.h>
#include <string.h>

#include "runtime/rng.h"
#include "runtime/sched.h"
#include "runtime/semaphore.h"

#define START 987654321ull
#define MS    1000000ull

/* Acquires, keeps what it got until it is told to put it or is aborted. */
struct client {
    struct task task;
    struct semaphore_timed acquire;
    struct permit permit;
    unsigned order; /* of being granted, from 1 */
    bool has_ended;
    int status;
};

static struct sched sched;
static struct semaphore sem;
static unsigned grants;
static uint64_t now;

static enum poll client_poll(struct task *t)
{
    struct client *c = container_of(t, struct client, task);
    if (c->has_ended || future_poll(&c->acquire.acquire.future, t) == POLL_PENDING)
        return POLL_PENDING;
    c->has_ended = true;
    c->status = c->acquire.acquire.future.status;
    if (c->status == 0) {
        c->permit = permit_take(&c->acquire.acquire.permit);
        c->order = ++grants;
    }
    return POLL_PENDING;
}

static void client_drop(struct task *t)
{
    struct client *c = container_of(t, struct client, task);
    future_drop(&c->acquire.acquire.future);
    permit_put(&c->permit);
}

static const struct task_kind client_kind = {"client", client_poll, client_drop};

static int set_up(void **state)
{
    (void)state;
    now = START;
    grants = 0;
    sched_init(&sched, &(struct sched_opts){.now = START});
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    sched_fini(&sched);
    assert_int_equal(semaphore_in_use(&sem), 0);
    semaphore_fini(&sem);
    return 0;
}

static void run(void)
{
    while (sched_step(&sched, now))
        ;
}

static void client_start_timed(struct client *c, uint32_t want, uint64_t deadline)
{
    *c = (struct client){0};
    semaphore_timed_init(&c->acquire, &sem, want, deadline);
    task_spawn(&sched, &c->task, &client_kind);
    run();
}

static void client_start(struct client *c, uint32_t want)
{
    client_start_timed(c, want, UINT64_MAX);
}

static void put(struct client *c)
{
    permit_put(&c->permit);
    run();
}

static void first_come_first_served_up_to_the_limit(void **state)
{
    static struct client c[5];
    (void)state;
    semaphore_init(&sem, 2);
    for (unsigned i = 0; i < 5; i++)
        client_start(&c[i], 1);
    assert_int_equal(grants, 2);
    assert_int_equal(semaphore_available(&sem), 0);
    assert_int_equal(semaphore_waiting(&sem), 3);
    put(&c[1]);
    put(&c[0]);
    put(&c[2]);
    for (unsigned i = 0; i < 5; i++)
        assert_int_equal(c[i].order, i + 1);
    put(&c[0]); /* nothing is held: no-op */
    assert_int_equal(semaphore_in_use(&sem), 2);
}

static void big_waiter_is_not_starved_by_small_ones(void **state)
{
    static struct client big, small[6];
    struct permit p = {0};
    (void)state;
    semaphore_init(&sem, 3);
    client_start(&small[0], 1);
    client_start(&small[1], 1);
    client_start(&big, 3);
    assert_int_equal(semaphore_available(&sem), 1);
    client_start(&small[2], 1); /* would fit, but comes later */
    assert_int_equal(semaphore_try_acquire(&sem, 1, &p), -EAGAIN);
    put(&small[0]);
    assert_int_equal(big.order, 0);
    put(&small[1]);
    assert_int_equal(big.order, 3);
    assert_int_equal(small[2].order, 0);
    put(&big);
    assert_int_equal(small[2].order, 4);
    assert_int_equal(semaphore_try_acquire(&sem, 2, &p), 0);
    assert_int_equal(semaphore_try_acquire(&sem, 1, &p), -EAGAIN);
    permit_put(&p);
}

static void deadline_ends_a_wait_to_the_nanosecond(void **state)
{
    static struct client c[3];
    (void)state;
    semaphore_init(&sem, 1);
    client_start(&c[0], 1);
    client_start_timed(&c[1], 1, START + 200 * MS);
    client_start_timed(&c[2], 1, START + 300 * MS);
    now = START + 200 * MS - 1;
    run();
    assert_false(c[1].has_ended);
    now++;
    run();
    assert_int_equal(c[1].status, -ETIMEDOUT);
    assert_int_equal(semaphore_waiting(&sem), 1);
    put(&c[0]);
    assert_int_equal(c[2].status, 0);
    assert_true(permit_is_held(&c[2].permit));
    assert_int_equal(timer_wheel_count(&sched.wheel), 0);
}

static void free_permit_is_granted_whatever_the_time(void **state)
{
    static struct client c[2];
    (void)state;
    semaphore_init(&sem, 1);
    client_start_timed(&c[0], 1, START - 1);
    assert_int_equal(c[0].order, 1);
    client_start_timed(&c[1], 1, START);
    assert_int_equal(c[1].status, -ETIMEDOUT);
}

static void who_waits_and_goes_lets_the_next_in(void **state)
{
    static struct client c[4];
    (void)state;
    semaphore_init(&sem, 2);
    client_start(&c[0], 1);
    client_start(&c[1], 2);
    client_start(&c[2], 1);
    client_start(&c[3], 1);
    task_abort(&c[1].task); /* it held up the small ones */
    run();
    assert_int_equal(c[2].order, 2);
    assert_int_equal(c[3].order, 0);
    permit_put(&c[0].permit); /* granted to c[3], which goes before it knows */
    task_abort(&c[3].task);
    run();
    assert_int_equal(semaphore_in_use(&sem), 1);
    task_abort(&c[2].task); /* the drop gives back what it holds */
    assert_int_equal(semaphore_in_use(&sem), 0);
}

static void closing_wakes_all_and_leaves_permits_good(void **state)
{
    static struct client c[4];
    struct permit p = {0};
    (void)state;
    semaphore_init(&sem, 1);
    for (unsigned i = 0; i < 3; i++)
        client_start(&c[i], 1);
    permit_put(&c[0].permit); /* c[1] has it, but hasn't run */
    semaphore_close(&sem);
    run();
    assert_true(semaphore_is_closed(&sem));
    assert_true(permit_is_held(&c[1].permit));
    assert_int_equal(c[2].status, -ESHUTDOWN);
    client_start(&c[3], 1);
    assert_int_equal(c[3].status, -ESHUTDOWN);
    put(&c[1]);
    assert_int_equal(semaphore_try_acquire(&sem, 1, &p), -ESHUTDOWN);
    semaphore_close(&sem);
}

static void limit_moves_while_in_use(void **state)
{
    static struct client c[6];
    (void)state;
    semaphore_init(&sem, 1);
    for (unsigned i = 0; i < 6; i++)
        client_start(&c[i], 1);
    semaphore_add(&sem, 3);
    run();
    assert_int_equal(grants, 4);
    semaphore_set_limit(&sem, 2);
    put(&c[0]);
    put(&c[1]);
    assert_int_equal(grants, 4); /* under it, not at it */
    put(&c[2]);
    assert_int_equal(grants, 5);
    permit_forget(&c[3].permit);
    run();
    assert_int_equal(semaphore_limit(&sem), 1);
    assert_int_equal(grants, 5);
    put(&c[4]);
    assert_int_equal(grants, 6);
    semaphore_set_limit(&sem, 0);
    assert_int_equal(semaphore_available(&sem), 0);
    permit_forget(&c[5].permit);
    assert_int_equal(semaphore_limit(&sem), 0);
}

static void who_wants_more_than_the_limit_stands_aside(void **state)
{
    static struct client huge, c[3];
    struct permit p = {0};
    (void)state;
    semaphore_init(&sem, 2);
    client_start(&c[0], 1);
    client_start(&huge, 5);
    client_start(&c[1], 1);
    assert_int_equal(c[1].order, 2);
    put(&c[0]);
    assert_int_equal(semaphore_try_acquire(&sem, 1, &p), 0);
    permit_put(&p);
    semaphore_set_limit(&sem, 5); /* now it could: it is first in turn */
    client_start(&c[2], 1);
    assert_int_equal(c[2].order, 0);
    put(&c[1]);
    assert_int_equal(huge.order, 3);
    put(&huge);
    assert_int_equal(c[2].order, 4);
}

static void full_queue_refuses(void **state)
{
    static struct client c[4];
    (void)state;
    semaphore_init(&sem, 1);
    sem.queue_max = 1;
    for (unsigned i = 0; i < 3; i++)
        client_start(&c[i], 1);
    assert_false(c[1].has_ended);
    assert_int_equal(c[2].status, -EBUSY);
    put(&c[0]);
    client_start(&c[3], 1);
    assert_false(c[3].has_ended);
}

/* A task that never has to wait still comes to the end of its budget. */
static unsigned rounds;

static enum poll greedy_poll(struct task *t)
{
    struct semaphore_acquire a;
    for (;;) {
        semaphore_acquire_init(&a, &sem, 1);
        if (future_poll(&a.future, t) == POLL_PENDING)
            return POLL_PENDING;
        future_drop(&a.future);
        rounds++;
    }
}

static void greedy_drop(struct task *t)
{
    (void)t;
}

static void acquiring_costs_budget(void **state)
{
    static const struct task_kind kind = {"greedy", greedy_poll, greedy_drop};
    static struct task t;
    (void)state;
    rounds = 0;
    semaphore_init(&sem, 1);
    task_spawn(&sched, &t, &kind);
    sched_step(&sched, now);
    assert_int_equal(rounds, SCHED_BUDGET_OPS);
    sched_step(&sched, now);
    assert_int_equal(rounds, 2 * SCHED_BUDGET_OPS);
}

/* Random clients, cancels, deadlines and limits: what must hold after each event. */

enum { CROWD = 24, EVENTS = 3000 };

/* Prints the seed of what fails. */
#define holds(cond)                                                                                \
    do {                                                                                           \
        if (!(cond))                                                                               \
            fail_msg("seed %lu: not true: %s", (unsigned long)seed, #cond);                        \
    } while (0)

static void check_invariants(uint64_t seed, const struct client *c, uint32_t limit_before,
                             uint32_t in_use_before)
{
    uint32_t held = 0, waiting = 0;
    for (unsigned i = 0; i < CROWD; i++) {
        held += permit_is_held(&c[i].permit) ? c[i].permit.n_ : 0;
        waiting += list_is_linked(&c[i].acquire.acquire.node_);
    }
    holds(held == semaphore_in_use(&sem));
    holds(waiting == semaphore_waiting(&sem));
    /* Never over the limit, but for what was out when it fell. */
    uint32_t bound = semaphore_limit(&sem) > limit_before ? semaphore_limit(&sem) : limit_before;
    holds(held <= (in_use_before > bound ? in_use_before : bound));
    if (held > semaphore_limit(&sem))
        holds(held <= in_use_before);
    /* The first in turn doesn't fit, or it would have been let in. */
    list_for_each(n, &sem.queue_)
    {
        const struct semaphore_acquire *a = container_of(n, struct semaphore_acquire, node_);
        if (a->want_ <= semaphore_limit(&sem)) {
            holds(held + a->want_ > semaphore_limit(&sem));
            break;
        }
    }
}

static void one_event(struct client *c, struct rng *rng)
{
    struct client *one = &c[rng_below(rng, CROWD)];
    switch (rng_below(rng, 8)) {
    case 0:
        semaphore_set_limit(&sem, rng_below(rng, 12));
        break;
    case 1:
        now += rng_below(rng, 20 * MS);
        break;
    case 2:
    case 3:
        task_abort(&one->task);
        break;
    default:
        if (!task_is_live(&one->task)) {
            *one = (struct client){0};
            semaphore_timed_init(&one->acquire, &sem, 1 + rng_below(rng, 4),
                                 rng_chance(rng, 500000) ? now + rng_below(rng, 50 * MS)
                                                         : UINT64_MAX);
            task_spawn(&sched, &one->task, &client_kind);
        } else if (permit_is_held(&one->permit)) {
            permit_put(&one->permit);
        }
    }
    if (rng_chance(rng, 700000))
        run(); /* sometimes grants and cancels meet before anyone has run */
}

static void random_use_never_exceeds_the_limit_and_loses_nothing(void **state)
{
    (void)state;
    for (uint64_t seed = 1; seed <= 50; seed++) {
        struct client c[CROWD];
        struct rng rng = {seed};
        memset(c, 0, sizeof(c));
        semaphore_init(&sem, 5);
        for (unsigned i = 0; i < EVENTS; i++) {
            uint32_t limit = semaphore_limit(&sem), in_use = semaphore_in_use(&sem);
            one_event(c, &rng);
            run();
            check_invariants(seed, c, limit, in_use);
        }
        for (unsigned i = 0; i < CROWD; i++)
            task_abort(&c[i].task);
        holds(semaphore_in_use(&sem) == 0 && semaphore_waiting(&sem) == 0);
        holds(timer_wheel_count(&sched.wheel) == 0);
    }
}

#define story(f) cmocka_unit_test_setup_teardown(f, set_up, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        story(first_come_first_served_up_to_the_limit),
        story(big_waiter_is_not_starved_by_small_ones),
        story(deadline_ends_a_wait_to_the_nanosecond),
        story(free_permit_is_granted_whatever_the_time),
        story(who_waits_and_goes_lets_the_next_in),
        story(closing_wakes_all_and_leaves_permits_good),
        story(limit_moves_while_in_use),
        story(who_wants_more_than_the_limit_stands_aside),
        story(full_queue_refuses),
        story(acquiring_costs_budget),
        story(random_use_never_exceeds_the_limit_and_loses_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
