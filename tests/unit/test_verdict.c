/* Who is unhealthy, who is ejected and for how long, and when nobody is. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdlib.h>
#include <string.h>

#include "control/verdict.h"
#include "runtime/rng.h"

#define S     1000000000ull
#define MS    1000000ull
#define START (77 * S)
#define MAX   16

struct court {
    struct config_upstream cfg;
    struct config_endpoint endpoints[MAX];
    struct config_health health;
    struct config_outlier outlier;
    struct verdict_upstream up;
    uint64_t now;
    unsigned changes;
    enum verdict_cause cause; /* of the last change */
};

static void on_change(void *ctx, struct verdict_upstream *up, struct verdict_endpoint *ep,
                      uint8_t before, enum verdict_cause cause)
{
    struct court *c = ctx;
    assert_int_not_equal(before, ep->flags);
    c->changes++;
    c->cause = cause;
}

static void court_open(struct court *c, unsigned n)
{
    memset(c, 0, sizeof(*c));
    c->now = START;
    c->cfg = (struct config_upstream){
        .name = "app", .endpoints = c->endpoints, .nendpoints = n, .panic = 0};
    for (unsigned i = 0; i < n; i++) {
        c->endpoints[i].address = (struct config_addr){.addr = 0x0a + (i << 24), .port = 80};
        c->endpoints[i].weight = 1;
    }
    c->health = (struct config_health){.healthy = 2, .unhealthy = 3};
    c->outlier = (struct config_outlier){.consecutive = 5,
                                         .error_rate = 50,
                                         .latency = 300,
                                         .requests = 20,
                                         .window = 10 * S,
                                         .ejection = 30 * S,
                                         .max_ejection = 100 * S,
                                         .max_ejected = 50};
    c->cfg.health = &c->health;
    c->cfg.outlier = &c->outlier;
}

static void court_begin(struct court *c)
{
    assert_int_equal(verdict_init(&c->up, &c->cfg, NULL, c->now, on_change, c), 0);
}

static void court_close(struct court *c)
{
    verdict_fini(&c->up);
}

static struct verdict_endpoint *at(struct court *c, unsigned i)
{
    return &c->up.endpoints[i];
}

static void probe(struct court *c, unsigned i, int32_t streak)
{
    struct endpoint_report r = {.probed = true, .streak = streak, .probe = streak < 0};
    verdict_report(&c->up, at(c, i), &r, c->now);
}

static void fail_in_a_row(struct court *c, unsigned i)
{
    struct endpoint_report r = {.failed_in_a_row = 5};
    verdict_report(&c->up, at(c, i), &r, c->now);
}

/* Requests with one latency. */
static void requests(struct court *c, unsigned i, unsigned good, unsigned bad, uint64_t latency)
{
    struct endpoint_report r = {.tally = {.requests = good + bad, .failed = bad}};
    r.tally.latency[latency_bucket(latency)] = good;
    verdict_report(&c->up, at(c, i), &r, c->now);
}

static void end_window(struct court *c)
{
    c->now = c->up.window_end;
    verdict_window(&c->up, c->now);
}

static void assert_flags(struct court *c, const uint8_t *flags)
{
    for (size_t i = 0; i < c->up.nendpoints; i++)
        if (at(c, (unsigned)i)->flags != flags[i])
            fail_msg("endpoint %zu: flags %u, not %u", i, at(c, (unsigned)i)->flags, flags[i]);
}

#define FLAGS(...) assert_flags(&c, (const uint8_t[]){__VA_ARGS__})
#define BAD        ENDPOINT_UNHEALTHY
#define OUT        ENDPOINT_EJECTED

/* --- probes ---------------------------------------------------------------------------------- */

static void the_first_probe_decides_and_then_thresholds_do(void **state)
{
    struct court c;
    court_open(&c, 2);
    court_begin(&c);
    probe(&c, 0, -1);
    probe(&c, 1, 1);
    FLAGS(BAD, 0);
    probe(&c, 0, 1);
    probe(&c, 1, -1);
    probe(&c, 1, -2);
    FLAGS(BAD, 0);
    probe(&c, 0, 2);
    probe(&c, 1, -3);
    FLAGS(0, BAD);
    assert_int_equal(c.changes, 3);
    probe(&c, 1, -4);
    probe(&c, 1, 1);
    probe(&c, 1, -1);
    probe(&c, 1, 1);
    FLAGS(0, BAD);
    assert_int_equal(c.changes, 3);
    court_close(&c);
}

/* --- ejection -------------------------------------------------------------------------------- */

