/* What follows from the edge's duties in a file: who is inside of a list, the limits' numbers and
 * names, templates; and that all of it changes live. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <arpa/inet.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "config/diff.h"
#include "config/load.h"
#include "dataplane/route/access.h"
#include "runtime/rng.h"

#define HEAD                                                                                       \
    "version: 1\n"                                                                                 \
    "runtime: { cores: [1] }\n"                                                                    \
    "ports: [{ name: p, driver: veth, device: mill0, addresses: [10.77.0.1/24] }]\n"               \
    "upstreams: [{ name: app, endpoints: [10.77.0.2:9000] }]\n"                                    \
    "listeners:\n"

#define OTHER(host, prefix)                                                                        \
    "        - match: { host: \"" host "\", path_prefix: " prefix " }\n          upstream: app\n"

static struct snapshot *load(const char *text)
{
    struct config_errors errs;
    struct snapshot *s = NULL;
    config_errors_init(&errs);
    if (config_load_text("test.yaml", text, strlen(text), NULL, &s, &errs))
        config_check_report(stderr, &errs);
    config_errors_fini(&errs);
    assert_non_null(s);
    return s;
}

static struct snapshot *with_access(const char *access)
{
    char text[65536];
    snprintf(text, sizeof(text),
             HEAD "  - { name: raw, address: 10.77.0.1:80, access: { %s }, tunnel: { upstream: app "
                  "} }\n",
             access);
    return load(text);
}

static void test_lists_of_networks(void **state)
{
    static const struct {
        const char *access, *inside, *outside; /* addresses */
        size_t ranges;
    } cases[] = {
        {"allow: [10.0.0.0/8]", "10.0.0.0 10.255.255.255 10.9.8.7",
         "9.255.255.255 11.0.0.0 0.0.0.0", 1},
        {"deny: [10.0.0.0/8]", "9.255.255.255 11.0.0.0 255.255.255.255 0.0.0.0",
         "10.0.0.0 10.1.1.1", 2},
        {"allow: [10.0.0.0/8], deny: [10.1.0.0/16, 10.1.2.0/24]", "10.0.255.255 10.2.0.0",
         "10.1.0.0 10.1.2.3 10.1.255.255 192.0.2.1", 2},
        {"allow: [10.1.2.3]", "10.1.2.3", "10.1.2.2 10.1.2.4", 1},
        {"allow: [10.0.0.0/9, 10.128.0.0/9, 10.3.0.0/16]", "10.0.0.0 10.255.255.255", "11.0.0.0",
         1},
        {"deny: [0.0.0.0/0]", "", "0.0.0.0 255.255.255.255 10.1.2.3", 0},
        {"allow: [0.0.0.0/0]", "0.0.0.0 255.255.255.255", "", 1},
        {"deny: [0.0.0.0/1, 128.0.0.0/1]", "", "0.0.0.0 127.255.255.255 128.0.0.0 255.255.255.255",
         0},
        {"deny: [255.255.255.255, 0.0.0.0]", "0.0.0.1 255.255.255.254", "0.0.0.0 255.255.255.255",
         1},
        {"allow: [128.0.0.0/1], deny: [200.0.0.0/8, 255.255.255.0/24]",
         "128.0.0.0 199.255.255.255 201.0.0.0 255.255.254.255",
         "127.255.255.255 200.0.0.0 200.255.255.255 255.255.255.0", 2},
        {"allow: [10.0.0.0/8, 172.16.0.0/12], deny: [0.0.0.0/1]", "172.16.0.0 172.31.255.255",
         "10.1.1.1 172.15.255.255 172.32.0.0", 1},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct snapshot *s = with_access(cases[i].access);
        const struct config_access *x = s->listeners[0].access;
        assert_int_equal(x->ninside, cases[i].ranges);
        for (unsigned expected = 0; expected < 2; expected++) {
            char list[256], *save = NULL;
            snprintf(list, sizeof(list), "%s", expected ? cases[i].inside : cases[i].outside);
            for (char *a = strtok_r(list, " ", &save); a; a = strtok_r(NULL, " ", &save))
                if (access_allows(x, inet_addr(a)) != expected)
                    fail_msg("%s: %s", cases[i].access, a);
        }
        snapshot_free(s);
    }
}

