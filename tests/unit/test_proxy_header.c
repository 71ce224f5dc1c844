/* PROXY protocol headers as a table, cut everywhere, and written as they are read. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "dataplane/stream/proxy_header.h"

#define V2      "\r\n\r\n\0\r\nQUIT\n"
#define FROM_A  "\xc0\0\2\1"
#define TO_B    "\xc6\x33\x64\2"
#define PORTS   "\x9c\x40\1\xbb"
#define IP6(x)  "\x20\1\xd\xb8\0\0\0\0\0\0\0\0\0\0\0" x
#define LONG_V6 "ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff"

struct header_case {
    const char *bytes;
    size_t len;
    int expect;         /* its length, or the error */
    const char *client; /* NULL: local */
    const char *to;
};
#define CASE(text, ...)                                                                            \
    {                                                                                              \
        text, sizeof(text) - 1, __VA_ARGS__                                                        \
    }

static const struct header_case cases[] = {
    CASE("PROXY TCP4 192.0.2.1 198.51.100.2 40000 443\r\nGET", 45, "192.0.2.1 40000",
         "198.51.100.2 443"),
    CASE("PROXY TCP4 255.255.255.255 255.255.255.255 65535 65535\r\n", 56, "255.255.255.255 65535",
         "255.255.255.255 65535"),
    CASE("PROXY TCP4 1.1.1.1 2.2.2.2 0 0\r\n", 32, "1.1.1.1 0", "2.2.2.2 0"),
    CASE("PROXY TCP6 2001:db8::1 ::2 40000 443\r\n", 38, "2001:db8::1 40000", "::2 443"),
    CASE("PROXY TCP6 " LONG_V6 " " LONG_V6 " 65535 65535\r\n", 104, LONG_V6 " 65535",
         LONG_V6 " 65535"),
    CASE("PROXY TCP6 ::ffff:192.0.2.1 ::ffff:192.0.2.2 1 2\r\n", 50, "192.0.2.1 1", "192.0.2.2 2"),
    CASE("PROXY UNKNOWN\r\n", 15),
    CASE("PROXY UNKNOWN whatever stands here\r\nrest", 36),
    CASE("PROXY UNKNOWN " LONG_V6 " " LONG_V6 " 65535 65535\r\n", 107),
    CASE("PROXY TCP4 0.0.0.0 0.0.0.0 0 0\r\n", 32),
    CASE("PROXY TCP6 :: :: 0 0\r\n", 22),
    /* Not a header at all. */
    CASE("GET / HTTP/1.1\r\n", -ENOMSG),
    CASE("PROXIED", -ENOMSG),
    CASE("PUT /", -ENOMSG),
    CASE("proxy TCP4 1.1.1.1 2.2.2.2 1 2\r\n", -ENOMSG),
    CASE("\r\n\r\nGET", -ENOMSG),
    CASE("\r\n\r\n\0\r\nQUIT\r", -ENOMSG),
    CASE("\x16\3\1", -ENOMSG),
    /* Bad ones. */
    CASE("PROXY \r\n", -EBADMSG),
    CASE("PROXY  TCP4 1.1.1.1 2.2.2.2 1 2\r\n", -EBADMSG),
    CASE("PROXY TCP4  1.1.1.1 2.2.2.2 1 2\r\n", -EBADMSG),
    CASE("PROXY TCP4 1.1.1.1 2.2.2.2 1 2 \r\n", -EBADMSG),
    CASE("PROXY TCP4 1.1.1.1 2.2.2.2 1 2 3\r\n", -EBADMSG),
    CASE("PROXY TCP4 1.1.1.1 2.2.2.2 1\r\n", -EBADMSG),
    CASE("PROXY TCP4 1.1.1.1 2.2.2.2 1 \r\n", -EBADMSG),
    CASE("PROXY TCP4\r\n", -EBADMSG),
    CASE("PROXY TCP4 1.1.1.1 2.2.2.2 1 65536\r\n", -EBADMSG),
    CASE("PROXY TCP4 1.1.1.1 2.2.2.2 1 99999\r\n", -EBADMSG),
    CASE("PROXY TCP4 1.1.1.1 2.2.2.2 01 2\r\n", -EBADMSG),
    CASE("PROXY TCP4 1.1.1.1 2.2.2.2 -1 2\r\n", -EBADMSG),
    CASE("PROXY TCP4 1.1.1.1 2.2.2.2 +1 2\r\n", -EBADMSG),
    CASE("PROXY TCP4 1.1.1.01 2.2.2.2 1 2\r\n", -EBADMSG),
    CASE("PROXY TCP4 1.1.1 2.2.2.2 1 2\r\n", -EBADMSG),
    CASE("PROXY TCP4 256.1.1.1 2.2.2.2 1 2\r\n", -EBADMSG),
    CASE("PROXY TCP4 ::1 ::2 1 2\r\n", -EBADMSG),
    CASE("PROXY TCP6 1.1.1.1 2.2.2.2 1 2\r\n", -EBADMSG),
    CASE("PROXY TCP5 1.1.1.1 2.2.2.2 1 2\r\n", -EBADMSG),
    CASE("PROXY tcp4 1.1.1.1 2.2.2.2 1 2\r\n", -EBADMSG),
    CASE("PROXY UDP4 1.1.1.1 2.2.2.2 1 2\r\n", -EBADMSG),
    CASE("PROXY TCP4 1.1.1.1 2.2.2.2 1 2\n", -EBADMSG),
    CASE("PROXY TCP4 1.1.1.1 2.2.2.2 1\r 2\r\n", -EBADMSG),
    CASE("PROXY TCP4 1.1.1.1\0 2.2.2.2 1 2\r\n", -EBADMSG),
    CASE("PROXY UNKNOWNS\r\n", -EBADMSG),
    CASE("PROXY UNKNOWN \n", -EBADMSG),
    CASE("PROXY UNKNOWN " LONG_V6 " " LONG_V6 " 65535 655350\r\n", -EBADMSG),
    /* Version 2. */
    CASE(V2 "\x21\x11\0\xc" FROM_A TO_B PORTS "GET", 28, "192.0.2.1 40000", "198.51.100.2 443"),
    CASE(V2 "\x21\x21\0\x24" IP6("\1") IP6("\2") PORTS, 52, "2001:db8::1 40000", "2001:db8::2 443"),
    /* TLVs, which may come later. */
    CASE(V2 "\x21\x11\0\x10" FROM_A TO_B PORTS "\4\0\1x", 32, "192.0.2.1 40000",
         "198.51.100.2 443"),
    CASE(V2 "\x21\x11\xff\xff" FROM_A TO_B PORTS, 65551, "192.0.2.1 40000", "198.51.100.2 443"),
    CASE(V2 "\x20\0\0\0", 16),
    CASE(V2 "\x20\x11\0\xc" FROM_A TO_B PORTS, 28),
    CASE(V2 "\x20\xff\0\3", 19), /* whatever a LOCAL says is not looked at */
    CASE(V2 "\x21\0\0\0", 16),
    CASE(V2 "\x21\0\0\5", 21),
    CASE(V2 "\x21\x12\0\xc" FROM_A TO_B PORTS, 28), /* datagrams */
    CASE(V2 "\x21\x31\0\xd8", 232),                 /* Unix */
    CASE(V2 "\x21\x11\0\xc\0\0\0\0\0\0\0\0\0\0\0\0", 28),
    CASE(V2 "\x11\x11\0\xc" FROM_A TO_B PORTS, -EBADMSG),
    CASE(V2 "\x31\x11\0\xc" FROM_A TO_B PORTS, -EBADMSG),
    CASE(V2 "\x22\x11\0\xc" FROM_A TO_B PORTS, -EBADMSG),
    CASE(V2 "\x21\x41\0\xc" FROM_A TO_B PORTS, -EBADMSG),
    CASE(V2 "\x21\x13\0\xc" FROM_A TO_B PORTS, -EBADMSG),
    CASE(V2 "\x21\x11\0\xb" FROM_A TO_B PORTS, -EBADMSG),
    CASE(V2 "\x21\x21\0\xc" FROM_A TO_B PORTS, -EBADMSG),
    CASE(V2 "\x21\x31\0\xd7", -EBADMSG),
};

