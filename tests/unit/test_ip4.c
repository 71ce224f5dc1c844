#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <errno.h>
#include <string.h>

#include <cmocka.h>

#include <rte_ip.h>

#include "dataplane/net/csum.h"
#include "tests/kit/eal.h"
#include "tests/kit/net_rig.h"

#define PROTO 6

static struct net_rig rig;
static struct ip4_rx got;
static unsigned got_n;
static uint8_t got_bytes[2000];
static uint32_t got_len;

static void take(void *ctx, struct rte_mbuf *m, const struct ip4_rx *rx)
{
    got = *rx;
    got_n++;
    got_len = m->pkt_len;
    rte_memcpy(got_bytes, rte_pktmbuf_read(m, 0, m->pkt_len, got_bytes), m->pkt_len);
    rte_pktmbuf_free(m);
}

static void start(const struct net_rig_opts *o)
{
    net_rig_init(&rig, o);
    net_set_proto(rig.net, PROTO, take, NULL);
    got_n = 0;
}

static uint64_t drops(enum net_drop d)
{
    return net_stats(rig.net)->drops[d];
}

static struct rte_mbuf *packet(void)
{
    return net_rig_ip4(&rig,
                       &(struct rig_ip4){.proto = PROTO, .payload = "hello", .payload_len = 5});
}

static struct rte_ipv4_hdr *ip_of(struct rte_mbuf *m)
{
    return rte_pktmbuf_mtod_offset(m, struct rte_ipv4_hdr *, 14);
}

static void fix_csum(struct rte_mbuf *m)
{
    struct rte_ipv4_hdr *ip = ip_of(m);
    ip->hdr_checksum = 0;
    ip->hdr_checksum = csum_finish(csum_partial(ip, rte_ipv4_hdr_len(ip), 0));
}

static void a_good_packet_reaches_its_protocol(void **state)
{
    start(&(struct net_rig_opts){0});
    net_rig_in(&rig, net_rig_ip4(&rig, &(struct rig_ip4){.proto = PROTO,
                                                         .tos = 0x2e,
                                                         .ttl = 1,
                                                         .payload = "hello",
                                                         .payload_len = 5}));
    assert_int_equal(got_n, 1);
    assert_int_equal(got.src, RIG_PEER);
    assert_int_equal(got.dst, RIG_US);
    assert_int_equal(got.tos, 0x2e);
    assert_int_equal(got.ttl, 1);
    assert_int_equal(got.hdr_len, 20);
    assert_int_equal(got.payload_len, 5);
    assert_false(got.l4_csum_ok);
    assert_memory_equal(got_bytes + 20, "hello", 5);
    assert_int_equal(drops(NET_DROP_delivered), 1);
    net_rig_fini(&rig);
}

static void options_are_skipped_and_padding_is_cut(void **state)
{
    start(&(struct net_rig_opts){0});
    static const uint8_t options[40] = {7, 39, 4}; /* record route, then end of list */
    struct rte_mbuf *m = net_rig_ip4(&rig, &(struct rig_ip4){.proto = PROTO,
                                                             .options = options,
                                                             .options_len = 40,
                                                             .payload = "hello",
                                                             .payload_len = 5});
    memset(rte_pktmbuf_append(m, 100), 0xee, 100);
    net_rig_in(&rig, m);
    assert_int_equal(got_n, 1);
    assert_int_equal(got.hdr_len, 60);
    assert_int_equal(got.payload_len, 5);
    assert_int_equal(got_len, 65);
    net_rig_fini(&rig);
}

