#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <errno.h>
#include <string.h>

#include <cmocka.h>

#include <rte_arp.h>
#include <rte_ip.h>

#include "dataplane/net/neighbor.h"
#include "tests/kit/eal.h"
#include "tests/kit/net_rig.h"

#define SEC 1000000000ull
#define MS  1000000ull

static const struct rte_ether_addr other_mac = {{0x02, 0, 0, 0, 0, 0x77}};

static struct net_rig rig;

static void start(const struct net_rig_opts *o)
{
    net_rig_init(&rig, o);
}

static uint64_t drops(enum net_drop d)
{
    return net_stats(rig.net)->drops[d];
}

static int send_byte(uint32_t dst, uint8_t byte)
{
    return net_rig_output(&rig, NULL, dst, 253, &byte, 1, true);
}

static void expect_nothing(void)
{
    assert_null(net_rig_out(&rig));
}

static void expect_request(uint32_t ip, const struct rte_ether_addr *to)
{
    struct rte_mbuf *m = net_rig_out(&rig);
    struct rig_arp a;
    assert_non_null(m);
    assert_true(net_rig_parse_arp(m, &a));
    assert_int_equal(a.op, 1);
    assert_memory_equal(&a.eth_dst, to, 6);
    assert_memory_equal(&a.sha, &rig_us_mac, 6);
    assert_int_equal(a.spa, RIG_US);
    assert_int_equal(a.tpa, ip);
    rte_pktmbuf_free(m);
}

/* The packet of send_byte(). */
static void expect_byte(uint8_t byte, const struct rte_ether_addr *to)
{
    struct rte_mbuf *m = net_rig_out(&rig);
    assert_non_null(m);
    const struct rte_ether_hdr *eh = rte_pktmbuf_mtod(m, const struct rte_ether_hdr *);
    assert_int_equal(m->pkt_len, 14 + 20 + 1);
    assert_memory_equal(&eh->dst_addr, to, 6);
    assert_memory_equal(&eh->src_addr, &rig_us_mac, 6);
    assert_int_equal(eh->ether_type, rte_cpu_to_be_16(RTE_ETHER_TYPE_IPV4));
    assert_int_equal(*rte_pktmbuf_mtod_offset(m, uint8_t *, 34), byte);
    rte_pktmbuf_free(m);
}

static void first_packets_wait_for_the_answer_in_order(void **state)
{
    start(&(struct net_rig_opts){0});
    for (uint8_t i = 0; i < 5; i++)
        assert_int_equal(send_byte(RIG_PEER, i), 0);
    expect_request(RIG_PEER, &rig_broadcast_mac);
    expect_nothing();
    assert_int_equal(net_stats(rig.net)->mbufs_queued, 5);
    net_rig_arp_reply(&rig, RIG_PEER, &rig_peer_mac);
    for (uint8_t i = 0; i < 5; i++)
        expect_byte(i, &rig_peer_mac);
    assert_int_equal(net_stats(rig.net)->mbufs_queued, 0);
    assert_int_equal(send_byte(RIG_PEER, 9), 0);
    expect_byte(9, &rig_peer_mac);
    expect_nothing();
    net_rig_fini(&rig);
}

static unsigned failed_calls;
static uint32_t failed_ip;

static void on_failed(void *ctx, uint32_t next_hop)
{
    failed_calls++;
    failed_ip = next_hop;
}

