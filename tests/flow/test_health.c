/* Endpoints that come and go: who is found bad and when, and who gets the requests meanwhile. */
#include "tests/flow/farm.h"

#include "dataplane/core_private.h"
#include "dataplane/proxy/conn.h"

#define TWO   "    endpoints: [10.9.0.2:9000, 10.9.0.2:9001]\n    balance: round_robin\n"
#define THREE "    endpoints: [10.9.0.2:9000, 10.9.0.2:9001, 10.9.0.2:9002]\n"
#define SOON  (5 * WORLD_MS) /* some round trips */

#define TCP_PROBES                                                                                 \
    "    health: { interval: 1s, jitter: 0%, timeout: 500ms, healthy: 2, unhealthy: 3 }\n"
#define HTTP_PROBES(more)                                                                          \
    "    health: { path: /healthz, interval: 1s, jitter: 0%, timeout: 500ms, healthy: 1, "         \
    "unhealthy: 1" more " }\n"

/* To the nanosecond but for the way there and back: a probe a second, three bad, two good. */
static void tcp_probes_decide_by_thresholds(void **state)
{
    struct farm f;
    farm_init(&f, FARM_YAML("[0]", TWO TCP_PROBES), 1, 1);
    uint64_t start = f.w->now;
    farm_run_until(&f, start, 100 * WORLD_MS);
    assert_int_equal(farm_endpoint(&f, 1)->healthy, 1);
    world_unlisten(f.w, 9001);
    for (unsigned i = 1; i <= 3; i++) {
        farm_run_until(&f, start, i * WORLD_S);
        assert_int_equal(farm_endpoint(&f, 1)->healthy, 1);
    }
    farm_run_until(&f, start, 3 * WORLD_S + SOON);
    assert_int_equal(farm_endpoint(&f, 1)->healthy, 0);
    assert_int_equal(farm_endpoint(&f, 1)->probe, PROBE_refused);
    assert_int_equal(farm_endpoint(&f, 0)->healthy, 1);
    world_listen(f.w, 9001);
    farm_run_until(&f, start, 5 * WORLD_S);
    assert_int_equal(farm_endpoint(&f, 1)->healthy, 0);
    farm_run_until(&f, start, 5 * WORLD_S + SOON);
    assert_int_equal(farm_endpoint(&f, 1)->healthy, 1);
    world_free(f.w);
}

static void the_first_probe_decides_at_once(void **state)
{
    struct farm f;
    farm_init(&f, FARM_YAML("[0]", TWO TCP_PROBES), 1, 1);
    world_unlisten(f.w, 9001);
    farm_run(&f, SOON);
    assert_int_equal(farm_endpoint(&f, 1)->healthy, 0);
    struct peer *c = world_connect(f.w, 80);
    for (unsigned i = 0; i < 10; i++)
        assert_int_equal(farm_get(&f, c), 200);
    assert_int_equal(f.port[0].requests, 10);
    world_free(f.w);
}

/* Idle clients hold every connection that there is: of the endpoints nothing is known by that. */
static void what_we_lack_is_no_verdict(void **state)
{
    struct farm f;
    farm_init(&f, FARM_YAML("[0], connections: 64", TWO TCP_PROBES), 1, 1);
    farm_run(&f, 100 * WORLD_MS);
    for (unsigned i = 0; i < 80; i++)
        world_connect(f.w, 80);
    farm_run(&f, 8 * WORLD_S);
    assert_int_equal(tcp_stats(f.w->cores[0]->tcp)->conns, 64);
    assert_int_equal(farm_endpoint(&f, 0)->healthy, 1);
    assert_int_equal(farm_endpoint(&f, 1)->healthy, 1);
    world_free(f.w);
}

