/* PROXY headers at listeners: whose word counts for the client's address, and for what. */
#include <arpa/inet.h>

#include "dataplane/stream/proxy_header.h"
#include "tests/flow/duties.h"

#define FROM_CLIENT "    proxy_protocol: { from: [" WORLD_CLIENT "] }\n"
#define V1          "PROXY TCP4 192.0.2.1 198.51.100.2 40000 443\r\n"
#define V1_6        "PROXY TCP6 2001:db8::1 2001:db8::2 40000 443\r\n"
#define V2_START    "\r\n\r\n\0\r\nQUIT\n"
#define V2_ENDS     "\xc0\0\2\1\xc6\x33\x64\2\x9c\x40\1\xbb"
#define V2          V2_START "\x21\x11\0\xc" V2_ENDS
#define V2_6                                                                                       \
    V2_START "\x21\x21\0\x24\x20\1\xd\xb8\0\0\0\0\0\0\0\0\0\0\0\1\x20\1\xd\xb8\0\0\0\0\0\0\0\0"    \
             "\0\0\0\2\x9c\x40\1\xbb"

struct text {
    const char *bytes;
    size_t len;
};
#define TEXT(t)                                                                                    \
    {                                                                                              \
        t, sizeof(t) - 1                                                                           \
    }

static uint64_t away(struct world *w, unsigned i, enum turned_away why)
{
    return listener(w, i)->turned_away[why];
}

/* What an origin gets of a request that follows a header on a new connection. */
static const char *asked(struct world *w, const struct text *header, struct peer **o)
{
    struct peer *c = world_connect(w, 80);
    peer_send(c, header->bytes, header->len);
    return through(w, c, GET, o);
}

static void the_header_names_the_client(void **state)
{
    static const struct {
        struct text header;
        const char *client, *forwarded;
    } cases[] = {
        {TEXT(V1), "192.0.2.1", "192.0.2.1"},
        {TEXT(V2), "192.0.2.1", "192.0.2.1"},
        {TEXT(V1_6), "2001:db8::1", "\"[2001:db8::1]\""},
        {TEXT(V2_6), "2001:db8::1", "\"[2001:db8::1]\""},
        {TEXT("PROXY UNKNOWN\r\n"), WORLD_CLIENT, WORLD_CLIENT},
        {TEXT(V2_START "\x20\0\0\0"), WORLD_CLIENT, WORLD_CLIENT},
        {TEXT(V2_START "\x20\x11\0\xc" V2_ENDS), WORLD_CLIENT, WORLD_CLIENT},
        {TEXT(V2_START "\x21\x11\0\x10" V2_ENDS "\4\0\1x"), "192.0.2.1", "192.0.2.1"},
    };
    struct world *w = flow_start(WEB(FROM_CLIENT, "      forwarded: both\n", APP));
    struct peer *o = NULL;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        char line[128];
        const char *seen = asked(w, &cases[i].header, &o);
        snprintf(line, sizeof(line), "X-Forwarded-For: %s\r\n", cases[i].client);
        assert_has(seen, line);
        snprintf(line, sizeof(line), "Forwarded: for=%s;", cases[i].forwarded);
        assert_has(seen, line);
        struct access_record r = record(w);
        struct inet_end e = {.addr = r.client_addr, .port = r.client_port, .is_ip6 = r.has_ip6};
        char text[INET_TEXT];
        if (r.has_ip6)
            memcpy(e.ip6, r.client_ip6, sizeof(e.ip6));
        inet_format(text, &e);
        assert_string_equal(text, cases[i].client);
        if (strcmp(text, WORLD_CLIENT) != 0)
            assert_int_equal(r.client_port, 40000);
    }
    world_free(w);
}