static void assert_end(const struct inet_end *e, const char *expect)
{
    char addr[INET_TEXT], text[INET_TEXT + 8];
    inet_format(addr, e);
    snprintf(text, sizeof(text), "%s %u", addr, e->port);
    assert_string_equal(text, expect);
}

static void assert_case(const struct header_case *c, const struct proxy_header *h)
{
    assert_int_equal(h->local, c->client == NULL);
    if (!c->client)
        return;
    assert_end(&h->client, c->client);
    assert_end(&h->to, c->to);
}

/* What was parsed from the first bytes only must be what it is at the end: nothing is decided that
 * later bytes would have changed. */
static void every_header_says_the_same_wherever_it_is_cut(void **state)
{
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        const struct header_case *c = &cases[i];
        struct proxy_header h;
        int n = proxy_header_parse(c->bytes, c->len, &h);
        if (n != c->expect)
            fail_msg("case %zu, %.*s: %d, not %d", i, (int)c->len, c->bytes, n, c->expect);
        if (n > 0)
            assert_case(c, &h);
        for (size_t cut = 0; cut < c->len; cut++) {
            n = proxy_header_parse(c->bytes, cut, &h);
            if (n != 0 && n != c->expect)
                fail_msg("case %zu cut at %zu: %d", i, cut, n);
            if (n > 0)
                assert_case(c, &h);
        }
    }
}

