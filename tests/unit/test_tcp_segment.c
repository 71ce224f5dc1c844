#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <errno.h>
#include <string.h>

#include <cmocka.h>

#include <rte_byteorder.h>

#include "dataplane/net/csum.h"
#include "dataplane/tcp/segment.h"
#include "runtime/rng.h"
#include "tests/kit/eal.h"

#define IP_LEN 20

struct raw {
    uint8_t bytes[120];
    unsigned len; /* TCP header and payload */
};

/* A segment with `options` (padded by the caller) and a payload. */
static struct raw raw_segment(const void *options, unsigned opt_len, const char *text)
{
    struct raw r = {.len = 20 + opt_len + (unsigned)strlen(text)};
    const uint8_t head[20] = {0x30, 0x39, 0, 80, 1, 2, 3, 4, 5, 6, 7, 8, 0, 0x02, 0x12, 0x34};
    memcpy(r.bytes, head, 20);
    r.bytes[12] = (uint8_t)((20 + opt_len) / 4 << 4);
    memcpy(r.bytes + 20, options, opt_len);
    memcpy(r.bytes + 20 + opt_len, text, strlen(text));
    return r;
}

static struct rte_mempool *pool;

static int setup(void **state)
{
    kit_eal_init();
    pool = kit_pool_new(15);
    return 0;
}

static int teardown(void **state)
{
    kit_pool_free(pool);
    return 0;
}

static const struct ip4_rx rx_head = {
    .src = 0x0200000a, .dst = 0x0100000a, .proto = 6, .hdr_len = IP_LEN};

static enum tcp_drop parse(const struct raw *r, bool checksum, struct segment *seg)
{
    struct rte_mbuf *m = rte_pktmbuf_alloc(pool);
    uint8_t *p = (uint8_t *)rte_pktmbuf_append(m, (uint16_t)(IP_LEN + r->len));
    memcpy(p + IP_LEN, r->bytes, r->len);
    struct ip4_rx rx = rx_head;
    rx.payload_len = (uint16_t)r->len;
    rx.l4_csum_ok = !checksum;
    if (checksum && r->len >= 18) {
        memset(p + IP_LEN + 16, 0, 2);
        uint16_t c = csum_l4(m, IP_LEN, (uint16_t)r->len, rx.src, rx.dst, 6);
        memcpy(p + IP_LEN + 16, &c, 2);
    }
    enum tcp_drop why = segment_parse(m, &rx, seg);
    rte_pktmbuf_free(m);
    return why;
}

static void a_syn_with_all_options(void **state)
{
    const uint8_t options[] = {2, 4, 0x05, 0xb4, 4, 2, 8, 10, 0, 0, 0, 1, 0, 0, 0, 2, 1, 3, 3, 7};
    struct raw r = raw_segment(options, sizeof(options), "hello");
    struct segment s;
    assert_int_equal(parse(&r, true, &s), TCP_DROP_accepted);
    assert_int_equal(s.seq, 0x01020304);
    assert_int_equal(s.ack, 0x05060708);
    assert_int_equal(s.flags, SEG_SYN);
    assert_int_equal(s.window, 0x1234);
    assert_int_equal(s.len, 5);
    assert_int_equal(segment_seq_len(&s), 6);
    assert_int_equal(s.tuple.peer_addr, rx_head.src);
    assert_int_equal(s.tuple.local_addr, rx_head.dst);
    assert_int_equal(s.tuple.peer_port, rte_cpu_to_be_16(12345));
    assert_int_equal(s.tuple.local_port, rte_cpu_to_be_16(80));
    assert_int_equal(s.options, SEG_OPT_MSS | SEG_OPT_WSCALE | SEG_OPT_SACK_OK | SEG_OPT_TS);
    assert_int_equal(s.mss, 1460);
    assert_int_equal(s.wscale, 7);
    assert_int_equal(s.ts_val, 1);
    assert_int_equal(s.ts_echo, 2);
}

