/* A task's end as a future, and several futures in one task. */
#include <errno.h>
#include <stdlib.h>

#include "runtime/join.h"
#include "runtime/delay.h"
#include "tests/kit/puppet.h"

#define START 314159265ull

static struct sched sched;
static struct transcript said;

static int set_up(void **state)
{
    (void)state;
    sched_init(&sched, &(struct sched_opts){.now = START});
    said = (struct transcript){0};
    return 0;
}

/* --- several futures in one task --- */

static struct puppet puppets[JOIN_MAX];
static struct future *all[JOIN_MAX];

static void puppets_init(unsigned n)
{
    for (unsigned i = 0; i < n; i++) {
        puppet_init(&puppets[i], (char)('a' + i), &said);
        all[i] = &puppets[i].f;
    }
}

static void join_is_ready_with_the_last_and_polls_only_what_is_left(void **state)
{
    (void)state;
    struct join j;
    struct driver d;
    puppets_init(3);
    join_init(&j, all, 3);
    drive(&d, &sched, &j.f);
    settle(&sched);
    assert_transcript(&said, "abc");
    puppet_finish(&puppets[1], 0);
    settle(&sched);
    assert_transcript(&said, "aBc");
    puppet_finish(&puppets[2], 0);
    puppet_finish(&puppets[0], 0);
    settle(&sched);
    assert_transcript(&said, "AC");
    assert_true(d.is_ready);
    assert_int_equal(j.f.status, 0);
    future_drop(&j.f);
    assert_transcript(&said, "");
    sched_fini(&sched);
}

static void join_goes_on_past_a_failure_and_tells_the_lowest(void **state)
{
    (void)state;
    struct join j;
    struct driver d;
    puppets_init(3);
    join_init(&j, all, 3);
    drive(&d, &sched, &j.f);
    settle(&sched);
    puppet_finish(&puppets[2], -EPIPE);
    settle(&sched);
    assert_false(d.is_ready);
    puppet_finish(&puppets[1], -ENOSPC);
    puppet_finish(&puppets[0], 0);
    settle(&sched);
    assert_true(d.is_ready);
    assert_int_equal(j.f.status, -ENOSPC);
    assert_int_equal(j.failed, 1);
    assert_int_equal(puppets[2].f.status, -EPIPE);
    sched_fini(&sched);
}

static void try_join_drops_the_rest_at_the_first_failure(void **state)
{
    (void)state;
    struct join j;
    struct driver d;
    unsigned permits = 0;
    puppets_init(4);
    for (unsigned i = 0; i < 4; i++)
        puppets[i].permits = &permits;
    try_join_init(&j, all, 4);
    drive(&d, &sched, &j.f);
    settle(&sched);
    assert_transcript(&said, "abcd");
    assert_int_equal(permits, 4);
    puppet_finish(&puppets[0], 0);
    settle(&sched);
    assert_transcript(&said, "Abcd");
    puppet_finish(&puppets[2], -EIO);
    puppet_finish(&puppets[3], -EPIPE); /* in the same poll: not looked at any more */
    settle(&sched);
    assert_transcript(&said, "bC!b");
    assert_true(d.is_ready);
    assert_int_equal(j.f.status, -EIO);
    assert_int_equal(j.failed, 2);
    assert_int_equal(permits, 0);
    assert_null(puppets[1].waiter);
    sched_fini(&sched);
}

static void try_join_of_good_ones_is_a_join(void **state)
{
    (void)state;
    struct join j;
    struct driver d;
    puppets_init(JOIN_MAX);
    try_join_init(&j, all, JOIN_MAX);
    drive(&d, &sched, &j.f);
    for (unsigned i = 0; i < JOIN_MAX; i++) {
        settle(&sched);
        assert_false(d.is_ready);
        puppet_finish(&puppets[JOIN_MAX - 1 - i], 0);
    }
    settle(&sched);
    assert_true(d.is_ready);
    assert_int_equal(j.f.status, 0);
    sched_fini(&sched);
}

static void nothing_to_wait_for_is_ready_at_once(void **state)
{
    (void)state;
    struct join a, b, both;
    struct driver d;
    struct future *of[] = {&a.f, &b.f};
    join_init(&a, NULL, 0);
    try_join_init(&b, NULL, 0);
    join_init(&both, of, 2);
    drive(&d, &sched, &both.f);
    settle(&sched);
    assert_true(d.is_ready);
    assert_int_equal(both.f.status, 0);
    sched_fini(&sched);
}

