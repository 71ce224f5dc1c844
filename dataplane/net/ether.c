#include <assert.h>
#include <string.h>

#include <rte_arp.h>
#include <rte_prefetch.h>
#include <rte_tcp.h>

#include "dataplane/net/net_priv.h"

#define PREFETCH_AHEAD 4

/* The longest headers that are looked at in one piece: Ethernet, IPv4 and either TCP with all
 * options or ICMP with its quote. */
#define HEADERS_MAX (RTE_ETHER_HDR_LEN + 60 + 8 + 60 + 20)

static struct net_if *if_of(struct net *n, const struct netif *nif)
{
    for (unsigned i = 0; i < n->nifs; i++)
        if (n->ifs[i].nif == nif)
            return &n->ifs[i];
    return NULL;
}

/* Upper layers read headers through one pointer. */
static bool make_headers_contiguous(struct rte_mbuf *m)
{
    uint32_t want = m->pkt_len < HEADERS_MAX ? m->pkt_len : HEADERS_MAX;
    return m->data_len >= want || rte_pktmbuf_linearize(m) == 0;
}

/* Frames stand at odd addresses when a payload that is sent without a copy does. */
static struct rte_ether_hdr header_of(const struct rte_mbuf *m)
{
    struct rte_ether_hdr eh;
    memcpy(&eh, rte_pktmbuf_mtod(m, const void *), sizeof eh);
    return eh;
}

static void ether_input(struct net *n, struct net_if *ifp, struct rte_mbuf *m, bool answer)
{
    n->stats.rx_packets++;
    n->stats.rx_bytes += m->pkt_len;
    if (unlikely(m->pkt_len < RTE_ETHER_HDR_LEN || !make_headers_contiguous(m))) {
        net_drop(n, m, NET_DROP_runt);
        return;
    }
    const struct rte_ether_hdr eh = header_of(m);
    bool to_us = rte_is_same_ether_addr(&eh.dst_addr, &ifp->nif->mac);
    if (unlikely(!to_us && !rte_is_multicast_ether_addr(&eh.dst_addr))) {
        net_drop(n, m, NET_DROP_not_for_us);
        return;
    }
    uint16_t type = eh.ether_type;
    rte_pktmbuf_adj(m, RTE_ETHER_HDR_LEN);
    if (likely(type == rte_cpu_to_be_16(RTE_ETHER_TYPE_IPV4)))
        ip4_input(n, ifp->nif, m, to_us);
    else if (type == rte_cpu_to_be_16(RTE_ETHER_TYPE_ARP))
        arp_input(n, ifp, m, to_us, answer);
    else
        net_drop(n, m, NET_DROP_ethertype);
}

void net_input(struct net *n, struct netif *nif, struct rte_mbuf **pkts, unsigned count)
{
    struct net_if *ifp = if_of(n, nif);
    assert(ifp);
    for (unsigned i = 0; i < count && i < PREFETCH_AHEAD; i++)
        rte_prefetch0(rte_pktmbuf_mtod(pkts[i], void *));
    for (unsigned i = 0; i < count; i++) {
        if (i + PREFETCH_AHEAD < count)
            rte_prefetch0(rte_pktmbuf_mtod(pkts[i + PREFETCH_AHEAD], void *));
        ether_input(n, ifp, pkts[i], true);
    }
}

void net_input_copy(struct net *n, struct netif *nif, struct rte_mbuf *m)
{
    struct net_if *ifp = if_of(n, nif);
    assert(ifp);
    ether_input(n, ifp, m, false);
}

void ether_output(struct net *n, struct netif *nif, struct rte_mbuf *m,
                  const struct rte_ether_addr *dst, uint16_t type)
{
    /* In front of payload that goes on without a copy the header may stand at an odd address. */
    const struct rte_ether_hdr eh = {
        .dst_addr = *dst, .src_addr = nif->mac, .ether_type = rte_cpu_to_be_16(type)};
    char *to = rte_pktmbuf_prepend(m, sizeof eh);
    assert(to);
    memcpy(to, &eh, sizeof eh);
    n->stats.tx_packets++;
    n->stats.tx_bytes += m->pkt_len;
    netif_transmit(nif, m);
}

/* The flow of an IPv4 packet of `len` contiguous bytes, as its sender sees it when `sent` (a quote
 * of our own packet), else as its receiver does. */
static bool flow_of(const uint8_t *p, uint32_t len, bool sent, struct net_flow *ret_flow)
{
    const struct rte_ipv4_hdr *ip = (const struct rte_ipv4_hdr *)p;
    if (len < sizeof *ip || (ip->version_ihl >> 4) != 4)
        return false;
    uint32_t hdr_len = rte_ipv4_hdr_len(ip);
    if (hdr_len < sizeof *ip || len < hdr_len + 4 || ip->next_proto_id != IPPROTO_TCP)
        return false;
    if (ip->fragment_offset & rte_cpu_to_be_16(RTE_IPV4_HDR_OFFSET_MASK))
        return false;
    const struct rte_tcp_hdr *th = (const struct rte_tcp_hdr *)(p + hdr_len);
    if (sent)
        *ret_flow = (struct net_flow){ip->src_addr, ip->dst_addr, th->src_port, th->dst_port};
    else
        *ret_flow = (struct net_flow){ip->dst_addr, ip->src_addr, th->dst_port, th->src_port};
    return true;
}

/* The quoted segment's flow of an ICMP error, RFC 792. */
static bool quoted_flow_of(const uint8_t *p, uint32_t len, struct net_flow *ret_flow)
{
    const struct rte_ipv4_hdr *ip = (const struct rte_ipv4_hdr *)p;
    if (len < sizeof *ip || ip->next_proto_id != IPPROTO_ICMP)
        return false;
    uint32_t hdr_len = rte_ipv4_hdr_len(ip);
    if (hdr_len < sizeof *ip || len < hdr_len + 8)
        return false;
    uint8_t type = p[hdr_len];
    if (type != 3 && type != 11 && type != 12)
        return false;
    return flow_of(p + hdr_len + 8, len - hdr_len - 8, true, ret_flow);
}

enum net_kind net_classify(const struct rte_mbuf *m, struct net_flow *ret_flow)
{
    if (m->data_len < RTE_ETHER_HDR_LEN)
        return NET_KIND_OTHER;
    const uint16_t type = header_of(m).ether_type;
    if (type == rte_cpu_to_be_16(RTE_ETHER_TYPE_ARP))
        return NET_KIND_ARP;
    if (type != rte_cpu_to_be_16(RTE_ETHER_TYPE_IPV4))
        return NET_KIND_OTHER;
    const uint8_t *p = rte_pktmbuf_mtod_offset(m, const uint8_t *, RTE_ETHER_HDR_LEN);
    uint32_t len = m->data_len - RTE_ETHER_HDR_LEN;
    if (flow_of(p, len, false, ret_flow) || quoted_flow_of(p, len, ret_flow))
        return NET_KIND_TCP4;
    return NET_KIND_OTHER;
}