static void silence_fails_with_backoff_then_at_once_then_asks_again(void **state)
{
    start(&(struct net_rig_opts){0});
    failed_calls = 0;
    net_set_neighbor_failed(rig.net, on_failed, NULL);
    assert_int_equal(send_byte(RIG_PEER, 1), 0);
    expect_request(RIG_PEER, &rig_broadcast_mac);
    net_rig_advance(&rig, 499 * MS);
    expect_nothing();
    net_rig_advance(&rig, 1 * MS);
    expect_request(RIG_PEER, &rig_broadcast_mac);
    net_rig_advance(&rig, 999 * MS);
    expect_nothing();
    net_rig_advance(&rig, 1 * MS);
    expect_request(RIG_PEER, &rig_broadcast_mac);
    net_rig_advance(&rig, 1999 * MS);
    assert_int_equal(failed_calls, 0);
    net_rig_advance(&rig, 1 * MS);
    assert_int_equal(failed_calls, 1);
    assert_int_equal(failed_ip, RIG_PEER);
    assert_int_equal(drops(NET_DROP_neigh_failed), 1);
    assert_int_equal(kit_pool_used(rig.pool), 0);

    assert_int_equal(send_byte(RIG_PEER, 2), -EHOSTUNREACH);
    expect_nothing();
    net_rig_advance(&rig, 1 * SEC);
    assert_int_equal(send_byte(RIG_PEER, 3), 0);
    expect_request(RIG_PEER, &rig_broadcast_mac);
    net_rig_arp_reply(&rig, RIG_PEER, &rig_peer_mac);
    expect_byte(3, &rig_peer_mac);
    net_rig_fini(&rig);
}

static void a_neighbour_in_use_is_refreshed_by_unicast(void **state)
{
    start(&(struct net_rig_opts){.seed = 5});
    send_byte(RIG_PEER, 0);
    net_rig_arp_reply(&rig, RIG_PEER, &rig_peer_mac);
    net_rig_out_clear(&rig);
    unsigned requests = 0, bytes = 0;
    for (unsigned i = 0; i < 200; i++) { /* 200 s of use, answered */
        net_rig_advance(&rig, 1 * SEC);
        assert_int_equal(send_byte(RIG_PEER, (uint8_t)i), 0);
        for (struct rte_mbuf *m; (m = net_rig_out(&rig));) {
            struct rig_arp a;
            if (net_rig_parse_arp(m, &a)) {
                assert_memory_equal(&a.eth_dst, &rig_peer_mac, 6);
                requests++;
                net_rig_arp_reply(&rig, RIG_PEER, &rig_peer_mac);
            } else {
                bytes++;
            }
            rte_pktmbuf_free(m);
        }
    }
    assert_int_equal(bytes, 200);     /* nothing waits while it is being asked */
    assert_in_range(requests, 4, 14); /* every 15 to 45 s */
    net_rig_fini(&rig);
}

static void an_idle_neighbour_is_not_asked_and_goes_away(void **state)
{
    start(&(struct net_rig_opts){0});
    send_byte(RIG_PEER, 0);
    net_rig_arp_reply(&rig, RIG_PEER, &rig_peer_mac);
    net_rig_out_clear(&rig);
    net_rig_advance(&rig, 300 * SEC);
    expect_nothing();
    assert_int_equal(net_stats(rig.net)->neighbors, 1);
    net_rig_advance(&rig, 1000 * SEC);
    expect_nothing();
    assert_int_equal(net_stats(rig.net)->neighbors, 0);
    assert_int_equal(timer_wheel_count(&rig.sched.wheel), 0);
    net_rig_fini(&rig);
}

static void a_probe_without_answer_asks_everyone_and_finds_the_new_mac(void **state)
{
    start(&(struct net_rig_opts){0});
    struct net_path path = {0};
    uint8_t b = 1;
    net_rig_output(&rig, &path, RIG_PEER, 253, &b, 1, true);
    net_rig_arp_reply(&rig, RIG_PEER, &rig_peer_mac);
    net_rig_out_clear(&rig);
    net_rig_advance(&rig, 60 * SEC);
    net_rig_output(&rig, &path, RIG_PEER, 253, &b, 1, true);
    expect_request(RIG_PEER, &rig_peer_mac);
    expect_byte(1, &rig_peer_mac);
    for (unsigned i = 0; i < 2; i++) {
        net_rig_advance(&rig, 1 * SEC);
        expect_request(RIG_PEER, &rig_peer_mac);
    }
    net_rig_advance(&rig, 1 * SEC);
    expect_request(RIG_PEER, &rig_broadcast_mac);
    b = 2;
    net_rig_output(&rig, &path, RIG_PEER, 253, &b, 1, true);
    expect_nothing();
    net_rig_arp_reply(&rig, RIG_PEER, &other_mac);
    expect_byte(2, &other_mac);
    net_rig_fini(&rig);
}

