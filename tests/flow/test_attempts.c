/* What is tried again, what is answered instead, and what only a cut can tell. */
#include "tests/flow/flow.h"

/* A world in which the client's next request goes out on a pooled connection. */
static struct world *with_pooled(struct peer **ret_client, struct peer **ret_origin)
{
    struct world *w = flow_start(FLOW_YAML);
    struct peer *c = world_connect(w, 80);
    peer_say(c, GET);
    struct peer *o = flow_origin(w);
    peer_say(o, OK2);
    assert_int_equal(flow_status(c), 200);
    peer_expect(c, "ok");
    *ret_client = c;
    *ret_origin = o;
    return w;
}

/* The end of the body was read in the first attempt; the second must have it too. */
static void an_empty_chunked_body_is_whole_in_the_second_attempt(void **state)
{
    struct peer *c, *o;
    struct world *w = with_pooled(&c, &o);
    peer_say(c, "PUT / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n");
    world_sleep(w, 50000); /* half way to the proxy: it meets the FIN after it was sent on */
    peer_close(o);
    struct peer *second = flow_origin(w);
    peer_expect(second, "0\r\n\r\n");
    peer_say(second, OK2);
    assert_int_equal(flow_status(c), 200);
    peer_expect(c, "ok");
    assert_int_equal(world_status(w)->upstreams[0].attempts, 3);
    world_free(w);
}

static void after_an_interim_answer_there_is_no_second_attempt(void **state)
{
    struct peer *c, *o;
    struct world *w = with_pooled(&c, &o);
    peer_say(c, GET);
    peer_expect_through(o, "\r\n\r\n");
    peer_say(o, "HTTP/1.1 103 Early Hints\r\nLink: </a.css>\r\n\r\n");
    assert_int_equal(flow_status(c), 103);
    peer_close(o);
    assert_int_equal(flow_status(c), 502);
    peer_expect_through(c, "\n");
    assert_null(world_accept_within(w, WORLD_S));
    world_free(w);
}

static void interim_answers_and_the_final_one_may_come_at_once(void **state)
{
    struct peer *c, *o;
    struct world *w = with_pooled(&c, &o);
    peer_say(c, GET);
    peer_expect_through(o, "\r\n\r\n");
    peer_say(o, "HTTP/1.1 102 Processing\r\n\r\nHTTP/1.1 103 Early Hints\r\n\r\n" OK2);
    assert_int_equal(flow_status(c), 102);
    assert_int_equal(flow_status(c), 103);
    assert_int_equal(flow_status(c), 200);
    peer_expect(c, "ok");
    world_free(w);
}

static void a_10_client_hears_of_no_interim_answer(void **state)
{
    struct world *w = flow_start(FLOW_YAML);
    struct peer *c = world_connect(w, 80);
    peer_say(c, "GET / HTTP/1.0\r\nConnection: keep-alive\r\n\r\n");
    struct peer *o = world_accept(w);
    const char *head = peer_expect_through(o, "\r\n\r\n");
    assert_has(head, "GET / HTTP/1.1\r\n");
    assert_has(head, "Host: 10.9.0.2:9000\r\n"); /* it named none */
    peer_say(o, "HTTP/1.1 103 Early Hints\r\n\r\n" OK2);
    head = peer_expect_through(c, "\r\n\r\n");
    assert_has(head, "HTTP/1.1 200 OK\r\n");
    assert_has(head, "Connection: keep-alive\r\n");
    peer_expect(c, "ok");
    peer_say(c, "GET / HTTP/1.0\r\nConnection: keep-alive\r\n\r\n");
    peer_expect_through(o, "\r\n\r\n");
    peer_say(o, OK2);
    assert_int_equal(flow_status(c), 200);
    world_free(w);
}

/* As long as no byte of the answer has left, there is a better one than a cut. */
static void a_body_that_breaks_together_with_its_head_is_502(void **state)
{
    static const char *const answers[] = {
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhelloXX",
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nnonsense",
        "HTTP/1.1 103 Early Hints\r\n\r\n"
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhelloXX",
    };
    for (size_t i = 0; i < sizeof(answers) / sizeof(answers[0]); i++) {
        struct world *w = flow_start(FLOW_YAML);
        struct peer *c = world_connect(w, 80);
        peer_say(c, GET);
        struct peer *o = flow_origin(w);
        peer_say(o, answers[i]);
        if (i == 2)
            assert_int_equal(flow_status(c), 103);
        assert_int_equal(flow_status(c), 502);
        peer_expect(c, "502 Bad Gateway\n");
        peer_expect_error(o, -ECONNRESET);
        peer_say(c, GET); /* the client's connection is still good */
        peer_say(flow_origin(w), OK2);
        assert_int_equal(flow_status(c), 200);
        peer_expect(c, "ok");
        world_free(w);
    }
}

static void an_empty_line_before_an_answer_is_502(void **state)
{
    struct world *w = flow_start(FLOW_YAML);
    struct peer *c = world_connect(w, 80);
    peer_say(c, GET);
    peer_say(flow_origin(w), "\r\n");
    assert_int_equal(flow_status(c), 502);
    world_free(w);
}