static void dropping_a_join_drops_what_it_drives_at_any_depth(void **state)
{
    (void)state;
    struct join inner, outer;
    struct driver d;
    unsigned permits = 0;
    puppets_init(4);
    for (unsigned i = 0; i < 4; i++)
        puppets[i].permits = &permits;
    struct future *of[] = {&puppets[3].f, &inner.f};
    try_join_init(&inner, all, 3);
    join_init(&outer, of, 2);
    drive(&d, &sched, &outer.f);
    settle(&sched);
    puppet_finish(&puppets[1], 0);
    settle(&sched);
    assert_transcript(&said, "dabcdaBc");
    task_abort(&d.task);
    assert_transcript(&said, "!d!a!c");
    assert_int_equal(permits, 0);
    future_drop(&outer.f);
    assert_transcript(&said, "");
    sched_fini(&sched);
}

static void one_finished_before_counts(void **state)
{
    (void)state;
    struct join j;
    struct driver first, d;
    puppets_init(2);
    drive(&first, &sched, all[1]);
    puppet_finish(&puppets[1], -EPERM);
    settle(&sched);
    assert_true(first.is_ready);
    try_join_init(&j, all, 2);
    drive(&d, &sched, &j.f);
    settle(&sched);
    assert_transcript(&said, "Ba!a");
    assert_int_equal(j.f.status, -EPERM);
    assert_int_equal(j.failed, 1);
    sched_fini(&sched);
}

/* --- a task and its handle --- */

struct child {
    struct join_task join;
    struct puppet root;
};

static void child_release(struct join_task *j)
{
    struct child *c = container_of(j, struct child, join);
    puppet_say(&c->root, "~", c->root.name);
}

static const struct join_kind child_kind = {.task = {JOIN_TASK("child")}, .release = child_release};

static void spawn(struct child *c, char name, struct join_handle *ret_h)
{
    *c = (struct child){0};
    puppet_init(&c->root, name, &said);
    join_spawn(&sched, &c->join, &child_kind, &c->root.f, ret_h);
}

static void assert_ended(const struct join_handle *h, const struct driver *d, enum join_outcome o,
                         int status)
{
    assert_string_equal(join_outcome_text(join_outcome(h)), join_outcome_text(o));
    assert_true(d->is_ready);
    assert_int_equal(h->f.status, status);
}

static void handle_brings_the_status(void **state)
{
    (void)state;
    static const struct {
        int status;
        enum join_outcome outcome;
    } table[] = {{0, JOIN_DONE}, {-EPIPE, JOIN_FAILED}, {-ECANCELED, JOIN_FAILED}};
    for (unsigned i = 0; i < 3; i++) {
        struct child c;
        struct join_handle h;
        struct driver d;
        spawn(&c, 'c', &h);
        drive(&d, &sched, &h.f);
        settle(&sched);
        assert_false(d.is_ready);
        assert_int_equal(join_outcome(&h), JOIN_RUNNING);
        puppet_finish(&c.root, table[i].status);
        settle(&sched);
        assert_ended(&h, &d, table[i].outcome, table[i].status);
        assert_int_equal(d.polls, 2);
        assert_transcript(&said, "cC~c");
    }
    assert_string_equal(join_outcome_text(JOIN_CANCELLED), "cancelled");
    assert_string_equal(join_outcome_text((enum join_outcome)99), "unknown");
    sched_fini(&sched);
}

static void abort_gives_back_before_anyone_learns(void **state)
{
    (void)state;
    struct child c;
    struct join_handle h;
    struct driver d;
    unsigned permits = 0;
    spawn(&c, 'c', &h);
    c.root.permits = &permits;
    drive(&d, &sched, &h.f);
    settle(&sched);
    assert_int_equal(permits, 1);
    join_abort(&h);
    assert_transcript(&said, "c!c~c");
    assert_int_equal(permits, 0);
    assert_false(d.is_ready);
    assert_int_equal(join_outcome(&h), JOIN_CANCELLED);
    join_abort(&h);
    settle(&sched);
    assert_ended(&h, &d, JOIN_CANCELLED, -ECANCELED);
    assert_transcript(&said, "");
    sched_fini(&sched);
}

