/* Heads as they go on: exactly these bytes. And answers of our own. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "dataplane/http/h1/parse.h"
#include "dataplane/http/h1/serialize.h"
#include "dataplane/http/status.h"
#include "tests/kit/eal.h"
#include "tests/kit/http_text.h"

#define MAX_FIELDS 1000

struct world {
    struct rte_mempool *mbufs;
    struct rope_pool pool;
    struct rope out;
    struct http_header fields[MAX_FIELDS];
    struct http_head head;
};

static const struct h1_limits limits = {.head_size = 65536};

static int setup(void **state)
{
    struct world *w = calloc(1, sizeof(*w));
    kit_eal_init();
    w->mbufs = kit_pool_new(256);
    rope_pool_init(&w->pool, w->mbufs, 0);
    *state = w;
    return 0;
}

static int teardown(void **state)
{
    struct world *w = *state;
    rope_pool_fini(&w->pool);
    kit_pool_free(w->mbufs);
    free(w);
    return 0;
}

static void check_out(struct world *w, const char *expected)
{
    struct text t = {0};
    text_add_rope(&t, &w->out);
    assert_true(rope_check(&w->out));
    assert_string_equal(t.buf, expected);
    text_free(&t);
    rope_clear(&w->pool, &w->out);
}

static const struct {
    const char *in;
    struct h1_request_edit edit;
    const char *out;
} requests[] = {
    {"GET /a?b HTTP/1.1\r\nHost: a\r\nX: y\r\n\r\n",
     {.forwarded = CONFIG_FORWARDED_OFF},
     "GET /a?b HTTP/1.1\r\nHost: a\r\nX: y\r\n\r\n"},
    {"GET / HTTP/1.1\r\nHost: a\r\nConnection: keep-alive, X-b\r\nKeep-Alive: 5\r\nX-A: 1\r\n"
     "X-B: 2\r\nx-b: 3\r\nProxy-Connection: close\r\nTE: trailers\r\nUpgrade: h2c\r\nX-C: 4\r\n"
     "Trailer: X\r\nProxy-Authorization: p\r\n\r\n",
     {.forwarded = CONFIG_FORWARDED_OFF},
     "GET / HTTP/1.1\r\nHost: a\r\nX-A: 1\r\nX-C: 4\r\nTrailer: X\r\nProxy-Authorization: "
     "p\r\n\r\n"},
    {"GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n",
     {.forwarded = CONFIG_FORWARDED_OFF, .close = true},
     "GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n"},
    {"GET / HTTP/1.1\r\nHost: a\r\nConnection: TE\r\nTE: x, trailers\r\n\r\n",
     {.forwarded = CONFIG_FORWARDED_OFF},
     "GET / HTTP/1.1\r\nHost: a\r\nTE: trailers\r\nConnection: TE\r\n\r\n"},
    {"GET / HTTP/1.1\r\nHost: a\r\nConnection: TE\r\nTE: trailers\r\n\r\n",
     {.forwarded = CONFIG_FORWARDED_OFF, .close = true},
     "GET / HTTP/1.1\r\nHost: a\r\nTE: trailers\r\nConnection: close, TE\r\n\r\n"},
    {"GET http://B:81/p?q HTTP/1.1\r\nHost: a\r\nX: y\r\n\r\n",
     {.forwarded = CONFIG_FORWARDED_OFF},
     "GET /p?q HTTP/1.1\r\nX: y\r\nHost: B:81\r\n\r\n"},
    {"GET http://b?q HTTP/1.1\r\nHost: a\r\n\r\n",
     {.forwarded = CONFIG_FORWARDED_OFF},
     "GET /?q HTTP/1.1\r\nHost: b\r\n\r\n"},
    {"OPTIONS http://b HTTP/1.1\r\nHost: a\r\n\r\n",
     {.forwarded = CONFIG_FORWARDED_OFF},
     "OPTIONS * HTTP/1.1\r\nHost: b\r\n\r\n"},
    {"GET / HTTP/1.0\r\nExpect: 100-continue\r\nX: y\r\n\r\n",
     {.forwarded = CONFIG_FORWARDED_OFF, .default_host = "o:80", .via = "mill"},
     "GET / HTTP/1.1\r\nX: y\r\nHost: o:80\r\nVia: 1.0 mill\r\n\r\n"},
    {"PUT / HTTP/1.1\r\nHost: a\r\nExpect: 100-continue\r\nContent-Length: 007\r\n\r\n",
     {.forwarded = CONFIG_FORWARDED_OFF, .framing = HTTP_BODY_LENGTH, .content_length = 7},
     "PUT / HTTP/1.1\r\nHost: a\r\nExpect: 100-continue\r\nContent-Length: 007\r\n\r\n"},
    {"PUT / HTTP/1.1\r\nContent-Length: 7\r\nHost: a\r\n\r\n",
     {.forwarded = CONFIG_FORWARDED_OFF, .framing = HTTP_BODY_CHUNKED},
     "PUT / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n"},
    {"PUT / HTTP/1.1\r\nTransfer-Encoding: chunked\r\nHost: a\r\n\r\n",
     {.forwarded = CONFIG_FORWARDED_OFF, .framing = HTTP_BODY_LENGTH, .content_length = 12345},
     "PUT / HTTP/1.1\r\nHost: a\r\nContent-Length: 12345\r\n\r\n"},
    {"PUT / HTTP/1.1\r\nTransfer-Encoding: chunked\r\nHost: a\r\nConnection: transfer-encoding\r\n"
     "\r\n",
     {.forwarded = CONFIG_FORWARDED_OFF, .framing = HTTP_BODY_CHUNKED},
     "PUT / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n"},
    {"GET / HTTP/1.1\r\nHost: A:1\r\nVia: 1.0 x\r\nX-Forwarded-For: 1.1.1.1\r\n"
     "X-Forwarded-Proto: gopher\r\nX-Forwarded-Host: evil\r\nx-forwarded-for: 2.2.2.2\r\n"
     "via: 1.1 y (z)\r\nForwarded: for=9\r\n\r\n",
     {.forwarded = CONFIG_FORWARDED_X, .client_addr = "3.3.3.3", .via = "mill"},
     "GET / HTTP/1.1\r\nHost: A:1\r\nForwarded: for=9\r\n"
     "X-Forwarded-For: 1.1.1.1, 2.2.2.2, 3.3.3.3\r\nX-Forwarded-Proto: http\r\n"
     "X-Forwarded-Host: A:1\r\nVia: 1.0 x, 1.1 y (z), 1.1 mill\r\n\r\n"},
    {"GET / HTTP/1.1\r\nHost: a\r\nForwarded: for=9\r\nX-Forwarded-For: 8\r\n\r\n",
     {.forwarded = CONFIG_FORWARDED_RFC7239, .client_addr = "2001:db8::1", .https = true},
     "GET / HTTP/1.1\r\nHost: a\r\nX-Forwarded-For: 8\r\n"
     "Forwarded: for=9, for=\"[2001:db8::1]\";host=\"a\";proto=https\r\n\r\n"},
    {"GET / HTTP/1.0\r\n\r\n",
     {.forwarded = CONFIG_FORWARDED_BOTH, .client_addr = "3.3.3.3"},
     "GET / HTTP/1.1\r\nHost: \r\nX-Forwarded-For: 3.3.3.3\r\nX-Forwarded-Proto: http\r\n"
     "Forwarded: for=3.3.3.3;proto=http\r\n\r\n"},
    {"GET / HTTP/1.1\r\nHost: a\r\nConnection: x-forwarded-for, Via, host\r\nX-Forwarded-For: 1\r\n"
     "\r\n",
     {.forwarded = CONFIG_FORWARDED_X, .client_addr = "3.3.3.3"},
     "GET / HTTP/1.1\r\nHost: a\r\nX-Forwarded-For: 1, 3.3.3.3\r\nX-Forwarded-Proto: http\r\n"
     "X-Forwarded-Host: a\r\n\r\n"},
};

static void test_requests_go_on_without_what_was_the_connections(void **state)
{
    struct world *w = *state;
    for (size_t i = 0; i < sizeof(requests) / sizeof(requests[0]); i++) {
        const char *in = requests[i].in;
        http_head_init(&w->head, w->fields, MAX_FIELDS);
        assert_int_equal(h1_parse_request(in, strlen(in), &limits, &w->head), 0);
        assert_int_equal(h1_write_request(&w->pool, &w->out, &w->head, &requests[i].edit), 0);
        check_out(w, requests[i].out);
    }
}

static const char date[] = "Sun, 06 Nov 1994 08:49:37 GMT";

static const struct {
    const char *in;
    bool head_request;
    struct h1_response_edit edit; /* framing comes from h1_response_framing() */
    const char *out;
} responses[] = {
    {"HTTP/1.1 200 OK\r\nContent-Length: 5\r\nDate: x\r\nConnection: keep-alive\r\n\r\n",
     false,
     {.client_minor = 1, .keep_alive = true, .date = date},
     "HTTP/1.1 200 OK\r\nContent-Length: 5\r\nDate: x\r\n\r\n"},
    {"HTTP/1.0 404 Nope\r\nX : y \r\nContent-Length : 5\r\n\r\n",
     false,
     {.client_minor = 1, .keep_alive = true, .date = date, .via = "mill"},
     "HTTP/1.1 404 Nope\r\nX: y\r\nContent-Length: 5\r\n"
     "Date: Sun, 06 Nov 1994 08:49:37 GMT\r\nVia: 1.0 mill\r\n\r\n"},
    {"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nTrailer: X\r\n\r\n",
     false,
     {.client_minor = 1, .keep_alive = true},
     "HTTP/1.1 200 OK\r\nTrailer: X\r\nTransfer-Encoding: chunked\r\n\r\n"},
    {"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n",
     false,
     {.client_minor = 0, .keep_alive = true},
     "HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n"},
    {"HTTP/1.1 200 OK\r\nA: b\r\n\r\n",
     false,
     {.client_minor = 1, .keep_alive = true},
     "HTTP/1.1 200 OK\r\nA: b\r\nTransfer-Encoding: chunked\r\n\r\n"},
    {"HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\n",
     false,
     {.client_minor = 0, .keep_alive = true},
     "HTTP/1.1 200 OK\r\nContent-Length: 1\r\nConnection: keep-alive\r\n\r\n"},
    {"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\n",
     true,
     {.client_minor = 1, .keep_alive = false},
     "HTTP/1.1 200 OK\r\nContent-Length: 9\r\nConnection: close\r\n\r\n"},
    {"HTTP/1.1 304 Not Modified\r\nContent-Length: 9\r\nETag: \"x\"\r\n\r\n",
     false,
     {.client_minor = 1, .keep_alive = true},
     "HTTP/1.1 304 Not Modified\r\nContent-Length: 9\r\nETag: \"x\"\r\n\r\n"},
    {"HTTP/1.1 204 No Content\r\nContent-Length: 0\r\n\r\n",
     false,
     {.client_minor = 1, .keep_alive = true},
     "HTTP/1.1 204 No Content\r\n\r\n"},
    {"HTTP/1.1 103 Early Hints\r\nLink: x\r\nConnection: close\r\n\r\n",
     false,
     {.client_minor = 1, .keep_alive = false, .date = date},
     "HTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\n"},
};

