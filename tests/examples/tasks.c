#include "tests/examples/virtual.h"

#include <errno.h>

#include "runtime/join.h"
#include "runtime/timer.h"
#include "runtime/wait.h"
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

/* doc: future */
/* A gate that opens once, and the future that waits for it. */
struct gate {
    bool is_open;
    struct wait_list waiting;
};

struct gate_wait {
    struct gate *gate;
    struct wait_node node;
};

static enum poll gate_wait_poll(struct gate_wait *w, struct task *t)
{
    if (w->gate->is_open)
        return POLL_READY;
    wait_park(&w->gate->waiting, &w->node, t);
    return POLL_PENDING;
}

/* Cancel safe: it loses its place in the queue and nothing else. */
static void gate_wait_drop(struct gate_wait *w)
{
    wait_cancel(&w->node);
}

static void gate_open(struct gate *g)
{
    g->is_open = true;
    wait_wake_all(&g->waiting);
}
/* doc end */

/* doc: task */
/* Passes the gate, rests for a while and is done. */
struct visitor {
    struct task task;
    enum { AT_GATE, RESTING } state;
    struct gate_wait wait;
    struct sleep rest;
    uint64_t until;
    bool has_rested;
};

static enum poll visitor_poll(struct task *t)
{
    struct visitor *v = container_of(t, struct visitor, task);
    switch (v->state) {
    case AT_GATE:
        if (gate_wait_poll(&v->wait, t) == POLL_PENDING)
            return POLL_PENDING;
        v->until = task_now(t) + 20 * MS;
        v->state = RESTING;
        /* fall through */
    case RESTING:
        if (task_now(t) < v->until) {
            sleep_arm(&v->rest, t, v->until);
            return POLL_PENDING;
        }
        v->has_rested = true;
    }
    return POLL_READY;
}

/* Whatever state it is in: after the end, on an abort, or when the core goes down. */
static void visitor_drop(struct task *t)
{
    struct visitor *v = container_of(t, struct visitor, task);
    gate_wait_drop(&v->wait);
    sleep_cancel(&v->rest);
}

static const struct task_kind visitor_kind = {"visitor", visitor_poll, visitor_drop};
/* doc end */

static void a_task_passes_its_states(void **state)
{
    struct gate gate = {.is_open = false};
    struct visitor visitor = {.wait = {.gate = &gate}};
    wait_list_init(&gate.waiting);

    /* doc: spawn */
    task_spawn(&sched, &visitor.task, &visitor_kind); /* inert until the next pass */
    sched_step(&sched, START);                        /* it waits at the gate */
    gate_open(&gate);                                 /* wakes it */
    /* doc end */
    assert_int_equal(virtual_run(&sched), START + 20 * MS);
    assert_true(visitor.has_rested);
}

static void an_aborted_task_leaves_nothing_behind(void **state)
{
    struct gate gate = {.is_open = false};
    struct visitor a = {.wait = {.gate = &gate}}, b = a;
    wait_list_init(&gate.waiting);
    task_spawn(&sched, &a.task, &visitor_kind);
    task_spawn(&sched, &b.task, &visitor_kind);
    virtual_run(&sched);
    task_abort(&a.task);
    assert_false(wait_is_parked(&a.wait.node));
    gate_open(&gate);
    virtual_run(&sched);
    assert_false(a.has_rested);
    assert_true(b.has_rested);
}

/* doc: join_task */
/* A probe of an endpoint. */
struct probe {
    struct join_task task;
    struct call call;
};

static const struct join_kind probe_kind = {.task = {JOIN_TASK("probe")}};

static void probe_start(struct probe *p, struct join_handle *ret_handle)
{
    p->task.task.label = "app/10.77.0.2:9000"; /* for stalls and metrics */
    join_spawn(&sched, &p->task, &probe_kind, &p->call.f, ret_handle);
}
/* doc end */

static void a_handle_tells_how_it_ended(void **state)
{
    static struct probe good, bad, slow, lone;
    struct join_handle handle, refused, aborted, left;
    call_init(&good.call, 2 * MS, 0);
    call_init(&bad.call, 1 * MS, -ECONNREFUSED);
    call_init(&slow.call, 60 * S, 0);
    call_init(&lone.call, 3 * MS, 0);
    probe_start(&good, &handle);
    probe_start(&bad, &refused);
    probe_start(&slow, &aborted);
    probe_start(&lone, &left);
    virtual_run_until(&sched, START + 2 * MS);

    assert_int_equal(join_outcome(&handle), JOIN_DONE);
    assert_int_equal(join_outcome(&refused), JOIN_FAILED);
    /* doc: abort */
    join_abort(&aborted); /* its timer is gone when this returns */
    join_detach(&left);   /* nobody waits for it; it goes on */
    /* doc end */
    assert_int_equal(join_outcome(&aborted), JOIN_CANCELLED);
    assert_int_equal(virtual_run(&sched), START + 3 * MS);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(a_task_passes_its_states, set_up, tear_down),
        cmocka_unit_test_setup_teardown(an_aborted_task_leaves_nothing_behind, set_up, tear_down),
        cmocka_unit_test_setup_teardown(a_handle_tells_how_it_ended, set_up, tear_down),
    };
    return cmocka_run_group_tests_name("tasks", tests, NULL, NULL);
}
