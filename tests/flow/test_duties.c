/* The edge's own duties: who may come in and how often, what is answered at once. Whatever the
 * answer, the connection and what is pipelined behind it go on. */
#include "tests/flow/duties.h"

#include <arpa/inet.h>

static void a_denied_client_is_reset_or_left_alone(void **state)
{
    struct world *w =
        flow_start(WEB("    access: { allow: [10.9.0.0/24], deny: [10.9.0.3] }\n", "", APP));
    struct peer *c = world_connect(w, 80), *t = world_connect(w, 81);
    peer_expect_error(c, -ECONNREFUSED);
    peer_expect_error(t, -ECONNREFUSED);
    assert_int_equal(listener(w, 0)->denied, 1);
    assert_int_equal(listener(w, 1)->denied, 1);
    assert_int_equal(listener(w, 0)->accepted, 0);
    struct peer *o = NULL, *other = world_connect_from(w, 80, WORLD_OTHER);
    through(w, other, GET, &o);

    world_reload(w, WEB("    access: { deny: [10.9.0.2/31], refuse: silent }\n", "", APP));
    struct peer *d = world_connect(w, 80);
    world_sleep(w, 20 * WORLD_S);
    assert_false(d->connected);
    assert_int_equal(d->err, 0);
    assert_true(listener(w, 0)->denied > 3); /* each of its SYNs */
    through(w, other, GET, &o);

    world_reload(w, WEB("", "", APP));
    through(w, world_connect(w, 80), GET, &o);
    world_free(w);
}

static void a_connection_that_stands_outlives_its_denial(void **state)
{
    struct world *w = flow_start(WEB("", "", APP));
    struct peer *c = world_connect(w, 80), *o = NULL;
    through(w, c, GET, &o);
    world_reload(w, WEB("    access: { deny: [0.0.0.0/0] }\n", "", APP));
    through(w, c, GET, &o);
    peer_expect_error(world_connect(w, 80), -ECONNREFUSED);
    world_free(w);
}

static void a_route_says_403_and_the_connection_goes_on(void **state)
{
    struct world *w = flow_start(WEB("", "",
                                     "        - match: { path_prefix: /admin }\n"
                                     "          upstream: app\n"
                                     "          access: { allow: [10.9.0.4] }\n" APP));
    struct peer *c = world_connect(w, 80), *o = NULL;
    peer_say(c, "GET /admin HTTP/1.1\r\nHost: a\r\n\r\nHEAD //admin/x HTTP/1.1\r\nHost: "
                "a\r\n\r\nGET /%61dmin?y HTTP/1.1\r\nHost: a\r\n\r\n");
    const char *text = answer(c);
    assert_status(text, 403);
    assert_has(text, "\r\n\r\n403 Forbidden\n");
    assert_has_not(text, "Connection:");
    assert_status(peer_expect_through(c, "\r\n\r\n"), 403); /* HEAD: no body */
    assert_status(answer(c), 403);
    for (unsigned i = 0; i < 3; i++)
        assert_recorded(w, 403, ACCESS_denied);
    through(w, c, GET, &o);
    struct peer *other = world_connect_from(w, 80, WORLD_OTHER);
    through(w, other, "GET /admin HTTP/1.1\r\nHost: a\r\n\r\n", &o);
    world_free(w);
}

static void a_refused_upload_ends_the_connection(void **state)
{
    struct world *w =
        flow_start(WEB("", "", "        - { upstream: app, access: { deny: [0.0.0.0/0] } }\n"));
    struct peer *c = world_connect(w, 80);
    peer_say(c, "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\nhel");
    const char *text = answer(c);
    assert_status(text, 403);
    assert_has(text, "Connection: close");
    peer_expect_eof(c);
    world_free(w);
}