static void test_responses_go_on_framed_for_the_client(void **state)
{
    struct world *w = *state;
    for (size_t i = 0; i < sizeof(responses) / sizeof(responses[0]); i++) {
        const char *in = responses[i].in;
        struct h1_response_edit edit = responses[i].edit;
        http_head_init(&w->head, w->fields, MAX_FIELDS);
        assert_int_equal(h1_parse_response(in, strlen(in), responses[i].head_request, &w->head), 0);
        h1_response_framing(&w->head, &edit);
        assert_int_equal(h1_write_response(&w->pool, &w->out, &w->head, &edit), 0);
        check_out(w, responses[i].out);
    }
}

static void test_a_request_says_when_it_has_no_body(void **state)
{
    struct world *w = *state;
    static const struct {
        const char *in;
        enum http_framing framing;
    } cases[] = {
        {"GET / HTTP/1.1\r\nHost: a\r\n\r\n", HTTP_BODY_NONE},
        {"POST / HTTP/1.1\r\nHost: a\r\n\r\n", HTTP_BODY_LENGTH},
        {"GET / HTTP/1.1\r\nHost: a\r\nContent-Length: 0\r\n\r\n", HTTP_BODY_LENGTH},
        {"GET / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n", HTTP_BODY_CHUNKED},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct h1_request_edit edit = {.forwarded = CONFIG_FORWARDED_OFF};
        http_head_init(&w->head, w->fields, MAX_FIELDS);
        assert_int_equal(h1_parse_request(cases[i].in, strlen(cases[i].in), &limits, &w->head), 0);
        h1_request_framing(&w->head, &edit);
        assert_int_equal(edit.framing, cases[i].framing);
        assert_int_equal(edit.content_length, 0);
    }
}