static void abort_before_the_first_poll_drops_a_future_never_polled(void **state)
{
    (void)state;
    struct child c;
    struct join_handle h;
    struct driver d;
    spawn(&c, 'c', &h);
    join_abort(&h);
    assert_transcript(&said, "!c~c");
    drive(&d, &sched, &h.f);
    settle(&sched);
    assert_ended(&h, &d, JOIN_CANCELLED, -ECANCELED);
    assert_int_equal(c.root.polls, 0);
    sched_fini(&sched);
}

/* A future that aborts its own task through the handle, then finishes or not. */
struct suicide {
    struct future f;
    struct join_handle *handle;
    enum poll result;
    bool was_dropped_inside, is_dropped;
};

static enum poll suicide_poll(struct future *f, struct task *t)
{
    struct suicide *s = (struct suicide *)f;
    join_abort(s->handle);
    s->was_dropped_inside = s->is_dropped || !task_is_live(t);
    f->status = -EDOM;
    return s->result;
}

static void suicide_drop(struct future *f)
{
    ((struct suicide *)f)->is_dropped = true;
}

static const struct future_kind suicide_kind = {"suicide", suicide_poll, suicide_drop};
static const struct join_kind plain_kind = {.task = {JOIN_TASK("plain")}};

static void abort_of_the_running_task_waits_for_its_poll_which_may_still_finish(void **state)
{
    (void)state;
    static const struct {
        enum poll result;
        enum join_outcome outcome;
        int status;
    } table[] = {{POLL_PENDING, JOIN_CANCELLED, -ECANCELED}, {POLL_READY, JOIN_FAILED, -EDOM}};
    for (unsigned i = 0; i < 2; i++) {
        struct join_task j = {0};
        struct join_handle h;
        struct driver d;
        struct suicide s = {.handle = &h, .result = table[i].result};
        future_init(&s.f, &suicide_kind);
        join_spawn(&sched, &j, &plain_kind, &s.f, &h);
        drive(&d, &sched, &h.f);
        settle(&sched);
        assert_false(s.was_dropped_inside);
        assert_int_equal(s.is_dropped, table[i].result == POLL_PENDING);
        assert_ended(&h, &d, table[i].outcome, table[i].status);
    }
    sched_fini(&sched);
}

static void dropping_a_handle_aborts_and_detach_lets_go(void **state)
{
    (void)state;
    struct child dropped, detached;
    struct join_handle h, g;
    spawn(&dropped, 'x', &h);
    spawn(&detached, 'y', &g);
    settle(&sched);
    assert_transcript(&said, "xy");
    future_drop(&h.f);
    future_drop(&h.f);
    assert_transcript(&said, "!x~x");
    join_detach(&g);
    future_drop(&g.f);
    join_abort(&g);
    assert_transcript(&said, "");
    assert_int_equal(sched.stats.live, 1);
    memset(&g, 0x5a, sizeof(g)); /* nobody looks at it any more */
    puppet_finish(&detached.root, 0);
    settle(&sched);
    assert_transcript(&said, "Y~y");
    sched_fini(&sched);
}

static void a_parent_takes_its_children_along(void **state)
{
    (void)state;
    struct child c[3];
    struct join_handle h[3];
    struct future *of[] = {&h[0].f, &h[1].f, &h[2].f};
    struct join j;
    struct driver d;
    for (unsigned i = 0; i < 3; i++)
        spawn(&c[i], (char)('a' + i), &h[i]);
    try_join_init(&j, of, 3);
    drive(&d, &sched, &j.f);
    settle(&sched);
    assert_transcript(&said, "abc");
    puppet_finish(&c[1].root, -EHOSTUNREACH);
    settle(&sched);
    assert_transcript(&said, "B~b!a~a!c~c");
    assert_int_equal(j.f.status, -EHOSTUNREACH);
    assert_int_equal(sched.stats.live, 0);
    sched_fini(&sched);
}

struct heap_child {
    struct join_task join;
    struct puppet root;
};

static void heap_release(struct join_task *j)
{
    free(container_of(j, struct heap_child, join));
}

