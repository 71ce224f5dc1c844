#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <errno.h>
#include <string.h>

#include "runtime/backoff.h"
#include "runtime/clock.h"
#include "runtime/retry.h"
#include "runtime/retry_budget.h"
#include "runtime/sched.h"

#define START 31415926535ull
#define MS    1000000ull
#define S     1000000000ull

/* A call that takes its time and then ends as the script says. */
struct call {
    struct future future;
    struct sleep sleep;
    uint64_t takes, done_at;
    int result;
    uint64_t asks; /* the server's delay */
};

/* What is retried: calls with scripted results, one after another in the same place. */
struct client {
    struct task task;
    struct retry retry;
    struct call call;
    const int *results; /* of attempt 0, 1, ...; the last one stays */
    unsigned nresults;
    uint64_t takes, asks;
    uint64_t started[64]; /* when each attempt began */
    unsigned nstarted, running;
    bool has_ended;
    uint64_t ended;
};

static struct sched sched;
static struct rng rng;
static uint64_t now;
static struct client client;

static enum poll call_poll(struct future *f, struct task *t)
{
    struct call *c = container_of(f, struct call, future);
    if (!c->done_at)
        c->done_at = task_now(t) + c->takes;
    if (task_now(t) < c->done_at) {
        sleep_arm(&c->sleep, t, c->done_at);
        return POLL_PENDING;
    }
    f->status = c->result;
    return POLL_READY;
}

static void call_drop(struct future *f)
{
    sleep_cancel(&container_of(f, struct call, future)->sleep);
    client.running = 0;
}

static const struct future_kind call_kind = {"call", call_poll, call_drop};

static int start_call(struct retry *r, struct future **ret_attempt)
{
    struct client *c = container_of(r, struct client, retry);
    unsigned i = r->attempt < c->nresults ? r->attempt : c->nresults - 1;
    assert_int_equal(r->attempt, c->nstarted);
    assert_int_equal(c->running, 0); /* nothing is held over a wait */
    if (c->results[i] == -ENOMEM)
        return -ENOMEM;
    c->call = (struct call){.takes = c->takes, .result = c->results[i], .asks = c->asks};
    future_init(&c->call.future, &call_kind);
    c->started[c->nstarted++ % 64] = task_now(&c->task);
    c->running = 1;
    *ret_attempt = &c->call.future;
    return 0;
}

static bool is_transient(struct retry *r, const struct future *attempt)
{
    (void)r;
    return attempt->status == -ECONNREFUSED || attempt->status == -EAGAIN;
}

static uint64_t server_delay(struct retry *r, const struct future *attempt)
{
    (void)r;
    return container_of(attempt, struct call, future)->asks;
}

static const struct retry_ops ops = {start_call, is_transient, server_delay};

static enum poll client_poll(struct task *t)
{
    struct client *c = container_of(t, struct client, task);
    if (!c->has_ended && future_poll(&c->retry.future, t) == POLL_READY) {
        c->has_ended = true;
        c->ended = task_now(t);
    }
    return POLL_PENDING;
}

static void client_drop(struct task *t)
{
    future_drop(&container_of(t, struct client, task)->retry.future);
}

static const struct task_kind client_kind = {"client", client_poll, client_drop};

static int set_up(void **state)
{
    (void)state;
    now = START;
    rng.state = 77;
    sched_init(&sched, &(struct sched_opts){.now = START});
    client = (struct client){0};
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    sched_fini(&sched);
    return 0;
}

/* Runs on, from one timer to the next, until `until` or nothing is left to come. */
static void run_until(uint64_t until)
{
    for (;;) {
        while (sched_step(&sched, now))
            ;
        uint64_t next = sched_next_timeout(&sched);
        if (next == UINT64_MAX || next > until)
            break;
        now = next;
    }
}

static const struct retry_policy patient = {
    .attempts = 5, .base = 100 * MS, .cap = S, .total = UINT64_MAX};

#define RESULTS(...)                                                                               \
    client.results = (const int[]){__VA_ARGS__};                                                   \
    client.nresults = sizeof((const int[]){__VA_ARGS__}) / sizeof(int)

static void start(const struct retry_policy *p, struct retry_budget_core *budget, uint64_t deadline)
{
    retry_init(&client.retry,
               &(struct retry_opts){
                   .ops = &ops, .policy = p, .rng = &rng, .budget = budget, .deadline = deadline});
    task_spawn(&sched, &client.task, &client_kind);
}

static void expect_end(enum retry_end end, int status, unsigned attempts)
{
    assert_true(client.has_ended);
    assert_string_equal(retry_end_text(client.retry.end), retry_end_text(end));
    assert_int_equal(client.retry.future.status, status);
    assert_int_equal(client.nstarted, attempts);
}

