/* Results in the order of finishing, from any number of tasks. */
#include <errno.h>
#include <stdlib.h>

#include "runtime/delay.h"
#include "runtime/join_set.h"
#include "runtime/rng.h"
#include "tests/kit/puppet.h"

#define START 314159265ull
#define MS    1000000ull

static struct sched sched;
static struct transcript said;

static int set_up(void **state)
{
    (void)state;
    sched_init(&sched, &(struct sched_opts){.now = START});
    said = (struct transcript){0};
    return 0;
}

struct child {
    struct join_member member;
    struct puppet root;
};

static void child_release(struct join_member *m)
{
    puppet_say(&container_of(m, struct child, member)->root, "~",
               container_of(m, struct child, member)->root.name);
}

static const struct join_member_kind child_kind = {.task = {JOIN_MEMBER("child")},
                                                   .release = child_release};
static const struct join_member_kind plain_kind = {.task = {JOIN_MEMBER("plain")}};

static void spawn(struct join_set *set, struct child *c, char name)
{
    *c = (struct child){0};
    puppet_init(&c->root, name, &said);
    join_set_spawn(set, &sched, &c->member, &child_kind, &c->root.f);
}

/* Takes all there is: name, and how it ended. */
static void take_all(struct join_set *set)
{
    static const char mark[] = {[JOIN_DONE] = '+', [JOIN_FAILED] = '-', [JOIN_CANCELLED] = 'x'};
    struct join_member *m;
    while ((m = join_set_try_next(set)))
        transcript_add(
            &said, (char[]){container_of(m, struct child, member)->root.name, mark[m->outcome], 0});
}

static void members_come_as_they_finish(void **state)
{
    (void)state;
    struct join_set set;
    struct child c[4];
    join_set_init(&set);
    for (unsigned i = 0; i < 4; i++)
        spawn(&set, &c[i], (char)('a' + i));
    settle(&sched);
    assert_transcript(&said, "abcd");
    puppet_finish(&c[2].root, 0);
    settle(&sched);
    puppet_finish(&c[0].root, -EIO);
    settle(&sched);
    puppet_finish(&c[3].root, 0);
    settle(&sched);
    assert_int_equal(join_set_count(&set), 4);
    assert_transcript(&said, "CAD");
    take_all(&set);
    assert_transcript(&said, "c+a-d+");
    assert_int_equal(c[0].member.status, -EIO);
    assert_int_equal(join_set_count(&set), 1);
    join_set_fini(&set);
    assert_transcript(&said, "!b~b");
    sched_fini(&sched);
}

static void next_waits_for_one_and_ends_with_the_set(void **state)
{
    (void)state;
    struct join_set set;
    struct child c[2];
    struct join_next next;
    struct driver d;
    join_set_init(&set);
    spawn(&set, &c[0], 'a');
    spawn(&set, &c[1], 'b');
    for (unsigned i = 0; i < 2; i++) {
        join_next_init(&next, &set);
        drive(&d, &sched, &next.f);
        settle(&sched);
        assert_false(d.is_ready);
        puppet_finish(&c[1 - i].root, 0);
        settle(&sched);
        assert_true(d.is_ready);
        assert_int_equal(d.polls, 2);
        assert_int_equal(next.f.status, 0);
        assert_ptr_equal(next.member, &c[1 - i].member);
    }
    join_next_init(&next, &set);
    drive(&d, &sched, &next.f);
    settle(&sched);
    assert_true(d.is_ready);
    assert_int_equal(next.f.status, -ENOENT);
    assert_null(next.member);
    join_set_fini(&set);
    sched_fini(&sched);
}

