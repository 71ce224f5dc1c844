#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include <cmocka.h>

#include "dataplane/http/date.h"

static void reads_three_forms(void **state)
{
    static const struct {
        const char *text;
        int64_t s; /* -1: refused */
    } cases[] = {
        {"Sun, 06 Nov 1994 08:49:37 GMT", 784111777},
        {"Sunday, 06-Nov-94 08:49:37 GMT", 784111777},
        {"Sun Nov  6 08:49:37 1994", 784111777},
        {"Sun Nov 16 08:49:37 1994", 784975777},
        {"Thu, 01 Jan 1970 00:00:00 GMT", 0},
        {"Tue, 29 Feb 2000 23:59:60 GMT", 951868800},
        {"Monday, 31-Dec-69 23:59:59 GMT", 3155759999},
        {"Mon, 30 Nov 2026 22:36:23 GMT", 1796078183},
        {"", -1},
        {"120", -1},
        {"Sun, 06 Nov 1994 08:49:37", -1},
        {"Sun, 06 Nov 1994 08:49:37 GMT ", -1},
        {"Sun, 06 Nov 1994 08:49:37 UTC", -1},
        {"Sun, 06 Nov 1994 08:49:37 gmt", -1},
        {"Xyz, 06 Nov 1994 08:49:37 GMT", -1},
        {"Sun, 06 Now 1994 08:49:37 GMT", -1},
        {"unM, 06 Nov 1994 08:49:37 GMT", -1},
        {"Sun, 00 Nov 1994 08:49:37 GMT", -1},
        {"Sun, 31 Nov 1994 08:49:37 GMT", -1},
        {"Thu, 29 Feb 1900 00:00:00 GMT", -1},
        {"Sun, 06 Nov 1994 24:00:00 GMT", -1},
        {"Sun, 06 Nov 1994 08:60:37 GMT", -1},
        {"Sun, 06 Nov 1994 08:49:61 GMT", -1},
        {"Sun, 06 Nov 0994 08:49:37 GMT", -1},
        {"Sun, -6 Nov 1994 08:49:37 GMT", -1},
        {"Sunday, 06-Nov-1994 08:49:37 GMT", -1},
        {"Someday, 06-Nov-94 08:49:37 GMT", -1},
        {"Sun Nov 6  08:49:37 1994", -1},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        int64_t s = -1;
        bool ok = http_date_parse(cases[i].text, strlen(cases[i].text), &s);
        if (ok != (cases[i].s >= 0) || s != cases[i].s)
            fail_msg("\"%s\" gives %s %lld", cases[i].text, ok ? "yes" : "no", (long long)s);
    }
}

/* Against the C library, over 400 years in odd steps. */
static void agrees_with_the_library(void **state)
{
    for (int64_t t = 0; t < INT64_C(400) * 366 * 86400; t += 86400 * 3 + 12347) {
        char text[40];
        struct tm tm;
        time_t when = (time_t)t;
        int64_t back;
        size_t len = strftime(text, sizeof(text), "%a, %d %b %Y %T GMT", gmtime_r(&when, &tm));
        assert_true(http_date_parse(text, len, &back));
        assert_int_equal(back, t);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(reads_three_forms),
        cmocka_unit_test(agrees_with_the_library),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
