#include <rte_arp.h>

#include "dataplane/net/net_priv.h"

#define ANNOUNCE_COUNT       3
#define ANNOUNCE_INTERVAL_NS (2 * NET_NS_PER_SEC)  /* RFC 5227 §1.1 ANNOUNCE_INTERVAL */
#define DEFEND_INTERVAL_NS   (10 * NET_NS_PER_SEC) /* RFC 5227 §1.1 DEFEND_INTERVAL */

static const struct rte_ether_addr broadcast = {{0xff, 0xff, 0xff, 0xff, 0xff, 0xff}};
static const struct rte_ether_addr zero_mac;

/* False: no mbuf. */
static bool arp_send(struct net *n, struct netif *nif, const struct rte_ether_addr *to,
                     const struct rte_arp_ipv4 *data, uint16_t op)
{
    struct rte_mbuf *m = rte_pktmbuf_alloc(n->mbufs);
    if (!m)
        return false;
    struct rte_arp_hdr *ah = (struct rte_arp_hdr *)rte_pktmbuf_append(m, sizeof *ah);
    ah->arp_hardware = rte_cpu_to_be_16(RTE_ARP_HRD_ETHER);
    ah->arp_protocol = rte_cpu_to_be_16(RTE_ETHER_TYPE_IPV4);
    ah->arp_hlen = RTE_ETHER_ADDR_LEN;
    ah->arp_plen = 4;
    ah->arp_opcode = rte_cpu_to_be_16(op);
    ah->arp_data = *data;
    ether_output(n, nif, m, to, RTE_ETHER_TYPE_ARP);
    return true;
}

void arp_request(struct net *n, struct netif *nif, uint32_t ip, const struct rte_ether_addr *dst)
{
    struct rte_arp_ipv4 d = {
        .arp_sha = nif->mac, .arp_sip = netif_source_for(nif, ip), .arp_tip = ip};
    if (dst)
        d.arp_tha = *dst;
    if (arp_send(n, nif, dst ? dst : &broadcast, &d, RTE_ARP_OP_REQUEST))
        n->stats.arp_requests++;
}

/* RFC 5227 §3: an announcement is a request, which even hosts that ignore unasked replies take. */
static void announce_addr(struct net *n, struct netif *nif, uint32_t addr)
{
    struct rte_arp_ipv4 d = {
        .arp_sha = nif->mac, .arp_sip = addr, .arp_tha = zero_mac, .arp_tip = addr};
    if (arp_send(n, nif, &broadcast, &d, RTE_ARP_OP_REQUEST))
        n->stats.arp_announcements++;
}

static void announce(struct net_if *ifp, uint64_t now)
{
    for (unsigned i = 0; i < ifp->nif->naddrs; i++)
        announce_addr(ifp->net, ifp->nif, ifp->nif->addrs[i].addr);
    if (--ifp->announces_left > 0)
        timer_arm(&ifp->net->sched->wheel, &ifp->announce, now + ANNOUNCE_INTERVAL_NS);
}

static void announce_fire(struct timer *t, uint64_t now)
{
    announce(container_of(t, struct net_if, announce), now);
}

void arp_announce_start(struct net_if *ifp)
{
    ifp->announce.fire = announce_fire;
    ifp->announces_left = ANNOUNCE_COUNT;
    announce(ifp, net_now(ifp->net));
}

/* Someone else says that our address is theirs: keep it, and say so now and then (RFC 5227 §2.4,
 * (b)). */
static void on_conflict(struct net_if *ifp, uint32_t addr)
{
    struct net *n = ifp->net;
    uint64_t now = net_now(n);
    n->stats.arp_conflicts++;
    if (ifp->defended_at && now - ifp->defended_at < DEFEND_INTERVAL_NS)
        return;
    ifp->defended_at = now;
    announce_addr(n, ifp->nif, addr);
}

static bool arp_is_valid(const struct rte_mbuf *m, const struct rte_arp_hdr *ah)
{
    if (m->data_len < sizeof *ah)
        return false;
    return ah->arp_hardware == rte_cpu_to_be_16(RTE_ARP_HRD_ETHER) &&
           ah->arp_protocol == rte_cpu_to_be_16(RTE_ETHER_TYPE_IPV4) &&
           ah->arp_hlen == RTE_ETHER_ADDR_LEN && ah->arp_plen == 4 &&
           (ah->arp_opcode == rte_cpu_to_be_16(RTE_ARP_OP_REQUEST) ||
            ah->arp_opcode == rte_cpu_to_be_16(RTE_ARP_OP_REPLY)) &&
           !rte_is_multicast_ether_addr(&ah->arp_data.arp_sha) &&
           !rte_is_zero_ether_addr(&ah->arp_data.arp_sha);
}

/* An address that may stand in the cache: on this wire (or its gateway), and one host's. */
static bool may_learn(const struct netif *nif, uint32_t ip)
{
    if (ip == 0 || ip4_is_multicast(ip) || ip4_is_broadcast(nif, ip))
        return false;
    return ip == nif->gateway || netif_is_connected(nif, ip);
}

/* RFC 826, "Packet Reception": merge what is known already; make an entry only for who wants to
 * talk to us. */
static void learn(struct net *n, struct netif *nif, const struct rte_arp_ipv4 *d, bool create,
                  bool solicited)
{
    if (!may_learn(nif, d->arp_sip))
        return;
    struct neigh *ne = create ? neigh_get(n, nif, d->arp_sip) : neigh_find(n, nif, d->arp_sip);
    if (ne)
        neigh_learn(ne, &d->arp_sha, solicited);
}

static bool reply(struct net *n, struct netif *nif, const struct rte_arp_ipv4 *q)
{
    struct rte_arp_ipv4 d = {
        .arp_sha = nif->mac, .arp_sip = q->arp_tip, .arp_tha = q->arp_sha, .arp_tip = q->arp_sip};
    if (!arp_send(n, nif, &q->arp_sha, &d, RTE_ARP_OP_REPLY))
        return false;
    n->stats.arp_replies++;
    return true;
}

static enum net_drop arp_handle(struct net_if *ifp, const struct rte_arp_hdr *ah, bool to_us,
                                bool answer)
{
    struct net *n = ifp->net;
    struct netif *nif = ifp->nif;
    struct rte_arp_ipv4 d = ah->arp_data;
    if (rte_is_same_ether_addr(&d.arp_sha, &nif->mac))
        return NET_DROP_arp_not_for_us; /* our own, come back */
    if (netif_has_addr(nif, d.arp_sip)) {
        if (answer)
            on_conflict(ifp, d.arp_sip);
        return NET_DROP_arp_conflict;
    }
    bool for_us = netif_has_addr(nif, d.arp_tip);
    bool is_request = ah->arp_opcode == rte_cpu_to_be_16(RTE_ARP_OP_REQUEST);
    learn(n, nif, &d, for_us && is_request, for_us && !is_request && to_us);
    if (!for_us)
        return NET_DROP_arp_not_for_us;
    if (is_request && answer && !reply(n, nif, &d))
        return NET_DROP_no_mbuf;
    return NET_DROP_delivered;
}

void arp_input(struct net *n, struct net_if *ifp, struct rte_mbuf *m, bool to_us, bool answer)
{
    const struct rte_arp_hdr *ah = rte_pktmbuf_mtod(m, const struct rte_arp_hdr *);
    net_drop(n, m, arp_is_valid(m, ah) ? arp_handle(ifp, ah, to_us, answer) : NET_DROP_arp_bad);
}
