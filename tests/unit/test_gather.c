#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "dataplane/gather.h"
#include "runtime/rng.h"

/* Traffic whose rate may depend on how long we gather, in frames/s. */
struct traffic {
    uint32_t with_short, with_long;
    uint32_t noise_permil;
    struct rng rng;
};

/* A pass every 100 us. Returns the share of time on the long setting, permil. */
static unsigned run(struct gather *g, struct traffic *t, uint64_t *now, unsigned ms)
{
    unsigned on_long = 0, passes = ms * 10;
    uint64_t owed = 0;
    for (unsigned i = 0; i < passes; i++) {
        bool is_long = gather_ns(g) == GATHER_LONG_NS;
        uint64_t rate = is_long ? t->with_long : t->with_short;
        rate += rate * rng_below(&t->rng, 2 * t->noise_permil + 1) / 1000;
        owed += rate;
        unsigned frames = (unsigned)(owed / 10000);
        owed %= 10000;
        *now += 100000;
        gather_pass(g, *now, frames);
        on_long += is_long;
    }
    return on_long * 1000 / passes;
}

static unsigned settle(uint32_t with_short, uint32_t with_long, uint32_t noise)
{
    struct gather g;
    struct traffic t = {with_short, with_long, noise, {7}};
    uint64_t now = 12345;
    gather_init(&g);
    run(&g, &t, &now, 1000);
    return run(&g, &t, &now, 2000);
}

static void takes_the_long_time_when_it_costs_no_frames(void **state)
{
    assert_true(settle(53000, 53000, 0) > 800);
    assert_true(settle(53000, 53000, 300) > 800);
    assert_true(settle(160000, 190000, 300) > 800);
}

static void stays_short_where_peers_wait_for_answers(void **state)
{
    assert_true(settle(160000, 96000, 0) < 200);
    assert_true(settle(160000, 96000, 300) < 200);
}

static void stays_short_with_little_traffic(void **state)
{
    assert_int_equal(settle(2000, 2000, 0), 0);
}

static void follows_a_change(void **state)
{
    struct gather g;
    struct traffic open = {53000, 53000, 100, {3}}, closed = {160000, 90000, 100, {4}};
    uint64_t now = 999;
    gather_init(&g);
    run(&g, &open, &now, 1000);
    assert_true(g.is_long);
    run(&g, &closed, &now, 1000);
    assert_false(g.is_long);
    run(&g, &open, &now, 2000);
    assert_true(g.is_long);
}

static void a_core_that_slept_starts_over(void **state)
{
    struct gather g;
    struct traffic open = {53000, 53000, 0, {3}};
    uint64_t now = 999;
    gather_init(&g);
    run(&g, &open, &now, 1000);
    assert_true(g.is_long);
    now += 1000000000;
    gather_pass(&g, now, 500);
    assert_int_equal(gather_ns(&g), GATHER_SHORT_NS);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(takes_the_long_time_when_it_costs_no_frames),
        cmocka_unit_test(stays_short_where_peers_wait_for_answers),
        cmocka_unit_test(stays_short_with_little_traffic),
        cmocka_unit_test(follows_a_change),
        cmocka_unit_test(a_core_that_slept_starts_over),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
