#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <errno.h>

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

static const struct tcp_stats *stats(struct tcp_pair *p, unsigned host)
{
    return tcp_stats(p->host[host].tcp);
}

static void start(struct tcp_pair *p, uint64_t a_sends, uint64_t b_sends)
{
    p->a.to_send += a_sends;
    p->b.to_send += b_sends;
    pair_kick(&p->a);
    pair_kick(&p->b);
}

static void exchange(struct tcp_pair *p, uint64_t a_sends, uint64_t b_sends)
{
    start(p, a_sends, b_sends);
    must(p, pair_run(p, pair_all_received, 3600 * PAIR_S), "bytes are missing");
    must(p, !p->a.bad && !p->b.bad, "bytes differ");
}

#define MSS 1448

/* Bytes in are bytes out, whatever the wire does. */
static void any_wire(void **state)
{
    for (uint64_t seed = 1; seed <= 100; seed++) {
        struct rng rng = {seed};
        struct pair_opts o = {
            .seed = seed,
            .delay_ns = 1000 + rng_below(&rng, 20000000),
            .loss_ppm = rng_below(&rng, 100000),
            .reorder_ppm = rng_below(&rng, 100000),
            .dup_ppm = rng_below(&rng, 100000),
        };
        for (unsigned i = 0; i < 2; i++) {
            o.tcp[i].rcv_buf = 500 + rng_below(&rng, 200000);
            o.tcp[i].snd_buf = 500 + rng_below(&rng, 200000);
            o.tcp[i].isn_offset = (uint32_t)rng_next(&rng);
        }
        struct tcp_pair *p = connected(&o);
        p->a.chunk = 1 + rng_below(&rng, 5000);
        p->b.chunk = 1 + rng_below(&rng, 5000);
        exchange(p, rng_below(&rng, 200000), rng_below(&rng, 200000));
        finish_both(p);
        pair_free(p);
    }
}

struct first_syn {
    uint32_t seq[2];
};

static bool note_syn(void *ctx, unsigned from, const uint8_t *frame, uint32_t len)
{
    struct first_syn *f = ctx;
    struct pair_segment s;
    if (pair_parse(from, frame, len, &s) && (s.flags & 2))
        f->seq[from] = s.seq;
    return false;
}

static void sequence_numbers_wrap(void **state)
{
    struct first_syn syn = {{0}};
    struct pair_opts o = {.seed = 5, .loss_ppm = 20000, .reorder_ppm = 20000};
    for (unsigned round = 0; round < 2; round++) {
        struct tcp_pair *p = pair_new(&o);
        pair_listen(p);
        p->filter = note_syn;
        p->filter_ctx = &syn;
        assert_int_equal(pair_connect(p), 0);
        must(p, pair_run(p, pair_established, 60 * PAIR_S), "no handshake");
        exchange(p, 300000, 300000);
        finish_both(p);
        if (round)
            assert_true(syn.seq[0] > 0xfffe0000 && syn.seq[1] > 0xfffe0000);
        /* The same run again, but it crosses 2^32 after some 100 KB. */
        for (unsigned i = 0; i < 2; i++)
            o.tcp[i].isn_offset = 0xffff0000u - syn.seq[i];
        pair_free(p);
    }
}

static bool zero_window_is_probed(struct tcp_pair *p)
{
    return stats(p, 0)->zero_window_probes >= 20;
}

struct window_trap {
    unsigned lose; /* ACKs from b that open the window */
    uint16_t last;
};

static bool lose_openings(void *ctx, unsigned from, const uint8_t *frame, uint32_t len)
{
    struct window_trap *t = ctx;
    struct pair_segment s;
    if (!pair_parse(from, frame, len, &s) || from != 1)
        return false;
    if (s.window == 0 || t->lose == 0)
        return false;
    t->lose--;
    return true;
}

/* The window closes for long, probes never give up, and the ACK that opens it is lost. */
static void a_closed_window_is_probed_for_ever(void **state)
{
    struct tcp_pair *p =
        connected(&(struct pair_opts){.seed = 6, .tcp = {{0}, {.rcv_buf = 30000}}});
    struct window_trap trap = {0};
    p->b.read_max = 0;
    start(p, 200000, 0);
    must(p, pair_run(p, zero_window_is_probed, 3600 * PAIR_S), "no probes");
    assert_false(p->a.closed);
    assert_true(stats(p, 1)->mbufs_held < 60);
    assert_true(stats(p, 0)->segs_out < 100); /* backed off */
    trap.lose = 2;
    p->filter = lose_openings;
    p->filter_ctx = &trap;
    p->b.read_max = UINT64_MAX;
    pair_kick(&p->b);
    must(p, pair_run(p, pair_all_received, 200 * PAIR_S), "stuck");
    assert_int_equal(trap.lose, 0);
    finish_both(p);
    pair_free(p);
}

