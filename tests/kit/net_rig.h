/* One network layer on a virtual clock with one interface whose wire is an array: frames in by
 * net_rig_in(), frames out by net_rig_out(). For unit tests, scripts and fuzzing. */
#ifndef MILLRACE_TESTS_KIT_NET_RIG_H
#define MILLRACE_TESTS_KIT_NET_RIG_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <rte_mbuf.h>

#include "dataplane/net/net.h"
#include "runtime/sched.h"

#define NET_RIG_OUT 1024

/* Addresses of the rig, network order. */
#define IP4(a, b, c, d) rte_cpu_to_be_32((uint32_t)RTE_IPV4((uint32_t)(a), b, c, d))
#define RIG_US          IP4(10, 0, 0, 1) /* /24 */
#define RIG_PEER        IP4(10, 0, 0, 2)
#define RIG_GATEWAY     IP4(10, 0, 0, 254)
#define RIG_FAR         IP4(198, 51, 100, 7)

extern const struct rte_ether_addr rig_us_mac, rig_peer_mac, rig_broadcast_mac;

struct net_rig {
    struct sched sched;
    struct rte_mempool *pool;
    struct net *net;
    struct netif nif;
    struct rte_mbuf *out[NET_RIG_OUT]; /* a ring */
    unsigned out_head, out_n;
    uint64_t out_lost; /* over NET_RIG_OUT: freed */
    bool pool_borrowed;
};

struct net_rig_opts {
    unsigned mbufs;           /* 0: 1023 */
    struct rte_mempool *pool; /* instead of one of its own; stays the caller's */
    uint32_t max_neighbors;   /* 0: net's default */
    uint32_t offloads;
    uint16_t mtu; /* 0: 1500 */
    bool announce;
    uint64_t seed;
};

void net_rig_init(struct net_rig *r, const struct net_rig_opts *o);
/* Frees what is in out[]; every mbuf must be back then. */
void net_rig_fini(struct net_rig *r);

/* A frame of `len` bytes in a fresh mbuf. */
struct rte_mbuf *net_rig_mbuf(struct net_rig *r, const void *bytes, size_t len);
void net_rig_in(struct net_rig *r, struct rte_mbuf *m);

/* The next frame that went out, oldest first; the caller frees it. NULL: none. */
struct rte_mbuf *net_rig_out(struct net_rig *r);
/* Frees every frame that went out; returns how many there were. */
unsigned net_rig_out_clear(struct net_rig *r);

/* Moves the clock, stopping at each timer on the way. */
void net_rig_advance(struct net_rig *r, uint64_t ns);

struct rig_arp {
    uint16_t op; /* 1 request, 2 reply */
    struct rte_ether_addr eth_dst, sha, tha;
    uint32_t spa, tpa;
};
struct rte_mbuf *net_rig_arp(struct net_rig *r, const struct rig_arp *a);
/* The peer at `ip` says to us alone that it has `mac`. */
void net_rig_arp_reply(struct net_rig *r, uint32_t ip, const struct rte_ether_addr *mac);
/* True and the fields, when m is a whole ARP frame. */
bool net_rig_parse_arp(const struct rte_mbuf *m, struct rig_arp *ret_arp);

/* An IPv4 frame from rig_peer_mac to us with a right header checksum. */
struct rig_ip4 {
    uint32_t src, dst; /* 0: RIG_PEER, RIG_US */
    uint8_t proto, ttl, tos;
    uint16_t frag; /* flags and offset, host order */
    const void *options;
    uint8_t options_len; /* a multiple of 4 */
    const void *payload;
    uint16_t payload_len;
};
struct rte_mbuf *net_rig_ip4(struct net_rig *r, const struct rig_ip4 *p);

/* Sends `len` bytes as protocol `proto` to `dst` by net_output4(). */
int net_rig_output(struct net_rig *r, struct net_path *p, uint32_t dst, uint8_t proto,
                   const void *bytes, size_t len, bool dont_fragment);

#endif
