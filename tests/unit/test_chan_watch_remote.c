#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <errno.h>
#include <pthread.h>
#include <stdlib.h>

#include <cmocka.h>

#include "runtime/chan_watch_remote.h"
#include "runtime/rng.h"
#include "tests/kit/core_rig.h"
#include "tests/kit/future_task.h"

#define READERS 3 /* each a core */

struct setting {
    struct watch_value watch;
    uint64_t n, twice;
};

static struct core_rig cores[READERS];
static struct watch_reader readers[READERS];
static struct rte_rcu_qsbr *qsbr;
static struct watch_remote w;
static unsigned freed;
static uint64_t last_freed;

static struct watch_value *setting(uint64_t n)
{
    struct setting *s = malloc(sizeof(*s));
    *s = (struct setting){.n = n, .twice = 2 * n};
    return &s->watch;
}

static void free_setting(struct watch_value *v)
{
    struct setting *s = container_of(v, struct setting, watch);
    freed++;
    last_freed = s->n;
    free(s);
}

static uint64_t read_setting(const struct watch_value *v)
{
    const struct setting *s = container_of(v, struct setting, watch);
    if (s->twice != 2 * s->n || s->n != v->version)
        abort();
    return s->n;
}

static int set_up(void **state)
{
    (void)state;
    struct mailbox *mailboxes[READERS];
    for (unsigned i = 0; i < READERS; i++) {
        if (core_rig_init(&cores[i]) != 0)
            return -1;
        mailboxes[i] = &cores[i].mailbox;
    }
    freed = 0;
    qsbr = qsbr_new(READERS);
    struct watch_remote_opts o = {.first = setting(1),
                                  .qsbr = qsbr,
                                  .readers = readers,
                                  .mailboxes = mailboxes,
                                  .nreaders = READERS,
                                  .free = free_setting};
    watch_remote_init(&w, &o);
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    for (unsigned i = 0; i < READERS; i++) {
        core_rig_stop(&cores[i]);
        rte_rcu_qsbr_thread_offline(qsbr, i);
    }
    core_rigs_settle(cores, READERS);
    watch_remote_fini(&w);
    qsbr_free(qsbr);
    for (unsigned i = 0; i < READERS; i++)
        core_rig_fini(&cores[i]);
    return 0;
}

struct waiter {
    struct future_task task;
    struct watch_remote_changed changed;
};

static void start(struct waiter *r, unsigned core)
{
    watch_remote_changed_init(&r->changed, &readers[core]);
    future_task_spawn(&cores[core].sched, &r->task, &r->changed.future);
    core_rig_step(&cores[core]);
}

static void old_values_go_when_every_reader_has_said_so(void **state)
{
    (void)state;
    rte_rcu_qsbr_thread_online(qsbr, 0);
    rte_rcu_qsbr_thread_online(qsbr, 1); /* the third sleeps all the time */
    struct watch_value *held = watch_remote_get(&w);
    watch_remote_publish(&w, setting(2));
    assert_int_equal(read_setting(held), 1);
    assert_int_equal(read_setting(watch_remote_get(&w)), 2);
    assert_int_equal(watch_remote_reclaim(&w), 1);
    rte_rcu_qsbr_quiescent(qsbr, 0);
    assert_int_equal(watch_remote_reclaim(&w), 1);
    rte_rcu_qsbr_quiescent(qsbr, 1);
    assert_int_equal(watch_remote_reclaim(&w), 0);
    assert_int_equal(freed, 1);
    assert_int_equal(last_freed, 1);
}

static void stuck_reader_holds_memory_but_not_the_writer(void **state)
{
    (void)state;
    rte_rcu_qsbr_thread_online(qsbr, 0);
    for (uint64_t n = 2; n <= 20; n++)
        watch_remote_publish(&w, setting(n));
    assert_int_equal(watch_remote_retired(&w), 19);
    assert_int_equal(freed, 0);
    rte_rcu_qsbr_thread_offline(qsbr, 0); /* as good as a pass that ends */
    watch_remote_publish(&w, setting(21));
    assert_int_equal(freed, 20);
    assert_int_equal(last_freed, 20); /* oldest first */
}

