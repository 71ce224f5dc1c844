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

static bool a_is_closed(struct tcp_pair *p)
{
    return p->a.closed;
}

static bool b_is_closed(struct tcp_pair *p)
{
    return p->b.closed;
}

static bool a_sees_eof(struct tcp_pair *p)
{
    return p->a.eof;
}

static bool nothing_is_left(struct tcp_pair *p)
{
    return stats(p, 0)->conns == 0 && stats(p, 1)->conns == 0;
}

static void handshake_and_bytes_both_ways(void **state)
{
    struct tcp_pair *p = connected(&(struct pair_opts){.seed = 1});
    p->b.chunk = 1448; /* a segment a node: none needs a copy */
    exchange(p, 5000, 700000);
    finish_both(p);
    assert_int_equal(stats(p, 0)->retransmits, 0);
    assert_int_equal(stats(p, 1)->retransmits, 0);
    assert_int_equal(stats(p, 0)->connected, 1);
    assert_int_equal(stats(p, 1)->accepted, 1);
    assert_int_equal(stats(p, 0)->bytes_in, 700000);
    assert_int_equal(stats(p, 1)->bytes_out, 700000);
    assert_true(stats(p, 1)->zero_copy_out > stats(p, 1)->copies_out);
    pair_free(p);
}

static void half_close_keeps_the_other_direction(void **state)
{
    for (unsigned first = 0; first < 2; first++) {
        struct tcp_pair *p = connected(&(struct pair_opts){.seed = 2 + first});
        struct pair_end *e = first ? &p->b : &p->a, *o = first ? &p->a : &p->b;
        e->shutdown = true;
        e->to_send = 30000;
        pair_kick(e);
        pair_sleep(p, PAIR_S);
        assert_true(o->eof && !e->eof);
        assert_int_equal(o->got, 30000);
        o->to_send = 400000; /* against the FIN */
        pair_kick(o);
        must(p, pair_run(p, pair_all_received, 10 * PAIR_S), "bytes are missing");
        finish_both(p);
        pair_free(p);
    }
}

static void closing_at_once_from_both_sides(void **state)
{
    struct tcp_pair *p = connected(&(struct pair_opts){.seed = 4, .delay_ns = 20 * PAIR_MS});
    p->a.shutdown = p->b.shutdown = p->a.close_at_eof = p->b.close_at_eof = true;
    start(p, 3000, 3000);
    must(p, pair_run(p, pair_all_closed, 10 * PAIR_S), "not closed");
    pair_sleep(p, PAIR_S);
    assert_int_equal(stats(p, 0)->time_wait, 1); /* CLOSING on both sides */
    assert_int_equal(stats(p, 1)->time_wait, 1);
    assert_int_equal(p->a.got + p->b.got, 6000);
    pair_free(p);
}

/* The bytes written before close still arrive, and the FIN after them. */
static void close_flushes_in_the_background(void **state)
{
    struct tcp_pair *p = connected(&(struct pair_opts){.seed = 5});
    p->a.to_send = 100000;
    p->a.chunk = 60000;
    pair_kick(&p->a);
    pair_step(p);
    assert_int_equal(p->a.sent, 100000);
    pair_end_close(&p->a);
    p->b.close_at_eof = true;
    must(p, pair_run(p, b_is_closed, 10 * PAIR_S), "b has not seen the end");
    assert_int_equal(p->b.err, 0);
    assert_int_equal(p->b.got, 100000);
    must(p, pair_run(p, nothing_is_left, 10 * PAIR_S), "connections are left");
    pair_free(p);
}

static void close_with_unread_bytes_resets(void **state)
{
    struct tcp_pair *p = connected(&(struct pair_opts){.seed = 6});
    p->a.read_max = 0;
    start(p, 0, 5000);
    pair_sleep(p, PAIR_S);
    pair_end_close(&p->a);
    must(p, pair_run(p, b_is_closed, 10 * PAIR_S), "b is not told");
    assert_int_equal(p->b.err, -ECONNRESET);
    assert_int_equal(stats(p, 1)->reset_in, 1);
    pair_free(p);
}

