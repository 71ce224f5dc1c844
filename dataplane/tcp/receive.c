/* Payload and FIN: RFC 9293 §3.10.7.4, seventh and eighth step. */
#include <errno.h>

#include "dataplane/tcp/engine.h"

/* True size at which in-order bytes are refused: twice what the window promised for. Out of order
 * the bound is the promise itself. */
static uint32_t max_nodes(const struct tcp *t, unsigned factor)
{
    return factor * (2 * (t->o.rcv_buf / TCP_MBUF_SIZE) + 8);
}

/* Cuts off what lies before rcv_nxt and behind the window. False when nothing new is left. */
static bool trim_to_window(const struct tcb *tcb, struct segment *seg)
{
    if (seq_lt(seg->seq, tcb->rcv_nxt)) {
        uint32_t old = tcb->rcv_nxt - seg->seq;
        if (old > seg->len)
            return false;
        seg->seq += old;
        seg->off += old;
        seg->len -= old;
    }
    uint32_t room = seq_gt(tcb->rcv_adv, seg->seq) ? tcb->rcv_adv - seg->seq : 0;
    if (seg->len > room) {
        seg->len = room;
        seg->flags &= ~(SEG_FIN | SEG_PSH);
    }
    return true;
}

static void ack_now(struct tcb *tcb)
{
    tcb->flags |= TCB_ACK_NOW;
    tcb_mark(tcb);
}

/* RFC 5681 §4.2 and RFC 1122 §4.2.3.2: every second full segment at once, else within 40 ms. */
static void ack_data(struct tcb *tcb, bool at_once)
{
    uint32_t owed = tcb->rcv_nxt - tcb->last_ack;
    if (at_once || owed >= 2u * tcb->rcv_mss) {
        ack_now(tcb);
        return;
    }
    uint64_t at = tcp_now(tcb->tcp) + TCP_DELACK_NS;
    if (at < tcb->ack_at)
        tcb->ack_at = at;
}

static void on_bytes_in(struct tcb *tcb, uint32_t n)
{
    tcb->rcv_nxt += n;
    tcb->bytes_in += n;
    tcb->tcp->stats.bytes_in += n;
    tcb_wake_reader(tcb);
}

/* Nothing is held out of order. */
static enum tcp_drop take_in_order(struct tcb *tcb, struct segment *seg)
{
    struct tcp *t = tcb->tcp;
    if (tcb->rcv.nodes >= max_nodes(t, 1))
        rope_compact(t->o.ropes, &tcb->rcv);
    if (tcb->rcv.nodes >= max_nodes(t, 2) ||
        reass_append(t->o.ropes, &tcb->rcv, seg->m, seg->off, seg->len) != 0) {
        ack_now(tcb);
        return TCP_DROP_rcv_full;
    }
    seg->m = NULL;
    on_bytes_in(tcb, seg->len);
    ack_data(tcb, false);
    return TCP_DROP_accepted;
}

/* Out of order, or in order while something behind it is held already. */
static enum tcp_drop take_out_of_order(struct tcb *tcb, struct segment *seg)
{
    struct tcp *t = tcb->tcp;
    bool in_order = seg->seq == tcb->rcv_nxt;
    struct rte_mbuf *m = seg->m;
    seg->m = NULL;
    int held = reass_insert(&tcb->reass, &t->reass, seg->seq, m, seg->off, seg->len,
                            max_nodes(t, in_order ? 2 : 1));
    uint32_t pulled = reass_pull(&tcb->reass, &t->reass, tcb->rcv_nxt, &tcb->rcv);
    if (pulled) {
        on_bytes_in(tcb, pulled);
        ack_data(tcb, true); /* a gap was filled, wholly or in part */
    } else {
        t->stats.ooo_in++;
        /* Each makes an ACK of its own: the sender counts them. */
        tcb_send_ack(tcb);
    }
    if (held < 0)
        return TCP_DROP_ooo_full;
    return held ? TCP_DROP_accepted : TCP_DROP_duplicate;
}

