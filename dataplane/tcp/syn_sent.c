/* Active open: RFC 9293 §3.10.7.3, and what completes a handshake on either side. */
#include <errno.h>

#include "dataplane/tcp/engine.h"

/* Options of the peer's SYN or SYN/ACK: a feature is on when both sides have offered it. */
static void take_options(struct tcb *tcb, const struct segment *seg)
{
    struct tcp *t = tcb->tcp;
    if ((seg->options & SEG_OPT_MSS) && seg->mss)
        tcb->peer_mss = seg->mss;
    if (seg->options & SEG_OPT_WSCALE) {
        tcb->flags |= TCB_WSCALE;
        tcb->snd_wscale = seg->wscale;
        tcb->rcv_wscale = t->rcv_wscale;
    }
    if (seg->options & SEG_OPT_SACK_OK)
        tcb->flags |= TCB_SACK;
    if (seg->options & SEG_OPT_TS) {
        tcb->flags |= TCB_TS;
        tcb->ts_recent = seg->ts_val;
        tcb->ts_recent_at = (uint32_t)(tcp_now(t) / SECOND);
    }
    tcb_set_mss(tcb);
    tcb->cc.ops->init(&tcb->cc, tcb->mss);
}

void tcb_established(struct tcb *tcb)
{
    struct tcp *t = tcb->tcp;
    tcb_set_state(tcb, TCP_ESTABLISHED);
    if (tcb->snd_una == tcb->iss) { /* our SYN is acknowledged now */
        tcb->snd_una++;
        tcb->cursor = tcb->snd.head;
        tcb->cursor_off = tcb->cursor ? tcb->cursor->off : 0;
    }
    if (tcb_has(tcb, TCB_TIMING)) {
        tcb->flags &= ~TCB_TIMING;
        if (!tcb_has(tcb, TCB_LOST_SYN))
            rtt_sample(&tcb->rtt, tcp_now(t) - tcb->rtt_at);
    }
    if (tcb_has(tcb, TCB_LOST_SYN)) {
        tcb->cc.cwnd = tcb->mss;               /* RFC 5681 §3.1 */
        tcb->rtt.rto_us = RTT_RTO_LOST_SYN_US; /* RFC 6298 §5.7 */
    }
    tcb->rtx_at = NEVER;
    tcb->backoffs = 0;
    tcb_start_keepalive(tcb);
    if (tcb_has(tcb, TCB_ACTIVE))
        t->stats.connected++;
    tcb_wake_writer(tcb);
    tcb_wake_reader(tcb);
    if (tcb_has(tcb, TCB_FIN_QUEUED))
        tcb_set_state(tcb, TCP_FIN_WAIT_1);
    tcb_mark(tcb);
}

static enum tcp_drop on_syn(struct tcb *tcb, struct segment *seg)
{
    struct tcp *t = tcb->tcp;
    uint32_t window = t->o.rcv_buf < 65535 ? t->o.rcv_buf : 65535;
    take_options(tcb, seg);
    tcb->rcv_nxt = seg->seq + 1;
    tcb->rcv_adv = tcb->rcv_nxt + window;
    tcb->last_ack = tcb->rcv_nxt;
    tcb->snd_wnd = tcb->max_wnd = seg->window; /* never scaled on a SYN (RFC 7323 §2.2) */
    tcb->snd_wl1 = seg->seq;
    tcb->snd_wl2 = seg->ack;
    if (!(seg->flags & SEG_ACK)) {
        /* Both have opened at once. Text on such a SYN is left for the peer to send again. */
        tcb->snd_wl2 = tcb->iss;
        tcb_set_state(tcb, TCP_SYN_RCVD);
        tcb_send_syn(tcb);
        return TCP_DROP_accepted;
    }
    tcb_established(tcb);
    tcb->flags |= TCB_ACK_NOW;
    seg->seq++;
    seg->flags &= ~SEG_SYN;
    return tcb_on_text(tcb, seg);
}

enum tcp_drop tcb_on_syn_sent(struct tcb *tcb, struct segment *seg)
{
    bool acks = seg->flags & SEG_ACK;
    if (acks && seg->ack != tcb->iss + 1) {
        tcp_reply_rst(tcb->tcp, seg);
        return TCP_DROP_ack_invalid;
    }
    if (seg->flags & SEG_RST) {
        /* Only one that acknowledges our SYN can come from the peer. */
        if (!acks)
            return TCP_DROP_syn_sent_bad;
        tcb->tcp->stats.refused++;
        tcb_die(tcb, -ECONNREFUSED);
        return TCP_DROP_accepted;
    }
    if (!(seg->flags & SEG_SYN))
        return TCP_DROP_syn_sent_bad;
    return on_syn(tcb, seg);
}
