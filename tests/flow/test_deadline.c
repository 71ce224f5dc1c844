/* One deadline over all of a request, and retries that it and the budget bound. */
#include "tests/flow/load.h"

#define WITH(listener, upstream) WITHIN("500ms", listener, upstream)
#define LONG(upstream)           WITHIN("10s", "", upstream)

#define WITHIN(time, listener, upstream)                                                           \
    FLOW_HEAD("[0]")                                                                               \
    "listeners:\n"                                                                                 \
    "  - name: web\n"                                                                              \
    "    address: 10.9.0.1:80\n"                                                                   \
    "    http:\n" listener "      routes: [ { upstream: app, timeouts: { request: " time           \
    " } } ]\n"                                                                                     \
    "upstreams:\n"                                                                                 \
    "  - name: app\n"                                                                              \
    "    endpoints: [10.9.0.2:9000]\n" upstream

#define DELAY 100000ull /* of the wire, one way */

static struct world *start(const char *yaml)
{
    struct world *w = flow_start(yaml);
    world_sleep(w, 10 * WORLD_MS);
    return w;
}

/* Says `request` and returns the time until the answer's head, ns. */
static uint64_t time_of(struct world *w, struct peer *c, const char *request, int status)
{
    world_sleep(w, WORLD_MS); /* the handshake is over */
    uint64_t from = w->now;
    peer_say(c, request);
    assert_int_equal(flow_status(c), status);
    return w->now - from;
}

static void expect_at_deadline(uint64_t ns, uint64_t deadline)
{
    assert_in_range(ns, deadline + 2 * DELAY, deadline + 2 * DELAY + 2000);
}

static void a_silent_origin(void **state)
{
    struct world *w = start(WITH("", ""));
    struct peer *c = world_connect(w, 80);
    expect_at_deadline(time_of(w, c, GET, 504), 500 * WORLD_MS);
    world_free(w);
}

static void the_queue(void **state)
{
    struct world *w = start(WITH("", "    limits: { requests: 1, queue_timeout: 10s }\n"));
    struct peer *first = world_connect(w, 80), *c = world_connect(w, 80);
    peer_say(first, GET);
    flow_origin(w);
    world_sleep(w, 450 * WORLD_MS);
    struct peer *third = world_connect(w, 80);
    peer_say(third, GET); /* gets the permit at 500 ms, and is never answered */
    expect_at_deadline(time_of(w, c, GET, 504), 500 * WORLD_MS);
    world_free(w);
}

static void a_black_hole(void **state)
{
    struct world *w = start(WITH("", ""));
    struct peer *c = world_connect(w, 80);
    struct wire_path hole = {.loss_ppm = 1000000};
    wire_set_path(w->wire, 2, &hole);
    expect_at_deadline(time_of(w, c, GET, 504), 500 * WORLD_MS);
    world_free(w);
}

static void back_off(void **state)
{
    struct world_opts o = {
        .yaml = WITH("", "    retries: { attempts: 16, backoff: { base: 100ms, max: 100ms },\n"
                         "      budget: { min_per_second: 100 } }\n"),
        .seed = 3,
        .path = {.delay_ns = DELAY}};
    struct world *w = world_new(&o); /* nothing listens */
    struct peer *c = world_connect(w, 80);
    uint64_t ns = time_of(w, c, GET, 502);
    /* A wait that would end after the deadline is not begun. */
    assert_in_range(ns, 300 * WORLD_MS, 500 * WORLD_MS);
    assert_true(world_status(w)->upstreams[0].attempts > 3);
    world_free(w);
}

/* The body comes byte by byte: the answer is cut at the deadline. */
static void a_trickling_body(void **state)
{
    struct world *w = start(WITH("", ""));
    struct peer *c = world_connect(w, 80);
    world_sleep(w, WORLD_MS);
    uint64_t from = w->now;
    peer_say(c, GET);
    struct peer *o = flow_origin(w);
    peer_say(o, "HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\n");
    for (unsigned i = 0; i < 100 && !c->err; i++) {
        peer_say(o, "x");
        world_sleep(w, 10 * WORLD_MS);
    }
    assert_int_equal(c->err, -ECONNRESET);
    assert_in_range(w->now - from, 500 * WORLD_MS, 520 * WORLD_MS);
    world_free(w);
}

static void a_trickling_head(void **state)
{
    struct world *w = start(WITH("", ""));
    struct peer *c = world_connect(w, 80);
    world_sleep(w, WORLD_MS);
    uint64_t from = w->now;
    peer_say(c, GET);
    struct peer *o = flow_origin(w);
    peer_say(o, "HTTP/1.1 200 OK\r\nX: ");
    while (c->rx_len == 0 && w->now - from < WORLD_S) {
        if (o->stream)
            peer_say(o, "x");
        world_sleep(w, 10 * WORLD_MS);
    }
    assert_int_equal(flow_status(c), 504);
    assert_in_range(w->now - from, 500 * WORLD_MS, 520 * WORLD_MS);
    world_free(w);
}

