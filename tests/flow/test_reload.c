/* Reloads while requests, tunnels and uploads are under way: listeners that come, go and move. */
#include <malloc.h>

#include "dataplane/core_private.h"
#include "tests/flow/flow.h"

#define CORES 2

#define HEAD FLOW_HEAD("[0, 1]") "listeners:\n"
#define WEB  "  - { name: web, address: 10.9.0.1:80, http: { routes: [ { upstream: app } ] } }\n"
#define WEB_SHORT                                                                                  \
    "  - { name: web, address: 10.9.0.1:80, limits: { connections: 50 },\n"                        \
    "      http: { timeouts: { idle: 20s }, routes: [ { upstream: other } ] } }\n"
#define RAW   "  - { name: raw, address: 10.9.0.1:81, tunnel: { upstream: raw } }\n"
#define EXTRA "  - { name: extra, address: \"*:82\", http: { routes: [ { upstream: app } ] } }\n"
#define UPS                                                                                        \
    "upstreams:\n"                                                                                 \
    "  - { name: app, endpoints: [10.9.0.2:9000], timeouts: { request: 600s } }\n"                 \
    "  - { name: other, endpoints: [10.9.0.2:9001], timeouts: { request: 600s } }\n"
#define UP_RAW "  - { name: raw, endpoints: [10.9.0.2:9002] }\n"

static struct world *start_with(const char *yaml, unsigned cores)
{
    struct world_opts o = {.yaml = yaml, .cores = cores, .seed = 7, .path = {.delay_ns = 100000}};
    struct world *w = world_new(&o);
    world_listen(w, 9000);
    world_listen(w, 9001);
    world_listen(w, 9002);
    return w;
}

static struct world *start(const char *yaml)
{
    return start_with(yaml, CORES);
}

static uint16_t port_of(const struct peer *origin)
{
    struct stream_info i;
    stream_get_info(origin->stream, &i);
    return i.local_port;
}

/* A whole request and answer on a client's connection, by way of a given origin's port. */
static void exchange(struct world *w, struct peer *c, uint16_t port)
{
    peer_say(c, GET);
    struct peer *o = flow_origin(w);
    assert_int_equal(port_of(o), port);
    peer_say(o, "HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 2\r\n\r\nok");
    assert_int_equal(flow_status(c), 200);
    peer_expect(c, "ok");
    peer_close(o);
}

static void assert_open(const struct peer *p)
{
    assert_false(p->eof);
    assert_int_equal(p->err, 0);
    assert_non_null(p->stream);
}

static struct peer *open_tunnel(struct world *w, uint16_t port, struct peer **ret_origin)
{
    struct peer *t = world_connect(w, port);
    *ret_origin = world_accept(w);
    assert_int_equal(port_of(*ret_origin), 9002);
    return t;
}

static void talk(struct peer *a, struct peer *b)
{
    peer_say(a, "there");
    peer_expect(b, "there");
    peer_say(b, "and back");
    peer_expect(a, "and back");
}

static struct peer *begin_upload(struct world *w, uint16_t port, struct peer **ret_origin)
{
    struct peer *c = world_connect(w, port);
    peer_say(c, "PUT /x HTTP/1.1\r\nHost: a\r\nContent-Length: 10\r\n\r\n01234");
    *ret_origin = flow_origin(w);
    peer_expect(*ret_origin, "01234");
    return c;
}

/* The head of the answer. */
static const char *end_upload(struct peer *c, struct peer *origin)
{
    peer_say(c, "56789");
    peer_expect(origin, "56789");
    peer_say(origin, OK2);
    const char *head = peer_expect_through(c, "\r\n\r\n");
    assert_has(head, "HTTP/1.1 200 ");
    peer_expect(c, "ok");
    return head;
}

static void a_listener_comes_live(void **state)
{
    struct world *w = start(HEAD WEB UPS);
    struct peer *old = world_connect(w, 80);
    exchange(w, old, 9000);
    peer_expect_error(world_connect(w, 82), -ECONNREFUSED);
    world_reload(w, HEAD WEB EXTRA UPS);
    for (int i = 0; i < 8; i++) /* on either core */
        exchange(w, world_connect(w, 82), 9000);
    exchange(w, old, 9000);
    world_free(w);
}

