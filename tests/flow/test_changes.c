/* What changes on the way: fields, paths, hosts and ids, in all attempts and over reloads. */
#include "tests/flow/duties.h"

static void fields_are_removed_set_and_added(void **state)
{
    struct world *w = flow_start(
        WEB("",
            "      via: off\n      forwarded: off\n"
            "      headers:\n"
            "        request:\n"
            "          remove: [X-Debug, Cookie]\n"
            "          set: [{ name: X-Client, value: \"${client_ip} at ${listener}\" },\n"
            "                { name: X-Level, value: listener }]\n"
            "        response:\n"
            "          remove: [server, X-Powered-By]\n"
            "          set: [{ name: Strict-Transport-Security, value: max-age=1 }]\n",
            "        - match: { path_prefix: /r }\n"
            "          upstream: app\n"
            "          headers:\n"
            "            request:\n"
            "              remove: [x-client]\n"
            "              set: [{ name: X-Level, value: \"${method} ${host} ${path} ${query} "
            "${scheme}\" }]\n"
            "              add: [{ name: X-More, value: \"1\" }, { name: X-More, value: \"2\" }]\n"
            "            response:\n"
            "              add: [{ name: Set-Cookie, value: \"edge=${client_ip}\" }]\n" APP));
    struct peer *c = world_connect(w, 80), *o = NULL;
    const char *seen = through(w, c,
                               "GET / HTTP/1.1\r\nHost: a\r\nX-DEBUG: 1\r\nx-client: spoof\r\n"
                               "Cookie: a=b\r\nX-Client: twice\r\nX-Debugger: stays\r\n\r\n",
                               &o);
    assert_string_equal(seen, "GET / HTTP/1.1\r\nHost: a\r\nX-Debugger: stays\r\n"
                              "X-Client: 10.9.0.3 at web\r\nX-Level: listener\r\n\r\n");
    seen = through(w, c,
                   "PUT /r//x?q=1 HTTP/1.1\r\nHost: B.example:80\r\nX-More: 0\r\nX-Client: u\r\n"
                   "Content-Length: 0\r\n\r\n",
                   &o);
    assert_string_equal(seen, "PUT /r//x?q=1 HTTP/1.1\r\nHost: B.example:80\r\nX-More: 0\r\n"
                              "Content-Length: 0\r\nX-Level: PUT b.example /r/x ?q=1 http\r\n"
                              "X-More: 1\r\nX-More: 2\r\n\r\n");
    ask(c, "/r");
    peer_expect_through(o, "\r\n\r\n");
    peer_say(o, "HTTP/1.1 200 OK\r\nServer: secret/1\r\nX-Powered-By: magic\r\nSet-Cookie: a=b\r\n"
                "Strict-Transport-Security: no\r\nDate: Mon, 30 Nov 2026 17:33:32 GMT\r\n"
                "Content-Length: 2\r\n\r\nok");
    peer_expect(c, "HTTP/1.1 200 OK\r\nSet-Cookie: a=b\r\nDate: Mon, 30 Nov 2026 17:33:32 GMT\r\n"
                   "Content-Length: 2\r\nStrict-Transport-Security: max-age=1\r\n"
                   "Set-Cookie: edge=10.9.0.3\r\n\r\nok");
    world_free(w);
}

static void interim_answers_stay_as_they_are(void **state)
{
    struct world *w = flow_start(
        WEB("", "      via: off\n      headers: { response: { set: [{ name: X-A, value: b }] } }\n",
            APP));
    struct peer *c = world_connect(w, 80);
    peer_say(c, GET);
    struct peer *o = flow_origin(w);
    peer_say(o, "HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n");
    peer_expect(c, "HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n");
    peer_say(o, OK2);
    assert_has(answer(c), "\r\nX-A: b\r\n");
    world_free(w);
}