static void transient_failures_pass(void **state)
{
    (void)state;
    RESULTS(-ECONNREFUSED, -EAGAIN, 0);
    client.takes = 3 * MS;
    start(&patient, NULL, UINT64_MAX);
    run_until(UINT64_MAX);
    expect_end(RETRY_END_OK, 0, 3);
    assert_int_equal(client.running, 1); /* its result is there to be taken */
    for (unsigned i = 1; i < 3; i++) {
        uint64_t wait = client.started[i] - client.started[i - 1] - 3 * MS;
        assert_true(wait <= 100 * MS << (i - 1));
    }
    task_abort(&client.task);
    assert_int_equal(client.running, 0);
}

static void another_failure_is_final(void **state)
{
    (void)state;
    RESULTS(-ECONNREFUSED, -EPROTO, 0);
    start(&patient, NULL, UINT64_MAX);
    run_until(UINT64_MAX);
    expect_end(RETRY_END_FATAL, -EPROTO, 2);
}

static void attempts_are_bounded(void **state)
{
    (void)state;
    RESULTS(-EAGAIN);
    start(&patient, NULL, UINT64_MAX);
    run_until(UINT64_MAX);
    expect_end(RETRY_END_ATTEMPTS, -EAGAIN, 5);
}

static void an_attempt_that_can_not_start_ends_it(void **state)
{
    (void)state;
    RESULTS(-EAGAIN, -ENOMEM);
    start(&patient, NULL, UINT64_MAX);
    run_until(UINT64_MAX);
    expect_end(RETRY_END_START, -ENOMEM, 1);
}

static void time_cuts_a_running_attempt(void **state)
{
    (void)state;
    const struct retry_policy p = {.attempts = 9, .base = 1, .cap = 1, .total = 500 * MS};
    RESULTS(-EAGAIN);
    client.takes = 200 * MS;
    start(&p, NULL, UINT64_MAX);
    run_until(UINT64_MAX);
    expect_end(RETRY_END_TIME, -ETIMEDOUT, 3);
    assert_int_equal(client.ended, START + 500 * MS);
    assert_int_equal(client.running, 0);
    assert_int_equal(timer_wheel_count(&sched.wheel), 0);
}

static void the_earlier_of_two_bounds_counts(void **state)
{
    (void)state;
    const struct retry_policy p = {.attempts = 9, .base = 1, .cap = 1, .total = 500 * MS};
    RESULTS(-EAGAIN);
    client.takes = S;
    start(&p, NULL, START + 300 * MS);
    run_until(UINT64_MAX);
    expect_end(RETRY_END_TIME, -ETIMEDOUT, 1);
    assert_int_equal(client.ended, START + 300 * MS);
}

static void nothing_is_started_after_the_deadline(void **state)
{
    (void)state;
    RESULTS(0);
    start(&patient, NULL, START);
    run_until(UINT64_MAX);
    expect_end(RETRY_END_TIME, -ETIMEDOUT, 0);
}

static void a_wait_past_the_deadline_is_not_begun(void **state)
{
    (void)state;
    RESULTS(-EAGAIN);
    client.asks = 10 * S; /* what the server asks for is too long */
    start(&patient, NULL, START + 5 * S);
    run_until(UINT64_MAX);
    expect_end(RETRY_END_TIME, -EAGAIN, 1);
    assert_int_equal(client.ended, START);
}

static void the_servers_delay_is_a_lower_bound_with_jitter_on_top(void **state)
{
    (void)state;
    uint64_t least = UINT64_MAX, most = 0;
    for (uint64_t seed = 1; seed <= 200; seed++) {
        assert_int_equal(set_up(state), 0);
        rng.state = seed;
        RESULTS(-EAGAIN, 0);
        client.asks = 2 * S;
        start(&patient, NULL, UINT64_MAX);
        run_until(UINT64_MAX);
        expect_end(RETRY_END_OK, 0, 2);
        uint64_t wait = client.started[1] - START;
        assert_true(wait >= 2 * S && wait <= 2 * S + 100 * MS);
        least = wait < least ? wait : least;
        most = wait > most ? wait : most;
        if (seed < 200)
            sched_fini(&sched);
    }
    assert_true(least < 2 * S + 5 * MS && most > 2 * S + 95 * MS);
}