static void make_long_request(struct text *in, struct text *out)
{
    text_add(in, "GET / HTTP/1.1\r\nHost: a\r\n", 25);
    text_add(out, "GET / HTTP/1.1\r\nHost: a\r\n", 25);
    for (int i = 0; i < 400; i++) {
        text_addf(in, "X-%d: %0100d\r\nKeep-Alive: %d\r\n", i, i, i);
        text_addf(out, "X-%d: %0100d\r\n", i, i);
    }
    text_add(in, "\r\n", 2);
    text_add(out, "\r\n", 2);
}

static void test_a_long_head_takes_several_mbufs(void **state)
{
    struct world *w = *state;
    struct h1_request_edit edit = {.forwarded = CONFIG_FORWARDED_OFF};
    struct text in = {0}, out = {0};
    make_long_request(&in, &out);
    http_head_init(&w->head, w->fields, MAX_FIELDS);
    assert_int_equal(h1_parse_request(in.buf, in.len, &limits, &w->head), 0);
    assert_int_equal(h1_write_request(&w->pool, &w->out, &w->head, &edit), 0);
    assert_true(w->out.nodes > 20);
    check_out(w, out.buf);

    struct rope hoard = {0};
    while (rte_mempool_avail_count(w->mbufs) > 5)
        rope_feed(&w->pool, &hoard, "x", 1);
    assert_int_equal(h1_write_request(&w->pool, &w->out, &w->head, &edit), -ENOMEM);
    assert_true(rope_is_empty(&w->out));
    assert_int_equal(rte_mempool_avail_count(w->mbufs), 5);
    rope_clear(&w->pool, &hoard);
    w->pool.reserve = 256;
    assert_int_equal(h1_write_request(&w->pool, &w->out, &w->head, &edit), -ENOMEM);
    w->pool.reserve = 0;
    text_free(&in);
    text_free(&out);
}

