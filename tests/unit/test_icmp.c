#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include <rte_ip.h>

#include "dataplane/net/csum.h"
#include "tests/kit/eal.h"
#include "tests/kit/net_rig.h"

#define SEC 1000000000ull

static struct net_rig rig;

static void start(const struct net_rig_opts *o)
{
    net_rig_init(&rig, o);
    net_rig_output(&rig, NULL, RIG_PEER, 253, "x", 1, true);
    net_rig_arp_reply(&rig, RIG_PEER, &rig_peer_mac);
    net_rig_out_clear(&rig);
}

static uint64_t drops(enum net_drop d)
{
    return net_stats(rig.net)->drops[d];
}

/* An ICMP message with its checksum filled in. */
static struct rte_mbuf *icmp(uint8_t type, uint8_t code, uint32_t rest, const void *data,
                             size_t len)
{
    uint8_t msg[1500] = {type, code};
    memcpy(msg + 4, &rest, 4);
    if (len)
        memcpy(msg + 8, data, len);
    uint16_t c = csum_finish(csum_partial(msg, 8 + len, 0));
    memcpy(msg + 2, &c, 2);
    return net_rig_ip4(
        &rig, &(struct rig_ip4){.proto = 1, .payload = msg, .payload_len = (uint16_t)(8 + len)});
}

/* The message in a frame that went out; checks what surrounds it. */
static const uint8_t *sent_icmp(const struct rte_mbuf *m, uint32_t *ret_len)
{
    const struct rte_ipv4_hdr *ip = rte_pktmbuf_mtod_offset(m, const struct rte_ipv4_hdr *, 14);
    assert_int_equal(ip->next_proto_id, 1);
    assert_int_equal(ip->src_addr, RIG_US);
    assert_int_equal(ip->dst_addr, RIG_PEER);
    *ret_len = m->pkt_len - 34;
    assert_int_equal(csum_finish(csum_partial(ip + 1, *ret_len, 0)), 0);
    return (const uint8_t *)(ip + 1);
}

static void echo_comes_back_as_it_was(void **state)
{
    start(&(struct net_rig_opts){0});
    uint8_t data[1400];
    for (unsigned i = 0; i < sizeof data; i++)
        data[i] = (uint8_t)(i * 7);
    const size_t lens[] = {0, 1, 56, 1400};
    for (unsigned i = 0; i < RTE_DIM(lens); i++) {
        net_rig_in(&rig, icmp(8, 0, 0x12345678, data, lens[i]));
        struct rte_mbuf *m = net_rig_out(&rig);
        assert_non_null(m);
        uint32_t len;
        const uint8_t *msg = sent_icmp(m, &len);
        assert_int_equal(len, 8 + lens[i]);
        assert_int_equal(msg[0], 0);
        assert_memory_equal(msg + 4, &(uint32_t){0x12345678}, 4);
        assert_memory_equal(msg + 8, data, lens[i]);
        rte_pktmbuf_free(m);
    }
    assert_int_equal(net_stats(rig.net)->icmp_echo, 4);
    net_rig_fini(&rig);
}

static void an_echo_of_nothing_but_zeros_has_a_good_checksum(void **state)
{
    start(&(struct net_rig_opts){0});
    uint8_t zeros[64] = {0};
    net_rig_in(&rig, icmp(8, 0, 0, zeros, sizeof zeros));
    struct rte_mbuf *m = net_rig_out(&rig);
    assert_non_null(m);
    uint32_t len;
    const uint8_t *msg = sent_icmp(m, &len);
    assert_int_equal(csum_finish(csum_partial(msg, len, 0)), 0);
    rte_pktmbuf_free(m);
    net_rig_fini(&rig);
}

static void an_echo_that_someone_else_holds_is_answered_from_a_copy(void **state)
{
    start(&(struct net_rig_opts){0});
    struct rte_mbuf *m = icmp(8, 0, 1, "data", 4);
    rte_mbuf_refcnt_update(m, 1);
    net_rig_in(&rig, m);
    assert_int_equal(rte_pktmbuf_mtod_offset(m, uint8_t *, 0)[0], 8); /* untouched */
    rte_pktmbuf_free(m);
    assert_int_equal(net_rig_out_clear(&rig), 1);
    net_rig_fini(&rig);
}