/* Jitter of 40 %: an interval has 0.8 to 1.2 s, and a first probe comes in the first 0.4 s. */
static void jitter_keeps_probes_out_of_step(void **state)
{
    struct farm f;
    farm_init(&f,
              FARM_YAML("[0]", THREE "    health: { path: /healthz, interval: 1s, jitter: 40%, "
                                     "timeout: 500ms }\n"),
              1, 7);
    uint64_t start = f.w->now, first[3] = {0};
    unsigned seen = 0;
    while (f.w->now < start + 400 * WORLD_MS + SOON) {
        farm_run(&f, WORLD_MS);
        for (unsigned i = 0; i < 3; i++)
            if (!first[i] && f.port[i].probes)
                first[i] = f.w->now, seen++;
    }
    assert_int_equal(seen, 3);
    assert_true(first[0] != first[1] && first[1] != first[2]);
    farm_run_until(&f, start, 100 * WORLD_S);
    for (unsigned i = 0; i < 3; i++)
        assert_in_range(f.port[i].probes, 96, 106);
    world_free(f.w);
}

struct probe_case {
    const char *more; /* settings */
    const char *answer;
    enum probe_result result;
};

static const struct probe_case probe_cases[] = {
    {"", OK2, PROBE_ok},
    {"", "HTTP/1.1 204 No Content\r\n\r\n", PROBE_ok},
    {"", "HTTP/1.1 500 Broken\r\nContent-Length: 0\r\n\r\n", PROBE_status},
    {"", "HTTP/1.1 301 Away\r\nContent-Length: 0\r\n\r\n", PROBE_status},
    {", statuses: [200, 300-302]", "HTTP/1.1 301 Away\r\nContent-Length: 0\r\n\r\n", PROBE_ok},
    {", statuses: [200, 300-302]", "HTTP/1.1 204 No\r\n\r\n", PROBE_status},
    {"", "HTTP/1.1 103 Hints\r\n\r\n" OK2, PROBE_ok},
    {"", "SSH-2.0-OpenSSH\r\n\r\n", PROBE_malformed},
    {"", "HTTP/1.1 200 OK\n\n", PROBE_malformed},
    {"", NULL, PROBE_timeout},
    {"", "HTTP/1.1 200 OK\r\n", PROBE_timeout},
    {", body_starts: o", OK2, PROBE_ok},
    {", body_starts: k", OK2, PROBE_body},
    {", body_starts: okay", OK2, PROBE_body},
    {", body_contains: k", OK2, PROBE_ok},
    {", body_starts: all, body_contains: \"is well\"",
     "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n6\r\nall is\r\n5\r\n well\r\n0\r\n\r\n",
     PROBE_ok},
    {", body_contains: well", "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nx\r\n",
     PROBE_malformed},
    {", body_contains: well", "HTTP/1.1 200 OK\r\nContent-Length: 50\r\n\r\nall is", PROBE_timeout},
    {", body_contains: k", "HTTP/1.1 204 No Content\r\n\r\n", PROBE_body},
};

static void http_probes_look_at_the_answer(void **state)
{
    for (size_t i = 0; i < sizeof(probe_cases) / sizeof(probe_cases[0]); i++) {
        const struct probe_case *p = &probe_cases[i];
        struct farm f;
        char yaml[2048];
        snprintf(yaml, sizeof(yaml),
                 FARM_YAML("[0]",
                           TWO "    health: { path: /healthz, interval: 1s, jitter: 0%%, timeout: "
                               "500ms, healthy: 1, unhealthy: 1%s }\n"),
                 p->more);
        farm_init(&f, yaml, 1, 1);
        f.port[0].probe = p->answer;
        uint64_t start = f.w->now;
        if (p->result == PROBE_timeout) {
            farm_run_until(&f, start, 500 * WORLD_MS - 1);
            assert_false(farm_endpoint(&f, 0)->probed);
            farm_run_until(&f, start, 500 * WORLD_MS);
        } else {
            farm_run(&f, SOON);
        }
        const struct endpoint_stats *e = farm_endpoint(&f, 0);
        if (!e->probed || e->probe != p->result)
            fail_msg("case %zu: %s, not %s", i, e->probed ? probe_result_name(e->probe) : "nothing",
                     probe_result_name(p->result));
        assert_int_equal(e->healthy, p->result == PROBE_ok);
        world_free(f.w);
    }
}