static void a_listener_that_goes_lets_its_connections_finish(void **state)
{
    struct world *w = start(HEAD WEB RAW UPS UP_RAW);
    struct peer *idle = world_connect(w, 80), *fresh = world_connect(w, 80), *o, *to;
    exchange(w, idle, 9000);
    struct peer *upload = begin_upload(w, 80, &o);
    struct peer *tunnel = open_tunnel(w, 81, &to);
    struct peer *half = world_connect(w, 80);
    peer_say(half, "GET / HTTP/1.1\r\nHo");
    world_sleep(w, 10 * WORLD_MS);

    world_reload(w, HEAD EXTRA UPS); /* and with `raw` its upstream */
    peer_expect_eof(idle);           /* politely */
    peer_expect_eof(fresh);
    peer_expect_error(world_connect(w, 80), -ECONNREFUSED);
    peer_expect_error(world_connect(w, 81), -ECONNREFUSED);
    talk(tunnel, to);
    peer_say(half, "st: a\r\n\r\n");
    struct peer *o2 = flow_origin(w);
    peer_say(o2, OK2);
    assert_has(peer_expect_through(half, "\r\n\r\n"), "Connection: close\r\n");
    peer_expect(half, "ok");
    peer_expect_eof(half);
    assert_has(end_upload(upload, o), "Connection: close\r\n");
    peer_expect_eof(upload);

    /* Through further versions, until the last of its bytes. */
    world_reload(w, HEAD WEB_SHORT UPS);
    world_reload(w, HEAD EXTRA UPS);
    assert_int_equal(w->snapshot->ndraining, 2); /* raw, and web once more */
    talk(tunnel, to);
    peer_close(idle);
    peer_close(fresh);
    peer_close(half);
    peer_close(upload);
    peer_shutdown(tunnel);
    peer_expect_eof(to);
    peer_shutdown(to);
    peer_expect_eof(tunnel);
    world_sleep(w, WORLD_S);
    world_reload(w, HEAD WEB UPS);
    assert_int_equal(w->snapshot->ndraining, 1); /* extra: that is news */
    world_reload(w, HEAD WEB UPS);
    assert_int_equal(w->snapshot->ndraining, 0);
    assert_int_equal(world_status(w)->nlisteners, 1);
    world_free(w);
}

static void a_listener_that_comes_back_takes_up_its_connections(void **state)
{
    struct world *w = start(HEAD WEB RAW UPS UP_RAW);
    struct peer *to, *tunnel = open_tunnel(w, 81, &to);
    world_reload(w, HEAD WEB UPS);
    world_reload(w, HEAD WEB RAW UPS UP_RAW);
    assert_int_equal(w->snapshot->ndraining, 0);
    talk(tunnel, to);
    struct peer *to2, *second = open_tunnel(w, 81, &to2);
    talk(second, to2);
    talk(tunnel, to);
    world_free(w);
}

#define MOVED "  - { name: web, address: 10.9.0.1:88, http: { routes: [ { upstream: other } ] } }\n"

static void an_address_that_changes_is_a_move(void **state)
{
    struct world *w = start(HEAD WEB UPS);
    struct peer *o, *upload = begin_upload(w, 80, &o);
    world_reload(w, HEAD MOVED UPS);
    peer_expect_error(world_connect(w, 80), -ECONNREFUSED);
    exchange(w, world_connect(w, 88), 9001);
    assert_has(end_upload(upload, o), "Connection: close\r\n");
    world_free(w);
}

#define PAIR(a, b)                                                                                 \
    "  - { name: a, address: 10.9.0.1:" a ", http: { routes: [ { upstream: app } ] } }\n"          \
    "  - { name: b, address: 10.9.0.1:" b ", http: { routes: [ { upstream: other } ] } }\n"

