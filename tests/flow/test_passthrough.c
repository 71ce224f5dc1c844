/* TLS that is passed on as it is: where the ClientHello leads, and what is turned away. */
#include <arpa/inet.h>

#include "dataplane/core_private.h"
#include "tests/flow/duties.h"
#include "tests/kit/hello_bytes.h"

#define NAMES(listener, tunnel)                                                                    \
    FLOW_HEAD("[0]")                                                                               \
    "listeners:\n"                                                                                 \
    "  - name: tls\n"                                                                              \
    "    address: 10.9.0.1:443\n" listener "    tunnel:\n" tunnel "      sni:\n"                   \
    "        - { match: \"*.example\", upstream: b }\n"                                            \
    "        - { match: \"*.sub.example\", upstream: c }\n"                                        \
    "        - { match: a.example, upstream: a }\n"                                                \
    "        - { match: A.example, alpn: [h2, spdy/3], upstream: d }\n" UPSTREAMS("")
#define UPSTREAMS(more)                                                                            \
    "upstreams:\n"                                                                                 \
    "  - { name: app, endpoints: [10.9.0.2:9000]" more " }\n"                                      \
    "  - { name: a, endpoints: [10.9.0.2:9001]" more " }\n"                                        \
    "  - { name: b, endpoints: [10.9.0.2:9002]" more " }\n"                                        \
    "  - { name: c, endpoints: [10.9.0.2:9003]" more " }\n"                                        \
    "  - { name: d, endpoints: [10.9.0.2:9004]" more " }\n"
#define DEFAULT "      upstream: app\n"

static struct hello_bytes wire;

static struct world *start(const char *yaml)
{
    struct world *w = flow_start(yaml);
    for (uint16_t port = 9001; port <= 9004; port++)
        world_listen(w, port);
    return w;
}

static void make(const char *name, const char *alpn, size_t record)
{
    wire.len = 0;
    hello_browser(&wire, name, alpn, record);
}

/* The origin's end has got just these bytes, not yet taken. */
static void expect_bytes(struct peer *o, const void *bytes, size_t len)
{
    for (unsigned i = 0; i < 1000 && o->rx_len - o->taken < len; i++)
        world_sleep(o->host->world, WORLD_MS);
    assert_int_equal(o->rx_len - o->taken, len);
    assert_memory_equal(o->rx + o->taken, bytes, len);
    o->taken += len;
}

static unsigned port_of(const struct peer *o)
{
    struct stream_info info;
    stream_get_info(o->stream, &info);
    return info.local_port;
}

static uint64_t away(struct world *w, enum turned_away why)
{
    return listener(w, 0)->turned_away[why];
}

static void the_most_specific_name_wins_then_the_protocol(void **state)
{
    static const struct {
        const char *name, *alpn;
        uint16_t port;
    } cases[] = {
        {"a.example", NULL, 9001},     {"A.EXAMPLE", "\10http/1.1", 9001},
        {"a.example", "\2h2", 9004},   {"a.example", "\10http/1.1\6spdy/3", 9004},
        {"b.example", "\2h2", 9002},   {"x.a.example", NULL, 9002},
        {"x.sub.example", NULL, 9003}, {"sub.example", NULL, 9002},
        {"example", NULL, 9000},       {"notexample", NULL, 9000},
        {"a.example.org", NULL, 9000}, {NULL, "\2h2", 9000},
    };
    struct world *w = start(NAMES("", DEFAULT));
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct peer *c = world_connect(w, 443);
        make(cases[i].name, cases[i].alpn, 16384);
        peer_send(c, wire.bytes, wire.len);
        struct peer *o = world_accept(w);
        assert_int_equal(port_of(o), cases[i].port);
        expect_bytes(o, wire.bytes, wire.len);
        peer_say(o, "server hello");
        peer_expect(c, "server hello");
        peer_say(c, "finished");
        peer_expect(o, "finished");
        peer_close(c);
        peer_expect_eof(o);
    }
    assert_int_equal(listener(w, 0)->requests, 12);
    assert_int_equal(listener(w, 0)->bytes_in, world_status(w)->upstreams[0].bytes_out +
                                                   world_status(w)->upstreams[1].bytes_out +
                                                   world_status(w)->upstreams[2].bytes_out +
                                                   world_status(w)->upstreams[3].bytes_out +
                                                   world_status(w)->upstreams[4].bytes_out);
    assert_true(listener(w, 0)->bytes_in > 12 * 1400);
    world_free(w);
}

