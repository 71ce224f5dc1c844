/* What a request meets on its way to the origin, and its answer on the way back. */
#include "tests/flow/flow.h"

static void a_get_travels_to_the_origin_and_back(void **state)
{
    struct world *w = flow_start(FLOW_YAML);
    struct peer *c = world_connect(w, 80);
    peer_say(c, "GET /hello?x=1 HTTP/1.1\r\nHost: a.example\r\nUser-Agent: test\r\n"
                "Connection: keep-alive, X-Secret\r\nX-Secret: 1\r\nKeep-Alive: 5\r\n\r\n");
    struct peer *o = world_accept(w);
    const char *head = peer_expect_through(o, "\r\n\r\n");
    assert_has(head, "GET /hello?x=1 HTTP/1.1\r\n");
    assert_has(head, "Host: a.example\r\n");
    assert_has(head, "User-Agent: test\r\n");
    assert_has(head, "X-Forwarded-For: 10.9.0.3\r\n");
    assert_has(head, "Via: 1.1 millrace\r\n");
    assert_has_not(head, "X-Secret");
    assert_has_not(head, "Keep-Alive");
    peer_say(o, "HTTP/1.1 200 OK\r\nContent-Length: 5\r\nETag: \"1\"\r\nConnection: x-hop\r\n"
                "X-Hop: 1\r\n\r\nhello");
    head = peer_expect_through(c, "\r\n\r\n");
    assert_has(head, "HTTP/1.1 200 OK\r\n");
    assert_has(head, "Content-Length: 5\r\n");
    assert_has(head, "ETag: \"1\"\r\n");
    assert_has_not(head, "X-Hop");
    peer_expect(c, "hello");
    world_free(w);
}

static void the_second_request_reuses_both_connections(void **state)
{
    struct world *w = flow_start(FLOW_YAML);
    struct peer *c = world_connect(w, 80);
    peer_say(c, GET);
    struct peer *o = flow_origin(w);
    peer_say(o, OK2);
    assert_int_equal(flow_status(c), 200);
    peer_expect(c, "ok");
    peer_say(c, GET);
    peer_expect_through(o, "\r\n\r\n");
    peer_say(o, OK2);
    assert_int_equal(flow_status(c), 200);
    peer_expect(c, "ok");
    assert_int_equal(world_status(w)->upstreams[0].reused, 1);
    assert_int_equal(world_status(w)->upstreams[0].connects, 1);
    world_free(w);
}

static void pipelined_requests_are_answered_in_order(void **state)
{
    struct world *w = flow_start(FLOW_YAML);
    struct peer *c = world_connect(w, 80);
    peer_say(c, "GET /1 HTTP/1.1\r\nHost: a\r\n\r\nPOST /2 HTTP/1.1\r\nHost: a\r\n"
                "Content-Length: 3\r\n\r\nabcGET /3 HTTP/1.1\r\nHost: a\r\n\r\n");
    struct peer *o = world_accept(w);
    assert_has(peer_expect_through(o, "\r\n\r\n"), "GET /1 ");
    peer_say(o, "HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\n1");
    assert_has(peer_expect_through(o, "\r\n\r\n"), "POST /2 ");
    peer_expect(o, "abc");
    peer_say(o, "HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\n2");
    assert_has(peer_expect_through(o, "\r\n\r\n"), "GET /3 ");
    peer_say(o, "HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\n3");
    for (int i = 1; i <= 3; i++) {
        assert_int_equal(flow_status(c), 200);
        peer_expect_through(c, (char[]){(char)('0' + i), 0});
    }
    world_free(w);
}

static void a_request_that_comes_byte_by_byte_is_the_same_request(void **state)
{
    struct world *w = flow_start(FLOW_YAML);
    struct peer *c = world_connect(w, 80);
    const char *text = "POST /x HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n"
                       "4\r\nwxyz\r\n0\r\nX-Sum: 9\r\n\r\n";
    for (size_t i = 0; i < strlen(text); i++) {
        peer_send(c, text + i, 1);
        world_sleep(w, WORLD_MS);
    }
    struct peer *o = world_accept(w);
    assert_has(peer_expect_through(o, "\r\n\r\n"), "Transfer-Encoding: chunked\r\n");
    assert_has(peer_expect_through(o, "\r\n\r\n"), "X-Sum: 9\r\n");
    peer_say(o, OK2);
    assert_int_equal(flow_status(c), 200);
    peer_expect(c, "ok");
    world_free(w);
}

