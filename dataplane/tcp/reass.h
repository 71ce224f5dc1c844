/* Out-of-order bytes of one connection: a list of blocks, each a contiguous range held as a rope,
 * in sequence order, never adjacent or overlapping. What arrived first wins over what comes later
 * for the same numbers. The blocks are what SACK reports (RFC 2018).
 *
 * Bounds: blocks, and nodes (the true size of what is held); bytes are bounded by the window, which
 * the caller has trimmed to. */
#ifndef MILLRACE_DATAPLANE_TCP_REASS_H
#define MILLRACE_DATAPLANE_TCP_REASS_H

#include <stdbool.h>
#include <stdint.h>

#include "dataplane/stream/rope.h"
#include "runtime/slab.h"

#define REASS_MAX_BLOCKS 128
/* A payload this small joins the mbuf before it by a copy, so that held memory stays within about
 * twice the held bytes whatever the sender's segment size. */
#define REASS_COPY_MAX 1024

struct reass_block {
    struct reass_block *next;
    uint32_t seq;
    uint32_t stamp; /* the greater, the more recently touched */
    struct rope bytes;
};

struct reass {
    struct reass_block *head, *tail;
    uint32_t bytes, nodes;
    uint32_t stamp;
    uint32_t fin_seq; /* sequence number of a FIN seen out of order */
    uint16_t blocks;
    bool has_fin;
};

/* The per-core stores that blocks and nodes come from. */
struct reass_pools {
    struct slab blocks;
    struct rope_pool *ropes;
};

/* Appends payload to a rope of received bytes, by copy where that saves a buffer. Takes over one
 * reference of m on success; -ENOMEM leaves it with the caller. */
int reass_append(struct rope_pool *p, struct rope *r, struct rte_mbuf *m, uint32_t off,
                 uint32_t len);

/* Holds [seq, seq + len), len > 0. Always consumes one reference of m. Returns how many bytes are
 * newly held (0: all were there already), -ENOSPC when `max_nodes` or the bound on blocks is
 * reached, -ENOMEM. After an error a part may have been held. */
int reass_insert(struct reass *r, struct reass_pools *p, uint32_t seq, struct rte_mbuf *m,
                 uint32_t off, uint32_t len, uint32_t max_nodes);

/* Moves what is now in order, from rcv_nxt on, to the end of dst; returns how many bytes. */
uint32_t reass_pull(struct reass *r, struct reass_pools *p, uint32_t rcv_nxt, struct rope *dst);

/* Writes up to `max` blocks, the most recently touched first; returns how many. */
unsigned reass_sack(const struct reass *r, uint32_t ret_blocks[][2], unsigned max);

void reass_clear(struct reass *r, struct reass_pools *p);

static inline bool reass_is_empty(const struct reass *r)
{
    return r->head == NULL;
}

/* Debug: order, gaps and sums. */
bool reass_check(const struct reass *r, uint32_t rcv_nxt);

#endif
