/* The network layer of one core: Ethernet, ARP, IPv4, ICMP, routes and neighbours, sans IO.
 *
 * May use: runtime, rte_mbuf and header structs. Used by: tcp, core.
 *
 * Every packet given to net_input() is consumed and leaves through exactly one counted reason
 * (drop.def). Upper protocols register themselves in protos[]; ICMP errors about a TCP segment
 * reach TCP through on_icmp_error.
 */
#ifndef MILLRACE_DATAPLANE_NET_NET_H
#define MILLRACE_DATAPLANE_NET_NET_H

#include <stdbool.h>
#include <stdint.h>

#include <rte_mbuf.h>

#include "dataplane/net/netif.h"

struct sched;

#define NET_MAX_IFS 16

enum net_drop {
#define DROP(name, text) NET_DROP_##name,
#include "dataplane/net/drop.def"
#undef DROP
    NET_DROP_COUNT
};

/* Text of a reason, for metrics ("no_route") and for people. */
const char *net_drop_name(enum net_drop d);
const char *net_drop_text(enum net_drop d);

/* A received IPv4 packet whose header has been checked: m->data_off is at the IP header, pkt_len
 * is cut to the IP total length. */
struct ip4_rx {
    struct netif *nif;
    uint32_t src, dst; /* network order */
    uint8_t proto, ttl, tos;
    uint8_t hdr_len; /* with options */
    uint16_t payload_len;
    bool l4_csum_ok; /* the port has verified the TCP checksum */
};

/* An ICMP error that quotes a segment of ours (RFC 792, 1191); all from the quote. */
struct icmp_error {
    uint8_t type, code;
    uint16_t mtu;                /* next-hop MTU for "fragmentation needed", else 0 */
    uint32_t src, dst;           /* of the quoted packet: src is ours */
    uint16_t src_port, dst_port; /* host order */
    uint32_t seq;                /* host order */
};

struct net;

/* Consumes m. */
typedef void net_proto_fn(void *ctx, struct rte_mbuf *m, const struct ip4_rx *rx);

struct net_opts {
    struct sched *sched;       /* time and timers */
    struct rte_mempool *mbufs; /* for ARP, ICMP */
    uint64_t seed;             /* ICMP ids, jitter */
    uint32_t max_neighbors;    /* bound of the ARP cache; 0: 1024 */
};

struct net *net_new(const struct net_opts *o); /* NULL: no memory */
void net_free(struct net *n);

/* The netif stays the caller's and must outlive the net. Announces its addresses by gratuitous ARP
 * when `announce`. -ENOSPC over NET_MAX_IFS. */
int net_add_if(struct net *n, struct netif *nif, bool announce);

/* proto is an IP protocol number. */
void net_set_proto(struct net *n, uint8_t proto, net_proto_fn *fn, void *ctx);
void net_set_icmp_error(struct net *n, void (*fn)(void *ctx, const struct icmp_error *e),
                        void *ctx);

/* Consumes a burst of received frames. ARP frames are also what other cores need: the core loop
 * hands a copy to each of them, which takes it by net_input_copy(). */
void net_input(struct net *n, struct netif *nif, struct rte_mbuf **pkts, unsigned count);

/* Consumes a copy of an ARP frame that another core has received (and answers): the cache learns
 * from it, nothing is sent in answer. */
void net_input_copy(struct net *n, struct netif *nif, struct rte_mbuf *m);

/* What a received frame is, before net_input(): whom it belongs to. Reads only what is there and
 * believes nothing: a malformed frame is NET_KIND_OTHER and meets its reason in net_input(). */
enum net_kind {
    NET_KIND_OTHER, /* whoever has it handles it */
    NET_KIND_ARP,   /* every core learns from it */
    NET_KIND_TCP4,  /* a segment, or an ICMP error about one: the flow's owner handles it */
};

/* As the local end sees it (of an ICMP error: the quoted segment's); network order. */
struct net_flow {
    uint32_t local_addr, peer_addr;
    uint16_t local_port, peer_port;
};

/* ret_flow is set for NET_KIND_TCP4 only. m->data_off is at the Ethernet header. */
enum net_kind net_classify(const struct rte_mbuf *m, struct net_flow *ret_flow);

/* Where a packet to `dst` leaves: interface, source address, path MTU. */
struct net_route {
    struct netif *nif;
    uint32_t src;      /* network order */
    uint32_t next_hop; /* network order */
    uint16_t mtu;
};

/* -ENETUNREACH without a route. `src` (network order, 0 for any) picks the interface that owns it.
 */
int net_route_lookup(struct net *n, uint32_t dst, uint32_t src, struct net_route *ret_route);

/* A cached next hop for connections: look-up once, reuse per packet. Revalidates itself when the
 * neighbour or the path's MTU changes. Zero before first use; one destination for its life. */
struct net_path {
    struct net_route route;
    void *neigh_;
    uint32_t gen_;
};

/* Sends an L4 packet: m->data_off is at the L4 header, with at least 14 + 20 bytes of headroom; the
 * IPv4 and Ethernet headers are put in front. L4 checksum already done or left to the port by
 * ol_flags (l4_len set; l2_len and l3_len are set here). Consumes m. While the neighbour is being
 * resolved the packet waits in a bounded queue. `p` may be NULL: looked up each time. `src` 0 takes
 * the route's.
 *
 * 0, or (m is freed and counted all the same) -EHOSTUNREACH when the neighbour is known to have
 * failed, -ENETUNREACH without a route, -EMSGSIZE when the packet is larger than the MTU, -ENOBUFS
 * when it had to wait for the neighbour and there was no place. */
int net_output4(struct net *n, struct net_path *p, struct rte_mbuf *m, uint32_t src, uint32_t dst,
                uint8_t proto, uint8_t tos, bool dont_fragment);

/* Registers a call for neighbours that fail to resolve: every flow through it may be told. */
void net_set_neighbor_failed(struct net *n, void (*fn)(void *ctx, uint32_t next_hop), void *ctx);

/* Learned path MTU for a destination (RFC 1191), bounded cache with ageing (10 min). Only ever
 * lowers what net_route_lookup() says, and never below NET_PMTU_MIN. Believe an ICMP error first
 * (RFC 5927). */
#define NET_PMTU_MIN 552
void net_pmtu_learn(struct net *n, uint32_t dst, uint16_t mtu);

struct net_stats {
    uint64_t rx_packets, rx_bytes, tx_packets, tx_bytes;
    uint64_t arp_requests, arp_replies; /* sent */
    uint64_t arp_announcements,
        arp_conflicts; /* sent; seen: another host uses an address of ours */
    uint64_t neigh_failures, neigh_evicted;
    uint64_t icmp_echo, icmp_errors_sent, icmp_errors_received;
    uint64_t drops[NET_DROP_COUNT];
    uint32_t neighbors, mbufs_queued; /* held in pending queues now */
};
const struct net_stats *net_stats(const struct net *n);
void net_drop(struct net *n, struct rte_mbuf *m, enum net_drop why); /* frees and counts */

#endif
