/* Units, addresses and "did you mean": tables of texts and what they mean. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <errno.h>
#include <string.h>
#include <cmocka.h>
#include "config/suggest.h"
#include "config/units.h"
#include "config/utf8.h"

#define UNTOUCHED 0x1234567890abcdef

struct number_case {
    const char *text;
    int rc;
    uint64_t value;
};

static void check_numbers(const struct number_case *c, size_t n,
                          int (*parse)(const char *, size_t, uint64_t *),
                          void (*format)(uint64_t, char *))
{
    for (size_t i = 0; i < n; i++) {
        char text[UNITS_TEXT_MAX];
        uint64_t value = UNTOUCHED, again;

        if (parse(c[i].text, strlen(c[i].text), &value) != c[i].rc)
            fail_msg("\"%s\": not %d", c[i].text, c[i].rc);
        assert_int_equal(value, c[i].rc ? UNTOUCHED : c[i].value);
        if (c[i].rc)
            continue;
        format(value, text);
        assert_int_equal(parse(text, strlen(text), &again), 0);
        assert_int_equal(again, value);
    }
}

static void percentages(void **state)
{
    static const struct number_case cases[] = {
        {"0%", 0, 0},         {"20%", 0, 20},        {"300%", 0, 300},  {"20", -EINVAL, 0},
        {"2 0%", -EINVAL, 0}, {"20.5%", -EINVAL, 0}, {"%", -EINVAL, 0}, {"020%", -EINVAL, 0},
    };

    check_numbers(cases, sizeof(cases) / sizeof(cases[0]), units_parse_percent,
                  units_format_percent);
}

static void durations(void **state)
{
    static const struct number_case cases[] = {
        {"200ms", 0, 200000000},
        {"1s", 0, 1000000000},
        {"90s", 0, 90000000000},
        {"2m", 0, 120000000000},
        {"1h", 0, 3600000000000},
        {"0s", 0, 0},
        {"0h", 0, 0},
        {"7us", 0, 7000},
        {"3ns", 0, 3},
        {"5124095h", 0, 18446742000000000000u},
        {"5124096h", -ERANGE, 0},
        {"18446744073709551615ns", 0, UINT64_MAX},
        {"18446744073709551616ns", -ERANGE, 0},
        {"99999999999999999999999s", -ERANGE, 0},
        {"", -EINVAL, 0},
        {"s", -EINVAL, 0},
        {"5", -EINVAL, 0},
        {"05s", -EINVAL, 0},
        {"-1s", -EINVAL, 0},
        {"+1s", -EINVAL, 0},
        {"1 s", -EINVAL, 0},
        {" 1s", -EINVAL, 0},
        {"1s ", -EINVAL, 0},
        {"1.5s", -EINVAL, 0},
        {"1S", -EINVAL, 0},
        {"1min", -EINVAL, 0},
        {"1m30s", -EINVAL, 0},
        {"99999999999999999999999x", -EINVAL, 0},
    };

    check_numbers(cases, sizeof(cases) / sizeof(cases[0]), units_parse_duration,
                  units_format_duration);
}

static void sizes(void **state)
{
    static const struct number_case cases[] = {
        {"0B", 0, 0},
        {"1B", 0, 1},
        {"1000B", 0, 1000},
        {"64KiB", 0, 65536},
        {"1MiB", 0, 1048576},
        {"2GiB", 0, 2147483648},
        {"17179869183GiB", 0, 17179869183ull << 30},
        {"17179869184GiB", -ERANGE, 0},
        {"64", -EINVAL, 0},
        {"64K", -EINVAL, 0},
        {"64KB", -EINVAL, 0},
        {"64kib", -EINVAL, 0},
        {"KiB", -EINVAL, 0},
        {"1TiB", -EINVAL, 0},
    };

    check_numbers(cases, sizeof(cases) / sizeof(cases[0]), units_parse_size, units_format_size);
}

static void integers(void **state)
{
    static const struct number_case cases[] = {
        {"0", 0, 0},
        {"17", 0, 17},
        {"18446744073709551615", 0, UINT64_MAX},
        {"18446744073709551616", -ERANGE, 0},
        {"", -EINVAL, 0},
        {"017", -EINVAL, 0},
        {"0x11", -EINVAL, 0},
        {"1_000", -EINVAL, 0},
        {"1e3", -EINVAL, 0},
        {"-0", -EINVAL, 0},
    };

    check_numbers(cases, sizeof(cases) / sizeof(cases[0]), units_parse_integer,
                  units_format_integer);
}

static void the_largest_unit_that_divides_is_written(void **state)
{
    char text[UNITS_TEXT_MAX];

    units_format_duration(90000000000, text);
    assert_string_equal(text, "90s");
    units_format_duration(7200000000000, text);
    assert_string_equal(text, "2h");
    units_format_duration(1500000000, text);
    assert_string_equal(text, "1500ms");
    units_format_size(1536, text);
    assert_string_equal(text, "1536B");
    units_format_size(3u << 20, text);
    assert_string_equal(text, "3MiB");
}

static void addresses(void **state)
{
    static const struct {
        const char *text;
        int ip, cidr, endpoint, listen;
    } cases[] = {
        {"10.77.0.1", 0, -EINVAL, -EINVAL, -EINVAL},
        {"10.77.0.1/24", -EINVAL, 0, -EINVAL, -EINVAL},
        {"10.77.0.1/32", -EINVAL, 0, -EINVAL, -EINVAL},
        {"10.77.0.1/0", -EINVAL, -ERANGE, -EINVAL, -EINVAL},
        {"10.77.0.1/33", -EINVAL, -ERANGE, -EINVAL, -EINVAL},
        {"10.77.0.1/024", -EINVAL, -EINVAL, -EINVAL, -EINVAL},
        {"10.77.0.1/", -EINVAL, -EINVAL, -EINVAL, -EINVAL},
        {"/24", -EINVAL, -EINVAL, -EINVAL, -EINVAL},
        {"10.77.0.1:80", -EINVAL, -EINVAL, 0, 0},
        {"10.77.0.1:0", -EINVAL, -EINVAL, -ERANGE, -ERANGE},
        {"10.77.0.1:65536", -EINVAL, -EINVAL, -ERANGE, -ERANGE},
        {"*:80", -EINVAL, -EINVAL, -EINVAL, 0},
        {"*", -EINVAL, -EINVAL, -EINVAL, -EINVAL},
        {"**:80", -EINVAL, -EINVAL, -EINVAL, -EINVAL},
        {":80", -EINVAL, -EINVAL, -EINVAL, -EINVAL},
        {"10.77.0:80", -EINVAL, -EINVAL, -EINVAL, -EINVAL},
        {"010.77.0.1", -EINVAL, -EINVAL, -EINVAL, -EINVAL},
        {"256.0.0.1", -EINVAL, -EINVAL, -EINVAL, -EINVAL},
        {"", -EINVAL, -EINVAL, -EINVAL, -EINVAL},
        {"::1", -EAFNOSUPPORT, -EAFNOSUPPORT, -EAFNOSUPPORT, -EAFNOSUPPORT},
        {"fd77::1/64", -EAFNOSUPPORT, -EAFNOSUPPORT, -EAFNOSUPPORT, -EAFNOSUPPORT},
        {"[fd77::1]:80", -EAFNOSUPPORT, -EAFNOSUPPORT, -EAFNOSUPPORT, -EAFNOSUPPORT},
    };

    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        const char *t = cases[i].text;
        struct config_addr a;
        uint32_t ip;

        if (units_parse_ip(t, strlen(t), &ip) != cases[i].ip ||
            units_parse_cidr(t, strlen(t), &a) != cases[i].cidr ||
            units_parse_endpoint(t, strlen(t), &a) != cases[i].endpoint ||
            units_parse_listen(t, strlen(t), &a) != cases[i].listen)
            fail_msg("\"%s\"", t);
    }
}

static void addresses_go_both_ways(void **state)
{
    struct config_addr a;
    char text[UNITS_TEXT_MAX];

    assert_int_equal(units_parse_listen("255.255.255.255:65535", 21, &a), 0);
    units_format_listen(&a, text);
    assert_string_equal(text, "255.255.255.255:65535");
    assert_int_equal(units_parse_listen("*:1", 3, &a), 0);
    assert_int_equal(a.addr, 0);
    units_format_listen(&a, text);
    assert_string_equal(text, "*:1");
    assert_int_equal(units_parse_cidr("10.77.0.1/24", 12, &a), 0);
    assert_int_equal(a.prefix, 24);
    assert_memory_equal(&a.addr, "\x0a\x4d\x00\x01", 4);
    units_format_cidr(&a, text);
    assert_string_equal(text, "10.77.0.1/24");
}

static void a_nul_within_is_no_end(void **state)
{
    uint64_t value;
    uint32_t ip;

    assert_int_equal(units_parse_duration("1s\0x", 4, &value), -EINVAL);
    assert_int_equal(units_parse_integer("1\0", 2, &value), -EINVAL);
    assert_int_equal(units_parse_ip("10.0.0.1\0", 9, &ip), -EINVAL);
}

static unsigned distance(const char *a, const char *b)
{
    return suggest_distance(a, strlen(a), b, strlen(b), 10);
}

static void edit_distance(void **state)
{
    assert_int_equal(distance("", ""), 0);
    assert_int_equal(distance("", "abc"), 3);
    assert_int_equal(distance("abc", ""), 3);
    assert_int_equal(distance("routes", "routes"), 0);
    assert_int_equal(distance("Routes", "rouTes"), 0);
    assert_int_equal(distance("route", "routes"), 1);
    assert_int_equal(distance("rotues", "routes"), 1);
    assert_int_equal(distance("rwutes", "routes"), 1);
    assert_int_equal(distance("kitten", "sitting"), 3);
    assert_int_equal(suggest_distance("kitten", 6, "sitting", 7, 2), 3);
    assert_int_equal(suggest_distance("a", 1, "abcdef", 6, 2), 3);
}

static void too_long_is_never_near(void **state)
{
    char text[200];

    memset(text, 'a', sizeof(text));
    assert_int_equal(suggest_distance(text, sizeof(text), text, sizeof(text), 3), 4);
    assert_int_equal(suggest_distance(text, SUGGEST_LEN_MAX, text, SUGGEST_LEN_MAX, 3), 0);
}

static const char *suggestion(const char *text)
{
    static const char *const keys[] = {"name", "address", "limits", "http", "tunnel", "warn"};
    struct suggest s;

    suggest_init(&s, text, strlen(text));
    for (size_t i = 0; i < sizeof(keys) / sizeof(keys[0]); i++)
        suggest_offer(&s, keys[i]);
    return s.best ? s.best : "";
}

static void the_nearest_is_suggested(void **state)
{
    assert_string_equal(suggestion("adress"), "address");
    assert_string_equal(suggestion("addresses"), "address");
    assert_string_equal(suggestion("HTTP"), "http");
    assert_string_equal(suggestion("https"), "http");
    assert_string_equal(suggestion("warning"), "warn");
    assert_string_equal(suggestion("tun"), "tunnel");
    assert_string_equal(suggestion("retries"), "");
    assert_string_equal(suggestion("x"), "");
    assert_string_equal(suggestion(""), "");
}

static void utf8(void **state)
{
    static const struct {
        const char *text;
        unsigned length;
    } cases[] = {
        {"a", 1},
        {"\xc3\xa4", 2},
        {"\xe2\x82\xac", 3},
        {"\xf0\x9f\x8c\x8a", 4},
        {"\xf4\x8f\xbf\xbf", 4},
        {"\x80", 0},
        {"\xc0\xaf", 0},
        {"\xc3", 0},
        {"\xc3(", 0},
        {"\xe0\x80\xaf", 0},
        {"\xed\xa0\x80", 0},
        {"\xe2\x82", 0},
        {"\xf0\x80\x80\xaf", 0},
        {"\xf4\x90\x80\x80", 0},
        {"\xf8\x88\x80\x80", 0},
        {"\xff", 0},
    };

    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++)
        if (utf8_length(cases[i].text, strlen(cases[i].text)) != cases[i].length)
            fail_msg("case %zu: not %u", i, cases[i].length);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(durations),
        cmocka_unit_test(percentages),
        cmocka_unit_test(sizes),
        cmocka_unit_test(integers),
        cmocka_unit_test(the_largest_unit_that_divides_is_written),
        cmocka_unit_test(addresses),
        cmocka_unit_test(addresses_go_both_ways),
        cmocka_unit_test(a_nul_within_is_no_end),
        cmocka_unit_test(edit_distance),
        cmocka_unit_test(too_long_is_never_near),
        cmocka_unit_test(the_nearest_is_suggested),
        cmocka_unit_test(utf8),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