static void a_probe_asks_for_what_it_is_told(void **state)
{
    struct farm f;
    farm_init(&f,
              FARM_YAML("[0]", "    endpoints: [10.9.0.2:9000]\n"
                               "    health: { path: \"/healthz?x=1\", host: a.example, port: 9001 }"
                               "\n"),
              1, 1);
    farm_run(&f, WORLD_S);
    assert_int_equal(f.port[0].probes, 0);
    assert_int_equal(f.port[1].probes, 1);
    assert_string_equal(f.port[1].head, "GET /healthz?x=1 HTTP/1.1\r\nHost: a.example\r\n"
                                        "User-Agent: millrace-health\r\nConnection: close\r\n\r\n");
    assert_int_equal(farm_endpoint(&f, 0)->healthy, 1);
    world_free(f.w);
    farm_init(&f, FARM_YAML("[0]", TWO HTTP_PROBES("")), 1, 1);
    farm_run(&f, SOON);
    assert_has(f.port[1].head, "\r\nHost: 10.9.0.2:9001\r\n");
    world_free(f.w);
}

/* What it had pooled is closed, and what it is at may go on. */
static void an_unhealthy_endpoint_loses_its_pool_not_its_requests(void **state)
{
    struct farm f;
    farm_init(&f, FARM_YAML("[0]", TWO HTTP_PROBES("")), 1, 1);
    struct peer *a = world_connect(f.w, 80), *b = world_connect(f.w, 80);
    for (unsigned i = 0; i < 4; i++)
        assert_int_equal(farm_get(&f, a), 200);
    assert_int_equal(farm_endpoint(&f, 0)->idle, 1);
    assert_int_equal(farm_endpoint(&f, 1)->idle, 1);
    f.port[0].delay = f.port[1].delay = 2 * WORLD_S;
    peer_say(a, GET);
    farm_run(&f, SOON);
    unsigned busy = farm_endpoint(&f, 0)->active ? 0 : 1;
    f.port[0].delay = f.port[1].delay = 0;
    assert_int_equal(farm_get(&f, b), 200);
    assert_int_equal(farm_get(&f, b), 200); /* one more idle connection there */
    f.port[busy].probe = FARM_500;
    farm_run(&f, WORLD_S);
    assert_int_equal(farm_endpoint(&f, busy)->healthy, 0);
    assert_int_equal(farm_endpoint(&f, busy)->idle, 0);
    assert_int_equal(farm_endpoint(&f, busy)->active, 1);
    farm_run(&f, WORLD_S + SOON);
    assert_int_equal(flow_status(a), 200);
    farm_run(&f, SOON);
    assert_int_equal(farm_endpoint(&f, busy)->active, 0);
    assert_int_equal(farm_endpoint(&f, busy)->idle, 0); /* not pooled any more */
    world_free(f.w);
}

#define BACKED                                                                                     \
    "    endpoints: [10.9.0.2:9000, 10.9.0.2:9001, { address: 10.9.0.2:9002, backup: true }]\n"    \
    "    balance: round_robin\n    panic: 60%\n"

static void get_ten(struct farm *f, struct peer *c)
{
    for (unsigned i = 0; i < FARM_PORTS; i++)
        f->port[i].requests = 0;
    for (unsigned i = 0; i < 10; i++)
        assert_int_equal(farm_get(f, c), 200);
}

