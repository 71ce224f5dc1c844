/* ClientHellos: what is read of them, what is refused, and that no cut changes it. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <errno.h>
#include <stdio.h>

#include <cmocka.h>

#include "dataplane/stream/client_hello.h"
#include "tests/kit/cut_rope.h"
#include "tests/kit/hello_bytes.h"

#define MAX 16384

static struct hello_bytes extensions, message, wire;
static uint8_t scratch[65536];
static bool offers_h2; /* what scan() found */

static void begin(void)
{
    extensions.len = message.len = wire.len = 0;
}

/* Of the message that `extensions` makes. */
static int parse_extensions(struct client_hello *h)
{
    hello_message(&message, &extensions);
    return client_hello_parse(message.bytes, message.len, h);
}

/* --- the message ----------------------------------------------------------------------------- */

static void a_browsers_hello_is_read(void **state)
{
    struct client_hello h;
    struct hello_reader r = {0};
    struct rope in = {0};
    begin();
    hello_browser(&wire, "WWW.Example.com", "\2h2\10http/1.1", MAX);
    cut_rope_add(&in, wire.bytes, wire.len);
    assert_int_equal(hello_reader_scan(&r, &in, MAX), wire.len);
    const uint8_t *m = hello_reader_message(&r, &in, scratch);
    assert_ptr_equal(m, rope_node_data(in.head) + 5); /* where it lies */
    assert_int_equal(client_hello_parse(m, r.message, &h), 0);
    assert_string_equal(h.name, "www.example.com");
    assert_int_equal(h.name_len, 15);
    assert_true(client_hello_offers(&h, "h2") && client_hello_offers(&h, "http/1.1"));
    assert_false(client_hello_offers(&h, "h") || client_hello_offers(&h, "http/1.0") ||
                 client_hello_offers(&h, ""));
    cut_rope_free(&in);
}

static void without_a_name_or_protocols_there_are_none(void **state)
{
    struct client_hello h;
    begin();
    hello_message(&message, NULL);
    assert_int_equal(client_hello_parse(message.bytes, message.len, &h), 0);
    assert_string_equal(h.name, "");
    assert_false(client_hello_offers(&h, "h2"));
    begin();
    assert_int_equal(parse_extensions(&h), 0);
    assert_int_equal(h.name_len, 0);
}

static void names_are_hosts(void **state)
{
    static char l63[] = "aaaaaaaaaabbbbbbbbbbccccccccccddddddddddeeeeeeeeeeffffffffffggg.x";
    static char l64[] = "aaaaaaaaaabbbbbbbbbbccccccccccddddddddddeeeeeeeeeeffffffffffgggg.x";
    static char n253[254], n254[255];
    static const struct {
        const char *name;
        bool is_good;
    } cases[] = {
        {"a", true},      {"a.b-c.d_e.9", true}, {"1.2.3.4", true}, {"xn--bcher-kva.example", true},
        {l63, true},      {n253, true},          {"", false},       {".", false},
        {"a.", false},    {".a", false},         {"a..b", false},   {"a b", false},
        {"a\nb", false},  {"b\xc3\xbc", false},  {"*.a", false},    {"a:443", false},
        {"[::1]", false}, {l64, false},          {n254, false},
    };
    for (size_t i = 0; i < 254; i++) {
        n254[i] = i % 2 ? '.' : 'a';
        if (i < 253)
            n253[i] = i % 2 ? '.' : 'a';
    }
    n254[253] = 'a';
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct client_hello h;
        begin();
        hello_server_name(&extensions, cases[i].name);
        int err = parse_extensions(&h);
        if (err != (cases[i].is_good ? 0 : -EBADMSG))
            fail_msg("\"%s\": %d", cases[i].name, err);
        if (!err)
            assert_string_equal(h.name, cases[i].name);
    }
}

static void a_nul_in_a_name_is_none_of_it(void **state)
{
    struct client_hello h;
    begin();
    hello_extension(&extensions, 0, "\0\x6\0\0\3a\0b", 8);
    assert_int_equal(parse_extensions(&h), -EBADMSG);
}

