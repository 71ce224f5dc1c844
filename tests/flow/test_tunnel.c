/* The L4 tunnel: bytes as they are, half-close kept, backpressure by window. */
#include "tests/flow/flow.h"

static void bytes_go_both_ways_at_once(void **state)
{
    struct world *w = flow_start(FLOW_YAML);
    struct peer *c = world_connect(w, 81);
    struct peer *o = world_accept(w);
    peer_say(c, "any \r\n thing");
    peer_expect(o, "any \r\n thing");
    peer_say(o, "and back");
    peer_expect(c, "and back");
    world_free(w);
}

static void the_origin_may_speak_first(void **state)
{
    struct world *w = flow_start(FLOW_YAML);
    struct peer *c = world_connect(w, 81);
    peer_say(world_accept(w), "220 ready\r\n");
    peer_expect(c, "220 ready\r\n");
    world_free(w);
}

static void each_half_closes_on_its_own(void **state)
{
    struct world *w = flow_start(FLOW_YAML);
    struct peer *c = world_connect(w, 81);
    struct peer *o = world_accept(w);
    peer_say(c, "question");
    peer_shutdown(c);
    peer_expect(o, "question");
    peer_expect_eof(o);
    peer_say(o, "a long answer");
    peer_expect(c, "a long answer");
    peer_expect_silence(c, WORLD_S);
    peer_shutdown(o);
    peer_expect_eof(c);
    world_sleep(w, 100 * WORLD_MS);
    assert_int_equal(world_status(w)->tunnels, 0);
    world_free(w);
}

static void a_reset_goes_through_in_both_directions(void **state)
{
    for (int side = 0; side < 2; side++) {
        struct world *w = flow_start(FLOW_YAML);
        struct peer *c = world_connect(w, 81);
        struct peer *o = world_accept(w);
        peer_say(c, "x");
        peer_expect(o, "x");
        peer_abort(side ? o : c);
        peer_expect_error(side ? c : o, -ECONNRESET);
        world_free(w);
    }
}

static void without_an_origin_the_client_is_reset(void **state)
{
    struct world_opts o = {.yaml = FLOW_YAML, .path = {.delay_ns = 100000}};
    struct world *w = world_new(&o);
    struct peer *c = world_connect(w, 81);
    peer_expect_error(c, -ECONNRESET);
    world_free(w);
}

static void megabytes_each_way_arrive_whole_and_in_order(void **state)
{
    struct world *w = flow_start(FLOW_YAML);
    struct peer *c = world_connect(w, 81);
    struct peer *o = world_accept(w);
    static unsigned char up[1500000], down[1500000];
    uint64_t up_sum = 0, down_sum = 0;
    for (size_t i = 0; i < sizeof(up); i++) {
        up[i] = (unsigned char)(i * 13 + (i >> 8));
        down[i] = (unsigned char)(i * 17 + (i >> 10));
        up_sum = up_sum * 31 + up[i];
        down_sum = down_sum * 31 + down[i];
    }
    c->count_only = o->count_only = true;
    peer_send(c, up, sizeof(up));
    peer_send(o, down, sizeof(down));
    peer_shutdown(c);
    peer_shutdown(o);
    peer_expect_bytes(c, sizeof(down));
    peer_expect_bytes(o, sizeof(up));
    assert_true(o->rx_sum == up_sum && c->rx_sum == down_sum);
    peer_expect_eof(c);
    peer_expect_eof(o);
    world_free(w);
}

static void a_reader_that_stops_stops_the_writer(void **state)
{
    static char big[2000000];
    struct world *w = flow_start(FLOW_YAML);
    struct peer *c = world_connect(w, 81);
    struct peer *o = world_accept(w);
    peer_pause(o, true);
    peer_send(c, big, sizeof(big));
    world_sleep(w, 5 * WORLD_S);
    uint64_t left = c->out.len;
    assert_true(left > 500000);
    world_sleep(w, 5 * WORLD_S);
    assert_int_equal(c->out.len, left);
    peer_pause(o, false);
    peer_expect_bytes(o, sizeof(big));
    world_free(w);
}

static void an_idle_tunnel_ends_when_it_says(void **state)
{
    struct world *w = flow_start(FLOW_YAML);
    struct peer *c = world_connect(w, 81);
    struct peer *o = world_accept(w);
    world_sleep(w, 200 * WORLD_S);
    peer_say(c, "still here");
    peer_expect(o, "still here");
    uint64_t t = w->now;
    peer_expect_error(c, -ECONNRESET);
    assert_in_range(w->now - t, 299900 * WORLD_MS, 300010 * WORLD_MS);
    world_free(w);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(bytes_go_both_ways_at_once),
        cmocka_unit_test(the_origin_may_speak_first),
        cmocka_unit_test(each_half_closes_on_its_own),
        cmocka_unit_test(a_reset_goes_through_in_both_directions),
        cmocka_unit_test(without_an_origin_the_client_is_reset),
        cmocka_unit_test(megabytes_each_way_arrive_whole_and_in_order),
        cmocka_unit_test(a_reader_that_stops_stops_the_writer),
        cmocka_unit_test(an_idle_tunnel_ends_when_it_says),
    };
    return cmocka_run_group_tests_name("flow_tunnel", tests, NULL, NULL);
}
