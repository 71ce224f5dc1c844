/* What the files of net/ share. Private to net/. */
#ifndef MILLRACE_DATAPLANE_NET_NET_PRIV_H
#define MILLRACE_DATAPLANE_NET_NET_PRIV_H

#include <stdbool.h>
#include <stdint.h>

#include <rte_branch_prediction.h>
#include <rte_byteorder.h>
#include <rte_ether.h>
#include <rte_ip.h>

#include "dataplane/net/neighbor.h"
#include "dataplane/net/net.h"
#include "dataplane/net/netif.h"
#include "dataplane/net/pmtu.h"
#include "runtime/rng.h"
#include "runtime/sched.h"

#define NET_NS_PER_SEC 1000000000ull
#define NET_NS_PER_MS  1000000ull

/* A token bucket in one number (the "virtual scheduling" form of GCRA): `next` is when the bucket
 * will be full again. */
struct net_rate {
    uint64_t interval_ns; /* between two tokens */
    uint64_t depth_ns;    /* interval * (burst - 1) */
    uint64_t next;
};

static inline bool net_rate_take(struct net_rate *r, uint64_t now)
{
    uint64_t next = r->next > now ? r->next : now;
    if (next - now > r->depth_ns)
        return false;
    r->next = next + r->interval_ns;
    return true;
}

struct net_if {
    struct net *net;
    struct netif *nif;
    struct timer announce;
    uint8_t announces_left;
    uint64_t defended_at; /* last answer to an address conflict; 0 never */
};

struct net {
    struct sched *sched;
    struct rte_mempool *mbufs;
    uint32_t gen; /* of every net_path; a change makes them look again */
    uint16_t ip_id;
    unsigned nifs;
    struct net_if ifs[NET_MAX_IFS];
    struct net_rate icmp_errors, icmp_echo;
    struct rng rng;
    void (*on_icmp_error)(void *ctx, const struct icmp_error *e);
    void *icmp_error_ctx;
    void (*on_neighbor_failed)(void *ctx, uint32_t next_hop);
    void *neighbor_failed_ctx;
    struct net_stats stats;
    struct {
        net_proto_fn *fn;
        void *ctx;
    } protos[256];
    struct neigh_table neighs;
    struct pmtu_cache pmtu;
};

static inline uint64_t net_now(const struct net *n)
{
    return sched_now(n->sched);
}

/* Connections must look up their path anew. */
static inline void net_paths_changed(struct net *n)
{
    n->gen++;
}

/* ether.c: puts the header in front (14 bytes of headroom) and hands the frame to the interface. */
void ether_output(struct net *n, struct netif *nif, struct rte_mbuf *m,
                  const struct rte_ether_addr *dst, uint16_t type);

/* arp.c. A frame's payload; `answer` false: learn only. Consumes m. */
void arp_input(struct net *n, struct net_if *ifp, struct rte_mbuf *m, bool to_us, bool answer);
/* Asks for `ip`, by broadcast when `dst` is NULL. Best effort. */
void arp_request(struct net *n, struct netif *nif, uint32_t ip, const struct rte_ether_addr *dst);
/* Starts the announcements of every address. */
void arp_announce_start(struct net_if *ifp);

/* ip4.c. m->data_off at the IP header. Consumes m. */
void ip4_input(struct net *n, struct netif *nif, struct rte_mbuf *m, bool l2_unicast);

/* icmp.c. Consumes m. */
void icmp_input(struct net *n, struct rte_mbuf *m, const struct ip4_rx *rx);
/* Answers m (data_off at the IP header) with "destination unreachable"; m stays the caller's. False
 * when the rate limit suppressed it. */
bool icmp_send_unreachable(struct net *n, const struct rte_mbuf *m, const struct ip4_rx *rx,
                           uint8_t code);

/* route.c */
bool ip4_is_broadcast(const struct netif *nif, uint32_t addr);
static inline bool ip4_is_multicast(uint32_t addr)
{
    return (addr & rte_cpu_to_be_32(0xf0000000)) == rte_cpu_to_be_32(0xe0000000);
}
/* The address of ours that stands nearest to `peer`; 0 when the interface has none. */
uint32_t netif_source_for(const struct netif *nif, uint32_t peer);
bool netif_is_connected(const struct netif *nif, uint32_t addr);

#endif