static void a_client_over_its_rate_gets_429_and_knows_when(void **state)
{
    struct world *w = flow_start(WEB("", "",
                                     "        - match: { path_prefix: /slow }\n"
                                     "          upstream: app\n"
                                     "          rate_limit: { rate: 6/m, burst: 3 }\n" APP));
    struct peer *c = world_connect(w, 80), *o = NULL;
    for (unsigned i = 0; i < 3; i++) {
        through(w, c, "GET /slow HTTP/1.1\r\nHost: a\r\n\r\n", &o);
        record(w);
    }
    ask(c, "/slow");
    const char *text = answer(c);
    assert_status(text, 429);
    assert_has(text, "Retry-After: 10\r\n");
    assert_has(text, "\r\n\r\n429 Too Many Requests\n");
    assert_recorded(w, 429, ACCESS_rate_limited);
    assert_int_equal(listener(w, 0)->rate_limited, 1);
    /* Other routes, other clients and other connections of the same one. */
    through(w, c, GET, &o);
    struct peer *other = world_connect_from(w, 80, WORLD_OTHER);
    through(w, other, "GET /slow HTTP/1.1\r\nHost: a\r\n\r\n", &o);
    struct peer *again = world_connect(w, 80);
    ask(again, "/slow");
    assert_status(answer(again), 429);
    /* What it was told is true: not a moment before. */
    uint64_t before = w->now;
    ask(c, "/slow");
    text = answer(c);
    assert_status(text, 429);
    unsigned wait = (unsigned)atoi(strstr(text, "Retry-After: ") + 13);
    world_sleep(w, wait * WORLD_S - (w->now - before));
    through(w, c, "GET /slow HTTP/1.1\r\nHost: a\r\n\r\n", &o);
    ask(c, "/slow");
    assert_status(answer(c), 429);
    world_free(w);
}

static void the_listeners_rate_counts_whatever_is_asked(void **state)
{
    struct world *w = flow_start(WEB("", "      rate_limit: { rate: 1/s, burst: 3 }\n",
                                     "        - match: { path_prefix: /only }\n"
                                     "          upstream: app\n"));
    struct peer *c = world_connect(w, 80);
    static const int statuses[] = {404, 404, 404, 429, 429};
    for (unsigned i = 0; i < 5; i++)
        ask(c, "/nothing");
    for (unsigned i = 0; i < 5; i++)
        assert_status(answer(c), statuses[i]);
    world_sleep(w, WORLD_S);
    ask(c, "/nothing");
    assert_status(answer(c), 404);
    /* A reload that leaves the limit leaves what is known of the client. */
    world_reload(w, WEB("", "      rate_limit: { rate: 1/s, burst: 3 }\n      via: other\n", APP));
    ask(c, "/nothing");
    assert_status(answer(c), 429);
    world_reload(w, WEB("", "", APP));
    struct peer *o = NULL;
    through(w, c, GET, &o);
    world_free(w);
}

static void connections_of_a_client_are_counted(void **state)
{
    struct world *w = flow_start(WEB("    limits: { per_client: { connections: 2 } }\n", "", APP));
    struct peer *a = world_connect(w, 80), *b = world_connect(w, 80), *o = NULL;
    through(w, a, GET, &o);
    through(w, b, GET, &o);
    struct peer *c = world_connect(w, 80);
    peer_expect_error(c, -ECONNRESET);
    assert_int_equal(listener(w, 0)->limited, 1);
    assert_int_equal(listener(w, 0)->conns, 2);
    /* Another listener and another client have limits of their own. */
    struct peer *t = world_connect(w, 81);
    peer_say(t, "hello");
    peer_expect(world_accept(w), "hello");
    struct peer *other = world_connect_from(w, 80, WORLD_OTHER);
    through(w, other, GET, &o);
    /* One that goes makes room for one. */
    peer_close(b);
    world_settle(w);
    struct peer *d = world_connect(w, 80);
    through(w, d, GET, &o);
    peer_expect_error(world_connect(w, 80), -ECONNRESET);
    /* Those that were let in while there was no limit don't count when there is one. */
    world_reload(w, WEB("", "", APP));
    struct peer *e = world_connect(w, 80);
    through(w, e, GET, &o);
    peer_abort(a);
    world_settle(w);
    world_reload(w, WEB("    limits: { per_client: { connections: 2 } }\n", "", APP));
    struct peer *f = world_connect(w, 80);
    through(w, f, GET, &o);
    peer_expect_error(world_connect(w, 80), -ECONNRESET);
    world_free(w);
}