static void a_header_may_come_byte_by_byte_or_with_all_that_follows(void **state)
{
    static const struct text headers[] = {TEXT(V1), TEXT(V2), TEXT(V1_6), TEXT(V2_6)};
    struct world *w = flow_start(WEB(FROM_CLIENT, "", APP));
    struct peer *o = NULL;
    for (size_t i = 0; i < 4; i++) {
        struct peer *c = world_connect(w, 80);
        for (size_t at = 0; at < headers[i].len; at++) {
            peer_send(c, headers[i].bytes + at, 1);
            world_sleep(w, WORLD_MS);
        }
        assert_has(through(w, c, GET, &o), i < 2 ? "For: 192.0.2.1\r\n" : "For: 2001:db8::1\r\n");
        /* And cut at each place. */
        for (size_t cut = 1; cut < headers[i].len; cut += 3) {
            char rest[512];
            size_t n = headers[i].len - cut;
            memcpy(rest, headers[i].bytes + cut, n);
            memcpy(rest + n, GET, sizeof(GET) - 1);
            c = world_connect(w, 80);
            peer_send(c, headers[i].bytes, cut);
            world_sleep(w, WORLD_MS);
            peer_send(c, rest, n + sizeof(GET) - 1);
            assert_has(through(w, c, "", &o),
                       i < 2 ? "For: 192.0.2.1\r\n" : "For: 2001:db8::1\r\n");
            peer_close(c);
        }
    }
    world_free(w);
}

static void it_stays_the_client_for_every_request(void **state)
{
    struct world *w = flow_start(WEB(FROM_CLIENT, "", APP));
    struct peer *c = world_connect(w, 80), *o = NULL;
    peer_say(c, V1);
    for (int i = 0; i < 3; i++)
        assert_has(through(w, c, GET, &o), "For: 192.0.2.1\r\n");
    /* A second header is no request. */
    peer_say(c, V1 "\r\n");
    assert_status(answer(c), 400);
    world_free(w);
}

static void what_strangers_send_is_not_interpreted(void **state)
{
    struct world *w = flow_start(WEB(FROM_CLIENT, "", APP));
    struct peer *c = world_connect_from(w, 80, WORLD_OTHER), *o = NULL;
    assert_has(through(w, c, GET, &o), "For: " WORLD_OTHER "\r\n");
    record(w);
    peer_say(c, V1 "\r\n");
    assert_status(answer(c), 400);
    assert_int_equal(record(w).client_addr, inet_addr(WORLD_OTHER));
    c = world_connect_from(w, 81, WORLD_OTHER);
    peer_say(c, V1);
    struct peer *seen = world_accept(w);
    peer_expect(seen, V1);
    world_free(w);
}

static void or_strangers_are_refused(void **state)
{
    struct world *w = flow_start(
        WEB("    proxy_protocol: { from: [" WORLD_CLIENT "], others: refuse }\n", "", APP));
    struct peer *o = NULL;
    peer_expect_error(world_connect_from(w, 80, WORLD_OTHER), -ECONNREFUSED);
    assert_int_equal(away(w, 0, TURNED_AWAY_proxy_untrusted), 1);
    assert_has(asked(w, &(struct text)TEXT(V1), &o), "For: 192.0.2.1\r\n");
    world_free(w);
}

static void what_is_no_good_header_is_reset_and_counted(void **state)
{
    static const struct {
        struct text bytes;
        enum turned_away why;
    } cases[] = {
        {TEXT(GET), TURNED_AWAY_proxy_missing},
        {TEXT("\x16\3\1"), TURNED_AWAY_proxy_missing},
        {TEXT("PROXY TCP4 1.1.1.1 2.2.2.2 1\r\n"), TURNED_AWAY_proxy_malformed},
        {TEXT("PROXY TCP4 1.1.1.1 2.2.2.2 1 2\n"), TURNED_AWAY_proxy_malformed},
        {TEXT("PROXY UNKNOWN xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx"
              "xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx"),
         TURNED_AWAY_proxy_malformed},
        {TEXT(V2_START "\x21\x11\0\xb" V2_ENDS), TURNED_AWAY_proxy_malformed},
        {TEXT(V2_START "\x31\x11\0\xc" V2_ENDS), TURNED_AWAY_proxy_malformed},
    };
    struct world *w = flow_start(WEB(FROM_CLIENT, "", APP));
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        uint64_t before = away(w, i % 2, cases[i].why);
        struct peer *c = world_connect(w, i % 2 ? 81 : 80);
        peer_send(c, cases[i].bytes.bytes, cases[i].bytes.len);
        peer_expect_error(c, -ECONNRESET);
        assert_int_equal(away(w, i % 2, cases[i].why), before + 1);
    }
    assert_null(world_accept_within(w, WORLD_S));
    world_free(w);
}