/* No SYN and no handshake is lost on the way: the sockets are handed over. */
static void listeners_that_swap_addresses_are_never_closed(void **state)
{
    struct world *w = start(HEAD PAIR("80", "81") UPS);
    struct peer *first = world_connect(w, 80), *halfway[8];
    exchange(w, first, 9000);
    for (int i = 0; i < 8; i++) { /* SYNs that arrive before it, ACKs after it */
        halfway[i] = world_connect(w, 80);
        world_sleep(w, 35000);
    }
    world_publish(w, HEAD PAIR("81", "80") UPS);
    for (int i = 0; i < 8; i++)
        exchange(w, halfway[i], 9001);
    assert_int_equal(world_status(w)->tcp.conns > 8, 1);
    exchange(w, world_connect(w, 81), 9000);
    world_sleep(w, WORLD_MS);
    assert_int_equal(world_old_versions(w), 0);
    world_free(w);
}

static void a_listener_may_change_its_name_and_its_kind(void **state)
{
    static const char renamed[] =
        HEAD "  - { name: www, address: 10.9.0.1:80, tunnel: { upstream: raw } }\n" UPS UP_RAW;
    struct world *w = start(HEAD WEB UPS UP_RAW);
    struct peer *o, *to, *upload = begin_upload(w, 80, &o);
    world_reload(w, renamed);
    struct peer *tunnel = open_tunnel(w, 80, &to);
    talk(tunnel, to);
    end_upload(upload, o);
    talk(tunnel, to);
    world_free(w);
}

/* --- many ---------------------------------------------------------------------------------------
 */

size_t __sanitizer_get_current_allocated_bytes(void) __attribute__((weak));

static size_t heap(void)
{
    if (__sanitizer_get_current_allocated_bytes)
        return __sanitizer_get_current_allocated_bytes();
    return mallinfo2().uordblks;
}

static const char *const versions[] = {
    HEAD WEB RAW UPS UP_RAW,       HEAD WEB_SHORT RAW UPS UP_RAW,
    HEAD WEB RAW EXTRA UPS UP_RAW, HEAD EXTRA WEB_SHORT RAW UPS UP_RAW,
    HEAD RAW WEB UPS UP_RAW,
};

struct watcher {
    struct world *w;
    uint64_t seen[CORES];
    uint64_t until;
};

/* After each pass: no core goes back, none is ahead. */
static bool watch(void *ctx)
{
    struct watcher *x = ctx;
    for (unsigned i = 0; i < CORES; i++) {
        uint64_t v = core_acked_version(x->w->cores[i]);
        assert_true(v >= x->seen[i] && v <= x->w->snapshot->version);
        x->seen[i] = v;
    }
    return x->w->now >= x->until;
}

static void run_for(struct watcher *x, uint64_t ns)
{
    x->until = x->w->now + ns;
    world_run(x->w, watch, x, ns);
}

/* Three hundred versions in three virtual seconds; what was open before is open after, and what was
 * asked is answered, by the routes of the moment. */
static void many_reloads_are_not_noticed(void **state)
{
    struct world *w = start(versions[0]);
    struct watcher x = {.w = w};
    struct peer *to, *tunnel = open_tunnel(w, 81, &to), *o, *held = world_connect(w, 80);
    struct peer *upload = begin_upload(w, 80, &o);
    struct peer *slow = world_connect(w, 80), *so;
    size_t after_warm_up = 0;

    peer_say(slow, GET);
    so = flow_origin(w);
    for (unsigned i = 1; i <= 300; i++) {
        const char *yaml = versions[i % 5];
        world_publish(w, yaml);
        run_for(&x, i % 7 ? 10 * WORLD_MS : 50000);
        if (i % 10 == 0) {
            exchange(w, held, strstr(yaml, "upstream: other") ? 9001 : 9000);
            talk(tunnel, to);
        }
        assert_open(held);
        assert_open(tunnel);
        assert_open(upload);
        assert_open(slow);
        if (i == 50)
            after_warm_up = heap();
    }
    run_for(&x, WORLD_S);
    assert_int_equal(world_old_versions(w), 0);
    assert_int_equal(x.seen[0], 301);
    assert_int_equal(x.seen[1], 301);
    assert_true(heap() < after_warm_up + 65536);
    end_upload(upload, o);
    peer_say(so, OK2);
    assert_int_equal(flow_status(slow), 200);
    peer_expect(slow, "ok");
    talk(tunnel, to);
    world_free(w);
}