static void new_connections_of_a_client_have_a_rate(void **state)
{
    struct world *w = flow_start(
        WEB("    limits: { per_client: { connection_rate: 1/s, burst: 2 } }\n", "", APP));
    struct peer *o = NULL;
    through(w, world_connect(w, 80), GET, &o);
    through(w, world_connect(w, 80), GET, &o);
    peer_expect_error(world_connect(w, 80), -ECONNRESET);
    world_sleep(w, WORLD_S);
    through(w, world_connect(w, 80), GET, &o);
    peer_expect_error(world_connect(w, 80), -ECONNRESET);
    assert_int_equal(listener(w, 0)->limited, 2);
    world_free(w);
}

static void redirects_go_where_the_template_says(void **state)
{
    struct world *w = flow_start(
        WEB("", "",
            "        - match: { path_prefix: /old }\n"
            "          redirect: { location: \"/new${rest}${query}\", status: 301 }\n"
            "        - match: { path_prefix: /dir/ }\n"
            "          redirect: { location: \"/new${rest}\", status: 303 }\n"
            "        - match: { host: all.example }\n"
            "          redirect: { location: \"https://b${rest}\", status: 303 }\n"
            "        - match: { path_prefix: /same }\n"
            "          redirect: { location: \"/${rest}\", status: 302 }\n"
            "        - match: { path_prefix: /who }\n"
            "          redirect: { location: \"http://${host}:8080/${client_ip}/${listener}/"
            "${method}/$${x}\", status: 307 }\n"
            "        - redirect: { location: \"https://${host}${path}${query}\" }\n"));
    static const struct {
        const char *request, *location;
        int status;
    } cases[] = {
        {"GET /a/b?c=d HTTP/1.1\r\nHost: A.Example:80\r\n\r\n", "https://a.example/a/b?c=d", 308},
        {"GET / HTTP/1.1\r\nHost: a.example.\r\n\r\n", "https://a.example/", 308},
        {"GET /? HTTP/1.1\r\nHost: a\r\n\r\n", "https://a/?", 308},
        {"GET http://b.example HTTP/1.1\r\nHost: a\r\n\r\n", "https://b.example/", 308},
        {"GET /%7Ea//b HTTP/1.1\r\nHost: a\r\n\r\n", "https://a/~a/b", 308},
        {"GET /old HTTP/1.1\r\nHost: a\r\n\r\n", "/new", 301},
        {"GET /old/x/?y HTTP/1.1\r\nHost: a\r\n\r\n", "/new/x/?y", 301},
        {"GET /dir/ HTTP/1.1\r\nHost: a\r\n\r\n", "/new/", 303},
        {"GET /dir/x HTTP/1.1\r\nHost: a\r\n\r\n", "/new/x", 303},
        {"GET / HTTP/1.1\r\nHost: all.example\r\n\r\n", "https://b/", 303},
        {"GET /x HTTP/1.1\r\nHost: all.example\r\n\r\n", "https://b/x", 303},
        {"GET /%6fld/x HTTP/1.1\r\nHost: a\r\n\r\n", "/new/x", 301},
        {"GET /same//evil.example HTTP/1.1\r\nHost: a\r\n\r\n", "/evil.example", 302},
        {"GET /same HTTP/1.1\r\nHost: a\r\n\r\n", "/", 302},
        {"PURGE /who HTTP/1.1\r\nHost: a\r\n\r\n", "http://a:8080/10.9.0.3/web/PURGE/${x}", 307},
    };
    struct peer *c = world_connect(w, 80);
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        char line[256];
        peer_say(c, cases[i].request);
        const char *text = answer(c);
        assert_status(text, cases[i].status);
        snprintf(line, sizeof(line), "\r\nLocation: %s\r\n", cases[i].location);
        assert_has(text, line);
        assert_recorded(w, cases[i].status, ACCESS_redirected);
    }
    /* Nobody knows where a host that wasn't named is. */
    struct peer *old = world_connect(w, 80);
    peer_say(old, "GET / HTTP/1.0\r\n\r\n");
    assert_status(answer(old), 400);
    world_free(w);
}