static bool covers(const struct config_addr *nets, size_t n, uint32_t addr)
{
    for (size_t i = 0; i < n; i++)
        if (!nets[i].prefix || (ntohl(nets[i].addr) ^ addr) >> (32 - nets[i].prefix) == 0)
            return true;
    return false;
}

/* Against the lists themselves, at the networks' edges and anywhere. */
static void test_random_lists(void **state)
{
    struct rng rng = {7};
    for (unsigned round = 0; round < 300; round++) {
        char text[8192];
        size_t len = 0;
        for (unsigned list = 0; list < 2; list++) {
            unsigned n = 1 + rng_below(&rng, 12);
            len += (size_t)snprintf(text + len, sizeof(text) - len, "%s: [",
                                    list ? ", deny" : "allow");
            for (unsigned i = 0; i < n; i++) {
                unsigned prefix = rng_below(&rng, 33);
                /* Few leading bits, so that they meet. */
                uint32_t addr =
                    (rng_below(&rng, 4) << 30) | (rng_below(&rng, 16) << 4) | rng_below(&rng, 16);
                addr = prefix ? addr & (UINT32_MAX << (32 - prefix)) : 0;
                struct in_addr in = {htonl(addr)};
                len += (size_t)snprintf(text + len, sizeof(text) - len, "%s%s/%u", i ? ", " : "",
                                        inet_ntoa(in), prefix);
            }
            len += (size_t)snprintf(text + len, sizeof(text) - len, "]");
        }
        struct snapshot *s = with_access(text);
        const struct config_access *x = s->listeners[0].access;
        for (size_t i = 1; i < x->ninside; i++)
            assert_true(x->inside[i].lo > (uint64_t)x->inside[i - 1].hi + 1);
        for (unsigned i = 0; i < 2000; i++) {
            const struct config_addr *any = rng_below(&rng, 2) ? x->allow : x->deny;
            size_t n = any == x->allow ? x->nallow : x->ndeny;
            const struct config_addr *net = &any[rng_below(&rng, (uint32_t)n)];
            uint32_t addr = ntohl(net->addr) + rng_below(&rng, 5) - 2;
            if (rng_below(&rng, 3) == 0 && net->prefix)
                addr += (uint32_t)(1ull << (32 - net->prefix));
            bool may = covers(x->allow, x->nallow, addr) && !covers(x->deny, x->ndeny, addr);
            if (access_allows(x, htonl(addr)) != may)
                fail_msg("round %u: %s: %08x", round, text, addr);
        }
        snapshot_free(s);
    }
}

static void test_rates_become_intervals(void **state)
{
    static const struct {
        const char *text;
        uint64_t interval, slack;
    } cases[] = {
        {"{ rate: 1/s }", 1000000000, 0},
        {"{ rate: 100/s }", 10000000, 99 * 10000000ull},
        {"{ rate: 3/s, burst: 2 }", 333333334, 333333334},
        {"{ rate: 30/m }", 2000000000, 0},
        {"{ rate: 600/m }", 100000000, 9 * 100000000ull},
        {"{ rate: 1/h, burst: 1000000 }", 3600000000000, 999999 * 3600000000000ull},
        {"{ rate: 1000000/s, burst: 1 }", 1000, 0},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        char text[4096];
        snprintf(text, sizeof(text),
                 HEAD "  - { name: web, address: 10.77.0.1:80, http: { rate_limit: %s, routes: [{ "
                      "upstream: app }] } }\n",
                 cases[i].text);
        struct snapshot *s = load(text);
        const struct config_limit *l = s->listeners[0].http->rate_limit;
        assert_int_equal(l->interval, cases[i].interval);
        assert_int_equal(l->slack, cases[i].slack);
        assert_true(s->listeners[0].http->gated);
        snapshot_free(s);
    }
}

