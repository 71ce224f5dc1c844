/* Hosts and paths: what is refused, and what the rest is routed by. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "dataplane/http/h1/parse.h"
#include "dataplane/http/normalize.h"

#define A50  "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"
#define A250 A50 A50 A50 A50 A50

static const struct {
    const char *text;
    const char *host; /* NULL: refused */
    unsigned port;
} hosts[] = {
    {"a", "a", 0},
    {"WWW.Example.COM", "www.example.com", 0},
    {"a:80", "a", 80},
    {"a:", "a", 0},
    {"a:65535", "a", 65535},
    {"a:00080", "a", 80},
    {"a.", "a", 0},
    {"a.:8080", "a", 8080},
    {"under_score-1.a", "under_score-1.a", 0},
    {"127.0.0.1:8080", "127.0.0.1", 8080},
    {"[::1]", "[::1]", 0},
    {"[2001:DB8::1]:443", "[2001:db8::1]", 443},
    {A250 "abc", A250 "abc", 0},
    {"", NULL, 0},
    {".", NULL, 0},
    {".a", NULL, 0},
    {"a..b", NULL, 0},
    {"a..", NULL, 0},
    {":80", NULL, 0},
    {"a:0", NULL, 0},
    {"a:65536", NULL, 0},
    {"a:000080", NULL, 0},
    {"a:+80", NULL, 0},
    {"a:80:80", NULL, 0},
    {"a:8o", NULL, 0},
    {"a b", NULL, 0},
    {"a,b", NULL, 0},
    {"a/b", NULL, 0},
    {"a@b", NULL, 0},
    {"user:pw@b", NULL, 0},
    {"a%2eb", NULL, 0},
    {"a\\b", NULL, 0},
    {"a?b", NULL, 0},
    {"\xc3\xa9", NULL, 0},
    {"[::1", NULL, 0},
    {"[]", NULL, 0},
    {"[::1]x", NULL, 0},
    {"[::1%eth0]", NULL, 0},
    {"[v1.a]", NULL, 0},
    {"[127.0.0.1]", NULL, 0},
    {"::1", NULL, 0},
    {A250 "abcd", NULL, 0},
    {A250 A250, NULL, 0},
    {"[" A50 "]", NULL, 0},
};

static void test_hosts(void **state)
{
    for (size_t i = 0; i < sizeof(hosts) / sizeof(hosts[0]); i++) {
        struct http_host h;
        size_t len = strlen(hosts[i].text);
        char *exact = malloc(len + 1);
        memcpy(exact, hosts[i].text, len);
        int ret = http_host_normalize(exact, len, &h);
        free(exact);
        if (ret != (hosts[i].host ? 0 : -400))
            fail_msg("\"%s\": %d", hosts[i].text, ret);
        if (ret < 0)
            continue;
        assert_string_equal(h.name, hosts[i].host);
        assert_int_equal(h.len, strlen(h.name));
        assert_int_equal(h.port, hosts[i].port);
    }
}

static const struct {
    const char *path;
    const char *normal; /* NULL: refused for `error` */
    enum http_error error;
} paths[] = {
    {"/", "/"},
    {"/a/b.c/", "/a/b.c/"},
    {"/a//b", "/a/b"},
    {"//", "/"},
    {"//a", "/a"},
    {"/a///", "/a/"},
    {"/.a", "/.a"},
    {"/...", "/..."},
    {"/a./b", "/a./b"},
    {"/.well-known/x", "/.well-known/x"},
    {"/%61%2D%7e", "/a-~"},
    {"/%c3%a9", "/%C3%A9"},
    {"/%20%25", "/%20%25"},
    {"/%252e%252e/", "/%252e%252e/"},
    {"/a;b=c/d", "/a;b=c/d"},
    {"/;..", "/;.."},
    {"/a:b@c!$&'()*+,=", "/a:b@c!$&'()*+,="},
    {"/.", NULL, HTTP_ERR_DOT_SEGMENT},
    {"/..", NULL, HTTP_ERR_DOT_SEGMENT},
    {"/./a", NULL, HTTP_ERR_DOT_SEGMENT},
    {"/a/../b", NULL, HTTP_ERR_DOT_SEGMENT},
    {"/a/..", NULL, HTTP_ERR_DOT_SEGMENT},
    {"/a//../b", NULL, HTTP_ERR_DOT_SEGMENT},
    {"/%2e%2e/a", NULL, HTTP_ERR_DOT_SEGMENT},
    {"/.%2E/a", NULL, HTTP_ERR_DOT_SEGMENT},
    {"/%2e", NULL, HTTP_ERR_DOT_SEGMENT},
    {"/a/..;/b", NULL, HTTP_ERR_DOT_SEGMENT},
    {"/a/.;x=y", NULL, HTTP_ERR_DOT_SEGMENT},
    {"/a%2fb", NULL, HTTP_ERR_ESCAPED_SLASH},
    {"/a%2F..%2Fb", NULL, HTTP_ERR_ESCAPED_SLASH},
    {"/a%5cb", NULL, HTTP_ERR_ESCAPED_SLASH},
    {"/a\\b", NULL, HTTP_ERR_BACKSLASH},
    {"/\\..\\", NULL, HTTP_ERR_BACKSLASH},
    {"/%00", NULL, HTTP_ERR_ESCAPED_CTL},
    {"/a%0d%0aX:%20b", NULL, HTTP_ERR_ESCAPED_CTL},
    {"/%1f", NULL, HTTP_ERR_ESCAPED_CTL},
    {"/%7F", NULL, HTTP_ERR_ESCAPED_CTL},
    {"/%", NULL, HTTP_ERR_BAD_ESCAPE},
    {"/%4", NULL, HTTP_ERR_BAD_ESCAPE},
    {"/%zz", NULL, HTTP_ERR_BAD_ESCAPE},
    {"/%4g", NULL, HTTP_ERR_BAD_ESCAPE},
    {"/%u002e", NULL, HTTP_ERR_BAD_ESCAPE},
    {"/%-1", NULL, HTTP_ERR_BAD_ESCAPE},
};