static void ejections_grow_and_are_paid_off(void **state)
{
    static const uint64_t lengths[] = {30 * S, 60 * S, 90 * S, 100 * S, 100 * S};
    struct court c;
    court_open(&c, 2);
    court_begin(&c);
    for (unsigned i = 0; i < 5; i++) {
        fail_in_a_row(&c, 0);
        FLAGS(OUT, 0);
        assert_int_equal(c.cause, VERDICT_consecutive);
        c.now += lengths[i] - 1;
        verdict_expire(&c.up, c.now);
        FLAGS(OUT, 0);
        verdict_expire(&c.up, ++c.now);
        FLAGS(0, 0);
        assert_int_equal(c.cause, VERDICT_time);
        c.now += 30 * S - 1; /* not yet in good standing for long enough */
    }
    /* Three times `ejection` take three of the five off: the next is the third again. */
    c.now += 60 * S + 1;
    fail_in_a_row(&c, 0);
    c.now += 90 * S;
    verdict_expire(&c.up, c.now);
    FLAGS(0, 0);
    court_close(&c);
}

static void reports_about_an_ejected_endpoint_change_nothing(void **state)
{
    struct court c;
    court_open(&c, 2);
    court_begin(&c);
    fail_in_a_row(&c, 0);
    c.now += 10 * S;
    fail_in_a_row(&c, 0);
    requests(&c, 0, 0, 100, MS);
    c.now += 20 * S;
    verdict_expire(&c.up, c.now);
    FLAGS(0, 0);
    end_window(&c); /* with nothing from before in it */
    FLAGS(0, 0);
    court_close(&c);
}

static void never_more_than_the_cap(void **state)
{
    struct court c;
    court_open(&c, 5);
    court_begin(&c);
    for (unsigned i = 0; i < 5; i++)
        fail_in_a_row(&c, i);
    FLAGS(OUT, OUT, 0, 0, 0); /* half of five is two */
    court_close(&c);
    court_open(&c, 1);
    court_begin(&c);
    fail_in_a_row(&c, 0);
    FLAGS(0); /* half of one is none */
    court_close(&c);
}

static void never_below_panic(void **state)
{
    struct court c;
    court_open(&c, 4);
    c.cfg.panic = 75;
    c.outlier.max_ejected = 100;
    court_begin(&c);
    fail_in_a_row(&c, 0);
    fail_in_a_row(&c, 1);
    FLAGS(OUT, 0, 0, 0);
    court_close(&c);
}

/* Not even with the cap and the threshold out of the way; and who is unhealthy doesn't count. */
static void never_the_last_usable(void **state)
{
    struct court c;
    court_open(&c, 3);
    c.outlier.max_ejected = 100;
    court_begin(&c);
    probe(&c, 0, -1);
    fail_in_a_row(&c, 0);
    fail_in_a_row(&c, 1);
    fail_in_a_row(&c, 2);
    FLAGS(BAD, OUT, 0);
    court_close(&c);
}

/* The last one fails as well: who has been out longest may do better, gets a chance, and pays for
 * it no more than before; whoever still fails then goes. */
static void who_is_out_longest_is_recalled_when_the_last_one_fails(void **state)
{
    struct court c;
    court_open(&c, 3);
    c.outlier.max_ejected = 67;
    court_begin(&c);
    fail_in_a_row(&c, 1);
    c.now += S;
    fail_in_a_row(&c, 0);
    c.now += 3 * S - 1 - S;
    fail_in_a_row(&c, 2);
    FLAGS(OUT, OUT, 0); /* not so soon: a tenth of 30 s */
    c.now += 1;
    fail_in_a_row(&c, 2);
    FLAGS(OUT, 0, 0);
    assert_int_equal(c.cause, VERDICT_recalled);
    fail_in_a_row(&c, 2); /* there is one now that does better */
    FLAGS(OUT, 0, OUT);
    fail_in_a_row(&c, 1); /* or doesn't */
    FLAGS(OUT, 0, OUT);
    c.now += S;
    fail_in_a_row(&c, 1);
    FLAGS(0, 0, OUT);
    fail_in_a_row(&c, 1);
    FLAGS(0, OUT, OUT);
    assert_int_equal(at(&c, 1)->ejected_until, c.now + 30 * S);
    court_close(&c);
}