static void a_clients_own_deadline_is_heeded_if_it_is_sooner(void **state)
{
    static const struct {
        const char *field;
        uint64_t ms;
    } cases[] = {
        {"x-request-timeout-ms: 200", 200},
        {"X-Request-Timeout-Ms: 900", 500},
        {"grpc-timeout: 100m", 100},
        {"grpc-timeout: 1S\r\nX-Request-Timeout-Ms: 300\r\nx-request-timeout-ms: 250", 250},
        {"x-request-timeout-ms: soon", 500},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        char request[256];
        struct world *w = start(WITH("", ""));
        struct peer *c = world_connect(w, 80);
        snprintf(request, sizeof(request), "GET / HTTP/1.1\r\nHost: a\r\n%s\r\n\r\n",
                 cases[i].field);
        expect_at_deadline(time_of(w, c, request, 504), cases[i].ms * WORLD_MS);
        world_free(w);
    }
}

static void the_origin_is_told_the_time_left(void **state)
{
    struct world *w = start(
        WITH("", "    deadline_header: X-Left\n    limits: { requests: 1, queue_timeout: 10s }\n"));
    struct peer *first = world_connect(w, 80), *c = world_connect(w, 80);
    peer_say(first, GET);
    struct peer *o = flow_origin(w);
    world_sleep(w, WORLD_MS);
    peer_say(c, "GET / HTTP/1.1\r\nHost: a\r\nX-LEFT: 9999\r\n\r\n");
    world_sleep(w, 120 * WORLD_MS);
    peer_say(o, OK2);
    const char *head = peer_expect_through(o, "\r\n\r\n");
    assert_has(head, "x-left: 380\r\n"); /* 500 less 120 in the queue */
    assert_has_not(head, "9999");
    peer_say(o, OK2);
    assert_int_equal(flow_status(c), 200);
    world_free(w);
    w = start(WITH("", "    deadline_header: grpc-timeout\n    timeouts: { try: 300ms }\n"));
    c = world_connect(w, 80);
    peer_say(c, "GET / HTTP/1.1\r\nHost: a\r\ngrpc-timeout: 1H\r\n\r\n");
    head = peer_expect_through(world_accept(w), "\r\n\r\n");
    assert_has(head, "grpc-timeout: 299");
    assert_has_not(head, "1H");
    world_free(w);
}

static void a_try_has_a_time_of_its_own(void **state)
{
    struct world *w = start(WITH("", "    timeouts: { try: 100ms }\n"
                                     "    retries: { attempts: 2, backoff: { base: 1ms } }\n"));
    struct peer *c = world_connect(w, 80);
    peer_say(c, GET);
    flow_origin(w); /* silent */
    struct peer *o = flow_origin(w);
    peer_say(o, OK2);
    assert_int_equal(flow_status(c), 200);
    peer_expect(c, "ok");
    /* What isn't idempotent is not repeated. */
    peer_say(c, "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 0\r\n\r\n");
    assert_int_equal(flow_status(c), 504);
    world_free(w);
}

static void statuses_are_tried_again_as_configured(void **state)
{
    struct world *w = start(WITH("", "    retries: { when: { 503: true, 429: true },\n"
                                     "      backoff: { base: 1ms } }\n"));
    struct peer *c = world_connect(w, 80);
    peer_say(c, GET);
    peer_say(flow_origin(w), "HTTP/1.1 503 Down\r\nContent-Length: 0\r\n\r\n");
    struct peer *o = flow_origin(w);
    uint64_t from = w->now;
    peer_say(o, "HTTP/1.1 503 Down\r\nRetry-After: 0\r\nContent-Length: 0\r\n\r\n");
    o = flow_origin(w);
    assert_true(w->now - from < 10 * WORLD_MS);
    /* The last answer is the client's. */
    peer_say(o, "HTTP/1.1 503 Down\r\nX-Last: yes\r\nContent-Length: 0\r\n\r\n");
    assert_has(peer_expect_through(c, "\r\n\r\n"), "X-Last: yes");
    /* 502 is not on the list. */
    peer_say(c, GET);
    peer_expect_through(o, "\r\n\r\n");
    peer_say(o, "HTTP/1.1 502 Bad\r\nContent-Length: 0\r\n\r\n");
    assert_int_equal(flow_status(c), 502);
    /* One that asks for more time than there is. */
    peer_say(c, GET);
    peer_expect_through(o, "\r\n\r\n");
    peer_say(o, "HTTP/1.1 429 Slow\r\nRetry-After: 1\r\nContent-Length: 0\r\n\r\n");
    assert_int_equal(flow_status(c), 429);
    world_free(w);
}

