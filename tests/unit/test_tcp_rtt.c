#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <errno.h>
#include <string.h>

#include <cmocka.h>

#include "dataplane/tcp/rtt.h"

#define MS 1000000ull

static void before_a_sample_the_timeout_is_a_second(void **state)
{
    struct rtt r;
    rtt_init(&r);
    assert_int_equal(rtt_timeout(&r, 0), 1000 * MS);
    assert_int_equal(rtt_timeout(&r, 1), 2000 * MS);
    assert_int_equal(rtt_timeout(&r, 5), 32000 * MS);
    assert_int_equal(rtt_timeout(&r, 6), 60000 * MS);
    assert_int_equal(rtt_timeout(&r, 200), 60000 * MS);
}

/* RFC 6298 §2.2 and 2.3, by hand. */
static void samples_follow_the_rfc(void **state)
{
    struct rtt r;
    rtt_init(&r);
    rtt_sample(&r, 400 * MS);
    assert_int_equal(r.srtt_us, 400000);
    assert_int_equal(r.var_us, 200000);
    assert_int_equal(rtt_timeout(&r, 0), 1200 * MS);
    rtt_sample(&r, 600 * MS);
    assert_int_equal(r.var_us, (3 * 200000 + 200000) / 4);
    assert_int_equal(r.srtt_us, (7 * 400000 + 600000) / 8);
    assert_int_equal(rtt_timeout(&r, 0), (425 + 800) * MS);
}

static void short_round_trips_keep_the_least_timeout(void **state)
{
    struct rtt r;
    const uint64_t samples[] = {0, 1, 999, 1000, 1500, 50000};
    for (size_t i = 0; i < sizeof(samples) / sizeof(*samples); i++) {
        rtt_init(&r);
        for (unsigned n = 0; n < 100; n++) {
            rtt_sample(&r, samples[i]);
            assert_true(r.srtt_us > 0);
            assert_int_equal(rtt_timeout(&r, 0), 200 * MS);
        }
    }
}

static void absurd_samples_are_bounded(void **state)
{
    struct rtt r;
    rtt_init(&r);
    rtt_sample(&r, UINT64_MAX);
    assert_int_equal(rtt_timeout(&r, 0), 60000 * MS);
    for (unsigned n = 0; n < 1000; n++)
        rtt_sample(&r, UINT64_MAX);
    assert_int_equal(rtt_timeout(&r, 3), 60000 * MS);
    for (unsigned n = 0; n < 1000; n++)
        rtt_sample(&r, MS);
    assert_int_equal(rtt_timeout(&r, 0), 200 * MS);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(before_a_sample_the_timeout_is_a_second),
        cmocka_unit_test(samples_follow_the_rfc),
        cmocka_unit_test(short_round_trips_keep_the_least_timeout),
        cmocka_unit_test(absurd_samples_are_bounded),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
