/* What a reload changes, what of it is live, and the snapshot that results. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>
#include "config/diff.h"
#include "config/load.h"

static const char base[] = "version: 1\n"
                           "runtime: { cores: [1] }\n"
                           "ports:\n"
                           "  - name: edge0\n"
                           "    driver: veth\n"
                           "    device: mill0\n"
                           "    addresses: [10.77.0.1/24]\n"
                           "    gateway: 10.77.0.2\n"
                           "listeners:\n"
                           "  - name: web\n"
                           "    address: 10.77.0.1:8080\n"
                           "    http:\n"
                           "      routes:\n"
                           "        - match: { path_prefix: /api }\n"
                           "          upstream: api\n"
                           "        - upstream: app\n"
                           "  - name: raw\n"
                           "    address: 10.77.0.1:8081\n"
                           "    tunnel: { upstream: app }\n"
                           "upstreams:\n"
                           "  - name: app\n"
                           "    endpoints: [10.77.0.2:9000]\n"
                           "  - name: api\n"
                           "    endpoints: [10.77.0.2:9001, 10.77.0.2:9002]\n";

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

/* `base` with pairs of texts replaced, up to NULL. */
static struct snapshot *load_changed(const char *from, ...)
{
    char text[8192];
    va_list args;

    strcpy(text, base);
    va_start(args, from);
    for (const char *what = from; what; what = va_arg(args, const char *)) {
        const char *with = va_arg(args, const char *);
        char *at = strstr(text, what);

        assert_non_null(at);
        memmove(at + strlen(with), at + strlen(what), strlen(at + strlen(what)) + 1);
        memcpy(at, with, strlen(with));
    }
    va_end(args);
    return load(text);
}

static void assert_diff(const struct snapshot *before, const struct snapshot *after,
                        const char *expected)
{
    struct config_diff d;
    char *text = NULL;
    size_t size, frozen = 0;
    FILE *f = open_memstream(&text, &size);

    assert_int_equal(config_diff(before, after, &d), 0);
    for (size_t i = 0; i < d.nchanges; i++) {
        const struct config_change *c = &d.changes[i];

        fprintf(f, "%s: %s -> %s%s\n", c->key, c->from, c->to, c->live ? "" : " (frozen)");
        frozen += !c->live;
    }
    fclose(f);
    assert_string_equal(text, expected);
    assert_int_equal(d.nfrozen, frozen);
    config_diff_fini(&d);
    free(text);
}

/* Merges and frees both sides, so that ASan sees anything shared. */
static struct snapshot *merge(struct snapshot *before, struct snapshot *after)
{
    struct snapshot *s = NULL;

    assert_int_equal(config_merge_live(before, after, &s), 0);
    snapshot_free(before);
    snapshot_free(after);
    return s;
}

static void nothing_changes(void **state)
{
    struct snapshot *a = load(base), *b = load(base);

    assert_diff(a, b, "");
    struct snapshot *m = merge(a, b);
    b = load(base);
    assert_diff(m, b, "");
    assert_string_equal(m->path, "test.yaml");
    snapshot_free(m);
    snapshot_free(b);
}

static void live_keys_are_taken(void **state)
{
    struct snapshot *a = load(base);
    struct snapshot *b = load_changed(
        "    endpoints: [10.77.0.2:9000]",
        "    endpoints: [10.77.0.2:9000, 10.77.0.3:9000]\n"
        "    balance: random\n"
        "    timeouts: { connect: 200ms }",
        "    http:\n", "    limits: { connections: 7 }\n    http:\n      via: \"off\"\n", NULL);

    assert_diff(a, b,
                "listeners[web].limits.connections: 10000 -> 7\n"
                "listeners[web].http.via: millrace -> off\n"
                "upstreams[app].endpoints[10.77.0.3:9000]: (none) -> (present)\n"
                "upstreams[app].balance: least_request -> random\n"
                "upstreams[app].timeouts.connect: 1s -> 200ms\n");
    struct snapshot *m = merge(a, b);
    assert_int_equal(snapshot_upstream(m, "app")->nendpoints, 2);
    assert_int_equal(snapshot_upstream(m, "app")->connect_timeout, 200000000);
    assert_int_equal(snapshot_listener(m, "web")->connections, 7);
    assert_null(snapshot_listener(m, "web")->http->via);
    assert_ptr_equal(snapshot_listener(m, "raw")->tunnel->upstream, snapshot_upstream(m, "app"));
    snapshot_free(m);
}

