#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "dataplane/http/deadline.h"

#define MS 1000000ull
#define S  (1000 * MS)

static void reads_both_notations(void **state)
{
    static const struct {
        const char *text;
        uint64_t ms, grpc; /* 0: refused */
    } cases[] = {
        {"1500", 1500 * MS, 0},
        {"1", 1 * MS, 0},
        {"999999999999999", UINT64_MAX, 0},
        {"1500m", 0, 1500 * MS},
        {"7S", 0, 7 * S},
        {"2M", 0, 120 * S},
        {"1H", 0, 3600 * S},
        {"99999999u", 0, 99999999000ull},
        {"5n", 0, 5},
        {"99999999H", 0, UINT64_MAX},
        {"123456789n", 0, 0},
        {"", 0, 0},
        {"m", 0, 0},
        {"-1", 0, 0},
        {"+1", 0, 0},
        {"1.5", 0, 0},
        {" 1", 0, 0},
        {"1500ms", 0, 0},
        {"1s", 0, 0},
        {"9999999999999999", 0, 0},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        uint64_t ns = 0;
        size_t len = strlen(cases[i].text);
        bool ok = http_deadline_parse_ms(cases[i].text, len, &ns);
        assert_int_equal(ok, cases[i].ms != 0);
        assert_true(!ok || ns == cases[i].ms);
        ok = http_deadline_parse_grpc(cases[i].text, len, &ns);
        assert_int_equal(ok, cases[i].grpc != 0);
        assert_true(!ok || ns == cases[i].grpc);
    }
}

static void writes_never_more_than_there_is(void **state)
{
    static const uint64_t values[] = {
        0,         1,         999, MS - 1, MS, 1500001, 99999999ull, 100000000ull, 15 * S + 123456,
        90000 * S, UINT64_MAX};
    for (size_t i = 0; i < sizeof(values) / sizeof(values[0]); i++) {
        char text[HTTP_DEADLINE_TEXT_MAX];
        uint64_t back;
        assert_true(
            http_deadline_parse_grpc(text, http_deadline_format_grpc(values[i], text), &back));
        assert_true(back <= values[i] && values[i] - back <= values[i] / 1000000);
        size_t n = http_deadline_format_ms(values[i], text);
        assert_int_equal(n, strlen(text));
        if (http_deadline_parse_ms(text, n, &back))
            assert_true(back <= values[i] && values[i] - back < MS);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(reads_both_notations),
        cmocka_unit_test(writes_never_more_than_there_is),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