static void bytes_after_close_are_refused(void **state)
{
    struct tcp_pair *p = connected(&(struct pair_opts){.seed = 7});
    pair_end_close(&p->a);
    pair_sleep(p, PAIR_S); /* a is in FIN_WAIT_2 */
    start(p, 0, 5000);
    must(p, pair_run(p, b_is_closed, 10 * PAIR_S), "b is not told");
    assert_int_equal(p->b.err, -ECONNRESET);
    assert_int_equal(stats(p, 0)->drops[TCP_DROP_after_close], 1);
    must(p, pair_run(p, nothing_is_left, PAIR_S), "connections are left");
    pair_free(p);
}

/* With bytes in flight and unsent the RST still carries a number the peer takes. */
static void abort_resets_from_anywhere(void **state)
{
    for (unsigned seed = 1; seed <= 30; seed++) {
        struct tcp_pair *p = connected(&(struct pair_opts){
            .seed = seed, .delay_ns = PAIR_MS, .tcp = {{0}, {.rcv_buf = 20000}}});
        p->b.read_max = seed % 3 ? UINT64_MAX : 10000; /* or a closed window */
        start(p, 1000000, seed % 2 ? 50000 : 0);
        pair_sleep(p, seed * 700000ull + (seed % 3 ? 0 : 3 * PAIR_S));
        pair_end_abort(&p->a);
        must(p, pair_run(p, b_is_closed, 5 * PAIR_S), "b is not told");
        assert_int_equal(p->b.err, -ECONNRESET);
        must(p, nothing_is_left(p), "connections are left");
        pair_free(p);
    }
}

static void nobody_listens(void **state)
{
    struct tcp_pair *p = pair_new(&(struct pair_opts){.seed = 8});
    assert_int_equal(pair_connect(p), 0);
    must(p, pair_run(p, a_is_closed, PAIR_S), "not refused");
    assert_int_equal(p->a.err, -ECONNREFUSED);
    assert_int_equal(stats(p, 0)->refused, 1);
    assert_int_equal(stats(p, 1)->drops[TCP_DROP_no_listener], 1);
    pair_free(p);
}

static bool lose_tcp(void *ctx, unsigned from, const uint8_t *frame, uint32_t len)
{
    struct pair_segment s;
    unsigned *left = ctx;
    if (!pair_parse(from, frame, len, &s) || *left == 0)
        return false;
    --*left;
    return true;
}

static void a_silent_host_times_the_connect_out(void **state)
{
    unsigned all = UINT32_MAX;
    struct tcp_pair *p =
        pair_new(&(struct pair_opts){.seed = 9, .tcp = {{.connect_timeout_ns = 20 * PAIR_S}}});
    p->filter = lose_tcp;
    p->filter_ctx = &all;
    uint64_t start_ns = p->now;
    assert_int_equal(pair_connect(p), 0);
    must(p, pair_run(p, a_is_closed, 60 * PAIR_S), "still trying");
    assert_int_equal(p->a.err, -ETIMEDOUT);
    assert_true(p->now - start_ns >= 20 * PAIR_S && p->now - start_ns < 21 * PAIR_S);
    assert_int_equal(stats(p, 0)->retransmits, 4); /* after 1, 3, 7 and 15 s */
    pair_free(p);
}

static void a_missing_neighbour_fails_the_connect_quickly(void **state)
{
    struct tcp_pair *p = pair_new(&(struct pair_opts){.seed = 10});
    p->cut = true;
    assert_int_equal(pair_connect(p), 0);
    must(p, pair_run(p, a_is_closed, 10 * PAIR_S), "still trying");
    assert_int_equal(p->a.err, -EHOSTUNREACH);
    pair_free(p);
}

static void a_handshake_survives_losses(void **state)
{
    for (unsigned losses = 1; losses <= 4; losses++) {
        unsigned left = losses;
        struct tcp_pair *p = pair_new(&(struct pair_opts){.seed = 11});
        pair_listen(p);
        p->filter = lose_tcp;
        p->filter_ctx = &left;
        assert_int_equal(pair_connect(p), 0);
        must(p, pair_run(p, pair_established, 60 * PAIR_S), "no handshake");
        exchange(p, 20000, 20000);
        finish_both(p);
        pair_free(p);
    }
}

