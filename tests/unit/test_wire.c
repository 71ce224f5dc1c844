#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include <rte_ether.h>
#include <rte_ip.h>
#include <rte_tcp.h>

#include "dataplane/net/netif.h"
#include "dataplane/port/wire.h"
#include "tests/kit/eal.h"

#define MS    1000000ull
#define START 7777777ull
#define POOL  4096

/* What the tap saw, summed. */
struct seen {
    unsigned sent, lost, overflow, reordered, duplicate, corrupt, no_port, arrived, missed;
};

static struct rte_mempool *pool_a, *pool_b;
static struct wire *w;
static uint64_t now;
static struct seen seen;

static void on_frame(void *ctx, unsigned end, uint64_t at, const uint8_t *bytes, uint32_t len,
                     unsigned fate)
{
    struct seen *s = ctx;
    assert_true(at >= START && len >= RTE_ETHER_HDR_LEN && bytes && end < WIRE_MAX_ENDS);
    s->sent += !!(fate & WIRE_SENT);
    s->lost += !!(fate & WIRE_LOST);
    s->overflow += !!(fate & WIRE_OVERFLOW);
    s->reordered += !!(fate & WIRE_REORDERED);
    s->duplicate += !!(fate & WIRE_DUPLICATE);
    s->corrupt += !!(fate & WIRE_CORRUPT);
    s->no_port += !!(fate & WIRE_NO_PORT);
    s->arrived += !!(fate & WIRE_ARRIVED);
    s->missed += !!(fate & WIRE_MISSED);
}

static void start(struct wire_opts o)
{
    kit_eal_init();
    pool_a = kit_pool_new(POOL);
    pool_b = kit_pool_new(POOL);
    now = START;
    seen = (struct seen){0};
    o.now = START;
    o.seed = o.seed ? o.seed : 1;
    o.ends = o.ends ? o.ends : 2;
    o.queues = o.queues ? o.queues : 1;
    o.tap = on_frame;
    o.tap_ctx = &seen;
    for (unsigned i = 0; i < o.ends; i++)
        o.pools[i] = i == 0 ? pool_a : pool_b;
    w = wire_new(&o);
    assert_non_null(w);
}

static int stop(void **state)
{
    (void)state;
    wire_free(w);
    w = NULL;
    kit_pool_free(pool_a);
    kit_pool_free(pool_b);
    return 0;
}

/* An Ethernet frame from end 0 to end `to`, numbered. */
static struct rte_mbuf *frame(unsigned to, uint32_t number, uint16_t payload)
{
    struct rte_mbuf *m = rte_pktmbuf_alloc(pool_a);
    struct rte_ether_hdr *eth =
        (struct rte_ether_hdr *)rte_pktmbuf_append(m, (uint16_t)(sizeof(*eth) + payload));
    *eth = (struct rte_ether_hdr){.dst_addr = {{0x02, 0, 0, 0, 0, (uint8_t)(to + 1)}},
                                  .src_addr = {{0x02, 0, 0, 0, 0, 1}},
                                  .ether_type = rte_cpu_to_be_16(0x88b5)};
    memset(eth + 1, 0x5c, payload);
    memcpy(eth + 1, &number, sizeof(number));
    return m;
}

/* A TCP segment without data; ports tell flows apart. */
static struct rte_mbuf *segment(uint16_t sport)
{
    struct rte_mbuf *m = frame(1, 0, sizeof(struct rte_ipv4_hdr) + sizeof(struct rte_tcp_hdr));
    struct rte_ether_hdr *eth = rte_pktmbuf_mtod(m, struct rte_ether_hdr *);
    struct rte_ipv4_hdr *ip = (struct rte_ipv4_hdr *)(eth + 1);
    struct rte_tcp_hdr *tcp = (struct rte_tcp_hdr *)(ip + 1);
    eth->ether_type = rte_cpu_to_be_16(RTE_ETHER_TYPE_IPV4);
    *ip = (struct rte_ipv4_hdr){.version_ihl = 0x45,
                                .total_length = rte_cpu_to_be_16(40),
                                .time_to_live = 64,
                                .next_proto_id = 6,
                                .src_addr = rte_cpu_to_be_32(0x0a000001),
                                .dst_addr = rte_cpu_to_be_32(0x0a000002)};
    *tcp = (struct rte_tcp_hdr){
        .src_port = rte_cpu_to_be_16(sport), .dst_port = rte_cpu_to_be_16(80), .data_off = 0x50};
    tcp->cksum = rte_ipv4_udptcp_cksum(ip, tcp);
    ip->hdr_checksum = rte_ipv4_cksum(ip);
    return m;
}