static void panic_backups_and_back(void **state)
{
    struct farm f;
    farm_init(&f, FARM_YAML("[0]", BACKED HTTP_PROBES("")), 1, 1);
    struct peer *c = world_connect(f.w, 80);
    get_ten(&f, c);
    assert_int_equal(f.port[0].requests, 5);
    assert_int_equal(f.port[2].requests, 0);
    f.port[1].probe = FARM_500; /* one of two is under 60 %: panic */
    farm_run(&f, WORLD_S + SOON);
    assert_int_equal(world_status(f.w)->upstreams[0].panic, 1);
    get_ten(&f, c);
    assert_int_equal(f.port[1].requests, 5);
    f.port[0].probe = FARM_500; /* none of two: backups */
    farm_run(&f, WORLD_S + SOON);
    assert_int_equal(world_status(f.w)->upstreams[0].backups, 1);
    get_ten(&f, c);
    assert_int_equal(f.port[2].requests, 10);
    f.port[2].probe = FARM_500; /* nothing at all: panic again, the backup stays out of it */
    farm_run(&f, WORLD_S + SOON);
    get_ten(&f, c);
    assert_int_equal(f.port[0].requests, 5);
    assert_int_equal(f.port[2].requests, 0);
    f.port[0].probe = f.port[1].probe = OK2;
    farm_run(&f, WORLD_S + SOON);
    assert_int_equal(world_status(f.w)->upstreams[0].panic, 0);
    assert_int_equal(farm_endpoint(&f, 2)->idle, 0);
    world_free(f.w);
}

static void without_panic_there_is_503(void **state)
{
    struct farm f;
    farm_init(&f, FARM_YAML("[0]", TWO "    panic: 0%\n" HTTP_PROBES("")), 1, 1);
    struct peer *c = world_connect(f.w, 80);
    f.port[0].probe = f.port[1].probe = FARM_500;
    farm_run(&f, SOON);
    assert_int_equal(farm_get(&f, c), 503);
    assert_int_equal(world_status(f.w)->upstreams[0].no_endpoint, 1);
    world_free(f.w);
}

#define JUDGED(more)                                                                               \
    "    outlier: { consecutive: 3, error_rate: off, ejection: 10s, max_ejection: 15s" more " }\n"

/* The endpoint `bad` answers 500; how many requests get there until it is out. */
static unsigned until_ejected(struct farm *f, struct peer *c, unsigned bad)
{
    unsigned before = f->port[bad].requests;
    for (unsigned i = 0; i < 100 && !farm_endpoint(f, bad)->ejected; i++)
        farm_get(f, c);
    assert_int_equal(farm_endpoint(f, bad)->ejected, 1);
    return f->port[bad].requests - before;
}

static void failures_in_a_row_eject_for_exactly_so_long(void **state)
{
    struct farm f;
    farm_init(&f, FARM_YAML("[0]", TWO JUDGED("")), 1, 1);
    struct peer *c = world_connect(f.w, 80);
    f.port[1].answer = FARM_500;
    static const uint64_t lengths[] = {10 * WORLD_S, 15 * WORLD_S, 15 * WORLD_S};
    for (unsigned i = 0; i < 3; i++) {
        assert_int_equal(until_ejected(&f, c, 1), 3);
        /* farm_get() goes on for a millisecond after the answer: the third failure came 1.1 ms ago,
         * the answer's own way to the client included. */
        uint64_t ejected = f.w->now - WORLD_MS - 100000;
        get_ten(&f, c);
        assert_int_equal(f.port[0].requests, 10);
        assert_int_equal(farm_endpoint(&f, 1)->idle, 0);
        farm_run_until(&f, ejected, lengths[i] - 1);
        assert_int_equal(farm_endpoint(&f, 1)->ejected, 1);
        farm_run_until(&f, ejected, lengths[i]);
        assert_int_equal(farm_endpoint(&f, 1)->ejected, 0);
    }
    assert_int_equal(farm_endpoint(&f, 1)->ejections, 3);
    f.port[1].answer = OK2;
    get_ten(&f, c);
    assert_int_equal(f.port[1].requests, 5);
    world_free(f.w);
}