static void a_header_has_its_time(void **state)
{
    static const struct text parts[] = {TEXT(""), TEXT("PRO"), TEXT(V2_START),
                                        TEXT(V2_START "\x21\x11\1\0" V2_ENDS)};
    struct world *w =
        flow_start(WEB("    proxy_protocol: { from: [" WORLD_CLIENT "], timeout: 2s }\n", "", APP));
    for (size_t i = 0; i < 4; i++) {
        struct peer *c = world_connect(w, 80);
        peer_send(c, parts[i].bytes, parts[i].len);
        uint64_t start = w->now;
        peer_expect_error(c, -ECONNRESET);
        assert_in_range(w->now - start, 1900 * WORLD_MS, 2100 * WORLD_MS);
        assert_int_equal(away(w, 0, TURNED_AWAY_proxy_timeout), i + 1);
    }
    /* A byte now and then doesn't move it. */
    struct peer *c = world_connect(w, 80);
    for (size_t i = 0; i < 10 && c->stream; i++) {
        peer_send(c, V1 + i, 1);
        world_sleep(w, 300 * WORLD_MS);
    }
    assert_int_equal(c->err, -ECONNRESET);
    world_free(w);
}

static void who_leaves_before_the_header_is_whole_is_counted(void **state)
{
    static const struct text parts[] = {TEXT(""), TEXT("PROXY "),
                                        TEXT(V2_START "\x21\x11\1\0" V2_ENDS)};
    struct world *w = flow_start(WEB(FROM_CLIENT, "", APP));
    for (size_t i = 0; i < 3; i++) {
        struct peer *c = world_connect(w, 80);
        peer_send(c, parts[i].bytes, parts[i].len);
        peer_shutdown(c);
        if (i == 1) /* what is left unread makes it a reset */
            peer_expect_error(c, -ECONNRESET);
        else
            peer_expect_eof(c);
        assert_int_equal(away(w, 0, TURNED_AWAY_proxy_cut), i + 1);
    }
    struct peer *c = world_connect(w, 80);
    peer_say(c, "PROX");
    world_sleep(w, WORLD_MS);
    peer_abort(c);
    world_sleep(w, 10 * WORLD_MS);
    assert_int_equal(away(w, 0, TURNED_AWAY_proxy_cut), 4);
    assert_int_equal(listener(w, 0)->conns, 0);
    world_free(w);
}

/* "POST" begins like a header does. */
static void without_required_a_source_may_come_for_itself(void **state)
{
    struct world *w = flow_start(
        WEB("    proxy_protocol: { from: [" WORLD_CLIENT "], required: false }\n", "", APP));
    struct peer *o = NULL;
    assert_has(asked(w, &(struct text)TEXT(V1), &o), "For: 192.0.2.1\r\n");
    struct peer *c = world_connect(w, 80);
    peer_say(c, "P");
    world_sleep(w, WORLD_MS);
    assert_has(through(w, c, "OST / HTTP/1.1\r\nHost: a\r\nContent-Length: 0\r\n\r\n", &o),
               "For: " WORLD_CLIENT "\r\n");
    c = world_connect(w, 80);
    peer_say(c, "PROXY TCP4 1\r\n");
    peer_expect_error(c, -ECONNRESET);
    world_free(w);
}