static void requests_for_us_are_answered_and_learnt(void **state)
{
    start(&(struct net_rig_opts){0});
    struct rig_arp q = {
        .op = 1, .eth_dst = rig_broadcast_mac, .sha = rig_peer_mac, .spa = RIG_PEER, .tpa = RIG_US};
    net_rig_in(&rig, net_rig_arp(&rig, &q));
    struct rte_mbuf *m = net_rig_out(&rig);
    struct rig_arp a;
    assert_non_null(m);
    assert_true(net_rig_parse_arp(m, &a));
    assert_int_equal(a.op, 2);
    assert_memory_equal(&a.eth_dst, &rig_peer_mac, 6);
    assert_memory_equal(&a.sha, &rig_us_mac, 6);
    assert_memory_equal(&a.tha, &rig_peer_mac, 6);
    assert_int_equal(a.spa, RIG_US);
    assert_int_equal(a.tpa, RIG_PEER);
    rte_pktmbuf_free(m);
    assert_int_equal(net_stats(rig.net)->neighbors, 1);
    send_byte(RIG_PEER, 7); /* known: goes at once, with a check that it hears us */
    expect_request(RIG_PEER, &rig_peer_mac);
    expect_byte(7, &rig_peer_mac);
    net_rig_fini(&rig);
}

/* RFC 5227: a probe has no sender address and must be answered. */
static void a_probe_for_our_address_is_answered_but_not_learnt(void **state)
{
    start(&(struct net_rig_opts){0});
    struct rig_arp q = {.op = 1, .eth_dst = rig_broadcast_mac, .sha = other_mac, .tpa = RIG_US};
    net_rig_in(&rig, net_rig_arp(&rig, &q));
    assert_int_equal(net_rig_out_clear(&rig), 1);
    assert_int_equal(net_stats(rig.net)->neighbors, 0);
    assert_int_equal(net_stats(rig.net)->arp_replies, 1);
    net_rig_fini(&rig);
}

static void a_copy_from_another_core_teaches_but_is_not_answered(void **state)
{
    start(&(struct net_rig_opts){0});
    struct rig_arp q = {
        .op = 1, .eth_dst = rig_broadcast_mac, .sha = rig_peer_mac, .spa = RIG_PEER, .tpa = RIG_US};
    net_input_copy(rig.net, &rig.nif, net_rig_arp(&rig, &q));
    expect_nothing();
    assert_int_equal(net_stats(rig.net)->neighbors, 1);
    q.sha = other_mac;
    q.spa = RIG_US;
    net_input_copy(rig.net, &rig.nif, net_rig_arp(&rig, &q));
    expect_nothing();
    net_rig_fini(&rig);
}

static void unasked_replies_update_but_never_create(void **state)
{
    start(&(struct net_rig_opts){0});
    net_rig_arp_reply(&rig, RIG_PEER, &other_mac);
    assert_int_equal(net_stats(rig.net)->neighbors, 0);
    send_byte(RIG_PEER, 0);
    net_rig_arp_reply(&rig, RIG_PEER, &rig_peer_mac);
    net_rig_out_clear(&rig);
    /* A take-over is announced: the new MAC is used from now on, and checked. */
    struct rig_arp g = {
        .op = 1, .eth_dst = rig_broadcast_mac, .sha = other_mac, .spa = RIG_PEER, .tpa = RIG_PEER};
    net_rig_in(&rig, net_rig_arp(&rig, &g));
    send_byte(RIG_PEER, 3);
    expect_request(RIG_PEER, &other_mac);
    expect_byte(3, &other_mac);
    net_rig_fini(&rig);
}