static void abort_cuts_off_the_rest_behind_those_that_finished(void **state)
{
    (void)state;
    struct join_set set;
    struct child c[4];
    unsigned permits = 0;
    join_set_init(&set);
    for (unsigned i = 0; i < 4; i++) {
        spawn(&set, &c[i], (char)('a' + i));
        c[i].root.permits = &permits;
    }
    settle(&sched);
    assert_int_equal(permits, 4);
    puppet_finish(&c[2].root, 0);
    settle(&sched);
    join_member_abort(&c[1].member);
    join_set_abort(&set);
    join_set_abort(&set);
    assert_int_equal(permits, 0);
    assert_transcript(&said, "abcdC!b!a!d");
    take_all(&set);
    assert_transcript(&said, "c+bxaxdx");
    join_member_abort(&c[1].member);
    assert_int_equal(c[0].member.status, -ECANCELED);
    assert_int_equal(join_set_count(&set), 0);
    join_set_fini(&set);
    sched_fini(&sched);
}

static void a_woken_next_that_is_aborted_leaves_the_member_to_the_other(void **state)
{
    (void)state;
    struct join_set set;
    struct child c;
    struct join_next first, second;
    struct driver d, e;
    join_set_init(&set);
    spawn(&set, &c, 'a');
    join_next_init(&first, &set);
    join_next_init(&second, &set);
    drive(&d, &sched, &first.f);
    drive(&e, &sched, &second.f);
    settle(&sched);
    join_member_abort(&c.member); /* wakes both */
    task_abort(&d.task);
    settle(&sched);
    assert_true(e.is_ready);
    assert_ptr_equal(second.member, &c.member);
    join_set_fini(&set);
    sched_fini(&sched);
}

/* Aborts the set that it is in, and goes on. */
struct rebel {
    struct future f;
    struct join_set *set;
    bool is_dropped;
};

static enum poll rebel_poll(struct future *f, struct task *t)
{
    struct rebel *r = (struct rebel *)f;
    join_set_abort(r->set);
    join_set_abort(r->set);
    assert_true(task_is_live(t) && !r->is_dropped);
    return POLL_PENDING;
}

static void rebel_drop(struct future *f)
{
    ((struct rebel *)f)->is_dropped = true;
}

static const struct future_kind rebel_kind = {"rebel", rebel_poll, rebel_drop};

static void member_that_aborts_its_set_ends_after_its_poll(void **state)
{
    (void)state;
    struct join_set set;
    struct child c[2];
    struct join_member m = {0};
    struct rebel r = {.set = &set};
    future_init(&r.f, &rebel_kind);
    join_set_init(&set);
    spawn(&set, &c[0], 'a');
    join_set_spawn(&set, &sched, &m, &plain_kind, &r.f);
    spawn(&set, &c[1], 'b');
    settle(&sched);
    assert_transcript(&said, "a!a!b");
    assert_true(r.is_dropped);
    assert_int_equal(m.outcome, JOIN_CANCELLED);
    assert_int_equal(join_set_count(&set), 3);
    assert_ptr_equal(join_set_try_next(&set), &c[0].member);
    assert_ptr_equal(join_set_try_next(&set), &c[1].member);
    assert_ptr_equal(join_set_try_next(&set), &m);
    assert_null(join_set_try_next(&set));
    join_set_fini(&set);
    sched_fini(&sched);
}

static void a_member_can_be_spawned_again_once_it_was_yielded(void **state)
{
    (void)state;
    struct join_set set;
    struct child c = {0};
    join_set_init(&set);
    for (unsigned i = 0; i < 3; i++) {
        puppet_init_ready(&c.root, 'a', &said, i ? -EAGAIN : 0);
        join_set_spawn(&set, &sched, &c.member, &child_kind, &c.root.f);
        settle(&sched);
        take_all(&set);
    }
    assert_transcript(&said, "Aa+Aa-Aa-");
    join_set_fini(&set);
    sched_fini(&sched);
}

struct call {
    struct join_member member;
    struct delay delay;
    uint64_t due;
    bool is_aborted, is_seen;
};

