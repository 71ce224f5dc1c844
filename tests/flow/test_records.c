/* Every answer that the proxy makes itself leaves a record that says why: a table. */
#include "dataplane/proxy/access_log.h"
#include "dataplane/http/message.h"
#include "tests/flow/flow.h"

#define SMALL                                                                                      \
    FLOW_HEAD("[0]")                                                                               \
    "listeners:\n"                                                                                 \
    "  - name: web\n"                                                                              \
    "    address: 10.9.0.1:80\n"                                                                   \
    "    http:\n"                                                                                  \
    "      timeouts: { header: 1s, idle: 60s, body: 1s }\n"                                        \
    "      limits: { header_size: 4KiB, header_count: 16, body_size: 1KiB }\n"                     \
    "      routes:\n"                                                                              \
    "        - { match: { host: a, path_prefix: /app }, upstream: app }\n"                         \
    "upstreams:\n"                                                                                 \
    "  - name: app\n"                                                                              \
    "    endpoints: [10.9.0.2:9000]\n"                                                             \
    "    timeouts: { connect: 500ms, request: 2s, idle: 60s }\n"                                   \
    "    retries: { attempts: 1 }\n"

#define HEAD(line) line " HTTP/1.1\r\nHost: a\r\n"
#define FIELDS_8   "a:1\r\nb:1\r\nc:1\r\nd:1\r\ne:1\r\nf:1\r\ng:1\r\nh:1\r\n"
#define X64        "xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx"
#define X1K        X64 X64 X64 X64 X64 X64 X64 X64 X64 X64 X64 X64 X64 X64 X64 X64

struct answer {
    const char *request;
    int status;
    enum access_reason reason;
    enum http_error error;
};

/* What needs no origin. */
static const struct answer refusals[] = {
    {HEAD("GET /app") "\r\n", 200, ACCESS_ok,
     HTTP_ERR_NONE}, /* only to show that all else is right */
    {"GET /app HTTP/1.1\r\n\r\n", 400, ACCESS_bad_request, HTTP_ERR_NO_HOST},
    {"GET /app HTTP/1.1\nHost: a\n\n", 400, ACCESS_bad_request, HTTP_ERR_BAD_LINE_END},
    {HEAD("GET /a%2fb") "\r\n", 400, ACCESS_bad_request, HTTP_ERR_ESCAPED_SLASH},
    {HEAD("POST /app") "Content-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n", 400,
     ACCESS_bad_request, HTTP_ERR_BOTH_LENGTHS},
    {HEAD("POST /app") "Transfer-Encoding: chunked\r\n\r\nzz\r\n", 400, ACCESS_bad_request,
     HTTP_ERR_NONE},
    {HEAD("POST /app") "Content-Length: 1025\r\n\r\n", 413, ACCESS_request_too_large,
     HTTP_ERR_NONE},
    {"GET /" X1K X1K X1K X1K " HTTP/1.1\r\n", 414, ACCESS_target_too_long, HTTP_ERR_LONG_TARGET},
    {HEAD("GET /app") "x: " X1K X1K X1K X1K "\r\n\r\n", 431, ACCESS_headers_too_large,
     HTTP_ERR_LONG_HEAD},
    {HEAD("GET /app") FIELDS_8 FIELDS_8 "\r\n", 431, ACCESS_headers_too_large,
     HTTP_ERR_MANY_HEADERS},
    {HEAD("GET /app") "Expect: luck\r\n\r\n", 417, ACCESS_expectation, HTTP_ERR_EXPECTATION},
    {HEAD("TRACE /app") "\r\n", 405, ACCESS_not_implemented, HTTP_ERR_METHOD},
    {"GET /app HTTP/2.0\r\nHost: a\r\n\r\n", 505, ACCESS_version, HTTP_ERR_VERSION},
    {HEAD("GET /elsewhere") "\r\n", 404, ACCESS_no_route, HTTP_ERR_NONE},
    {"GET /app HTTP/1.1\r\nHost: b\r\n\r\n", 421, ACCESS_misdirected, HTTP_ERR_NONE},
    {"GET /app HTTP/1.1\r\nHost", 408, ACCESS_header_timeout, HTTP_ERR_NONE},
    {HEAD("POST /app") "Content-Length: 9\r\n\r\nhalf", 408, ACCESS_body_timeout, HTTP_ERR_NONE},
};

static void assert_record(struct world *w, int status, enum access_reason reason,
                          enum http_error error)
{
    struct access_record r, none;

