/* Everything that can go wrong between a client and an origin, and what the client is told. */
#include "tests/flow/flow.h"

static double seconds_since(struct world *w, uint64_t t)
{
    return (double)(w->now - t) / 1e9;
}

static void bad_requests_get_their_status_and_a_close(void **state)
{
    static const struct {
        int status;
        const char *request;
    } cases[] = {
        {400, "GET / HTTP/1.1\r\n\r\n"},
        {400, "GET / HTTP/1.1\nHost: a\n\n"},
        {400, "GET / HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n"},
        {400, "GET / HTTP/1.1\r\nHost: a\r\n folded\r\n\r\n"},
        {400, "GET / HTTP/1.1\r\nHost : a\r\n\r\n"},
        {400, "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 1\r\nContent-Length: 1\r\n\r\nx"},
        {400, "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 1, 1\r\n\r\nx"},
        {400, "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: +1\r\n\r\nx"},
        {400, "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\n"
              "Transfer-Encoding: chunked\r\n\r\n0\r\n\r\n"},
        {400, "GET /../x HTTP/1.1\r\nHost: a\r\n\r\n"},
        {405, "CONNECT a:80 HTTP/1.1\r\nHost: a\r\n\r\n"},
        {413, "PUT / HTTP/1.1\r\nHost: a\r\nContent-Length: 4194305\r\n\r\n"},
        {417, "PUT / HTTP/1.1\r\nHost: a\r\nContent-Length: 1\r\nExpect: magic\r\n\r\n"},
        {501, "PUT / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: gzip, chunked\r\n\r\n"},
        {505, "GET / HTTP/3.0\r\nHost: a\r\n\r\n"},
    };
    struct world *w = flow_start(FLOW_YAML);
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct peer *c = world_connect(w, 80);
        peer_say(c, cases[i].request);
        int got = flow_status(c);
        if (got != cases[i].status)
            fail_msg("%d, not %d, for \"%s\"", got, cases[i].status, cases[i].request);
        peer_expect_through(c, "\n");
        peer_expect_eof(c);
    }
    assert_null(world_accept_within(w, WORLD_S)); /* none of them reached the origin */
    world_free(w);
}

static void too_large_a_head_is_414_or_431(void **state)
{
    static char text[20000];
    struct world *w = flow_start(FLOW_YAML);
    struct peer *c = world_connect(w, 80);
    memset(text, 'a', sizeof(text));
    memcpy(text, "GET /", 5);
    peer_send(c, text, sizeof(text));
    assert_int_equal(flow_status(c), 414);
    c = world_connect(w, 80);
    memset(text, 'a', sizeof(text));
    memcpy(text, "GET / HTTP/1.1\r\nX: ", 19);
    peer_send(c, text, sizeof(text));
    assert_int_equal(flow_status(c), 431);
    c = world_connect(w, 80);
    peer_say(c, "GET / HTTP/1.1\r\nHost: a\r\n");
    for (int i = 0; i < 64; i++)
        peer_say(c, "X: y\r\n");
    peer_say(c, "\r\n");
    assert_int_equal(flow_status(c), 431);
    world_free(w);
}

#define ROUTED_YAML                                                                                \
    FLOW_HEAD("[0]")                                                                               \
    "listeners:\n"                                                                                 \
    "  - name: web\n"                                                                              \
    "    address: 10.9.0.1:80\n"                                                                   \
    "    http:\n"                                                                                  \
    "      routes:\n"                                                                              \
    "        - { match: { host: a.example, path_prefix: /api }, upstream: app }\n"                 \
    "        - { match: { host: '*.b.example' }, upstream: app }\n" FLOW_UPSTREAM

