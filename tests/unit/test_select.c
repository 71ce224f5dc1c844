#include <errno.h>

#include "runtime/delay.h"
#include "runtime/join_set.h"
#include "runtime/scope.h"
#include "runtime/select.h"
#include "tests/kit/puppet.h"

#define START 314159265ull

static struct sched sched;
static struct transcript said;
static struct puppet puppets[SELECT_MAX];
static struct future *all[SELECT_MAX];

static int set_up(void **state)
{
    (void)state;
    sched_init(&sched, &(struct sched_opts){.now = START});
    said = (struct transcript){0};
    for (unsigned i = 0; i < SELECT_MAX; i++) {
        puppet_init(&puppets[i], (char)('a' + i), &said);
        all[i] = &puppets[i].f;
    }
    return 0;
}

static void first_ready_wins_and_those_behind_are_not_polled(void **state)
{
    (void)state;
    struct select s;
    struct driver d;
    select_init_biased(&s, all, 4);
    drive(&d, &sched, &s.f);
    settle(&sched);
    assert_transcript(&said, "abcd");
    puppet_finish(&puppets[3], 0);
    puppet_finish(&puppets[1], -EIO);
    settle(&sched);
    assert_transcript(&said, "aB");
    assert_true(d.is_ready);
    assert_int_equal(s.winner, 1);
    assert_int_equal(s.f.status, -EIO);
    future_drop(&s.f);
    assert_transcript(&said, "!a!c");
    sched_fini(&sched);
}

/* Rounds over futures that are ready in each: who wins? */
static void play(struct select *s, unsigned n, unsigned rounds)
{
    for (unsigned round = 0; round < rounds; round++) {
        struct driver d;
        for (unsigned i = 0; i < n; i++)
            puppet_init_ready(&puppets[i], (char)('a' + i), NULL, 0);
        if (round)
            select_next(s);
        drive(&d, &sched, &s->f);
        settle(&sched);
        assert_true(d.is_ready);
        transcript_add(&said, (char[]){(char)('0' + s->winner), 0});
    }
}

static void biased_order_starves_what_is_behind(void **state)
{
    (void)state;
    struct select s;
    select_init_biased(&s, all, 3);
    play(&s, 3, 7);
    assert_transcript(&said, "0000000");
    sched_fini(&sched);
}

static void fair_order_gives_each_its_round(void **state)
{
    (void)state;
    struct select s;
    select_init_fair(&s, all, 3);
    play(&s, 3, 7);
    assert_transcript(&said, "0120120");
    sched_fini(&sched);
}

static void losers_go_on_until_none_is_left(void **state)
{
    (void)state;
    static const uint8_t order[] = {2, 0, 1};
    struct select s;
    struct driver d;
    unsigned permits = 0;
    for (unsigned i = 0; i < 3; i++)
        puppets[i].permits = &permits;
    select_init_biased(&s, all, 3);
    for (unsigned round = 0; round < 3; round++) {
        if (round)
            select_next(&s);
        drive(&d, &sched, &s.f);
        settle(&sched);
        assert_false(d.is_ready);
        assert_int_equal(permits, 3 - round);
        puppet_finish(&puppets[order[round]], (int)round);
        settle(&sched);
        assert_true(d.is_ready);
        assert_int_equal(s.winner, order[round]);
        assert_int_equal(s.f.status, round);
    }
    select_next(&s);
    drive(&d, &sched, &s.f);
    settle(&sched);
    assert_true(d.is_ready);
    assert_int_equal(s.f.status, -ENOENT);
    assert_int_equal(s.winner, 3);
    assert_int_equal(puppets[0].drops + puppets[1].drops + puppets[2].drops, 0);
    sched_fini(&sched);
}

static void over_nothing_is_ready_with_an_error(void **state)
{
    (void)state;
    struct select s;
    struct driver d;
    select_init_fair(&s, NULL, 0);
    drive(&d, &sched, &s.f);
    settle(&sched);
    assert_true(d.is_ready);
    assert_int_equal(s.f.status, -ENOENT);
    sched_fini(&sched);
}

static void dropping_a_pending_select_drops_all(void **state)
{
    (void)state;
    struct select s;
    struct driver d;
    unsigned permits = 0;
    for (unsigned i = 0; i < SELECT_MAX; i++)
        puppets[i].permits = &permits;
    select_init_fair(&s, all, SELECT_MAX);
    drive(&d, &sched, &s.f);
    settle(&sched);
    assert_int_equal(permits, SELECT_MAX);
    task_abort(&d.task);
    assert_transcript(&said, "abcdefgh!a!b!c!d!e!f!g!h");
    assert_int_equal(permits, 0);
    sched_fini(&sched);
}

static const struct join_member_kind member_kind = {.task = {JOIN_MEMBER("member")}};

/* Events raced against a clock, again and again: the loser is the same future each time. */
static void a_loser_misses_nothing(void **state)
{
    (void)state;
    struct join_set set;
    struct join_member m[3] = {0};
    struct join_next next;
    struct delay tick;
    struct select s;
    struct driver d;
    struct future *of[] = {&tick.f, &next.f};
    unsigned ticks = 0, members = 0;
    join_set_init(&set);
    for (unsigned i = 0; i < 3; i++)
        join_set_spawn(&set, &sched, &m[i], &member_kind, all[i]);
    join_next_init(&next, &set);
    delay_init(&tick, START + 10);
    select_init_fair(&s, of, 2);
    while (members < 3) {
        drive(&d, &sched, &s.f);
        settle(&sched);
        assert_false(d.is_ready);
        if (ticks % 2) /* both at once: one wins, the other the next round */
            puppet_finish(&puppets[members], 0);
        sched_step(&sched, sched_next_timeout(&sched));
        for (unsigned wins = 1 + ticks % 2; wins > 0; wins--) {
            settle(&sched);
            assert_true(d.is_ready);
            if (s.winner == 0) {
                ticks++;
                delay_reset(&tick, sched_now(&sched) + 10);
            } else {
                assert_ptr_equal(next.member, &m[members]);
                members++;
                join_next_init(&next, &set);
            }
            select_next(&s);
            if (wins > 1)
                drive(&d, &sched, &s.f);
        }
    }
    assert_int_equal(ticks, 6);
    future_drop(&s.f);
    join_set_fini(&set);
    sched_fini(&sched);
}

static void cancelled_scope_wins_over_work(void **state)
{
    (void)state;
    struct scope root, leaf;
    struct scope_cancelled cancelled;
    struct select s;
    struct driver d;
    struct future *of[] = {&cancelled.f, all[0]};
    scope_init(&root, NULL);
    scope_init(&leaf, &root);
    scope_cancelled_init(&cancelled, &leaf);
    select_init_biased(&s, of, 2);
    drive(&d, &sched, &s.f);
    settle(&sched);
    puppet_finish(&puppets[0], 0);
    scope_cancel(&root);
    settle(&sched);
    assert_true(d.is_ready);
    assert_int_equal(s.winner, 0);
    future_drop(&s.f);
    scope_fini(&leaf);
    scope_fini(&root);
    sched_fini(&sched);
}

#define story(f) cmocka_unit_test_setup(f, set_up)

int main(void)
{
    const struct CMUnitTest tests[] = {
        story(first_ready_wins_and_those_behind_are_not_polled),
        story(biased_order_starves_what_is_behind),
        story(fair_order_gives_each_its_round),
        story(losers_go_on_until_none_is_left),
        story(over_nothing_is_ready_with_an_error),
        story(dropping_a_pending_select_drops_all),
        story(a_loser_misses_nothing),
        story(cancelled_scope_wins_over_work),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