static void one_is_recalled_when_the_cap_is_reached_by_failures_only(void **state)
{
    struct court c;
    court_open(&c, 4);
    court_begin(&c);
    fail_in_a_row(&c, 0);
    fail_in_a_row(&c, 1);
    for (unsigned i = 2; i < 4; i++)
        requests(&c, i, 100, 0, i == 2 ? MS : 100 * MS);
    end_window(&c);
    FLAGS(OUT, OUT, 0, 0); /* slow is something else */
    requests(&c, 2, 100, 0, MS);
    requests(&c, 3, 50, 50, MS);
    end_window(&c);
    FLAGS(0, OUT, 0, 0);
    court_close(&c);
}

static void backups_and_drained_ones_hold_nobody_up(void **state)
{
    struct court c;
    court_open(&c, 4);
    c.endpoints[2].backup = true;
    c.endpoints[3].weight = 0;
    c.outlier.max_ejected = 100;
    court_begin(&c);
    fail_in_a_row(&c, 0);
    fail_in_a_row(&c, 1); /* the last that is no backup */
    fail_in_a_row(&c, 2);
    FLAGS(OUT, 0, OUT, 0);
    court_close(&c);
}

/* --- windows --------------------------------------------------------------------------------- */

static void the_error_rate_of_a_window_ejects(void **state)
{
    struct court c;
    court_open(&c, 4);
    court_begin(&c);
    requests(&c, 0, 10, 10, MS);
    requests(&c, 1, 51, 49, MS); /* just under */
    requests(&c, 2, 0, 19, MS);  /* too few to tell */
    end_window(&c);
    FLAGS(OUT, 0, 0, 0);
    assert_int_equal(c.cause, VERDICT_error_rate);
    requests(&c, 2, 0, 1, MS); /* the last window doesn't count any more */
    end_window(&c);
    FLAGS(OUT, 0, 0, 0);
    court_close(&c);
}

static void the_sum_over_the_cores_counts(void **state)
{
    struct court c;
    court_open(&c, 2);
    court_begin(&c);
    for (unsigned core = 0; core < 4; core++)
        requests(&c, 0, 1, 4, MS);
    end_window(&c);
    FLAGS(OUT, 0);
    court_close(&c);
}

static void the_worst_goes_first(void **state)
{
    struct court c;
    court_open(&c, 3);
    court_begin(&c);
    requests(&c, 0, 20, 30, MS);
    requests(&c, 1, 10, 90, MS);
    requests(&c, 2, 40, 60, MS);
    end_window(&c);
    FLAGS(0, OUT, 0);
    court_close(&c);
}

static void the_slow_one_among_others_is_ejected(void **state)
{
    struct court c;
    court_open(&c, 4);
    court_begin(&c);
    for (unsigned round = 0; round < 2; round++) {
        requests(&c, 0, 30, 0, 10 * MS);
        requests(&c, 1, 30, 0, 12 * MS);
        requests(&c, 2, 30, 0, round ? 60 * MS : 25 * MS);
        requests(&c, 3, 30, 0, 11 * MS);
        end_window(&c);
        assert_int_equal(at(&c, 2)->flags, round ? OUT : 0);
    }
    assert_int_equal(c.cause, VERDICT_latency);
    court_close(&c);
}

/* A few slow requests don't move the median; alone there is nobody to compare with; when all are
 * slow, none is. */
static void slowness_is_relative_and_about_the_median(void **state)
{
    struct court c;
    court_open(&c, 4);
    court_begin(&c);
    for (unsigned i = 0; i < 4; i++)
        requests(&c, i, 30, 0, 10 * MS);
    requests(&c, 1, 20, 0, 10 * S);
    end_window(&c);
    FLAGS(0, 0, 0, 0);
    requests(&c, 1, 30, 0, 10 * S);
    end_window(&c);
    FLAGS(0, 0, 0, 0);
    for (unsigned i = 0; i < 4; i++)
        requests(&c, i, 30, 0, 10 * S);
    end_window(&c);
    FLAGS(0, 0, 0, 0);
    court_close(&c);
}

/* --- reloads --------------------------------------------------------------------------------- */

static void reload(struct court *c)
{
    struct verdict_upstream old = c->up;
    assert_int_equal(verdict_init(&c->up, &c->cfg, &old, c->now, on_change, c), 0);
    verdict_fini(&old);
    verdict_settle(&c->up);
}

