/* Connections to origins: how many, for how long, who waits for one, and which are left alone. */
#include "tests/flow/farm.h"

#define ONE(more) FARM_YAML("[0]", "    endpoints: [10.9.0.2:9000]\n" more)

/* An answer that is there by `at`, and not before. */
static void expect_at(struct peer *c, uint64_t start, uint64_t at, int status)
{
    struct world *w = c->host->world;
    size_t before = c->rx_len;
    world_sleep(w, start + at - 1 - w->now);
    assert_int_equal(c->rx_len, before);
    world_sleep(w, 200001); /* its way to the client */
    assert_int_equal(flow_status(c), status);
    c->taken = c->rx_len;
}

/* --- min and max ----------------------------------------------------------------------------- */

static void a_minimum_is_opened_ahead_and_kept_up(void **state)
{
    struct world *w = flow_start(ONE("    pool: { min: 3 }\n"));
    struct peer *o[3], *c;
    for (unsigned i = 0; i < 3; i++)
        o[i] = world_accept(w);
    world_sleep(w, WORLD_MS);
    assert_int_equal(world_status(w)->upstreams[0].idle, 3);
    c = world_connect(w, 80);
    peer_say(c, GET);
    world_sleep(w, 5 * WORLD_MS);
    assert_int_equal(world_status(w)->upstreams[0].connects, 3); /* it took one of them */
    assert_int_equal(world_status(w)->upstreams[0].reused, 1);
    unsigned busy = o[0]->rx_len ? 0 : o[1]->rx_len ? 1 : 2;
    peer_close(o[(busy + 1) % 3]);
    assert_non_null(world_accept_within(w, 5 * WORLD_MS)); /* in its place */
    peer_say(o[busy], OK2);
    assert_int_equal(flow_status(c), 200);
    world_sleep(w, WORLD_MS);
    assert_int_equal(world_status(w)->upstreams[0].idle, 3);
    world_free(w);
}

/* Tried again after 1, 2, 4 … seconds, 30 at the most. */
static void an_origin_that_is_not_there_is_not_pestered(void **state)
{
    struct world_opts wo = {
        .yaml = ONE("    pool: { min: 1 }\n"), .seed = 1, .path = {.delay_ns = 100000}};
    struct world *w = world_new(&wo);
    static const uint64_t tries[] = {0, 1, 3, 7, 15, 31, 61, 91};
    uint64_t start = w->now;
    for (unsigned i = 0; i < 8; i++) {
        world_sleep(w, start + tries[i] * WORLD_S + 20 * WORLD_MS - w->now);
        assert_int_equal(world_status(w)->upstreams[0].connects, i + 1);
        if (i < 7) {
            world_sleep(w, start + tries[i + 1] * WORLD_S - w->now);
            assert_int_equal(world_status(w)->upstreams[0].connects, i + 1);
        }
    }
    world_listen(w, 9000);
    assert_non_null(world_accept_within(w, 31 * WORLD_S));
    world_free(w);
}

#define MAX_TWO ONE("    pool: { max: 2, acquire_timeout: 500ms }\n")

static void more_than_the_maximum_wait_in_order(void **state)
{
    struct world *w = flow_start(MAX_TWO);
    struct peer *c[5], *o[2];
    for (unsigned i = 0; i < 5; i++) {
        c[i] = world_connect(w, 80);
        peer_say(c[i], GET);
        if (i < 2)
            o[i] = flow_origin(w);
        world_sleep(w, WORLD_MS);
    }
    assert_null(world_accept_within(w, WORLD_MS));
    assert_int_equal(world_status(w)->endpoints[0].waiting, 3);
    peer_say(o[1], OK2);
    assert_int_equal(flow_status(c[1]), 200);
    peer_expect(c[1], "ok");
    peer_expect_through(o[1], "\r\n\r\n");
    peer_say(o[1], OK2);
    assert_int_equal(flow_status(c[2]), 200); /* the first of those who waited, same connection */
    peer_say(c[1], GET);                      /* behind the others */
    peer_expect_through(o[1], "\r\n\r\n");
    peer_say(o[1], OK2);
    assert_int_equal(flow_status(c[3]), 200);
    peer_say(o[0], OK2);
    assert_int_equal(flow_status(c[0]), 200);
    for (unsigned i = 0; i < 2; i++) {
        peer_expect_through(o[i], "\r\n\r\n");
        peer_say(o[i], OK2);
    }
    assert_int_equal(flow_status(c[4]), 200);
    assert_int_equal(flow_status(c[1]), 200);
    assert_int_equal(world_status(w)->upstreams[0].connects, 2);
    assert_int_equal(world_status(w)->upstreams[0].pool_waits, 4);
    world_free(w);
}