    if (!access_ring_take(core_access_ring(w->cores[0]), &r))
        fail_msg("no record of %s", access_reason_name(reason));
    if (r.status != status || r.reason != reason || r.http_error != error)
        fail_msg("%u %s %s, not %d %s %s", r.status, access_reason_name(r.reason),
                 access_http_error_name(r.http_error), status, access_reason_name(reason),
                 http_error_name(error));
    assert_string_equal(r.listener, "web");
    assert_false(access_ring_take(core_access_ring(w->cores[0]), &none)); /* exactly one */
}

static void what_is_wrong_with_a_request_is_told(void **state)
{
    for (size_t i = 0; i < sizeof(refusals) / sizeof(refusals[0]); i++) {
        const struct answer *a = &refusals[i];
        struct world *w = flow_start(SMALL);
        struct peer *c = world_connect(w, 80), *o;

        peer_say(c, a->request);
        if (a->status == 200) {
            o = flow_origin(w);
            peer_say(o, OK2);
        }
        assert_int_equal(flow_status(c), a->status);
        world_settle(w);
        assert_record(w, a->status, a->reason, a->error);
        world_free(w);
    }
}

enum deed { MALFORMED, NOT_HTTP, CLOSED, RESET, SILENT, CUT, BAD_CHUNK, GONE };

static void what_the_origin_did_is_told(void **state)
{
    static const struct {
        enum deed deed;
        int status; /* of an answer; 0: none, or its beginning has been seen */
        int logged;
        enum access_reason reason;
        enum http_error error;
    } deeds[] = {
        {MALFORMED, 502, 502, ACCESS_upstream_malformed, HTTP_ERR_BAD_LENGTH},
        {NOT_HTTP, 502, 502, ACCESS_upstream_malformed, HTTP_ERR_BAD_VERSION},
        {CLOSED, 502, 502, ACCESS_upstream_closed, HTTP_ERR_NONE},
        {RESET, 502, 502, ACCESS_upstream_reset, HTTP_ERR_NONE},
        {SILENT, 504, 504, ACCESS_request_timeout, HTTP_ERR_NONE},
        {CUT, 0, 200, ACCESS_upstream_cut, HTTP_ERR_NONE},
        {BAD_CHUNK, 0, 200, ACCESS_upstream_malformed, HTTP_ERR_NONE},
        {GONE, 0, 499, ACCESS_client_gone, HTTP_ERR_NONE},
    };

    for (size_t i = 0; i < sizeof(deeds) / sizeof(deeds[0]); i++) {
        struct world *w = flow_start(SMALL);
        struct peer *c = world_connect(w, 80);
        peer_say(c, HEAD("GET /app") "\r\n");
        struct peer *o = flow_origin(w);
        switch (deeds[i].deed) {
        case MALFORMED:
            peer_say(o, "HTTP/1.1 200 OK\r\nContent-Length: x\r\n\r\n");
            break;
        case NOT_HTTP:
            peer_say(o, "SSH-2.0-hello\r\n\r\n");
            break;
        case CLOSED:
            peer_shutdown(o);
            break;
        case RESET:
            peer_abort(o);
            break;
        case SILENT:
            break;
        case CUT:
            peer_say(o, "HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nhalf");
            peer_expect_through(c, "half");
            peer_shutdown(o);
            break;
        case BAD_CHUNK:
            peer_say(o, "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n");
            peer_expect_through(c, "ok");
            peer_say(o, "zz\r\n");
            break;
        case GONE:
            peer_abort(c);
            break;
        }
        if (deeds[i].status)
            assert_int_equal(flow_status(c), deeds[i].status);
        world_sleep(w, WORLD_S);
        assert_record(w, deeds[i].logged, deeds[i].reason, deeds[i].error);
        world_free(w);
    }
}

static void an_origin_that_takes_no_connection_is_told(void **state)
{
    struct world *w = flow_start(SMALL);
    struct peer *c = world_connect(w, 80);

    world_unlisten(w, 9000);
    peer_say(c, HEAD("GET /app") "\r\n");
    assert_int_equal(flow_status(c), 502);
    world_settle(w);
    assert_record(w, 502, ACCESS_connect_failed, HTTP_ERR_NONE);
    world_free(w);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_is_wrong_with_a_request_is_told),
        cmocka_unit_test(what_the_origin_did_is_told),
        cmocka_unit_test(an_origin_that_takes_no_connection_is_told),
    };
    return cmocka_run_group_tests_name("flow_records", tests, NULL, NULL);
}