static const int statuses[] = {301, 302, 303, 307, 308, 400, 403, 404, 405, 408, 410, 413,
                               414, 417, 421, 429, 431, 500, 501, 502, 503, 504, 505};

static void test_our_own_answers_are_well_formed(void **state)
{
    struct world *w = *state;
    for (size_t i = 0; i < sizeof(statuses) / sizeof(statuses[0]); i++) {
        for (int is_head = 0; is_head < 2; is_head++) {
            struct text t = {0};
            struct h1_scan scan;
            h1_scan_init_response(&scan);
            struct http_answer a = {.status = statuses[i],
                                    .keep_alive = !is_head,
                                    .head_request = is_head,
                                    .date = i % 2 ? date : NULL};
            assert_int_equal(http_answer_write(&w->pool, &w->out, &a), 0);
            text_add_rope(&t, &w->out);
            int end = h1_scan_head(&scan, t.buf, t.len, &limits);
            assert_true(end > 0);
            http_head_init(&w->head, w->fields, MAX_FIELDS);
            assert_int_equal(h1_parse_response(t.buf, (size_t)end, is_head, &w->head), 0);
            assert_int_equal(w->head.status, statuses[i]);
            assert_true(w->head.reason.len > 0);
            assert_int_equal(w->head.keep_alive, !is_head);
            assert_true(w->head.content_length > 4);
            assert_int_equal(t.len - (size_t)end, is_head ? 0 : w->head.content_length);
            assert_int_equal(http_head_has(&w->head, HTTP_H_DATE), i % 2);
            text_free(&t);
            rope_clear(&w->pool, &w->out);
        }
    }
}

static void test_one_answer_to_the_byte(void **state)
{
    struct world *w = *state;
    struct http_answer a = {.status = 404, .keep_alive = true, .date = date};
    assert_int_equal(http_answer_write(&w->pool, &w->out, &a), 0);
    check_out(w, "HTTP/1.1 404 Not Found\r\nContent-Type: text/plain\r\nContent-Length: 14\r\n"
                 "Date: Sun, 06 Nov 1994 08:49:37 GMT\r\n\r\n404 Not Found\n");
    a = (struct http_answer){.status = 503, .retry_after = 20, .body = "Soon"};
    assert_int_equal(http_answer_write(&w->pool, &w->out, &a), 0);
    check_out(w, "HTTP/1.1 503 Service Unavailable\r\nContent-Type: text/plain; charset=utf-8\r\n"
                 "Content-Length: 4\r\nRetry-After: 20\r\nConnection: close\r\n\r\nSoon");
}

static void test_dates(void **state)
{
    static const struct {
        uint64_t seconds;
        const char *text;
    } cases[] = {
        {784111777, "Sun, 06 Nov 1994 08:49:37 GMT"},
        {784111777, "Sun, 06 Nov 1994 08:49:37 GMT"},
        {0, "Thu, 01 Jan 1970 00:00:00 GMT"},
        {951782399, "Mon, 28 Feb 2000 23:59:59 GMT"},
        {951782400, "Tue, 29 Feb 2000 00:00:00 GMT"},
        {1709251200, "Fri, 01 Mar 2024 00:00:00 GMT"},
        {1735689599, "Tue, 31 Dec 2024 23:59:59 GMT"},
        {4107542400, "Mon, 01 Mar 2100 00:00:00 GMT"},
        {253402300799, "Fri, 31 Dec 9999 23:59:59 GMT"},
    };
    struct http_date d = {0};
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++)
        assert_string_equal(http_date_get(&d, cases[i].seconds), cases[i].text);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_requests_go_on_without_what_was_the_connections),
        cmocka_unit_test(test_responses_go_on_framed_for_the_client),
        cmocka_unit_test(test_a_request_says_when_it_has_no_body),
        cmocka_unit_test(test_a_long_head_takes_several_mbufs),
        cmocka_unit_test(test_our_own_answers_are_well_formed),
        cmocka_unit_test(test_one_answer_to_the_byte),
        cmocka_unit_test(test_dates),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