/* Padding that stands in segments of its own goes with them. */
static void a_chain_is_cut_to_the_total_length(void **state)
{
    start(&(struct net_rig_opts){0});
    uint8_t payload[300];
    for (unsigned i = 0; i < sizeof payload; i++)
        payload[i] = (uint8_t)i;
    struct rte_mbuf *m = net_rig_ip4(
        &rig, &(struct rig_ip4){.proto = PROTO, .payload = payload, .payload_len = 300});
    struct rte_mbuf *tail = net_rig_mbuf(&rig, payload + 200, 100),
                    *pad = net_rig_mbuf(&rig, payload, 60);
    rte_pktmbuf_trim(m, 100);
    rte_pktmbuf_append(tail, 7);
    rte_pktmbuf_chain(m, tail);
    rte_pktmbuf_chain(m, pad);
    net_rig_in(&rig, m);
    assert_int_equal(got_n, 1);
    assert_int_equal(got_len, 320);
    assert_memory_equal(got_bytes + 20, payload, 300);
    assert_int_equal(kit_pool_used(rig.pool), 0);
    net_rig_fini(&rig);
}

static void headers_in_pieces_are_put_together(void **state)
{
    start(&(struct net_rig_opts){0});
    struct rte_mbuf *m = packet(), *tail;
    uint8_t copy[39];
    memcpy(copy, rte_pktmbuf_mtod(m, void *), 39);
    rte_pktmbuf_trim(m, 29);
    tail = net_rig_mbuf(&rig, copy + 10, 29);
    rte_pktmbuf_chain(m, tail);
    net_rig_in(&rig, m);
    assert_int_equal(got_n, 1);
    assert_memory_equal(got_bytes + 20, "hello", 5);
    net_rig_fini(&rig);
}

static void bad_headers_are_counted_each_under_its_reason(void **state)
{
    start(&(struct net_rig_opts){0});
    struct {
        const char *what;
        uint8_t off, value;
        bool fix;
        enum net_drop why;
    } cases[] = {
        {"version 6", 0, 0x65, true, NET_DROP_ip_version},
        {"version 0", 0, 0x05, true, NET_DROP_ip_version},
        {"header length 4 words", 0, 0x44, true, NET_DROP_ip_header},
        {"header length 0", 0, 0x40, false, NET_DROP_ip_header},
        {"header longer than the packet", 0, 0x4f, false, NET_DROP_ip_header},
        {"total length under the header", 3, 19, true, NET_DROP_ip_header},
        {"total length 0", 3, 0, true, NET_DROP_ip_header},
        {"total length past the frame", 3, 26, true, NET_DROP_ip_header},
        {"total length far past the frame", 2, 0xff, true, NET_DROP_ip_header},
        {"checksum", 10, 0x12, false, NET_DROP_ip_checksum},
        {"destination of someone else", 19, 9, true, NET_DROP_ip_not_local},
        {"more fragments", 6, 0x20, true, NET_DROP_ip_fragment},
        {"fragment's tail", 7, 0x01, true, NET_DROP_ip_fragment},
        {"subnet broadcast", 19, 255, true, NET_DROP_ip_broadcast},
        {"network address", 19, 0, true, NET_DROP_ip_broadcast},
        {"multicast", 16, 224, true, NET_DROP_ip_broadcast},
        {"source 0.x", 12, 0, true, NET_DROP_ip_martian},
        {"source loopback", 12, 127, true, NET_DROP_ip_martian},
        {"source multicast", 12, 224, true, NET_DROP_ip_martian},
        {"source class E", 12, 240, true, NET_DROP_ip_martian},
        {"source ours", 15, 1, true, NET_DROP_ip_martian},
        {"source broadcast", 15, 255, true, NET_DROP_ip_martian},
    };
    for (unsigned i = 0; i < RTE_DIM(cases); i++) {
        struct rte_mbuf *m = packet();
        uint64_t before = drops(cases[i].why);
        rte_pktmbuf_mtod(m, uint8_t *)[14 + cases[i].off] = cases[i].value;
        if (cases[i].fix)
            fix_csum(m);
        net_rig_in(&rig, m);
        if (drops(cases[i].why) != before + 1)
            fail_msg("%s: not counted as %s", cases[i].what, net_drop_name(cases[i].why));
    }
    assert_int_equal(got_n, 0);
    assert_null(net_rig_out(&rig));
    net_rig_fini(&rig);
}

