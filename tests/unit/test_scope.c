#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <errno.h>

#include <cmocka.h>

#include "runtime/sched.h"
#include "runtime/scope.h"
#include "tests/kit/puppet.h"

#define START 271828182ull

static struct sched sched;

/* Lives until its scope is cancelled, then takes `linger` more polls to finish. */
struct member {
    struct task task;
    struct scope_member in;
    struct scope *scope;
    struct scope *aborts; /* at its second poll */
    unsigned linger, polls, drops;
};

static enum poll member_poll(struct task *t)
{
    struct member *m = container_of(t, struct member, task);
    m->polls++;
    if (m->aborts && m->polls == 2)
        scope_abort(m->aborts);
    if (!scope_is_cancelled(m->scope))
        return POLL_PENDING;
    if (m->linger == 0)
        return POLL_READY;
    m->linger--;
    task_yield(t);
    return POLL_PENDING;
}

static void member_drop(struct task *t)
{
    struct member *m = container_of(t, struct member, task);
    m->drops++;
    scope_leave(&m->in);
}

static const struct task_kind member_kind = {"member", member_poll, member_drop};

static void start(struct member *m, struct scope *s)
{
    *m = (struct member){.scope = s};
    task_spawn(&sched, &m->task, &member_kind);
    assert_int_equal(scope_join(s, &m->in, &m->task), 0);
}

/* Waits until all tasks of a scope are gone. */
struct watcher {
    struct task task;
    struct wait_node node;
    struct scope *scope;
    bool done;
};

static enum poll watcher_poll(struct task *t)
{
    struct watcher *w = container_of(t, struct watcher, task);
    enum poll p = scope_wait_poll(w->scope, &w->node, t);
    w->done = p == POLL_READY;
    return p;
}

static void watcher_drop(struct task *t)
{
    wait_cancel(&container_of(t, struct watcher, task)->node);
}

static const struct task_kind watcher_kind = {"watcher", watcher_poll, watcher_drop};

static void watch(struct watcher *w, struct scope *s)
{
    *w = (struct watcher){.scope = s};
    task_spawn(&sched, &w->task, &watcher_kind);
}

static int set_up(void **state)
{
    (void)state;
    sched_init(&sched, &(struct sched_opts){.now = START});
    return 0;
}

static void step(void)
{
    sched_step(&sched, START);
}

static void cancel_wakes_members_and_tracker_waits_for_the_last(void **state)
{
    (void)state;
    struct scope s;
    struct member a, b;
    struct watcher w;
    scope_init(&s, NULL);
    start(&a, &s);
    start(&b, &s);
    watch(&w, &s);
    b.linger = 2;
    step();
    assert_int_equal(scope_live(&s), 2);
    scope_cancel(&s);
    scope_cancel(&s);
    step();
    assert_int_equal(a.drops, 1);
    assert_int_equal(scope_live(&s), 1);
    assert_false(w.done);
    step();
    assert_false(w.done);
    step();
    assert_int_equal(b.drops, 1);
    assert_true(w.done);
    scope_fini(&s);
    sched_fini(&sched);
}

static void empty_scope_is_ready_at_once(void **state)
{
    (void)state;
    struct scope s;
    struct watcher w;
    scope_init(&s, NULL);
    watch(&w, &s);
    step();
    assert_true(w.done);
    scope_fini(&s);
    sched_fini(&sched);
}

static void cancel_goes_down_not_up(void **state)
{
    (void)state;
    struct scope root, mid, leaf, other;
    struct member in_root, in_leaf, in_other;
    scope_init(&root, NULL);
    scope_init(&mid, &root);
    scope_init(&leaf, &mid);
    scope_init(&other, &root);
    start(&in_root, &root);
    start(&in_leaf, &leaf);
    start(&in_other, &other);
    assert_int_equal(scope_live(&root), 3);
    assert_int_equal(scope_live(&mid), 1);
    step();
    scope_cancel(&mid);
    step();
    assert_int_equal(in_leaf.drops, 1);
    assert_int_equal(in_root.drops + in_other.drops, 0);
    assert_int_equal(scope_live(&root), 2);
    scope_cancel(&root);
    step();
    assert_int_equal(in_root.drops + in_other.drops, 2);
    scope_fini(&leaf);
    scope_fini(&mid);
    scope_fini(&other);
    scope_fini(&root);
    sched_fini(&sched);
}

static void nobody_joins_a_cancelled_scope(void **state)
{
    (void)state;
    struct scope root, late;
    struct scope_member m = {0};
    struct task t = {0};
    scope_init(&root, NULL);
    scope_cancel(&root);
    assert_int_equal(scope_join(&root, &m, &t), -ECANCELED);
    scope_leave(&m);
    scope_init(&late, &root);
    assert_true(scope_is_cancelled(&late));
    assert_int_equal(scope_join(&late, &m, &t), -ECANCELED);
    scope_fini(&late);
    scope_fini(&root);
    sched_fini(&sched);
}

static void abort_drops_every_member_below(void **state)
{
    (void)state;
    struct scope root, kids[3];
    struct member m[7];
    scope_init(&root, NULL);
    start(&m[0], &root);
    for (unsigned i = 0; i < 3; i++) {
        scope_init(&kids[i], &root);
        start(&m[1 + 2 * i], &kids[i]);
        start(&m[2 + 2 * i], &kids[i]);
    }
    step();
    scope_abort(&root);
    scope_abort(&root);
    for (unsigned i = 0; i < 7; i++)
        assert_int_equal(m[i].drops, 1);
    assert_int_equal(scope_live(&root), 0);
    for (unsigned i = 0; i < 3; i++)
        scope_fini(&kids[i]);
    scope_fini(&root);
    sched_fini(&sched);
}