static void unknown_hosts_and_paths_are_told_apart_and_the_connection_stays(void **state)
{
    struct world *w = flow_start(ROUTED_YAML);
    struct peer *c = world_connect(w, 80);
    peer_say(c, "GET / HTTP/1.1\r\nHost: a.example\r\n\r\n");
    assert_int_equal(flow_status(c), 404);
    peer_expect_through(c, "\n");
    peer_say(c, "GET /apix HTTP/1.1\r\nHost: a.example\r\n\r\n");
    assert_int_equal(flow_status(c), 404);
    peer_expect_through(c, "\n");
    peer_say(c, "GET / HTTP/1.1\r\nHost: b.example\r\n\r\n");
    assert_int_equal(flow_status(c), 421);
    peer_expect_through(c, "\n");
    peer_say(c, "GET / HTTP/1.1\r\nHost: X.Y.B.example:80\r\n\r\n");
    struct peer *o = flow_origin(w);
    peer_say(o, OK2);
    assert_int_equal(flow_status(c), 200);
    peer_expect(c, "ok");
    peer_say(c, "GET //api/1 HTTP/1.1\r\nHost: a.example\r\n\r\n");
    assert_has(peer_expect_through(o, "\r\n\r\n"), "GET //api/1 ");
    peer_say(o, OK2);
    assert_int_equal(flow_status(c), 200);
    peer_expect(c, "ok");
    world_free(w);
}

static void a_refused_connection_is_502_soon(void **state)
{
    struct world_opts o = {.yaml = FLOW_YAML, .path = {.delay_ns = 100000}};
    struct world *w = world_new(&o);
    struct peer *c = world_connect(w, 80);
    uint64_t t = w->now;
    peer_say(c, GET);
    assert_int_equal(flow_status(c), 502);
    /* Three attempts, with at most 25 and 50 ms between them. */
    assert_true(seconds_since(w, t) < 0.085);
    peer_expect_through(c, "\n");
    world_listen(w, 9000); /* and the next one is served by the origin that has come back */
    peer_say(c, GET);
    peer_say(flow_origin(w), OK2);
    assert_int_equal(flow_status(c), 200);
    peer_expect(c, "ok");
    world_free(w);
}

static void a_black_hole_is_504_after_the_connect_timeout(void **state)
{
    struct world *w = flow_start(FLOW_YAML);
    struct peer *c = world_connect(w, 80);
    world_sleep(w, WORLD_S);
    struct wire_path hole = {.loss_ppm = 1000000};
    wire_set_path(w->wire, 2, &hole);
    uint64_t t = w->now;
    peer_say(c, GET);
    assert_int_equal(flow_status(c), 504);
    /* Three attempts of a second each, with at most 75 ms between them; no neighbour may say so
     * earlier. */
    assert_true(seconds_since(w, t) <= 3.085);
    peer_expect_through(c, "\n");
    world_free(w);
}

static void a_silent_origin_is_504_exactly_at_the_deadline(void **state)
{
    struct world *w = flow_start(FLOW_YAML);
    struct peer *c = world_connect(w, 80);
    world_sleep(w, WORLD_S);
    peer_say(c, GET);
    struct peer *o = flow_origin(w);
    uint64_t t = w->now;
    assert_int_equal(flow_status(c), 504);
    assert_in_range(w->now - t, 14990 * WORLD_MS, 15001 * WORLD_MS);
    peer_expect_error(o, -ECONNRESET); /* the origin need not go on with it */
    world_free(w);
}

static void an_origin_that_closes_or_resets_before_an_answer_is_502(void **state)
{
    for (int how = 0; how < 3; how++) {
        struct world *w = flow_start(FLOW_YAML);
        struct peer *c = world_connect(w, 80);
        peer_say(c, "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 1\r\n\r\nx");
        struct peer *o = flow_origin(w);
        peer_expect(o, "x");
        if (how == 2)
            peer_say(o, "HTTP/1.1 200 OK\r\nContent-Le");
        world_sleep(w, 10 * WORLD_MS);
        if (how == 0)
            peer_close(o);
        else
            peer_abort(o);
        assert_int_equal(flow_status(c), 502);
        assert_null(world_accept_within(w, WORLD_S)); /* a POST is not sent twice */
        world_free(w);
    }
}

static void nonsense_from_the_origin_is_502(void **state)
{
    static const char *const answers[] = {
        "SSH-2.0-OpenSSH\r\n\r\n",
        "HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\nxx",
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nContent-Length: 2\r\n\r\n0\r\n\r\n",
        "HTTP/1.1 101 Switching\r\n\r\n",
    };
    for (size_t i = 0; i < sizeof(answers) / sizeof(answers[0]); i++) {
        struct world *w = flow_start(FLOW_YAML);
        struct peer *c = world_connect(w, 80);
        peer_say(c, GET);
        struct peer *o = flow_origin(w);
        peer_say(o, answers[i]);
        assert_int_equal(flow_status(c), 502);
        world_free(w);
    }
}