static void what_does_not_fit_is_refused(void **state)
{
    static const struct {
        unsigned type;
        size_t len;
        const char *body;
    } cases[] = {
        {0, 0, ""},                     /* as a server would send it */
        {0, 2, "\0\0"},                 /* no name */
        {0, 6, "\0\4\1\0\1a"},          /* of another kind */
        {0, 6, "\0\5\0\0\1a"},          /* a list longer than its extension */
        {0, 7, "\0\4\0\0\1a!"},         /* or shorter */
        {0, 6, "\0\4\0\0\2a"},          /* a name longer than its list */
        {0, 10, "\0\x8\0\0\1a\0\0\1b"}, /* two names */
        {0, 5, "\0\3\0\0\0"},           /* an empty one */
        {16, 0, ""},                    /* ALPN without a list */
        {16, 2, "\0\0"},                /* an empty one */
        {16, 3, "\0\1\0"},              /* an empty name */
        {16, 4, "\0\2\2h"},             /* a name longer than its list */
        {16, 6, "\0\3\2h2!"},           /* a list shorter than its extension */
        {16, 5, "\0\4\2h2"},            /* or longer */
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct client_hello h;
        begin();
        hello_extension(&extensions, cases[i].type, cases[i].body, cases[i].len);
        if (parse_extensions(&h) != -EBADMSG)
            fail_msg("case %zu", i);
    }
}

static void an_extension_that_is_read_comes_once(void **state)
{
    struct client_hello h;
    begin();
    hello_server_name(&extensions, "a");
    hello_server_name(&extensions, "a");
    assert_int_equal(parse_extensions(&h), -EBADMSG);
    begin();
    hello_alpn(&extensions, "\2h2");
    hello_alpn(&extensions, "\2h2");
    assert_int_equal(parse_extensions(&h), -EBADMSG);
}

/* At each length but its own, and with each of the first bytes changed where that matters. */
static void a_message_has_its_own_length(void **state)
{
    struct client_hello h;
    begin();
    hello_server_name(&extensions, "a.example");
    assert_int_equal(parse_extensions(&h), 0);
    for (size_t n = 0; n < message.len; n++)
        assert_int_equal(client_hello_parse(message.bytes, n, &h), -EBADMSG);
    assert_int_equal(client_hello_parse(message.bytes, message.len + 1, &h), -EBADMSG);
    static const struct {
        size_t at;
        uint8_t value;
    } bad[] = {
        {0, 2},   {4, 2},  {38, 33},  /* type, version, session id */
        {72, 0},  {72, 3}, {72, 255}, /* cipher suites: none, odd, too many */
        {77, 0},  {78, 1},            /* compression: none, not the null one */
        {80, 99}, {80, 0},            /* extensions */
    };
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        uint8_t was = message.bytes[bad[i].at];
        message.bytes[bad[i].at] = bad[i].value;
        if (client_hello_parse(message.bytes, message.len, &h) != -EBADMSG)
            fail_msg("byte %zu = %u", bad[i].at, bad[i].value);
        message.bytes[bad[i].at] = was;
    }
    assert_int_equal(client_hello_parse(message.bytes, message.len, &h), 0);
}

/* --- records --------------------------------------------------------------------------------- */

/* `step` bytes at a time; the outcome, and when it came. */
static int scan(const void *bytes, size_t len, size_t step, uint32_t max, struct client_hello *h)
{
    struct hello_reader r = {0};
    struct rope in = {0};
    int n = 0;
    for (size_t at = 0; at < len && n == 0; at += step) {
        cut_rope_add(&in, (const uint8_t *)bytes + at, len - at < step ? len - at : step);
        n = hello_reader_scan(&r, &in, max);
    }
    if (n > 0) {
        const uint8_t *m = hello_reader_message(&r, &in, scratch);
        assert_int_equal(client_hello_parse(m, r.message, h), 0);
        offers_h2 = client_hello_offers(h, "h2");
    }
    cut_rope_free(&in);
    return n;
}