static uint16_t send_mbuf(struct rte_mbuf *m)
{
    struct port *p = wire_port(w, 0);
    return p->ops->tx_burst(p, 0, &m, 1);
}

static void send_frames(uint32_t first, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++)
        assert_int_equal(send_mbuf(frame(1, first + i, 100)), 1);
}

static void advance(uint64_t ns)
{
    now += ns;
    wire_advance(w, now);
}

static struct rte_mbuf *receive(unsigned end, uint16_t queue)
{
    struct rte_mbuf *m = NULL;
    struct port *p = wire_port(w, end);
    p->ops->rx_burst(p, queue, &m, 1);
    return m;
}

static uint32_t number_of(const struct rte_mbuf *m)
{
    uint32_t number;
    memcpy(&number, rte_pktmbuf_mtod_offset(m, char *, sizeof(struct rte_ether_hdr)),
           sizeof(number));
    return number;
}

/* Takes all that end 1 has, frees it; returns how many. */
static unsigned drain(uint32_t *numbers, unsigned max)
{
    unsigned n = 0;
    for (struct rte_mbuf *m; (m = receive(1, 0)); n++) {
        if (n < max)
            numbers[n] = number_of(m);
        rte_pktmbuf_free(m);
    }
    return n;
}

static void a_frame_arrives_after_the_delay_as_a_fresh_mbuf(void **state)
{
    (void)state;
    start((struct wire_opts){.path.delay_ns = 5 * MS});
    struct rte_mbuf *m = frame(1, 42, 100);
    assert_int_equal(send_mbuf(m), 1);
    assert_int_equal(wire_next_timeout(w), START); /* the sent mbuf's completion */
    advance(5 * MS - 1);
    assert_int_equal(kit_pool_used(pool_a), 0);
    assert_null(receive(1, 0));
    assert_int_equal(wire_next_timeout(w), START + 5 * MS);
    advance(1);
    assert_int_equal(wire_rx_pending(w, 1), 1);
    struct rte_mbuf *got = receive(1, 0);
    assert_non_null(got);
    assert_ptr_equal(got->pool, pool_b);
    assert_int_equal(got->pkt_len, 114);
    assert_int_equal(number_of(got), 42);
    assert_int_equal(wire_next_timeout(w), UINT64_MAX);
    rte_pktmbuf_free(got);
}

static void the_sent_mbuf_is_held_until_completion(void **state)
{
    (void)state;
    start((struct wire_opts){.complete_ns = 2 * MS});
    struct rte_mbuf *m = frame(1, 1, 100);
    rte_mbuf_refcnt_update(m, 1); /* as a retransmit queue would */
    send_mbuf(m);
    advance(1 * MS);
    assert_int_equal(rte_mbuf_refcnt_read(m), 2);
    advance(1 * MS);
    assert_int_equal(rte_mbuf_refcnt_read(m), 1);
    rte_pktmbuf_free(m);
    drain(NULL, 0);
}

static void a_full_transmit_ring_takes_no_more(void **state)
{
    (void)state;
    start((struct wire_opts){.tx_ring = 4});
    struct rte_mbuf *pkts[6];
    struct port *p = wire_port(w, 0);
    struct port_counters c;
    for (unsigned i = 0; i < 6; i++)
        pkts[i] = frame(1, i, 100);
    assert_int_equal(p->ops->tx_burst(p, 0, pkts, 6), 4);
    p->ops->counters(p, &c);
    assert_int_equal(c.tx_full, 2);
    advance(0);
    assert_int_equal(p->ops->tx_burst(p, 0, pkts + 4, 2), 2);
}