static void paths_and_hosts_are_rewritten(void **state)
{
    struct world *w = flow_start(WEB("", "      via: off\n      forwarded: off\n",
                                     "        - match: { path_prefix: /api }\n"
                                     "          upstream: app\n"
                                     "          rewrite: { prefix: /v2/ }\n"
                                     "        - match: { path_prefix: /strip/ }\n"
                                     "          upstream: app\n"
                                     "          rewrite: { prefix: / }\n"
                                     "        - match: { path_prefix: /host }\n"
                                     "          upstream: app\n"
                                     "          rewrite: { host: \"app.internal:81\" }\n"
                                     "        - upstream: app\n"
                                     "          rewrite: { prefix: /root }\n"));
    static const struct {
        const char *request, *line;
    } cases[] = {
        {"GET /api", "GET /v2/"},
        {"GET /api/", "GET /v2/"},
        {"GET /api/x?y=/api/z", "GET /v2/x?y=/api/z"},
        {"GET /%61pi//x%2fy", NULL},
        {"GET /%61pi//x/%7e?", "GET /v2/x/~?"},
        {"GET http://a/api/x", "GET /v2/x"},
        {"GET /strip/", "GET /"},
        {"GET /strip/x/", "GET /x/"},
        {"GET /strip//x", "GET /x"},
        {"GET /host//x?", "GET /host//x?"},
        {"GET /", "GET /root/"},
        {"GET /x", "GET /root/x"},
        {"OPTIONS *", "OPTIONS *"},
        {"OPTIONS http://a", "OPTIONS *"},
        {"GET http://a?b", "GET /root/?b"},
        {"GET /api/../x", NULL},
    };
    struct peer *c = world_connect(w, 80), *o = NULL;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        char text[256];
        snprintf(text, sizeof(text), "%s HTTP/1.1\r\nHost: a\r\n\r\n", cases[i].request);
        if (!cases[i].line) { /* ambiguous: refused as ever, and the connection ends */
            peer_say(c, text);
            assert_status(answer(c), 400);
            c = world_connect(w, 80);
            continue;
        }
        const char *seen = through(w, c, text, &o);
        bool is_host = strstr(cases[i].line, "/host") != NULL;
        snprintf(text, sizeof(text), "%s HTTP/1.1\r\nHost: %s\r\n\r\n", cases[i].line,
                 is_host ? "app.internal:81" : "a");
        assert_string_equal(seen, text);
    }
    world_free(w);
}

/* A head over several mbufs, and a second attempt, are rewritten alike. */
static void a_second_attempt_is_rewritten_like_the_first(void **state)
{
    struct world *w = flow_start(
        WEB("",
            "      request_id: {}\n      traceparent: sampled\n"
            "      limits: { header_size: 8KiB }\n",
            "        - upstream: app\n"
            "          rewrite: { prefix: /v2 }\n"
            "          headers: { request: { set: [{ name: X-P, value: \"${path}\" }] } }\n"));
    struct peer *c = world_connect(w, 80), *o = NULL;
    char big[4000], first[8192];
    memset(big, 'x', sizeof(big));
    big[sizeof(big) - 1] = 0;
    snprintf(first, sizeof(first), "GET /a HTTP/1.1\r\nHost: a\r\nX-Big: %s\r\n\r\n", big);
    through(w, c, GET, &o);
    peer_say(c, first);
    /* The pooled connection turns out to be dead: the request goes to a new one. */
    const char *seen = peer_expect_through(o, "\r\n\r\n");
    snprintf(first, sizeof(first), "%s", seen);
    assert_memory_equal(first, "GET /v2/a HTTP/1.1\r\n", 20);
    assert_has(first, "\r\nX-P: /a\r\n");
    peer_abort(o);
    struct peer *second = world_accept(w);
    assert_string_equal(peer_expect_through(second, "\r\n\r\n"), first);
    peer_say(second, OK2);
    assert_status(answer(c), 200);
    world_free(w);
}

static void copy_field(const char *text, const char *name, char *to, size_t size)
{
    const char *at = strstr(text, name);
    assert_non_null(at);
    at += strlen(name);
    snprintf(to, size, "%.*s", (int)strcspn(at, "\r"), at);
}

static bool is_hex(const char *text, size_t len)
{
    return strlen(text) == len && strspn(text, "0123456789abcdef") == len;
}