static void options_good_and_bad(void **state)
{
    static const struct {
        const char *what;
        uint8_t bytes[16];
        uint8_t len;
        enum tcp_drop why;
        uint8_t options;
    } cases[] = {
        {"none", {0}, 0, TCP_DROP_accepted, 0},
        {"end of list hides the rest", {0, 2, 0, 0}, 4, TCP_DROP_accepted, 0},
        {"no-operations only", {1, 1, 1, 1}, 4, TCP_DROP_accepted, 0},
        {"length 0", {2, 0, 5, 0xb4}, 4, TCP_DROP_bad_option, 0},
        {"length 1", {2, 1, 5, 0xb4}, 4, TCP_DROP_bad_option, 0},
        {"length past the end", {2, 5, 5, 0xb4}, 4, TCP_DROP_bad_option, 0},
        {"kind without length at the end", {1, 1, 1, 2}, 4, TCP_DROP_bad_option, 0},
        {"unknown kind is skipped", {77, 4, 1, 2, 2, 4, 1, 1}, 8, TCP_DROP_accepted, SEG_OPT_MSS},
        {"unknown kind of length 2", {77, 2, 4, 2}, 4, TCP_DROP_accepted, SEG_OPT_SACK_OK},
        {"MSS of a wrong length is ignored", {2, 3, 5, 1}, 4, TCP_DROP_accepted, 0},
        {"scale of a wrong length is ignored", {3, 4, 5, 1}, 4, TCP_DROP_accepted, 0},
        {"timestamps of a wrong length", {8, 8, 0, 0, 0, 0, 0, 0}, 8, TCP_DROP_accepted, 0},
        {"timestamps cut", {1, 1, 8, 10, 0, 0, 0, 0}, 8, TCP_DROP_bad_option, 0},
        {"the first SACK block",
         {1, 1, 5, 10, 9, 9, 9, 9, 9, 9, 9, 9},
         12,
         TCP_DROP_accepted,
         SEG_OPT_SACK},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
        struct raw r = raw_segment(cases[i].bytes, cases[i].len, "");
        struct segment s;
        enum tcp_drop why = parse(&r, true, &s);
        if (why != cases[i].why || (why == TCP_DROP_accepted && s.options != cases[i].options))
            fail_msg("%s: %s", cases[i].what, tcp_drop_name(why));
    }
}

static void headers_out_of_bounds(void **state)
{
    struct segment s;
    struct raw good = raw_segment("", 0, "abc");
    struct raw r = good;
    for (r.len = 0; r.len < 20; r.len++)
        assert_int_equal(parse(&r, true, &s), TCP_DROP_short_header);
    r = good;
    for (unsigned offset = 0; offset < 5; offset++) {
        r.bytes[12] = (uint8_t)(offset << 4);
        assert_int_equal(parse(&r, true, &s), TCP_DROP_data_offset);
    }
    r.bytes[12] = 6 << 4; /* 24 of 23 bytes */
    assert_int_equal(parse(&r, true, &s), TCP_DROP_data_offset);
    r = good;
    memset(r.bytes, 0, 2);
    assert_int_equal(parse(&r, true, &s), TCP_DROP_port_zero);
    r = good;
    memset(r.bytes + 2, 0, 2);
    assert_int_equal(parse(&r, true, &s), TCP_DROP_port_zero);
}

static void a_wrong_checksum_is_seen_unless_the_port_has_looked(void **state)
{
    struct raw r = raw_segment("", 0, "abcd");
    struct rte_mbuf *m = rte_pktmbuf_alloc(pool);
    uint8_t *p = (uint8_t *)rte_pktmbuf_append(m, (uint16_t)(IP_LEN + r.len));
    memcpy(p + IP_LEN, r.bytes, r.len);
    struct ip4_rx rx = rx_head;
    rx.payload_len = (uint16_t)r.len;
    struct segment s;
    assert_int_equal(segment_parse(m, &rx, &s), TCP_DROP_checksum);
    rx.l4_csum_ok = true;
    assert_int_equal(segment_parse(m, &rx, &s), TCP_DROP_accepted);
    rte_pktmbuf_free(m);
}