static void a_tunnel_gets_every_byte_behind_the_header(void **state)
{
    static char header[16 + 40000] = V2_START "\x21\x11\x9c\x40" V2_ENDS;
    struct world *w = flow_start(WEB(FROM_CLIENT, "", APP));
    struct peer *c = world_connect(w, 81);
    peer_say(c, V1 "hello");
    peer_expect(world_accept(w), "hello");
    /* Behind 40 kB of TLVs. */
    c = world_connect(w, 81);
    peer_send(c, header, sizeof(header));
    peer_say(c, "there");
    struct peer *o = world_accept(w);
    peer_expect(o, "there");
    peer_say(o, "and back");
    peer_expect(c, "and back");
    assert_int_equal(listener(w, 1)->accepted, 2);
    assert_int_equal(listener(w, 1)->conns, 2);
    world_free(w);
}

static void lists_are_asked_about_the_client_not_the_source(void **state)
{
    struct world *w =
        flow_start(WEB(FROM_CLIENT "    access: { allow: [192.0.2.0/24, 10.9.0.4] }\n", "",
                       "        - match: { path_prefix: /a }\n"
                       "          upstream: app\n"
                       "          access: { deny: [192.0.2.1] }\n"
                       "        - match: { path_prefix: /b }\n"
                       "          upstream: app\n"
                       "          access: { allow: [0.0.0.0/0] }\n" APP));
    struct peer *c = world_connect(w, 80), *o = NULL;
    peer_say(c, V1);
    through(w, c, GET, &o);
    ask(c, "/a");
    assert_status(answer(c), 403);
    /* A source that speaks for itself, one that isn't on the list, one of IPv6. */
    static const char *const refused[] = {"PROXY UNKNOWN\r\n",
                                          "PROXY TCP4 203.0.113.1 1.1.1.1 1 2\r\n", V1_6};
    for (size_t i = 0; i < 3; i++) {
        c = world_connect(w, 80);
        peer_say(c, refused[i]);
        peer_expect_error(c, -ECONNRESET);
        assert_int_equal(listener(w, 0)->denied, i + 1);
    }
    world_free(w);
}

static void an_ip6_client_is_named_by_no_list(void **state)
{
    struct world *w = flow_start(WEB(FROM_CLIENT "    access: { deny: [0.0.0.0/0] }\n", "",
                                     "        - match: { path_prefix: /b }\n"
                                     "          upstream: app\n"
                                     "          access: { allow: [0.0.0.0/0] }\n" APP));
    struct peer *c = world_connect(w, 80), *o = NULL;
    peer_say(c, V1_6);
    through(w, c, GET, &o);
    ask(c, "/b");
    assert_status(answer(c), 403);
    world_free(w);
}

static void limits_are_of_each_client_behind_the_source(void **state)
{
    struct world *w = flow_start(WEB(FROM_CLIENT "    limits: { per_client: { connections: 1 } }\n",
                                     "      rate_limit: { rate: 1/m }\n", APP));
    struct peer *first = world_connect(w, 80), *other = world_connect(w, 80), *o = NULL;
    peer_say(first, V1);
    through(w, first, GET, &o);
    ask(first, "/");
    assert_status(answer(first), 429);
    peer_say(other, "PROXY TCP4 192.0.2.9 198.51.100.2 40000 443\r\n");
    through(w, other, GET, &o);

    struct peer *c = world_connect(w, 80);
    peer_say(c, "PROXY TCP4 192.0.2.1 198.51.100.2 40001 443\r\n");
    peer_expect_error(c, -ECONNRESET);
    assert_int_equal(listener(w, 0)->limited, 1);
    peer_close(first);
    world_sleep(w, 100 * WORLD_MS);
    c = world_connect(w, 80);
    peer_say(c, "PROXY TCP4 192.0.2.1 198.51.100.2 40002 443\r\n" GET);
    assert_status(answer(c), 429); /* it came in */

    /* Of an IPv6 client the /64 counts. */
    first = world_connect(w, 80);
    peer_say(first, V1_6);
    through(w, first, GET, &o);
    c = world_connect(w, 80);
    peer_say(c, "PROXY TCP6 2001:db8::ffff 2001:db8::2 40000 443\r\n");
    peer_expect_error(c, -ECONNRESET);
    c = world_connect(w, 80);
    peer_say(c, "PROXY TCP6 2001:db8:0:1::1 2001:db8::2 40000 443\r\n");
    through(w, c, GET, &o);
    world_free(w);
}

