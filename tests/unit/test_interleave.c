/* The checker itself: what C11 allows is found, what it forbids is not, and nothing is left out. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <assert.h>

#include "tests/kit/interleave.h"
#include "tests/kit/interleave_atomics.h"

static atomic_int vx, vy, vz;
static int r0, r1, r2, r3;

static void set_up(void)
{
    atomic_store_explicit(&vx, 0, memory_order_relaxed);
    atomic_store_explicit(&vy, 0, memory_order_relaxed);
    atomic_store_explicit(&vz, 0, memory_order_relaxed);
    r0 = r1 = r2 = r3 = -1;
}

/* STORE(v, n, order), LOAD(v, order) and FENCE(order) spell a litmus test in one line a party. */
#define STORE(v, n, order) atomic_store_explicit(&(v), (n), memory_order_##order)
#define LOAD(v, order)     atomic_load_explicit(&(v), memory_order_##order)
#define FENCE(order)       atomic_thread_fence(memory_order_##order)
#define ADD(v, n, order)   atomic_fetch_add_explicit(&(v), (n), memory_order_##order)

#define PARTY(name, ...)                                                                           \
    static void name(void)                                                                         \
    {                                                                                              \
        __VA_ARGS__;                                                                               \
    }
#define END(name, cond)                                                                            \
    static const char *name(void)                                                                  \
    {                                                                                              \
        return (cond) ? #cond : NULL;                                                              \
    }

/* Store buffering: may both miss the other's store? */
PARTY(sb0_relaxed, STORE(vx, 1, relaxed), r0 = LOAD(vy, relaxed))
PARTY(sb1_relaxed, STORE(vy, 1, relaxed), r1 = LOAD(vx, relaxed))
PARTY(sb0_acq_rel, STORE(vx, 1, release), r0 = LOAD(vy, acquire))
PARTY(sb1_acq_rel, STORE(vy, 1, release), r1 = LOAD(vx, acquire))
PARTY(sb0_seq_cst, STORE(vx, 1, seq_cst), r0 = LOAD(vy, seq_cst))
PARTY(sb1_seq_cst, STORE(vy, 1, seq_cst), r1 = LOAD(vx, seq_cst))
PARTY(sb0_fence, STORE(vx, 1, relaxed), FENCE(seq_cst), r0 = LOAD(vy, relaxed))
PARTY(sb1_fence, STORE(vy, 1, relaxed), FENCE(seq_cst), r1 = LOAD(vx, relaxed))
PARTY(sb0_weak_fence, STORE(vx, 1, relaxed), FENCE(acq_rel), r0 = LOAD(vy, relaxed))
PARTY(sb1_weak_fence, STORE(vy, 1, relaxed), FENCE(acq_rel), r1 = LOAD(vx, relaxed))
PARTY(sb0_rmw, ADD(vx, 1, seq_cst), r0 = LOAD(vy, seq_cst))
PARTY(sb1_rmw_acquire, ADD(vy, 1, seq_cst), r1 = LOAD(vx, acquire))
END(both_missed, r0 == 0 && r1 == 0)
END(one_missed, r0 == 0)

/* Message passing: may the flag arrive before what it tells of? */
PARTY(mp0_release, STORE(vx, 1, relaxed), STORE(vy, 1, release))
PARTY(mp0_relaxed, STORE(vx, 1, relaxed), STORE(vy, 1, relaxed))
PARTY(mp0_fence, STORE(vx, 1, relaxed), FENCE(release), STORE(vy, 1, relaxed))
PARTY(mp1_acquire, r0 = LOAD(vy, acquire), r1 = LOAD(vx, relaxed))
PARTY(mp1_relaxed, r0 = LOAD(vy, relaxed), r1 = LOAD(vx, relaxed))
PARTY(mp1_fence, r0 = LOAD(vy, relaxed), FENCE(acquire), r1 = LOAD(vx, relaxed))
END(message_lost, r0 == 1 && r1 == 0)

/* A read-modify-write in between hands on what was released before it. */
PARTY(mp2_add, ADD(vy, 1, relaxed))
PARTY(mp2_read, r0 = LOAD(vy, acquire), r1 = LOAD(vx, relaxed))
END(message_lost_on_the_way, r0 == 2 && r1 == 0)

/* Two loads of one location never go back in its history. */
PARTY(corr0, STORE(vx, 1, relaxed), STORE(vx, 2, relaxed))
PARTY(corr1, r0 = LOAD(vx, relaxed), r1 = LOAD(vx, relaxed))
END(went_back, r0 > r1)
END(saw_both, r0 == 1 && r1 == 2)