static void fan_out_of_thirty_calls_takes_the_time_of_one(void **state)
{
    (void)state;
    static struct call calls[30];
    struct join_set set;
    join_set_init(&set);
    memset(calls, 0, sizeof(calls));
    for (unsigned i = 0; i < 30; i++) {
        delay_init(&calls[i].delay, START + 200 * MS);
        join_set_spawn(&set, &sched, &calls[i].member, &plain_kind, &calls[i].delay.f);
    }
    unsigned results = 0;
    uint64_t last = 0;
    while (results < 30) {
        struct join_next next;
        struct driver d;
        join_next_init(&next, &set);
        drive(&d, &sched, &next.f);
        settle(&sched);
        if (!d.is_ready)
            run_until(&sched, START + 200 * MS);
        assert_true(d.is_ready);
        assert_int_equal(next.member->outcome, JOIN_DONE);
        last = d.ready_at;
        results++;
    }
    assert_int_equal(last, START + 200 * MS);
    join_set_fini(&set);
    sched_fini(&sched);
}

/* Random times and aborts: each member is yielded once, in the order of its end, and what was
 * aborted says so. */
#define RANDOM_CALLS 200

static void random_run(uint64_t seed)
{
    static struct call calls[RANDOM_CALLS];
    struct rng rng = {seed};
    struct join_set set;
    struct join_member *m;
    uint64_t end = 0;
    unsigned seen = 0, n = 1 + rng_below(&rng, RANDOM_CALLS);
    sched_init(&sched, &(struct sched_opts){.now = START});
    join_set_init(&set);
    memset(calls, 0, sizeof(calls));
    for (unsigned i = 0; i < n; i++) {
        calls[i].due = START + rng_below(&rng, 1000 * MS);
        delay_init(&calls[i].delay, calls[i].due);
        join_set_spawn(&set, &sched, &calls[i].member, &plain_kind, &calls[i].delay.f);
    }
    for (uint64_t now = START; join_set_count(&set) > 0; now += rng_below(&rng, 50 * MS)) {
        run_until(&sched, now);
        struct call *victim = &calls[rng_below(&rng, n)];
        if (!future_is_done(&victim->delay.f)) {
            victim->is_aborted = true;
            victim->due = now;
            join_member_abort(&victim->member);
        }
        while ((m = join_set_try_next(&set))) {
            struct call *c = container_of(m, struct call, member);
            seen++;
            if (c->is_seen || c->due < end || c->due > now ||
                m->outcome != (c->is_aborted ? JOIN_CANCELLED : JOIN_DONE))
                fail_msg("seed %lu: member %zu", seed, (size_t)(c - calls));
            c->is_seen = true;
            end = c->due;
        }
        if (rng_chance(&rng, 10000))
            join_set_abort(&set);
        for (unsigned i = 0; i < n; i++) {
            if (!calls[i].is_seen && calls[i].member.outcome == JOIN_CANCELLED) {
                calls[i].is_aborted = true;
                calls[i].due = now;
            }
        }
    }
    assert_int_equal(seen, n);
    join_set_fini(&set);
    sched_fini(&sched);
}

static void every_member_is_yielded_once_in_order(void **state)
{
    (void)state;
    sched_fini(&sched);
    for (uint64_t seed = 1; seed <= 200; seed++)
        random_run(seed);
}

#define story(f) cmocka_unit_test_setup(f, set_up)

int main(void)
{
    const struct CMUnitTest tests[] = {
        story(members_come_as_they_finish),
        story(next_waits_for_one_and_ends_with_the_set),
        story(abort_cuts_off_the_rest_behind_those_that_finished),
        story(a_woken_next_that_is_aborted_leaves_the_member_to_the_other),
        story(member_that_aborts_its_set_ends_after_its_poll),
        story(a_member_can_be_spawned_again_once_it_was_yielded),
        story(fan_out_of_thirty_calls_takes_the_time_of_one),
        story(every_member_is_yielded_once_in_order),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