static void our_addresses_are_announced_three_times(void **state)
{
    start(&(struct net_rig_opts){.announce = true});
    for (unsigned i = 0; i < 3; i++) {
        struct rte_mbuf *m = net_rig_out(&rig);
        struct rig_arp a;
        assert_non_null(m);
        assert_true(net_rig_parse_arp(m, &a));
        assert_int_equal(a.op, 1);
        assert_memory_equal(&a.eth_dst, &rig_broadcast_mac, 6);
        assert_int_equal(a.spa, RIG_US);
        assert_int_equal(a.tpa, RIG_US);
        rte_pktmbuf_free(m);
        expect_nothing();
        net_rig_advance(&rig, 2 * SEC);
    }
    net_rig_advance(&rig, 100 * SEC);
    expect_nothing();
    assert_int_equal(timer_wheel_count(&rig.sched.wheel), 0);
    net_rig_fini(&rig);
}

static void a_second_owner_of_our_address_is_counted_and_told_now_and_then(void **state)
{
    start(&(struct net_rig_opts){0});
    struct rig_arp g = {
        .op = 1, .eth_dst = rig_broadcast_mac, .sha = other_mac, .spa = RIG_US, .tpa = RIG_US};
    for (unsigned i = 0; i < 10; i++)
        net_rig_in(&rig, net_rig_arp(&rig, &g));
    assert_int_equal(net_rig_out_clear(&rig), 1);
    assert_int_equal(net_stats(rig.net)->arp_conflicts, 10);
    assert_int_equal(drops(NET_DROP_arp_conflict), 10);
    net_rig_advance(&rig, 10 * SEC);
    net_rig_in(&rig, net_rig_arp(&rig, &g));
    assert_int_equal(net_rig_out_clear(&rig), 1);
    g.sha = rig_us_mac; /* our own announcement, looped back, is no conflict */
    net_rig_in(&rig, net_rig_arp(&rig, &g));
    assert_int_equal(net_stats(rig.net)->arp_conflicts, 11);
    net_rig_fini(&rig);
}

static void the_queue_is_bounded_and_keeps_the_first(void **state)
{
    start(&(struct net_rig_opts){0});
    for (unsigned i = 0; i < NEIGH_PENDING_MAX; i++)
        assert_int_equal(send_byte(RIG_PEER, (uint8_t)i), 0);
    assert_int_equal(send_byte(RIG_PEER, 200), -ENOBUFS);
    assert_int_equal(drops(NET_DROP_neigh_queue_full), 1);
    net_rig_arp_reply(&rig, RIG_PEER, &rig_peer_mac);
    expect_request(RIG_PEER, &rig_broadcast_mac);
    for (unsigned i = 0; i < NEIGH_PENDING_MAX; i++)
        expect_byte((uint8_t)i, &rig_peer_mac);
    expect_nothing();
    net_rig_fini(&rig);
}

static void all_queues_together_are_bounded(void **state)
{
    start(&(struct net_rig_opts){0});
    unsigned ok = 0;
    for (unsigned host = 2; host < 40; host++)
        for (unsigned i = 0; i < 20; i++)
            ok += send_byte(IP4(10, 0, 0, host), 0) == 0;
    assert_int_equal(ok, NEIGH_PENDING_TOTAL);
    assert_int_equal(net_stats(rig.net)->mbufs_queued, NEIGH_PENDING_TOTAL);
    net_rig_advance(&rig, 4 * SEC);
    assert_int_equal(net_stats(rig.net)->mbufs_queued, 0);
    net_rig_out_clear(&rig);
    assert_int_equal(kit_pool_used(rig.pool), 0);
    net_rig_fini(&rig);
}

