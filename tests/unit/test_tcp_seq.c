#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <errno.h>
#include <string.h>

#include <cmocka.h>

#include "dataplane/tcp/seq.h"

static void numbers_compare_on_a_circle(void **state)
{
    const struct {
        uint32_t a, b;
        int32_t diff;
    } cases[] = {
        {0, 0, 0},
        {1, 0, 1},
        {0, 1, -1},
        {0, UINT32_MAX, 1},
        {UINT32_MAX, 0, -1},
        {0x80000000, 0x80000001, -1},
        {0x7fffffff, 0, 0x7fffffff},
        {100, 0xffffff00, 356},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
        uint32_t a = cases[i].a, b = cases[i].b;
        int32_t d = cases[i].diff;
        assert_int_equal(seq_diff(a, b), d);
        assert_int_equal(seq_lt(a, b), d < 0);
        assert_int_equal(seq_leq(a, b), d <= 0);
        assert_int_equal(seq_gt(a, b), d > 0);
        assert_int_equal(seq_geq(a, b), d >= 0);
        assert_int_equal(seq_max(a, b), d > 0 ? a : b);
        assert_int_equal(seq_min(a, b), d < 0 ? a : b);
    }
}

static void a_window_may_span_the_wrap(void **state)
{
    uint32_t lo = 0xfffffff0, hi = 0x10;
    assert_true(seq_in(lo, lo, hi));
    assert_true(seq_in(UINT32_MAX, lo, hi));
    assert_true(seq_in(0, lo, hi));
    assert_true(seq_in(hi - 1, lo, hi));
    assert_false(seq_in(hi, lo, hi));
    assert_false(seq_in(lo - 1, lo, hi));
    assert_false(seq_in(lo, lo, lo));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(numbers_compare_on_a_circle),
        cmocka_unit_test(a_window_may_span_the_wrap),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