static void frames_are_filtered(void **state)
{
    start(&(struct net_rig_opts){0});
    struct rte_mbuf *m = packet();
    rte_pktmbuf_mtod(m, uint8_t *)[5] = 0x99;
    net_rig_in(&rig, m);
    assert_int_equal(drops(NET_DROP_not_for_us), 1);
    m = packet();
    rte_pktmbuf_mtod(m, uint8_t *)[12] = 0x86;
    net_rig_in(&rig, m);
    assert_int_equal(drops(NET_DROP_ethertype), 1);
    for (unsigned len = 0; len < 14; len++) {
        m = packet();
        rte_pktmbuf_trim(m, m->data_len - len);
        net_rig_in(&rig, m);
    }
    for (unsigned len = 14; len < 34; len++) {
        m = packet();
        rte_pktmbuf_trim(m, m->data_len - len);
        net_rig_in(&rig, m);
    }
    assert_int_equal(drops(NET_DROP_runt), 34);
    /* RFC 1122 §3.3.6: our IP address in a link broadcast. */
    m = packet();
    memset(rte_pktmbuf_mtod(m, void *), 0xff, 6);
    net_rig_in(&rig, m);
    assert_int_equal(drops(NET_DROP_ip_broadcast), 1);
    assert_int_equal(got_n, 0);
    net_rig_fini(&rig);
}

static void the_ports_verdict_on_checksums_is_used(void **state)
{
    start(&(struct net_rig_opts){.offloads = NETIF_RX_CSUM});
    struct rte_mbuf *m = packet();
    m->ol_flags = RTE_MBUF_F_RX_IP_CKSUM_GOOD | RTE_MBUF_F_RX_L4_CKSUM_GOOD;
    ip_of(m)->hdr_checksum ^= 1;
    net_rig_in(&rig, m);
    assert_int_equal(got_n, 1);
    assert_true(got.l4_csum_ok);
    m = packet();
    m->ol_flags = RTE_MBUF_F_RX_IP_CKSUM_BAD;
    net_rig_in(&rig, m);
    assert_int_equal(drops(NET_DROP_ip_checksum), 1);
    m = packet();
    m->ol_flags = RTE_MBUF_F_RX_IP_CKSUM_GOOD | RTE_MBUF_F_RX_L4_CKSUM_BAD;
    net_rig_in(&rig, m);
    assert_int_equal(drops(NET_DROP_l4_checksum), 1);
    /* "Unknown" is verified here. */
    m = packet();
    ip_of(m)->hdr_checksum ^= 1;
    net_rig_in(&rig, m);
    assert_int_equal(drops(NET_DROP_ip_checksum), 2);
    net_rig_in(&rig, packet());
    assert_int_equal(got_n, 2);
    assert_false(got.l4_csum_ok);
    net_rig_fini(&rig);
}

static void a_port_without_the_offload_is_not_believed(void **state)
{
    start(&(struct net_rig_opts){0});
    struct rte_mbuf *m = packet();
    m->ol_flags = RTE_MBUF_F_RX_IP_CKSUM_GOOD | RTE_MBUF_F_RX_L4_CKSUM_GOOD;
    ip_of(m)->hdr_checksum ^= 1;
    net_rig_in(&rig, m);
    assert_int_equal(drops(NET_DROP_ip_checksum), 1);
    net_rig_fini(&rig);
}

static void a_burst_is_taken_whole_each_by_one_reason(void **state)
{
    start(&(struct net_rig_opts){0});
    struct rte_mbuf *burst[32];
    for (unsigned i = 0; i < 32; i++) {
        burst[i] = packet();
        if (i % 3 == 0)
            ip_of(burst[i])->hdr_checksum ^= 1;
    }
    net_input(rig.net, &rig.nif, burst, 32);
    uint64_t sum = 0;
    for (unsigned d = 0; d < NET_DROP_COUNT; d++)
        sum += net_stats(rig.net)->drops[d];
    assert_int_equal(sum, 32);
    assert_int_equal(got_n, 21);
    assert_int_equal(net_stats(rig.net)->rx_packets, 32);
    assert_int_equal(kit_pool_used(rig.pool), 0);
    net_rig_fini(&rig);
}

