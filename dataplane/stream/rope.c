#include "dataplane/stream/rope.h"

#include <assert.h>
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define NODES_A_CHUNK 1024
/* A node with fewer bytes than this share of a buffer is worth copying together. */
#define COMPACT_SHARE 4

void rope_pool_init(struct rope_pool *p, struct rte_mempool *mbufs, uint32_t max_nodes)
{
    memset(p, 0, sizeof(*p));
    p->mbufs = mbufs;
    p->max_nodes = max_nodes;
}

void rope_pool_fini(struct rope_pool *p)
{
    assert(p->in_use == 0);
    for (uint32_t i = 0; i < p->nchunks_; i++)
        free(p->chunks_[i]);
    free(p->chunks_);
    memset(p, 0, sizeof(*p));
}

/* Growth in chunks: off the packet path once the working set has been reached. */
static bool pool_grow(struct rope_pool *p)
{
    if (p->max_nodes && p->nchunks_ * NODES_A_CHUNK >= p->max_nodes)
        return false;
    void **chunks = realloc(p->chunks_, (p->nchunks_ + 1) * sizeof(*chunks));
    if (!chunks)
        return false;
    p->chunks_ = chunks;
    struct rope_node *nodes = malloc(NODES_A_CHUNK * sizeof(*nodes));
    if (!nodes)
        return false;
    p->chunks_[p->nchunks_++] = nodes;
    for (unsigned i = 0; i < NODES_A_CHUNK; i++) {
        nodes[i].next = p->free_;
        p->free_ = &nodes[i];
    }
    return true;
}

static struct rope_node *node_get(struct rope_pool *p)
{
    if (!p->free_ && !pool_grow(p))
        return NULL;
    struct rope_node *n = p->free_;
    p->free_ = n->next;
    p->in_use++;
    return n;
}

static void node_put(struct rope_pool *p, struct rope_node *n)
{
    n->next = p->free_;
    p->free_ = n;
    assert(p->in_use > 0);
    p->in_use--;
}

static void rope_link(struct rope *r, struct rope_node *n)
{
    n->next = NULL;
    if (r->tail)
        r->tail->next = n;
    else
        r->head = n;
    r->tail = n;
    r->len += n->len;
    r->nodes++;
}

static struct rope_node *rope_unlink_head(struct rope *r)
{
    struct rope_node *n = r->head;
    r->head = n->next;
    if (!r->head)
        r->tail = NULL;
    r->len -= n->len;
    r->nodes--;
    return n;
}

int rope_push_mbuf(struct rope_pool *p, struct rope *r, struct rte_mbuf *m, uint32_t off,
                   uint32_t len)
{
    assert(off + len <= m->buf_len);
    if (len == 0) {
        rte_pktmbuf_free(m);
        return 0;
    }
    struct rope_node *n = node_get(p);
    if (!n)
        return -ENOMEM;
    n->mbuf = m;
    n->off = off;
    n->len = len;
    rope_link(r, n);
    return 0;
}

/* Room behind the tail that nobody else can see. */
static uint32_t tail_room(const struct rope *r)
{
    const struct rope_node *t = r->tail;
    if (!t || rte_mbuf_refcnt_read(t->mbuf) != 1)
        return 0;
    return t->mbuf->buf_len - t->off - t->len;
}

struct rte_mbuf *rope_mbuf_new(struct rope_pool *p)
{
    if (p->reserve && rope_mbufs_left(p->mbufs) <= p->reserve)
        return NULL;
    return rte_pktmbuf_alloc(p->mbufs);
}

static bool append_mbuf(struct rope_pool *p, struct rope *r, const char *data, uint32_t len)
{
    struct rte_mbuf *m = rope_mbuf_new(p);
    if (!m)
        return false;
    memcpy((char *)m->buf_addr + m->data_off, data, len);
    if (rope_push_mbuf(p, r, m, m->data_off, len) == 0)
        return true;
    rte_pktmbuf_free(m);
    return false;
}

int rope_append(struct rope_pool *p, struct rope *r, const void *data, size_t len)
{
    const char *from = data;
    uint32_t room = tail_room(r);
    uint32_t in_tail = len < room ? (uint32_t)len : room;
    struct rope more = {0};
    for (size_t done = in_tail; done < len;) {
        size_t most = rte_pktmbuf_data_room_size(p->mbufs) - RTE_PKTMBUF_HEADROOM;
        uint32_t n = (uint32_t)(len - done < most ? len - done : most);
        if (!append_mbuf(p, &more, from + done, n)) {
            rope_clear(p, &more);
            return -ENOMEM;
        }
        done += n;
    }
    if (in_tail) {
        memcpy(rope_node_data(r->tail) + r->tail->len, from, in_tail);
        r->tail->len += in_tail;
        r->len += in_tail;
    }
    rope_splice(r, &more);
    return 0;
}