static void jitter_is_full_and_the_ceiling_doubles_to_the_cap(void **state)
{
    (void)state;
    static const uint64_t ceilings[] = {10, 20, 40, 80, 100, 100};
    struct rng r = {5};
    for (uint32_t k = 0; k < 6; k++) {
        uint64_t sum = 0, seen = 0;
        assert_int_equal(backoff_ceiling(10, 100, k + 1), ceilings[k]);
        for (unsigned i = 0; i < 20000; i++) {
            uint64_t w = backoff_jitter(&r, ceilings[k]);
            assert_true(w <= ceilings[k]);
            sum += w;
            seen |= w == 0 ? 1 : w == ceilings[k] ? 2 : 0;
        }
        assert_int_equal(seen, 3); /* both ends are reached */
        double mean = (double)sum / 20000, expected = (double)ceilings[k] / 2;
        assert_true(mean > expected * 0.97 && mean < expected * 1.03);
    }
    assert_int_equal(backoff_ceiling(0, 100, 7), 0);
    assert_int_equal(backoff_ceiling(3, UINT64_MAX, 64), UINT64_MAX);
    assert_int_equal(backoff_ceiling(1, UINT64_MAX, 64), 1ull << 63);
    assert_int_equal(backoff_ceiling(1, UINT64_MAX, 500), UINT64_MAX);
    assert_int_equal(backoff_ceiling(200, 100, 1), 100);
    (void)backoff_jitter(&r, UINT64_MAX);
}

static void dropped_in_a_wait_it_leaves_nothing(void **state)
{
    (void)state;
    RESULTS(-EAGAIN);
    start(&patient, NULL, UINT64_MAX);
    while (sched_step(&sched, now))
        ;
    assert_true(retry_is_waiting(&client.retry));
    assert_int_equal(client.running, 0);
    task_abort(&client.task);
    assert_int_equal(timer_wheel_count(&sched.wheel), 0);
    assert_int_equal(client.nstarted, 1);
}

static void a_retry_is_charged_when_it_is_decided(void **state)
{
    (void)state;
    struct retry_budget b;
    struct retry_budget_core core;
    retry_budget_init(&b,
                      &(struct retry_budget_opts){.min_per_second = 1, .burst = 10, .cores = 1});
    retry_budget_core_init(&core, &b);
    RESULTS(-EAGAIN);
    client.asks = 10 * MS;
    start(&patient, &core, UINT64_MAX);
    while (sched_step(&sched, now))
        ;
    assert_true(retry_is_waiting(&client.retry));
    assert_int_equal(counter_get(&core.granted), 1);
    run_until(UINT64_MAX);
    expect_end(RETRY_END_BUDGET, -EAGAIN, 2);
    assert_int_equal(counter_get(&core.refused), 1);
}

static void a_failure_that_costs_no_time_does_not_hold_the_core(void **state)
{
    (void)state;
    const struct retry_policy p = {.attempts = 1000, .base = 0, .cap = 0, .total = UINT64_MAX};
    RESULTS(-EAGAIN);
    start(&p, NULL, UINT64_MAX);
    sched_step(&sched, now);
    assert_false(client.has_ended);
    assert_int_equal(client.nstarted, SCHED_BUDGET_OPS);
    run_until(UINT64_MAX);
    expect_end(RETRY_END_ATTEMPTS, -EAGAIN, 1000);
}

/* 47 seconds of back-off, by itself and from many seeds, take no real time. */
static void forty_seven_virtual_seconds_take_under_fifty_ms(void **state)
{
    (void)state;
    const struct retry_policy p = {
        .attempts = UINT32_MAX, .base = 100 * MS, .cap = 2 * S, .total = 47 * S};
    uint64_t begin = clock_now_ns();
    RESULTS(-ECONNREFUSED);
    client.takes = 5 * MS;
    start(&p, NULL, UINT64_MAX);
    run_until(UINT64_MAX);
    uint64_t took = clock_now_ns() - begin;
    assert_true(client.has_ended);
    assert_int_equal(client.retry.end, RETRY_END_TIME);
    /* A mean wait of a second once the cap is reached. */
    assert_true(client.nstarted > 30 && client.nstarted < 80);
    assert_true(now > START + 40 * S);
    if (took >= 50 * MS)
        fail_msg("47 virtual seconds took %lu us", (unsigned long)took / 1000);
}

#define story(f) cmocka_unit_test_setup_teardown(f, set_up, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        story(transient_failures_pass),
        story(another_failure_is_final),
        story(attempts_are_bounded),
        story(an_attempt_that_can_not_start_ends_it),
        story(time_cuts_a_running_attempt),
        story(the_earlier_of_two_bounds_counts),
        story(nothing_is_started_after_the_deadline),
        story(a_wait_past_the_deadline_is_not_begun),
        story(the_servers_delay_is_a_lower_bound_with_jitter_on_top),
        story(jitter_is_full_and_the_ceiling_doubles_to_the_cap),
        story(dropped_in_a_wait_it_leaves_nothing),
        story(a_retry_is_charged_when_it_is_decided),
        story(a_failure_that_costs_no_time_does_not_hold_the_core),
        story(forty_seven_virtual_seconds_take_under_fifty_ms),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
