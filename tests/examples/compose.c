#include "tests/examples/virtual.h"

#include <errno.h>

#include "runtime/join.h"
#include "runtime/join_set.h"
#include "runtime/select.h"
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

/* Several calls as one future, and the task that runs them. */
struct fan_out {
    struct join_task task;
    struct join_handle handle;
    struct call calls[3];
    struct future *of[3];
    struct join all;
    struct select race;
};

static const struct join_kind fan_out_kind = {.task = {JOIN_TASK("fan-out")}};

static void a_join_takes_as_long_as_its_slowest(void **state)
{
    static struct fan_out x;
    /* doc: join */
    for (unsigned i = 0; i < 3; i++) {
        call_init(&x.calls[i], (i + 1) * 10 * MS, i == 1 ? -ECONNRESET : 0);
        x.of[i] = &x.calls[i].f;
    }
    join_init(&x.all, x.of, 3);
    join_spawn(&sched, &x.task, &fan_out_kind, &x.all.f, &x.handle);
    /* doc end */
    assert_int_equal(virtual_run(&sched), START + 30 * MS);
    assert_int_equal(x.all.f.status, -ECONNRESET);
    assert_int_equal(x.all.failed, 1);
    assert_int_equal(join_outcome(&x.handle), JOIN_FAILED);
}

static void a_try_join_ends_at_the_first_failure(void **state)
{
    static struct fan_out x;
    /* doc: try_join */
    for (unsigned i = 0; i < 3; i++) {
        call_init(&x.calls[i], (i + 1) * 10 * MS, i == 1 ? -ECONNRESET : 0);
        x.of[i] = &x.calls[i].f;
    }
    try_join_init(&x.all, x.of, 3);
    join_spawn(&sched, &x.task, &fan_out_kind, &x.all.f, &x.handle);
    /* doc end */
    assert_int_equal(virtual_run(&sched), START + 20 * MS);
    assert_int_equal(x.all.failed, 1);
    assert_false(sleep_is_armed(&x.calls[2].sleep_));
}

static void a_biased_select_prefers_the_first(void **state)
{
    static struct fan_out x;
    /* doc: select */
    enum { GIVE_UP, ANSWER };
    call_init(&x.calls[GIVE_UP], 15 * MS, 0);
    call_init(&x.calls[ANSWER], 30 * MS, 0);
    x.of[GIVE_UP] = &x.calls[GIVE_UP].f;
    x.of[ANSWER] = &x.calls[ANSWER].f;
    select_init_biased(&x.race, x.of, 2);
    join_spawn(&sched, &x.task, &fan_out_kind, &x.race.f, &x.handle);
    /* doc end */
    virtual_run_until(&sched, START + 15 * MS);
    assert_int_equal(join_outcome(&x.handle), JOIN_DONE);
    assert_int_equal(x.race.winner, GIVE_UP);
    future_drop(&x.race.f); /* the loser goes too */
    assert_int_equal(virtual_run(&sched), START + 15 * MS);
}

/* doc: join_set */
/* Asks several endpoints at once and goes with the first that answers well. */
struct inquiry {
    struct join_member member;
    struct call call;
};

struct race {
    struct task task;
    struct join_set set;
    struct join_next next;
    struct inquiry inquiries[4];
    struct inquiry *winner;
};

static const struct join_member_kind inquiry_kind = {.task = {JOIN_MEMBER("inquiry")}};

static enum poll race_poll(struct task *t)
{
    struct race *r = container_of(t, struct race, task);
    while (future_poll(&r->next.f, t) == POLL_READY) {
        struct join_member *m = r->next.member;
        if (!m)
            return POLL_READY; /* all have failed */
        if (m->outcome == JOIN_DONE) {
            r->winner = container_of(m, struct inquiry, member);
            join_set_abort(&r->set);
            return POLL_READY;
        }
        join_next_init(&r->next, &r->set);
    }
    return POLL_PENDING;
}

static void race_drop(struct task *t)
{
    struct race *r = container_of(t, struct race, task);
    future_drop(&r->next.f);
    join_set_fini(&r->set);
}
/* doc end */

static const struct task_kind race_kind = {"race", race_poll, race_drop};

static void a_join_set_yields_in_the_order_of_finishing(void **state)
{
    static const int results[] = {0, -ECONNREFUSED, 0, -ECONNREFUSED};
    static const uint64_t takes[] = {40 * MS, 10 * MS, 20 * MS, 5 * MS};
    static struct race r;
    join_set_init(&r.set);
    join_next_init(&r.next, &r.set);
    for (unsigned i = 0; i < 4; i++) {
        struct inquiry *q = &r.inquiries[i];
        call_init(&q->call, takes[i], results[i]);
        join_set_spawn(&r.set, &sched, &q->member, &inquiry_kind, &q->call.f);
    }
    task_spawn(&sched, &r.task, &race_kind);
    assert_int_equal(virtual_run(&sched), START + 20 * MS);
    assert_ptr_equal(r.winner, &r.inquiries[2]);
    assert_int_equal(r.inquiries[0].member.outcome, JOIN_CANCELLED);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(a_join_takes_as_long_as_its_slowest, set_up, tear_down),
        cmocka_unit_test_setup_teardown(a_try_join_ends_at_the_first_failure, set_up, tear_down),
        cmocka_unit_test_setup_teardown(a_biased_select_prefers_the_first, set_up, tear_down),
        cmocka_unit_test_setup_teardown(a_join_set_yields_in_the_order_of_finishing, set_up,
                                        tear_down),
    };
    return cmocka_run_group_tests_name("compose", tests, NULL, NULL);
}