static const struct join_kind heap_kind = {.task = {JOIN_TASK("heap")}, .release = heap_release};

static void task_and_handle_outlive_each_other(void **state)
{
    (void)state;
    for (unsigned finish = 0; finish < 2; finish++) {
        for (unsigned keep = 0; keep < 2; keep++) {
            struct heap_child *c = calloc(1, sizeof(*c));
            struct join_handle *h = malloc(sizeof(*h));
            puppet_init(&c->root, 'h', NULL);
            join_spawn(&sched, &c->join, &heap_kind, &c->root.f, h);
            settle(&sched);
            if (keep) {
                join_detach(h);
                free(h);
            }
            if (finish)
                puppet_finish(&c->root, 0);
            else
                task_abort(&c->join.task);
            settle(&sched);
            assert_int_equal(sched.stats.live, 0);
            if (!keep) {
                assert_int_equal(join_outcome(h), finish ? JOIN_DONE : JOIN_CANCELLED);
                future_drop(&h->f);
                free(h);
            }
        }
    }
    sched_fini(&sched);
}

/* The root holds the handle of its own task: a cycle that its drop opens. */
struct loop {
    struct future f;
    struct join_handle *own;
};

static enum poll loop_poll(struct future *f, struct task *t)
{
    (void)f;
    (void)t;
    return POLL_PENDING;
}

static void loop_drop(struct future *f)
{
    future_drop(&((struct loop *)f)->own->f);
}

static const struct future_kind loop_kind = {"loop", loop_poll, loop_drop};

static void handle_dropped_by_its_own_task_is_left_alone(void **state)
{
    (void)state;
    struct join_task j = {0};
    struct join_handle h;
    struct loop l = {.own = &h};
    future_init(&l.f, &loop_kind);
    join_spawn(&sched, &j, &plain_kind, &l.f, &h);
    settle(&sched);
    task_abort(&j.task);
    assert_int_equal(sched.stats.live, 0);
    assert_int_equal(sched.stats.aborted, 1);
    assert_true(future_is_done(&h.f));
    assert_int_equal(join_outcome(&h), JOIN_RUNNING);
    sched_fini(&sched);
}

static void what_is_left_at_the_end_is_cancelled(void **state)
{
    (void)state;
    struct child c;
    struct join_handle h;
    spawn(&c, 'c', &h);
    settle(&sched);
    sched_fini(&sched);
    assert_transcript(&said, "c!c~c");
    assert_int_equal(join_outcome(&h), JOIN_CANCELLED);
}

static void handle_may_change_hands(void **state)
{
    (void)state;
    struct child c;
    struct join_handle h;
    struct driver a, b;
    spawn(&c, 'c', &h);
    drive(&a, &sched, &h.f);
    settle(&sched);
    a.is_ready = true; /* so that its drop leaves the handle alone */
    task_abort(&a.task);
    drive(&b, &sched, &h.f);
    settle(&sched);
    memset(&a, 0x5a, sizeof(a));
    puppet_finish(&c.root, 0);
    settle(&sched);
    assert_true(b.is_ready);
    sched_fini(&sched);
}

#define story(f) cmocka_unit_test_setup(f, set_up)

int main(void)
{
    const struct CMUnitTest tests[] = {
        story(join_is_ready_with_the_last_and_polls_only_what_is_left),
        story(join_goes_on_past_a_failure_and_tells_the_lowest),
        story(try_join_drops_the_rest_at_the_first_failure),
        story(try_join_of_good_ones_is_a_join),
        story(nothing_to_wait_for_is_ready_at_once),
        story(dropping_a_join_drops_what_it_drives_at_any_depth),
        story(one_finished_before_counts),
        story(handle_brings_the_status),
        story(abort_gives_back_before_anyone_learns),
        story(abort_before_the_first_poll_drops_a_future_never_polled),
        story(abort_of_the_running_task_waits_for_its_poll_which_may_still_finish),
        story(dropping_a_handle_aborts_and_detach_lets_go),
        story(a_parent_takes_its_children_along),
        story(task_and_handle_outlive_each_other),
        story(handle_dropped_by_its_own_task_is_left_alone),
        story(what_is_left_at_the_end_is_cancelled),
        story(handle_may_change_hands),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
