/* What `millrace conns` gets from a core: every connection, what it is doing, page by page. */
#include <arpa/inet.h>

#include "dataplane/core_private.h"
#include "runtime/rng.h"
#include "tests/flow/flow.h"

struct look {
    struct core_msg msg;
    struct conns_page page;
    bool done;
};

static void on_done(struct core_msg *m)
{
    container_of(m, struct look, msg)->done = true;
}

/* The page as control would get it. */
static void ask(struct world *w, struct look *l)
{
    l->done = false;
    l->msg = (struct core_msg){.kind = CORE_MSG_CONNS, .conns = &l->page, .done = on_done};
    core_post(w->cores[0], &l->msg);
    while (!l->done)
        world_sleep(w, WORLD_MS / 10);
}

/* The one connection that there is. */
static const struct conn_info *only(struct world *w, struct look *l)
{
    memset(l, 0, sizeof(*l));
    ask(w, l);
    assert_true(l->page.done);
    assert_int_equal(l->page.n, 1);
    return &l->page.conns[0];
}

static void assert_state(const struct conn_info *i, const char *state)
{
    assert_string_equal(conn_state_name(i->state), state);
}

static void a_connection_is_seen_through_its_life(void **state)
{
    struct world *w = flow_start(FLOW_YAML);
    struct look *l = calloc(1, sizeof(*l));
    struct peer *c = world_connect(w, 80);
    world_sleep(w, 10 * WORLD_MS);

    const struct conn_info *i = only(w, l);
    assert_state(i, "idle");
    assert_string_equal(i->listener, "web");
    assert_int_equal(i->client_addr, inet_addr(WORLD_CLIENT));
    assert_int_equal(i->local_port, 80);
    assert_string_equal(i->tcp_state, "ESTABLISHED");
    assert_true(i->cwnd >= 14000);
    assert_in_range(i->age_ns, 9 * WORLD_MS, 11 * WORLD_MS);
    assert_int_equal(i->requests, 0);

    peer_say(c, "GET /a?b HTTP/1.1\r\nHo");
    world_sleep(w, 5 * WORLD_MS);
    i = only(w, l);
    assert_state(i, "head");
    assert_int_equal(i->bytes_in, 21);
    assert_in_range(i->idle_ns, 3 * WORLD_MS, 6 * WORLD_MS);

    peer_say(c, "st: a.example\r\n\r\n");
    struct peer *o = flow_origin(w);
    i = only(w, l);
    assert_state(i, "sent");
    assert_string_equal(i->method, "GET");
    assert_string_equal(i->target, "/a?b");
    assert_string_equal(i->host, "a.example");
    assert_string_equal(i->route, "*/");
    assert_string_equal(i->upstream, "app");
    assert_int_equal(i->endpoint_addr, inet_addr(WORLD_ORIGIN));
    assert_int_equal(i->endpoint_port, 9000);
    assert_int_equal(i->attempts, 1);

    peer_say(o, "HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nha");
    peer_expect_through(c, "ha");
    i = only(w, l);
    assert_state(i, "relaying");
    assert_true(i->exchange_ns > 0 && i->exchange_ns < i->age_ns);
    peer_say(o, "lf");
    peer_expect(c, "lf");
    i = only(w, l);
    assert_state(i, "idle");
    assert_int_equal(i->requests, 1);
    assert_string_equal(i->target, "");
    assert_int_equal(i->exchange_ns, 0);
    free(l);
    world_free(w);
}

static void what_waits_on_either_side_shows(void **state)
{
    struct world *w = flow_start(FLOW_YAML);
    struct look *l = calloc(1, sizeof(*l));
    struct peer *c = world_connect(w, 81);
    struct peer *o = world_accept(w);
    static char body[1 << 20];

    peer_pause(c, true);
    peer_send(o, body, sizeof(body));
    world_sleep(w, 500 * WORLD_MS);
    const struct conn_info *i = only(w, l);
    assert_state(i, "tunnel");
    assert_string_equal(i->upstream, "app");
    assert_int_equal(i->endpoint_port, 9000);
    assert_true(i->send_queue > 0);
    assert_true(i->bytes_out > 10000);
    assert_true(i->srtt_us > 100 && i->srtt_us < 400000);
    assert_true(i->rto_us >= 200000);
    peer_pause(c, false);
    peer_shutdown(o);
    peer_expect_bytes(c, sizeof(body));
    free(l);
    world_free(w);
}