static void each_request_gets_an_id(void **state)
{
    static const char yaml[] =
        WEB("", "      request_id: { trust: [10.9.0.4] }\n      limits: { body_size: 1B }\n",
            "        - match: { path_prefix: /x }\n          redirect: { location: "
            "\"/${request_id}\" }\n" APP);
    struct world *w = flow_start(yaml);
    struct peer *c = world_connect(w, 80), *o = NULL;
    char sent[100], got[100], before[100] = "";
    for (unsigned i = 0; i < 3; i++) {
        peer_say(c, "GET / HTTP/1.1\r\nHost: a\r\nX-Request-Id: mine\r\n\r\n");
        if (!o)
            o = world_accept(w);
        copy_field(peer_expect_through(o, "\r\n\r\n"), "X-Request-Id: ", sent, sizeof(sent));
        assert_true(is_hex(sent, 32));
        assert_string_not_equal(sent, before);
        peer_say(o, "HTTP/1.1 200 OK\r\nX-Request-ID: theirs\r\nContent-Length: 0\r\n\r\n");
        const char *text = answer(c);
        assert_has_not(text, "theirs");
        copy_field(text, "X-Request-Id: ", got, sizeof(got));
        assert_string_equal(got, sent);
        assert_string_equal(record(w).request_id, sent);
        snprintf(before, sizeof(before), "%s", sent);
    }
    /* Answers of our own have one, too: before there is an exchange, and in place of its answer. */
    ask(c, "/x");
    const char *text = answer(c);
    copy_field(text, "X-Request-Id: ", got, sizeof(got));
    assert_true(is_hex(got, 32));
    copy_field(text, "Location: /", sent, sizeof(sent));
    assert_string_equal(got, sent);
    assert_string_equal(record(w).request_id, got);
    peer_say(c, GET);
    copy_field(peer_expect_through(o, "\r\n\r\n"), "X-Request-Id: ", sent, sizeof(sent));
    peer_say(o, "HTTP/1.1 what\r\n\r\n");
    text = answer(c);
    assert_status(text, 502);
    copy_field(text, "X-Request-Id: ", got, sizeof(got));
    assert_string_equal(got, sent);
    assert_string_equal(record(w).request_id, got);
    peer_say(c, "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 2\r\n\r\nab");
    assert_has(answer(c), "X-Request-Id: ");
    world_free(w);
}

static void ids_of_those_we_trust_are_kept_if_they_are_ids(void **state)
{
    static const struct {
        const char *fields, *kept; /* NULL: a new one */
    } cases[] = {
        {"X-Request-Id: req-1.a_B~9+/=:@\r\n", "req-1.a_B~9+/=:@"},
        {"x-request-ID:   8d3c2f1e-0000-4000-8000-000000000000  \r\n",
         "8d3c2f1e-0000-4000-8000-000000000000"},
        {"X-Request-Id: 0123456789012345678901234567890123456789012345678901234567890123\r\n",
         "0123456789012345678901234567890123456789012345678901234567890123"},
        {"X-Request-Id: 01234567890123456789012345678901234567890123456789012345678901234\r\n",
         NULL},
        {"X-Request-Id: a b\r\n", NULL},
        {"X-Request-Id: <script>\r\n", NULL},
        {"X-Request-Id:\r\n", NULL},
        {"X-Request-Id: a\r\nX-Request-Id: a\r\n", NULL},
        {"", NULL},
    };
    struct world *w =
        flow_start(WEB("", "      request_id: { trust: [10.9.0.4, 192.0.2.0/24] }\n", APP));
    struct peer *c = world_connect_from(w, 80, WORLD_OTHER), *o = NULL;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        char text[512], id[100];
        snprintf(text, sizeof(text), "GET / HTTP/1.1\r\nHost: a\r\n%s\r\n", cases[i].fields);
        copy_field(through(w, c, text, &o), "X-Request-Id: ", id, sizeof(id));
        if (cases[i].kept)
            assert_string_equal(id, cases[i].kept);
        else
            assert_true(is_hex(id, 32));
        assert_string_equal(record(w).request_id, id);
    }
    world_free(w);
}

#define TRACE "4bf92f3577b34da6a3ce929d0e0e4736"

