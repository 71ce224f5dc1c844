#include "dataplane/tcp/segment.h"

#include <netinet/in.h>
#include <string.h>

#include <rte_byteorder.h>
#include <rte_tcp.h>

#include "dataplane/net/csum.h"

enum option_kind {
    OPT_END = 0,
    OPT_NOP = 1,
    OPT_MSS = 2,
    OPT_WSCALE = 3,
    OPT_SACK_OK = 4,
    OPT_SACK = 5,
    OPT_TS = 8,
};

/* NOP, NOP, timestamps of length 10: what nearly every segment carries (RFC 7323 appendix A). */
#define TS_PREFIX 0x0101080au

static uint16_t get16(const uint8_t *p)
{
    return (uint16_t)(p[0] << 8 | p[1]);
}

static uint32_t get32(const uint8_t *p)
{
    uint32_t v;
    memcpy(&v, p, sizeof(v));
    return rte_be_to_cpu_32(v);
}

static uint8_t *put16(uint8_t *p, uint16_t v)
{
    p[0] = (uint8_t)(v >> 8);
    p[1] = (uint8_t)v;
    return p + 2;
}

static uint8_t *put32(uint8_t *p, uint32_t v)
{
    v = rte_cpu_to_be_32(v);
    memcpy(p, &v, sizeof(v));
    return p + 4;
}

/* One option of a known kind. A wrong length makes it an unknown one: ignored (RFC 9293 §3.1). */
static void parse_option(const uint8_t *p, struct segment *s)
{
    uint8_t kind = p[0], len = p[1];
    if (kind == OPT_TS && len == 10) {
        s->options |= SEG_OPT_TS;
        s->ts_val = get32(p + 2);
        s->ts_echo = get32(p + 6);
    } else if (kind == OPT_SACK && len >= 10 && (len - 2) % 8 == 0) {
        s->options |= SEG_OPT_SACK;
        s->sack[0] = get32(p + 2);
        s->sack[1] = get32(p + 6);
    } else if (!(s->flags & SEG_SYN)) {
        return; /* the others are for SYNs only */
    } else if (kind == OPT_MSS && len == 4) {
        s->options |= SEG_OPT_MSS;
        s->mss = get16(p + 2);
    } else if (kind == OPT_WSCALE && len == 3) {
        s->options |= SEG_OPT_WSCALE;
        s->wscale = p[2] > SEG_WSCALE_MAX ? SEG_WSCALE_MAX : p[2]; /* RFC 7323 §2.3 */
    } else if (kind == OPT_SACK_OK && len == 2) {
        s->options |= SEG_OPT_SACK_OK;
    }
}

static bool parse_options(const uint8_t *p, const uint8_t *end, struct segment *s)
{
    if (end - p == SEG_TS_LEN && get32(p) == TS_PREFIX) {
        s->options = SEG_OPT_TS;
        s->ts_val = get32(p + 4);
        s->ts_echo = get32(p + 8);
        return true;
    }
    while (p < end && *p != OPT_END) {
        if (*p == OPT_NOP) {
            p++;
            continue;
        }
        if (end - p < 2 || p[1] < 2 || p[1] > end - p)
            return false;
        parse_option(p, s);
        p += p[1];
    }
    return true;
}

enum tcp_drop segment_parse(struct rte_mbuf *m, const struct ip4_rx *rx, struct segment *ret)
{
    unsigned total = rx->payload_len;
    if (total < SEG_HDR_LEN || m->data_len < rx->hdr_len + total)
        return TCP_DROP_short_header;
    const uint8_t *p = rte_pktmbuf_mtod_offset(m, const uint8_t *, rx->hdr_len);
    unsigned hdr_len = (p[12] >> 4) * 4;
    if (hdr_len < SEG_HDR_LEN || hdr_len > total)
        return TCP_DROP_data_offset;
    if (!rx->l4_csum_ok &&
        csum_l4(m, rx->hdr_len, (uint16_t)total, rx->src, rx->dst, IPPROTO_TCP) != 0)
        return TCP_DROP_checksum;
    struct segment s = {
        .m = m,
        .tuple = {.local_addr = rx->dst, .peer_addr = rx->src},
        .seq = get32(p + 4),
        .ack = get32(p + 8),
        .flags = p[13] & 0x3f,
        .window = get16(p + 14),
        .off = m->data_off + rx->hdr_len + hdr_len,
        .len = total - hdr_len,
    };
    memcpy(&s.tuple.peer_port, p, 2);
    memcpy(&s.tuple.local_port, p + 2, 2);
    if (s.tuple.peer_port == 0 || s.tuple.local_port == 0)
        return TCP_DROP_port_zero;
    if (!parse_options(p + SEG_HDR_LEN, p + hdr_len, &s))
        return TCP_DROP_bad_option;
    *ret = s;
    return TCP_DROP_accepted;
}