static unsigned count(struct world *w, struct look *l, const struct conns_filter *f)
{
    unsigned n = 0;

    memset(l, 0, sizeof(*l));
    l->page.filter = *f;
    do {
        ask(w, l);
        n += l->page.n;
    } while (!l->page.done);
    return n;
}

static void a_filter_lets_through_what_it_names(void **state)
{
    struct world *w = flow_start(FLOW_YAML);
    struct look *l = calloc(1, sizeof(*l));
    struct conns_filter f = {0};

    for (unsigned i = 0; i < 40; i++)
        world_connect(w, 80);
    struct peer *c = world_connect(w, 80);
    peer_say(c, GET);
    flow_origin(w);
    for (unsigned i = 0; i < 3; i++)
        world_connect(w, 81);
    world_sleep(w, 10 * WORLD_MS);

    assert_int_equal(count(w, l, &f), 44);
    strcpy(f.listener, "raw");
    assert_int_equal(count(w, l, &f), 3);
    strcpy(f.listener, "web");
    assert_int_equal(count(w, l, &f), 41);
    f.by_state = true;
    f.state = CONN_STATE_sent;
    assert_int_equal(count(w, l, &f), 1);
    f = (struct conns_filter){.client = inet_addr("10.9.0.0"),
                              .netmask = inet_addr("255.255.255.0")};
    assert_int_equal(count(w, l, &f), 44);
    f.client = inet_addr("10.8.0.0");
    assert_int_equal(count(w, l, &f), 0);
    free(l);
    world_free(w);
}

/* Connections come and go between the pages of a walk. Those that were there all the time are met
 * once each, none twice, and no page looks at more than it may. */
static void who_stays_is_met_once(void **state)
{
    enum { MOST = 90 };
    struct rng g = {11};
    struct world *w = flow_start(FLOW_YAML);
    struct look *l = calloc(1, sizeof(*l));
    struct peer *peers[MOST] = {NULL};

    for (unsigned i = 0; i < MOST; i++)
        peers[i] = world_connect(w, 80);
    world_sleep(w, 5 * WORLD_S); /* so many at once: some SYNs go out again */
    for (unsigned round = 0; round < 40; round++) {
        uint16_t stays[MOST], met[2 * MOST];
        unsigned nstays = 0, nmet = 0;
        for (unsigned i = 0; i < MOST; i++) { /* the later half only comes and goes */
            struct stream_info info;
            if (i < MOST / 2) {
                stream_get_info(peers[i]->stream, &info);
                stays[nstays++] = info.local_port;
            }
        }
        memset(l, 0, sizeof(*l));
        do {
            ask(w, l);
            assert_true(l->page.n <= CONNS_PAGE);
            for (unsigned k = 0; k < l->page.n; k++)
                met[nmet++] = l->page.conns[k].client_port;
            unsigned i = MOST / 2 + rng_below(&g, MOST / 2);
            peer_close(peers[i]);
            peers[i] = world_connect(w, 80);
            world_sleep(w, 5 * WORLD_MS);
        } while (!l->page.done);
        for (unsigned i = 0; i < nstays; i++) {
            unsigned times = 0;
            for (unsigned k = 0; k < nmet; k++)
                times += met[k] == stays[i];
            if (times != 1)
                fail_msg("round %u: port %u met %u times", round, stays[i], times);
        }
    }
    free(l);
    world_free(w);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_connection_is_seen_through_its_life),
        cmocka_unit_test(what_waits_on_either_side_shows),
        cmocka_unit_test(a_filter_lets_through_what_it_names),
        cmocka_unit_test(who_stays_is_met_once),
    };
    return cmocka_run_group_tests_name("flow_conns", tests, NULL, NULL);
}
