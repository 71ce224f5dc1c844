#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <pthread.h>

#include "runtime/clock.h"
#include "runtime/retry_budget.h"
#include "runtime/rng.h"

#define START 271828182845ull
#define S     1000000000ull
#define CORES 8

static struct retry_budget budget;
static struct retry_budget_core core[CORES];

static void init(uint32_t ratio_ppm, uint32_t floor, uint32_t burst, unsigned cores)
{
    retry_budget_init(&budget, &(struct retry_budget_opts){.ratio_ppm = ratio_ppm,
                                                           .min_per_second = floor,
                                                           .burst = burst,
                                                           .cores = cores});
    for (unsigned i = 0; i < cores; i++)
        retry_budget_core_init(&core[i], &budget);
}

static void request(unsigned c, unsigned n)
{
    while (n-- > 0)
        retry_budget_request(&core[c]);
}

static unsigned take_all(unsigned c, uint64_t now)
{
    unsigned n = 0;
    while (retry_budget_take(&core[c], now))
        n++;
    return n;
}

static void a_fifth_of_requests_to_the_token(void **state)
{
    (void)state;
    init(200000, 0, 1000, 1);
    assert_false(retry_budget_take(&core[0], START));
    request(0, 4);
    assert_false(retry_budget_take(&core[0], START));
    request(0, 1);
    assert_true(retry_budget_take(&core[0], START));
    assert_false(retry_budget_take(&core[0], START));
    request(0, 1003);
    assert_int_equal(take_all(0, START), 200);
    request(0, 2); /* the three over were kept */
    assert_int_equal(take_all(0, START), 1);
    assert_int_equal(counter_get(&core[0].requests), 1010);
    assert_int_equal(counter_get(&core[0].granted), 202);
}

static void a_storm_gets_no_more_than_its_share(void **state)
{
    (void)state;
    /* Every request fails, and every retry of it, for ten seconds. */
    init(200000, 3, 100, 1);
    uint64_t attempts = 0, requests = 0;
    for (uint64_t t = START; t < START + 10 * S; t += S / 1000) {
        requests++;
        attempts++;
        request(0, 1);
        while (retry_budget_take(&core[0], t))
            attempts++;
    }
    assert_int_equal(requests, 10000);
    assert_true(attempts >= requests + requests / 5 + 30);
    assert_true(attempts <= requests + requests / 5 + 33);
}

static void the_floor_is_there_without_requests(void **state)
{
    (void)state;
    init(200000, 3, 100, 2);
    assert_int_equal(take_all(0, START), 3); /* one second's at once */
    assert_int_equal(take_all(1, START), 0); /* for all cores together */
    assert_int_equal(take_all(1, START + S / 3 - 1), 0);
    assert_int_equal(take_all(1, START + S / 3 + 1), 1);
    assert_int_equal(take_all(0, START + 100 * S), 3); /* not saved up */
    unsigned n = 0;
    for (uint64_t t = START + 200 * S; t <= START + 260 * S; t += 7000000)
        n += take_all(t % 2, t);
    assert_true(n >= 3 * 60 && n <= 3 * 61);
}

static void every_floor_holds_its_second_exactly(void **state)
{
    (void)state;
    for (uint32_t rate = 1; rate <= RETRY_BUDGET_FLOOR_MAX; rate += 1 + rate / 7) {
        init(0, rate, 1, 1);
        unsigned n = take_all(0, START);
        assert_int_equal(n, rate);
        for (uint64_t t = 0; t < 20 * S; t += S / 97)
            n += take_all(0, START + t);
        assert_true(n >= 20 * rate && n <= 21 * rate);
    }
}

static void one_cores_tokens_serve_another(void **state)
{
    (void)state;
    init(500000, 0, 64, 4); /* chunks of two tokens */
    request(0, 400);        /* 200 tokens: 64 in the pool, 4 kept, the rest lost */
    assert_int_equal(retry_budget_pool(&budget), 64);
    unsigned others = take_all(1, START) + take_all(2, START) + take_all(3, START);
    assert_int_equal(others, 64);
    assert_int_equal(take_all(0, START), 4);
    assert_int_equal(retry_budget_pool(&budget), 0);
}

static void a_core_that_goes_leaves_its_tokens(void **state)
{
    (void)state;
    init(500000, 0, 64, 4);
    request(0, 6);
    retry_budget_core_fini(&core[0]);
    assert_int_equal(retry_budget_pool(&budget), 3);
    assert_int_equal(take_all(1, START), 3);
}