static void on_done(struct core_msg *m)
{
}

static void a_drain_doesnt_wait_for_headers(void **state)
{
    struct world *w = flow_start(WEB(FROM_CLIENT, "", APP));
    struct peer *c = world_connect(w, 80);
    peer_say(c, "PROXY ");
    world_sleep(w, 10 * WORLD_MS);
    struct core_msg m = {
        .kind = CORE_MSG_DRAIN, .deadline = w->now + 60 * WORLD_S, .done = on_done};
    core_post(w->cores[0], &m);
    uint64_t start = w->now;
    peer_expect_error(c, -ECONNRESET);
    assert_true(w->now - start < WORLD_S);
    world_free(w);
}

static void a_reload_may_take_the_setting_away_meanwhile(void **state)
{
    struct world *w = flow_start(WEB(FROM_CLIENT, "", APP));
    struct peer *c = world_connect(w, 80), *o = NULL;
    peer_say(c, "PROXY TCP4 192");
    world_sleep(w, 10 * WORLD_MS);
    world_reload(w, WEB("", "", APP));
    peer_say(c, ".0.2.1 198.51.100.2 40000 443\r\n");
    assert_has(through(w, c, GET, &o), "For: 192.0.2.1\r\n");
    c = world_connect(w, 80);
    assert_has(through(w, c, GET, &o), "For: " WORLD_CLIENT "\r\n");
    world_free(w);
}

/* --- what origins are told ------------------------------------------------------------------- */

#define TOLD(version, in)                                                                          \
    FLOW_HEAD("[0]")                                                                               \
    "listeners:\n"                                                                                 \
    "  - { name: web, address: 10.9.0.1:80, " in "http: { routes: [{ upstream: app }] } }\n"       \
    "  - { name: raw, address: 10.9.0.1:81, " in "tunnel: { upstream: app } }\n" FLOW_UPSTREAM     \
    "    proxy_protocol: " version "\n"
#define IN "proxy_protocol: { from: [" WORLD_CLIENT "], required: false }, "

static void assert_told(struct peer *o, const struct text *header)
{
    struct world *w = o->host->world;
    for (unsigned i = 0; i < 100 && o->rx_len - o->taken < header->len; i++)
        world_sleep(w, WORLD_MS);
    assert_true(o->rx_len - o->taken >= header->len);
    assert_memory_equal(o->rx + o->taken, header->bytes, header->len);
    o->taken += header->len;
}

static void the_origin_is_told_what_we_were_told(void **state)
{
    static const struct text in[] = {TEXT(V1), TEXT(V2), TEXT(V1_6), TEXT(V2_6)};
    for (size_t i = 0; i < 8; i++) {
        bool v2 = i & 1, ip6 = i & 2, tunnel = i & 4;
        struct world *w = flow_start(v2 ? TOLD("v2", IN) : TOLD("v1", IN));
        struct peer *c = world_connect(w, tunnel ? 81 : 80);
        peer_send(c, in[ip6 ? 3 : 0].bytes, in[ip6 ? 3 : 0].len);
        peer_say(c, GET);
        struct peer *o = world_accept(w);
        assert_told(o, &in[(ip6 ? 2 : 0) + v2]);
        if (tunnel)
            peer_expect(o, GET);
        else
            assert_memory_equal(peer_expect_through(o, "\r\n\r\n"), "GET / HTTP/1.1\r\n", 16);
        peer_say(o, OK2);
        assert_int_equal(flow_status(c), 200);
        world_free(w);
    }
}

static struct text own_v1(const struct peer *c)
{
    static char line[PROXY_HEADER_WRITE + 1];
    struct stream_info info;
    stream_get_info(c->stream, &info);
    int n = snprintf(line, sizeof(line), "PROXY TCP4 " WORLD_CLIENT " " WORLD_PROXY " %u 80\r\n",
                     info.local_port);
    return (struct text){line, (size_t)n};
}

