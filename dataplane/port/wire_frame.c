#include "dataplane/port/wire_frame.h"

#include <assert.h>
#include <netinet/in.h>
#include <stdlib.h>
#include <string.h>

#include <rte_ether.h>
#include <rte_ip.h>
#include <rte_tcp.h>

#include "dataplane/net/netif.h"

#define PAD_BYTE 0xa5 /* some NICs pad with what was in the buffer */

struct wire_held {
    struct rte_mbuf *m;
    const uint8_t *bytes;
    uint32_t len;
    uint64_t digest;
};

static struct wire_frame *frame_new(uint32_t len)
{
    struct wire_frame *f = malloc(sizeof(*f) + len);
    if (!f)
        abort();
    f->len = len;
    return f;
}

struct wire_frame *wire_frame_of(const struct rte_mbuf *m, uint32_t pad_to)
{
    struct wire_frame *f = frame_new(RTE_MAX(m->pkt_len, pad_to));
    memcpy(f->bytes, rte_pktmbuf_mtod(m, const void *), m->pkt_len);
    memset(f->bytes + m->pkt_len, PAD_BYTE, f->len - m->pkt_len);
    return f;
}

struct wire_frame *wire_frame_copy(const struct wire_frame *f)
{
    struct wire_frame *copy = frame_new(f->len);
    memcpy(copy->bytes, f->bytes, f->len);
    return copy;
}

/* Not for secrets: eight bytes a step, since each frame is digested twice. */
static uint64_t digest_of(const uint8_t *bytes, size_t len, uint64_t h)
{
    uint64_t word;
    for (; len >= sizeof(word); bytes += sizeof(word), len -= sizeof(word)) {
        memcpy(&word, bytes, sizeof(word));
        h = (h ^ word) * 0x9e3779b97f4a7c15ull;
        h ^= h >> 32;
    }
    for (; len > 0; bytes++, len--)
        h = (h ^ *bytes) * 0x100000001b3ull;
    return h;
}

static uint64_t stir(uint64_t h)
{
    h = (h ^ (h >> 33)) * 0xff51afd7ed558ccdull;
    return h ^ (h >> 33);
}

/* The IPv4 header when there is a whole one, with its own idea of lengths checked. */
static const struct rte_ipv4_hdr *frame_ipv4(const struct wire_frame *f)
{
    const struct rte_ether_hdr *eth = (const struct rte_ether_hdr *)f->bytes;
    const struct rte_ipv4_hdr *ip = (const struct rte_ipv4_hdr *)(eth + 1);
    if (f->len < sizeof(*eth) + sizeof(*ip) ||
        eth->ether_type != rte_cpu_to_be_16(RTE_ETHER_TYPE_IPV4))
        return NULL;
    uint32_t header = rte_ipv4_hdr_len(ip), total = rte_be_to_cpu_16(ip->total_length);
    if (header < sizeof(*ip) || total < header || total > f->len - sizeof(*eth))
        return NULL;
    return ip;
}

static bool is_fragment(const struct rte_ipv4_hdr *ip)
{
    return ip->fragment_offset & rte_cpu_to_be_16(RTE_IPV4_HDR_MF_FLAG | RTE_IPV4_HDR_OFFSET_MASK);
}

uint64_t wire_frame_flow_hash(const struct wire_frame *f)
{
    const struct rte_ipv4_hdr *ip = frame_ipv4(f);
    uint64_t h = 0xcbf29ce484222325ull;
    if (!ip)
        return 0; /* as a NIC does: what it can't hash goes to the first queue */
    h = digest_of((const uint8_t *)&ip->src_addr, 8, h);
    uint32_t header = rte_ipv4_hdr_len(ip);
    bool ports = ip->next_proto_id == IPPROTO_TCP || ip->next_proto_id == IPPROTO_UDP;
    if (ports && !is_fragment(ip) && rte_be_to_cpu_16(ip->total_length) >= header + 4)
        h = digest_of((const uint8_t *)ip + header, 4, h);
    return stir(h);
}

void wire_frame_tx_offload(struct wire_frame *f, const struct rte_mbuf *m, uint32_t offloads)
{
    uint64_t flags = m->ol_flags & (RTE_MBUF_F_TX_IP_CKSUM | RTE_MBUF_F_TX_L4_MASK);
    if (!flags)
        return;
    struct rte_ipv4_hdr *ip = (struct rte_ipv4_hdr *)(f->bytes + m->l2_len);
    assert(m->l2_len == RTE_ETHER_HDR_LEN && m->l3_len == rte_ipv4_hdr_len(ip));
    assert(m->ol_flags & RTE_MBUF_F_TX_IPV4);
    if (flags & RTE_MBUF_F_TX_L4_MASK) {
        struct rte_tcp_hdr *tcp = (struct rte_tcp_hdr *)((uint8_t *)ip + m->l3_len);
        assert((flags & RTE_MBUF_F_TX_L4_MASK) == RTE_MBUF_F_TX_TCP_CKSUM);
        assert(offloads & NETIF_TX_TCP_CSUM);
        assert(tcp->cksum == rte_ipv4_phdr_cksum(ip, 0));
        tcp->cksum = 0;
        tcp->cksum = rte_ipv4_udptcp_cksum(ip, tcp);
    }
    if (flags & RTE_MBUF_F_TX_IP_CKSUM) {
        assert(offloads & NETIF_TX_IP_CSUM);
        ip->hdr_checksum = 0;
        ip->hdr_checksum = rte_ipv4_cksum(ip);
    }
    (void)offloads;
}

static bool is_good_ip(const struct rte_ipv4_hdr *ip)
{
    return rte_raw_cksum(ip, rte_ipv4_hdr_len(ip)) == 0xffff;
}

void wire_frame_rx_offload(const struct wire_frame *f, struct rte_mbuf *m, uint32_t offloads)
{
    const struct rte_ipv4_hdr *ip = frame_ipv4(f);
    if (!(offloads & NETIF_RX_CSUM) || !ip)
        return;
    m->ol_flags |= is_good_ip(ip) ? RTE_MBUF_F_RX_IP_CKSUM_GOOD : RTE_MBUF_F_RX_IP_CKSUM_BAD;
    uint32_t header = rte_ipv4_hdr_len(ip);
    if (ip->next_proto_id != IPPROTO_TCP || is_fragment(ip) ||
        rte_be_to_cpu_16(ip->total_length) < header + sizeof(struct rte_tcp_hdr))
        return;
    bool good = rte_ipv4_udptcp_cksum_verify(ip, (const uint8_t *)ip + header) == 0;
    m->ol_flags |= good ? RTE_MBUF_F_RX_L4_CKSUM_GOOD : RTE_MBUF_F_RX_L4_CKSUM_BAD;
}

struct wire_held *wire_held_new(struct rte_mbuf *m)
{
    struct wire_held *h = malloc(sizeof(*h));
    if (!h)
        abort();
    h->m = m;
    h->bytes = rte_pktmbuf_mtod(m, const uint8_t *);
    h->len = m->pkt_len;
    h->digest = digest_of(h->bytes, h->len, 0);
    return h;
}

void wire_held_release(struct wire_held *h)
{
    assert(rte_mbuf_refcnt_read(h->m) >= 1);
    assert(digest_of(h->bytes, h->len, 0) == h->digest &&
           "someone wrote into a frame that the port was still sending");
    rte_pktmbuf_free(h->m);
    free(h);
}
