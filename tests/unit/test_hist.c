#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "runtime/clock.h"
#include "runtime/counter.h"
#include "runtime/hist.h"
#include "runtime/rng.h"

static void buckets_tile_all_values(void **state)
{
    (void)state;
    uint64_t start = 0;
    for (unsigned b = 0; b < HIST_BUCKETS; b++) {
        uint64_t end = hist_bucket_end(b);
        assert_int_equal(hist_bucket(start), b);
        assert_int_equal(hist_bucket(end), b);
        if (b < HIST_BUCKETS - 1)
            assert_true(end - start <= start / 8);
        start = end + 1;
    }
    assert_int_equal(start, 0); /* the last one ends at 2^64 - 1 */
    for (uint64_t v = 0; v < 16; v++)
        assert_int_equal(hist_bucket_end(hist_bucket(v)), v);
}

static int compare_u64(const void *a, const void *b)
{
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return (x > y) - (x < y);
}

static void percentiles_are_an_eighth_above_the_truth_at_most(void **state)
{
    (void)state;
    static uint64_t values[5000];
    static const uint32_t ppms[] = {0, 1, 100000, 500000, 900000, 990000, 999000, 999999, 1000000};
    for (uint64_t seed = 1; seed <= 20; seed++) {
        struct rng rng = {seed};
        struct hist h;
        uint64_t sum = 0;
        hist_init(&h);
        unsigned n = 1 + rng_below(&rng, 5000);
        for (unsigned i = 0; i < n; i++) {
            values[i] = rng_next(&rng) >> (32 + rng_below(&rng, 32));
            hist_record(&h, values[i]);
            sum += values[i];
        }
        qsort(values, n, sizeof(values[0]), compare_u64);
        assert_int_equal(h.count, n);
        assert_int_equal(h.sum, sum);
        assert_int_equal(h.max, values[n - 1]);
        assert_int_equal(hist_mean(&h), sum / n);
        for (unsigned i = 0; i < sizeof(ppms) / sizeof(ppms[0]); i++) {
            uint64_t rank = ((uint64_t)n * ppms[i] + 999999) / 1000000;
            uint64_t truth = values[rank ? rank - 1 : 0];
            uint64_t got = hist_percentile(&h, ppms[i]);
            if (got < truth || got > truth + truth / 8)
                fail_msg("seed %lu: %u ppm of %u values: %lu instead of %lu", seed, ppms[i], n, got,
                         truth);
        }
    }
}

static void huge_values_keep_an_exact_max(void **state)
{
    (void)state;
    struct hist h = {0};
    hist_record(&h, UINT64_MAX);
    hist_record(&h, UINT64_MAX - 7);
    assert_int_equal(h.max, UINT64_MAX);
    assert_int_equal(h.sum, UINT64_MAX); /* saturated */
    assert_int_equal(hist_percentile(&h, 500000), UINT64_MAX);
}

static void empty_histogram_answers_zero(void **state)
{
    (void)state;
    struct hist h = {0};
    assert_int_equal(hist_percentile(&h, 990000), 0);
    assert_int_equal(hist_mean(&h), 0);
    assert_int_equal(hist_count_le(&h, UINT64_MAX), 0);
}

static void merge_equals_recording_into_one(void **state)
{
    (void)state;
    struct rng rng = {7};
    struct hist a = {0}, b = {0}, both = {0};
    for (int i = 0; i < 1000; i++) {
        uint64_t v = rng_next(&rng) >> (20 + rng_below(&rng, 40));
        hist_record(i % 3 ? &a : &b, v);
        hist_record(&both, v);
    }
    hist_merge(&a, &b);
    assert_memory_equal(&a, &both, sizeof(a));
}

static void cumulative_counts_follow_bucket_ends(void **state)
{
    (void)state;
    struct hist h = {0};
    for (uint64_t v = 1; v <= 100; v++)
        hist_record(&h, v);
    assert_int_equal(hist_count_le(&h, 0), 0);
    assert_int_equal(hist_count_le(&h, 10), 10);
    assert_int_equal(hist_count_le(&h, 63), 63);
    assert_int_equal(hist_count_le(&h, 64), 63); /* 64..71 is one bucket */
    assert_int_equal(hist_count_le(&h, UINT64_MAX), 100);
}

static void counters_add_and_gauge(void **state)
{
    (void)state;
    struct {
        struct counter a, b;
    } COUNTER_BLOCK c = {0};
    assert_int_equal((uintptr_t)&c % 64, 0);
    counter_inc(&c.a);
    counter_add(&c.a, 41);
    counter_set(&c.b, 7);
    assert_int_equal(counter_get(&c.a), 42);
    assert_int_equal(counter_get(&c.b), 7);
}

static void cycles_convert_without_overflow(void **state)
{
    (void)state;
    assert_int_equal(clock_tsc_to_ns(3000000000u, 3000000000u), 1000000000);
    assert_int_equal(clock_tsc_to_ns(1, 2000000000), 0);
    assert_int_equal(clock_tsc_to_ns(UINT64_MAX, 1000000000), UINT64_MAX);
    uint64_t hz = clock_tsc_calibrate();
    assert_true(hz > 100 * 1000 * 1000ull && hz < 10 * 1000 * 1000 * 1000ull);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(buckets_tile_all_values),
        cmocka_unit_test(percentiles_are_an_eighth_above_the_truth_at_most),
        cmocka_unit_test(huge_values_keep_an_exact_max),
        cmocka_unit_test(empty_histogram_answers_zero),
        cmocka_unit_test(merge_equals_recording_into_one),
        cmocka_unit_test(cumulative_counts_follow_bucket_ends),
        cmocka_unit_test(counters_add_and_gauge),
        cmocka_unit_test(cycles_convert_without_overflow),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