/* Two readers: may they see two stores in opposite orders? */
PARTY(iriw0, STORE(vx, 1, seq_cst))
PARTY(iriw1, STORE(vy, 1, seq_cst))
PARTY(iriw2_acquire, r0 = LOAD(vx, acquire), r1 = LOAD(vy, acquire))
PARTY(iriw3_acquire, r2 = LOAD(vy, acquire), r3 = LOAD(vx, acquire))
PARTY(iriw2_seq_cst, r0 = LOAD(vx, seq_cst), r1 = LOAD(vy, seq_cst))
PARTY(iriw3_seq_cst, r2 = LOAD(vy, seq_cst), r3 = LOAD(vx, seq_cst))
END(opposite_orders, r0 == 1 && r1 == 0 && r2 == 1 && r3 == 0)

PARTY(add_one, ADD(vx, 1, relaxed))
END(an_addition_lost, LOAD(vx, relaxed) != 3)

static void compare_and_add(void)
{
    int v = LOAD(vx, relaxed);
    while (!atomic_compare_exchange_weak_explicit(&vx, &v, v + 1, memory_order_relaxed,
                                                  memory_order_relaxed))
        ;
}

static void load_and_store(void)
{
    int v = LOAD(vx, relaxed);
    STORE(vx, v + 1, relaxed);
}

struct litmus {
    const char *name;
    unsigned n;
    void (*party[INTERLEAVE_PARTIES])(void);
    const char *(*end)(void);
    bool is_possible;
};

static const struct litmus litmus[] = {
    {"SB relaxed", 2, {sb0_relaxed, sb1_relaxed}, both_missed, true},
    {"SB acquire/release", 2, {sb0_acq_rel, sb1_acq_rel}, both_missed, true},
    {"SB seq_cst", 2, {sb0_seq_cst, sb1_seq_cst}, both_missed, false},
    {"SB seq_cst, one may miss", 2, {sb0_seq_cst, sb1_seq_cst}, one_missed, true},
    {"SB one load too weak", 2, {sb0_rmw, sb1_rmw_acquire}, both_missed, true},
    {"SB seq_cst fences", 2, {sb0_fence, sb1_fence}, both_missed, false},
    {"SB one fence too weak", 2, {sb0_fence, sb1_weak_fence}, both_missed, true},
    {"SB acq_rel fences", 2, {sb0_weak_fence, sb1_weak_fence}, both_missed, true},
    {"SB fence against seq_cst", 2, {sb0_fence, sb1_seq_cst}, both_missed, false},
    {"MP", 2, {mp0_release, mp1_acquire}, message_lost, false},
    {"MP relaxed store", 2, {mp0_relaxed, mp1_acquire}, message_lost, true},
    {"MP relaxed load", 2, {mp0_release, mp1_relaxed}, message_lost, true},
    {"MP fences", 2, {mp0_fence, mp1_fence}, message_lost, false},
    {"MP one fence", 2, {mp0_fence, mp1_relaxed}, message_lost, true},
    {"MP over an addition", 3, {mp0_release, mp2_add, mp2_read}, message_lost_on_the_way, false},
    {"MP relaxed over an addition",
     3,
     {mp0_relaxed, mp2_add, mp2_read},
     message_lost_on_the_way,
     true},
    {"CoRR", 2, {corr0, corr1}, went_back, false},
    {"CoRR, old then new", 2, {corr0, corr1}, saw_both, true},
    {"IRIW acquire", 4, {iriw0, iriw1, iriw2_acquire, iriw3_acquire}, opposite_orders, true},
    {"IRIW seq_cst", 4, {iriw0, iriw1, iriw2_seq_cst, iriw3_seq_cst}, opposite_orders, false},
    {"three additions", 3, {add_one, add_one, add_one}, an_addition_lost, false},
    {"three compare-exchanges",
     3,
     {compare_and_add, compare_and_add, compare_and_add},
     an_addition_lost,
     false},
    {"additions by load and store", 3, {add_one, add_one, load_and_store}, an_addition_lost, true},
};

static void litmus_tests_come_out_as_c11_says(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof(litmus) / sizeof(litmus[0]); i++) {
        const struct litmus *l = &litmus[i];
        struct interleave_case c = {
            .name = l->name, .nparties = l->n, .set_up = set_up, .end = l->end};
        struct interleave_result r;
        memcpy(c.party, l->party, sizeof(c.party));
        interleave_explore(&c, NULL, &r);
        if (r.has_failed != l->is_possible)
            fail_msg("%s: %s after %lu schedules (%s)", l->name,
                     r.has_failed ? "possible" : "impossible", (unsigned long)r.schedules, r.why);
    }
}