static void a_window_update_goes_out_at_once(void **state)
{
    struct tcp_pair *p =
        connected(&(struct pair_opts){.seed = 7, .tcp = {{0}, {.rcv_buf = 30000}}});
    p->b.read_max = 0;
    start(p, 100000, 0);
    pair_sleep(p, 10 * PAIR_S);
    p->b.read_max = UINT64_MAX;
    pair_kick(&p->b);
    must(p, pair_run(p, pair_all_received, 10 * PAIR_MS), "not at once");
    finish_both(p);
    pair_free(p);
}

static void both_windows_closed_and_no_storm(void **state)
{
    struct tcp_pair *p =
        connected(&(struct pair_opts){.seed = 8, .tcp = {{.rcv_buf = 10000}, {.rcv_buf = 10000}}});
    p->a.read_max = p->b.read_max = 0;
    start(p, 100000, 100000);
    pair_sleep(p, 5 * PAIR_S);
    uint64_t frames = p->frames;
    pair_sleep(p, 600 * PAIR_S);
    assert_true(p->frames - frames < 100);
    p->a.read_max = p->b.read_max = UINT64_MAX;
    pair_kick(&p->a);
    pair_kick(&p->b);
    must(p, pair_run(p, pair_all_received, 10 * PAIR_S), "stuck");
    finish_both(p);
    pair_free(p);
}

/* Less than a segment of buffer still moves, and not byte by byte. */
static void small_buffers_work(void **state)
{
    const uint32_t sizes[] = {100, 536, 1447, 1448, 1500, 2896, 5000};
    for (unsigned i = 0; i < sizeof(sizes) / sizeof(*sizes); i++) {
        struct tcp_pair *p = connected(
            &(struct pair_opts){.seed = 9 + i, .tcp = {{.snd_buf = 60000}, {.rcv_buf = sizes[i]}}});
        exchange(p, 40000, 0);
        uint64_t segs = stats(p, 0)->segs_out;
        must(p, segs < 20 + 4 * 40000 / (sizes[i] < MSS ? sizes[i] : MSS), "silly windows");
        finish_both(p);
        pair_free(p);
    }
}

struct lose_one {
    uint32_t nth; /* data segment of a, counted from 1; lost once */
    uint32_t seen, lost;
};

static bool lose_nth(void *ctx, unsigned from, const uint8_t *frame, uint32_t len)
{
    struct lose_one *l = ctx;
    struct pair_segment s;
    if (from != 0 || !pair_parse(from, frame, len, &s) || s.len == 0)
        return false;
    if (++l->seen != l->nth)
        return false;
    l->lost++;
    return true;
}

static void one_loss_is_repaired_by_fast_retransmit(void **state)
{
    for (uint32_t nth = 1; nth <= 200; nth += 7) {
        struct tcp_pair *p = connected(&(struct pair_opts){.seed = nth, .delay_ns = 10 * PAIR_MS});
        struct lose_one lose = {.nth = nth};
        p->filter = lose_nth;
        p->filter_ctx = &lose;
        exchange(p, 400000, 0);
        assert_int_equal(lose.lost, 1);
        must(p, stats(p, 0)->fast_retransmits == 1, "not one fast retransmit");
        must(p, stats(p, 0)->retransmits == 1, "not one retransmission");
        must(p, stats(p, 0)->rto == 0, "a timeout");
        finish_both(p);
        pair_free(p);
    }
}

static void a_lost_tail_is_repaired_by_timeout(void **state)
{
    struct tcp_pair *p = connected(&(struct pair_opts){.seed = 21, .delay_ns = 10 * PAIR_MS});
    exchange(p, 1000, 1000);
    pair_sleep(p, PAIR_S);
    struct lose_one lose = {.nth = 1};
    p->filter = lose_nth;
    p->filter_ctx = &lose;
    uint64_t before = p->now;
    exchange(p, 1000, 0);
    assert_int_equal(stats(p, 0)->rto, 1);
    assert_true(p->now - before >= 200 * PAIR_MS && p->now - before < 300 * PAIR_MS);
    finish_both(p);
    pair_free(p);
}

/* RFC 6928 in both roles, and growth only by ACKs. */
struct flight {
    unsigned from;
    uint32_t first, end;
    uint32_t segments;
};

static bool count_first_flight(void *ctx, unsigned from, const uint8_t *frame, uint32_t len)
{
    struct flight *f = ctx;
    struct pair_segment s;
    if (from == f->from && pair_parse(from, frame, len, &s) && s.len)
        f->segments++;
    return false;
}