/* An answer of whatever head, and whether the origin's connection can serve again. */
static void an_origin_that_wants_to_close_is_left_in_peace(void **state)
{
    static const char *const answers[] = {
        "HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 2\r\n\r\nok",
        "HTTP/1.0 200 OK\r\nContent-Length: 2\r\n\r\nok",
    };
    for (size_t i = 0; i < sizeof(answers) / sizeof(answers[0]); i++) {
        struct world *w = flow_start(FLOW_YAML);
        struct peer *c = world_connect(w, 80);
        peer_say(c, GET);
        struct peer *o = flow_origin(w);
        peer_say(o, answers[i]);
        assert_has_not(peer_expect_through(c, "\r\n\r\n"), "close");
        peer_expect(c, "ok");
        peer_expect_eof(o); /* no RST: all was said */
        assert_int_equal(o->err, 0);
        world_free(w);
    }
}

static void bytes_behind_an_answer_end_the_origins_connection(void **state)
{
    struct world *w = flow_start(FLOW_YAML);
    struct peer *c = world_connect(w, 80);
    peer_say(c, GET);
    struct peer *o = flow_origin(w);
    peer_say(o, OK2 "HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nevil");
    assert_int_equal(flow_status(c), 200);
    peer_expect(c, "ok");
    peer_expect_error(o, -ECONNRESET);
    peer_say(c, GET);
    peer_say(flow_origin(w), OK2);
    assert_int_equal(flow_status(c), 200);
    peer_expect(c, "ok");
    world_free(w);
}

/* RFC 9110 §15.3.5, §15.4.5: framing on an answer without a body is not framing. */
static void framing_where_no_body_can_be_is_not_waited_for(void **state)
{
    static const char *const answers[] = {
        "HTTP/1.1 204 No Content\r\nContent-Length: 5\r\n\r\n",
        "HTTP/1.1 204 No Content\r\nTransfer-Encoding: chunked\r\n\r\n",
        "HTTP/1.1 304 Not Modified\r\nTransfer-Encoding: chunked\r\n\r\n",
    };
    struct peer *c, *o;
    struct world *w = with_pooled(&c, &o);
    for (size_t i = 0; i < sizeof(answers) / sizeof(answers[0]); i++) {
        peer_say(c, GET);
        peer_expect_through(o, "\r\n\r\n");
        peer_say(o, answers[i]);
        const char *head = peer_expect_through(c, "\r\n\r\n");
        assert_has_not(head, "chunked");
        assert_has_not(head, "Content-Length");
    }
    peer_say(c, "HEAD / HTTP/1.1\r\nHost: a\r\n\r\n");
    peer_expect_through(o, "\r\n\r\n");
    peer_say(o, "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n");
    assert_int_equal(flow_status(c), 200);
    peer_expect_silence(c, 10 * WORLD_MS);
    assert_int_equal(world_status(w)->upstreams[0].connects, 1);
    world_free(w);
}

static void an_upgrade_is_an_ordinary_request(void **state)
{
    struct peer *c, *o;
    struct world *w = with_pooled(&c, &o);
    peer_say(c, "GET / HTTP/1.1\r\nHost: a\r\nConnection: Upgrade, HTTP2-Settings\r\n"
                "Upgrade: h2c\r\nHTTP2-Settings: AAMAAABkAARAAAAAAAIAAAAA\r\n\r\n");
    const char *head = peer_expect_through(o, "\r\n\r\n");
    assert_has_not(head, "pgrade");
    assert_has_not(head, "HTTP2-Settings");
    peer_say(o, OK2);
    assert_int_equal(flow_status(c), 200);
    peer_expect(c, "ok");
    world_free(w);
}

/* The answers to what came before are not taken away from a client that ends its half. */
static void earlier_answers_survive_a_client_that_ends_its_half(void **state)
{
    struct world *w = flow_start(FLOW_YAML);
    struct peer *c = world_connect(w, 80);
    peer_say(c, "GET /1 HTTP/1.1\r\nHost: a\r\n\r\nGET /2 HTTP/1.1\r\nHost: a\r\n\r\n");
    peer_shutdown(c);
    struct peer *o = world_accept(w);
    peer_expect_through(o, "\r\n\r\n");
    peer_pause(c, true);
    peer_say(o, OK2);
    world_sleep(w, WORLD_S);
    peer_pause(c, false);
    assert_int_equal(flow_status(c), 200);
    peer_expect(c, "ok");
    peer_expect_eof(c);
    world_free(w);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_empty_chunked_body_is_whole_in_the_second_attempt),
        cmocka_unit_test(after_an_interim_answer_there_is_no_second_attempt),
        cmocka_unit_test(interim_answers_and_the_final_one_may_come_at_once),
        cmocka_unit_test(a_10_client_hears_of_no_interim_answer),
        cmocka_unit_test(a_body_that_breaks_together_with_its_head_is_502),
        cmocka_unit_test(an_empty_line_before_an_answer_is_502),
        cmocka_unit_test(an_origin_that_wants_to_close_is_left_in_peace),
        cmocka_unit_test(bytes_behind_an_answer_end_the_origins_connection),
        cmocka_unit_test(framing_where_no_body_can_be_is_not_waited_for),
        cmocka_unit_test(an_upgrade_is_an_ordinary_request),
        cmocka_unit_test(earlier_answers_survive_a_client_that_ends_its_half),
    };
    return cmocka_run_group_tests_name("flow_attempts", tests, NULL, NULL);
}
