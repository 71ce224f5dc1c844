/* ACKs: RFC 9293 §3.10.7.4 fifth step, RFC 5681 and 6582 for what they say about loss, RFC 6298 for
 * what they say about time. */
#include "dataplane/tcp/engine.h"

#define DUP_ACKS_LOSS 3

static void update_window(struct tcb *tcb, const struct segment *seg)
{
    bool newer = seq_lt(tcb->snd_wl1, seg->seq) ||
                 (tcb->snd_wl1 == seg->seq && seq_leq(tcb->snd_wl2, seg->ack));
    if (!newer)
        return;
    uint32_t window = (uint32_t)seg->window << tcb->snd_wscale;
    tcb->snd_wl1 = seg->seq;
    tcb->snd_wl2 = seg->ack;
    if (window != tcb->snd_wnd)
        tcb_mark(tcb);
    tcb->snd_wnd = window;
    if (window > tcb->max_wnd)
        tcb->max_wnd = window;
}

/* A segment timed to the nanosecond where there is one; the peer's echo of our timestamp where
 * retransmissions have made that ambiguous (RFC 7323 §4). An echo from before the last one of them
 * is ambiguous too: when ACKs get lost, a retransmission is a duplicate to the peer, which then
 * echoes what it saw in order long before. */
static void sample_rtt(struct tcb *tcb, const struct segment *seg)
{
    uint64_t now = tcp_now(tcb->tcp);
    if (tcb_has(tcb, TCB_TIMING)) {
        if (seq_lt(seg->ack, tcb->rtt_seq))
            return;
        tcb->flags &= ~TCB_TIMING;
        rtt_sample(&tcb->rtt, now - tcb->rtt_at);
        tcb->backoffs = 0;
    } else if (tcb_has(tcb, TCB_TS) && (seg->options & SEG_OPT_TS) && seg->ts_echo) {
        if (seq_lt(seg->ts_echo, tcb->resent_ts))
            return;
        uint32_t ms = isn_ts_clock(now) + tcb->ts_offset - seg->ts_echo;
        if (ms >= RTT_RTO_MAX_US / 1000)
            return;
        rtt_sample(&tcb->rtt, ms * MS);
        tcb->backoffs = 0;
    }
}

/* Takes acknowledged bytes off the send rope. */
static void drop_acked(struct tcb *tcb, uint32_t ack)
{
    uint32_t n = ack - tcb->snd_una;
    uint32_t data = n < tcb->snd.len ? n : (uint32_t)tcb->snd.len; /* the rest is our FIN */
    bool rewind = seq_gt(ack, tcb->snd_nxt);
    /* Only what stands before snd_nxt is freed, so the cursor survives unless it lags. */
    rope_trim_head(tcb->tcp->o.ropes, &tcb->snd, data);
    tcb->snd_una = ack;
    if (rewind) {
        tcb->snd_nxt = ack;
        tcb->cursor = tcb->snd.head;
        tcb->cursor_off = tcb->cursor ? tcb->cursor->off : 0;
    }
}

static void leave_recovery(struct tcb *tcb)
{
    tcb->flags &= ~(TCB_RECOVERY | TCB_PARTIAL | TCB_RESEND_HEAD);
    tcb->dup_acks = 0;
}

/* RFC 6582 §3.2 step 3. */
static void ack_in_recovery(struct tcb *tcb, uint32_t acked)
{
    if (seq_geq(tcb->snd_una, tcb->recover)) {
        tcb->cc.ops->on_recovered(&tcb->cc, tcb->mss, tcb_flight(tcb));
        leave_recovery(tcb);
        return;
    }
    tcb->cc.ops->on_partial_ack(&tcb->cc, tcb->mss, acked);
    tcb->flags |= TCB_RESEND_HEAD;
}

/* RFC 6298 §5: restarted by every ACK of new data; in recovery by the first partial one only, so
 * that many losses in one window end in a timeout rather than in one round trip each. */
static void restart_timer(struct tcb *tcb)
{
    bool was_partial = tcb_has(tcb, TCB_PARTIAL);
    if (tcb_has(tcb, TCB_RECOVERY))
        tcb->flags |= TCB_PARTIAL;
    tcb->expiries = 0;
    if (tcb_has(tcb, TCB_PERSIST))
        return;
    if (tcb_flight(tcb) == 0)
        tcb->rtx_at = NEVER;
    else if (!tcb_has(tcb, TCB_RECOVERY) || !was_partial)
        tcb->rtx_at = tcp_now(tcb->tcp) + rtt_timeout(&tcb->rtt, tcb->backoffs);
}

/* Writers are woken when a fair piece has become free, not for every ACK. */
static void wake_writer_if_room(struct tcb *tcb, uint64_t space_before)
{
    uint32_t buf = tcb->tcp->o.snd_buf;
    uint32_t enough = buf / 4 < 32768 ? buf / 4 : 32768;
    if (tcb_snd_space(tcb) < enough)
        return;
    if (tcb_has(tcb, TCB_WANT_WRITE) || space_before < enough) {
        tcb->flags &= ~TCB_WANT_WRITE;
        tcb_wake_writer(tcb);
    }
}