/* Leaving out what makes no difference leaves out nothing else: as many different schedules. */
static void reduction_loses_nothing(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof(litmus) / sizeof(litmus[0]); i++) {
        const struct litmus *l = &litmus[i];
        struct interleave_case c = {.name = l->name, .nparties = l->n, .set_up = set_up};
        struct interleave_result some, all;
        memcpy(c.party, l->party, sizeof(c.party));
        interleave_explore(&c, NULL, &some);
        c.try_all = true;
        interleave_explore(&c, NULL, &all);
        if (some.schedules != all.schedules)
            fail_msg("%s: %lu schedules of %lu", l->name, (unsigned long)some.schedules,
                     (unsigned long)all.schedules);
        assert_true(some.pruned <= all.pruned);
    }
}

/* The number of schedules is that of the orders that differ. */
PARTY(only_x, STORE(vx, 1, seq_cst), STORE(vx, 2, seq_cst))
PARTY(only_y, STORE(vy, 1, seq_cst), STORE(vy, 2, seq_cst))
PARTY(only_z, r0 = LOAD(vz, acquire), r0 = LOAD(vz, acquire))

static void orders_that_do_not_differ_are_tried_once(void **state)
{
    (void)state;
    struct interleave_result r;
    interleave_explore(&(struct interleave_case){.name = "strangers",
                                                 .nparties = 3,
                                                 .party = {only_x, only_y, only_z},
                                                 .set_up = set_up},
                       stdout, &r);
    assert_false(r.has_failed);
    assert_int_equal(r.schedules, 1);
    interleave_explore(
        &(struct interleave_case){
            .name = "readers", .nparties = 2, .party = {only_z, only_z}, .set_up = set_up},
        stdout, &r);
    assert_int_equal(r.schedules, 1);
    interleave_explore(
        &(struct interleave_case){
            .name = "writers", .nparties = 2, .party = {only_x, only_x}, .set_up = set_up},
        stdout, &r);
    assert_int_equal(r.schedules, 6); /* 4 over 2 */
}

/* Sleeping: by hand, right and with the check before the store. */
static atomic_bool work, asleep, bell;

static void wake_set_up(void)
{
    atomic_store(&work, false);
    atomic_store(&asleep, false);
    atomic_store(&bell, false);
}

static void sleeper(void)
{
    while (!atomic_load(&work)) {
        atomic_store(&asleep, true);
        if (atomic_load(&work))
            return;
        interleave_await(&bell, false);
    }
}

static void hasty_sleeper(void)
{
    if (!atomic_load(&work)) {
        atomic_store(&asleep, true);
        interleave_await(&bell, false);
    }
}

static void patient_sleeper(void)
{
    for (;;) {
        interleave_await(&bell, true);
        atomic_store(&bell, false);
    }
}

static void waker(void)
{
    atomic_store(&work, true);
    if (atomic_load(&asleep))
        atomic_store(&bell, true);
}

static void explore_sleep(void (*who)(void), struct interleave_result *r)
{
    interleave_explore(
        &(struct interleave_case){
            .name = "sleep", .nparties = 2, .party = {who, waker}, .set_up = wake_set_up},
        NULL, r);
}

static void a_sleeper_that_nobody_wakes_is_found(void **state)
{
    (void)state;
    struct interleave_result r;
    explore_sleep(sleeper, &r);
    assert_false(r.has_failed);
    assert_true(r.schedules > 2);
    explore_sleep(patient_sleeper, &r);
    assert_false(r.has_failed);
    explore_sleep(hasty_sleeper, &r);
    assert_true(r.has_failed);
    assert_string_equal(r.why, "party 0 sleeps for ever on &bell");
}

/* The log of a failure is a schedule that a person can follow. */
static void bad_reader(void)
{
    int v = LOAD(vx, relaxed);
    assert(v < 2);
    (void)v; /* unused with NDEBUG */
}

static void a_failed_assertion_tells_the_schedule(void **state)
{
    (void)state;
    char text[4096] = "";
    FILE *log = fmemopen(text, sizeof(text), "w");
    struct interleave_result r;
    interleave_explore(
        &(struct interleave_case){
            .name = "assertion", .nparties = 2, .party = {only_x, bad_reader}, .set_up = set_up},
        log, &r);
    fclose(log);
    assert_true(r.has_failed);
    assert_non_null(strstr(r.why, "v < 2"));
    assert_non_null(strstr(text, "party 1  bad_reader"));
    assert_non_null(strstr(text, "&(vx)"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(litmus_tests_come_out_as_c11_says),
        cmocka_unit_test(reduction_loses_nothing),
        cmocka_unit_test(orders_that_do_not_differ_are_tried_once),
        cmocka_unit_test(a_sleeper_that_nobody_wakes_is_found),
        cmocka_unit_test(a_failed_assertion_tells_the_schedule),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