static void verdicts_survive_a_reload_by_name(void **state)
{
    struct court c;
    struct config_endpoint first;
    court_open(&c, 4);
    court_begin(&c);
    probe(&c, 0, -1);
    fail_in_a_row(&c, 1);
    uint64_t window_end = c.up.window_end;
    first = c.endpoints[0];
    c.endpoints[0] = c.endpoints[1];
    c.endpoints[1] = first;
    c.cfg.nendpoints = 3;
    c.now += S;
    reload(&c);
    FLAGS(OUT, BAD, 0);
    assert_int_equal(c.up.window_end, window_end);
    assert_int_equal(verdict_next_return(&c.up), START + 30 * S);
    probe(&c, 1, 1);
    FLAGS(OUT, BAD, 0); /* it has been tested */
    c.now = START + 30 * S;
    verdict_expire(&c.up, c.now);
    FLAGS(0, BAD, 0);
    court_close(&c);
}

static void verdicts_end_with_the_settings_behind_them(void **state)
{
    struct court c;
    court_open(&c, 4);
    court_begin(&c);
    probe(&c, 0, -1);
    fail_in_a_row(&c, 1);
    c.cfg.health = NULL;
    reload(&c);
    FLAGS(0, OUT, 0, 0);
    assert_int_equal(c.cause, VERDICT_config);
    c.cfg.outlier = NULL;
    reload(&c);
    FLAGS(0, 0, 0, 0);
    assert_int_equal(verdict_next_return(&c.up), UINT64_MAX);
    court_close(&c);
}

/* --- whatever happens ------------------------------------------------------------------------ */

static void check(struct court *c)
{
    unsigned ejected = 0, usable = 0;
    for (size_t i = 0; i < c->up.nendpoints; i++) {
        ejected += (at(c, (unsigned)i)->flags & OUT) != 0;
        usable += !at(c, (unsigned)i)->flags;
    }
    assert_in_range(ejected, 0, c->up.nendpoints * c->outlier.max_ejected / 100);
    /* Probes may take the last ones away, ejection never. */
    if (ejected && usable * 100 < c->cfg.panic * c->up.nendpoints)
        for (size_t i = 0; i < c->up.nendpoints; i++)
            usable += at(c, (unsigned)i)->flags == BAD;
    assert_true(!ejected || usable * 100 >= c->cfg.panic * c->up.nendpoints);
}

static void the_cap_holds_whatever_happens(void **state)
{
    for (uint64_t seed = 1; seed <= 200; seed++) {
        struct rng r = {seed};
        struct court c;
        court_open(&c, 1 + rng_below(&r, MAX));
        c.cfg.panic = (uint16_t)rng_below(&r, 101);
        c.outlier.max_ejected = (uint16_t)(1 + rng_below(&r, 100));
        court_begin(&c);
        for (unsigned step = 0; step < 300; step++) {
            unsigned i = rng_below(&r, (uint32_t)c.up.nendpoints);
            c.now += rng_below(&r, 5) * S;
            verdict_expire(&c.up, c.now);
            switch (rng_below(&r, 4)) {
            case 0:
                fail_in_a_row(&c, i);
                break;
            case 1:
                requests(&c, i, rng_below(&r, 40), rng_below(&r, 40), rng_below(&r, 100) * MS);
                break;
            case 2:
                if (c.now >= c.up.window_end)
                    end_window(&c);
                break;
            case 3:
                if (rng_below(&r, 8) == 0)
                    probe(&c, i, rng_below(&r, 2) ? 3 : -3);
                break;
            }
            check(&c);
        }
        court_close(&c);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_first_probe_decides_and_then_thresholds_do),
        cmocka_unit_test(ejections_grow_and_are_paid_off),
        cmocka_unit_test(reports_about_an_ejected_endpoint_change_nothing),
        cmocka_unit_test(never_more_than_the_cap),
        cmocka_unit_test(never_below_panic),
        cmocka_unit_test(never_the_last_usable),
        cmocka_unit_test(who_is_out_longest_is_recalled_when_the_last_one_fails),
        cmocka_unit_test(one_is_recalled_when_the_cap_is_reached_by_failures_only),
        cmocka_unit_test(backups_and_drained_ones_hold_nobody_up),
        cmocka_unit_test(the_error_rate_of_a_window_ejects),
        cmocka_unit_test(the_sum_over_the_cores_counts),
        cmocka_unit_test(the_worst_goes_first),
        cmocka_unit_test(the_slow_one_among_others_is_ejected),
        cmocka_unit_test(slowness_is_relative_and_about_the_median),
        cmocka_unit_test(verdicts_survive_a_reload_by_name),
        cmocka_unit_test(verdicts_end_with_the_settings_behind_them),
        cmocka_unit_test(the_cap_holds_whatever_happens),
    };
    return cmocka_run_group_tests_name("verdict", tests, NULL, NULL);
}