static void waiting_has_an_end(void **state)
{
    struct world *w = flow_start(MAX_TWO);
    struct peer *c[3];
    for (unsigned i = 0; i < 2; i++) {
        c[i] = world_connect(w, 80);
        peer_say(c[i], GET);
        flow_origin(w);
    }
    c[2] = world_connect(w, 80);
    world_sleep(w, 5 * WORLD_MS);
    uint64_t start = w->now + 100000; /* when the request is there */
    peer_say(c[2], GET);
    expect_at(c[2], start, 500 * WORLD_MS, 503);
    assert_int_equal(world_status(w)->upstreams[0].pool_timeout, 1);
    assert_int_equal(world_status(w)->endpoints[0].waiting, 0);
    world_free(w);
}

static void without_patience_there_is_503_at_once(void **state)
{
    struct world *w = flow_start(ONE("    pool: { max: 1, acquire_timeout: 0s }\n"));
    struct peer *a = world_connect(w, 80), *b = world_connect(w, 80);
    peer_say(a, GET);
    peer_say(flow_origin(w), "HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\n");
    uint64_t start = w->now + 100000;
    peer_say(b, GET);
    expect_at(b, start, 1, 503);
    assert_non_null(memmem(b->rx, b->rx_len, "\r\nRetry-After: 1\r\n", 18));
    world_free(w);
}

/* Who goes away, waiting or just called, doesn't take his turn with him. */
static void those_who_leave_the_queue_hold_nobody_up(void **state)
{
    struct world *w = flow_start(ONE("    pool: { max: 1, acquire_timeout: 1m }\n"));
    struct peer *c[4], *o;
    for (unsigned i = 0; i < 4; i++) {
        c[i] = world_connect(w, 80);
        peer_say(c[i], GET);
        if (i == 0)
            o = flow_origin(w);
        world_sleep(w, WORLD_MS);
    }
    peer_abort(c[1]);
    world_sleep(w, WORLD_MS);
    assert_int_equal(world_status(w)->endpoints[0].waiting, 2);
    peer_say(o, OK2);
    peer_abort(c[2]); /* its RST and the answer that calls it come in at the same moment */
    assert_int_equal(flow_status(c[0]), 200);
    peer_expect_through(o, "\r\n\r\n");
    world_sleep(w, WORLD_MS);
    if (o->err || o->eof || !o->stream) /* the second's request was begun and cut */
        o = flow_origin(w);
    peer_say(o, OK2);
    assert_int_equal(flow_status(c[3]), 200);
    world_free(w);
}

#define FROM(weight_0, weight_1)                                                                   \
    FARM_YAML("[0]", "    endpoints:\n"                                                            \
                     "      - { address: 10.9.0.2:9000, weight: " weight_0 " }\n"                  \
                     "      - { address: 10.9.0.2:9001, weight: " weight_1 " }\n"                  \
                     "    pool: { max: 1, acquire_timeout: 1m }\n")

static void who_waits_for_one_that_is_drained_goes_elsewhere(void **state)
{
    struct world *w = flow_start(FROM("1", "0"));
    struct peer *a = world_connect(w, 80), *b = world_connect(w, 80);
    world_listen(w, 9001);
    peer_say(a, GET);
    struct peer *o = flow_origin(w);
    peer_say(b, GET);
    world_sleep(w, WORLD_MS);
    assert_int_equal(world_status(w)->upstreams[0].pool_waits, 1);
    world_reload(w, FROM("0", "1"));
    peer_say(flow_origin(w), OK2);
    assert_int_equal(flow_status(b), 200);
    peer_say(o, OK2); /* what was begun there goes on */
    assert_int_equal(flow_status(a), 200);
    world_free(w);
}

static void a_tunnel_waits_too(void **state)
{
    struct world *w = flow_start(FROM("1", "0"));
    struct peer *a = world_connect(w, 80), *t = world_connect(w, 81), *u = world_connect(w, 81);
    peer_say(a, GET);
    struct peer *o = flow_origin(w);
    peer_say(t, "hello");
    peer_say(u, "and me");
    world_sleep(w, WORLD_MS);
    assert_int_equal(world_status(w)->endpoints[0].waiting, 2);
    peer_say(o, OK2);
    assert_int_equal(flow_status(a), 200);
    /* It wants a connection of its own: the idle one makes way. */
    struct peer *end = world_accept(w);
    peer_expect(end, "hello");
    assert_true(o->eof);
    peer_close(end);
    peer_close(t);
    end = world_accept(w);
    peer_expect(end, "and me");
    world_free(w);
}

/* --- ages ------------------------------------------------------------------------------------ */

static struct peer *served(struct world *w, struct peer *c, struct peer *o, const char *answer)
{
    peer_say(c, GET);
    if (o)
        peer_expect_through(o, "\r\n\r\n");
    else
        o = flow_origin(w);
    peer_say(o, answer);
    assert_int_equal(flow_status(c), 200);
    peer_expect(c, "ok");
    return o;
}