static void endpoints_and_probes_come_and_go(void **state)
{
    static const char plain[] = "    endpoints: [10.77.0.2:9000]";
    struct snapshot *a = load_changed(plain,
                                      "    endpoints: [10.77.0.2:9000, 10.77.0.3:9000]\n"
                                      "    outlier: { consecutive: 3 }\n",
                                      NULL);
    struct snapshot *b =
        load_changed(plain,
                     "    endpoints: [{ address: 10.77.0.3:9000, weight: 5 }]\n"
                     "    balance: consistent_hash\n"
                     "    pool: 7\n"
                     "    health: { path: /up, statuses: [200, 300-310], body_starts: OK }\n",
                     NULL);

    assert_diff(a, b,
                "upstreams[app].endpoints[10.77.0.2:9000]: (present) -> (none)\n"
                "upstreams[app].endpoints[10.77.0.3:9000].weight: 1 -> 5\n"
                "upstreams[app].balance: least_request -> consistent_hash\n"
                "upstreams[app].pool.idle: 1024 -> 7\n"
                "upstreams[app].health: (none) -> (present)\n"
                "upstreams[app].outlier: (present) -> (none)\n");
    struct snapshot *m = merge(a, b);
    const struct config_upstream *u = snapshot_upstream(m, "app");
    assert_int_equal(u->nendpoints, 1);
    assert_int_equal(u->endpoints[0].weight, 5);
    assert_int_equal(u->pool.idle, 7);
    assert_null(u->outlier);
    assert_string_equal(u->health->path, "/up");
    assert_int_equal(u->health->nstatuses, 2);
    assert_int_equal(u->health->statuses[1].hi, 310);
    for (uint32_t i = 0; i < u->hash.size; i++)
        assert_int_equal(u->hash.table[i], 0);
    snapshot_free(m);
}

static void frozen_keys_keep_their_value(void **state)
{
    struct snapshot *a = load(base);
    struct snapshot *b = load_changed("[1]", "[1, 2], poll: busy", "edge0", "edge1", NULL);

    assert_diff(a, b,
                "runtime.cores: [1] -> [1, 2] (frozen)\n"
                "runtime.poll: adaptive -> busy (frozen)\n"
                "ports[edge0]: (present) -> (none) (frozen)\n"
                "ports[edge1]: (none) -> (present) (frozen)\n");
    struct snapshot *m = merge(a, b);
    assert_int_equal(m->runtime.ncores, 1);
    assert_int_equal(m->runtime.cores[0], 1);
    assert_int_equal(m->runtime.poll, CONFIG_POLL_ADAPTIVE);
    assert_int_equal(m->nports, 1);
    assert_string_equal(m->ports[0].name, "edge0");
    snapshot_free(m);
}

static void routes_come_and_go(void **state)
{
    struct snapshot *a = load(base);
    struct snapshot *b =
        load_changed("        - match: { path_prefix: /api }\n          upstream: api\n",
                     "        - match: { host: \"*.b.example\", path_prefix: /x }\n"
                     "          upstream: api\n",
                     "- upstream: app", "- { upstream: api, timeouts: { request: 3s } }", NULL);

    assert_diff(a, b,
                "listeners[web].http.routes[*/].upstream: app -> api\n"
                "listeners[web].http.routes[*/].timeouts.request: upstream -> 3s\n"
                "listeners[web].http.routes[*/api]: (present) -> (none)\n"
                "listeners[web].http.routes[*.b.example/x]: (none) -> (present)\n");
    struct snapshot *m = merge(a, b);
    const struct config_http *http = snapshot_listener(m, "web")->http;
    assert_int_equal(http->nroutes, 2);
    assert_string_equal(http->routes[0].host, ".b.example");
    assert_int_equal(http->routes[0].host_len, strlen(".b.example"));
    assert_string_equal(http->routes[0].path_prefix, "/x");
    assert_ptr_equal(http->routes[1].upstream, snapshot_upstream(m, "api"));
    assert_int_equal(http->routes[1].request_timeout, 3000000000);
    snapshot_free(m);
}

