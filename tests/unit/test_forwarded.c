/* Whom proxies name, and how far that is believed. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <arpa/inet.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "dataplane/http/h1/parse.h"
#include "dataplane/route/forwarded.h"

#define NET(a, b, c, d) ((uint32_t)(a) << 24 | (b) << 16 | (c) << 8 | (d))
#define PROXY           "10.0.0.1"

/* 10.0.0.0/24 and 10.0.2.2. */
static const struct config_range proxies[] = {
    {NET(10, 0, 0, 0), NET(10, 0, 0, 255)},
    {NET(10, 0, 2, 2), NET(10, 0, 2, 2)},
};

static uint32_t client(const char *peer, const char *fields)
{
    struct h1_limits limits = {.head_size = 4096};
    struct http_header room[16];
    struct http_head head = {0};
    char text[1024];
    int n = snprintf(text, sizeof(text), "GET / HTTP/1.1\r\nHost: a\r\n%s\r\n", fields);
    http_head_init(&head, room, 16);
    assert_int_equal(h1_parse_request(text, (size_t)n, &limits, &head), 0);
    return forwarded_client(proxies, 2, inet_addr(peer), &head);
}

static void it_is_read_from_its_end_as_far_as_it_is_trusted(void **state)
{
    static const struct {
        const char *peer, *fields, *client;
    } cases[] = {
        {"192.0.2.1", "", "192.0.2.1"},
        {"192.0.2.1", "X-Forwarded-For: 192.0.2.2\r\n", "192.0.2.1"},
        {PROXY, "", PROXY},
        {PROXY, "X-Forwarded-For: 192.0.2.2\r\n", "192.0.2.2"},
        {PROXY, "x-forwarded-for:192.0.2.2\r\n", "192.0.2.2"},
        {PROXY, "X-Forwarded-For: 192.0.2.3, 192.0.2.2\r\n", "192.0.2.2"},
        {PROXY, "X-Forwarded-For: 192.0.2.2, 10.0.0.9\r\n", "192.0.2.2"},
        {PROXY, "X-Forwarded-For: 192.0.2.2 ,\t10.0.2.2 , 10.0.0.255\r\n", "192.0.2.2"},
        {PROXY, "X-Forwarded-For: 192.0.2.2, 10.0.1.0\r\n", "10.0.1.0"},
        {PROXY, "X-Forwarded-For: 192.0.2.2, 10.0.2.3\r\n", "10.0.2.3"},
        {PROXY, "X-Forwarded-For: 10.0.0.7, 10.0.0.8\r\n", "10.0.0.7"},
        {PROXY, "X-Forwarded-For: 192.0.2.2\r\nX: y\r\nX-Forwarded-For: 10.0.0.8\r\n", "192.0.2.2"},
        {PROXY, "X-Forwarded-For: 192.0.2.2\r\nX-Forwarded-For: 192.0.2.3\r\n", "192.0.2.3"},
        {PROXY, "X-Forwarded-For: 192.0.2.2\r\nX-Forwarded-For:\r\n", "192.0.2.2"},
        {PROXY, "X-Forwarded-For: 192.0.2.2,, ,\r\n", "192.0.2.2"},
        {PROXY, "X-Forwarded-For: ,\r\n", PROXY},
        {PROXY, "X-Forwarded-For: 192.0.2.2:4711\r\n", "192.0.2.2"},
        /* What is none tells nothing, and neither does what stands before it. */
        {PROXY, "X-Forwarded-For: 192.0.2.2, unknown\r\n", PROXY},
        {PROXY, "X-Forwarded-For: 192.0.2.2, 2001:db8::1, 10.0.0.8\r\n", "10.0.0.8"},
        {PROXY, "X-Forwarded-For: [2001:db8::1]:80\r\n", PROXY},
        {PROXY, "X-Forwarded-For: 192.0.2\r\n", PROXY},
        {PROXY, "X-Forwarded-For: 192.0.2.256\r\n", PROXY},
        {PROXY, "X-Forwarded-For: 192.0.2.2 192.0.2.3\r\n", PROXY},
        {PROXY, "X-Forwarded-For: 0.0.0.0\r\n", PROXY},
        {PROXY, "X-Forwarded-For: 1921.1681.1001.1001.1\r\n", PROXY},
        {PROXY, "X-Forwarded-For: \"192.0.2.2\"\r\n", PROXY},
        {PROXY, "Forwarded: for=192.0.2.2\r\n", PROXY},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++)
        if (client(cases[i].peer, cases[i].fields) != inet_addr(cases[i].client))
            fail_msg("from %s, not %s: %s", cases[i].peer, cases[i].client, cases[i].fields);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(it_is_read_from_its_end_as_far_as_it_is_trusted),
    };
    return cmocka_run_group_tests_name("forwarded", tests, NULL, NULL);
}