static void order_is_kept_under_jitter(void **state)
{
    (void)state;
    uint32_t got[200];
    start((struct wire_opts){.path = {.delay_ns = MS, .jitter_ns = 20 * MS}});
    for (uint32_t i = 0; i < 200; i++) {
        send_frames(i, 1);
        advance(1000);
    }
    advance(40 * MS);
    assert_int_equal(drain(got, 200), 200);
    for (uint32_t i = 0; i < 200; i++)
        assert_int_equal(got[i], i);
}

static void reordering_makes_frames_late_but_loses_none(void **state)
{
    (void)state;
    uint32_t got[400];
    unsigned inversions = 0, missing = 400;
    bool there[400] = {false};
    start((struct wire_opts){.tx_ring = 1024, .path = {.delay_ns = MS, .reorder_ppm = 100000}});
    for (uint32_t i = 0; i < 400; i++) {
        send_frames(i, 1);
        advance(100000);
    }
    advance(40 * MS);
    assert_int_equal(drain(got, 400), 400);
    for (uint32_t i = 0; i < 400; i++) {
        inversions += i > 0 && got[i] < got[i - 1];
        missing -= !there[got[i]];
        there[got[i]] = true;
    }
    assert_int_equal(missing, 0);
    assert_true(inversions > 5);
    assert_in_range(seen.reordered, 15, 80);
}

static void loss_and_duplication_come_at_their_rates(void **state)
{
    (void)state;
    start((struct wire_opts){.path = {.loss_ppm = 100000, .duplicate_ppm = 100000}});
    for (unsigned i = 0; i < 2000; i++) {
        send_frames(i, 1);
        advance(5 * MS);
        drain(NULL, 0);
    }
    assert_in_range(seen.lost, 140, 260);
    assert_in_range(seen.duplicate, 120, 250);
    assert_int_equal(seen.arrived, 2000 - seen.lost + seen.duplicate);
}

static void corruption_spares_the_ethernet_header(void **state)
{
    (void)state;
    start((struct wire_opts){.path.corrupt_ppm = 1000000});
    for (unsigned i = 0; i < 200; i++) {
        struct rte_mbuf *m = frame(1, 7, 100);
        char copy[114];
        memcpy(copy, rte_pktmbuf_mtod(m, void *), sizeof(copy));
        send_mbuf(m);
        advance(1);
        struct rte_mbuf *got = receive(1, 0);
        const char *bytes = rte_pktmbuf_mtod(got, const char *);
        assert_memory_equal(bytes, copy, RTE_ETHER_HDR_LEN);
        rte_pktmbuf_free(got);
    }
    assert_int_equal(seen.corrupt, 200);
}

static void a_bottleneck_spaces_frames_and_drops_behind_its_queue(void **state)
{
    (void)state;
    /* 1,000-byte frames at 8 Mbit/s: one a millisecond. */
    start((struct wire_opts){.path = {.rate_bps = 8000000, .queue_packets = 10}});
    for (unsigned i = 0; i < 15; i++)
        send_mbuf(frame(1, i, 986));
    assert_int_equal(seen.overflow, 5);
    for (unsigned i = 1; i <= 10; i++) {
        advance(MS - 1);
        assert_int_equal(wire_rx_pending(w, 1), i - 1);
        advance(1);
        assert_int_equal(wire_rx_pending(w, 1), i);
    }
    assert_int_equal(drain(NULL, 0), 10);
    send_frames(0, 1);
    assert_int_equal(seen.overflow, 5);
}

static void an_empty_pool_or_a_full_ring_misses_the_frame(void **state)
{
    (void)state;
    struct rte_mbuf *all[POOL];
    struct port_counters c;
    struct port *p;
    start((struct wire_opts){.rx_ring = 3});
    p = wire_port(w, 1);
    assert_int_equal(rte_pktmbuf_alloc_bulk(pool_b, all, POOL), 0);
    send_frames(0, 1);
    advance(1);
    rte_pktmbuf_free_bulk(all, POOL);
    send_frames(1, 5);
    advance(1);
    p->ops->counters(p, &c);
    assert_int_equal(c.no_mbuf, 1);
    assert_int_equal(c.rx_missed, 2);
    assert_int_equal(seen.missed, 3);
    assert_int_equal(drain(NULL, 0), 3);
}

