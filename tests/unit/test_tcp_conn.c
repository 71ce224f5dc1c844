#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <errno.h>
#include <stdio.h>

#include <cmocka.h>

#include "tests/kit/tcp_pair.h"

static void must(struct tcp_pair *p, bool ok, const char *what)
{
    if (!ok) {
        pair_dump(p);
        fail_msg("%s (seed %llu)", what, (unsigned long long)p->o.seed);
    }
}

static struct tcp_pair *connected(const struct pair_opts *o)
{
    struct tcp_pair *p = pair_new(o);
    pair_listen(p);
    assert_int_equal(pair_connect(p), 0);
    must(p, pair_run(p, pair_established, 120 * PAIR_S), "no handshake");
    return p;
}

static void finish_both(struct tcp_pair *p)
{
    p->a.shutdown = p->b.shutdown = true;
    p->a.close_at_eof = p->b.close_at_eof = true;
    pair_kick(&p->a);
    pair_kick(&p->b);
    must(p, pair_run(p, pair_all_closed, 600 * PAIR_S), "not closed");
    must(p, p->a.err == 0 && p->b.err == 0, "closed with an error");
}

static void exchange(struct tcp_pair *p, uint64_t a_sends, uint64_t b_sends)
{
    p->a.to_send += a_sends;
    p->b.to_send += b_sends;
    pair_kick(&p->a);
    pair_kick(&p->b);
    must(p, pair_run(p, pair_all_received, 3600 * PAIR_S), "bytes are missing");
    must(p, !p->a.bad && !p->b.bad, "bytes differ");
}

static const struct tcp_stats *stats(struct tcp_pair *p, unsigned host)
{
    return tcp_stats(p->host[host].tcp);
}

static void handshake_and_bytes_both_ways(void **state)
{
    struct tcp_pair *p = connected(&(struct pair_opts){.seed = 1});
    p->b.chunk = 1448; /* a segment a node: none needs a copy */
    exchange(p, 5000, 700000);
    finish_both(p);
    assert_int_equal(stats(p, 0)->retransmits, 0);
    assert_int_equal(stats(p, 1)->retransmits, 0);
    assert_true(stats(p, 1)->zero_copy_out > stats(p, 1)->copies_out);
    pair_free(p);
}

/* Bytes in are bytes out, whatever the wire does. */
static void any_wire(void **state)
{
    for (uint64_t seed = 1; seed <= 60; seed++) {
        struct rng rng = {seed};
        struct pair_opts o = {
            .seed = seed,
            .delay_ns = 1000 + rng_below(&rng, 20000000),
            .loss_ppm = rng_below(&rng, 100000),
            .reorder_ppm = rng_below(&rng, 100000),
            .dup_ppm = rng_below(&rng, 100000),
        };
        for (unsigned i = 0; i < 2; i++) {
            o.tcp[i].rcv_buf = 2000 + rng_below(&rng, 200000);
            o.tcp[i].snd_buf = 2000 + rng_below(&rng, 200000);
            o.tcp[i].isn_offset = (uint32_t)rng_next(&rng);
        }
        struct tcp_pair *p = connected(&o);
        p->a.chunk = 1 + rng_below(&rng, 5000);
        p->b.chunk = 1 + rng_below(&rng, 5000);
        exchange(p, rng_below(&rng, 300000), rng_below(&rng, 300000));
        finish_both(p);
        pair_free(p);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(handshake_and_bytes_both_ways),
        cmocka_unit_test(any_wire),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