static void a_full_table_evicts_what_is_unused(void **state)
{
    start(&(struct net_rig_opts){.max_neighbors = 8});
    struct net_path path = {0};
    uint8_t b = 1;
    for (unsigned host = 2; host < 10; host++) {
        assert_int_equal(send_byte(IP4(10, 0, 0, host), 0), 0);
        net_rig_arp_reply(&rig, IP4(10, 0, 0, host), &rig_peer_mac);
    }
    assert_int_equal(net_rig_output(&rig, &path, IP4(10, 0, 0, 5), 253, &b, 1, true), 0);
    assert_int_equal(net_stats(rig.net)->neighbors, 8);
    assert_int_equal(send_byte(IP4(10, 0, 0, 20), 0), -ENOBUFS); /* all just used */
    assert_int_equal(drops(NET_DROP_neigh_table_full), 1);
    net_rig_advance(&rig, 6 * SEC);
    net_rig_out_clear(&rig);
    net_rig_output(&rig, &path, IP4(10, 0, 0, 5), 253, &b, 1, true);
    expect_byte(1, &rig_peer_mac);
    for (unsigned host = 20; host < 24; host++) {
        assert_int_equal(send_byte(IP4(10, 0, 0, host), 0), 0);
        net_rig_arp_reply(&rig, IP4(10, 0, 0, host), &other_mac);
        net_rig_out_clear(&rig);
    }
    assert_int_equal(net_stats(rig.net)->neigh_evicted, 4);
    assert_int_equal(net_stats(rig.net)->neighbors, 8);
    /* What is in use has stayed, through a path from before. */
    net_rig_output(&rig, &path, IP4(10, 0, 0, 5), 253, &b, 1, true);
    expect_byte(1, &rig_peer_mac);
    net_rig_fini(&rig);
}

/* SYN+ACKs to spoofed sources of our own wire. */
static void unanswered_questions_take_half_the_table_at_most(void **state)
{
    start(&(struct net_rig_opts){.max_neighbors = 16});
    for (unsigned host = 2; host < 200; host++)
        send_byte(IP4(10, 0, 0, host), 0);
    assert_int_equal(net_stats(rig.net)->neighbors, 8);
    assert_int_equal(net_stats(rig.net)->arp_requests, 8);
    struct rig_arp q = {.op = 1,
                        .eth_dst = rig_broadcast_mac,
                        .sha = other_mac,
                        .spa = IP4(10, 0, 0, 201),
                        .tpa = RIG_US};
    net_rig_in(&rig, net_rig_arp(&rig, &q));
    assert_int_equal(net_stats(rig.net)->neighbors, 9);
    net_rig_fini(&rig);
}

static void malformed_arp_is_counted(void **state)
{
    static const struct {
        const char *what;
        unsigned off;
        uint8_t value;
    } cases[] = {
        {"hardware type", 15, 6},    {"protocol type", 16, 0x86}, {"hardware length", 18, 8},
        {"protocol length", 19, 16}, {"opcode 0", 21, 0},         {"opcode 9", 21, 9},
        {"multicast sender", 22, 1},
    };
    start(&(struct net_rig_opts){0});
    struct rig_arp q = {
        .op = 1, .eth_dst = rig_broadcast_mac, .sha = rig_peer_mac, .spa = RIG_PEER, .tpa = RIG_US};
    for (unsigned i = 0; i < RTE_DIM(cases); i++) {
        struct rte_mbuf *m = net_rig_arp(&rig, &q);
        rte_pktmbuf_mtod(m, uint8_t *)[cases[i].off] = cases[i].value;
        net_rig_in(&rig, m);
        assert_int_equal(drops(NET_DROP_arp_bad), i + 1);
    }
    struct rte_mbuf *m = net_rig_arp(&rig, &q);
    rte_pktmbuf_trim(m, m->data_len - 14 - 27);
    net_rig_in(&rig, m);
    assert_int_equal(drops(NET_DROP_arp_bad), RTE_DIM(cases) + 1);
    q.tpa = RIG_GATEWAY;
    net_rig_in(&rig, net_rig_arp(&rig, &q));
    assert_int_equal(drops(NET_DROP_arp_not_for_us), 1);
    expect_nothing();
    assert_int_equal(net_stats(rig.net)->neighbors, 0);
    net_rig_fini(&rig);
}