unsigned segment_hdr_len(const struct segment_out *s)
{
    unsigned len = SEG_HDR_LEN;
    if (s->options & SEG_OPT_MSS)
        len += 4;
    if (s->options & SEG_OPT_WSCALE)
        len += 4;
    if (s->options & SEG_OPT_TS)
        len += SEG_TS_LEN;
    else if (s->options & SEG_OPT_SACK_OK)
        len += 4;
    if (s->sacks)
        len += 4 + 8u * s->sacks;
    return len;
}

static uint8_t *put_options(uint8_t *p, const struct segment_out *s)
{
    if (s->options & SEG_OPT_MSS) {
        *p++ = OPT_MSS;
        *p++ = 4;
        p = put16(p, s->mss);
    }
    if (s->options & SEG_OPT_TS) {
        /* SACK-permitted takes the place of the padding. */
        bool sack_ok = s->options & SEG_OPT_SACK_OK;
        *p++ = sack_ok ? OPT_SACK_OK : OPT_NOP;
        *p++ = sack_ok ? 2 : OPT_NOP;
        *p++ = OPT_TS;
        *p++ = 10;
        p = put32(put32(p, s->ts_val), s->ts_echo);
    } else if (s->options & SEG_OPT_SACK_OK) {
        p = put32(p, 0x01010000u | OPT_SACK_OK << 8 | 2);
    }
    if (s->options & SEG_OPT_WSCALE)
        p = put32(p, OPT_NOP << 24 | OPT_WSCALE << 16 | 3 << 8 | s->wscale);
    if (s->sacks) {
        p = put32(p, 0x01010000u | OPT_SACK << 8 | (2u + 8u * s->sacks));
        for (unsigned i = 0; i < s->sacks; i++)
            p = put32(put32(p, s->sack[i][0]), s->sack[i][1]);
    }
    return p;
}

void segment_build(void *to, const struct segment_out *s)
{
    struct rte_tcp_hdr *h = to;
    h->src_port = s->tuple.local_port;
    h->dst_port = s->tuple.peer_port;
    h->sent_seq = rte_cpu_to_be_32(s->seq);
    h->recv_ack = rte_cpu_to_be_32(s->ack);
    h->data_off = (uint8_t)(segment_hdr_len(s) / 4 << 4);
    h->tcp_flags = s->flags;
    h->rx_win = rte_cpu_to_be_16(s->window);
    h->cksum = 0;
    h->tcp_urp = 0;
    put_options((uint8_t *)(h + 1), s);
}

void segment_checksum(struct rte_mbuf *m, const struct tuple *t, unsigned hdr_len,
                      uint32_t offloads)
{
    struct rte_tcp_hdr *h = rte_pktmbuf_mtod(m, struct rte_tcp_hdr *);
    uint16_t len = (uint16_t)m->pkt_len;
    if (offloads & NETIF_TX_TCP_CSUM) {
        m->ol_flags |= RTE_MBUF_F_TX_TCP_CKSUM | RTE_MBUF_F_TX_IPV4;
        m->l4_len = hdr_len;
        h->cksum = csum_fold(csum_pseudo4(t->local_addr, t->peer_addr, IPPROTO_TCP, len));
        return;
    }
    h->cksum = csum_l4(m, 0, len, t->local_addr, t->peer_addr, IPPROTO_TCP);
}
