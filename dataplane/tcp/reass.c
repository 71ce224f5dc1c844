#include "dataplane/tcp/reass.h"

#include <assert.h>
#include <errno.h>
#include <string.h>

#include "dataplane/tcp/seq.h"

int reass_append(struct rope_pool *p, struct rope *r, struct rte_mbuf *m, uint32_t off,
                 uint32_t len)
{
    const struct rope_node *t = r->tail;
    bool joins = t && len < REASS_COPY_MAX && rte_mbuf_refcnt_read(t->mbuf) == 1 &&
                 t->mbuf->buf_len - t->off - t->len >= len;
    if (!joins)
        return rope_push_mbuf(p, r, m, off, len);
    int err = rope_append(p, r, (const char *)m->buf_addr + off, len);
    assert(err == 0);
    (void)err;
    rte_pktmbuf_free(m);
    return 0;
}

static uint32_t block_end(const struct reass_block *b)
{
    return b->seq + (uint32_t)b->bytes.len;
}

/* The last block that starts at or before seq; NULL when there is none. */
static struct reass_block *find_before(const struct reass *r, uint32_t seq)
{
    if (r->tail && seq_leq(r->tail->seq, seq))
        return r->tail;
    struct reass_block *before = NULL;
    for (struct reass_block *b = r->head; b && seq_leq(b->seq, seq); b = b->next)
        before = b;
    return before;
}

static void link_after(struct reass *r, struct reass_block *before, struct reass_block *b)
{
    b->next = before ? before->next : r->head;
    if (before)
        before->next = b;
    else
        r->head = b;
    if (!b->next)
        r->tail = b;
    r->blocks++;
}

static void merge_next(struct reass *r, struct reass_pools *p, struct reass_block *b)
{
    struct reass_block *next = b->next;
    b->next = next->next;
    if (r->tail == next)
        r->tail = b;
    rope_splice(&b->bytes, &next->bytes);
    r->blocks--;
    slab_put(&p->blocks, next);
}

/* A block of its own for [seq, stop), whose bytes are appended by the caller. One that will be
 * merged into its successor at once may exceed the bound. */
static struct reass_block *new_block(struct reass *r, struct reass_pools *p,
                                     struct reass_block *before, uint32_t seq, uint32_t stop)
{
    const struct reass_block *next = before ? before->next : r->head;
    bool will_merge = next && next->seq == stop;
    if (r->blocks >= REASS_MAX_BLOCKS && !will_merge)
        return NULL;
    struct reass_block *b = slab_get(&p->blocks);
    if (!b)
        return NULL;
    *b = (struct reass_block){.seq = seq};
    link_after(r, before, b);
    return b;
}

static void drop_block(struct reass *r, struct reass_pools *p, struct reass_block *before)
{
    struct reass_block *b = before ? before->next : r->head;
    if (before)
        before->next = b->next;
    else
        r->head = b->next;
    if (r->tail == b)
        r->tail = before;
    r->blocks--;
    slab_put(&p->blocks, b);
}

/* Fills the gap [seq, seq + len) that lies behind `before`, with a reference of m of its own.
 * The block that holds it now, or NULL. */
static struct reass_block *fill_gap(struct reass *r, struct reass_pools *p,
                                    struct reass_block *before, uint32_t seq, struct rte_mbuf *m,
                                    uint32_t off, uint32_t len)
{
    bool joins = before && block_end(before) == seq;
    struct reass_block *b = joins ? before : new_block(r, p, before, seq, seq + len);
    if (!b)
        return NULL;
    uint32_t nodes = b->bytes.nodes;
    rte_mbuf_refcnt_update(m, 1);
    if (reass_append(p->ropes, &b->bytes, m, off, len) != 0) {
        rte_mbuf_refcnt_update(m, -1);
        if (!joins)
            drop_block(r, p, before);
        return NULL;
    }
    r->nodes += b->bytes.nodes - nodes;
    r->bytes += len;
    if (b->next && block_end(b) == b->next->seq)
        merge_next(r, p, b);
    return b;
}

int reass_insert(struct reass *r, struct reass_pools *p, uint32_t seq, struct rte_mbuf *m,
                 uint32_t off, uint32_t len, uint32_t max_nodes)
{
    uint32_t end = seq + len;
    int held = 0;
    r->stamp++;
    struct reass_block *b = find_before(r, seq);
    while (true) {
        if (b && seq_gt(block_end(b), seq)) {
            uint32_t skip = (uint32_t)seq_diff(seq_min(block_end(b), end), seq);
            seq += skip;
            off += skip;
            b->stamp = r->stamp;
        }
        if (seq == end)
            break;
        const struct reass_block *next = b ? b->next : r->head;
        uint32_t stop = next ? seq_min(next->seq, end) : end;
        uint32_t n = (uint32_t)seq_diff(stop, seq);
        b = r->nodes < max_nodes ? fill_gap(r, p, b, seq, m, off, n) : NULL;
        if (!b) {
            rte_pktmbuf_free(m);
            return r->nodes >= max_nodes || r->blocks >= REASS_MAX_BLOCKS ? -ENOSPC : -ENOMEM;
        }
        b->stamp = r->stamp;
        held += (int)n;
        seq += n;
        off += n;
    }
    rte_pktmbuf_free(m);
    return held;
}

uint32_t reass_pull(struct reass *r, struct reass_pools *p, uint32_t rcv_nxt, struct rope *dst)
{
    struct reass_block *b = r->head;
    if (!b || b->seq != rcv_nxt)
        return 0;
    uint32_t n = (uint32_t)b->bytes.len;
    r->bytes -= n;
    r->nodes -= b->bytes.nodes;
    rope_splice(dst, &b->bytes);
    drop_block(r, p, NULL);
    return n;
}

unsigned reass_sack(const struct reass *r, uint32_t ret_blocks[][2], unsigned max)
{
    uint32_t stamps[8 + 1];
    unsigned n = 0;
    assert(max <= 8);
    for (const struct reass_block *b = r->head; b && max; b = b->next) {
        unsigned at = n;
        while (at > 0 && seq_gt(b->stamp, stamps[at - 1]))
            at--;
        if (at >= max)
            continue;
        if (n < max)
            n++;
        memmove(&stamps[at + 1], &stamps[at], (n - 1 - at) * sizeof(*stamps));
        memmove(&ret_blocks[at + 1], &ret_blocks[at], (n - 1 - at) * sizeof(*ret_blocks));
        stamps[at] = b->stamp;
        ret_blocks[at][0] = b->seq;
        ret_blocks[at][1] = block_end(b);
    }
    return n;
}

void reass_clear(struct reass *r, struct reass_pools *p)
{
    for (struct reass_block *b = r->head, *next; b; b = next) {
        next = b->next;
        rope_clear(p->ropes, &b->bytes);
        slab_put(&p->blocks, b);
    }
    memset(r, 0, sizeof(*r));
}

bool reass_check(const struct reass *r, uint32_t rcv_nxt)
{
    uint32_t bytes = 0, nodes = 0, blocks = 0, after = rcv_nxt;
    for (const struct reass_block *b = r->head; b; b = b->next) {
        if (!seq_gt(b->seq, after) || !rope_check(&b->bytes) || b->bytes.len == 0)
            return false;
        after = block_end(b);
        bytes += (uint32_t)b->bytes.len;
        nodes += b->bytes.nodes;
        blocks++;
        if (!b->next && r->tail != b)
            return false;
    }
    return bytes == r->bytes && nodes == r->nodes && blocks == r->blocks;
}