static void member_may_abort_its_own_scope(void **state)
{
    (void)state;
    struct scope s;
    struct member a, b;
    struct watcher w;
    scope_init(&s, NULL);
    start(&a, &s);
    start(&b, &s);
    watch(&w, &s);
    a.aborts = &s;
    a.linger = 5;
    step();
    task_wake(&a.task);
    step();
    assert_int_equal(a.drops, 1); /* after its poll, though it would have lingered */
    assert_int_equal(b.drops, 1);
    assert_int_equal(b.polls, 1);
    assert_true(w.done);
    scope_fini(&s);
    sched_fini(&sched);
}

static void closed_scope_takes_nobody_and_lets_its_members_finish(void **state)
{
    (void)state;
    struct scope root, leaf;
    struct scope_member late = {0};
    struct task t = {0};
    struct member a;
    struct scope_wait wait;
    struct driver d;
    scope_init(&root, NULL);
    scope_init(&leaf, &root);
    start(&a, &leaf);
    scope_wait_init(&wait, &root);
    drive(&d, &sched, &wait.f);
    settle(&sched);
    scope_close(&root);
    scope_close(&root);
    assert_true(scope_is_closed(&leaf));
    assert_false(scope_is_cancelled(&leaf));
    assert_int_equal(scope_join(&leaf, &late, &t), -ESHUTDOWN);
    assert_int_equal(scope_join(&root, &late, &t), -ESHUTDOWN);
    scope_leave(&late);
    settle(&sched);
    assert_int_equal(a.polls, 1); /* closing disturbs nobody */
    assert_false(d.is_ready);
    task_abort(&a.task);
    settle(&sched);
    assert_true(d.is_ready);
    scope_fini(&leaf);
    scope_fini(&root);
    sched_fini(&sched);
}

static void closing_below_leaves_what_is_above_open(void **state)
{
    (void)state;
    struct scope root, leaf;
    struct member a;
    scope_init(&root, NULL);
    scope_init(&leaf, &root);
    scope_close(&leaf);
    assert_false(scope_is_closed(&root));
    start(&a, &root);
    scope_abort(&root);
    assert_int_equal(a.drops, 1);
    scope_fini(&leaf);
    scope_fini(&root);
    sched_fini(&sched);
}

static void strangers_can_wait_for_the_cancel(void **state)
{
    (void)state;
    struct scope root, kids[2];
    struct scope_cancelled c[4];
    struct driver d[4];
    scope_init(&root, NULL);
    scope_init(&kids[0], &root);
    scope_init(&kids[1], &root);
    scope_cancelled_init(&c[0], &root);
    scope_cancelled_init(&c[1], &kids[0]);
    scope_cancelled_init(&c[2], &kids[0]);
    scope_cancelled_init(&c[3], &kids[1]);
    for (unsigned i = 0; i < 4; i++)
        drive(&d[i], &sched, &c[i].f);
    settle(&sched);
    task_abort(&d[2].task); /* gives its place up */
    scope_cancel(&kids[0]);
    settle(&sched);
    assert_true(d[1].is_ready);
    assert_false(d[0].is_ready || d[2].is_ready || d[3].is_ready);
    scope_cancel(&root);
    settle(&sched);
    assert_true(d[0].is_ready && d[3].is_ready);
    assert_int_equal(d[2].polls, 1);
    drive(&d[2], &sched, &c[2].f);
    scope_cancelled_init(&c[2], &kids[1]); /* one that is cancelled already */
    settle(&sched);
    assert_true(d[2].is_ready);
    assert_int_equal(d[2].polls, 1);
    scope_fini(&kids[0]);
    scope_fini(&kids[1]);
    scope_fini(&root);
    sched_fini(&sched);
}

static void a_wait_that_is_dropped_gives_its_place_up(void **state)
{
    (void)state;
    struct scope s;
    struct member a;
    struct scope_wait wait;
    struct driver d;
    scope_init(&s, NULL);
    start(&a, &s);
    scope_wait_init(&wait, &s);
    drive(&d, &sched, &wait.f);
    settle(&sched);
    task_abort(&d.task);
    task_abort(&a.task);
    scope_fini(&s);
    sched_fini(&sched);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(cancel_wakes_members_and_tracker_waits_for_the_last, set_up),
        cmocka_unit_test_setup(empty_scope_is_ready_at_once, set_up),
        cmocka_unit_test_setup(cancel_goes_down_not_up, set_up),
        cmocka_unit_test_setup(nobody_joins_a_cancelled_scope, set_up),
        cmocka_unit_test_setup(abort_drops_every_member_below, set_up),
        cmocka_unit_test_setup(member_may_abort_its_own_scope, set_up),
        cmocka_unit_test_setup(closed_scope_takes_nobody_and_lets_its_members_finish, set_up),
        cmocka_unit_test_setup(closing_below_leaves_what_is_above_open, set_up),
        cmocka_unit_test_setup(strangers_can_wait_for_the_cancel, set_up),
        cmocka_unit_test_setup(a_wait_that_is_dropped_gives_its_place_up, set_up),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
