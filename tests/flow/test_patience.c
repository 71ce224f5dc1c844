/* Who may take how long: times that belong to one side are not held against the other. */
#include "tests/flow/flow.h"

#define PATIENT                                                                                    \
    FLOW_HEAD("[0]")                                                                               \
    FLOW_LISTENERS("")                                                                             \
    "upstreams:\n"                                                                                 \
    "  - { name: app, endpoints: [10.9.0.2:9000], timeouts: { request: 5m } }\n"

/* The body timeout is 30 s: it is the client's, and the client has had nothing to take. */
static void an_origin_may_think_longer_than_the_body_timeout(void **state)
{
    struct world *w = flow_start(PATIENT);
    struct peer *c = world_connect(w, 80);
    peer_say(c, GET);
    struct peer *o = flow_origin(w);
    world_sleep(w, 45 * WORLD_S);
    peer_say(o, "HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nlo");
    assert_int_equal(flow_status(c), 200);
    peer_expect(c, "lo");
    world_sleep(w, 45 * WORLD_S);
    peer_say(o, "ng");
    peer_expect(c, "ng");
    world_free(w);
}

static void a_client_may_wait_for_100_as_long_as_the_origin_thinks(void **state)
{
    struct world *w = flow_start(PATIENT);
    struct peer *c = world_connect(w, 80);
    peer_say(c, "PUT / HTTP/1.1\r\nHost: a\r\nContent-Length: 4\r\nExpect: 100-continue\r\n\r\n");
    struct peer *o = flow_origin(w);
    world_sleep(w, 45 * WORLD_S);
    peer_say(o, "HTTP/1.1 100 Continue\r\n\r\n");
    assert_int_equal(flow_status(c), 100);
    uint64_t t = w->now;
    assert_int_equal(flow_status(c), 408); /* from now on it is the client's turn */
    assert_in_range(w->now - t, 29900 * WORLD_MS, 30001 * WORLD_MS);
    world_free(w);
}

static void a_client_that_stops_sending_for_an_early_answer_gets_all_of_it(void **state)
{
    struct world *w = flow_start(PATIENT);
    struct peer *c = world_connect(w, 80);
    peer_say(c, "PUT / HTTP/1.1\r\nHost: a\r\nContent-Length: 100\r\n\r\nbegun");
    struct peer *o = flow_origin(w);
    peer_expect(o, "begun");
    peer_say(o, "HTTP/1.1 403 Forbidden\r\nContent-Length: 4\r\n\r\nno");
    assert_has(peer_expect_through(c, "\r\n\r\n"), "Connection: close\r\n");
    peer_expect(c, "no");
    world_sleep(w, 45 * WORLD_S);
    peer_say(o, "pe");
    peer_expect(c, "pe");
    peer_expect_eof(c);
    world_free(w);
}

/* An origin that goes on reading has its upload until its answer is whole. */
static void both_bodies_may_flow_at_once(void **state)
{
    struct world *w = flow_start(PATIENT);
    struct peer *c = world_connect(w, 80);
    peer_say(c, "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n");
    struct peer *o = flow_origin(w);
    peer_say(o, "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n");
    assert_int_equal(flow_status(c), 200);
    for (int i = 0; i < 5; i++) {
        peer_say(c, "4\r\nping\r\n");
        peer_expect(o, "4\r\nping\r\n");
        peer_say(o, "4\r\npong\r\n");
        peer_expect(c, "4\r\npong\r\n");
    }
    peer_say(c, "0\r\n\r\n");
    peer_expect(o, "0\r\n\r\n");
    peer_say(o, "0\r\n\r\n");
    peer_expect(c, "0\r\n\r\n");
    peer_expect_eof(c);
    world_free(w);
}

static void too_large_a_chunked_upload_is_413_in_the_middle(void **state)
{
    static char chunk[65536 + 16];
    struct world *w = flow_start(PATIENT);
    struct peer *c = world_connect(w, 80);
    int n = snprintf(chunk, sizeof(chunk), "10000\r\n");
    memset(chunk + n, 'x', 65536);
    memcpy(chunk + n + 65536, "\r\n", 2);
    peer_say(c, "PUT / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n");
    struct peer *o = flow_origin(w);
    for (int i = 0; i < 70; i++) /* the limit is 64 of them */
        peer_send(c, chunk, (size_t)n + 65536 + 2);
    assert_int_equal(flow_status(c), 413);
    peer_expect_through(c, "\n");
    peer_expect_error(o, -ECONNRESET);
    peer_expect_eof(c);
    world_free(w);
}

#define SMALL_HEADS                                                                                \
    FLOW_HEAD("[0]")                                                                               \
    "listeners:\n"                                                                                 \
    "  - name: web\n"                                                                              \
    "    address: 10.9.0.1:80\n"                                                                   \
    "    http:\n"                                                                                  \
    "      limits: { header_size: 512B, header_count: 4 }\n"                                       \
    "      routes: [ { upstream: app } ]\n"                                                        \
    "  - name: raw\n"                                                                              \
    "    address: 10.9.0.1:81\n"                                                                   \
    "    tunnel: { upstream: app }\n" FLOW_UPSTREAM

static void a_limit_that_comes_down_inside_a_head_refuses_it(void **state)
{
    static char text[3000];
    struct world *w = flow_start(PATIENT);
    struct peer *c = world_connect(w, 80), *many = world_connect(w, 80);
    memset(text, 'a', sizeof(text));
    memcpy(text, "GET / HTTP/1.1\r\nX: ", 19);
    peer_send(c, text, sizeof(text));
    peer_say(many, "GET / HTTP/1.1\r\nHost: a\r\nA: 1\r\nB: 2\r\nC: 3\r\n");
    world_sleep(w, 10 * WORLD_MS);
    world_reload(w, SMALL_HEADS);
    peer_say(c, "a");
    assert_int_equal(flow_status(c), 431);
    peer_say(many, "D: 4\r\n\r\n");
    assert_int_equal(flow_status(many), 431);
    world_free(w);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_origin_may_think_longer_than_the_body_timeout),
        cmocka_unit_test(a_client_may_wait_for_100_as_long_as_the_origin_thinks),
        cmocka_unit_test(a_client_that_stops_sending_for_an_early_answer_gets_all_of_it),
        cmocka_unit_test(both_bodies_may_flow_at_once),
        cmocka_unit_test(too_large_a_chunked_upload_is_413_in_the_middle),
        cmocka_unit_test(a_limit_that_comes_down_inside_a_head_refuses_it),
    };
    return cmocka_run_group_tests_name("flow_patience", tests, NULL, NULL);
}