/* Seconds or a date, which counts from the answer's own: the clock that is right is the origin's.
 */
static void another_attempt_waits_as_long_as_it_is_told(void **state)
{
    static const struct {
        const char *fields;
        uint64_t s; /* 0: it isn't tried again */
    } cases[] = {
        {"Retry-After: 2\r\n", 2},
        {"Date: Sun, 06 Nov 1994 08:49:37 GMT\r\nRetry-After: Sun, 06 Nov 1994 08:49:40 GMT\r\n",
         3},
        {"Retry-After: Sunday, 06-Nov-94 08:50:01 GMT\r\nDate: Sun, 06 Nov 1994 08:50:00 GMT\r\n",
         1},
        {"Date: Sun, 06 Nov 1994 08:49:37 GMT\r\nRetry-After: Sun, 06 Nov 1994 08:49:30 GMT\r\n",
         0},
        {"Date: Sun, 06 Nov 1994 08:49:37 GMT\r\nRetry-After: Mon, 06 Nov 1995 08:49:37 GMT\r\n",
         0},
        {"Retry-After: Sun, 06 Nov 1994 08:49:40 GMT\r\n", 0}, /* after when? */
        {"Date: Sun, 06 Nov 1994 08:49:37 GMT\r\nRetry-After: soon\r\n", 0},
        {"Retry-After: 99999999999999999999999999\r\n", 0},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        char answer[256];
        struct world *w =
            start(LONG("    retries: { when: { 429: true }, backoff: { base: 1ms } }\n"));
        struct peer *c = world_connect(w, 80);
        snprintf(answer, sizeof(answer), "HTTP/1.1 429 Slow\r\n%sContent-Length: 0\r\n\r\n",
                 cases[i].fields);
        peer_say(c, GET);
        struct peer *o = flow_origin(w);
        uint64_t from = w->now;
        peer_say(o, answer);
        if (cases[i].s) {
            o = world_accept_within(w, 5 * WORLD_S);
            peer_expect_through(o, "\r\n\r\n");
            assert_in_range(w->now - from, cases[i].s * WORLD_S,
                            cases[i].s * WORLD_S + 5 * WORLD_MS);
            peer_say(o, OK2);
        }
        assert_int_equal(flow_status(c), cases[i].s ? 200 : 429);
        world_free(w);
    }
}

static uint64_t two_ms(struct load *l)
{
    return 2 * WORLD_MS;
}

/* An origin that fails every request for ten seconds. */
static void a_storm_is_not_amplified(void **state)
{
    struct world *w =
        start(WITH("", "    retries: { when: { 503: true }, backoff: { base: 5ms } }\n"));
    static struct load l;
    l = (struct load){.service = two_ms, .again = true, .think = 20 * WORLD_MS, .rng = {1}};
    load_start(&l, w, 20);
    load_run(&l, WORLD_S);
    uint64_t calm = l.answers[200], requests = world_status(w)->upstreams[0].requests,
             attempts = world_status(w)->upstreams[0].attempts;
    assert_int_equal(l.answers[503], 0);
    l.answer = "HTTP/1.1 503 Down\r\nContent-Length: 0\r\n\r\n";
    load_run(&l, 10 * WORLD_S);
    requests = world_status(w)->upstreams[0].requests - requests;
    attempts = world_status(w)->upstreams[0].attempts - attempts;
    assert_true(requests > 3000);
    assert_true((double)attempts / (double)requests <= 1.25);
    assert_true(l.answers[503] > 3000);
    l.answer = NULL;
    uint64_t before = l.answers[200];
    load_run(&l, 2 * WORLD_S);
    assert_true(l.answers[200] - before >= calm * 19 / 10);
    load_stop(&l, WORLD_S);
    world_free(w);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_silent_origin),
        cmocka_unit_test(the_queue),
        cmocka_unit_test(a_black_hole),
        cmocka_unit_test(back_off),
        cmocka_unit_test(a_trickling_body),
        cmocka_unit_test(a_trickling_head),
        cmocka_unit_test(a_clients_own_deadline_is_heeded_if_it_is_sooner),
        cmocka_unit_test(the_origin_is_told_the_time_left),
        cmocka_unit_test(a_try_has_a_time_of_its_own),
        cmocka_unit_test(statuses_are_tried_again_as_configured),
        cmocka_unit_test(another_attempt_waits_as_long_as_it_is_told),
        cmocka_unit_test(a_storm_is_not_amplified),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
