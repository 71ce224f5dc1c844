/* An interface as the stack sees it: addresses, MTU, what the port's hardware does, and a transmit
 * batch. Packets and `now` in, packets out: the stack never calls a port.
 *
 * One netif per (core, port). The core loop (or a test) feeds net_input() and takes what stands in
 * tx[] when a batch is full (flush) and at the end of a pass.
 *
 * Thread: the owner core.
 */
#ifndef MILLRACE_DATAPLANE_NET_NETIF_H
#define MILLRACE_DATAPLANE_NET_NETIF_H

#include <stdbool.h>
#include <stdint.h>

#include <rte_ether.h>
#include <rte_mbuf.h>

#define NETIF_TX_BATCH  64
#define NETIF_MAX_ADDRS 16

/* What the port does for us; without the flag the stack does it in software. */
enum netif_offload {
    NETIF_TX_IP_CSUM = 1 << 0,    /* fills the IPv4 header checksum */
    NETIF_TX_TCP_CSUM = 1 << 1,   /* fills the TCP checksum; we leave the pseudo-header's */
    NETIF_RX_CSUM = 1 << 2,       /* marks good and bad checksums in ol_flags */
    NETIF_TX_MULTI_SEGS = 1 << 3, /* takes chained mbufs */
};

struct netif_addr {
    uint32_t addr; /* network order */
    uint8_t prefix;
};

struct netif {
    struct rte_ether_addr mac;
    uint16_t mtu;      /* IP packet size, without Ethernet */
    uint16_t index;    /* port number in the config */
    uint32_t offloads; /* enum netif_offload */
    uint32_t gateway;  /* network order, 0 none */
    uint8_t naddrs;
    struct netif_addr addrs[NETIF_MAX_ADDRS];

    /* Filled by the stack. flush() consumes every mbuf in tx[0..tx_n) and sets tx_n to 0; what the
     * port can't take is freed and counted there. */
    uint16_t tx_n;
    struct rte_mbuf *tx[NETIF_TX_BATCH];
    void (*flush)(struct netif *nif);
    void *flush_ctx;
};

/* Takes over the reference. */
static inline void netif_transmit(struct netif *nif, struct rte_mbuf *m)
{
    nif->tx[nif->tx_n++] = m;
    if (nif->tx_n == NETIF_TX_BATCH)
        nif->flush(nif);
}

static inline bool netif_has_addr(const struct netif *nif, uint32_t addr)
{
    for (unsigned i = 0; i < nif->naddrs; i++)
        if (nif->addrs[i].addr == addr)
            return true;
    return false;
}

#endif