/* Never a wrong body taken for a whole one. */
static void a_body_cut_short_breaks_the_clients_connection(void **state)
{
    static const char *const answers[] = {
        "HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nnot a hundred",
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n",
    };
    for (size_t i = 0; i < sizeof(answers) / sizeof(answers[0]); i++) {
        for (int reset = 0; reset < 2; reset++) {
            struct world *w = flow_start(FLOW_YAML);
            struct peer *c = world_connect(w, 80);
            peer_say(c, GET);
            struct peer *o = flow_origin(w);
            peer_say(o, answers[i]);
            assert_int_equal(flow_status(c), 200);
            world_sleep(w, WORLD_MS);
            if (reset)
                peer_abort(o);
            else
                peer_close(o);
            peer_expect_error(c, -ECONNRESET);
            world_free(w);
        }
    }
}

static void a_client_that_goes_away_cancels_its_exchange(void **state)
{
    for (int reset = 0; reset < 2; reset++) {
        struct world *w = flow_start(FLOW_YAML);
        struct peer *c = world_connect(w, 80);
        peer_say(c, GET);
        struct peer *o = flow_origin(w);
        world_sleep(w, 10 * WORLD_MS);
        if (reset)
            peer_abort(c);
        else
            peer_close(c);
        peer_expect_error(o, -ECONNRESET);
        world_sleep(w, 100 * WORLD_MS);
        assert_int_equal(world_status(w)->exchanges, 0);
        world_free(w);
    }
}

static void a_pooled_connection_that_the_origin_closed_is_never_used(void **state)
{
    struct world *w = flow_start(FLOW_YAML);
    struct peer *c = world_connect(w, 80);
    peer_say(c, GET);
    struct peer *o = flow_origin(w);
    peer_say(o, OK2);
    assert_int_equal(flow_status(c), 200);
    peer_expect(c, "ok");
    assert_int_equal(world_status(w)->upstreams[0].idle, 1);
    peer_close(o);
    world_sleep(w, 10 * WORLD_MS);
    assert_int_equal(world_status(w)->upstreams[0].idle, 0);
    peer_say(c, "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 1\r\n\r\nx");
    struct peer *second = flow_origin(w);
    peer_say(second, OK2);
    assert_int_equal(flow_status(c), 200);
    peer_expect_through(c, "ok");
    world_free(w);
}

/* The FIN crosses our request on the wire: a GET is sent again, and the client sees nothing. */
static void a_pooled_connection_that_closes_under_a_get_is_retried(void **state)
{
    struct world *w = flow_start(FLOW_YAML);
    struct peer *c = world_connect(w, 80);
    peer_say(c, GET);
    struct peer *o = flow_origin(w);
    peer_say(o, OK2);
    assert_int_equal(flow_status(c), 200);
    peer_expect(c, "ok");
    peer_say(c, GET);
    world_sleep(w, 50000); /* half way to the proxy */
    peer_close(o);
    struct peer *second = world_accept(w);
    assert_has(peer_expect_through(second, "\r\n\r\n"), "GET / ");
    peer_say(second, OK2);
    assert_int_equal(flow_status(c), 200);
    peer_expect(c, "ok");
    assert_int_equal(world_status(w)->upstreams[0].attempts, 3);
    world_free(w);
}

static void half_a_head_is_408_and_silence_is_closed(void **state)
{
    struct world *w = flow_start(FLOW_YAML);
    struct peer *c = world_connect(w, 80);
    peer_say(c, "GET / HT");
    world_sleep(w, 10 * WORLD_MS);
    uint64_t t = w->now;
    for (int i = 0; i < 9; i++) {
        world_sleep(w, WORLD_S); /* a trickle doesn't extend it */
        peer_say(c, "x");
    }
    assert_int_equal(flow_status(c), 408);
    assert_in_range(w->now - t, 9900 * WORLD_MS, 10001 * WORLD_MS);
    peer_expect_through(c, "\n");
    peer_expect_eof(c);
    struct peer *idle = world_connect(w, 80);
    t = w->now;
    peer_expect_eof(idle);
    assert_in_range(w->now - t, 60000 * WORLD_MS, 60010 * WORLD_MS);
    world_free(w);
}

