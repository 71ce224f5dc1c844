/* A rope: bytes as a chain of (mbuf, offset, length) nodes, moved between halves without a copy.
 *
 * Ownership: a node holds exactly one reference on its mbuf; the rope owns its nodes. Two nodes may
 * name the same mbuf (a split), each with its own reference. Moving a rope or a part of it moves
 * the references. Bytes under a node are never written while anyone else may hold the mbuf.
 *
 * Only single-segment, direct mbufs live in ropes.
 *
 * Thread: one core; nodes come from that core's rope_pool. Out of nodes or mbufs is -ENOMEM (or
 * NULL) and leaves both ropes as they were.
 */
#ifndef MILLRACE_DATAPLANE_STREAM_ROPE_H
#define MILLRACE_DATAPLANE_STREAM_ROPE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include <rte_mbuf.h>
#include <rte_mempool.h>

struct rope_node {
    struct rope_node *next;
    struct rte_mbuf *mbuf;
    uint32_t off; /* from mbuf->buf_addr */
    uint32_t len; /* > 0 for every node in a rope */
};

struct rope {
    struct rope_node *head, *tail;
    uint64_t len;   /* bytes */
    uint32_t nodes; /* nodes, so that true size is known: nodes * mbuf size is an upper bound */
};

/* One core's store of nodes, and the mbuf pool that new bytes come from. */
struct rope_pool {
    struct rte_mempool *mbufs;
    struct rope_node *free_;
    void **chunks_; /* malloc'ed blocks of nodes */
    uint32_t nchunks_;
    uint32_t in_use;    /* nodes out */
    uint32_t max_nodes; /* bound; 0 for none */
    uint32_t reserve;   /* mbufs that new bytes must leave, see rope_mbufs_left() */
};

void rope_pool_init(struct rope_pool *p, struct rte_mempool *mbufs, uint32_t max_nodes);
/* Every node must be back. */
void rope_pool_fini(struct rope_pool *p);

static inline char *rope_node_data(const struct rope_node *n)
{
    return (char *)n->mbuf->buf_addr + n->off;
}

static inline bool rope_is_empty(const struct rope *r)
{
    return r->len == 0;
}

/* Mbufs that this core could allocate now: what the pool holds and what this core's own cache does.
 * Other cores' caches are out of reach, and looking at them all would cost more than an append. */
static inline uint32_t rope_mbufs_left(struct rte_mempool *mbufs)
{
    const struct rte_mempool_cache *own = rte_mempool_default_cache(mbufs, rte_lcore_id());
    return rte_mempool_get_ops(mbufs->ops_index)->get_count(mbufs) + (own ? own->len : 0);
}

/* A fresh mbuf of `mbufs` for bytes to come, or NULL when only the reserve is left. */
struct rte_mbuf *rope_mbuf_new(struct rope_pool *p);

/* Takes over one reference of `m` for bytes [off, off+len) counted from buf_addr. On -ENOMEM the
 * reference stays with the caller. len 0: the mbuf is freed, 0. */
int rope_push_mbuf(struct rope_pool *p, struct rope *r, struct rte_mbuf *m, uint32_t off,
                   uint32_t len);

/* Copies bytes to the end, into the tail's tailroom when this rope alone holds that mbuf. All or
 * nothing. */
int rope_append(struct rope_pool *p, struct rope *r, const void *data, size_t len);
int rope_printf(struct rope_pool *p, struct rope *r, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));

/* Moves the first min(max, src->len) bytes to the end of dst; returns how many (a node may be
 * split), or -ENOMEM when the split needs a node and none is left (nothing moved then unless whole
 * nodes could be). */
ssize_t rope_move(struct rope_pool *p, struct rope *dst, struct rope *src, uint64_t max);

/* Whole rope, O(1), cannot fail; src is empty afterwards. */
void rope_splice(struct rope *dst, struct rope *src);

/* Drops the first n bytes, n <= len. */
void rope_trim_head(struct rope_pool *p, struct rope *r, uint64_t n);

/* Drops everything. */
void rope_clear(struct rope_pool *p, struct rope *r);

/* Copies [off, off+len) out; off + len <= r->len. */
void rope_copy_out(const struct rope *r, uint64_t off, void *dst, size_t len);

/* Copies the bytes of nodes that are far smaller than their mbufs into dense mbufs, so that a
 * sender of tiny segments can't pin the pool. Best effort. */
void rope_compact(struct rope_pool *p, struct rope *r);

/* Debug: lengths and counts agree. */
bool rope_check(const struct rope *r);

#endif