static void neither_segments_nor_records_matter(void **state)
{
    static const size_t records[] = {MAX, 1000, 100, 7, 3, 2, 1}, steps[] = {65536, 1460, 6, 1};
    for (size_t i = 0; i < 7; i++)
        for (size_t k = 0; k < 4; k++) {
            struct client_hello h;
            begin();
            hello_browser(&wire, "a.example", "\2h2", records[i]);
            size_t end = wire.len;
            hello_put(&wire, "\x17\3\3\0\1x", 6); /* early data, which is not looked at */
            assert_int_equal(scan(wire.bytes, wire.len, steps[k], MAX, &h), end);
            assert_string_equal(h.name, "a.example");
            assert_true(offers_h2);
        }
}

static void what_is_no_tls_shows_at_its_first_byte(void **state)
{
    static const char *const other[] = {"G",        "\x80\x2e\1", "\x15\3\1",
                                        "\x17\3\3", "\x16\2",     "SSH-2.0"};
    for (size_t i = 0; i < sizeof(other) / sizeof(other[0]); i++)
        assert_int_equal(scan(other[i], strlen(other[i]), 1, MAX, NULL), -ENOMSG);
    assert_int_equal(scan("\x16", 1, 1, MAX, NULL), 0);
    assert_int_equal(scan("\x16\3", 2, 1, MAX, NULL), 0);
}

static void records_are_of_one_hello_only(void **state)
{
    static const struct {
        size_t len;
        const char *bytes;
    } bad[] = {
        {5, "\x16\3\1\0\0"},                /* empty */
        {5, "\x16\3\1\x40\1"},              /* 16385 bytes */
        {9, "\x16\3\1\0\4\2\0\0\0"},        /* a ServerHello */
        {11, "\x16\3\1\0\1\1\x15\3\1\0\2"}, /* an alert in the middle */
        {11, "\x16\3\1\0\1\1\x16\2\1\0\2"}, /* another version in the middle */
        {10, "\x16\3\1\0\5\1\0\0\0\0"},     /* something behind it in its record */
    };
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
        for (size_t step = 1; step < 16; step += 7) {
            int n = scan(bad[i].bytes, bad[i].len, step, MAX, NULL);
            if (n != -EBADMSG)
                fail_msg("case %zu: %d", i, n);
        }
}

static void a_hello_over_the_limit_is_known_by_its_length(void **state)
{
    struct client_hello h;
    begin();
    hello_browser(&wire, "a", NULL, 100);
    assert_int_equal(scan(wire.bytes, wire.len, 50, (uint32_t)wire.len, &h), wire.len);
    assert_int_equal(scan(wire.bytes, wire.len, 50, (uint32_t)wire.len - 1, &h), -EMSGSIZE);
    assert_int_equal(scan("\x16\3\1\0\4\1\1\0\0", 9, 1, MAX, NULL), -EMSGSIZE);
    assert_int_equal(scan("\x16\3\1\x20\0", 5, 1, 4096, NULL), -EMSGSIZE);
    /* One-byte records that never come to an end. */
    begin();
    while (wire.len < MAX)
        hello_put(&wire, "\x16\3\1\0\1\1", 6);
    wire.bytes[11] = 0; /* the message would have 0x3001 bytes */
    wire.bytes[17] = 0x30;
    assert_int_equal(scan(wire.bytes, wire.len, 1, MAX, NULL), -EMSGSIZE);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_browsers_hello_is_read),
        cmocka_unit_test(without_a_name_or_protocols_there_are_none),
        cmocka_unit_test(names_are_hosts),
        cmocka_unit_test(a_nul_in_a_name_is_none_of_it),
        cmocka_unit_test(what_does_not_fit_is_refused),
        cmocka_unit_test(an_extension_that_is_read_comes_once),
        cmocka_unit_test(a_message_has_its_own_length),
        cmocka_unit_test(neither_segments_nor_records_matter),
        cmocka_unit_test(what_is_no_tls_shows_at_its_first_byte),
        cmocka_unit_test(records_are_of_one_hello_only),
        cmocka_unit_test(a_hello_over_the_limit_is_known_by_its_length),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