static void fin_wait_2_of_a_vanished_peer_ends(void **state)
{
    struct tcp_pair *p = connected(&(struct pair_opts){.seed = 12});
    pair_end_close(&p->a);
    pair_sleep(p, PAIR_S);
    p->cut = true;
    pair_sleep(p, 58 * PAIR_S);
    assert_int_equal(stats(p, 0)->conns, 1);
    pair_sleep(p, 2 * PAIR_S);
    assert_int_equal(stats(p, 0)->conns, 0);
    pair_end_abort(&p->b);
    pair_free(p);
}

static void a_vanished_peer_is_noticed(void **state)
{
    /* While data is out: by retransmission. */
    struct tcp_pair *p = connected(&(struct pair_opts){.seed = 13});
    p->cut = true;
    uint64_t start_ns = p->now;
    start(p, 1000, 0);
    must(p, pair_run(p, a_is_closed, 400 * PAIR_S), "a still tries");
    assert_int_equal(p->a.err, -ETIMEDOUT);
    assert_true(p->now - start_ns > 100 * PAIR_S); /* RFC 1122's R2 */
    pair_end_abort(&p->b);
    pair_free(p);
    /* While idle: by keepalive. */
    p = connected(&(struct pair_opts){.seed = 14, .tcp = {{.keepalive_idle_ns = 100 * PAIR_S}}});
    pair_sleep(p, 1000 * PAIR_S);
    assert_false(p->a.closed); /* the probes were answered */
    assert_true(stats(p, 0)->keepalives >= 9);
    p->cut = true;
    must(p, pair_run(p, a_is_closed, 900 * PAIR_S), "a still believes");
    assert_int_equal(p->a.err, -ETIMEDOUT);
    pair_end_abort(&p->b);
    pair_free(p);
}

/* Back to before the connection, for another one. */
static void reset_end(struct pair_end *e)
{
    e->to_send = e->sent = e->got = 0;
    e->shutdown = e->close_at_eof = e->eof = e->connected = e->shut = e->closed = false;
}

static void time_wait_ends_and_is_bounded(void **state)
{
    struct tcp_pair *p = pair_new(&(struct pair_opts){.seed = 15, .tcp = {{.max_time_wait = 3}}});
    pair_listen(p);
    for (unsigned i = 0; i < 5; i++) {
        reset_end(&p->a);
        reset_end(&p->b);
        assert_int_equal(pair_connect(p), 0);
        must(p, pair_run(p, pair_established, PAIR_S), "no handshake");
        p->a.shutdown = true; /* a closes first */
        pair_kick(&p->a);
        pair_sleep(p, 100 * PAIR_MS);
        finish_both(p);
        pair_sleep(p, PAIR_S);
        assert_int_equal(stats(p, 0)->time_wait, i < 3 ? i + 1 : 3);
        assert_int_equal(stats(p, 1)->time_wait, 0);
    }
    pair_sleep(p, 61 * PAIR_S);
    assert_int_equal(stats(p, 0)->time_wait, 0);
    pair_free(p);
}

static void local_ports_run_out_at_once(void **state)
{
    struct tcp_pair *p = pair_new(&(struct pair_opts){
        .seed = 16, .tcp = {{.port_lo = 5000, .port_hi = 5003, .core = 1, .cores = 2}}});
    pair_listen(p);
    p->refuse = true;
    struct stream *s[3];
    struct tcp_connect_opts o = {.dst = rte_cpu_to_be_32(0x0a000002), .dst_port = PAIR_PORT};
    for (unsigned i = 0; i < 2; i++) {
        assert_int_equal(tcp_connect(p->host[0].tcp, &o, &s[i]), 0);
        struct stream_info info;
        stream_get_info(s[i], &info);
        assert_int_equal(info.local_port % 2, 1);
        assert_int_equal(tcp_owner(p->host[0].tcp, info.local_addr,
                                   rte_cpu_to_be_16(info.local_port), info.peer_addr, 80),
                         1);
    }
    assert_int_equal(tcp_connect(p->host[0].tcp, &o, &s[2]), -EADDRNOTAVAIL);
    o.dst_port = PAIR_PORT + 1; /* another endpoint has all of them free */
    assert_int_equal(tcp_connect(p->host[0].tcp, &o, &s[2]), 0);
    for (unsigned i = 0; i < 3; i++)
        stream_abort(s[i]);
    o.dst = rte_cpu_to_be_32(0xc0000201);
    assert_int_equal(tcp_connect(p->host[0].tcp, &o, &s[2]), -ENETUNREACH);
    pair_free(p);
}

