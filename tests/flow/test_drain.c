/* A core that drains: nothing new, nothing lost, nothing kept. */
#include "dataplane/core_private.h"
#include "dataplane/proxy/proxy.h"
#include "tests/flow/flow.h"

static void drain(struct world *w)
{
    proxy_drain(w->cores[0]->proxy, w->now + 30 * WORLD_S);
}

static bool is_drained(struct world *w)
{
    return proxy_is_drained(w->cores[0]->proxy);
}

static void a_connection_given_back_during_a_drain_is_closed(void **state)
{
    struct world *w = flow_start(FLOW_YAML);
    struct peer *c = world_connect(w, 80);
    peer_say(c, GET);
    struct peer *o = flow_origin(w);
    drain(w);
    peer_say(o, OK2);
    assert_has(peer_expect_through(c, "\r\n\r\n"), "Connection: close\r\n");
    peer_expect(c, "ok");
    peer_expect_eof(c);
    uint64_t t = w->now;
    peer_expect_eof(o);
    assert_true(w->now - t < WORLD_S);
    assert_int_equal(world_status(w)->upstreams[0].idle, 0);
    world_free(w);
}

/* The head went out before the drain and promises to keep the connection. */
static void a_request_that_crosses_the_drain_does_not_break_the_answer_before_it(void **state)
{
    struct world *w = flow_start(FLOW_YAML);
    struct peer *c = world_connect(w, 80);
    peer_say(c, GET);
    struct peer *o = flow_origin(w);
    peer_say(o, "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n");
    assert_int_equal(flow_status(c), 200);
    peer_say(c, GET);
    world_sleep(w, 10 * WORLD_MS);
    drain(w);
    peer_say(o, "ok");
    peer_expect(c, "ok");
    peer_expect_eof(c);
    world_free(w);
}

static void a_head_that_was_begun_is_served_and_is_the_last(void **state)
{
    struct world *w = flow_start(FLOW_YAML);
    struct peer *c = world_connect(w, 80);
    peer_say(c, "GET / HTTP/1.1\r\nHo");
    world_sleep(w, 10 * WORLD_MS);
    drain(w);
    peer_say(c, "st: a\r\n\r\n");
    struct peer *o = flow_origin(w);
    peer_say(o, OK2);
    assert_has(peer_expect_through(c, "\r\n\r\n"), "Connection: close\r\n");
    peer_expect(c, "ok");
    peer_expect_eof(c);
    world_free(w);
}

static void a_client_that_never_closes_does_not_hold_up_a_drain(void **state)
{
    struct world *w = flow_start(FLOW_YAML);
    struct peer *c = world_connect(w, 80);
    world_sleep(w, 10 * WORLD_MS);
    drain(w);
    peer_expect_eof(c);
    assert_false(is_drained(w)); /* what is still on its way is waited for, but not long */
    world_sleep(w, 3 * WORLD_S);
    assert_true(is_drained(w));
    world_free(w);
}

static void a_tunnel_goes_on_until_the_deadline(void **state)
{
    struct world *w = flow_start(FLOW_YAML);
    struct peer *c = world_connect(w, 81), *o = world_accept(w);
    peer_say(c, "x");
    peer_expect(o, "x");
    uint64_t t = w->now;
    drain(w);
    world_sleep(w, 20 * WORLD_S);
    peer_say(o, "still");
    peer_expect(c, "still");
    assert_false(is_drained(w));
    peer_expect_error(c, -ECONNRESET);
    peer_expect_error(o, -ECONNRESET);
    assert_in_range(w->now - t, 29900 * WORLD_MS, 30010 * WORLD_MS);
    assert_true(is_drained(w));
    world_free(w);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_connection_given_back_during_a_drain_is_closed),
        cmocka_unit_test(a_request_that_crosses_the_drain_does_not_break_the_answer_before_it),
        cmocka_unit_test(a_head_that_was_begun_is_served_and_is_the_last),
        cmocka_unit_test(a_client_that_never_closes_does_not_hold_up_a_drain),
        cmocka_unit_test(a_tunnel_goes_on_until_the_deadline),
    };
    return cmocka_run_group_tests_name("flow_drain", tests, NULL, NULL);
}