static void a_trace_goes_on_or_begins(void **state)
{
    static const struct {
        const char *fields;
        bool goes_on;
        const char *flags;
        bool has_state;
    } cases[] = {
        {"traceparent: 00-" TRACE "-00f067aa0ba902b7-01\r\ntracestate: a=b\r\n", true, "01", true},
        {"Traceparent: 00-" TRACE "-00f067aa0ba902b7-00\r\n", true, "00", false},
        {"traceparent: 00-" TRACE "-00f067aa0ba902b7-ff\r\n", true, "01", false},
        {"traceparent: cc-" TRACE "-00f067aa0ba902b7-01-more\r\n", true, "01", false},
        {"traceparent: 00-" TRACE "-00f067aa0ba902b7-01-more\r\ntracestate: a=b\r\n", false, "01",
         false},
        {"traceparent: ff-" TRACE "-00f067aa0ba902b7-01\r\n", false, "01", false},
        {"traceparent: 00-" TRACE "-0000000000000000-01\r\n", false, "01", false},
        {"traceparent: 00-" TRACE "-00f067aa0ba902b7-01\r\ntraceparent: 00-" TRACE
         "-00f067aa0ba902b7-01\r\n",
         false, "01", false},
        {"tracestate: a=b\r\n", false, "01", false},
    };
    struct world *w = flow_start(WEB("", "      traceparent: sampled\n", APP));
    struct peer *c = world_connect(w, 80), *o = NULL;
    char before[100] = "";
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        char text[512], parent[100], id[33];
        snprintf(text, sizeof(text), "GET / HTTP/1.1\r\nHost: a\r\n%s\r\n", cases[i].fields);
        const char *seen = through(w, c, text, &o);
        copy_field(seen, "\r\ntraceparent: ", parent, sizeof(parent));
        assert_null(strcasestr(strcasestr(seen, "\r\ntraceparent:") + 2, "\r\ntraceparent:"));
        assert_int_equal(strlen(parent), 55);
        assert_memory_equal(parent, "00-", 3);
        assert_string_equal(parent + 53, cases[i].flags);
        assert_int_equal(memcmp(parent + 3, TRACE, 32) == 0, cases[i].goes_on);
        assert_true(memcmp(parent + 36, "00f067aa0ba902b7", 16) != 0);
        assert_true(memcmp(parent + 36, before, 16) != 0);
        assert_int_equal(strstr(seen, "tracestate: a=b") != NULL, cases[i].has_state);
        memcpy(before, parent + 36, 16);
        struct access_record r = record(w);
        for (unsigned k = 0; k < 16; k++)
            snprintf(id + 2 * k, 3, "%02x", r.trace_id[k]);
        assert_memory_equal(id, parent + 3, 32);
    }
    world_reload(w, WEB("", "      traceparent: unsampled\n", APP));
    char parent[100];
    copy_field(through(w, c, GET, &o), "\r\ntraceparent: ", parent, sizeof(parent));
    assert_string_equal(parent + 53, "00");
    record(w);
    world_reload(w, WEB("", "", APP));
    assert_has(through(w, c, "GET / HTTP/1.1\r\nHost: a\r\ntraceparent: anything\r\n\r\n", &o),
               "\r\ntraceparent: anything\r\n");
    assert_false(record(w).has_trace);
    world_free(w);
}

/* A reload while an exchange goes on: it ends by what it began with, the next one by the new. */
static void an_exchange_keeps_its_changes_over_a_reload(void **state)
{
    static const char with[] =
        WEB("",
            "      request_id: {}\n"
            "      headers: { response: { set: [{ name: X-Version, value: one }] } }\n",
            APP);
    struct world *w = flow_start(with);
    struct peer *c = world_connect(w, 80);
    char sent[100], got[100];
    peer_say(c, GET);
    struct peer *o = world_accept(w);
    copy_field(peer_expect_through(o, "\r\n\r\n"), "X-Request-Id: ", sent, sizeof(sent));
    for (unsigned i = 0; i < 3; i++)
        world_reload(w, i % 2 ? with : WEB("", "", APP));
    peer_say(o, OK2);
    const char *text = answer(c);
    assert_has(text, "X-Version: one\r\n");
    copy_field(text, "X-Request-Id: ", got, sizeof(got));
    assert_string_equal(got, sent);
    peer_say(c, GET);
    assert_has_not(peer_expect_through(o, "\r\n\r\n"), "X-Request-Id");
    peer_say(o, OK2);
    assert_has_not(answer(c), "X-Version");
    world_free(w);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(fields_are_removed_set_and_added),
        cmocka_unit_test(interim_answers_stay_as_they_are),
        cmocka_unit_test(paths_and_hosts_are_rewritten),
        cmocka_unit_test(a_second_attempt_is_rewritten_like_the_first),
        cmocka_unit_test(each_request_gets_an_id),
        cmocka_unit_test(ids_of_those_we_trust_are_kept_if_they_are_ids),
        cmocka_unit_test(a_trace_goes_on_or_begins),
        cmocka_unit_test(an_exchange_keeps_its_changes_over_a_reload),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
