/* Limits over two cores: what the origin sees, what clients are told, and that nothing is lost. */
#include "dataplane/upstream/shared.h"
#include "tests/flow/load.h"

#define LIMITED(limits)                                                                            \
    FLOW_HEAD("[0, 1]")                                                                            \
    "listeners:\n"                                                                                 \
    "  - name: web\n"                                                                              \
    "    address: 10.9.0.1:80\n"                                                                   \
    "    http:\n"                                                                                  \
    "      routes:\n"                                                                              \
    "        - { upstream: app }\n"                                                                \
    "        - { match: { path_prefix: /low }, upstream: app, priority: low }\n"                   \
    "        - { match: { path_prefix: /high }, upstream: app, priority: high }\n" FLOW_UPSTREAM   \
    "    limits: " limits "\n"

static struct world *two_cores(const char *yaml, uint64_t seed)
{
    struct world_opts o = {.yaml = yaml, .seed = seed, .cores = 2, .path = {.delay_ns = 100000}};
    struct world *w = world_new(&o);
    world_listen(w, 9000);
    return w;
}

static uint64_t a_second(struct load *l)
{
    return WORLD_S;
}

static uint64_t some_ms(struct load *l)
{
    return (1 + rng_below(&l->rng, 30)) * WORLD_MS;
}

static bool one_in_5000(struct load *l)
{
    return rng_chance(&l->rng, 200);
}

static uint64_t upstream_counter(struct world *w, size_t offset)
{
    return *(uint64_t *)((char *)&world_status(w)->upstreams[0] + offset);
}
#define COUNTER(w, field) upstream_counter(w, offsetof(struct upstream_stats, field))

static void seven_at_once_ten_wait_the_rest_are_told(void **state)
{
    struct world *w = two_cores(LIMITED("{ requests: 7, queue: 10, queue_timeout: 300ms }"), 1);
    static struct load l;
    l = (struct load){.service = a_second};
    load_start(&l, w, 64);
    load_run(&l, 200 * WORLD_MS);
    assert_int_equal(l.in_flight, 7);
    assert_int_equal(l.answers[503], 64 - 7 - 10);
    assert_int_equal(COUNTER(w, queue_full), 64 - 7 - 10);
    assert_int_equal(world_status(w)->upstreams[0].in_flight, 7);
    assert_int_equal(world_status(w)->upstreams[0].queued, 10);
    load_run(&l, 150 * WORLD_MS);
    assert_int_equal(l.answers[503], 64 - 7);
    assert_int_equal(COUNTER(w, queue_timeout), 10);
    load_run(&l, WORLD_S);
    assert_int_equal(l.answers[200], 7);
    assert_int_equal(l.most, 7);
    world_free(w);
}

/* Requests of random length; clients that are killed in the queue, under way and in between; the
 * limit moves. */
static void no_permit_is_lost_under_cancels_and_reloads(void **state)
{
    for (uint64_t seed = 1; seed <= 2; seed++) {
        struct world *w =
            two_cores(LIMITED("{ requests: 7, queue: 20, queue_timeout: 40ms }"), seed);
        static struct load l;
        l = (struct load){.service = some_ms, .again = true, .kill = one_in_5000, .rng = {seed}};
        load_start(&l, w, 32);
        load_run(&l, 300 * WORLD_MS);
        assert_int_equal(l.most, 7);
        world_reload(w, LIMITED("{ requests: 3, queue: 20, queue_timeout: 40ms }"));
        load_run(&l, 100 * WORLD_MS);
        l.most = 0;
        load_run(&l, 200 * WORLD_MS);
        assert_int_equal(l.most, 3);
        world_reload(w, LIMITED("{ requests: 12, queue: 20, queue_timeout: 40ms }"));
        load_run(&l, 300 * WORLD_MS);
        assert_int_equal(l.most, 12);
        assert_true(l.killed > 5);
        load_stop(&l, WORLD_S);
        assert_int_equal(permits_leased(w->snapshot->upstreams[0].shared->limits.requests), 0);
        assert_int_equal(atomic_load(&w->snapshot->upstreams[0].shared->queued), 0);
        world_free(w);
    }
}

/* The permit of an idle connection goes to who needs one. */
static void an_idle_connection_gives_way_to_one_that_is_waited_for(void **state)
{
    struct world *w = two_cores(LIMITED("{ connections: 2, queue_timeout: 5s }"), 4);
    static struct load l;
    l = (struct load){.service = some_ms, .again = true, .rng = {4}};
    load_start(&l, w, 16); /* of both cores */
    load_run(&l, WORLD_S);
    assert_int_equal(l.most, 2);
    assert_true(l.answers[200] > 100);
    assert_int_equal(l.answers[503], 0);
    load_stop(&l, 6 * WORLD_S);
    assert_true(permits_leased(w->snapshot->upstreams[0].shared->limits.connections) <= 2);
    world_free(w);
}

