#include <assert.h>
#include <errno.h>
#include <netinet/in.h>

#include "dataplane/net/csum.h"
#include "dataplane/net/net_priv.h"

#define TTL_DEFAULT        64
#define ICMP_PROTO_UNREACH 2
#define ICMP_PORT_UNREACH  3

/* --- in --- */

/* Cuts Ethernet padding. */
static void trim_to(struct rte_mbuf *m, uint32_t len)
{
    if (likely(m->pkt_len == len))
        return;
    if (likely(m->nb_segs == 1)) {
        m->pkt_len = len;
        m->data_len = (uint16_t)len;
        return;
    }
    struct rte_mbuf *s = m;
    uint32_t left = len;
    uint16_t segs = 1;
    m->pkt_len = len;
    while (left > s->data_len && s->next) {
        left -= s->data_len;
        s = s->next;
        segs++;
    }
    s->data_len = (uint16_t)left;
    rte_pktmbuf_free(s->next);
    s->next = NULL;
    m->nb_segs = segs;
}

static bool header_csum_ok(const struct netif *nif, const struct rte_mbuf *m,
                           const struct rte_ipv4_hdr *ip, uint32_t hdr_len)
{
    if (nif->offloads & NETIF_RX_CSUM) {
        uint64_t f = m->ol_flags & RTE_MBUF_F_RX_IP_CKSUM_MASK;
        if (f == RTE_MBUF_F_RX_IP_CKSUM_GOOD)
            return true;
        if (f == RTE_MBUF_F_RX_IP_CKSUM_BAD)
            return false;
    }
    return csum_finish(csum_partial(ip, hdr_len, 0)) == 0;
}

/* RFC 1122 §3.2.1.3: what no source address may be. One of ours is a spoof, or a loop. */
static bool is_martian(const struct netif *nif, uint32_t src)
{
    uint8_t first = (uint8_t)(rte_be_to_cpu_32(src) >> 24);
    return first == 0 || first == 127 || first >= 224 || netif_has_addr(nif, src) ||
           ip4_is_broadcast(nif, src);
}

/* NET_DROP_delivered when the header is good; ret_rx is filled then. TTL isn't looked at: it is for
 * who forwards (RFC 1122 §3.2.1.7). */
static enum net_drop parse(struct netif *nif, const struct rte_mbuf *m, bool l2_unicast,
                           struct ip4_rx *ret_rx)
{
    const struct rte_ipv4_hdr *ip = rte_pktmbuf_mtod(m, const struct rte_ipv4_hdr *);
    if (unlikely(m->data_len < sizeof *ip))
        return NET_DROP_runt;
    if (unlikely((ip->version_ihl >> 4) != 4))
        return NET_DROP_ip_version;
    uint32_t hdr_len = rte_ipv4_hdr_len(ip);
    uint32_t total = rte_be_to_cpu_16(ip->total_length);
    if (unlikely(hdr_len < sizeof *ip || total < hdr_len || total > m->pkt_len ||
                 hdr_len > m->data_len))
        return NET_DROP_ip_header;
    if (unlikely(!header_csum_ok(nif, m, ip, hdr_len)))
        return NET_DROP_ip_checksum;
    if (unlikely(is_martian(nif, ip->src_addr)))
        return NET_DROP_ip_martian;
    if (unlikely(!l2_unicast || ip4_is_multicast(ip->dst_addr) ||
                 (!netif_has_addr(nif, ip->dst_addr) && ip4_is_broadcast(nif, ip->dst_addr))))
        return NET_DROP_ip_broadcast;
    if (unlikely(!netif_has_addr(nif, ip->dst_addr)))
        return NET_DROP_ip_not_local;
    if (unlikely(ip->fragment_offset &
                 rte_cpu_to_be_16(RTE_IPV4_HDR_MF_FLAG | RTE_IPV4_HDR_OFFSET_MASK)))
        return NET_DROP_ip_fragment;
    *ret_rx = (struct ip4_rx){
        .nif = nif,
        .src = ip->src_addr,
        .dst = ip->dst_addr,
        .proto = ip->next_proto_id,
        .ttl = ip->time_to_live,
        .tos = ip->type_of_service,
        .hdr_len = (uint8_t)hdr_len,
        .payload_len = (uint16_t)(total - hdr_len),
    };
    return NET_DROP_delivered;
}

/* False: the port has found the TCP or UDP checksum wrong. */
static bool l4_csum_of_port(const struct rte_mbuf *m, struct ip4_rx *rx)
{
    if (!(rx->nif->offloads & NETIF_RX_CSUM) ||
        (rx->proto != IPPROTO_TCP && rx->proto != IPPROTO_UDP))
        return true;
    uint64_t f = m->ol_flags & RTE_MBUF_F_RX_L4_CKSUM_MASK;
    /* NONE: the field is not filled in, but the data is known to be whole (virtio). */
    rx->l4_csum_ok = f == RTE_MBUF_F_RX_L4_CKSUM_GOOD || f == RTE_MBUF_F_RX_L4_CKSUM_NONE;
    return f != RTE_MBUF_F_RX_L4_CKSUM_BAD;
}

