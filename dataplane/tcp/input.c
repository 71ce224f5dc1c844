/* From a received packet to the connection it belongs to, and RFC 9293 §3.10.7.4 step by step. */
#include <errno.h>

#include "dataplane/tcp/engine.h"
#include "dataplane/tcp/listen.h"
#include "dataplane/tcp/time_wait.h"

/* How old a ts_recent may be before it says nothing (RFC 7323 §5.5). */
#define TS_RECENT_AGE_S (24u * 24 * 3600)

static uint32_t seconds(const struct tcp *t)
{
    return (uint32_t)(tcp_now(t) / SECOND);
}

/* First step: the four cases of the acceptability test. A bare segment right at the edge passes,
 * though the RFC's table has it out: a sender with a full window in flight sends its ACKs from
 * there. */
static bool is_acceptable(const struct tcb *tcb, const struct segment *seg)
{
    uint32_t len = segment_seq_len(seg);
    uint32_t right = seq_max(tcb->rcv_adv, tcb->rcv_nxt);
    if (len == 0)
        return seq_geq(seg->seq, tcb->rcv_nxt) && seq_leq(seg->seq, right);
    if (right == tcb->rcv_nxt)
        return false;
    uint32_t last = seg->seq + len - 1;
    return seq_in(seg->seq, tcb->rcv_nxt, right) || seq_in(last, tcb->rcv_nxt, right);
}

/* RFC 7323 §5.3: R1. */
static bool is_too_old(const struct tcb *tcb, const struct segment *seg)
{
    if (!tcb_has(tcb, TCB_TS) || !(seg->options & SEG_OPT_TS) || (seg->flags & SEG_RST))
        return false;
    return seq_lt(seg->ts_val, tcb->ts_recent) &&
           seconds(tcb->tcp) - tcb->ts_recent_at < TS_RECENT_AGE_S;
}

/* R3 with last_ack: the segment that the next ACK will answer. */
static void update_ts(struct tcb *tcb, const struct segment *seg)
{
    if (!tcb_has(tcb, TCB_TS) || !(seg->options & SEG_OPT_TS))
        return;
    if (seq_geq(seg->ts_val, tcb->ts_recent) && seq_leq(seg->seq, tcb->last_ack)) {
        tcb->ts_recent = seg->ts_val;
        tcb->ts_recent_at = seconds(tcb->tcp);
    }
}

/* An unacceptable segment is answered by an ACK; bare ones within limits, or two sides that have
 * lost each other would answer for ever. */
static void ack_unacceptable(struct tcb *tcb, const struct segment *seg)
{
    if (seg->flags & SEG_RST)
        return;
    if (segment_seq_len(seg) == 0) {
        tcb_challenge(tcb);
        return;
    }
    tcb->flags |= TCB_ACK_NOW;
    tcb_mark(tcb);
}

/* RFC 7323 §3.2: dropped without timestamps once they are agreed on; old stacks leave them out of
 * the handshake's last ACK. */
static bool lacks_ts(const struct tcb *tcb, const struct segment *seg)
{
    return tcb_has(tcb, TCB_TS) && !(seg->options & SEG_OPT_TS) && !(seg->flags & SEG_RST) &&
           !tcb_has(tcb, TCB_ACCEPT) && tcb->state != TCP_SYN_RCVD;
}

/* A SYN/ACK that crossed our own SYN/ACK in a simultaneous open: its SYN is known already, its ACK
 * is news. */
static void strip_crossed_syn(const struct tcb *tcb, struct segment *seg)
{
    if (tcb->state == TCP_SYN_RCVD && (seg->flags & SEG_SYN) && (seg->flags & SEG_ACK) &&
        seg->seq + 1 == tcb->rcv_nxt) {
        seg->flags &= ~SEG_SYN;
        seg->seq++;
    }
}