static void frames_go_where_their_address_says(void **state)
{
    (void)state;
    start((struct wire_opts){.ends = 3});
    send_mbuf(frame(2, 1, 100));
    advance(1);
    assert_int_equal(wire_rx_pending(w, 1), 0);
    assert_int_equal(wire_rx_pending(w, 2), 1);
    struct rte_mbuf *m = frame(0, 2, 100);
    memset(rte_pktmbuf_mtod(m, void *), 0xff, RTE_ETHER_ADDR_LEN);
    send_mbuf(m);
    advance(1);
    assert_int_equal(wire_rx_pending(w, 0), 0);
    assert_int_equal(wire_rx_pending(w, 1), 1);
    assert_int_equal(wire_rx_pending(w, 2), 2);
    send_mbuf(frame(9, 3, 100));
    assert_int_equal(seen.no_port, 1);
}

static void a_flow_keeps_its_queue_unless_misrouted(void **state)
{
    (void)state;
    unsigned used = 0, strays = 0;
    start((struct wire_opts){.queues = 4});
    for (uint16_t port = 1000; port < 1040; port++) {
        unsigned home = 4;
        for (unsigned i = 0; i < 5; i++) {
            send_mbuf(segment(port));
            advance(1);
            for (uint16_t q = 0; q < 4; q++) {
                struct rte_mbuf *m = receive(1, q);
                if (!m)
                    continue;
                assert_true(home == 4 || home == q);
                home = q;
                rte_pktmbuf_free(m);
            }
        }
        used |= 1u << home;
    }
    assert_int_equal(used, 0xf);
    wire_set_path(w, 0, &(struct wire_path){.misroute_ppm = 1000000});
    for (unsigned i = 0; i < 100; i++) {
        send_mbuf(segment(1000));
        advance(1);
        for (uint16_t q = 0; q < 4; q++) {
            struct rte_mbuf *m = receive(1, q);
            strays |= m ? 1u << q : 0;
            rte_pktmbuf_free(m);
        }
    }
    assert_int_equal(strays, 0xf);
}

static void short_frames_arrive_padded_when_asked(void **state)
{
    (void)state;
    start((struct wire_opts){.pad = true});
    send_mbuf(frame(1, 1, 28));
    advance(1);
    struct rte_mbuf *m = receive(1, 0);
    assert_int_equal(m->pkt_len, 60);
    assert_int_equal(*rte_pktmbuf_mtod_offset(m, uint8_t *, 59), 0xa5);
    rte_pktmbuf_free(m);
}

static void offloaded_checksums_are_filled_and_checked(void **state)
{
    (void)state;
    start((struct wire_opts){.offloads = NETIF_TX_IP_CSUM | NETIF_TX_TCP_CSUM | NETIF_RX_CSUM});
    struct rte_mbuf *m = segment(1000);
    struct rte_ipv4_hdr *ip = rte_pktmbuf_mtod_offset(m, struct rte_ipv4_hdr *, 14);
    struct rte_tcp_hdr *tcp = (struct rte_tcp_hdr *)(ip + 1);
    uint16_t ip_sum = ip->hdr_checksum, tcp_sum = tcp->cksum;
    ip->hdr_checksum = 0;
    tcp->cksum = rte_ipv4_phdr_cksum(ip, 0);
    m->l2_len = 14;
    m->l3_len = 20;
    m->ol_flags |= RTE_MBUF_F_TX_IPV4 | RTE_MBUF_F_TX_IP_CKSUM | RTE_MBUF_F_TX_TCP_CKSUM;
    send_mbuf(m);
    advance(1);
    struct rte_mbuf *got = receive(1, 0);
    ip = rte_pktmbuf_mtod_offset(got, struct rte_ipv4_hdr *, 14);
    assert_int_equal(ip->hdr_checksum, ip_sum);
    assert_int_equal(((struct rte_tcp_hdr *)(ip + 1))->cksum, tcp_sum);
    assert_true(got->ol_flags & RTE_MBUF_F_RX_IP_CKSUM_GOOD);
    assert_true(got->ol_flags & RTE_MBUF_F_RX_L4_CKSUM_GOOD);
    rte_pktmbuf_free(got);

    m = segment(1000);
    rte_pktmbuf_mtod_offset(m, struct rte_tcp_hdr *, 34)->rx_win ^= 1;
    send_mbuf(m);
    advance(1);
    got = receive(1, 0);
    assert_true(got->ol_flags & RTE_MBUF_F_RX_IP_CKSUM_GOOD);
    assert_int_equal(got->ol_flags & RTE_MBUF_F_RX_L4_CKSUM_MASK, RTE_MBUF_F_RX_L4_CKSUM_BAD);
    rte_pktmbuf_free(got);
}