static void know_peer(void)
{
    net_rig_output(&rig, NULL, RIG_PEER, PROTO, "x", 1, true);
    net_rig_arp_reply(&rig, RIG_PEER, &rig_peer_mac);
    net_rig_out_clear(&rig);
}

static void sent_headers_are_right(void **state)
{
    start(&(struct net_rig_opts){0});
    know_peer();
    for (unsigned df = 0; df < 2; df++) {
        struct net_path p = {0};
        struct rte_mbuf *m = net_rig_mbuf(&rig, "payload", 7);
        assert_int_equal(net_output4(rig.net, &p, m, 0, RIG_PEER, PROTO, 0x02, df), 0);
        m = net_rig_out(&rig);
        struct rte_ipv4_hdr *ip = ip_of(m);
        assert_int_equal(m->pkt_len, 14 + 27);
        assert_int_equal(ip->version_ihl, 0x45);
        assert_int_equal(ip->type_of_service, 0x02);
        assert_int_equal(ip->total_length, rte_cpu_to_be_16(27));
        assert_int_equal(ip->fragment_offset, rte_cpu_to_be_16(df ? 0x4000 : 0));
        assert_int_equal(ip->time_to_live, 64);
        assert_int_equal(ip->next_proto_id, PROTO);
        assert_int_equal(ip->src_addr, RIG_US);
        assert_int_equal(ip->dst_addr, RIG_PEER);
        assert_int_equal(csum_finish(csum_partial(ip, 20, 0)), 0);
        assert_int_equal(m->l2_len, 14);
        assert_int_equal(m->l3_len, 20);
        assert_int_equal(m->ol_flags, 0);
        rte_pktmbuf_free(m);
    }
    net_rig_fini(&rig);
}

static void the_header_checksum_is_left_to_a_port_that_does_it(void **state)
{
    start(&(struct net_rig_opts){.offloads = NETIF_TX_IP_CSUM});
    know_peer();
    net_rig_output(&rig, NULL, RIG_PEER, PROTO, "x", 1, true);
    struct rte_mbuf *m = net_rig_out(&rig);
    assert_int_equal(ip_of(m)->hdr_checksum, 0);
    assert_true(m->ol_flags & RTE_MBUF_F_TX_IP_CKSUM);
    assert_true(m->ol_flags & RTE_MBUF_F_TX_IPV4);
    rte_pktmbuf_free(m);
    net_rig_fini(&rig);
}

static void what_is_larger_than_the_path_is_refused(void **state)
{
    static uint8_t big[1481];
    start(&(struct net_rig_opts){0});
    know_peer();
    struct net_path p = {0};
    assert_int_equal(net_rig_output(&rig, &p, RIG_PEER, PROTO, big, 1480, true), 0);
    assert_int_equal(net_rig_output(&rig, &p, RIG_PEER, PROTO, big, 1481, true), -EMSGSIZE);
    net_pmtu_learn(rig.net, RIG_PEER, 1000);
    assert_int_equal(net_rig_output(&rig, &p, RIG_PEER, PROTO, big, 981, true), -EMSGSIZE);
    assert_int_equal(net_rig_output(&rig, &p, RIG_PEER, PROTO, big, 980, true), 0);
    /* Without DF the routers may fragment it; what the wire can't take they never see. */
    assert_int_equal(net_rig_output(&rig, &p, RIG_PEER, PROTO, big, 1480, false), 0);
    assert_int_equal(net_rig_output(&rig, &p, RIG_PEER, PROTO, big, 1481, false), -EMSGSIZE);
    assert_int_equal(drops(NET_DROP_mtu), 3);
    assert_int_equal(net_rig_out_clear(&rig), 3);
    net_rig_fini(&rig);
}