static void a_chunked_answer_stays_chunked_with_its_trailers(void **state)
{
    struct world *w = flow_start(FLOW_YAML);
    struct peer *c = world_connect(w, 80);
    peer_say(c, GET);
    struct peer *o = flow_origin(w);
    peer_say(o, "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5;ext=1\r\nhello\r\n");
    assert_has(peer_expect_through(c, "\r\n\r\n"), "Transfer-Encoding: chunked\r\n");
    peer_expect(c, "5\r\nhello\r\n");
    peer_say(o, "0\r\nX-Check: ok\r\n\r\n");
    peer_expect(c, "0\r\nX-Check: ok\r\n\r\n");
    peer_say(c, GET);
    peer_expect_through(o, "\r\n\r\n"); /* the same connections go on */
    peer_say(o, OK2);
    assert_int_equal(flow_status(c), 200);
    peer_expect(c, "ok");
    world_free(w);
}

static void an_answer_that_ends_with_the_connection_is_chunked_for_11(void **state)
{
    struct world *w = flow_start(FLOW_YAML);
    struct peer *c = world_connect(w, 80);
    peer_say(c, GET);
    struct peer *o = flow_origin(w);
    peer_say(o, "HTTP/1.0 200 OK\r\n\r\nall of it");
    assert_has(peer_expect_through(c, "\r\n\r\n"), "Transfer-Encoding: chunked\r\n");
    peer_expect(c, "9\r\nall of it\r\n");
    peer_close(o);
    peer_expect(c, "0\r\n\r\n");
    peer_say(c, GET); /* the client's connection is still good */
    peer_say(flow_origin(w), OK2);
    assert_int_equal(flow_status(c), 200);
    peer_expect(c, "ok");
    world_free(w);
}

static void a_10_client_gets_a_chunked_answer_until_close(void **state)
{
    struct world *w = flow_start(FLOW_YAML);
    struct peer *c = world_connect(w, 80);
    peer_say(c, "GET / HTTP/1.0\r\n\r\n");
    struct peer *o = flow_origin(w);
    peer_say(o, "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n");
    assert_has_not(peer_expect_through(c, "\r\n\r\n"), "chunked");
    peer_expect(c, "hello");
    peer_expect_eof(c);
    world_free(w);
}

static void answers_without_a_body_keep_their_length(void **state)
{
    static const struct {
        const char *request, *answer;
    } cases[] = {
        {"HEAD / HTTP/1.1\r\nHost: a\r\n\r\n", "HTTP/1.1 200 OK\r\nContent-Length: 77\r\n\r\n"},
        {GET, "HTTP/1.1 304 Not Modified\r\nContent-Length: 77\r\n\r\n"},
        {GET, "HTTP/1.1 204 No Content\r\n\r\n"},
    };
    struct world *w = flow_start(FLOW_YAML);
    struct peer *c = world_connect(w, 80), *o = NULL;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        peer_say(c, cases[i].request);
        if (!o)
            o = world_accept(w);
        peer_expect_through(o, "\r\n\r\n");
        peer_say(o, cases[i].answer);
        const char *head = peer_expect_through(c, "\r\n\r\n");
        if (i < 2)
            assert_has(head, "Content-Length: 77\r\n");
        assert_has_not(head, "chunked");
        peer_expect_silence(c, 10 * WORLD_MS);
    }
    assert_int_equal(world_status(w)->upstreams[0].connects, 1);
    world_free(w);
}

static void the_origins_100_reaches_the_client_before_it_sends_the_body(void **state)
{
    struct world *w = flow_start(FLOW_YAML);
    struct peer *c = world_connect(w, 80);
    peer_say(c, "PUT / HTTP/1.1\r\nHost: a\r\nContent-Length: 4\r\nExpect: 100-continue\r\n\r\n");
    struct peer *o = world_accept(w);
    assert_has(peer_expect_through(o, "\r\n\r\n"), "Expect: 100-continue\r\n");
    peer_say(o, "HTTP/1.1 100 Continue\r\n\r\n");
    assert_int_equal(flow_status(c), 100);
    peer_say(c, "body");
    peer_expect(o, "body");
    peer_say(o, OK2);
    assert_int_equal(flow_status(c), 200);
    peer_expect(c, "ok");
    world_free(w);
}

static void an_early_refusal_of_an_upload_reaches_the_client_whole(void **state)
{
    struct world *w = flow_start(FLOW_YAML);
    struct peer *c = world_connect(w, 80);
    static char big[200000];
    peer_say(c, "PUT / HTTP/1.1\r\nHost: a\r\nContent-Length: 1000000\r\n\r\n");
    peer_send(c, big, sizeof(big));
    struct peer *o = flow_origin(w);
    peer_say(o, "HTTP/1.1 413 Too Large\r\nContent-Length: 3\r\nConnection: close\r\n\r\nbig");
    assert_has(peer_expect_through(c, "\r\n\r\n"), "Connection: close\r\n");
    peer_expect(c, "big");
    peer_expect_eof(c);
    world_free(w);
}