/* 2,000 limits: more than once in ten thousand such files two would share a number by chance. */
static void test_each_limit_has_a_name_of_its_own_and_keeps_it(void **state)
{
    enum { ROUTES = 2000 };
    char *text = malloc(400000);
    struct snapshot *s[2];
    for (unsigned version = 0; version < 2; version++) {
        int n = sprintf(text, HEAD "  - name: web\n    address: 10.77.0.1:80\n"
                                   "    limits: { per_client: { connections: 1 } }\n"
                                   "    http:\n      rate_limit: { rate: 1/s }\n      routes:\n");
        for (unsigned i = 0; i < ROUTES; i++)
            n += sprintf(text + n,
                         "        - { match: { path_prefix: /%u }, upstream: app, rate_limit: { "
                         "rate: 1/s } }\n",
                         version ? ROUTES - 1 - i : i);
        if (version)
            sprintf(text + n, "        - { upstream: app, rate_limit: { rate: 2/s } }\n");
        s[version] = load(text);
    }
    const struct config_http *a = s[0]->listeners[0].http, *b = s[1]->listeners[0].http;
    assert_int_equal(a->rate_limit->id, b->rate_limit->id);
    assert_int_equal(s[0]->listeners[0].per_client.rate.id, s[1]->listeners[0].per_client.rate.id);
    for (size_t i = 0; i < ROUTES; i++) {
        const struct config_limit *x = a->routes[i].rate_limit, *y = b->routes[i].rate_limit;
        assert_string_equal(a->routes[i].path_prefix, b->routes[i].path_prefix);
        assert_int_equal(x->id, y->id);
        assert_true(x->id != a->rate_limit->id);
        for (size_t k = 0; k < i; k++)
            assert_true(a->routes[k].rate_limit->id != x->id);
    }
    snapshot_free(s[0]);
    snapshot_free(s[1]);
    free(text);
}

static const char full[] = HEAD
    "  - name: web\n"
    "    address: 10.77.0.1:80\n"
    "    access: { allow: [10.0.0.0/8] }\n"
    "    limits: { per_client: { connections: 3, connection_rate: 5/s } }\n"
    "    http:\n"
    "      maintenance: { enabled: false, body: x }\n"
    "      rate_limit: { rate: 1/s }\n"
    "      trusted_proxies: [192.0.2.0/25, 192.0.2.128/25]\n"
    "      request_id: { header: X-Id, trust: [10.0.0.0/8] }\n"
    "      traceparent: sampled\n"
    "      headers: { request: { remove: [X-A], set: [{ name: X-B, value: \"${path}!\" }] } }\n"
    "      routes:\n"
    "        - match: { path_prefix: /a }\n"
    "          redirect: { location: \"/b${rest}\", status: 301 }\n"
    "        - upstream: app\n"
    "          access: { deny: [10.1.0.0/16] }\n"
    "          rewrite: { prefix: /x, host: h }\n"
    "          maintenance: { status: 500 }\n"
    "          rate_limit: { rate: 2/s, burst: 3 }\n"
    "          headers: { response: { add: [{ name: X-C, value: c }] } }\n";

static const char bare[] = HEAD "  - name: web\n"
                                "    address: 10.77.0.1:80\n"
                                "    http: { routes: [{ upstream: app }] }\n";

/* Coming, changing and going; and what runs is what the file says. */
static void test_all_of_it_changes_live(void **state)
{
    static const char *const files[] = {bare, full};
    for (unsigned from = 0; from < 2; from++) {
        struct snapshot *a = load(files[from]), *b = load(files[!from]), *merged = NULL;
        struct config_diff d;
        assert_int_equal(config_diff(a, b, &d), 0);
        assert_true(d.nchanges > 5);
        for (size_t i = 0; i < d.nchanges; i++)
            if (!d.changes[i].live)
                fail_msg("%s", d.changes[i].key);
        config_diff_fini(&d);
        assert_int_equal(config_merge_live(a, b, &merged), 0);
        assert_int_equal(config_diff(merged, b, &d), 0);
        assert_int_equal(d.nchanges, 0);
        config_diff_fini(&d);
        snapshot_free(a);
        snapshot_free(b);
        snapshot_free(merged);
    }
}

static void test_a_copy_is_whole(void **state)
{
    struct snapshot *a = load(full), *b = load(full), *m = NULL;
    assert_int_equal(config_merge_live(a, b, &m), 0);
    snapshot_free(a);
    snapshot_free(b);
    const struct config_listener *l = &m->listeners[0];
    assert_true(access_allows(l->access, inet_addr("10.2.3.4")));
    assert_false(access_allows(l->access, inet_addr("11.2.3.4")));
    assert_int_equal(l->per_client.rate.interval, 200000000);
    assert_int_equal(l->http->request_id->ninside, 1);
    assert_int_equal(l->http->nproxied, 1); /* two that touch */
    assert_true(access_has(l->http->proxied, 1, inet_addr("192.0.2.255")));
    const struct config_template *t = &l->http->headers->request.set[0].value;
    assert_int_equal(t->nparts, 2);
    assert_int_equal(t->parts[0].variable, CONFIG_VAR_path);
    assert_memory_equal(t->parts[1].text, "!", 1);
    assert_string_equal(l->http->headers->request.remove[0], "X-A");
    const struct config_route *r = &l->http->routes[0], *rest = &l->http->routes[1];
    assert_null(r->upstream);
    assert_string_equal(r->redirect->location.text, "/b${rest}");
    assert_true(r->gated && rest->gated && l->http->gated);
    assert_int_equal(m->nedits, 2);
    assert_int_equal(r->edit, l->http->edit); /* it has no changes of its own */
    assert_true(rest->edit && rest->edit != l->http->edit);
    assert_false(access_allows(rest->access, inet_addr("10.1.3.4")));
    assert_string_equal(rest->rewrite->host, "h");
    snapshot_free(m);
}