static void a_connection_has_so_many_requests(void **state)
{
    struct world *w = flow_start(ONE("    pool: { requests: 2 }\n"));
    struct peer *c = world_connect(w, 80);
    struct peer *o = served(w, c, NULL, OK2);
    served(w, c, o, OK2);
    peer_expect_eof(o); /* politely: no RST */
    o = served(w, c, NULL, OK2);
    assert_int_equal(world_status(w)->upstreams[0].connects, 2);
    world_free(w);
}

/* Ten seconds less up to a tenth: idle it goes then; busy, after its request. */
static void a_connection_has_a_life(void **state)
{
    struct world *w = flow_start(ONE("    pool: { lifetime: 10s }\n"));
    struct peer *c = world_connect(w, 80);
    struct peer *o = served(w, c, NULL, OK2);
    world_sleep(w, 8900 * WORLD_MS);
    assert_false(o->eof);
    world_sleep(w, 1200 * WORLD_MS);
    assert_true(o->eof);
    assert_int_equal(world_status(w)->upstreams[0].idle, 0);
    peer_say(c, GET);
    o = flow_origin(w);
    world_sleep(w, 12 * WORLD_S);
    assert_false(o->eof);
    peer_say(o, OK2);
    assert_int_equal(flow_status(c), 200);
    peer_expect_eof(o);
    world_free(w);
}

struct announced {
    const char *field;
    uint64_t kept; /* ms */
};

/* A second before the origin would, or half of it when that is less; never longer than we would. */
static void what_the_origin_announces_is_believed(void **state)
{
    static const struct announced cases[] = {
        {"", 60000},
        {"Keep-Alive: timeout=5\r\n", 4000},
        {"Keep-Alive: timeout=5, max=100\r\n", 4000},
        {"Keep-Alive: max=100,Timeout=1\r\n", 500},
        {"Keep-Alive: timeout=3600\r\n", 60000},
        {"Keep-Alive: timeout=99999999999999999999999\r\n", 60000},
        {"Keep-Alive: timeout=\r\n", 60000},
        {"Keep-Alive: timeout\r\n", 60000},
        {"Keep-Alive: max=5\r\n", 60000},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct world *w = flow_start(ONE("    timeouts: { idle: 60s }\n"));
        struct peer *c = world_connect(w, 80);
        char answer[256];
        snprintf(answer, sizeof(answer), "HTTP/1.1 200 OK\r\n%sContent-Length: 2\r\n\r\nok",
                 cases[i].field);
        struct peer *o = served(w, c, NULL, answer);
        world_sleep(w, (cases[i].kept - 5) * WORLD_MS);
        if (o->eof)
            fail_msg("case %zu: closed too early", i);
        world_sleep(w, 10 * WORLD_MS);
        if (!o->eof)
            fail_msg("case %zu: not closed", i);
        world_free(w);
    }
}

/* --- before it is used again ----------------------------------------------------------------- */

#define CROWD 100

/* A pass takes 64 frames. The request is among the first of them, the FIN of the connection that it
 * would get comes behind them: it is seen all the same, so that a request which can't be repeated
 * isn't wasted on a connection that is closed. */
static void a_fin_that_has_arrived_is_seen_before_reuse(void **state)
{
    struct world *w = flow_start(ONE(""));
    struct peer *crowd[CROWD], *c = world_connect(w, 80);
    for (unsigned i = 0; i < CROWD - 10; i++) {
        crowd[i] = world_connect(w, 80);
        world_sleep(w, WORLD_MS);
    }
    struct peer *o = served(w, c, NULL, OK2);
    world_sleep(w, 100 * WORLD_MS); /* all is quiet */
    /* All at one moment, in this order: the client's host sends before the origin's. */
    peer_say(c, "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 2\r\n\r\nhi");
    for (unsigned i = 0; i < CROWD - 10; i++)
        peer_say(crowd[i], "G");
    peer_close(o);
    peer_say(flow_origin(w), OK2);
    assert_int_equal(flow_status(c), 200);
    assert_int_equal(world_status(w)->upstreams[0].attempts, 2);
    assert_int_equal(world_status(w)->upstreams[0].reused, 0);
    assert_int_equal(world_status(w)->upstreams[0].resets, 0);
    world_free(w);
}

/* --- another endpoint ------------------------------------------------------------------------ */

/* Nobody has that address: once that is known it costs no time. */
static void one_that_cannot_be_reached_makes_way(void **state)
{
    struct farm f;
    farm_init(&f,
              FARM_YAML("[0]", "    endpoints: [10.9.0.2:9000, 10.9.0.77:9003]\n"
                               "    balance: round_robin\n"
                               "    retries: { budget: { ratio: 100% } }\n"),
              1, 1);
    struct peer *c = world_connect(f.w, 80);
    for (unsigned i = 0; i < 10; i++) {
        assert_int_equal(farm_get(&f, c), 200);
        if (i < 5)
            continue;
        uint64_t before = f.w->now;
        assert_int_equal(farm_get(&f, c), 200);
        assert_in_range(f.w->now - before, 0, 30 * WORLD_MS); /* a back-off, no time-out */
    }
    assert_true(farm_endpoint(&f, 3)->failures >= 4);
    world_free(f.w);
}