static void test_paths(void **state)
{
    for (size_t i = 0; i < sizeof(paths) / sizeof(paths[0]); i++) {
        size_t len = strlen(paths[i].path);
        char *exact = malloc(len), *buf = malloc(len);
        const char *normal;
        uint32_t normal_len;
        enum http_error e = HTTP_ERR_NONE;
        memcpy(exact, paths[i].path, len);
        int ret = http_path_normalize(exact, len, buf, len, &normal, &normal_len, &e);
        if (ret != (paths[i].normal ? 0 : -400) || e != paths[i].error)
            fail_msg("%s: %d, %s", paths[i].path, ret, http_error_text(e));
        if (ret == 0) {
            assert_int_equal(normal_len, strlen(paths[i].normal));
            assert_memory_equal(normal, paths[i].normal, normal_len);
        }
        free(exact);
        free(buf);
    }
}

/* Normalizing what is normal changes nothing. */
static void test_normal_paths_stay_where_they_are(void **state)
{
    for (size_t i = 0; i < sizeof(paths) / sizeof(paths[0]); i++) {
        if (!paths[i].normal)
            continue;
        char buf[64];
        const char *normal;
        uint32_t len;
        enum http_error e;
        size_t before = strlen(paths[i].normal);
        assert_int_equal(
            http_path_normalize(paths[i].normal, before, buf, sizeof(buf), &normal, &len, &e), 0);
        assert_int_equal(len, before);
        assert_memory_equal(normal, paths[i].normal, len);
    }
}

static void test_a_path_longer_than_the_buffer_is_414(void **state)
{
    char buf[4];
    const char *normal;
    uint32_t len;
    enum http_error e;
    assert_int_equal(http_path_normalize("/%61//", 6, buf, sizeof(buf), &normal, &len, &e), -414);
    assert_int_equal(e, HTTP_ERR_LONG_TARGET);
}

static const struct {
    const char *text;
    int ret;
    const char *host;
    unsigned port;
    const char *path;
} requests[] = {
    {"GET /a/%62 HTTP/1.1\r\nHost: A.b:81\r\n\r\n", 0, "a.b", 81, "/a/b"},
    {"GET http://C/x HTTP/1.1\r\nHost: a\r\n\r\n", 0, "c", 0, "/x"},
    {"GET http://c HTTP/1.1\r\nHost: a\r\n\r\n", 0, "c", 0, "/"},
    {"OPTIONS * HTTP/1.1\r\nHost: a\r\n\r\n", 0, "a", 0, "/"},
    {"GET /x HTTP/1.0\r\n\r\n", 0, "", 0, "/x"},
    {"GET /x?a=/../%00 HTTP/1.1\r\nHost: a\r\n\r\n", 0, "a", 0, "/x"},
    {"GET /x HTTP/1.1\r\nHost:\r\n\r\n", -400, NULL, 0, NULL},
    {"GET /x HTTP/1.0\r\nHost:\r\n\r\n", -400, NULL, 0, NULL},
    {"GET /x HTTP/1.1\r\nHost: a b\r\n\r\n", -400, NULL, 0, NULL},
    {"GET http://u@c/ HTTP/1.1\r\nHost: c\r\n\r\n", -400, NULL, 0, NULL},
    {"GET http://c/ HTTP/1.1\r\nHost: c/d\r\n\r\n", -400, NULL, 0, NULL},
    {"GET http://c/../ HTTP/1.1\r\nHost: c\r\n\r\n", -400, NULL, 0, NULL},
    {"GET https://c/ HTTP/1.1\r\nHost: c\r\n\r\n", -421, NULL, 0, NULL},
};

static void test_requests_are_routed_by_authority_and_normal_path(void **state)
{
    static const struct h1_limits limits = {.head_size = 1024};
    for (size_t i = 0; i < sizeof(requests) / sizeof(requests[0]); i++) {
        struct http_header fields[8];
        struct http_head head;
        struct http_route_key key;
        char buf[1024];
        http_head_init(&head, fields, 8);
        const char *text = requests[i].text;
        assert_int_equal(h1_parse_request(text, strlen(text), &limits, &head), 0);
        int ret = http_normalize_request(&head, false, buf, sizeof(buf), &key);
        if (ret != requests[i].ret)
            fail_msg("%d, not %d:\n%s", ret, requests[i].ret, text);
        assert_int_equal(http_error_status(head.error), -ret);
        if (ret < 0)
            continue;
        assert_string_equal(key.host.name, requests[i].host);
        assert_int_equal(key.host.port, requests[i].port);
        assert_int_equal(key.path_len, strlen(requests[i].path));
        assert_memory_equal(key.path, requests[i].path, key.path_len);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_hosts),
        cmocka_unit_test(test_paths),
        cmocka_unit_test(test_normal_paths_stay_where_they_are),
        cmocka_unit_test(test_a_path_longer_than_the_buffer_is_414),
        cmocka_unit_test(test_requests_are_routed_by_authority_and_normal_path),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
