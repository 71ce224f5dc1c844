/* The Internet checksum (RFC 1071): one's complement sums in memory order, so that no byte swapping
 * is needed on either kind of machine.
 *
 * A running sum is a uint64_t; csum_fold() makes 16 bits of it, csum_finish() the complement that
 * goes into a header. A block that is correct with its checksum in place finishes to 0.
 *
 * Thread: any; nothing here has state.
 */
#ifndef MILLRACE_DATAPLANE_NET_CSUM_H
#define MILLRACE_DATAPLANE_NET_CSUM_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <rte_byteorder.h>
#include <rte_mbuf.h>

/* One's complement addition: the carry comes back in. */
static inline uint64_t csum_add(uint64_t a, uint64_t b)
{
    uint64_t s = a + b;
    return s + (s < b);
}

/* Adds `len` bytes that stand at an even offset of the summed data. */
static inline uint64_t csum_partial(const void *data, size_t len, uint64_t sum)
{
    const uint8_t *p = data;
    uint64_t a = sum, b = 0, w, v;
    while (len >= 16) {
        memcpy(&w, p, 8);
        memcpy(&v, p + 8, 8);
        a = csum_add(a, w);
        b = csum_add(b, v);
        p += 16;
        len -= 16;
    }
    a = csum_add(a, b);
    if (len >= 8) {
        memcpy(&w, p, 8);
        a = csum_add(a, w);
        p += 8;
        len -= 8;
    }
    if (len > 0) {
        w = 0;
        memcpy(&w, p, len); /* zero padded at the end, as RFC 1071 has it */
        a = csum_add(a, w);
    }
    return a;
}

static inline uint16_t csum_fold(uint64_t sum)
{
    sum = (sum & 0xffffffff) + (sum >> 32);
    sum = (sum & 0xffffffff) + (sum >> 32);
    uint32_t s = (uint32_t)sum;
    s = (s & 0xffff) + (s >> 16);
    s = (s & 0xffff) + (s >> 16);
    return (uint16_t)s;
}

static inline uint16_t csum_finish(uint64_t sum)
{
    return (uint16_t)~csum_fold(sum);
}

/* Adds the sum of a block that was summed by itself and stands at byte offset `off`. */
static inline uint64_t csum_add_block(uint64_t sum, uint64_t block, size_t off)
{
    uint16_t f = csum_fold(block);
    if (off & 1)
        f = rte_bswap16(f);
    return csum_add(sum, f);
}

/* The pseudo header of RFC 9293 §3.1; addresses in network order, `len` of header and payload in
 * host order. csum_fold() of it is what a port with checksum offload wants in the header. */
static inline uint64_t csum_pseudo4(uint32_t src, uint32_t dst, uint8_t proto, uint16_t len)
{
    return (uint64_t)src + dst + rte_cpu_to_be_16(proto) + rte_cpu_to_be_16(len);
}

/* Adds bytes [off, off + len) of an mbuf chain; off + len <= pkt_len. */
static inline uint64_t csum_mbuf(const struct rte_mbuf *m, size_t off, size_t len, uint64_t sum)
{
    while (off >= m->data_len && m->next) {
        off -= m->data_len;
        m = m->next;
    }
    size_t done = 0;
    while (len > 0 && m) {
        size_t n = m->data_len - off;
        if (n > len)
            n = len;
        const uint8_t *p = rte_pktmbuf_mtod_offset(m, const uint8_t *, off);
        if (done & 1)
            sum = csum_add_block(sum, csum_partial(p, n, 0), done);
        else
            sum = csum_partial(p, n, sum);
        done += n;
        len -= n;
        off = 0;
        m = m->next;
    }
    return sum;
}

/* Checksum of the L4 packet (header and payload, `len` bytes) at offset `off` of `m`: with the
 * field zeroed the value to store, with the field in place 0 when it is right. */
static inline uint16_t csum_l4(const struct rte_mbuf *m, size_t off, uint16_t len, uint32_t src,
                               uint32_t dst, uint8_t proto)
{
    return csum_finish(csum_mbuf(m, off, len, csum_pseudo4(src, dst, proto, len)));
}

/* New checksum after a 16-bit word of the summed data has changed (RFC 1624, equation 3). All as
 * they stand in memory. */
static inline uint16_t csum_update16(uint16_t check, uint16_t was, uint16_t is)
{
    return csum_finish((uint64_t)(uint16_t)~check + (uint16_t)~was + is);
}

static inline uint16_t csum_update32(uint16_t check, uint32_t was, uint32_t is)
{
    return csum_finish((uint64_t)(uint16_t)~check + (uint32_t)~was + is);
}

#endif