static void the_only_one_that_cannot_be_reached_is_502(void **state)
{
    struct farm f;
    farm_init(&f, FARM_YAML("[0]", "    endpoints: [10.9.0.77:9003]\n"), 1, 1);
    struct peer *c = world_connect(f.w, 80);
    for (unsigned i = 0; i < 3; i++) {
        int status = farm_get(&f, c);
        assert_true(status == 502 || status == 504);
    }
    assert_int_equal(farm_get(&f, c), 502);
    world_free(f.w);
}

/* --- hashes ---------------------------------------------------------------------------------- */

struct hashed {
    const char *by, *request;
    int group; /* those of one group go to one endpoint */
};

static void hashes_go_by_what_they_are_told(void **state)
{
    static const struct hashed cases[] = {
        {"by: path", "GET /a?x HTTP/1.1\r\nHost: a\r\n\r\n", 1},
        {"by: path", "GET /%61?y HTTP/1.1\r\nHost: b\r\n\r\n", 1},
        {"by: header, name: X-User", "GET /1 HTTP/1.1\r\nHost: a\r\nx-user:  ann \r\n\r\n", 2},
        {"by: header, name: X-User", "GET /2 HTTP/1.1\r\nHost: a\r\nX-User: ann\r\n\r\n", 2},
        {"by: cookie, name: id", "GET /1 HTTP/1.1\r\nHost: a\r\nCookie: xid=9; id=ann; z=1\r\n\r\n",
         2},
        {"by: cookie, name: id",
         "GET /1 HTTP/1.1\r\nHost: a\r\nCookie: a\r\nCookie: id=ann\r\n\r\n", 2},
        {"by: source", "GET /1 HTTP/1.1\r\nHost: a\r\n\r\n", 3},
        {"by: header, name: X-User", "GET /1 HTTP/1.1\r\nHost: a\r\n\r\n", 3},
        {"by: cookie, name: id", "GET /1 HTTP/1.1\r\nHost: a\r\nCookie: ids=3; i=d; id=\r\n\r\n",
         3},
    };
    char yaml[8192], list[4096] = "";
    int home[4] = {-1, -1, -1, -1};
    for (unsigned i = 0; i < 4; i++)
        snprintf(list + strlen(list), sizeof(list) - strlen(list), "%s10.9.0.2:%u", i ? ", " : "",
                 9000 + i);
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct farm f;
        snprintf(yaml, sizeof(yaml),
                 FARM_YAML("[0]", "    endpoints: [%s]\n    balance: consistent_hash\n"
                                  "    hash: { %s }\n"),
                 list, cases[i].by);
        farm_init(&f, yaml, 1, i + 1);
        struct peer *c = world_connect(f.w, 80);
        struct farm_wait fw = {&f, c};
        peer_say(c, cases[i].request);
        assert_true(world_run(f.w, farm_has_answer, &fw, WORLD_S));
        int at = -1;
        for (int k = 0; k < 4; k++)
            at = f.port[k].requests ? k : at;
        if (home[cases[i].group] < 0)
            home[cases[i].group] = at;
        if (home[cases[i].group] != at)
            fail_msg("case %zu went to %d, not %d", i, at, home[cases[i].group]);
        world_free(f.w);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_minimum_is_opened_ahead_and_kept_up),
        cmocka_unit_test(an_origin_that_is_not_there_is_not_pestered),
        cmocka_unit_test(more_than_the_maximum_wait_in_order),
        cmocka_unit_test(waiting_has_an_end),
        cmocka_unit_test(without_patience_there_is_503_at_once),
        cmocka_unit_test(those_who_leave_the_queue_hold_nobody_up),
        cmocka_unit_test(who_waits_for_one_that_is_drained_goes_elsewhere),
        cmocka_unit_test(a_tunnel_waits_too),
        cmocka_unit_test(a_connection_has_so_many_requests),
        cmocka_unit_test(a_connection_has_a_life),
        cmocka_unit_test(what_the_origin_announces_is_believed),
        cmocka_unit_test(a_fin_that_has_arrived_is_seen_before_reuse),
        cmocka_unit_test(one_that_cannot_be_reached_makes_way),
        cmocka_unit_test(the_only_one_that_cannot_be_reached_is_502),
        cmocka_unit_test(hashes_go_by_what_they_are_told),
    };
    return cmocka_run_group_tests_name("flow_pool", tests, NULL, NULL);
}
