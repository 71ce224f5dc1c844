#include "tests/examples/virtual.h"

#include <errno.h>

#include "runtime/deadline.h"
#include "runtime/delay.h"
#include "runtime/interval.h"
#include "runtime/join.h"
#include "runtime/timeout.h"
#include "tests/examples/call.h"

static struct sched sched;

static int set_up(void **state)
{
    sched_init(&sched, &(struct sched_opts){.now = START});
    return 0;
}

static int tear_down(void **state)
{
    sched_fini(&sched);
    return 0;
}

/* doc: sleep */
/* Closes a connection that says nothing for a while. Each byte moves the deadline: a plain store.
 */
struct idle_watch {
    struct task task;
    struct sleep sleep;
    uint64_t closes_at;
    bool is_closed;
};

static enum poll idle_watch_poll(struct task *t)
{
    struct idle_watch *w = container_of(t, struct idle_watch, task);
    if (task_now(t) >= w->closes_at) {
        w->is_closed = true;
        return POLL_READY;
    }
    sleep_arm(&w->sleep, t, w->closes_at);
    return POLL_PENDING;
}

static void idle_watch_on_bytes(struct idle_watch *w, uint64_t now)
{
    w->closes_at = now + 60 * S;
    sleep_arm(&w->sleep, &w->task, w->closes_at);
}
/* doc end */

static void idle_watch_drop(struct task *t)
{
    sleep_cancel(&container_of(t, struct idle_watch, task)->sleep);
}

static const struct task_kind idle_watch_kind = {"idle", idle_watch_poll, idle_watch_drop};

static void bytes_put_the_end_off(void **state)
{
    struct idle_watch w = {.closes_at = START + 60 * S};
    task_spawn(&sched, &w.task, &idle_watch_kind);
    virtual_run_until(&sched, START + 59 * S);
    idle_watch_on_bytes(&w, START + 59 * S);
    virtual_run_until(&sched, START + 118 * S);
    assert_false(w.is_closed);
    assert_int_equal(virtual_run(&sched), START + 119 * S);
    assert_true(w.is_closed);
}

/* doc: interval */
/* Probes an endpoint every ten seconds, however long the core was busy in between. */
struct prober {
    struct task task;
    struct interval interval;
    unsigned probes;
};

static enum poll prober_poll(struct task *t)
{
    struct prober *p = container_of(t, struct prober, task);
    while (future_poll(&p->interval.f, t) == POLL_READY) {
        p->probes++;
        interval_next(&p->interval);
    }
    return POLL_PENDING;
}
/* doc end */

static void prober_drop(struct task *t)
{
    future_drop(&container_of(t, struct prober, task)->interval.f);
}

static const struct task_kind prober_kind = {"prober", prober_poll, prober_drop};

static void missed_ticks_are_left_out(void **state)
{
    struct prober p = {.probes = 0};
    interval_init(&p.interval, START, 10 * S, INTERVAL_SKIP);
    task_spawn(&sched, &p.task, &prober_kind);
    virtual_run_until(&sched, START + 20 * S);
    assert_int_equal(p.probes, 3);
    sched_step(&sched, START + 55 * S); /* the core was elsewhere for 35 s */
    assert_int_equal(p.probes, 4);
    assert_int_equal(p.interval.skipped, 2);
    virtual_run_until(&sched, START + 60 * S);
    assert_int_equal(p.probes, 5);
    task_abort(&p.task);
}

/* A try of an exchange under the exchange's own deadline. */
struct
try {
    struct join_task task;
    struct join_handle handle;
    struct call call;
    struct timeout timeout;
};

static const struct join_kind try_kind = {.task = {JOIN_TASK("try")}};

static void a_try_gets_no_more_than_its_request_has(void **state)
{
    static struct try x;
    uint64_t now = START, request_deadline = START + 25 * MS, try_ns = 40 * MS;
    call_init(&x.call, 200 * MS, 0);
    /* doc: timeout */
    timeout_init(&x.timeout, &x.call.f,
                 deadline_min(request_deadline, deadline_after(now, try_ns)));
    join_spawn(&sched, &x.task, &try_kind, &x.timeout.f, &x.handle);
    /* doc end */
    assert_int_equal(virtual_run(&sched), START + 25 * MS);
    assert_int_equal(x.timeout.f.status, -ETIMEDOUT);
    assert_true(x.timeout.is_expired);
    assert_int_equal(join_outcome(&x.handle), JOIN_FAILED);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(bytes_put_the_end_off, set_up, tear_down),
        cmocka_unit_test_setup_teardown(missed_ticks_are_left_out, set_up, tear_down),
        cmocka_unit_test_setup_teardown(a_try_gets_no_more_than_its_request_has, set_up, tear_down),
    };
    return cmocka_run_group_tests_name("time", tests, NULL, NULL);
}