static void neither_segments_nor_records_matter(void **state)
{
    static const size_t records[] = {16384, 300, 5, 1}, steps[] = {1, 700, 1460};
    for (size_t i = 0; i < 12; i++) {
        struct world *w = start(NAMES("", DEFAULT));
        struct peer *c = world_connect(w, 443);
        make("a.example", "\2h2", records[i % 4]);
        hello_put(&wire, "\x17\3\3\0\5early", 10);
        size_t step = steps[i / 4];
        for (size_t at = 0; at < wire.len; at += step) {
            peer_send(c, wire.bytes + at, wire.len - at < step ? wire.len - at : step);
            world_sleep(w, 300000);
            if (at % 1000 == 999) /* what waits is kept in few buffers */
                assert_true(world_status(w)->rope_nodes < 64);
        }
        struct peer *o = world_accept(w);
        assert_int_equal(port_of(o), 9004);
        expect_bytes(o, wire.bytes, wire.len);
        world_free(w);
    }
}

static void turn_away(struct world *w, const void *bytes, size_t len, enum turned_away why)
{
    struct peer *c = world_connect(w, 443);
    uint64_t before = away(w, why);
    peer_send(c, bytes, len);
    peer_expect_error(c, -ECONNRESET);
    assert_int_equal(away(w, why), before + 1);
    assert_null(world_accept_within(w, 100 * WORLD_MS));
}

static void what_leads_nowhere_is_reset_and_counted(void **state)
{
    struct world *w = start(NAMES("", "      hello: { size: 2KiB, timeout: 2s }\n"));
    turn_away(w, "GET / HTTP/1.1\r\n", 16, TURNED_AWAY_hello_not_tls);
    turn_away(w, "\x80", 1, TURNED_AWAY_hello_not_tls);
    turn_away(w, "\x16\3\1\0\4\2\0\0\0", 9, TURNED_AWAY_hello_malformed);
    make("bad name", NULL, 16384);
    turn_away(w, wire.bytes, wire.len, TURNED_AWAY_hello_malformed);
    make("a.example", NULL, 16384);
    wire.bytes[5 + 38] = 33; /* the session id's length */
    turn_away(w, wire.bytes, wire.len, TURNED_AWAY_hello_malformed);
    turn_away(w, "\x16\3\1\7\xfc", 5, TURNED_AWAY_hello_too_large); /* 2049 bytes */
    make("a.example", NULL, 10);
    turn_away(w, wire.bytes, wire.len, TURNED_AWAY_hello_too_large);
    make("example", NULL, 16384);
    turn_away(w, wire.bytes, wire.len, TURNED_AWAY_hello_unmatched);
    make(NULL, NULL, 16384);
    turn_away(w, wire.bytes, wire.len, TURNED_AWAY_hello_unmatched);
    assert_int_equal(listener(w, 0)->requests, 0);
    assert_int_equal(listener(w, 0)->accepted, 9);
    world_free(w);
}