static enum tcp_drop step_sequence(struct tcb *tcb, struct segment *seg)
{
    strip_crossed_syn(tcb, seg);
    if (is_too_old(tcb, seg)) {
        ack_unacceptable(tcb, seg);
        return TCP_DROP_paws;
    }
    if (lacks_ts(tcb, seg))
        return TCP_DROP_ts_missing;
    if (is_acceptable(tcb, seg)) {
        update_ts(tcb, seg);
        return TCP_DROP_accepted;
    }
    if (seg->flags & SEG_RST)
        return TCP_DROP_rst_window;
    if (seg->flags & SEG_SYN)
        return TCP_DROP_accepted; /* RFC 5961 §4: challenged wherever it stands */
    /* With the window closed its text can't come in, but its ACK counts (§3.10.7.4). */
    if (seg->seq == tcb->rcv_nxt && seq_leq(tcb->rcv_adv, tcb->rcv_nxt)) {
        tcb->flags |= TCB_ACK_NOW;
        tcb_mark(tcb);
        seg->len = 0;
        seg->flags &= ~(SEG_FIN | SEG_PSH);
        return TCP_DROP_accepted;
    }
    ack_unacceptable(tcb, seg);
    bool old = seq_lt(seg->seq, tcb->rcv_nxt);
    return old && seg->len ? TCP_DROP_duplicate : TCP_DROP_seq_window;
}

/* Second step, as RFC 5961 §3.2 has it. */
static enum tcp_drop step_rst(struct tcb *tcb, const struct segment *seg)
{
    struct tcp *t = tcb->tcp;
    if (seg->seq != tcb->rcv_nxt) {
        tcb_challenge(tcb);
        return TCP_DROP_rst_challenge;
    }
    t->stats.reset_in++;
    /* After both FINs a RST tells nothing that the streams don't know. */
    bool over = tcb->state == TCP_CLOSING || tcb->state == TCP_LAST_ACK;
    if (over && tcb->snd.len == 0)
        tcb_die(tcb, 0);
    else if (tcb->state == TCP_SYN_RCVD)
        tcb_die(tcb, -ECONNREFUSED);
    else
        tcb_die(tcb, -ECONNRESET);
    return TCP_DROP_accepted;
}

/* Fifth step. */
static enum tcp_drop step_ack(struct tcb *tcb, const struct segment *seg)
{
    if (!(seg->flags & SEG_ACK))
        return TCP_DROP_ack_missing;
    if (tcb->state == TCP_SYN_RCVD) {
        if (seg->ack != tcb->iss + 1) {
            tcp_reply_rst(tcb->tcp, seg);
            return TCP_DROP_ack_invalid;
        }
        tcb_established(tcb);
    }
    return tcb_on_ack(tcb, seg);
}

enum tcp_drop tcb_input(struct tcb *tcb, struct segment *seg)
{
    if (tcb->state == TCP_SYN_SENT)
        return tcb_on_syn_sent(tcb, seg);
    enum tcp_drop why = step_sequence(tcb, seg);
    if (why != TCP_DROP_accepted)
        return why;
    if (seg->flags & SEG_RST)
        return step_rst(tcb, seg);
    if (seg->flags & SEG_SYN) {
        tcb_challenge(tcb);
        return TCP_DROP_rst_challenge;
    }
    why = step_ack(tcb, seg);
    if (why != TCP_DROP_accepted || !tcb_is_open(tcb))
        return why;
    return tcb_on_text(tcb, seg);
}

static enum tcp_drop to_connection(struct tcb *tcb, struct segment *seg)
{
    tcb->heard_at = tcp_now(tcb->tcp);
    /* A keepalive probe is answered: idle time starts anew. */
    if (tcb->probes && !tcb_has(tcb, TCB_PERSIST)) {
        tcb->probes = 0;
        if (tcb_has(tcb, TCB_HANDLE))
            tcb->misc_at = tcb->heard_at + tcb->tcp->o.keepalive_idle_ns;
    }
    enum tcp_drop why = tcb_input(tcb, seg);
    tcb_leave(tcb);
    return why;
}

static enum tcp_drop dispatch(struct tcp *t, struct segment *seg)
{
    uint64_t hash = table_hash(&t->conns, &seg->tuple);
    struct tcb *tcb = table_find(&t->conns, &seg->tuple, hash);
    if (tcb)
        return to_connection(tcb, seg);
    struct half_open *h = table_find(&t->half_open, &seg->tuple, hash);
    if (h)
        return half_open_input(t, h, seg);
    struct time_wait *w = table_find(&t->time_wait, &seg->tuple, hash);
    if (w)
        return time_wait_input(t, w, seg);
    return listen_input(t, seg);
}

void tcp_input(void *ctx, struct rte_mbuf *m, const struct ip4_rx *rx)
{
    struct tcp *t = ctx;
    struct segment seg;
    t->stats.segs_in++;
    enum tcp_drop why = segment_parse(m, rx, &seg);
    if (why == TCP_DROP_accepted) {
        why = dispatch(t, &seg);
        m = seg.m;
    }
    tcp_count(t, why);
    rte_pktmbuf_free(m);
}