static void an_endless_line_is_bad_at_its_107th_byte(void **state)
{
    char line[128] = "PROXY UNKNOWN ";
    struct proxy_header h;
    memset(line + 14, 'x', sizeof(line) - 14);
    assert_int_equal(proxy_header_parse(line, 106, &h), 0);
    assert_int_equal(proxy_header_parse(line, 107, &h), -EBADMSG);
    memcpy(line + 106, "\r\n", 2); /* 108 with its CRLF */
    assert_int_equal(proxy_header_parse(line, 108, &h), -EBADMSG);
}

static void a_header_is_read_as_it_was_written(void **state)
{
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct proxy_header h, again;
        if (proxy_header_parse(cases[i].bytes, cases[i].len, &h) <= 0)
            continue;
        for (unsigned version = 1; version <= 2; version++) {
            char text[PROXY_HEADER_WRITE];
            size_t n = proxy_header_write(version, &h, text);
            assert_true(n <= sizeof(text));
            assert_int_equal(proxy_header_parse(text, n, &again), n);
            assert_case(&cases[i], &again);
        }
    }
}

static void ends_of_two_families_are_written_as_one(void **state)
{
    struct proxy_header h = {.client = {.addr = 0x010200c0, .port = 40000}}, again;
    char text[PROXY_HEADER_WRITE];
    uint8_t to[16] = {0x20, 1, 0xd, 0xb8, [15] = 1};
    h.to = inet_from_ip6(to, 443);
    for (unsigned version = 1; version <= 2; version++) {
        size_t n = proxy_header_write(version, &h, text);
        assert_int_equal(proxy_header_parse(text, n, &again), n);
        assert_end(&again.client, "192.0.2.1 40000");
        assert_end(&again.to, "2001:db8::1 443");
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_header_says_the_same_wherever_it_is_cut),
        cmocka_unit_test(an_endless_line_is_bad_at_its_107th_byte),
        cmocka_unit_test(a_header_is_read_as_it_was_written),
        cmocka_unit_test(ends_of_two_families_are_written_as_one),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