static void listeners_come_and_go(void **state)
{
    struct tcp_pair *p = connected(&(struct pair_opts){.seed = 17});
    struct tcp_listener *l;
    struct tcp_listener_opts o = {.addr = rte_cpu_to_be_32(0x0a000002), .port = PAIR_PORT};
    assert_int_equal(tcp_listen(p->host[1].tcp, &o, &l), -EADDRINUSE);
    o.addr = 0; /* every other address */
    assert_int_equal(tcp_listen(p->host[1].tcp, &o, &l), 0);
    tcp_listener_free(p->host[1].tcp, l);
    tcp_listener_free(p->host[1].tcp, p->host[1].listener);
    p->host[1].listener = NULL;
    exchange(p, 100000, 100000); /* what was accepted goes on */
    finish_both(p);
    pair_free(p);
}

static bool frames_have_stopped(struct tcp_pair *p)
{
    return stats(p, 1)->half_open == 1;
}

static void a_listener_that_ends_drops_half_open_connections(void **state)
{
    unsigned none = 0;
    struct tcp_pair *p = pair_new(&(struct pair_opts){.seed = 18, .delay_ns = PAIR_MS});
    pair_listen(p);
    p->filter = lose_tcp;
    p->filter_ctx = &none;
    assert_int_equal(pair_connect(p), 0);
    must(p, pair_run(p, frames_have_stopped, PAIR_S), "no SYN");
    tcp_listener_free(p->host[1].tcp, p->host[1].listener);
    p->host[1].listener = NULL;
    must(p, pair_run(p, a_is_closed, 5 * PAIR_S), "a is not told");
    assert_int_equal(p->accepted, 0);
    assert_true(p->a.err == -ECONNRESET || p->a.err == -ECONNREFUSED);
    pair_free(p);
}

static enum tcp_welcome refuse_all(void *ctx, uint32_t peer_addr)
{
    unsigned *asked = ctx;
    ++*asked;
    return TCP_WELCOME_IGNORE;
}

static void a_listener_over_its_limit_leaves_syns_unanswered(void **state)
{
    unsigned asked = 0;
    struct tcp_pair *p =
        pair_new(&(struct pair_opts){.seed = 19, .tcp = {{.connect_timeout_ns = 10 * PAIR_S}}});
    struct tcp_listener_opts o = {.port = PAIR_PORT, .may_accept = refuse_all, .ctx = &asked};
    assert_int_equal(tcp_listen(p->host[1].tcp, &o, &p->host[1].listener), 0);
    assert_int_equal(pair_connect(p), 0);
    must(p, pair_run(p, a_is_closed, 20 * PAIR_S), "a still tries");
    assert_int_equal(p->a.err, -ETIMEDOUT);
    assert_int_equal(asked, 4);
    assert_int_equal(stats(p, 1)->drops[TCP_DROP_listener_refused], 4);
    assert_int_equal(stats(p, 1)->segs_out, 0);
    pair_free(p);
}

static void an_accepted_stream_may_be_aborted_at_once(void **state)
{
    struct tcp_pair *p = pair_new(&(struct pair_opts){.seed = 20});
    pair_listen(p);
    p->refuse = true;
    assert_int_equal(pair_connect(p), 0);
    must(p, pair_run(p, a_is_closed, PAIR_S), "a is not told");
    assert_int_equal(p->a.err, -ECONNRESET);
    pair_free(p);
}