static void settings_change_live(void **state)
{
    (void)state;
    init(200000, 0, 100, 1);
    request(0, 10);
    retry_budget_set(&budget, 1000000, 5);
    request(0, 10);
    assert_int_equal(take_all(0, START), 2 + 10 + 5);
    retry_budget_set(&budget, 0, 0);
    request(0, 1000);
    assert_int_equal(take_all(0, START + 10 * S), 0);
}

/* The bound of the header, over random use of all cores from a seed. */
static void the_bound_over_all_cores_holds_in_every_span(void **state)
{
    (void)state;
    for (uint64_t seed = 1; seed <= 40; seed++) {
        struct rng rng = {seed};
        uint32_t ratio = rng_below(&rng, 1000001), floor = rng_below(&rng, 20);
        uint32_t burst = 1 + rng_below(&rng, 200);
        uint64_t chunk = burst / (8 * CORES) ? burst / (8 * CORES) : 1;
        uint64_t now = START, since = now, requests = 0, granted = 0;
        uint64_t all_requests = 0, all_granted = 0;
        init(ratio, floor, burst, CORES);
        for (unsigned i = 0; i < 50000; i++) {
            unsigned c = rng_below(&rng, CORES);
            if (rng_chance(&rng, 1000)) { /* a new span begins anywhere */
                since = now;
                requests = granted = 0;
            }
            if (rng_chance(&rng, 100000))
                now += rng_below(&rng, S / 10);
            if (rng_chance(&rng, i / 5000 % 2 ? 200000 : 800000)) {
                request(c, 1);
                requests++;
                all_requests++;
            } else if (retry_budget_take(&core[c], now)) {
                granted++;
                all_granted++;
            }
            double span = (double)(now - since) / S + 1, life = (double)(now - START) / S + 1;
            double share = (double)ratio / 1e6;
            if ((double)granted > share * (double)requests + burst + 2.0 * (double)chunk * CORES +
                                      floor * span + 1e-6 ||
                (double)all_granted > share * (double)all_requests + floor * life + 1e-6)
                fail_msg("seed %lu: %lu retries of %lu requests", (unsigned long)seed,
                         (unsigned long)granted, (unsigned long)requests);
        }
    }
}

/* Threads: nothing is made or lost on the way through the pool. */

enum { THREADS = 3, ROUNDS = 200000 };

static void *use_budget(void *arg)
{
    struct retry_budget_core *c = arg;
    struct rng rng = {(uint64_t)(c - core) + 1};
    bool mostly_asks = c == &core[0];
    for (unsigned i = 0; i < ROUNDS; i++) {
        if (rng_chance(&rng, mostly_asks ? 100000 : 900000))
            retry_budget_request(c);
        else
            retry_budget_take(c, START + i);
    }
    return NULL;
}

static void threads_share_it_exactly(void **state)
{
    pthread_t thread[THREADS];
    (void)state;
    /* So much room that no token is lost: each is granted or still somewhere at the end. */
    init(250000, 0, 1000000, THREADS);
    budget.chunk_ = 2 * RETRY_BUDGET_TOKEN;
    for (unsigned i = 0; i < THREADS; i++)
        assert_int_equal(pthread_create(&thread[i], NULL, use_budget, &core[i]), 0);
    for (unsigned i = 0; i < THREADS; i++)
        pthread_join(thread[i], NULL);
    uint64_t made = 0, used = 0, left = budget.pool_;
    for (unsigned i = 0; i < THREADS; i++) {
        made += counter_get(&core[i].requests) * 250000;
        used += counter_get(&core[i].granted) * RETRY_BUDGET_TOKEN;
        left += core[i].tokens_;
    }
    assert_int_equal(made, used + left);
    take_all(0, START + ROUNDS);
    assert_int_equal(retry_budget_pool(&budget), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_fifth_of_requests_to_the_token),
        cmocka_unit_test(a_storm_gets_no_more_than_its_share),
        cmocka_unit_test(the_floor_is_there_without_requests),
        cmocka_unit_test(every_floor_holds_its_second_exactly),
        cmocka_unit_test(one_cores_tokens_serve_another),
        cmocka_unit_test(a_core_that_goes_leaves_its_tokens),
        cmocka_unit_test(settings_change_live),
        cmocka_unit_test(the_bound_over_all_cores_holds_in_every_span),
        cmocka_unit_test(threads_share_it_exactly),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