static void damaged_and_unused_messages_are_counted(void **state)
{
    start(&(struct net_rig_opts){0});
    struct rte_mbuf *m = icmp(8, 0, 1, "data", 4);
    rte_pktmbuf_mtod(m, uint8_t *)[14 + 20 + 9] ^= 1;
    net_rig_in(&rig, m);
    for (uint16_t len = 0; len < 8; len++) {
        static const uint8_t zeros[8];
        net_rig_in(&rig, net_rig_ip4(&rig, &(struct rig_ip4){
                                               .proto = 1, .payload = zeros, .payload_len = len}));
    }
    assert_int_equal(drops(NET_DROP_icmp_bad), 9);
    const uint8_t unused[] = {0, 4, 5, 9, 10, 13, 14, 17, 40, 255};
    for (unsigned i = 0; i < RTE_DIM(unused); i++)
        net_rig_in(&rig, icmp(unused[i], 0, 0, "datadatadatadatadatadatadatadata", 32));
    assert_int_equal(drops(NET_DROP_icmp_ignored), RTE_DIM(unused));
    assert_null(net_rig_out(&rig));
    net_rig_fini(&rig);
}

static struct icmp_error seen;
static unsigned seen_n;

static void on_error(void *ctx, const struct icmp_error *e)
{
    seen = *e;
    seen_n++;
}

struct quote {
    struct rte_ipv4_hdr ip;
    uint8_t l4[8];
};

static struct quote quote_of_ours(void)
{
    return (struct quote){
        .ip = {.version_ihl = 0x45,
               .total_length = rte_cpu_to_be_16(1500),
               .next_proto_id = 6,
               .src_addr = RIG_US,
               .dst_addr = RIG_FAR},
        .l4 = {0xc0, 0x01, 0x1f, 0x90, 0x01, 0x02, 0x03, 0x04},
    };
}

static void an_error_about_a_segment_is_reported_from_its_quote(void **state)
{
    start(&(struct net_rig_opts){0});
    seen_n = 0;
    net_set_icmp_error(rig.net, on_error, NULL);
    struct quote q = quote_of_ours();
    net_rig_in(&rig, icmp(3, 4, rte_cpu_to_be_32(1200), &q, sizeof q));
    assert_int_equal(seen_n, 1);
    assert_int_equal(seen.type, 3);
    assert_int_equal(seen.code, 4);
    assert_int_equal(seen.mtu, 1200);
    assert_int_equal(seen.src, RIG_US);
    assert_int_equal(seen.dst, RIG_FAR);
    assert_int_equal(seen.src_port, 0xc001);
    assert_int_equal(seen.dst_port, 8080);
    assert_int_equal(seen.seq, 0x01020304);
    net_rig_in(&rig, icmp(3, 1, rte_cpu_to_be_32(1200), &q, sizeof q));
    assert_int_equal(seen_n, 2);
    assert_int_equal(seen.mtu, 0); /* only "fragmentation needed" has one */
    net_rig_in(&rig, icmp(11, 0, 0, &q, sizeof q));
    assert_int_equal(seen_n, 3);
    assert_int_equal(net_stats(rig.net)->icmp_errors_received, 3);
    assert_null(net_rig_out(&rig)); /* nothing answers an error */
    net_rig_fini(&rig);
}

static void quotes_that_cant_be_ours_are_not_reported(void **state)
{
    start(&(struct net_rig_opts){0});
    seen_n = 0;
    net_set_icmp_error(rig.net, on_error, NULL);
    struct quote good = quote_of_ours(), q = good;
    for (size_t len = 0; len < sizeof q; len++)
        net_rig_in(&rig, icmp(3, 1, 0, &q, len));
    q.ip.src_addr = RIG_FAR;
    net_rig_in(&rig, icmp(3, 1, 0, &q, sizeof q));
    q = good;
    q.ip.version_ihl = 0x65;
    net_rig_in(&rig, icmp(3, 1, 0, &q, sizeof q));
    q.ip.version_ihl = 0x44;
    net_rig_in(&rig, icmp(3, 1, 0, &q, sizeof q));
    q.ip.version_ihl = 0x4f;
    net_rig_in(&rig, icmp(3, 1, 0, &q, sizeof q));
    q = good;
    q.ip.fragment_offset = rte_cpu_to_be_16(1);
    net_rig_in(&rig, icmp(3, 1, 0, &q, sizeof q));
    assert_int_equal(drops(NET_DROP_icmp_bad), sizeof q + 5);
    q = good;
    q.ip.next_proto_id = 17;
    net_rig_in(&rig, icmp(3, 3, 0, &q, sizeof q));
    assert_int_equal(drops(NET_DROP_icmp_ignored), 1);
    assert_int_equal(seen_n, 0);
    net_rig_fini(&rig);
}