static void change_wakes_those_who_wait_on_any_core(void **state)
{
    (void)state;
    struct waiter a, b, c;
    start(&a, 0);
    start(&b, 0);
    start(&c, 2);
    assert_false(a.task.ready);
    watch_remote_publish(&w, setting(2));
    assert_false(mailbox_is_pending(&cores[1].mailbox)); /* nobody waits there */
    core_rigs_settle(cores, READERS);
    assert_true(a.task.ready && b.task.ready && c.task.ready);
    assert_int_equal(a.task.polls, 2);
    assert_int_equal(c.changed.future.status, 0);
    assert_int_equal(read_setting(c.changed.value), 2);
    watch_remote_publish(&w, setting(3)); /* nobody waits any more */
    assert_false(mailbox_is_pending(&cores[0].mailbox));
}

static void many_changes_are_told_once(void **state)
{
    (void)state;
    struct waiter a;
    start(&a, 0);
    watch_remote_publish(&w, setting(2));
    watch_remote_publish(&w, setting(3));
    core_rigs_settle(cores, READERS);
    assert_int_equal(a.task.polls, 2);
    assert_int_equal(a.changed.seen, 3);
    start(&a, 0);
    core_rigs_settle(cores, READERS);
    assert_false(a.task.ready);
    task_abort(&a.task.task);
}

static void change_before_the_first_poll_is_not_missed(void **state)
{
    (void)state;
    struct waiter a;
    watch_remote_changed_init(&a.changed, &readers[0]);
    watch_remote_publish(&w, setting(2));
    future_task_spawn(&cores[0].sched, &a.task, &a.changed.future);
    core_rig_step(&cores[0]);
    assert_true(a.task.ready);
}

static void dropped_waiter_is_not_woken(void **state)
{
    (void)state;
    struct waiter a, b;
    start(&a, 0);
    start(&b, 0);
    task_abort(&a.task.task);
    watch_remote_publish(&w, setting(2));
    core_rigs_settle(cores, READERS);
    assert_int_equal(a.task.polls, 1);
    assert_true(b.task.ready);
}

static void last_change_comes_before_the_end(void **state)
{
    (void)state;
    struct waiter a, b;
    start(&a, 0);
    watch_remote_publish(&w, setting(2));
    watch_remote_close(&w);
    watch_remote_close(&w);
    core_rigs_settle(cores, READERS);
    assert_int_equal(a.changed.future.status, 0);
    start(&a, 0);
    assert_int_equal(a.changed.future.status, -EPIPE);
    watch_remote_changed_init(&b.changed, &readers[1]);
    b.changed.seen = 0;
    future_task_spawn(&cores[1].sched, &b.task, &b.changed.future);
    core_rig_step(&cores[1]);
    assert_int_equal(b.changed.future.status, 0); /* the value, once asked for */
    assert_int_equal(read_setting(b.changed.value), 2);
}

static void close_wakes_who_waits(void **state)
{
    (void)state;
    struct waiter a;
    start(&a, 1);
    watch_remote_close(&w);
    core_rigs_settle(cores, READERS);
    assert_int_equal(a.changed.future.status, -EPIPE);
}

/* Threads: glancers read all the time, followers sleep until there is a change. */

#define VERSIONS 5000
#define LOCKSTEP 2000

struct follower {
    struct task task;
    struct watch_remote_changed changed;
    uint64_t changes;
    _Atomic uint64_t told; /* the newest it was told */
};

static enum poll follower_poll(struct task *t)
{
    struct follower *f = container_of(t, struct follower, task);
    uint64_t last = f->changed.seen;
    while (watch_remote_changed_poll(&f->changed, t) == POLL_READY) {
        if (f->changed.future.status == -EPIPE)
            return POLL_READY;
        if (read_setting(f->changed.value) <= last)
            abort();
        last = f->changed.seen;
        f->changes++;
        atomic_store(&f->told, last);
    }
    return POLL_PENDING;
}

static void follower_drop(struct task *t)
{
    watch_remote_changed_drop(&container_of(t, struct follower, task)->changed);
}

static const struct task_kind follower_kind = {"follower", follower_poll, follower_drop};

struct glancer {
    struct task task;
    uint64_t glances;
};