#ifndef NDEBUG
static void writing_into_a_frame_that_is_being_sent_aborts(void **state)
{
    (void)state;
    int status;
    start((struct wire_opts){.complete_ns = MS});
    struct rte_mbuf *m = frame(1, 1, 100);
    send_mbuf(m);
    pid_t child = fork();
    if (child == 0) {
        assert_non_null(freopen("/dev/null", "w", stderr));
        signal(SIGABRT, SIG_DFL);
        rte_pktmbuf_mtod(m, char *)[50] ^= 1;
        advance(MS);
        _exit(0);
    }
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGABRT);
    rte_pktmbuf_mtod(m, char *)[50] ^= 1; /* DPDK's memory is shared with the child */
}
#endif

/* A run's fates as one number. */
static void on_frame_digest(void *ctx, unsigned end, uint64_t at, const uint8_t *bytes,
                            uint32_t len, unsigned fate)
{
    uint64_t *digest = ctx;
    *digest = (*digest ^ (at * 31 + fate * 7 + end)) * 0x100000001b3ull;
    for (uint32_t i = 0; i < len; i++)
        *digest = (*digest ^ bytes[i]) * 0x100000001b3ull;
}

static uint64_t digest_of_run(uint64_t seed)
{
    uint64_t digest = 0;
    kit_eal_init();
    pool_a = kit_pool_new(POOL);
    now = START;
    w = wire_new(&(struct wire_opts){.seed = seed,
                                     .now = START,
                                     .ends = 2,
                                     .queues = 1,
                                     .pools = {pool_a, pool_a},
                                     .path = {.delay_ns = MS,
                                              .jitter_ns = MS,
                                              .loss_ppm = 50000,
                                              .reorder_ppm = 50000,
                                              .duplicate_ppm = 50000,
                                              .corrupt_ppm = 50000},
                                     .tap = on_frame_digest,
                                     .tap_ctx = &digest});
    for (unsigned i = 0; i < 300; i++) {
        send_frames(i, 1);
        advance(100000);
        drain(NULL, 0);
    }
    wire_free(w);
    kit_pool_free(pool_a);
    w = NULL;
    return digest;
}

static void the_same_seed_gives_the_same_run(void **state)
{
    (void)state;
    uint64_t one = digest_of_run(5), again = digest_of_run(5), other = digest_of_run(6);
    assert_true(one == again);
    assert_true(one != other);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_teardown(a_frame_arrives_after_the_delay_as_a_fresh_mbuf, stop),
        cmocka_unit_test_teardown(the_sent_mbuf_is_held_until_completion, stop),
        cmocka_unit_test_teardown(a_full_transmit_ring_takes_no_more, stop),
        cmocka_unit_test_teardown(order_is_kept_under_jitter, stop),
        cmocka_unit_test_teardown(reordering_makes_frames_late_but_loses_none, stop),
        cmocka_unit_test_teardown(loss_and_duplication_come_at_their_rates, stop),
        cmocka_unit_test_teardown(corruption_spares_the_ethernet_header, stop),
        cmocka_unit_test_teardown(a_bottleneck_spaces_frames_and_drops_behind_its_queue, stop),
        cmocka_unit_test_teardown(an_empty_pool_or_a_full_ring_misses_the_frame, stop),
        cmocka_unit_test_teardown(frames_go_where_their_address_says, stop),
        cmocka_unit_test_teardown(a_flow_keeps_its_queue_unless_misrouted, stop),
        cmocka_unit_test_teardown(short_frames_arrive_padded_when_asked, stop),
        cmocka_unit_test_teardown(offloaded_checksums_are_filled_and_checked, stop),
#ifndef NDEBUG
        cmocka_unit_test_teardown(writing_into_a_frame_that_is_being_sent_aborts, stop),
#endif
        cmocka_unit_test(the_same_seed_gives_the_same_run),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