/* --- without memory ------------------------------------------------------------------------------
 */

static unsigned allocations, failing; /* the failing-th fails, and all after it; 0: none */

void *__real_calloc(size_t n, size_t size);
void *__wrap_calloc(size_t n, size_t size);

void *__wrap_calloc(size_t n, size_t size)
{
    return failing && ++allocations >= failing ? NULL : __real_calloc(n, size);
}

#define EDITED                                                                                     \
    "  - { name: extra, address: \"*:82\", http: { request_id: {}, routes: [ { upstream: app,\n"   \
    "      headers: { request: { set: [ { name: X-A, value: \"${path}\" } ] } } } ] } }\n"

/* A core that can't take all of a version takes nothing of it, and tries again. */
static void a_core_without_memory_stays_with_what_it_has(void **state)
{
    static const char next[] = HEAD MOVED RAW EDITED UPS UP_RAW;
    struct world *w = start_with(HEAD WEB UPS, 1);
    struct peer *held = world_connect(w, 80);
    bool adopted = false;
    unsigned n;
    exchange(w, held, 9000);
    for (n = 1; !adopted; n++) {
        world_publish(w, n % 2 ? next : HEAD MOVED EDITED UPS);
        allocations = 0;
        failing = n;
        world_run(w, NULL, NULL, 0);
        failing = 0;
        adopted = world_old_versions(w) == 0;
        if (adopted)
            break;
        assert_int_equal(core_acked_version(w->cores[0]), w->old[0]->version);
        peer_expect_error(world_connect(w, 82), -ECONNREFUSED);
        exchange(w, held, 9000);
        world_publish(w, HEAD WEB UPS);
        world_sleep(w, WORLD_S);
        assert_int_equal(world_old_versions(w), 0);
        assert_true(n < 100);
    }
    assert_true(n > 14); /* objects, changes of messages, sockets, upstreams */
    exchange(w, world_connect(w, 82), 9000);
    exchange(w, world_connect(w, 88), 9001);
    world_free(w);
}

/* As control would never have it: it keeps a listener in the snapshot as long as it has clients. */
static void what_a_snapshot_does_not_list_at_all_is_cut(void **state)
{
    struct world *w = start_with(HEAD WEB RAW UPS UP_RAW, 1);
    struct peer *c = world_connect(w, 80), *t = world_connect(w, 81);
    peer_say(c, GET);
    peer_say(t, "x");
    world_accept(w);
    world_accept(w);
    world_sleep(w, 10 * WORLD_MS);
    struct snapshot bare = *w->snapshot;
    bare.nlisteners = 0;
    assert_int_equal(proxy_apply(w->cores[0]->proxy, &bare), 0);
    peer_expect_error(c, -ECONNRESET);
    peer_expect_error(t, -ECONNRESET);
    assert_int_equal(proxy_apply(w->cores[0]->proxy, w->snapshot), 0);
    c = world_connect(w, 80);
    exchange(w, c, 9000);
    world_free(w);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_listener_comes_live),
        cmocka_unit_test(a_listener_that_goes_lets_its_connections_finish),
        cmocka_unit_test(a_listener_that_comes_back_takes_up_its_connections),
        cmocka_unit_test(an_address_that_changes_is_a_move),
        cmocka_unit_test(listeners_that_swap_addresses_are_never_closed),
        cmocka_unit_test(a_listener_may_change_its_name_and_its_kind),
        cmocka_unit_test(many_reloads_are_not_noticed),
        cmocka_unit_test(what_a_snapshot_does_not_list_at_all_is_cut),
        cmocka_unit_test(a_core_without_memory_stays_with_what_it_has),
    };
    return cmocka_run_group_tests_name("flow_reload", tests, NULL, NULL);
}