static void ask_for(struct peer *c, const char *path, const char *fields)
{
    char text[512];
    snprintf(text, sizeof(text), "GET %s HTTP/1.1\r\nHost: a\r\n%s\r\n", path, fields);
    peer_say(c, text);
}

/* Whoever comes by a proxy that we trust is told apart from the others who do; whoever isn't such
 * a proxy is himself, whatever he says. */
static void clients_behind_trusted_proxies_are_told_apart(void **state)
{
    static const char yaml[] =
        WEB("",
            "      trusted_proxies: [10.9.0.3, 198.51.100.0/24]\n"
            "      rate_limit: { rate: 1/m, burst: 1 }\n",
            "        - match: { path_prefix: /only }\n          upstream: app\n"
            "          access: { allow: [192.0.2.7] }\n"
            "          headers: { request: { set: [ { name: X-Ip, value: \"${client_ip}\" } ] } }\n"
            "        - match: { path_prefix: /gone }\n"
            "          redirect: { location: \"http://b/${client_ip}\" }\n");
    struct world *w = flow_start(yaml);
    struct peer *proxy = world_connect(w, 80), *o = NULL;
    struct peer *other = world_connect_from(w, 80, WORLD_OTHER);
    const char *seen = through(w, proxy,
                               "GET /only HTTP/1.1\r\nHost: a\r\nX-Forwarded-For: 10.0.0.1, "
                               "192.0.2.7\r\nX-Forwarded-For: 198.51.100.9\r\n\r\n",
                               &o);
    assert_has(seen, "\r\nX-Ip: 192.0.2.7\r\n");
    assert_has(seen, "198.51.100.9, 10.9.0.3\r\n"); /* who sent it to us */
    struct access_record r = record(w);
    assert_int_equal(r.client_addr, inet_addr("192.0.2.7"));
    assert_int_equal(r.client_port, 0);
    ask_for(proxy, "/only", "X-Forwarded-For: 192.0.2.7\r\n");
    assert_status(answer(proxy), 429);
    assert_int_equal(record(w).client_addr, inet_addr("192.0.2.7"));
    ask_for(proxy, "/only", "X-Forwarded-For: 192.0.2.8\r\n");
    assert_status(answer(proxy), 403);
    ask_for(proxy, "/gone", "X-Forwarded-For: 192.0.2.7, 192.0.2.9\r\n");
    assert_has(answer(proxy), "\r\nLocation: http://b/192.0.2.9\r\n");
    ask_for(other, "/only", "X-Forwarded-For: 192.0.2.7\r\n");
    assert_status(answer(other), 403);
    record(w), record(w), r = record(w);
    assert_int_equal(r.client_addr, inet_addr(WORLD_OTHER));
    assert_true(r.client_port != 0);
    ask_for(other, "/gone", "X-Forwarded-For: 192.0.2.10\r\n");
    assert_status(answer(other), 429); /* his own */
    world_free(w);
}

