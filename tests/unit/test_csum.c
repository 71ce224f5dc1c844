#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include <rte_ip.h>

#include "dataplane/net/csum.h"
#include "runtime/rng.h"
#include "tests/kit/eal.h"

/* RFC 1071 §4.1, word by word in network order. */
static uint16_t slow_csum(const uint8_t *p, size_t len, uint32_t sum)
{
    for (size_t i = 0; i < len; i += 2)
        sum += (uint32_t)p[i] << 8 | (i + 1 < len ? p[i + 1] : 0);
    while (sum >> 16)
        sum = (sum & 0xffff) + (sum >> 16);
    return rte_cpu_to_be_16((uint16_t)~sum);
}

static void the_example_of_rfc_1071(void **state)
{
    const uint8_t bytes[] = {0x00, 0x01, 0xf2, 0x03, 0xf4, 0xf5, 0xf6, 0xf7};
    assert_int_equal(csum_fold(csum_partial(bytes, sizeof bytes, 0)), rte_cpu_to_be_16(0xddf2));
}

static void every_length_and_alignment_agrees_with_the_rfc(void **state)
{
    uint8_t buf[200];
    struct rng r = {.state = 1071};
    for (unsigned i = 0; i < sizeof buf; i++)
        buf[i] = i % 7 ? (uint8_t)rng_next(&r) : 0xff;
    for (size_t off = 0; off < 8; off++)
        for (size_t len = 0; len + off < sizeof buf; len++)
            assert_int_equal(csum_finish(csum_partial(buf + off, len, 0)),
                             slow_csum(buf + off, len, 0));
}

static void all_ones_carry_around(void **state)
{
    uint8_t buf[65535];
    memset(buf, 0xff, sizeof buf);
    assert_int_equal(csum_finish(csum_partial(buf, sizeof buf, 0)), slow_csum(buf, sizeof buf, 0));
    uint64_t sum = 0;
    for (unsigned i = 0; i < 1000; i++)
        sum = csum_partial(buf, 65534, sum);
    assert_int_equal(csum_fold(sum), 0xffff);
}

/* The chain's pieces have odd lengths, so that later ones start at odd offsets. */
static void a_chain_sums_as_its_bytes_do(void **state)
{
    kit_eal_init();
    struct rte_mempool *mp = kit_pool_new(63);
    struct rng r = {.state = 42};
    for (unsigned round = 0; round < 200; round++) {
        uint8_t flat[4096];
        size_t total = 0;
        struct rte_mbuf *head = NULL;
        for (unsigned i = 0, n = 1 + rng_below(&r, 5); i < n; i++) {
            struct rte_mbuf *m = rte_pktmbuf_alloc(mp);
            uint16_t len = (uint16_t)rng_below(&r, 300);
            uint8_t *p = (uint8_t *)rte_pktmbuf_append(m, len);
            for (unsigned k = 0; k < len; k++)
                p[k] = flat[total + k] = (uint8_t)rng_next(&r);
            total += len;
            if (head)
                assert_int_equal(rte_pktmbuf_chain(head, m), 0);
            else
                head = m;
        }
        size_t off = rng_below(&r, (uint32_t)total + 1);
        size_t len = rng_below(&r, (uint32_t)(total - off) + 1);
        assert_int_equal(csum_finish(csum_mbuf(head, off, len, 0)), slow_csum(flat + off, len, 0));
        rte_pktmbuf_free(head);
    }
    kit_pool_free(mp);
}

static void a_stored_l4_checksum_verifies(void **state)
{
    kit_eal_init();
    struct rte_mempool *mp = kit_pool_new(7);
    struct rte_mbuf *m = rte_pktmbuf_alloc(mp);
    uint8_t *p = (uint8_t *)rte_pktmbuf_append(m, 53);
    for (unsigned i = 0; i < 53; i++)
        p[i] = (uint8_t)(i * 37);
    uint32_t src = rte_cpu_to_be_32(RTE_IPV4(10u, 1, 2, 3)), dst = rte_cpu_to_be_32(0xfffefdfc);
    memset(p + 4 + 16, 0, 2);
    uint16_t c = csum_l4(m, 4, 49, src, dst, 6);
    memcpy(p + 4 + 16, &c, 2);
    assert_int_equal(csum_l4(m, 4, 49, src, dst, 6), 0);
    struct rte_ipv4_hdr ip = {.src_addr = src,
                              .dst_addr = dst,
                              .next_proto_id = 6,
                              .version_ihl = RTE_IPV4_VHL_DEF,
                              .total_length = rte_cpu_to_be_16(20 + 49)};
    assert_int_equal(rte_ipv4_udptcp_cksum_verify(&ip, p + 4), 0);
    assert_int_equal(csum_fold(csum_pseudo4(src, dst, 6, 49)), rte_ipv4_phdr_cksum(&ip, 0));
    p[10] ^= 1;
    assert_int_not_equal(csum_l4(m, 4, 49, src, dst, 6), 0);
    rte_pktmbuf_free(m);
    kit_pool_free(mp);
}

static void an_incremental_update_equals_a_new_sum(void **state)
{
    struct rng r = {.state = 1624};
    for (unsigned i = 0; i < 10000; i++) {
        uint16_t w[8];
        for (unsigned k = 0; k < 8; k++)
            w[k] = rng_below(&r, 4) ? (uint16_t)rng_next(&r) : 0xffff;
        w[0] |= 1; /* data that is all zero has no "negative zero" sum */
        uint16_t was = csum_finish(csum_partial(w, sizeof w, 0));
        uint16_t old = w[3];
        w[3] = rng_below(&r, 4) ? (uint16_t)rng_next(&r) : 0;
        assert_int_equal(csum_update16(was, old, w[3]), csum_finish(csum_partial(w, sizeof w, 0)));
        was = csum_finish(csum_partial(w, sizeof w, 0));
        uint32_t old32, new32 = (uint32_t)rng_next(&r);
        memcpy(&old32, w + 4, 4);
        memcpy(w + 4, &new32, 4);
        assert_int_equal(csum_update32(was, old32, new32),
                         csum_finish(csum_partial(w, sizeof w, 0)));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_example_of_rfc_1071),
        cmocka_unit_test(every_length_and_alignment_agrees_with_the_rfc),
        cmocka_unit_test(all_ones_carry_around),
        cmocka_unit_test(a_chain_sums_as_its_bytes_do),
        cmocka_unit_test(a_stored_l4_checksum_verifies),
        cmocka_unit_test(an_incremental_update_equals_a_new_sum),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
