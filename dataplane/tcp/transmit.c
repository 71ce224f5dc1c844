/* Segments with payload from the send rope, without a copy where that is safe. */
#include <errno.h>
#include <netinet/in.h>
#include <string.h>

#include "dataplane/tcp/engine.h"

/* Under this a copy is cheaper than a buffer on loan. */
#define BORROW_MIN 256

static uint32_t cursor_left(const struct cursor *c)
{
    return c->node->off + c->node->len - c->off;
}

uint32_t transmit_length(const struct tcb *tcb, struct cursor c, uint32_t max)
{
    uint32_t len = cursor_left(&c);
    if (len >= max)
        return max;
    if (len >= tcb->mss / 2u)
        return len;
    /* The rest of a node that was cut is copied anyway: then a full segment's worth. */
    if (c.off != c.node->off)
        return max;
    for (const struct rope_node *n = c.node->next; n && len + n->len <= max; n = n->next)
        len += n->len;
    return len;
}

void cursor_advance(struct cursor *c, uint32_t n)
{
    while (n) {
        uint32_t left = cursor_left(c);
        if (n < left) {
            c->off += n;
            return;
        }
        n -= left;
        c->node = c->node->next;
        c->off = c->node ? c->node->off : 0;
    }
}

static void copy_payload(char *to, struct cursor c, uint32_t len)
{
    while (len) {
        uint32_t n = cursor_left(&c);
        if (n > len)
            n = len;
        memcpy(to, (const char *)c.node->mbuf->buf_addr + c.off, n);
        to += n;
        len -= n;
        cursor_advance(&c, n);
    }
}

/* The payload's own mbuf with room made for headers, if nobody else can see what stands in front
 * of the payload: the sole reference is the rope's, and the bytes before the node are dead. */
static struct rte_mbuf *borrow(struct cursor c, uint32_t len, unsigned hdr_len)
{
    struct rte_mbuf *m = c.node->mbuf;
    bool at_front = c.off == c.node->off && c.off >= hdr_len + SEG_LOWER_HEADROOM;
    bool whole = len <= c.node->len && (len >= BORROW_MIN || len == c.node->len);
    if (!at_front || !whole || rte_mbuf_refcnt_read(m) != 1 || !RTE_MBUF_DIRECT(m))
        return NULL;
    rte_mbuf_refcnt_update(m, 1);
    m->data_off = (uint16_t)(c.off - hdr_len);
    m->data_len = (uint16_t)(hdr_len + len);
    m->pkt_len = m->data_len;
    m->next = NULL;
    m->nb_segs = 1;
    m->ol_flags = 0;
    m->tx_offload = 0;
    m->packet_type = 0;
    m->vlan_tci = 0;
    return m;
}

static struct rte_mbuf *copy(struct tcp *t, struct cursor c, uint32_t len, unsigned hdr_len)
{
    struct rte_mbuf *m = rte_pktmbuf_alloc(t->o.mbufs);
    if (!m)
        return NULL;
    char *p = rte_pktmbuf_append(m, (uint16_t)(hdr_len + len));
    assert(p); /* mss is at most max_segment */
    copy_payload(p + hdr_len, c, len);
    return m;
}

static int finish(struct tcb *tcb, struct rte_mbuf *m, unsigned hdr_len, struct segment_out *out)
{
    struct tcp *t = tcb->tcp;
    const struct netif *nif = tcb->path.route.nif;
    segment_build(rte_pktmbuf_mtod(m, void *), out);
    segment_checksum(m, &out->tuple, hdr_len, nif ? nif->offloads : 0);
    t->stats.segs_out++;
    return net_output4(t->o.net, &tcb->path, m, out->tuple.local_addr, out->tuple.peer_addr,
                       IPPROTO_TCP, 0, true);
}

int transmit_data(struct tcb *tcb, struct cursor c, uint32_t len, struct segment_out *out)
{
    struct tcp *t = tcb->tcp;
    if (len + 4 + 8u * out->sacks > tcb->mss)
        out->sacks = 0;
    unsigned hdr_len = segment_hdr_len(out);
    struct rte_mbuf *m = borrow(c, len, hdr_len);
    if (m) {
        t->stats.zero_copy_out++;
    } else {
        /* New data waits when mbufs are all but gone; what makes others free theirs does not. */
        bool is_new = out->seq == tcb->snd_max && tcb_flight(tcb) > 0;
        if (is_new && tcp_memory(t) >= TCP_MEMORY_NONE)
            return -ENOBUFS;
        m = copy(t, c, len, hdr_len);
        if (!m)
            return -ENOBUFS;
        t->stats.copies_out++;
    }
    tcb->sent_at = tcp_now(t);
    return finish(tcb, m, hdr_len, out);
}

int transmit_bare(struct tcb *tcb, struct segment_out *out)
{
    struct rte_mbuf *m = rte_pktmbuf_alloc(tcb->tcp->o.mbufs);
    if (!m)
        return -ENOBUFS;
    unsigned hdr_len = segment_hdr_len(out);
    rte_pktmbuf_append(m, (uint16_t)hdr_len);
    return finish(tcb, m, hdr_len, out);
}

int tcp_send_bare(struct tcp *t, const struct segment_out *out)
{
    struct rte_mbuf *m = rte_pktmbuf_alloc(t->o.mbufs);
    if (!m)
        return -ENOBUFS;
    unsigned hdr_len = segment_hdr_len(out);
    segment_build(rte_pktmbuf_append(m, (uint16_t)hdr_len), out);
    segment_checksum(m, &out->tuple, hdr_len, 0);
    t->stats.segs_out++;
    return net_output4(t->o.net, NULL, m, out->tuple.local_addr, out->tuple.peer_addr, IPPROTO_TCP,
                       0, true);
}