static void frames_are_classified_by_flow(void **state)
{
    start(&(struct net_rig_opts){0});
    static const uint8_t tcp[20] = {0x1f, 0x90, 0xc0, 0x01};
    struct net_flow f = {0};
    struct rte_mbuf *m =
        net_rig_ip4(&rig, &(struct rig_ip4){.proto = 6, .payload = tcp, .payload_len = 20});
    assert_int_equal(net_classify(m, &f), NET_KIND_TCP4);
    assert_int_equal(f.local_addr, RIG_US);
    assert_int_equal(f.peer_addr, RIG_PEER);
    assert_int_equal(f.local_port, rte_cpu_to_be_16(0xc001));
    assert_int_equal(f.peer_port, rte_cpu_to_be_16(0x1f90));
    for (uint16_t len = 0; len < m->data_len; len++) { /* never reads past the end */
        struct rte_mbuf *cut = net_rig_mbuf(&rig, rte_pktmbuf_mtod(m, void *), len);
        net_classify(cut, &f);
        rte_pktmbuf_free(cut);
    }
    rte_pktmbuf_free(m);
    m = net_rig_ip4(&rig, &(struct rig_ip4){.proto = 17, .payload = tcp, .payload_len = 20});
    assert_int_equal(net_classify(m, &f), NET_KIND_OTHER);
    rte_pktmbuf_free(m);
    m = net_rig_ip4(&rig,
                    &(struct rig_ip4){.proto = 6, .frag = 1, .payload = tcp, .payload_len = 20});
    assert_int_equal(net_classify(m, &f), NET_KIND_OTHER);
    rte_pktmbuf_free(m);
    m = net_rig_arp(&rig, &(struct rig_arp){.op = 1});
    assert_int_equal(net_classify(m, &f), NET_KIND_ARP);
    rte_pktmbuf_free(m);

    /* An ICMP error belongs to the owner of the segment that it quotes. */
    uint8_t icmp[8 + 28] = {3, 1};
    struct rte_ipv4_hdr *q = (struct rte_ipv4_hdr *)(icmp + 8);
    *q = (struct rte_ipv4_hdr){
        .version_ihl = 0x45, .next_proto_id = 6, .src_addr = RIG_US, .dst_addr = RIG_FAR};
    memcpy(icmp + 28, (uint8_t[]){0xc0, 0x01, 0x1f, 0x90, 1, 2, 3, 4}, 8);
    m = net_rig_ip4(&rig,
                    &(struct rig_ip4){.proto = 1, .payload = icmp, .payload_len = sizeof icmp});
    assert_int_equal(net_classify(m, &f), NET_KIND_TCP4);
    assert_int_equal(f.local_addr, RIG_US);
    assert_int_equal(f.peer_addr, RIG_FAR);
    assert_int_equal(f.local_port, rte_cpu_to_be_16(0xc001));
    assert_int_equal(f.peer_port, rte_cpu_to_be_16(0x1f90));
    rte_pktmbuf_free(m);
    net_rig_fini(&rig);
}

static void every_reason_has_a_name_and_a_text(void **state)
{
    for (unsigned d = 0; d < NET_DROP_COUNT; d++) {
        assert_true(strlen(net_drop_name(d)) > 0);
        assert_true(strlen(net_drop_text(d)) > 0);
    }
    assert_string_equal(net_drop_name(NET_DROP_no_route), "no_route");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_good_packet_reaches_its_protocol),
        cmocka_unit_test(options_are_skipped_and_padding_is_cut),
        cmocka_unit_test(a_chain_is_cut_to_the_total_length),
        cmocka_unit_test(headers_in_pieces_are_put_together),
        cmocka_unit_test(bad_headers_are_counted_each_under_its_reason),
        cmocka_unit_test(frames_are_filtered),
        cmocka_unit_test(the_ports_verdict_on_checksums_is_used),
        cmocka_unit_test(a_port_without_the_offload_is_not_believed),
        cmocka_unit_test(a_burst_is_taken_whole_each_by_one_reason),
        cmocka_unit_test(sent_headers_are_right),
        cmocka_unit_test(the_header_checksum_is_left_to_a_port_that_does_it),
        cmocka_unit_test(what_is_larger_than_the_path_is_refused),
        cmocka_unit_test(frames_are_classified_by_flow),
        cmocka_unit_test(every_reason_has_a_name_and_a_text),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