static void success_in_between_starts_the_count_anew(void **state)
{
    struct farm f;
    farm_init(&f, FARM_YAML("[0]", TWO JUDGED("")), 1, 1);
    struct peer *c = world_connect(f.w, 80);
    for (unsigned i = 0; i < 40; i++) {
        f.port[1].answer = f.port[1].requests % 3 == 2 ? OK2 : FARM_500;
        farm_get(&f, c);
    }
    assert_int_equal(farm_endpoint(&f, 1)->ejected, 0);
    assert_int_equal(farm_endpoint(&f, 1)->failures, 14);
    world_free(f.w);
}

/* All three fail; a half of three is one. */
static void no_more_than_the_cap_are_ejected(void **state)
{
    struct farm f;
    farm_init(&f, FARM_YAML("[0]", THREE "    balance: round_robin\n" JUDGED("")), 1, 1);
    struct peer *c = world_connect(f.w, 80);
    for (unsigned i = 0; i < 3; i++)
        f.port[i].answer = FARM_500;
    for (unsigned i = 0; i < 60; i++) {
        assert_int_equal(farm_get(&f, c), 500);
        unsigned ejected = 0;
        for (unsigned k = 0; k < 3; k++)
            ejected += farm_endpoint(&f, k)->ejected;
        assert_in_range(ejected, 0, 1);
        assert_int_equal(ejected, i >= 8 ? 1 : ejected);
    }
    world_free(f.w);
}

#define LAST_ONE                                                                                   \
    THREE "    balance: round_robin\n    panic: 0%\n"                                              \
          "    retries: { attempts: 3, budget: { ratio: 100%, min_per_second: 1000 } }\n"          \
          "    outlier: { consecutive: 4, ejection: 30s, max_ejected: 67% }\n"

static void kill_origin(struct world *w, uint16_t port)
{
    struct stream_info info;
    world_unlisten(w, port);
    list_for_each_safe(n, tmp, &w->peers)
    {
        struct peer *o = container_of(n, struct peer, node);
        if (o->host != &w->origin || !o->stream)
            continue;
        stream_get_info(o->stream, &info);
        if (info.local_port == port)
            peer_abort(o);
    }
}

/* Two are out, and well again; the one that is left goes. Who asks gets an answer all the same, and
 * who asks later gets it at once. */
static void when_the_last_one_goes_an_ejected_one_steps_in(void **state)
{
    struct farm f;
    farm_init(&f, FARM_YAML("[0]", LAST_ONE), 1, 1);
    struct peer *c = world_connect(f.w, 80);
    for (uint16_t port = 9000; port <= 9001; port++)
        world_unlisten(f.w, port);
    for (unsigned i = 0; i < 12; i++)
        assert_int_equal(farm_get(&f, c), 200);
    assert_true(farm_endpoint(&f, 0)->ejected && farm_endpoint(&f, 1)->ejected);
    for (uint16_t port = 9000; port <= 9001; port++)
        world_listen(f.w, port);
    farm_run(&f, 4 * WORLD_S);
    kill_origin(f.w, 9002);
    farm_run(&f, WORLD_MS);
    assert_int_equal(f.port[0].requests + f.port[1].requests, 0);
    assert_int_equal(farm_get(&f, c), 200);
    assert_int_equal(f.port[0].requests + f.port[1].requests, 1);
    for (unsigned i = 0; i < 20; i++)
        assert_int_equal(farm_get(&f, c), 200);
    assert_int_equal(farm_endpoint(&f, 2)->ejected, 1);
    assert_in_range(farm_endpoint(&f, 2)->failures, 8, 10);
    world_free(f.w);
}

static void refused_connections_count_and_requests_are_served(void **state)
{
    struct farm f;
    farm_init(&f, FARM_YAML("[0]", TWO JUDGED("")), 1, 1);
    struct peer *c = world_connect(f.w, 80);
    world_unlisten(f.w, 9001);
    for (unsigned i = 0; i < 10; i++)
        assert_int_equal(farm_get(&f, c), 200);
    assert_int_equal(farm_endpoint(&f, 1)->ejected, 1);
    assert_int_equal(farm_endpoint(&f, 1)->failures, 3);
    world_free(f.w);
}