static void who_isnt_here_is_said_to_be_unreachable(void **state)
{
    start(&(struct net_rig_opts){0});
    uint8_t data[1000];
    memset(data, 0x5a, sizeof data);
    static const struct {
        uint8_t proto, code;
        uint16_t len, quoted;
    } cases[] = {{17, 3, 12, 32}, {132, 2, 12, 32}, {6, 2, 0, 20}, {17, 3, 1000, 576 - 28}};
    for (unsigned i = 0; i < RTE_DIM(cases); i++) {
        struct rte_mbuf *q = net_rig_ip4(&rig, &(struct rig_ip4){.proto = cases[i].proto,
                                                                 .payload = data,
                                                                 .payload_len = cases[i].len});
        uint8_t whole[1100];
        memcpy(whole, rte_pktmbuf_mtod(q, void *), q->data_len);
        net_rig_in(&rig, q);
        struct rte_mbuf *m = net_rig_out(&rig);
        assert_non_null(m);
        uint32_t len;
        const uint8_t *msg = sent_icmp(m, &len);
        assert_int_equal(msg[0], 3);
        assert_int_equal(msg[1], cases[i].code);
        assert_int_equal(len, 8 + cases[i].quoted);
        assert_memory_equal(msg + 8, whole + 14, cases[i].quoted);
        rte_pktmbuf_free(m);
    }
    assert_int_equal(drops(NET_DROP_ip_proto), RTE_DIM(cases));
    assert_int_equal(net_stats(rig.net)->icmp_errors_sent, RTE_DIM(cases));
    net_rig_fini(&rig);
}

static void nothing_answers_broadcasts_and_fragments(void **state)
{
    start(&(struct net_rig_opts){0});
    struct rte_mbuf *m =
        net_rig_ip4(&rig, &(struct rig_ip4){.proto = 17, .payload = "12345678", .payload_len = 8});
    memset(rte_pktmbuf_mtod(m, void *), 0xff, 6);
    net_rig_in(&rig, m);
    const uint32_t dsts[] = {IP4(10, 0, 0, 255), IP4(224, 0, 0, 1), UINT32_MAX};
    for (unsigned i = 0; i < RTE_DIM(dsts); i++)
        net_rig_in(&rig, net_rig_ip4(&rig, &(struct rig_ip4){.dst = dsts[i],
                                                             .proto = 17,
                                                             .payload = "12345678",
                                                             .payload_len = 8}));
    net_rig_in(
        &rig,
        net_rig_ip4(&rig, &(struct rig_ip4){
                              .proto = 17, .frag = 3, .payload = "12345678", .payload_len = 8}));
    assert_null(net_rig_out(&rig));
    net_rig_fini(&rig);
}

static void errors_are_rate_limited_and_recover(void **state)
{
    start(&(struct net_rig_opts){0});
    for (unsigned i = 0; i < 500; i++)
        net_rig_in(&rig, net_rig_ip4(&rig, &(struct rig_ip4){.proto = 17}));
    assert_int_equal(net_rig_out_clear(&rig), 50);
    assert_int_equal(drops(NET_DROP_icmp_rate), 450);
    assert_int_equal(drops(NET_DROP_ip_proto), 50);
    net_rig_advance(&rig, SEC / 10);
    for (unsigned i = 0; i < 500; i++)
        net_rig_in(&rig, net_rig_ip4(&rig, &(struct rig_ip4){.proto = 17}));
    assert_int_equal(net_rig_out_clear(&rig), 10); /* 100 a second */
    net_rig_fini(&rig);
}

static void echo_has_a_limit_of_its_own(void **state)
{
    start(&(struct net_rig_opts){0});
    for (unsigned i = 0; i < 2000; i++) {
        net_rig_in(&rig, icmp(8, 0, 1, "x", 1));
    }
    assert_int_equal(net_rig_out_clear(&rig), 1000);
    assert_int_equal(drops(NET_DROP_icmp_rate), 1000);
    net_rig_in(&rig, net_rig_ip4(&rig, &(struct rig_ip4){.proto = 17}));
    assert_int_equal(net_rig_out_clear(&rig), 1);
    net_rig_fini(&rig);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(echo_comes_back_as_it_was),
        cmocka_unit_test(an_echo_of_nothing_but_zeros_has_a_good_checksum),
        cmocka_unit_test(an_echo_that_someone_else_holds_is_answered_from_a_copy),
        cmocka_unit_test(damaged_and_unused_messages_are_counted),
        cmocka_unit_test(an_error_about_a_segment_is_reported_from_its_quote),
        cmocka_unit_test(quotes_that_cant_be_ours_are_not_reported),
        cmocka_unit_test(who_isnt_here_is_said_to_be_unreachable),
        cmocka_unit_test(nothing_answers_broadcasts_and_fragments),
        cmocka_unit_test(errors_are_rate_limited_and_recover),
        cmocka_unit_test(echo_has_a_limit_of_its_own),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