static void a_hello_has_its_time(void **state)
{
    struct world *w = start(NAMES("", "      hello: { timeout: 2s }\n"));
    static const size_t sent[] = {0, 3, 700};
    make("a.example", NULL, 16384);
    for (size_t i = 0; i < 3; i++) {
        struct peer *c = world_connect(w, 443);
        peer_send(c, wire.bytes, sent[i]);
        uint64_t begin = w->now;
        peer_expect_error(c, -ECONNRESET);
        assert_in_range(w->now - begin, 1900 * WORLD_MS, 2100 * WORLD_MS);
        assert_int_equal(away(w, TURNED_AWAY_hello_timeout), i + 1);
    }
    struct peer *c = world_connect(w, 443);
    for (size_t i = 0; i < 10 && c->stream; i++) { /* a byte now and then doesn't move it */
        peer_send(c, wire.bytes + i, 1);
        world_sleep(w, 300 * WORLD_MS);
    }
    assert_int_equal(c->err, -ECONNRESET);
    world_free(w);
}

static void who_leaves_before_the_hello_is_whole_is_counted(void **state)
{
    struct world *w = start(NAMES("", DEFAULT));
    struct peer *c = world_connect(w, 443);
    make("a.example", NULL, 16384);
    peer_send(c, wire.bytes, 100);
    peer_shutdown(c);
    peer_expect_error(c, -ECONNRESET);
    c = world_connect(w, 443);
    world_sleep(w, WORLD_MS);
    peer_abort(c);
    world_sleep(w, 10 * WORLD_MS);
    assert_int_equal(away(w, TURNED_AWAY_hello_cut), 2);
    /* Behind a whole one a FIN is a half-close. */
    c = world_connect(w, 443);
    peer_send(c, wire.bytes, wire.len);
    peer_shutdown(c);
    struct peer *o = world_accept(w);
    expect_bytes(o, wire.bytes, wire.len);
    peer_expect_eof(o);
    peer_say(o, "alert");
    peer_expect(c, "alert");
    world_free(w);
}

static void what_is_no_tls_may_have_its_place(void **state)
{
    struct world *w = start(NAMES("", DEFAULT "      hello: { not_tls: pass }\n"));
    struct peer *c = world_connect(w, 443);
    peer_say(c, "SSH-2.0-x\r\n");
    struct peer *o = world_accept(w);
    assert_int_equal(port_of(o), 9000);
    peer_expect(o, "SSH-2.0-x\r\n");
    peer_say(o, "SSH-2.0-y\r\n");
    peer_expect(c, "SSH-2.0-y\r\n");
    turn_away(w, "\x16\3\1\0\4\2\0\0\0", 9, TURNED_AWAY_hello_malformed); /* TLS all the same */
    world_free(w);
}

struct look {
    struct core_msg msg;
    struct conns_page page;
    bool done;
};

static void on_done(struct core_msg *m)
{
    container_of(m, struct look, msg)->done = true;
}

static const struct conn_info *only(struct world *w, struct look *l)
{
    memset(l, 0, sizeof(*l));
    l->msg = (struct core_msg){.kind = CORE_MSG_CONNS, .conns = &l->page, .done = on_done};
    core_post(w->cores[0], &l->msg);
    while (!l->done)
        world_sleep(w, WORLD_MS / 10);
    assert_int_equal(l->page.n, 1);
    return &l->page.conns[0];
}

static void the_name_is_seen_in_the_list_of_connections(void **state)
{
    struct look *l = calloc(1, sizeof(*l));
    struct world *w = start(NAMES("    proxy_protocol: { from: [" WORLD_CLIENT "] }\n", DEFAULT));
    struct peer *c = world_connect(w, 443);
    peer_say(c, "PROXY TCP4");
    world_sleep(w, WORLD_MS);
    assert_string_equal(conn_state_name(only(w, l)->state), "greeting");
    peer_say(c, " 192.0.2.1 198.51.100.2 40000 443\r\n");
    make("x.sub.Example", NULL, 16384);
    peer_send(c, wire.bytes, 600);
    world_sleep(w, WORLD_MS);
    const struct conn_info *i = only(w, l);
    assert_string_equal(conn_state_name(i->state), "hello");
    assert_int_equal(i->client_addr, inet_addr("192.0.2.1"));
    assert_int_equal(i->client_port, 40000);
    assert_int_equal(i->peer_addr, inet_addr(WORLD_CLIENT));
    assert_string_equal(i->host, "");
    assert_string_equal(i->upstream, "");
    peer_send(c, wire.bytes + 600, wire.len - 600);
    expect_bytes(world_accept(w), wire.bytes, wire.len);
    i = only(w, l);
    assert_string_equal(conn_state_name(i->state), "tunnel");
    assert_string_equal(i->host, "x.sub.example");
    assert_string_equal(i->upstream, "c");
    free(l);
    world_free(w);
}