static void maintenance_comes_and_goes_by_reload(void **state)
{
    static const char open[] =
        WEB("", "", "        - match: { path_prefix: /shop }\n          upstream: app\n" APP);
    static const char route[] =
        WEB("", "",
            "        - match: { path_prefix: /shop }\n          upstream: app\n"
            "          maintenance: { body: \"Back\\nat 10.\", retry_after: 90s }\n" APP);
    static const char all[] =
        WEB("", "      maintenance: { status: 410, body: Gone fishing. }\n",
            "        - match: { path_prefix: /shop }\n          upstream: app\n");
    static const char open_end[] = WEB("", "      maintenance: {}\n", APP);
    static const char off[] =
        WEB("", "      maintenance: { enabled: false }\n",
            "        - match: { path_prefix: /shop }\n          upstream: app\n"
            "          maintenance: { enabled: false }\n" APP);
    struct world *w = flow_start(open);
    struct peer *c = world_connect(w, 80), *o = NULL;
    through(w, c, "GET /shop HTTP/1.1\r\nHost: a\r\n\r\n", &o);
    record(w);
    world_reload(w, route);
    ask(c, "/shop");
    const char *text = answer(c);
    assert_status(text, 503);
    assert_has(text, "Retry-After: 90\r\n");
    assert_has(text, "Content-Type: text/plain; charset=utf-8\r\n");
    assert_has(text, "\r\n\r\nBack\nat 10.");
    assert_recorded(w, 503, ACCESS_maintenance);
    through(w, c, GET, &o);
    world_reload(w, all);
    ask(c, "/nowhere");
    text = answer(c);
    assert_status(text, 410);
    assert_has_not(text, "Retry-After");
    assert_has(text, "\r\n\r\nGone fishing.");
    world_reload(w, open_end);
    ask(c, "/");
    text = answer(c);
    assert_status(text, 503);
    assert_has_not(text, "Retry-After"); /* nobody has said when */
    world_reload(w, off);
    through(w, c, "GET /shop HTTP/1.1\r\nHost: a\r\n\r\n", &o);
    through(w, c, GET, &o);
    world_free(w);
}

/* Every duty says no; one after the other is taken away. */
static void duties_come_in_their_order(void **state)
{
    struct world *w = flow_start(
        WEB("", "      maintenance: { status: 500 }\n      rate_limit: { rate: 1/h, burst: 1 }\n",
            "        - match: { path_prefix: /a }\n"
            "          redirect: { location: /b }\n"
            "          access: { deny: [10.9.0.3] }\n"
            "          maintenance: { status: 599 }\n"
            "          rate_limit: { rate: 1/h, burst: 1 }\n"));
    struct peer *c = world_connect(w, 80);
    /* A closed listener counts nothing against anybody. */
    for (unsigned i = 0; i < 3; i++) {
        ask(c, "/a");
        assert_status(answer(c), 500);
        assert_recorded(w, 500, ACCESS_maintenance);
    }
#define ROUTE(more)                                                                                \
    "        - match: { path_prefix: /a }\n"                                                       \
    "          redirect: { location: /b }\n"                                                       \
    "          rate_limit: { rate: 1/h, burst: 1 }\n" more
    world_reload(w, WEB("", "      rate_limit: { rate: 1/h, burst: 3 }\n",
                        ROUTE("          access: { deny: [10.9.0.3] }\n"
                              "          maintenance: { status: 599 }\n")));
    ask(c, "/b"); /* takes one of the listener's */
    assert_status(answer(c), 404);
    assert_recorded(w, 404, ACCESS_no_route);
    ask(c, "/a");
    assert_status(answer(c), 403);
    assert_recorded(w, 403, ACCESS_denied);
    ask(c, "/a");
    assert_status(answer(c), 403);
    assert_recorded(w, 403, ACCESS_denied);
    ask(c, "/a");
    assert_status(answer(c), 429);
    assert_recorded(w, 429, ACCESS_rate_limited);
    world_reload(w, WEB("", "", ROUTE("          maintenance: { status: 599 }\n")));
    ask(c, "/a");
    assert_status(answer(c), 599);
    assert_recorded(w, 599, ACCESS_maintenance);
    world_reload(w, WEB("", "", ROUTE("")));
    ask(c, "/a");
    assert_status(answer(c), 308);
    assert_recorded(w, 308, ACCESS_redirected);
    ask(c, "/a");
    assert_status(answer(c), 429);
    assert_recorded(w, 429, ACCESS_rate_limited);
    world_free(w);
}

