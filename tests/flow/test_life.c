/* Reload, drain, and more cores than one. */
#include "dataplane/core_private.h"
#include "dataplane/proxy/proxy.h"
#include "tests/flow/flow.h"

#define TWO_UPSTREAMS(route)                                                                       \
    FLOW_HEAD("[0]")                                                                               \
    "listeners:\n"                                                                                 \
    "  - name: web\n"                                                                              \
    "    address: 10.9.0.1:80\n"                                                                   \
    "    http: { routes: [ { upstream: " route " } ] }\n"                                          \
    "upstreams:\n"                                                                                 \
    "  - { name: one, endpoints: [10.9.0.2:9001] }\n"                                              \
    "  - { name: two, endpoints: [10.9.0.2:9002] }\n"

#define ONE_GONE                                                                                   \
    FLOW_HEAD("[0]")                                                                               \
    "listeners:\n"                                                                                 \
    "  - name: web\n"                                                                              \
    "    address: 10.9.0.1:80\n"                                                                   \
    "    http: { routes: [ { upstream: two } ] }\n"                                                \
    "upstreams:\n"                                                                                 \
    "  - { name: two, endpoints: [10.9.0.2:9002] }\n"

static uint16_t served_by(struct world *w, struct peer *c, struct peer **ret_origin)
{
    struct stream_info i;
    peer_say(c, GET);
    struct peer *o = flow_origin(w);
    stream_get_info(o->stream, &i);
    peer_say(o, OK2);
    assert_int_equal(flow_status(c), 200);
    peer_expect(c, "ok");
    *ret_origin = o;
    return i.local_port;
}

static void a_reload_applies_to_the_next_request_of_an_old_connection(void **state)
{
    struct world_opts wo = {.yaml = TWO_UPSTREAMS("one"), .path = {.delay_ns = 100000}};
    struct world *w = world_new(&wo);
    world_listen(w, 9001);
    world_listen(w, 9002);
    struct peer *c = world_connect(w, 80), *first, *second;
    assert_int_equal(served_by(w, c, &first), 9001);
    world_reload(w, TWO_UPSTREAMS("two"));
    assert_int_equal(served_by(w, c, &second), 9002);
    assert_true(!first->eof && !first->err); /* its pooled connection is still good */
    world_free(w);
}

static void what_is_under_way_to_a_removed_upstream_is_finished(void **state)
{
    struct world_opts wo = {.yaml = TWO_UPSTREAMS("one"), .path = {.delay_ns = 100000}};
    struct world *w = world_new(&wo);
    world_listen(w, 9001);
    world_listen(w, 9002);
    struct peer *c = world_connect(w, 80), *idle = world_connect(w, 80), *o, *pooled;
    assert_int_equal(served_by(w, idle, &pooled), 9001);
    peer_say(c, GET);
    peer_expect_through(pooled, "\r\n\r\n");
    o = pooled;
    world_reload(w, ONE_GONE);
    world_sleep(w, WORLD_S);
    peer_say(o, OK2);
    assert_int_equal(flow_status(c), 200);
    peer_expect(c, "ok");
    peer_expect_eof(o); /* and not kept for anyone */
    assert_int_equal(served_by(w, c, &o), 9002);
    world_free(w);
}

static void pooled_connections_of_a_removed_upstream_are_closed(void **state)
{
    struct world_opts wo = {.yaml = TWO_UPSTREAMS("one"), .path = {.delay_ns = 100000}};
    struct world *w = world_new(&wo);
    world_listen(w, 9001);
    struct peer *c = world_connect(w, 80), *o;
    served_by(w, c, &o);
    world_reload(w, ONE_GONE);
    peer_expect_eof(o);
    world_free(w);
}

static void a_drain_finishes_what_runs_and_closes_what_waits(void **state)
{
    struct world *w = flow_start(FLOW_YAML);
    struct peer *idle = world_connect(w, 80), *busy = world_connect(w, 80);
    peer_say(busy, GET);
    struct peer *o = flow_origin(w);
    world_sleep(w, 10 * WORLD_MS);
    proxy_drain(w->cores[0]->proxy, w->now + 30 * WORLD_S);
    peer_expect_eof(idle);
    struct peer *late = world_connect(w, 80);
    peer_expect_error(late, -ECONNREFUSED);
    world_sleep(w, WORLD_S);
    assert_false(proxy_is_drained(w->cores[0]->proxy));
    peer_say(o, OK2);
    assert_has(peer_expect_through(busy, "\r\n\r\n"), "Connection: close\r\n");
    peer_expect(busy, "ok");
    peer_expect_eof(busy);
    peer_close(busy);
    peer_close(idle);
    world_sleep(w, 3 * WORLD_S);
    assert_true(proxy_is_drained(w->cores[0]->proxy));
    world_free(w);
}

static void a_drain_cuts_off_what_is_left_at_its_deadline(void **state)
{
    struct world *w = flow_start(FLOW_YAML);
    struct peer *c = world_connect(w, 80);
    peer_say(c, GET);
    flow_origin(w);
    uint64_t t = w->now;
    proxy_drain(w->cores[0]->proxy, t + 2 * WORLD_S);
    peer_expect_error(c, -ECONNRESET);
    assert_in_range(w->now - t, 2000 * WORLD_MS, 2010 * WORLD_MS);
    world_free(w);
}

/* Frames reach a random core's queue; each flow is still served by its owner alone. */
static void frames_on_the_wrong_core_are_handed_over(void **state)
{
    struct world_opts wo = {.yaml = FLOW_HEAD("[0, 1]") FLOW_LISTENERS("") FLOW_UPSTREAM,
                            .cores = 2,
                            .misroute_ppm = 1000000,
                            .seed = 5,
                            .path = {.delay_ns = 100000}};
    struct world *w = world_new(&wo);
    world_listen(w, 9000);
    for (int i = 0; i < 16; i++) {
        struct peer *c = world_connect(w, 80);
        peer_say(c, GET);
        struct peer *o = flow_origin(w);
        peer_say(o, OK2);
        assert_int_equal(flow_status(c), 200);
        peer_expect(c, "ok");
        peer_close(o);
    }
    struct core_status *st = world_status(w);
    assert_true(st->handoff_in > 16);
    uint64_t accepted[2];
    for (int i = 0; i < 2; i++) {
        static struct core_status one;
        core_fill_status(w->cores[i], &one);
        accepted[i] = one.tcp.accepted;
    }
    assert_int_equal(accepted[0] + accepted[1], 16);
    assert_true(accepted[0] && accepted[1]);
    world_free(w);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_reload_applies_to_the_next_request_of_an_old_connection),
        cmocka_unit_test(what_is_under_way_to_a_removed_upstream_is_finished),
        cmocka_unit_test(pooled_connections_of_a_removed_upstream_are_closed),
        cmocka_unit_test(a_drain_finishes_what_runs_and_closes_what_waits),
        cmocka_unit_test(a_drain_cuts_off_what_is_left_at_its_deadline),
        cmocka_unit_test(frames_on_the_wrong_core_are_handed_over),
    };
    return cmocka_run_group_tests_name("flow_life", tests, NULL, NULL);
}
