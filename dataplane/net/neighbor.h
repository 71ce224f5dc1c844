/* The neighbour cache of one core: (interface, IPv4 address) → MAC, with the packets that wait for
 * it. RFC 826, RFC 1122 §2.3.2; unreachability detection in the manner of RFC 4861 §7.3.
 *
 * Bounded: entries, packets waiting for one, and packets waiting in all. A full table evicts what
 * has not been used for a while, never what is in use or being resolved.
 *
 * Private to net/.
 */
#ifndef MILLRACE_DATAPLANE_NET_NEIGHBOR_H
#define MILLRACE_DATAPLANE_NET_NEIGHBOR_H

#include <stdbool.h>
#include <stdint.h>

#include <rte_ether.h>
#include <rte_mbuf.h>

#include "runtime/timer.h"

#define NEIGH_PENDING_MAX   32  /* packets that wait for one neighbour */
#define NEIGH_PENDING_TOTAL 512 /* and for all of a core's */

struct net;
struct netif;

enum neigh_state {
#define NEIGH_STATE(name, has_mac, next) NEIGH_##name,
#include "dataplane/net/neigh_state.def"
#undef NEIGH_STATE
    NEIGH_STATE_COUNT
};

struct neigh {
    struct neigh *hash_next;
    struct net *net;
    struct netif *nif;
    uint32_t ip; /* network order */
    struct rte_ether_addr mac;
    uint8_t state;   /* enum neigh_state; changed by neigh_set_state() alone */
    uint8_t tries;   /* requests sent in this state */
    uint8_t fails;   /* failures in a row */
    bool referenced; /* used since the eviction hand came by */
    uint16_t pend_head, pend_tail, pend_n; /* indices into the table's pend[], when pend_n > 0 */
    uint64_t used_at;
    uint64_t retry_at; /* FAILED: when asking again is allowed */
    struct timer timer;
};

struct neigh_pending {
    struct rte_mbuf *m;
    uint16_t next;
};

struct neigh_table {
    uint32_t max, count, incomplete;
    uint32_t bucket_mask;
    uint32_t hand;   /* eviction's place in slots */
    uint32_t nslots; /* allocated so far, in chunks */
    uint64_t key;
    struct neigh **buckets;
    struct neigh **slots;
    struct neigh *free; /* through hash_next */
    uint16_t pend_free; /* through next */
    uint16_t pend_used;
    struct neigh_pending pend[NEIGH_PENDING_TOTAL];
};

const char *neigh_state_name(enum neigh_state s);

int neigh_init(struct net *n, uint32_t max); /* -ENOMEM */
void neigh_fini(struct net *n);              /* frees what waits */

/* NULL when there is none. */
struct neigh *neigh_find(struct net *n, const struct netif *nif, uint32_t ip);

/* Finds or makes; NULL when the table is full of used entries. A new one is in state none and must
 * be given another in the same call chain. */
struct neigh *neigh_get(struct net *n, struct netif *nif, uint32_t ip);

/* Sends or queues an IPv4 packet (data_off at the IP header, 14 bytes of headroom) to a neighbour
 * from neigh_get(). Consumes m. 0, -EHOSTUNREACH, -ENOBUFS. */
int neigh_output(struct neigh *ne, struct rte_mbuf *m);

/* The neighbour has said where it is. `solicited`: in answer to our request, sent to us alone. */
void neigh_learn(struct neigh *ne, const struct rte_ether_addr *mac, bool solicited);

#endif