static enum poll glancer_poll(struct task *t)
{
    struct glancer *g = container_of(t, struct glancer, task);
    uint64_t first = read_setting(watch_remote_get(&w)), n = first;
    for (unsigned i = 0; i < 20; i++) {
        uint64_t next = read_setting(watch_remote_get(&w));
        if (next < n)
            abort();
        n = next;
        g->glances++;
    }
    if (n == VERSIONS)
        return POLL_READY;
    task_yield(t);
    return POLL_PENDING;
}

static void glancer_drop(struct task *t)
{
    (void)t;
}

static const struct task_kind glancer_kind = {"glancer", glancer_poll, glancer_drop};

/* A core's loop as qsbr.h has it. */
static void *read_on_core(void *arg)
{
    struct core_rig *c = arg;
    unsigned id = (unsigned)(c - cores);
    rte_rcu_qsbr_thread_online(qsbr, id);
    while (c->sched.stats.live > 0) {
        bool any = core_rig_step(c);
        rte_rcu_qsbr_quiescent(qsbr, id);
        if (any || !core_rig_is_idle(c))
            continue;
        rte_rcu_qsbr_thread_offline(qsbr, id);
        core_rig_sleep(c);
        rte_rcu_qsbr_thread_online(qsbr, id);
    }
    rte_rcu_qsbr_thread_offline(qsbr, id);
    return NULL;
}

static pthread_t thread[READERS];
static struct follower follower[READERS];

static void start_followers(void)
{
    for (unsigned i = 0; i < READERS; i++) {
        follower[i] = (struct follower){0};
        watch_remote_changed_init(&follower[i].changed, &readers[i]);
        task_spawn(&cores[i].sched, &follower[i].task, &follower_kind);
    }
    for (unsigned i = 0; i < READERS; i++)
        assert_int_equal(pthread_create(&thread[i], NULL, read_on_core, &cores[i]), 0);
}

static void join_followers(void)
{
    watch_remote_close(&w);
    for (unsigned i = 0; i < READERS; i++)
        pthread_join(thread[i], NULL);
}

static void readers_on_threads_never_see_a_freed_value(void **state)
{
    (void)state;
    struct glancer glancer = {0};
    struct rng rng = {7};
    unsigned most = 0;
    task_spawn(&cores[0].sched, &glancer.task, &glancer_kind);
    start_followers();
    for (uint64_t n = 2; n <= VERSIONS; n++) {
        watch_remote_publish(&w, setting(n));
        most = watch_remote_retired(&w) > most ? watch_remote_retired(&w) : most;
        if (rng_chance(&rng, 50000))
            sched_yield();
    }
    join_followers();
    assert_int_equal(watch_remote_reclaim(&w), 0);
    assert_int_equal(freed, VERSIONS - 1);
    assert_true(most > 0 && glancer.glances > 0);
    for (unsigned i = 0; i < READERS; i++) {
        assert_true(follower[i].changes > 0);
        assert_int_equal(follower[i].changed.seen, VERSIONS);
    }
}

/* Each change comes the moment the last reader has been told of the one before, when it is about to
 * park: nobody sleeps through it. */
static void every_change_reaches_a_reader_about_to_park(void **state)
{
    (void)state;
    start_followers();
    for (uint64_t n = 2; n <= LOCKSTEP; n++) {
        watch_remote_publish(&w, setting(n));
        for (unsigned i = 0; i < READERS; i++)
            while (atomic_load(&follower[i].told) != n)
                sched_yield();
    }
    join_followers();
    for (unsigned i = 0; i < READERS; i++)
        assert_int_equal(follower[i].changes, LOCKSTEP - 1);
}

#define story(f) cmocka_unit_test_setup_teardown(f, set_up, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        story(old_values_go_when_every_reader_has_said_so),
        story(stuck_reader_holds_memory_but_not_the_writer),
        story(change_wakes_those_who_wait_on_any_core),
        story(many_changes_are_told_once),
        story(change_before_the_first_poll_is_not_missed),
        story(dropped_waiter_is_not_woken),
        story(last_change_comes_before_the_end),
        story(close_wakes_who_waits),
        story(every_change_reaches_a_reader_about_to_park),
        story(readers_on_threads_never_see_a_freed_value),
    };
    return cmocka_run_group_tests_name("chan_watch_remote", tests, NULL, NULL);
}