static void what_is_built_can_be_read(void **state)
{
    struct rng rng = {3};
    for (unsigned i = 0; i < 500; i++) {
        struct segment_out out = {
            .tuple = {0x0100000a, 0x0200000a, rte_cpu_to_be_16(80), rte_cpu_to_be_16(999)},
            .seq = (uint32_t)rng_next(&rng),
            .ack = (uint32_t)rng_next(&rng),
            .window = (uint16_t)rng_next(&rng),
            .flags = (uint8_t)(SEG_SYN | rng_below(&rng, 64)),
            .options = (uint8_t)rng_below(&rng, 16),
            .mss = (uint16_t)rng_next(&rng),
            .wscale = (uint8_t)rng_below(&rng, 15),
            .ts_val = (uint32_t)rng_next(&rng),
            .ts_echo = (uint32_t)rng_next(&rng),
        };
        if (!(out.options & (SEG_OPT_MSS | SEG_OPT_WSCALE)))
            out.sacks = (uint8_t)rng_below(&rng, 1 + segment_max_sacks(out.options));
        struct rte_mbuf *m = rte_pktmbuf_alloc(pool);
        unsigned len = segment_hdr_len(&out);
        assert_true(len % 4 == 0 && len <= SEG_MAX_HDR_LEN);
        segment_build(rte_pktmbuf_append(m, (uint16_t)len), &out);
        segment_checksum(m, &out.tuple, len, 0);
        rte_pktmbuf_prepend(m, IP_LEN);
        struct ip4_rx rx = {.src = out.tuple.local_addr,
                            .dst = out.tuple.peer_addr,
                            .proto = 6,
                            .hdr_len = IP_LEN,
                            .payload_len = (uint16_t)len};
        struct segment s;
        assert_int_equal(segment_parse(m, &rx, &s), TCP_DROP_accepted);
        assert_int_equal(s.seq, out.seq);
        assert_int_equal(s.ack, out.ack);
        assert_int_equal(s.window, out.window);
        assert_int_equal(s.flags, out.flags);
        assert_int_equal(s.options, out.options | (out.sacks ? SEG_OPT_SACK : 0));
        if (out.options & SEG_OPT_MSS)
            assert_int_equal(s.mss, out.mss);
        if (out.options & SEG_OPT_WSCALE)
            assert_int_equal(s.wscale, out.wscale);
        if (out.options & SEG_OPT_TS)
            assert_int_equal(s.ts_val ^ s.ts_echo, out.ts_val ^ out.ts_echo);
        rte_pktmbuf_free(m);
    }
}

static void a_port_with_offload_gets_the_pseudo_header(void **state)
{
    struct segment_out out = {.tuple = {1, 2, 3, 4}, .flags = SEG_ACK};
    struct rte_mbuf *m = rte_pktmbuf_alloc(pool);
    uint8_t *p = (uint8_t *)rte_pktmbuf_append(m, 20);
    segment_build(p, &out);
    segment_checksum(m, &out.tuple, 20, NETIF_TX_TCP_CSUM);
    assert_true(m->ol_flags & RTE_MBUF_F_TX_TCP_CKSUM);
    assert_int_equal(m->l4_len, 20);
    uint16_t want = csum_fold(csum_pseudo4(1, 2, 6, 20)), got;
    memcpy(&got, p + 16, 2);
    assert_int_equal(got, want);
    rte_pktmbuf_free(m);
}

/* Whatever the bytes, parsing stays within them (ASan looks on). */
static void noise(void **state)
{
    struct rng rng = {11};
    for (unsigned i = 0; i < 20000; i++) {
        struct raw r = {.len = rng_below(&rng, 80)};
        for (unsigned k = 0; k < r.len; k++)
            r.bytes[k] = (uint8_t)(rng_below(&rng, 3) ? rng_below(&rng, 12) : rng_next(&rng));
        if (r.len > 12)
            r.bytes[12] = (uint8_t)(rng_below(&rng, 16) << 4);
        struct segment s;
        if (parse(&r, false, &s) == TCP_DROP_accepted)
            assert_true(s.len <= r.len);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_syn_with_all_options),
        cmocka_unit_test(options_good_and_bad),
        cmocka_unit_test(headers_out_of_bounds),
        cmocka_unit_test(a_wrong_checksum_is_seen_unless_the_port_has_looked),
        cmocka_unit_test(what_is_built_can_be_read),
        cmocka_unit_test(a_port_with_offload_gets_the_pseudo_header),
        cmocka_unit_test(noise),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