static void on_fin(struct tcb *tcb)
{
    tcb->rcv_nxt++;
    tcb->flags |= TCB_FIN_RCVD;
    reass_clear(&tcb->reass, &tcb->tcp->reass); /* bytes after a FIN are not the peer's to send */
    ack_now(tcb);
    tcb_wake_reader(tcb);
    if (tcb->state == TCP_ESTABLISHED)
        tcb_set_state(tcb, TCP_CLOSE_WAIT);
    else if (tcb->state == TCP_FIN_WAIT_1)
        tcb_set_state(tcb, TCP_CLOSING);
    else if (tcb->state == TCP_FIN_WAIT_2)
        tcb_enter_time_wait(tcb);
}

/* A FIN counts when all before it is here; till then it is remembered with what is held. */
static void note_fin(struct tcb *tcb, uint32_t fin_seq)
{
    tcb->reass.has_fin = true;
    tcb->reass.fin_seq = fin_seq;
}

static bool may_receive(const struct tcb *tcb)
{
    return tcb->state == TCP_ESTABLISHED || tcb->state == TCP_FIN_WAIT_1 ||
           tcb->state == TCP_FIN_WAIT_2;
}

/* Bytes for an application that has closed are refused with a RST, so that the peer doesn't take
 * them for read (RFC 1122 §4.2.2.13). */
static bool is_after_close(const struct tcb *tcb, const struct segment *seg)
{
    return seg->len && !tcb_has(tcb, TCB_HANDLE) && seq_gt(seg->seq + seg->len, tcb->rcv_nxt);
}

/* What is refused comes again, more slowly, as after any loss; no ACK, which would say that it was
 * worth sending. Whoever has read all it got may have the next bytes as long as there are any
 * mbufs: two ends whose own bytes fill their pools would else wait for each other. */
static bool is_memory_short(struct tcb *tcb, const struct segment *seg)
{
    struct tcp *t = tcb->tcp;
    if (tcb->rcv.nodes + tcb->reass.nodes < tcp_share_take(t).most)
        return false;
    if (t->memory_ != TCP_MEMORY_EMPTY)
        return seg->seq != tcb->rcv_nxt || !rope_is_empty(&tcb->rcv);
    /* RFC 2018 §8: what is held out of order may be let go of. */
    reass_clear(&tcb->reass, &t->reass);
    return true;
}

enum tcp_drop tcb_on_text(struct tcb *tcb, struct segment *seg)
{
    if (segment_seq_len(seg) == 0 || !may_receive(tcb))
        return TCP_DROP_accepted;
    if (is_after_close(tcb, seg)) {
        tcb_send_rst(tcb);
        tcb_die(tcb, -ECONNABORTED);
        return TCP_DROP_after_close;
    }
    enum tcp_drop why = TCP_DROP_accepted;
    if (!trim_to_window(tcb, seg)) {
        ack_now(tcb);
        return TCP_DROP_duplicate;
    }
    if (seg->len && is_memory_short(tcb, seg))
        return TCP_DROP_memory_short;
    if (seg->flags & SEG_FIN)
        note_fin(tcb, seg->seq + seg->len);
    if (seg->len > tcb->rcv_mss)
        tcb->rcv_mss = (uint16_t)seg->len;
    if (seg->len) {
        bool simple = seg->seq == tcb->rcv_nxt && reass_is_empty(&tcb->reass);
        why = simple ? take_in_order(tcb, seg) : take_out_of_order(tcb, seg);
    } else if (!(seg->flags & SEG_FIN)) {
        ack_now(tcb); /* wholly old, or the window is closed */
        return TCP_DROP_duplicate;
    } else if (seg->seq != tcb->rcv_nxt) {
        tcb_send_ack(tcb);
    }
    if (tcb->reass.has_fin && tcb->reass.fin_seq == tcb->rcv_nxt)
        on_fin(tcb);
    return why;
}
