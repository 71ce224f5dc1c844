#include <errno.h>

#include "dataplane/net/net_priv.h"

static uint32_t mask_of(uint8_t prefix)
{
    return prefix ? rte_cpu_to_be_32(UINT32_MAX << (32 - prefix)) : 0;
}

static bool covers(const struct netif_addr *a, uint32_t addr)
{
    return ((a->addr ^ addr) & mask_of(a->prefix)) == 0;
}

bool ip4_is_broadcast(const struct netif *nif, uint32_t addr)
{
    if (addr == UINT32_MAX)
        return true;
    for (unsigned i = 0; i < nif->naddrs; i++) {
        const struct netif_addr *a = &nif->addrs[i];
        if (a->prefix > 30 || !covers(a, addr)) /* RFC 3021: a /31 has no broadcast */
            continue;
        uint32_t host = ~mask_of(a->prefix);
        /* Host part all ones, or all zeros as 4.2BSD had it (RFC 1122 §3.3.6). */
        if ((addr & host) == host || (addr & host) == 0)
            return true;
    }
    return false;
}

/* The address whose prefix covers `addr` most closely; NULL when it is not on this wire. */
static const struct netif_addr *connected(const struct netif *nif, uint32_t addr)
{
    const struct netif_addr *best = NULL;
    for (unsigned i = 0; i < nif->naddrs; i++) {
        const struct netif_addr *a = &nif->addrs[i];
        if (covers(a, addr) && (!best || a->prefix > best->prefix))
            best = a;
    }
    return best;
}

bool netif_is_connected(const struct netif *nif, uint32_t addr)
{
    return connected(nif, addr) != NULL;
}

uint32_t netif_source_for(const struct netif *nif, uint32_t peer)
{
    const struct netif_addr *a = connected(nif, peer);
    if (a)
        return a->addr;
    return nif->naddrs ? nif->addrs[0].addr : 0;
}

/* Longest prefix over all interfaces that own `src` (or any, when 0); a gateway is prefix 0. */
static struct netif *best_if(struct net *n, uint32_t dst, uint32_t src, uint32_t *ret_next_hop)
{
    struct netif *best = NULL;
    int best_len = -1;
    for (unsigned i = 0; i < n->nifs; i++) {
        struct netif *nif = n->ifs[i].nif;
        if (src && !netif_has_addr(nif, src))
            continue;
        const struct netif_addr *a = connected(nif, dst);
        if (a && a->prefix > best_len) {
            best = nif;
            best_len = a->prefix;
            *ret_next_hop = dst;
        } else if (!a && nif->gateway && best_len < 0) {
            best = nif;
            best_len = 0;
            *ret_next_hop = nif->gateway;
        }
    }
    return best;
}

static bool is_unicast_elsewhere(struct net *n, uint32_t dst)
{
    uint8_t first = (uint8_t)(rte_be_to_cpu_32(dst) >> 24);
    if (first == 0 || first == 127 || first >= 224)
        return false;
    for (unsigned i = 0; i < n->nifs; i++)
        if (netif_has_addr(n->ifs[i].nif, dst) || ip4_is_broadcast(n->ifs[i].nif, dst))
            return false;
    return true;
}

int net_route_lookup(struct net *n, uint32_t dst, uint32_t src, struct net_route *ret_route)
{
    uint32_t next_hop = 0;
    struct netif *nif = is_unicast_elsewhere(n, dst) ? best_if(n, dst, src, &next_hop) : NULL;
    if (!nif || nif->naddrs == 0)
        return -ENETUNREACH;
    uint16_t pmtu = pmtu_get(&n->pmtu, dst, net_now(n));
    ret_route->nif = nif;
    ret_route->src = src ? src : netif_source_for(nif, next_hop);
    ret_route->next_hop = next_hop;
    ret_route->mtu = pmtu && pmtu < nif->mtu ? pmtu : nif->mtu;
    return 0;
}

void net_pmtu_learn(struct net *n, uint32_t dst, uint16_t mtu)
{
    if (mtu < NET_PMTU_MIN)
        mtu = NET_PMTU_MIN;
    if (pmtu_set(&n->pmtu, dst, mtu, net_now(n)))
        net_paths_changed(n);
}
