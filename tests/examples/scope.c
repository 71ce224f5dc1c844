#include "tests/examples/virtual.h"

#include <errno.h>

#include "runtime/scope.h"

static struct sched sched;

/* doc: member */
/* A connection of a listener: finishes its request when the listener drains. */
struct connection {
    struct task task;
    struct scope_member in;
    struct scope *listener;
    struct sleep request; /* what it is at */
    uint64_t request_ends;
};

static enum poll connection_poll(struct task *t)
{
    struct connection *c = container_of(t, struct connection, task);
    if (task_now(t) < c->request_ends) {
        sleep_arm(&c->request, t, c->request_ends);
        return POLL_PENDING;
    }
    return scope_is_cancelled(c->listener) ? POLL_READY : POLL_PENDING;
}

static void connection_drop(struct task *t)
{
    struct connection *c = container_of(t, struct connection, task);
    sleep_cancel(&c->request);
    scope_leave(&c->in);
}
/* doc end */

static const struct task_kind connection_kind = {"connection", connection_poll, connection_drop};

/* doc: drain */
/* Asks all to end, waits for the last one, and has patience up to a deadline. */
struct drain {
    struct task task;
    struct scope *listener;
    struct wait_node node;
    struct sleep patience;
    uint64_t deadline;
};

static enum poll drain_poll(struct task *t)
{
    struct drain *d = container_of(t, struct drain, task);
    scope_cancel(d->listener);
    if (task_now(t) >= d->deadline)
        scope_abort(d->listener);
    if (scope_wait_poll(d->listener, &d->node, t) == POLL_READY)
        return POLL_READY;
    sleep_arm(&d->patience, t, d->deadline);
    return POLL_PENDING;
}

static void drain_drop(struct task *t)
{
    struct drain *d = container_of(t, struct drain, task);
    wait_cancel(&d->node);
    sleep_cancel(&d->patience);
}
/* doc end */

static const struct task_kind drain_kind = {"drain", drain_poll, drain_drop};

static void connect(struct connection *c, struct scope *listener, uint64_t request_ends)
{
    *c = (struct connection){.listener = listener, .request_ends = request_ends};
    task_spawn(&sched, &c->task, &connection_kind);
    assert_int_equal(scope_join(listener, &c->in, &c->task), 0);
}

static void a_drain_waits_for_requests_and_then_no_longer(void **state)
{
    struct scope all, listener;
    struct connection idle, quick, slow, late = {.listener = &listener};
    struct drain drain = {.listener = &listener, .deadline = START + 100 * MS};
    sched_init(&sched, &(struct sched_opts){.now = START});
    scope_init(&all, NULL);
    scope_init(&listener, &all);
    connect(&idle, &listener, START);
    connect(&quick, &listener, START + 30 * MS);
    connect(&slow, &listener, START + 60 * S);
    task_spawn(&sched, &drain.task, &drain_kind);

    virtual_run_until(&sched, START + 1);
    assert_int_equal(scope_live(&listener), 2); /* the idle one went at once */
    assert_int_equal(scope_join(&listener, &late.in, &late.task), -ECANCELED);
    virtual_run_until(&sched, START + 99 * MS);
    assert_int_equal(scope_live(&all), 1);
    assert_int_equal(virtual_run(&sched), START + 100 * MS);
    assert_false(task_is_live(&drain.task));

    scope_fini(&listener);
    scope_fini(&all);
    sched_fini(&sched);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_drain_waits_for_requests_and_then_no_longer),
    };
    return cmocka_run_group_tests_name("scope", tests, NULL, NULL);
}
