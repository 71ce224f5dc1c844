/* What we let the peer send: the receive window by bytes and by the true size of what is held
 * (RFC 9293 §3.8.6), never taken back, without silly windows (§3.8.6.2.2). */
#include "dataplane/tcp/engine.h"

#define WINDOW_FIELD_MAX 65535u
/* Mbufs that small buffers may hold whatever their size, so that a window of one segment works. */
#define SPARE_MBUFS 8

uint8_t window_scale_for(uint32_t rcv_buf)
{
    uint8_t scale = 0;
    while (scale < SEG_WSCALE_MAX && rcv_buf >> scale > WINDOW_FIELD_MAX)
        scale++;
    return scale;
}

/* Bytes that could be received from rcv_nxt on. */
static uint32_t window_space(struct tcb *tcb)
{
    struct tcp *t = tcb->tcp;
    uint32_t buf = t->o.rcv_buf;
    uint32_t space = tcb->rcv.len < buf ? buf - (uint32_t)tcb->rcv.len : 0;
    uint64_t size = (uint64_t)(tcb->rcv.nodes + tcb->reass.nodes) * TCP_MBUF_SIZE;
    uint64_t size_max = 2ull * buf + SPARE_MBUFS * TCP_MBUF_SIZE;
    uint64_t left = size < size_max ? size_max - size : 0;
    if (left < space)
        space = (uint32_t)left;
    uint32_t share = tcp_share(t).want;
    uint32_t held = tcb->rcv.nodes + tcb->reass.nodes;
    left = share > held ? (uint64_t)(share - held) * tcb->mss : 0;
    if (t->memory_ == TCP_MEMORY_LOW && left > 2u * tcb->mss)
        left = 2u * tcb->mss;
    return left < space ? (uint32_t)left : space;
}

static uint32_t window_seen(const struct tcb *tcb)
{
    return seq_gt(tcb->rcv_adv, tcb->rcv_nxt) ? tcb->rcv_adv - tcb->rcv_nxt : 0;
}

uint32_t window_growth(struct tcb *tcb)
{
    uint32_t space = window_space(tcb);
    uint32_t most = WINDOW_FIELD_MAX << tcb->rcv_wscale;
    uint32_t seen = window_seen(tcb);
    if (space > most)
        space = most;
    if (space <= seen)
        return 0;
    uint32_t half = tcb->tcp->o.rcv_buf / 2;
    uint32_t least = half < tcb->mss ? half : tcb->mss;
    return space - seen >= least ? space - seen : 0;
}

uint16_t window_advertise(struct tcb *tcb)
{
    uint32_t grown = window_growth(tcb);
    uint32_t window = window_seen(tcb) + grown;
    uint32_t unit = 1u << tcb->rcv_wscale;
    uint32_t field = window >> tcb->rcv_wscale;
    /* Rounding down would take back what was promised; rounding up may give less than a unit more
     * than there is. Where neither fits, the promise is kept in rcv_adv, though not in the header
     * (RFC 7323 §2.4). */
    uint32_t up = (field + 1) << tcb->rcv_wscale;
    if (field << tcb->rcv_wscale != window && field < WINDOW_FIELD_MAX &&
        up < window_space(tcb) + unit)
        field++;
    uint32_t edge = tcb->rcv_nxt + (field << tcb->rcv_wscale);
    tcb->rcv_adv = seq_max(tcb->rcv_adv, edge);
    return (uint16_t)field;
}

void window_on_read(struct tcb *tcb)
{
    if (!tcb_is_open(tcb) || tcb_has(tcb, TCB_FIN_RCVD))
        return;
    struct tcp *t = tcb->tcp;
    uint32_t seen = window_seen(tcb), grown = window_growth(tcb);
    /* While the peer has much before it the next ACK is soon enough: the first window, which no
     * scale applies to, is no reason for an ACK of its own. */
    bool tight = seen < tcb->mss;
    uint32_t eighth = t->o.rcv_buf / 8;
    if (grown && (tight || (seen < eighth && grown >= eighth))) {
        tcb->flags |= TCB_ACK_NOW;
        tcb_mark(tcb);
    } else if (tight && tcp_memory(t) != TCP_MEMORY_PLENTY) {
        tcb->flags |= TCB_WND_RETRY;
        uint64_t at = tcp_now(t) + TCP_WND_RETRY_NS;
        if (at < tcb->ack_at)
            tcb->ack_at = at;
    }
}