static void on_new_ack(struct tcb *tcb, const struct segment *seg)
{
    uint32_t acked = seg->ack - tcb->snd_una;
    uint64_t space = tcb_snd_space(tcb);
    sample_rtt(tcb, seg);
    drop_acked(tcb, seg->ack);
    if (tcb_has(tcb, TCB_RECOVERY)) {
        ack_in_recovery(tcb, acked);
    } else {
        tcb->dup_acks = 0;
        /* After a timeout an ACK may be for what was there before: one segment's worth then. */
        if (seq_leq(tcb->snd_una, tcb->recover) && acked > tcb->mss)
            acked = tcb->mss;
        tcb->cc.ops->on_ack(&tcb->cc, tcb->mss, acked, tcb->peak);
    }
    restart_timer(tcb);
    if (!tcb_has(tcb, TCB_HANDLE) && tcb->state != TCP_FIN_WAIT_2)
        tcb->misc_at = tcp_now(tcb->tcp) + TCP_ORPHAN_NS;
    wake_writer_if_room(tcb, space);
    tcb_mark(tcb);
}

/* Bytes beyond the next ones expected have arrived since the last ACK (RFC 6675 §2). A block that
 * lies below is a duplicate's (RFC 2883), one beyond what was sent a lie. */
static bool is_sack_news(struct tcb *tcb, const struct segment *seg)
{
    if (!tcb_has(tcb, TCB_SACK) || !(seg->options & SEG_OPT_SACK))
        return false;
    if (seq_leq(seg->sack[0], tcb->snd_una) || seq_leq(seg->sack[1], seg->sack[0]) ||
        seq_gt(seg->sack[1], tcb->snd_max))
        return false;
    bool known = tcb->sacked[0] == seg->sack[0] && tcb->sacked[1] == seg->sack[1];
    tcb->sacked[0] = seg->sack[0];
    tcb->sacked[1] = seg->sack[1];
    return !known;
}

/* RFC 5681 §2: the five conditions of a duplicate ACK; (d) is seg->ack == snd_una. A peer that
 * tunes its buffer changes its window with every ACK: then SACK tells a duplicate from an update.
 */
static bool is_dup_ack(struct tcb *tcb, const struct segment *seg)
{
    bool news = is_sack_news(tcb, seg);
    return tcb_flight(tcb) > 0 && seg->len == 0 && !(seg->flags & (SEG_SYN | SEG_FIN)) &&
           (news || (uint32_t)seg->window << tcb->snd_wscale == tcb->snd_wnd);
}

/* RFC 5681's third duplicate, or, when ACKs are lost or held together, as much beyond the gap as
 * three of them would tell of (RFC 6675's IsLost). */
static bool is_loss(const struct tcb *tcb, const struct segment *seg)
{
    if (tcb->dup_acks >= DUP_ACKS_LOSS)
        return true;
    return tcb_has(tcb, TCB_SACK) && (seg->options & SEG_OPT_SACK) &&
           seq_gt(tcb->sacked[0], tcb->snd_una) &&
           tcb->sacked[1] - tcb->sacked[0] > (DUP_ACKS_LOSS - 1) * tcb->mss;
}

static void on_dup_ack(struct tcb *tcb, const struct segment *seg)
{
    tcb->tcp->stats.dup_acks_in++;
    if (tcb->dup_acks < UINT8_MAX)
        tcb->dup_acks++;
    tcb_mark(tcb); /* limited transmit, or a larger cwnd */
    if (tcb_has(tcb, TCB_RECOVERY)) {
        tcb->cc.ops->on_dup_ack(&tcb->cc, tcb->mss);
        return;
    }
    /* RFC 6582 §3.2 step 2: dup ACKs for what was sent before the last loss say nothing new. */
    if (!is_loss(tcb, seg) || seq_lt(tcb->snd_una, tcb->recover))
        return;
    tcb->recover = tcb->snd_max;
    tcb->flags |= TCB_RECOVERY | TCB_RESEND_HEAD;
    tcb->flags &= ~TCB_PARTIAL;
    tcb->tcp->stats.fast_retransmits++;
    tcb->cc.ops->on_loss(&tcb->cc, tcb->mss, tcb_flight(tcb));
}

/* Our FIN has been acknowledged (or nothing). */
static void on_fin_acked(struct tcb *tcb)
{
    if (tcb->state == TCP_FIN_WAIT_1) {
        tcb_set_state(tcb, TCP_FIN_WAIT_2);
        if (!tcb_has(tcb, TCB_HANDLE))
            tcb->misc_at = tcp_now(tcb->tcp) + TCP_FIN_WAIT_2_NS;
    } else if (tcb->state == TCP_CLOSING) {
        tcb_enter_time_wait(tcb);
    } else if (tcb->state == TCP_LAST_ACK) {
        tcb_die(tcb, 0);
    }
}

enum tcp_drop tcb_on_ack(struct tcb *tcb, const struct segment *seg)
{
    /* RFC 5961 §5.2: an ACK far below is as odd as one above. */
    if (seq_gt(seg->ack, tcb->snd_max) ||
        seq_diff(tcb->snd_una, seg->ack) > (int64_t)tcb->max_wnd + 1) {
        tcb_challenge(tcb);
        return TCP_DROP_ack_invalid;
    }
    if (tcb_has(tcb, TCB_PERSIST))
        tcb->probes = 0; /* answered: never give up */
    if (seq_gt(seg->ack, tcb->snd_una)) {
        on_new_ack(tcb, seg);
        update_window(tcb, seg);
        if (tcb_fin_acked(tcb))
            on_fin_acked(tcb);
    } else if (seg->ack == tcb->snd_una) {
        if (is_dup_ack(tcb, seg))
            on_dup_ack(tcb, seg);
        update_window(tcb, seg);
    }
    return TCP_DROP_accepted;
}