void ip4_input(struct net *n, struct netif *nif, struct rte_mbuf *m, bool l2_unicast)
{
    struct ip4_rx rx;
    enum net_drop why = parse(nif, m, l2_unicast, &rx);
    if (unlikely(why != NET_DROP_delivered)) {
        net_drop(n, m, why);
        return;
    }
    trim_to(m, rx.hdr_len + rx.payload_len);
    if (unlikely(!l4_csum_of_port(m, &rx))) {
        net_drop(n, m, NET_DROP_l4_checksum);
        return;
    }
    if (likely(n->protos[rx.proto].fn != NULL)) {
        n->stats.drops[NET_DROP_delivered]++;
        n->protos[rx.proto].fn(n->protos[rx.proto].ctx, m, &rx);
    } else if (rx.proto == IPPROTO_ICMP) {
        icmp_input(n, m, &rx);
    } else {
        uint8_t code = rx.proto == IPPROTO_UDP ? ICMP_PORT_UNREACH : ICMP_PROTO_UNREACH;
        bool sent = icmp_send_unreachable(n, m, &rx, code);
        net_drop(n, m, sent ? NET_DROP_ip_proto : NET_DROP_icmp_rate);
    }
}

/* --- out --- */

static void fill_header(struct net *n, struct rte_ipv4_hdr *ip, struct rte_mbuf *m,
                        const struct netif *nif)
{
    ip->version_ihl = RTE_IPV4_VHL_DEF;
    ip->total_length = rte_cpu_to_be_16((uint16_t)m->pkt_len);
    ip->packet_id = rte_cpu_to_be_16(n->ip_id++);
    ip->time_to_live = TTL_DEFAULT;
    ip->hdr_checksum = 0;
    m->l2_len = RTE_ETHER_HDR_LEN;
    m->l3_len = sizeof *ip;
    m->ol_flags &= ~(RTE_MBUF_F_TX_IP_CKSUM | RTE_MBUF_F_TX_IPV4);
    if (nif->offloads & NETIF_TX_IP_CSUM)
        m->ol_flags |= RTE_MBUF_F_TX_IP_CKSUM;
    else
        ip->hdr_checksum = csum_finish(csum_partial(ip, sizeof *ip, 0));
    if (m->ol_flags & RTE_MBUF_F_TX_OFFLOAD_MASK)
        m->ol_flags |= RTE_MBUF_F_TX_IPV4;
}

static int refuse(struct net *n, struct rte_mbuf *m, enum net_drop why, int err)
{
    net_drop(n, m, why);
    return err;
}

int net_output4(struct net *n, struct net_path *p, struct rte_mbuf *m, uint32_t src, uint32_t dst,
                uint8_t proto, uint8_t tos, bool dont_fragment)
{
    struct net_path once = {0};
    if (!p)
        p = &once;
    if (unlikely(net_now(n) >= n->pmtu.next_expiry) && pmtu_expire(&n->pmtu, net_now(n)))
        net_paths_changed(n);
    if (unlikely(p->gen_ != n->gen)) {
        int err = net_route_lookup(n, dst, src, &p->route);
        if (err)
            return refuse(n, m, NET_DROP_no_route, err);
        p->neigh_ = NULL;
        p->gen_ = n->gen;
    }
    struct netif *nif = p->route.nif;
    struct rte_ipv4_hdr *ip = (struct rte_ipv4_hdr *)rte_pktmbuf_prepend(m, sizeof *ip);
    assert(ip && rte_pktmbuf_headroom(m) >= RTE_ETHER_HDR_LEN);
    assert(m->nb_segs == 1 || (nif->offloads & NETIF_TX_MULTI_SEGS));
    if (unlikely(m->pkt_len > (dont_fragment ? p->route.mtu : nif->mtu)))
        return refuse(n, m, NET_DROP_mtu, -EMSGSIZE);
    if (unlikely(!p->neigh_)) {
        p->neigh_ = neigh_get(n, nif, p->route.next_hop);
        p->gen_ = n->gen; /* making room may have moved it */
        if (!p->neigh_)
            return refuse(n, m, NET_DROP_neigh_table_full, -ENOBUFS);
    }
    ip->type_of_service = tos;
    ip->fragment_offset = dont_fragment ? rte_cpu_to_be_16(RTE_IPV4_HDR_DF_FLAG) : 0;
    ip->next_proto_id = proto;
    ip->src_addr = src ? src : p->route.src;
    ip->dst_addr = dst;
    fill_header(n, ip, m, nif);
    return neigh_output(p->neigh_, m);
}