static void expect_ok(struct peer *c)
{
    assert_int_equal(flow_status(c), 200);
    peer_expect(c, "ok");
}

/* It is the one client connection's, and goes with it. */
static void a_told_connection_serves_nobody_else(void **state)
{
    struct world *w = flow_start(TOLD("v1", ""));
    struct peer *a = world_connect(w, 80), *b = world_connect(w, 80), *oa, *ob;
    peer_say(a, GET);
    oa = world_accept(w);
    struct text own = own_v1(a);
    assert_told(oa, &own);
    peer_expect_through(oa, "\r\n\r\n");
    peer_say(oa, OK2);
    expect_ok(a);
    peer_say(b, GET);
    ob = world_accept(w);
    own = own_v1(b);
    assert_told(ob, &own);
    peer_expect_through(ob, "\r\n\r\n");
    peer_say(ob, OK2);
    expect_ok(b);
    for (int i = 0; i < 3; i++) {
        peer_say(a, GET);
        assert_memory_equal(peer_expect_through(oa, "\r\n\r\n"), "GET ", 4); /* no second header */
        peer_say(oa, OK2);
        expect_ok(a);
    }
    assert_int_equal(world_status(w)->upstreams[0].connects, 2);
    assert_int_equal(world_status(w)->upstreams[0].reused, 3);
    assert_int_equal(world_status(w)->upstreams[0].idle, 2);
    peer_close(a);
    peer_expect_eof(oa);
    assert_int_equal(world_status(w)->upstreams[0].idle, 1);
    /* The origin may end it as well: the next request gets a new one. */
    peer_close(ob);
    world_sleep(w, 10 * WORLD_MS);
    peer_say(b, GET);
    ob = world_accept(w);
    assert_told(ob, &own);
    peer_expect_through(ob, "\r\n\r\n");
    peer_say(ob, OK2);
    expect_ok(b);
    world_free(w);
}

static void an_idle_one_gives_way_when_there_are_as_many_as_may_be(void **state)
{
    struct world *w = flow_start(TOLD("v1", "") "    pool: { max: 1, idle: 1 }\n");
    struct peer *a = world_connect(w, 80), *b = world_connect(w, 80);
    for (int i = 0; i < 4; i++) {
        struct peer *c = i % 2 ? b : a, *o;
        peer_say(c, GET);
        o = world_accept(w);
        struct text own = own_v1(c);
        assert_told(o, &own);
        peer_expect_through(o, "\r\n\r\n");
        peer_say(o, OK2);
        expect_ok(c);
    }
    world_free(w);
}

static void a_reload_tells_from_then_on(void **state)
{
    struct world *w = flow_start(TOLD("off", ""));
    struct peer *c = world_connect(w, 80), *slow = world_connect(w, 80), *o = NULL, *os;
    peer_say(slow, GET);
    os = flow_origin(w);
    through(w, c, GET, &o);
    world_reload(w, TOLD("v1", ""));
    peer_expect_eof(o);
    peer_say(os, OK2); /* was not told: goes when it is free */
    expect_ok(slow);
    peer_expect_eof(os);
    peer_say(c, GET);
    o = world_accept(w);
    struct text own = own_v1(c);
    assert_told(o, &own);
    peer_expect_through(o, "\r\n\r\n");
    world_reload(w, TOLD("off", ""));
    peer_say(o, OK2);
    expect_ok(c);
    peer_expect_eof(o);
    peer_say(c, GET);
    o = flow_origin(w);
    peer_say(o, OK2);
    expect_ok(c);
    peer_close(c);
    world_sleep(w, 10 * WORLD_MS);
    peer_say(slow, GET); /* which is anybody's again */
    assert_memory_equal(peer_expect_through(o, "\r\n\r\n"), "GET ", 4);
    peer_say(o, OK2);
    expect_ok(slow);
    world_free(w);
}