static void listeners_come_go_and_change_live(void **state)
{
    struct snapshot *a = load(base);
    struct snapshot *b = load_changed(
        "upstreams:\n",
        "  - { name: more, address: \"*:90\", tunnel: { upstream: app } }\nupstreams:\n",
        "    tunnel: { upstream: app }", "    http: { routes: [{ upstream: api }] }",
        "    address: 10.77.0.1:8080\n", "    address: 10.77.0.1:80\n", NULL);

    assert_diff(a, b,
                "listeners[raw].http: (none) -> (present)\n"
                "listeners[raw].tunnel: (present) -> (none)\n"
                "listeners[web].address: 10.77.0.1:8080 -> 10.77.0.1:80\n"
                "listeners[more]: (none) -> (present)\n");
    struct snapshot *m = merge(a, b);
    assert_int_equal(m->nlisteners, 3);
    assert_int_equal(snapshot_listener(m, "web")->address.port, 80);
    assert_null(snapshot_listener(m, "raw")->tunnel);
    assert_string_equal(snapshot_listener(m, "raw")->http->routes[0].upstream->name, "api");
    assert_string_equal(snapshot_listener(m, "more")->tunnel->upstream->name, "app");
    b = load_changed("  - name: raw\n    address: 10.77.0.1:8081\n", "",
                     "    tunnel: { upstream: app }\n", "", NULL);
    m = merge(m, b);
    assert_int_equal(m->nlisteners, 1);
    assert_int_equal(m->ndraining, 0);
    snapshot_free(m);
}

/* On addresses of a port that doesn't run yet; and one that wants what such a one still holds. */
static void listeners_on_new_addresses_wait(void **state)
{
    struct snapshot *a = load(base);
    struct snapshot *b = load_changed(
        "[10.77.0.1/24]", "[10.77.0.1/24, 10.78.0.1/24]", "    address: 10.77.0.1:8080\n",
        "    limits: { connections: 9 }\n    address: 10.78.0.1:8080\n", "upstreams:\n",
        "  - { name: new, address: 10.78.0.1:90, tunnel: { upstream: app } }\n"
        "  - { name: heir, address: 10.77.0.1:8080, tunnel: { upstream: app } }\n"
        "  - { name: free, address: 10.77.0.1:91, tunnel: { upstream: app } }\nupstreams:\n",
        NULL);
    assert_diff(a, b,
                "ports[edge0].addresses: [10.77.0.1/24] -> [10.77.0.1/24, 10.78.0.1/24] (frozen)\n"
                "listeners[web].address: 10.77.0.1:8080 -> 10.78.0.1:8080 (frozen)\n"
                "listeners[web].limits.connections: 10000 -> 9\n"
                "listeners[free]: (none) -> (present)\n"
                "listeners[heir]: (none) -> (present) (frozen)\n"
                "listeners[new]: (none) -> (present) (frozen)\n");
    struct snapshot *m = merge(a, b);
    assert_int_equal(m->nlisteners, 3);
    assert_non_null(snapshot_listener(m, "free"));
    assert_int_equal(snapshot_listener(m, "web")->address.port, 8080);
    assert_int_equal(snapshot_listener(m, "web")->connections, 9);
    assert_int_equal(snapshot_listener(m, "web")->address.addr, m->ports[0].addresses[0].addr);
    snapshot_free(m);
}

static void reloads_add_up(void **state)
{
    struct snapshot *s = load(base);

    for (unsigned i = 0; i < 100; i++) {
        struct snapshot *b =
            load_changed("9000", i % 2 ? "9100" : "9200", "8080", i % 3 ? "8090" : "8091", NULL);

        b->version = i + 2;
        s = merge(s, b);
        assert_int_equal(s->version, i + 2);
        assert_int_equal(snapshot_upstream(s, "app")->endpoints[0].address.port,
                         i % 2 ? 9100 : 9200);
        assert_int_equal(snapshot_listener(s, "web")->address.port, i % 3 ? 8090 : 8091);
    }
    snapshot_free(s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(nothing_changes),
        cmocka_unit_test(live_keys_are_taken),
        cmocka_unit_test(endpoints_and_probes_come_and_go),
        cmocka_unit_test(frozen_keys_keep_their_value),
        cmocka_unit_test(routes_come_and_go),
        cmocka_unit_test(listeners_come_go_and_change_live),
        cmocka_unit_test(listeners_on_new_addresses_wait),
        cmocka_unit_test(reloads_add_up),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