static void a_big_download_and_upload_arrive_whole(void **state)
{
    struct world *w = flow_start(FLOW_YAML);
    struct peer *c = world_connect(w, 80);
    static unsigned char big[1000000];
    uint64_t sum = 0;
    for (size_t i = 0; i < sizeof(big); i++) {
        big[i] = (unsigned char)(i * 7 + (i >> 9));
        sum = sum * 31 + big[i];
    }
    peer_say(c, "PUT / HTTP/1.1\r\nHost: a\r\nContent-Length: 1000000\r\n\r\n");
    struct peer *o = flow_origin(w);
    o->count_only = true;
    o->rx_len = o->taken = 0;
    peer_send(c, big, sizeof(big));
    peer_expect_bytes(o, sizeof(big));
    assert_true(o->rx_sum == sum);
    peer_say(o, "HTTP/1.1 200 OK\r\nContent-Length: 1000000\r\n\r\n");
    assert_int_equal(flow_status(c), 200);
    c->count_only = true;
    c->rx_len = c->taken = 0;
    peer_send(o, big, sizeof(big));
    peer_expect_bytes(c, sizeof(big));
    assert_true(c->rx_sum == sum);
    world_free(w);
}

/* A client that doesn't read holds up the origin, not our memory. */
static void a_client_that_does_not_read_closes_the_origins_window(void **state)
{
    struct world *w = flow_start(FLOW_YAML);
    struct peer *c = world_connect(w, 80);
    static char big[2000000];
    peer_say(c, GET);
    struct peer *o = flow_origin(w);
    peer_pause(c, true);
    peer_say(o, "HTTP/1.1 200 OK\r\nContent-Length: 2000000\r\n\r\n");
    peer_send(o, big, sizeof(big));
    world_sleep(w, 5 * WORLD_S);
    uint64_t unsent = o->out.len;
    assert_in_range(unsent, 500000, sizeof(big));
    uint64_t held = world_status(w)->tcp.mbufs_held;
    world_sleep(w, 5 * WORLD_S);
    assert_int_equal(o->out.len, unsent);
    assert_int_equal(world_status(w)->tcp.mbufs_held, held);
    peer_pause(c, false);
    assert_int_equal(flow_status(c), 200);
    peer_expect_bytes(c, sizeof(big));
    world_free(w);
}

static void an_origin_that_does_not_read_closes_the_clients_window(void **state)
{
    struct world *w = flow_start(FLOW_YAML);
    struct peer *c = world_connect(w, 80);
    static char big[3000000];
    peer_say(c, "PUT / HTTP/1.1\r\nHost: a\r\nContent-Length: 3000000\r\n\r\n");
    struct peer *o = flow_origin(w);
    peer_pause(o, true);
    peer_send(c, big, sizeof(big));
    world_sleep(w, 5 * WORLD_S);
    assert_true(c->out.len > 0);
    peer_pause(o, false);
    peer_expect_bytes(o, sizeof(big));
    peer_say(o, OK2);
    assert_int_equal(flow_status(c), 200);
    peer_expect(c, "ok");
    world_free(w);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_get_travels_to_the_origin_and_back),
        cmocka_unit_test(the_second_request_reuses_both_connections),
        cmocka_unit_test(pipelined_requests_are_answered_in_order),
        cmocka_unit_test(a_request_that_comes_byte_by_byte_is_the_same_request),
        cmocka_unit_test(a_chunked_answer_stays_chunked_with_its_trailers),
        cmocka_unit_test(an_answer_that_ends_with_the_connection_is_chunked_for_11),
        cmocka_unit_test(a_10_client_gets_a_chunked_answer_until_close),
        cmocka_unit_test(answers_without_a_body_keep_their_length),
        cmocka_unit_test(the_origins_100_reaches_the_client_before_it_sends_the_body),
        cmocka_unit_test(an_early_refusal_of_an_upload_reaches_the_client_whole),
        cmocka_unit_test(a_big_download_and_upload_arrive_whole),
        cmocka_unit_test(a_client_that_does_not_read_closes_the_origins_window),
        cmocka_unit_test(an_origin_that_does_not_read_closes_the_clients_window),
    };
    return cmocka_run_group_tests_name("flow_http", tests, NULL, NULL);
}