static void silence_until_the_deadline_counts(void **state)
{
    struct farm f;
    farm_init(&f, FARM_YAML("[0]", TWO "    timeouts: { request: 1s }\n" JUDGED("")), 1, 1);
    struct peer *c = world_connect(f.w, 80);
    f.port[1].answer = NULL;
    for (unsigned i = 0; i < 6; i++) {
        int status = farm_get(&f, c);
        assert_true(status == 200 || status == 504);
    }
    assert_int_equal(farm_endpoint(&f, 1)->ejected, 1);
    world_free(f.w);
}

/* Half of a window's requests fail, never three in a row: the window's end finds out. */
static void an_error_rate_ejects_at_the_end_of_the_window(void **state)
{
    struct farm f;
    farm_init(&f,
              FARM_YAML("[0]",
                        TWO "    outlier: { consecutive: off, error_rate: 50%, requests: 10, "
                            "window: 2s, ejection: 10s }\n"),
              1, 1);
    uint64_t start = f.w->now;
    struct peer *c = world_connect(f.w, 80);
    for (unsigned i = 0; i < 40; i++) {
        f.port[1].answer = f.port[1].requests % 2 ? OK2 : FARM_500;
        farm_get(&f, c);
    }
    farm_run_until(&f, start, 2 * WORLD_S - 1);
    assert_int_equal(farm_endpoint(&f, 1)->ejected, 0);
    farm_run_until(&f, start, 2 * WORLD_S);
    assert_int_equal(farm_endpoint(&f, 1)->ejected, 1);
    assert_int_equal(farm_endpoint(&f, 0)->ejected, 0);
    world_free(f.w);
}

static void the_slow_one_is_ejected(void **state)
{
    struct farm f;
    farm_init(&f,
              FARM_YAML("[0]", THREE "    balance: round_robin\n"
                                     "    outlier: { consecutive: off, error_rate: off, latency: "
                                     "300%, requests: 10, window: 10s }\n"),
              1, 1);
    uint64_t start = f.w->now;
    struct peer *c = world_connect(f.w, 80);
    for (unsigned i = 0; i < 3; i++)
        f.port[i].delay = i == 2 ? 80 * WORLD_MS : 20 * WORLD_MS;
    for (unsigned i = 0; i < 45; i++)
        assert_int_equal(farm_get(&f, c), 200);
    farm_run_until(&f, start, 10 * WORLD_S);
    assert_int_equal(farm_endpoint(&f, 2)->ejected, 1);
    assert_int_equal(farm_endpoint(&f, 0)->ejected + farm_endpoint(&f, 1)->ejected, 0);
    world_free(f.w);
}

static void what_is_known_survives_a_reload(void **state)
{
    static const char more[] =
        FARM_YAML("[0]", "    endpoints: [10.9.0.2:9002, 10.9.0.2:9001, 10.9.0.2:9000]\n"
                         "    balance: random\n" JUDGED("") HTTP_PROBES(""));
    struct farm f;
    farm_init(&f, FARM_YAML("[0]", THREE "    balance: round_robin\n" JUDGED("") HTTP_PROBES("")),
              1, 1);
    struct peer *c = world_connect(f.w, 80);
    f.port[0].probe = FARM_500;
    f.port[1].answer = FARM_500;
    farm_run(&f, SOON);
    assert_int_equal(farm_endpoint(&f, 0)->healthy, 0);
    until_ejected(&f, c, 1);
    world_reload(f.w, more);
    get_ten(&f, c);
    assert_int_equal(f.port[2].requests, 10);
    assert_int_equal(farm_endpoint(&f, 0)->healthy, 0);
    assert_int_equal(farm_endpoint(&f, 1)->ejected, 1);
    /* Without the settings there is nothing to hold against them. */
    world_reload(f.w, FARM_YAML("[0]", THREE));
    assert_int_equal(farm_endpoint(&f, 0)->healthy, 1);
    assert_int_equal(farm_endpoint(&f, 1)->ejected, 0);
    unsigned probes = f.port[0].probes;
    farm_run(&f, 5 * WORLD_S);
    assert_int_equal(f.port[0].probes, probes);
    world_free(f.w);
}

