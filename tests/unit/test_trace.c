/* traceparent, as the W3C recommendation has it. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "dataplane/http/trace.h"

#define ID     "4bf92f3577b34da6a3ce929d0e0e4736"
#define PARENT "00f067aa0ba902b7"

static const struct {
    const char *text;
    const char *passed_on; /* NULL: it is none */
} cases[] = {
    {"00-" ID "-" PARENT "-01", "00-" ID "-" PARENT "-01"},
    {"00-" ID "-" PARENT "-00", "00-" ID "-" PARENT "-00"},
    {"00-" ID "-" PARENT "-fe", "00-" ID "-" PARENT "-00"},
    {"00-" ID "-" PARENT "-ff", "00-" ID "-" PARENT "-01"},
    {"01-" ID "-" PARENT "-01", "00-" ID "-" PARENT "-01"},
    {"fe-" ID "-" PARENT "-01-what-ever", "00-" ID "-" PARENT "-01"},
    {"fe-" ID "-" PARENT "-01.what-ever", NULL},
    {"ff-" ID "-" PARENT "-01", NULL},
    {"00-" ID "-" PARENT "-01-", NULL},
    {"00-" ID "-" PARENT "-0", NULL},
    {"00-" ID "-" PARENT "-", NULL},
    {"00-" ID "-" PARENT, NULL},
    {"", NULL},
    {"00-00000000000000000000000000000000-" PARENT "-01", NULL},
    {"00-" ID "-0000000000000000-01", NULL},
    {"00-4BF92F3577B34DA6A3CE929D0E0E4736-" PARENT "-01", NULL},
    {"00-" ID "-00F067AA0BA902B7-01", NULL},
    {"0G-" ID "-" PARENT "-01", NULL},
    {"00_" ID "-" PARENT "-01", NULL},
    {"00-" ID "_" PARENT "-01", NULL},
    {"00-" ID "-" PARENT "_01", NULL},
    {"00-" ID "-" PARENT "-0x", NULL},
    {" 00-" ID "-" PARENT "-01", NULL},
};

static void test_valid_ones_are_read_and_written(void **state)
{
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct http_trace t;
        char text[HTTP_TRACE_LEN];
        if (http_trace_parse(cases[i].text, strlen(cases[i].text), &t) !=
            (cases[i].passed_on != NULL))
            fail_msg("%s", cases[i].text);
        if (!cases[i].passed_on)
            continue;
        http_trace_format(&t, text);
        assert_memory_equal(text, cases[i].passed_on, sizeof(text));
    }
}

/* One character after the other is made something else; digits may be other digits. */
static void test_anything_else_is_none(void **state)
{
    static const char good[] = "00-" ID "-" PARENT "-01";
    for (size_t at = 0; at < sizeof(good) - 1; at++) {
        for (unsigned c = 1; c < 256; c++) {
            char text[sizeof(good)];
            struct http_trace t;
            bool is_digit = (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f');
            memcpy(text, good, sizeof(good));
            text[at] = (char)c;
            bool may = good[at] == '-' ? c == '-' : is_digit;
            assert_int_equal(http_trace_parse(text, sizeof(good) - 1, &t), may);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_valid_ones_are_read_and_written),
        cmocka_unit_test(test_anything_else_is_none),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