/* Two cores: clients' connections are spread over both, their limits are not. */
static void limits_hold_over_all_cores(void **state)
{
    static const char yaml[] =
        "version: 1\n"
        "runtime: { cores: [0, 1] }\n"
        "ports:\n"
        "  - { name: p, driver: veth, device: mill0, addresses: [10.9.0.1/24], mtu: 1500 }\n"
        "listeners:\n"
        "  - name: web\n"
        "    address: 10.9.0.1:80\n"
        "    limits: { per_client: { connections: 16 } }\n"
        "    http:\n"
        "      rate_limit: { rate: 1/s, burst: 20 }\n"
        "      routes:\n"
        "        - redirect: { location: \"https://b/\" }\n" FLOW_UPSTREAM;
    struct world_opts o = {.yaml = yaml, .seed = 3, .cores = 2, .path = {.delay_ns = 100000}};
    struct world *w = world_new(&o);
    struct peer *c[40];
    unsigned in = 0, refused = 0, redirected = 0, limited = 0;
    for (unsigned i = 0; i < 40; i++)
        c[i] = world_connect(w, 80);
    world_sleep(w, 3 * WORLD_S); /* some SYNs fell by the wayside before ARP was done */
    for (unsigned i = 0; i < 40; i++) {
        if (c[i]->err) {
            refused++;
            continue;
        }
        in++;
        ask(c[i], "/");
        ask(c[i], "/");
    }
    assert_int_equal(in, 16);
    assert_int_equal(refused, 24);
    world_sleep(w, WORLD_MS * 10);
    struct core_status *one = calloc(1, sizeof(*one));
    for (unsigned i = 0; i < 2; i++) {
        core_fill_status(w->cores[i], one);
        assert_true(one->listeners[0].conns > 0); /* both cores have a part in it */
    }
    free(one);
    for (unsigned i = 0; i < 40; i++)
        for (unsigned k = 0; k < 2 && !c[i]->err; k++) {
            int status = atoi(answer(c[i]) + 9);
            redirected += status == 308;
            limited += status == 429;
        }
    assert_int_equal(redirected, 20);
    assert_int_equal(limited, 12);
    for (unsigned i = 0; i < 40; i++)
        peer_close(c[i]);
    world_settle(w);
    /* All of them came back. */
    for (unsigned i = 0; i < 40; i++)
        c[i] = world_connect(w, 80);
    world_settle(w);
    for (unsigned i = in = 0; i < 40; i++)
        in += !c[i]->err;
    assert_int_equal(in, 16);
    world_free(w);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_denied_client_is_reset_or_left_alone),
        cmocka_unit_test(a_connection_that_stands_outlives_its_denial),
        cmocka_unit_test(a_route_says_403_and_the_connection_goes_on),
        cmocka_unit_test(a_refused_upload_ends_the_connection),
        cmocka_unit_test(a_client_over_its_rate_gets_429_and_knows_when),
        cmocka_unit_test(the_listeners_rate_counts_whatever_is_asked),
        cmocka_unit_test(connections_of_a_client_are_counted),
        cmocka_unit_test(new_connections_of_a_client_have_a_rate),
        cmocka_unit_test(redirects_go_where_the_template_says),
        cmocka_unit_test(clients_behind_trusted_proxies_are_told_apart),
        cmocka_unit_test(maintenance_comes_and_goes_by_reload),
        cmocka_unit_test(duties_come_in_their_order),
        cmocka_unit_test(limits_hold_over_all_cores),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