int rope_printf(struct rope_pool *p, struct rope *r, const char *fmt, ...)
{
    char text[1024];
    va_list ap;
    va_start(ap, fmt);
    int n = vsnprintf(text, sizeof(text), fmt, ap);
    va_end(ap);
    if (n < 0 || (size_t)n >= sizeof(text))
        return -EMSGSIZE;
    return rope_append(p, r, text, (size_t)n);
}

/* The first `len` bytes of src's head, which is longer, as a node of their own in dst. */
static bool move_part(struct rope_pool *p, struct rope *dst, struct rope *src, uint32_t len)
{
    struct rope_node *from = src->head;
    struct rope_node *n = node_get(p);
    if (!n)
        return false;
    rte_mbuf_refcnt_update(from->mbuf, 1);
    n->mbuf = from->mbuf;
    n->off = from->off;
    n->len = len;
    rope_link(dst, n);
    from->off += len;
    from->len -= len;
    src->len -= len;
    return true;
}

ssize_t rope_move(struct rope_pool *p, struct rope *dst, struct rope *src, uint64_t max)
{
    uint64_t want = max < src->len ? max : src->len;
    uint64_t left = want;
    if (want == src->len) {
        rope_splice(dst, src);
        return (ssize_t)want;
    }
    while (left && src->head->len <= left) {
        left -= src->head->len;
        rope_link(dst, rope_unlink_head(src));
    }
    if (left && !move_part(p, dst, src, (uint32_t)left))
        return want == left ? -ENOMEM : (ssize_t)(want - left);
    return (ssize_t)want;
}

void rope_splice(struct rope *dst, struct rope *src)
{
    if (!src->head)
        return;
    if (dst->tail)
        dst->tail->next = src->head;
    else
        dst->head = src->head;
    dst->tail = src->tail;
    dst->len += src->len;
    dst->nodes += src->nodes;
    memset(src, 0, sizeof(*src));
}

void rope_trim_head(struct rope_pool *p, struct rope *r, uint64_t n)
{
    assert(n <= r->len);
    while (n && r->head->len <= n) {
        struct rope_node *gone = rope_unlink_head(r);
        n -= gone->len;
        rte_pktmbuf_free(gone->mbuf);
        node_put(p, gone);
    }
    if (n) {
        r->head->off += (uint32_t)n;
        r->head->len -= (uint32_t)n;
        r->len -= n;
    }
}

void rope_clear(struct rope_pool *p, struct rope *r)
{
    rope_trim_head(p, r, r->len);
}

void rope_copy_out(const struct rope *r, uint64_t off, void *dst, size_t len)
{
    assert(off + len <= r->len);
    char *to = dst;
    for (const struct rope_node *n = r->head; len; n = n->next) {
        if (off >= n->len) {
            off -= n->len;
            continue;
        }
        size_t here = n->len - off < len ? n->len - (size_t)off : len;
        memcpy(to, rope_node_data(n) + off, here);
        to += here;
        len -= here;
        off = 0;
    }
}

static bool is_sparse(const struct rope_node *n)
{
    return n->len < n->mbuf->buf_len / COMPACT_SHARE;
}

void rope_compact(struct rope_pool *p, struct rope *r)
{
    struct rope out = {0};
    while (r->head) {
        struct rope_node *n = rope_unlink_head(r);
        /* A copy pays only where it joins what stands before it. */
        bool join = out.tail && is_sparse(n) && tail_room(&out) >= n->len;
        if (!join) {
            rope_link(&out, n);
            continue;
        }
        memcpy(rope_node_data(out.tail) + out.tail->len, rope_node_data(n), n->len);
        out.tail->len += n->len;
        out.len += n->len;
        rte_pktmbuf_free(n->mbuf);
        node_put(p, n);
    }
    *r = out;
}

bool rope_check(const struct rope *r)
{
    uint64_t len = 0;
    uint32_t nodes = 0;
    const struct rope_node *last = NULL;
    for (const struct rope_node *n = r->head; n; n = n->next) {
        if (n->len == 0 || n->off + n->len > n->mbuf->buf_len)
            return false;
        if (rte_mbuf_refcnt_read(n->mbuf) < 1)
            return false;
        len += n->len;
        nodes++;
        last = n;
    }
    return len == r->len && nodes == r->nodes && last == r->tail;
}