static void the_origin_is_told_the_client_before_the_hello(void **state)
{
    struct world *w = start(FLOW_HEAD(
        "[0]") "listeners:\n"
               "  - { name: tls, address: 10.9.0.1:443, proxy_protocol: { from: [" WORLD_CLIENT
               "] }, tunnel: { sni: [{ match: a.example, upstream: a }] } }\n" UPSTREAMS(
                   ", proxy_protocol: v1"));
    static const char told[] = "PROXY TCP4 192.0.2.1 198.51.100.2 40000 443\r\n";
    struct peer *c = world_connect(w, 443);
    peer_say(c, told);
    make("a.example", NULL, 16384);
    peer_send(c, wire.bytes, wire.len);
    struct hello_bytes *both = calloc(1, sizeof(*both));
    hello_put(both, told, sizeof(told) - 1);
    hello_put(both, wire.bytes, wire.len);
    expect_bytes(world_accept(w), both->bytes, both->len);
    free(both);
    world_free(w);
}

static void a_reload_may_change_the_entries_meanwhile(void **state)
{
    struct world *w = start(NAMES("", DEFAULT));
    make("a.example", NULL, 16384);
    struct peer *c = world_connect(w, 443), *d = world_connect(w, 443);
    peer_send(c, wire.bytes, 500);
    peer_send(d, wire.bytes, 500);
    world_sleep(w, 10 * WORLD_MS);
    world_reload(
        w, FLOW_HEAD("[0]") "listeners:\n"
                            "  - name: tls\n"
                            "    address: 10.9.0.1:443\n"
                            "    tunnel: { sni: [{ match: \"*\", upstream: c }] }\n" UPSTREAMS(""));
    peer_send(c, wire.bytes + 500, wire.len - 500);
    struct peer *o = world_accept(w);
    assert_int_equal(port_of(o), 9003);
    expect_bytes(o, wire.bytes, wire.len);
    world_reload(w, FLOW_HEAD("[0]") "listeners:\n"
                                     "  - name: tls\n"
                                     "    address: 10.9.0.1:443\n"
                                     "    tunnel: { upstream: b }\n" UPSTREAMS(""));
    peer_send(d, wire.bytes + 500, wire.len - 500);
    o = world_accept(w);
    assert_int_equal(port_of(o), 9002);
    expect_bytes(o, wire.bytes, wire.len);
    world_free(w);
}

static void the_next_endpoint_gets_it_whole(void **state)
{
    struct world *w = start(FLOW_HEAD(
        "[0]") "listeners:\n"
               "  - { name: tls, address: 10.9.0.1:443, tunnel: { sni: [{ match: a.example, "
               "upstream: a }] } }\n"
               "upstreams:\n"
               "  - { name: a, endpoints: [10.9.0.2:9998, 10.9.0.2:9001], balance: round_robin "
               "}\n");
    make("a.example", NULL, 16384);
    for (unsigned i = 0; i < 4; i++) {
        struct peer *c = world_connect(w, 443);
        peer_send(c, wire.bytes, wire.len);
        expect_bytes(world_accept(w), wire.bytes, wire.len);
    }
    world_free(w);
}