/* Whose followers come to it again, whatever they ask for. */
static void test_redirects_that_lead_back(void **state)
{
    static const struct {
        const char *prefix, *location, *others;
        bool leads_back;
    } cases[] = {
        {"/", "${path}", "", true},
        {"/", "${path}${query}", "", true},
        {"/a", "${path}?x", "", true},
        {"/a", "${path}/", "", false},
        {"/", "/new", "", true},
        {"/", "/new", OTHER("*", "/new"), false},
        {"/", "/new", OTHER("*", "/new/"), true},
        {"/", "/new/", OTHER("*", "/new/"), false},
        {"/", "/new", OTHER("*", "/newer"), true},
        {"/", "/new", OTHER("a.example", "/new"), true},
        {"/", "/new${rest}", "", true},
        {"/", "/new${rest}", OTHER("*", "/new"), false},
        {"/", "/new${rest}", OTHER("*", "/new/x"), false},
        {"/", "/new${rest}", OTHER("*", "/other"), true},
        {"/old", "/new${rest}", "", false},
        {"/old", "/old", "", true},
        {"/old", "/old?x=${path}", "", true},
        {"/old", "/older", "", false},
        {"/old", "/old${rest}", "", true},
        {"/old", "/old${query}", "", true},
        {"/old", "/old${query}x", "", false},
        {"/old", "/old/${host}", "", true},
        {"/old", "/old${method}", "", false},
        {"/old", "/old/v2${rest}", "", true},
        {"/old", "/old/v2${rest}", OTHER("*", "/old/v2"), false},
        {"/old/", "/old", "", false},
        {"/old/", "/old/", "", true},
        {"/", "https://${host}${path}", "", false},
        {"/", "http://b.example/", "", false},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        char text[2048];
        struct config_errors errs;
        struct snapshot *s = NULL;
        snprintf(text, sizeof(text),
                 HEAD
                 "  - name: web\n    address: 10.77.0.1:80\n    http:\n      routes:\n"
                 "        - match: { path_prefix: %s }\n          redirect: { location: \"%s\" "
                 "}\n%s",
                 cases[i].prefix, cases[i].location, cases[i].others);
        config_errors_init(&errs);
        config_load_text("test.yaml", text, strlen(text), NULL, &s, &errs);
        if (!s == !cases[i].leads_back || errs.count != cases[i].leads_back) {
            config_check_report(stderr, &errs);
            fail_msg("%s", text);
        }
        if (s)
            snapshot_free(s);
        else
            assert_non_null(strstr(errs.list[0].text, "leads back to this route"));
        config_errors_fini(&errs);
    }
    (void)state;
}

/* Routes and listeners without duties carry none of their marks. */
static void test_nothing_is_nothing(void **state)
{
    struct snapshot *s = load(bare);
    const struct config_listener *l = &s->listeners[0];
    assert_null(l->access);
    assert_false(l->http->gated || l->http->routes[0].gated);
    assert_int_equal(l->http->routes[0].edit + l->http->edit + s->nedits, 0);
    assert_int_equal(l->per_client.rate.interval + l->per_client.connections, 0);
    snapshot_free(s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_lists_of_networks),
        cmocka_unit_test(test_random_lists),
        cmocka_unit_test(test_rates_become_intervals),
        cmocka_unit_test(test_each_limit_has_a_name_of_its_own_and_keeps_it),
        cmocka_unit_test(test_all_of_it_changes_live),
        cmocka_unit_test(test_a_copy_is_whole),
        cmocka_unit_test(test_redirects_that_lead_back),
        cmocka_unit_test(test_nothing_is_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
