#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "dataplane/proxy/access_log.h"
#include "runtime/rng.h"

static void fill_text(char *to, size_t size, struct rng *g)
{
    size_t n = rng_below(g, (uint32_t)size);
    for (size_t i = 0; i < n; i++)
        to[i] = (char)(1 + rng_below(g, 255));
    to[n] = 0;
}

static struct access_record random_record(uint64_t seed)
{
    struct rng g = {seed};
    struct access_record r;
    memset(&r, 0, sizeof(r));
    r.wall_ns = rng_next(&g);
    r.bytes_out = rng_next(&g);
    r.status = (uint16_t)rng_below(&g, 600);
    r.reused = rng_chance(&g, 500000);
    fill_text(r.method, sizeof(r.method), &g);
    fill_text(r.listener, sizeof(r.listener), &g);
    fill_text(r.upstream, sizeof(r.upstream), &g);
    fill_text(r.host, sizeof(r.host), &g);
    r.has_id = rng_chance(&g, 500000);
    if (r.has_id)
        fill_text(r.request_id, sizeof(r.request_id), &g);
    fill_text(r.target, sizeof(r.target), &g);
    r.has_trace = rng_chance(&g, 500000);
    for (unsigned i = 0; i < sizeof(r.trace_id) && r.has_trace; i++)
        r.trace_id[i] = (uint8_t)rng_below(&g, 256);
    r.has_ip6 = rng_chance(&g, 500000);
    for (unsigned i = 0; i < sizeof(r.client_ip6) && r.has_ip6; i++)
        r.client_ip6[i] = (uint8_t)rng_below(&g, 256);
    r.has_tls = rng_chance(&g, 500000);
    if (r.has_tls) {
        r.tls = (struct access_tls){.version = "TLSv1.3", .cipher = "C", .resumed = true};
        fill_text(r.tls.sni, sizeof(r.tls.sni), &g);
    }
    return r;
}

static void assert_same(const struct access_record *a, const struct access_record *b)
{
    assert_int_equal(a->wall_ns, b->wall_ns);
    assert_int_equal(a->bytes_out, b->bytes_out);
    assert_int_equal(a->status, b->status);
    assert_int_equal(a->reused, b->reused);
    assert_string_equal(a->method, b->method);
    assert_string_equal(a->listener, b->listener);
    assert_string_equal(a->upstream, b->upstream);
    assert_string_equal(a->host, b->host);
    if (b->has_id)
        assert_string_equal(a->request_id, b->request_id);
    if (b->has_trace)
        assert_memory_equal(a->trace_id, b->trace_id, sizeof(a->trace_id));
    assert_int_equal(a->has_ip6, b->has_ip6);
    if (b->has_ip6)
        assert_memory_equal(a->client_ip6, b->client_ip6, sizeof(a->client_ip6));
    assert_int_equal(a->has_tls, b->has_tls);
    if (b->has_tls) {
        assert_ptr_equal(a->tls.version, b->tls.version);
        assert_string_equal(a->tls.sni, b->tls.sni);
    }
    /* What a target loses when everything is long is its end. */
    size_t n = strlen(a->target);
    if (n < 80)
        assert_string_equal(a->target, b->target);
    assert_memory_equal(a->target, b->target, n);
}

static void records_of_any_length_come_out_as_they_went_in(void **state)
{
    struct access_ring *ring = access_ring_new(16);
    struct rng g = {7};
    uint64_t in = 1, out = 1;
    for (int step = 0; step < 20000; step++) {
        struct access_record r;
        if (rng_chance(&g, 500000)) {
            r = random_record(in);
            in += access_ring_put(ring, &r);
        } else if (access_ring_take(ring, &r)) {
            struct access_record want = random_record(out++);
            assert_same(&r, &want);
        } else {
            assert_int_equal(in, out);
        }
        assert_true(in - out <= 16 * 8);
    }
    access_ring_free(ring);
}

static void a_full_ring_drops_and_counts(void **state)
{
    struct access_ring *ring = access_ring_new(16);
    struct access_record r, got;
    memset(&r, 0, sizeof(r));
    memset(r.method, 'm', sizeof(r.method) - 1);
    memset(r.listener, 'l', sizeof(r.listener) - 1);
    memset(r.upstream, 'u', sizeof(r.upstream) - 1);
    memset(r.host, 'h', sizeof(r.host) - 1);
    memset(r.target, 't', sizeof(r.target) - 1);
    unsigned held = 0;
    while (access_ring_put(ring, &r))
        held++;
    assert_in_range(held, 16, 128); /* the longest records fit as often as was asked for */
    assert_int_equal(access_ring_dropped(ring), 1);
    assert_true(access_ring_take(ring, &got));
    assert_same(&got, &r);
    assert_string_equal(got.target, r.target);
    assert_true(access_ring_put(ring, &r));
    assert_false(access_ring_put(ring, &r));
    assert_int_equal(access_ring_dropped(ring), 2);
    access_ring_free(ring);
}

/* A request id is whole, whatever else is long. */
static void the_target_gives_way(void **state)
{
    struct access_ring *ring = access_ring_new(16);
    struct access_record r, got;
    memset(&r, 0, sizeof(r));
    memset(r.method, 'm', sizeof(r.method) - 1);
    memset(r.listener, 'l', sizeof(r.listener) - 1);
    memset(r.upstream, 'u', sizeof(r.upstream) - 1);
    memset(r.host, 'h', sizeof(r.host) - 1);
    memset(r.request_id, 'i', sizeof(r.request_id) - 1);
    r.has_id = r.has_trace = r.has_ip6 = true;
    memset(r.target, 't', sizeof(r.target) - 1);
    for (unsigned i = 0; i < 100; i++) {
        assert_true(access_ring_put(ring, &r));
        assert_true(access_ring_take(ring, &got));
        assert_same(&got, &r);
        assert_in_range(strlen(got.target), 128, sizeof(r.target) - 2);
    }
    access_ring_free(ring);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(records_of_any_length_come_out_as_they_went_in),
        cmocka_unit_test(a_full_ring_drops_and_counts),
        cmocka_unit_test(the_target_gives_way),
    };
    return cmocka_run_group_tests_name("access_log", tests, NULL, NULL);
}