static void each_tunnel_is_recorded_when_it_ends(void **state)
{
    struct world *w = start(NAMES("    proxy_protocol: { from: [" WORLD_CLIENT "] }\n",
                                  DEFAULT "      timeouts: { idle: 10s }\n"));
    static const enum access_reason whys[] = {ACCESS_ok, ACCESS_client_gone, ACCESS_upstream_reset,
                                              ACCESS_tunnel_idle};
    make("x.Example", NULL, 16384);
    for (unsigned i = 0; i < 4; i++) {
        struct peer *c = world_connect(w, 443);
        peer_say(c, "PROXY TCP6 2001:db8::1 2001:db8::2 40000 443\r\n");
        peer_send(c, wire.bytes, wire.len);
        struct peer *o = world_accept(w);
        expect_bytes(o, wire.bytes, wire.len);
        peer_say(o, "back");
        peer_expect(c, "back");
        if (whys[i] == ACCESS_ok) {
            peer_close(c);
            peer_expect_eof(o);
            peer_close(o);
        } else if (whys[i] != ACCESS_tunnel_idle) {
            peer_abort(whys[i] == ACCESS_client_gone ? c : o);
        }
        world_sleep(w, whys[i] == ACCESS_tunnel_idle ? 11 * WORLD_S : 100 * WORLD_MS);
        struct access_record r = record(w);
        assert_string_equal(access_reason_name(r.reason), access_reason_name(whys[i]));
        assert_string_equal(r.host, "x.example");
        assert_string_equal(r.listener, "tls");
        assert_string_equal(r.upstream, "b");
        assert_string_equal(r.method, "");
        assert_true(r.has_ip6);
        assert_int_equal(r.client_port, 40000);
        assert_int_equal(r.upstream_addr, inet_addr(WORLD_ORIGIN));
        assert_int_equal(r.upstream_port, 9002);
        assert_int_equal(r.attempts, 1);
        assert_int_equal(r.status, 0);
        assert_int_equal(r.bytes_in, wire.len);
        assert_int_equal(r.bytes_out, 4);
        assert_in_range(r.duration_ns, WORLD_MS / 10, 12 * WORLD_S);
    }
    /* What is turned away before it has anywhere to go is only counted. */
    struct peer *c = world_connect(w, 443);
    peer_say(c, "PROXY UNKNOWN\r\nGET / HTTP/1.1\r\n");
    peer_expect_error(c, -ECONNRESET);
    struct access_record r;
    assert_false(access_ring_take(core_access_ring(w->cores[0]), &r));
    world_free(w);
}

static void a_tunnel_that_comes_to_nothing_says_why(void **state)
{
    struct world *w = start(NAMES("", DEFAULT));
    make("a.example", NULL, 16384);
    world_unlisten(w, 9001);
    struct peer *c = world_connect(w, 443);
    peer_send(c, wire.bytes, wire.len);
    peer_expect_error(c, -ECONNRESET);
    assert_recorded(w, 0, ACCESS_connect_failed);
    world_reload(w, NAMES("", DEFAULT "      access_log: false\n"));
    c = world_connect(w, 443);
    peer_send(c, wire.bytes, wire.len);
    peer_expect_error(c, -ECONNRESET);
    struct access_record r;
    assert_false(access_ring_take(core_access_ring(w->cores[0]), &r));
    world_free(w);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_most_specific_name_wins_then_the_protocol),
        cmocka_unit_test(neither_segments_nor_records_matter),
        cmocka_unit_test(what_leads_nowhere_is_reset_and_counted),
        cmocka_unit_test(a_hello_has_its_time),
        cmocka_unit_test(who_leaves_before_the_hello_is_whole_is_counted),
        cmocka_unit_test(what_is_no_tls_may_have_its_place),
        cmocka_unit_test(the_name_is_seen_in_the_list_of_connections),
        cmocka_unit_test(the_origin_is_told_the_client_before_the_hello),
        cmocka_unit_test(a_reload_may_change_the_entries_meanwhile),
        cmocka_unit_test(the_next_endpoint_gets_it_whole),
        cmocka_unit_test(each_tunnel_is_recorded_when_it_ends),
        cmocka_unit_test(a_tunnel_that_comes_to_nothing_says_why),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