static struct endpoint *core_endpoint(struct world *w, unsigned core, uint16_t port)
{
    struct upstream *up = w->cores[core]->proxy->upstreams.by_index_[0];
    list_for_each(n, &up->endpoints_)
    {
        struct endpoint *ep = container_of(n, struct endpoint, node_);
        if (ep->port == port)
            return ep;
    }
    return NULL;
}

/* One core probes, one core's requests fail: both go by it. */
static void all_cores_are_told(void **state)
{
    struct farm f;
    farm_init(&f, FARM_YAML("[0, 1]", THREE JUDGED("") HTTP_PROBES("")), 2, 1);
    struct peer *c = world_connect(f.w, 80);
    f.port[0].probe = FARM_500;
    f.port[1].answer = FARM_500;
    farm_run(&f, SOON);
    unsigned probing = 0;
    for (unsigned i = 0; i < 2; i++) {
        assert_int_equal(core_endpoint(f.w, i, 9000)->flags, ENDPOINT_UNHEALTHY);
        probing += core_endpoint(f.w, i, 9000)->probe_ != NULL;
    }
    assert_int_equal(probing, 1);
    assert_int_equal(f.port[0].probes, 1);
    for (unsigned i = 0; i < 20; i++)
        farm_get(&f, c);
    for (unsigned i = 0; i < 2; i++)
        assert_int_equal(core_endpoint(f.w, i, 9001)->flags, ENDPOINT_EJECTED);
    world_free(f.w);
}

static void a_tunnel_goes_where_it_is_accepted(void **state)
{
    struct farm f;
    farm_init(&f, FARM_YAML("[0]", TWO JUDGED("")), 1, 1);
    world_unlisten(f.w, 9001);
    for (unsigned i = 0; i < 8; i++) {
        struct peer *c = world_connect(f.w, 81);
        peer_say(c, GET);
        struct farm_wait fw = {&f, c};
        assert_true(world_run(f.w, farm_has_answer, &fw, WORLD_S));
        peer_close(c);
    }
    assert_int_equal(farm_endpoint(&f, 1)->ejected, 1);
    world_free(f.w);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(tcp_probes_decide_by_thresholds),
        cmocka_unit_test(the_first_probe_decides_at_once),
        cmocka_unit_test(what_we_lack_is_no_verdict),
        cmocka_unit_test(jitter_keeps_probes_out_of_step),
        cmocka_unit_test(http_probes_look_at_the_answer),
        cmocka_unit_test(a_probe_asks_for_what_it_is_told),
        cmocka_unit_test(an_unhealthy_endpoint_loses_its_pool_not_its_requests),
        cmocka_unit_test(panic_backups_and_back),
        cmocka_unit_test(without_panic_there_is_503),
        cmocka_unit_test(failures_in_a_row_eject_for_exactly_so_long),
        cmocka_unit_test(success_in_between_starts_the_count_anew),
        cmocka_unit_test(no_more_than_the_cap_are_ejected),
        cmocka_unit_test(when_the_last_one_goes_an_ejected_one_steps_in),
        cmocka_unit_test(refused_connections_count_and_requests_are_served),
        cmocka_unit_test(silence_until_the_deadline_counts),
        cmocka_unit_test(an_error_rate_ejects_at_the_end_of_the_window),
        cmocka_unit_test(the_slow_one_is_ejected),
        cmocka_unit_test(what_is_known_survives_a_reload),
        cmocka_unit_test(all_cores_are_told),
        cmocka_unit_test(a_tunnel_goes_where_it_is_accepted),
    };
    return cmocka_run_group_tests_name("flow_health", tests, NULL, NULL);
}