static void addresses_off_the_wire_are_not_learnt(void **state)
{
    start(&(struct net_rig_opts){0});
    const uint32_t spas[] = {RIG_FAR, IP4(10, 0, 0, 255), IP4(10, 0, 0, 0), IP4(224, 0, 0, 1),
                             UINT32_MAX};
    for (unsigned i = 0; i < RTE_DIM(spas); i++) {
        struct rig_arp q = {
            .op = 1, .eth_dst = rig_broadcast_mac, .sha = other_mac, .spa = spas[i], .tpa = RIG_US};
        net_rig_in(&rig, net_rig_arp(&rig, &q));
    }
    assert_int_equal(net_stats(rig.net)->neighbors, 0);
    net_rig_fini(&rig);
}

static void without_mbufs_a_request_is_counted_and_a_retry_asks_later(void **state)
{
    start(&(struct net_rig_opts){.mbufs = 3});
    struct rte_mbuf *hold[2] = {rte_pktmbuf_alloc(rig.pool), rte_pktmbuf_alloc(rig.pool)};
    struct rig_arp q = {.op = 1,
                        .eth_dst = rig_broadcast_mac,
                        .sha = rig_peer_mac,
                        .spa = RIG_GATEWAY,
                        .tpa = RIG_US};
    net_rig_in(&rig, net_rig_arp(&rig, &q));
    assert_int_equal(drops(NET_DROP_no_mbuf), 1);
    assert_int_equal(send_byte(RIG_PEER, 1), 0);
    expect_nothing();
    rte_pktmbuf_free(hold[0]);
    net_rig_advance(&rig, 500 * MS);
    expect_request(RIG_PEER, &rig_broadcast_mac);
    rte_pktmbuf_free(hold[1]);
    net_rig_arp_reply(&rig, RIG_PEER, &rig_peer_mac);
    expect_byte(1, &rig_peer_mac);
    net_rig_fini(&rig);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(first_packets_wait_for_the_answer_in_order),
        cmocka_unit_test(silence_fails_with_backoff_then_at_once_then_asks_again),
        cmocka_unit_test(a_neighbour_in_use_is_refreshed_by_unicast),
        cmocka_unit_test(an_idle_neighbour_is_not_asked_and_goes_away),
        cmocka_unit_test(a_probe_without_answer_asks_everyone_and_finds_the_new_mac),
        cmocka_unit_test(requests_for_us_are_answered_and_learnt),
        cmocka_unit_test(a_probe_for_our_address_is_answered_but_not_learnt),
        cmocka_unit_test(a_copy_from_another_core_teaches_but_is_not_answered),
        cmocka_unit_test(unasked_replies_update_but_never_create),
        cmocka_unit_test(our_addresses_are_announced_three_times),
        cmocka_unit_test(a_second_owner_of_our_address_is_counted_and_told_now_and_then),
        cmocka_unit_test(the_queue_is_bounded_and_keeps_the_first),
        cmocka_unit_test(all_queues_together_are_bounded),
        cmocka_unit_test(a_full_table_evicts_what_is_unused),
        cmocka_unit_test(unanswered_questions_take_half_the_table_at_most),
        cmocka_unit_test(malformed_arp_is_counted),
        cmocka_unit_test(addresses_off_the_wire_are_not_learnt),
        cmocka_unit_test(without_mbufs_a_request_is_counted_and_a_retry_asks_later),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