static void a_connection_that_was_being_made_meanwhile_is_anybodys(void **state)
{
    struct world *w = flow_start(TOLD("v1", ""));
    struct peer *c = world_connect(w, 80), *d = world_connect(w, 80);
    peer_say(c, GET);
    world_sleep(w, 150000); /* the request is here, the handshake has begun */
    world_reload(w, TOLD("off", ""));
    struct peer *o = world_accept(w);
    peer_expect_through(o, "\r\n\r\n");
    peer_say(o, OK2);
    expect_ok(c);
    peer_say(d, GET);
    peer_expect_through(o, "\r\n\r\n");
    peer_close(c);
    world_sleep(w, 10 * WORLD_MS);
    peer_say(o, OK2);
    expect_ok(d);
    world_free(w);
}

static void probes_come_for_themselves(void **state)
{
    static const struct {
        const char *more;
        struct text begins; /* empty: with the request, or nothing */
        bool asks;
        uint16_t port;
    } cases[] = {
        {"v2\n    health: { path: /healthz }\n", TEXT(V2_START "\x20\0\0\0"), true, 9000},
        {"v1\n    health: { path: /healthz }\n",
         TEXT("PROXY TCP4 " WORLD_PROXY " " WORLD_ORIGIN " "), true, 9000},
        {"v2\n    health: { interval: 2s }\n", TEXT(V2_START "\x20\0\0\0"), false, 9000},
        {"v2\n    health: { path: /healthz, port: 9001 }\n", TEXT(""), true, 9001},
        {"off\n    health: { path: /healthz }\n", TEXT(""), true, 9000},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        char yaml[2048];
        snprintf(yaml, sizeof(yaml), "%s%s", TOLD("", ""), "");
        char *end = strrchr(yaml, ':');
        snprintf(end, sizeof(yaml) - (size_t)(end - yaml), ": %s", cases[i].more);
        struct world_opts o = {.yaml = yaml, .seed = 1, .path = {.delay_ns = 100000}};
        struct world *w = world_new(&o);
        world_listen(w, cases[i].port);
        struct peer *p = world_accept(w);
        assert_told(p, &cases[i].begins);
        if (cases[i].asks) {
            assert_has(peer_expect_through(p, "\r\n\r\n"), "GET /healthz HTTP/1.1\r\n");
            peer_say(p, OK2);
        }
        peer_expect_eof(p);
        world_free(w);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_header_names_the_client),
        cmocka_unit_test(a_header_may_come_byte_by_byte_or_with_all_that_follows),
        cmocka_unit_test(it_stays_the_client_for_every_request),
        cmocka_unit_test(what_strangers_send_is_not_interpreted),
        cmocka_unit_test(or_strangers_are_refused),
        cmocka_unit_test(what_is_no_good_header_is_reset_and_counted),
        cmocka_unit_test(a_header_has_its_time),
        cmocka_unit_test(who_leaves_before_the_header_is_whole_is_counted),
        cmocka_unit_test(without_required_a_source_may_come_for_itself),
        cmocka_unit_test(a_tunnel_gets_every_byte_behind_the_header),
        cmocka_unit_test(lists_are_asked_about_the_client_not_the_source),
        cmocka_unit_test(an_ip6_client_is_named_by_no_list),
        cmocka_unit_test(limits_are_of_each_client_behind_the_source),
        cmocka_unit_test(a_drain_doesnt_wait_for_headers),
        cmocka_unit_test(a_reload_may_take_the_setting_away_meanwhile),
        cmocka_unit_test(the_origin_is_told_what_we_were_told),
        cmocka_unit_test(a_told_connection_serves_nobody_else),
        cmocka_unit_test(an_idle_one_gives_way_when_there_are_as_many_as_may_be),
        cmocka_unit_test(a_reload_tells_from_then_on),
        cmocka_unit_test(a_connection_that_was_being_made_meanwhile_is_anybodys),
        cmocka_unit_test(probes_come_for_themselves),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