static void the_first_flight_is_ten_segments(void **state)
{
    for (unsigned from = 0; from < 2; from++) {
        struct tcp_pair *p = connected(&(struct pair_opts){.seed = 22, .delay_ns = 50 * PAIR_MS});
        struct flight f = {.from = from};
        pair_sleep(p, PAIR_S);
        p->filter = count_first_flight;
        p->filter_ctx = &f;
        p->a.chunk = p->b.chunk = MSS;
        start(p, from ? 0 : 200000, from ? 200000 : 0);
        pair_sleep(p, 90 * PAIR_MS);
        assert_int_equal(f.segments, 10);
        pair_sleep(p, 100 * PAIR_MS);
        must(p, f.segments == 30, "30");
        must(p, pair_run(p, pair_all_received, 10 * PAIR_S), "bytes are missing");
        finish_both(p);
        pair_free(p);
    }
}

static void acks_are_delayed_and_every_second_segment(void **state)
{
    struct tcp_pair *p = connected(&(struct pair_opts){.seed = 23, .delay_ns = 5 * PAIR_MS});
    pair_sleep(p, PAIR_S);
    uint64_t before = stats(p, 1)->segs_out;
    p->a.chunk = MSS;
    exchange(p, 100, 0);
    pair_sleep(p, 30 * PAIR_MS);
    assert_int_equal(stats(p, 1)->segs_out, before);
    pair_sleep(p, 30 * PAIR_MS);
    assert_int_equal(stats(p, 1)->segs_out, before + 1);
    before = stats(p, 1)->segs_out;
    exchange(p, 100 * MSS, 0);
    pair_sleep(p, PAIR_S);
    uint64_t acks = stats(p, 1)->segs_out - before;
    must(p, acks >= 10 && acks <= 51, "too few or too many ACKs"); /* one a burst at most */
    finish_both(p);
    pair_free(p);
}

/* A reader that stops, a writer of single bytes: what is held stays within the allowance. */
static void tiny_segments_do_not_pin_the_pool(void **state)
{
    struct tcp_pair *p = connected(&(struct pair_opts){
        .seed = 24, .mbufs = 1023, .tcp = {{.snd_buf = 3000}, {.rcv_buf = 60000}}});
    p->a.chunk = 1;
    p->b.read_max = 0;
    start(p, 30000, 0);
    pair_sleep(p, 60 * PAIR_S);
    assert_true(stats(p, 1)->mbufs_held < 40);
    p->b.read_max = UINT64_MAX;
    pair_kick(&p->b);
    must(p, pair_run(p, pair_all_received, 600 * PAIR_S), "bytes are missing");
    assert_false(p->b.bad);
    finish_both(p);
    pair_free(p);
}

/* Pools so small that every path meets an empty one: slower, but it all arrives. */
static void without_mbufs_all_slows_down_and_recovers(void **state)
{
    for (unsigned seed = 1; seed <= 30; seed++) {
        struct tcp_pair *p = connected(&(struct pair_opts){
            .seed = seed,
            .mbufs = 31 + seed,
            .loss_ppm = seed * 1000,
            .tcp = {{.mbuf_low = 20}, {.mbuf_low = 20}},
        });
        p->host[0].ropes.reserve = p->host[1].ropes.reserve = 12;
        exchange(p, 60000, 60000);
        finish_both(p);
        pair_free(p);
    }
}

static void checksums_are_left_to_ports_that_do_them(void **state)
{
    struct tcp_pair *p = connected(&(struct pair_opts){
        .seed = 25, .offloads = NETIF_TX_TCP_CSUM | NETIF_TX_IP_CSUM | NETIF_RX_CSUM});
    exchange(p, 100000, 100000);
    finish_both(p);
    pair_free(p);
}

static void big_transfer(void **state)
{
    struct tcp_pair *p = connected(&(struct pair_opts){.seed = 26, .loss_ppm = 1000});
    p->b.chunk = p->a.chunk = 20000;
    exchange(p, 4 << 20, 24 << 20);
    finish_both(p);
    pair_free(p);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(any_wire),
        cmocka_unit_test(sequence_numbers_wrap),
        cmocka_unit_test(a_closed_window_is_probed_for_ever),
        cmocka_unit_test(a_window_update_goes_out_at_once),
        cmocka_unit_test(both_windows_closed_and_no_storm),
        cmocka_unit_test(small_buffers_work),
        cmocka_unit_test(one_loss_is_repaired_by_fast_retransmit),
        cmocka_unit_test(a_lost_tail_is_repaired_by_timeout),
        cmocka_unit_test(the_first_flight_is_ten_segments),
        cmocka_unit_test(acks_are_delayed_and_every_second_segment),
        cmocka_unit_test(tiny_segments_do_not_pin_the_pool),
        cmocka_unit_test(without_mbufs_all_slows_down_and_recovers),
        cmocka_unit_test(checksums_are_left_to_ports_that_do_them),
        cmocka_unit_test(big_transfer),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