static void a_stalled_upload_is_408(void **state)
{
    const char *yaml = FLOW_HEAD("[0]") FLOW_LISTENERS(
        "") "upstreams:\n"
            "  - { name: app, endpoints: [10.9.0.2:9000], timeouts: { request: 5m } }\n";
    struct world *w = flow_start(yaml);
    struct peer *c = world_connect(w, 80);
    peer_say(c, "PUT / HTTP/1.1\r\nHost: a\r\nContent-Length: 9\r\n\r\n1234");
    struct peer *o = flow_origin(w);
    peer_expect(o, "1234");
    uint64_t t = w->now;
    assert_int_equal(flow_status(c), 408);
    assert_in_range(w->now - t, 29900 * WORLD_MS, 30001 * WORLD_MS);
    peer_expect_error(o, -ECONNRESET);
    world_free(w);
}

static void a_client_that_takes_no_byte_is_cut_off(void **state)
{
    const char *yaml = FLOW_HEAD("[0]") FLOW_LISTENERS(
        "") "upstreams:\n"
            "  - { name: app, endpoints: [10.9.0.2:9000], timeouts: { request: 5m } }\n";
    static char big[2000000];
    struct world *w = flow_start(yaml);
    struct peer *c = world_connect(w, 80);
    peer_say(c, GET);
    struct peer *o = flow_origin(w);
    peer_pause(c, true);
    peer_say(o, "HTTP/1.1 200 OK\r\nContent-Length: 2000000\r\n\r\n");
    peer_send(o, big, sizeof(big));
    peer_expect_error(c, -ECONNRESET);
    assert_int_equal(world_status(w)->clients, 0);
    world_free(w);
}

static void over_the_connection_limit_a_syn_waits(void **state)
{
    const char *yaml =
        FLOW_HEAD("[0]") "listeners:\n"
                         "  - name: web\n"
                         "    address: 10.9.0.1:80\n"
                         "    limits: { connections: 2 }\n"
                         "    http: { routes: [ { upstream: app } ] }\n" FLOW_UPSTREAM;
    struct world *w = flow_start(yaml);
    struct peer *a = world_connect(w, 80), *b = world_connect(w, 80);
    world_sleep(w, 100 * WORLD_MS);
    struct peer *third = world_connect(w, 80);
    world_sleep(w, 500 * WORLD_MS);
    assert_true(a->connected && b->connected && !third->connected);
    peer_close(a);
    world_sleep(w, 5 * WORLD_S);
    assert_true(third->connected);
    world_free(w);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(bad_requests_get_their_status_and_a_close),
        cmocka_unit_test(too_large_a_head_is_414_or_431),
        cmocka_unit_test(unknown_hosts_and_paths_are_told_apart_and_the_connection_stays),
        cmocka_unit_test(a_refused_connection_is_502_soon),
        cmocka_unit_test(a_black_hole_is_504_after_the_connect_timeout),
        cmocka_unit_test(a_silent_origin_is_504_exactly_at_the_deadline),
        cmocka_unit_test(an_origin_that_closes_or_resets_before_an_answer_is_502),
        cmocka_unit_test(nonsense_from_the_origin_is_502),
        cmocka_unit_test(a_body_cut_short_breaks_the_clients_connection),
        cmocka_unit_test(a_client_that_goes_away_cancels_its_exchange),
        cmocka_unit_test(a_pooled_connection_that_the_origin_closed_is_never_used),
        cmocka_unit_test(a_pooled_connection_that_closes_under_a_get_is_retried),
        cmocka_unit_test(half_a_head_is_408_and_silence_is_closed),
        cmocka_unit_test(a_stalled_upload_is_408),
        cmocka_unit_test(a_client_that_takes_no_byte_is_cut_off),
        cmocka_unit_test(over_the_connection_limit_a_syn_waits),
    };
    return cmocka_run_group_tests_name("flow_failures", tests, NULL, NULL);
}