/* `n` requests at once, so that they leave as many idle connections behind. */
static void leave_idle(struct world *w, unsigned n)
{
    struct peer *o[8], *c[8];
    for (unsigned i = 0; i < n; i++) {
        c[i] = world_connect(w, 80);
        peer_say(c[i], GET);
        o[i] = flow_origin(w);
    }
    for (unsigned i = 0; i < n; i++) {
        peer_say(o[i], OK2);
        assert_int_equal(flow_status(c[i]), 200);
    }
    world_sleep(w, WORLD_MS);
    assert_int_equal(world_status(w)->upstreams[0].idle, n);
}

#define CONNECTIONS(n)                                                                             \
    FLOW_HEAD("[0]")                                                                               \
    FLOW_LISTENERS("") FLOW_UPSTREAM "    limits: { connections: " #n ", queue_timeout: 2s }\n"

/* Nobody gets a permit before what is over the lowered limit is gone. */
static void idle_connections_over_a_lowered_limit_give_way_too(void **state)
{
    struct world *w = flow_start(CONNECTIONS(4));
    leave_idle(w, 4);
    world_reload(w, CONNECTIONS(1));
    peer_say(world_connect(w, 81), "mine"); /* a tunnel takes none of the pool */
    struct peer *o = world_accept_within(w, 10 * WORLD_MS);
    assert_non_null(o);
    peer_expect(o, "mine");
    world_sleep(w, WORLD_MS);
    assert_int_equal(world_status(w)->upstreams[0].idle, 0);
    world_free(w);
}

/* The only permit is with a connection to where nobody answers, which no request asked for. */
static void a_connection_that_is_opened_ahead_gives_way(void **state)
{
    struct world *w =
        flow_start(FLOW_HEAD("[0]")
                       FLOW_LISTENERS("") "upstreams:\n"
                                          "  - name: app\n"
                                          "    endpoints: [10.9.0.77:9000, 10.9.0.2:9000]\n"
                                          "    timeouts: { connect: 30s, try: 500ms }\n"
                                          "    pool: { min: 1 }\n"
                                          "    limits: { connections: 1, queue_timeout: 10ms }\n");
    struct peer *c = world_connect(w, 80);
    world_sleep(w, WORLD_MS);
    peer_say(c, GET);
    peer_say(flow_origin(w), OK2);
    assert_int_equal(flow_status(c), 200);
    world_free(w);
}

static void an_endpoint_has_its_own_limit(void **state)
{
    struct world *w = two_cores(LIMITED("{ endpoint_requests: 3, queue: 100 }"), 5);
    static struct load l;
    l = (struct load){.service = some_ms, .again = true, .rng = {5}};
    load_start(&l, w, 20);
    load_run(&l, WORLD_S);
    assert_int_equal(l.most, 3);
    assert_int_equal(l.answers[503], 0);
    load_stop(&l, WORLD_S);
    world_free(w);
}

/* A tunnel takes a connection's permit; the next one waits for it. */
static void tunnels_wait_for_connections_too(void **state)
{
    struct world *w = flow_start(FLOW_HEAD("[0]") FLOW_LISTENERS("") FLOW_UPSTREAM
                                 "    limits: { connections: 1, queue_timeout: 2s }\n");
    struct peer *a = world_connect(w, 81), *b = world_connect(w, 81);
    peer_say(a, "one");
    peer_say(b, "two");
    struct peer *o = world_accept(w);
    peer_expect(o, "one");
    assert_null(world_accept_within(w, 500 * WORLD_MS));
    peer_close(a);
    peer_expect_eof(o);
    peer_close(o);
    peer_expect(world_accept(w), "two");
    struct peer *c = world_connect(w, 81); /* nobody makes way for this one */
    world_sleep(w, 2100 * WORLD_MS);
    assert_int_equal(c->err, -ECONNRESET);
    world_free(w);
}

static void higher_priority_goes_first(void **state)
{
    struct world *w = flow_start(LIMITED("{ requests: 1, queue_timeout: 5s }"));
    struct peer *first = world_connect(w, 80), *low = world_connect(w, 80),
                *high = world_connect(w, 80);
    peer_say(first, GET);
    struct peer *o = flow_origin(w);
    peer_say(low, "GET /low HTTP/1.1\r\nHost: a\r\n\r\n");
    world_sleep(w, WORLD_MS);
    peer_say(high, "GET /high HTTP/1.1\r\nHost: a\r\n\r\n");
    world_sleep(w, WORLD_MS);
    peer_say(o, OK2);
    assert_has(peer_expect_through(o, "\r\n\r\n"), "GET /high");
    peer_say(o, OK2);
    assert_has(peer_expect_through(o, "\r\n\r\n"), "GET /low");
    peer_say(o, OK2);
    assert_int_equal(flow_status(low), 200);
    world_free(w);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(seven_at_once_ten_wait_the_rest_are_told),
        cmocka_unit_test(no_permit_is_lost_under_cancels_and_reloads),
        cmocka_unit_test(an_idle_connection_gives_way_to_one_that_is_waited_for),
        cmocka_unit_test(idle_connections_over_a_lowered_limit_give_way_too),
        cmocka_unit_test(a_connection_that_is_opened_ahead_gives_way),
        cmocka_unit_test(an_endpoint_has_its_own_limit),
        cmocka_unit_test(tunnels_wait_for_connections_too),
        cmocka_unit_test(higher_priority_goes_first),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