static void writing_after_shutdown_is_a_mistake(void **state)
{
    struct tcp_pair *p = connected(&(struct pair_opts){.seed = 21});
    p->a.shutdown = true;
    pair_kick(&p->a);
    pair_sleep(p, PAIR_S);
    struct rope r = {0};
    assert_int_equal(rope_append(&p->host[0].ropes, &r, "x", 1), 0);
    assert_int_equal(stream_write(p->a.s, NULL, &r), -EPIPE);
    rope_clear(&p->host[0].ropes, &r);
    assert_int_equal(stream_shutdown(p->a.s), 0);
    assert_true(a_sees_eof(p) == false);
    finish_both(p);
    pair_free(p);
}

static void act(struct pair_end *e, struct rng *rng)
{
    if (!e->s || !e->connected)
        return;
    switch (rng_below(rng, 12)) {
    case 0:
        pair_end_abort(e);
        return;
    case 1:
        pair_end_close(e);
        return;
    case 2:
        e->shutdown = true;
        break;
    case 3:
        e->close_at_eof = true;
        break;
    case 4:
        e->read_max = e->got + rng_below(rng, 20000); /* stops reading there */
        break;
    default:
        e->read_max = UINT64_MAX;
        if (!e->shut)
            e->to_send += rng_below(rng, 40000);
        break;
    }
    pair_kick(e);
}

/* Both applications do anything at any time over a bad wire, which fails for a while too: no byte
 * is wrong, nothing is left over. */
static void random_lives_leave_nothing(void **state)
{
    for (uint64_t seed = 1; seed <= 300; seed++) {
        struct rng rng = {seed};
        struct pair_opts o = {
            .seed = seed,
            .mbufs = 255 + rng_below(&rng, 2000),
            .delay_ns = 1000 + rng_below(&rng, 30000000),
            .loss_ppm = rng_below(&rng, 200000),
            .reorder_ppm = rng_below(&rng, 200000),
            .dup_ppm = rng_below(&rng, 100000),
        };
        for (unsigned i = 0; i < 2; i++) {
            o.tcp[i].rcv_buf = 500 + rng_below(&rng, 100000);
            o.tcp[i].snd_buf = 500 + rng_below(&rng, 100000);
            o.tcp[i].isn_offset = (uint32_t)rng_next(&rng);
            o.tcp[i].mbuf_low = rng_below(&rng, 200);
        }
        struct tcp_pair *p = pair_new(&o);
        pair_listen(p);
        assert_int_equal(pair_connect(p), 0);
        for (unsigned step = 0; step < 30; step++) {
            pair_sleep(p, rng_below(&rng, 1u << (10 + rng_below(&rng, 22))));
            p->cut = rng_below(&rng, 10) == 0;
            act(rng_below(&rng, 2) ? &p->a : &p->b, &rng);
        }
        must(p, !p->a.bad && !p->b.bad, "bytes differ");
        pair_free(p);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(handshake_and_bytes_both_ways),
        cmocka_unit_test(half_close_keeps_the_other_direction),
        cmocka_unit_test(closing_at_once_from_both_sides),
        cmocka_unit_test(close_flushes_in_the_background),
        cmocka_unit_test(close_with_unread_bytes_resets),
        cmocka_unit_test(bytes_after_close_are_refused),
        cmocka_unit_test(abort_resets_from_anywhere),
        cmocka_unit_test(nobody_listens),
        cmocka_unit_test(a_silent_host_times_the_connect_out),
        cmocka_unit_test(a_missing_neighbour_fails_the_connect_quickly),
        cmocka_unit_test(a_handshake_survives_losses),
        cmocka_unit_test(fin_wait_2_of_a_vanished_peer_ends),
        cmocka_unit_test(a_vanished_peer_is_noticed),
        cmocka_unit_test(time_wait_ends_and_is_bounded),
        cmocka_unit_test(local_ports_run_out_at_once),
        cmocka_unit_test(listeners_come_and_go),
        cmocka_unit_test(a_listener_that_ends_drops_half_open_connections),
        cmocka_unit_test(a_listener_over_its_limit_leaves_syns_unanswered),
        cmocka_unit_test(an_accepted_stream_may_be_aborted_at_once),
        cmocka_unit_test(writing_after_shutdown_is_a_mistake),
        cmocka_unit_test(random_lives_leave_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
