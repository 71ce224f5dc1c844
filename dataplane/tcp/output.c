/* What goes out, and when: new data within both windows, the head again, bare ACKs, resets,
 * probes. */
#include <errno.h>

#include "dataplane/tcp/engine.h"

static uint32_t window_right(const struct tcb *tcb)
{
    return tcb->snd_una + tcb->snd_wnd;
}

/* The number that a bare segment carries: the highest sent, but within what the peer accepts. */
static uint32_t acceptable_seq(const struct tcb *tcb)
{
    uint32_t right = window_right(tcb);
    if (tcb_is_connecting(tcb) || seq_leq(tcb->snd_max, right))
        return tcb->snd_max;
    return seq_max(right, tcb->snd_una);
}

static uint32_t tcb_ts_now(const struct tcb *tcb)
{
    return isn_ts_clock(tcp_now(tcb->tcp)) + tcb->ts_offset;
}

static struct segment_out new_segment(struct tcb *tcb, uint32_t seq, unsigned flags)
{
    struct segment_out out = {
        .tuple = tcb->tuple,
        .seq = seq,
        .ack = tcb->rcv_nxt,
        .flags = (uint8_t)(flags | SEG_ACK),
        .window = window_advertise(tcb),
    };
    if (tcb_has(tcb, TCB_TS)) {
        out.options = SEG_OPT_TS;
        out.ts_val = tcb_ts_now(tcb);
        out.ts_echo = tcb->ts_recent;
    }
    if (tcb_has(tcb, TCB_SACK) && !reass_is_empty(&tcb->reass))
        out.sacks = (uint8_t)reass_sack(&tcb->reass, out.sack, segment_max_sacks(out.options));
    return out;
}

/* Every segment acknowledges. */
static void on_ack_sent(struct tcb *tcb)
{
    tcb->last_ack = tcb->rcv_nxt;
    tcb->flags &= ~TCB_ACK_NOW;
    if (!tcb_has(tcb, TCB_OUT_RETRY | TCB_WND_RETRY))
        tcb->ack_at = NEVER;
}

static void retry_soon(struct tcb *tcb)
{
    uint64_t at = tcp_now(tcb->tcp) + TCP_NO_MBUF_NS;
    tcb->flags |= TCB_OUT_RETRY;
    if (at < tcb->ack_at)
        tcb->ack_at = at;
}

/* Bookkeeping for [seq, seq + n) that has just left (or was lost at once, which is the same). */
static void on_sent(struct tcb *tcb, uint32_t seq, uint32_t n)
{
    struct tcp *t = tcb->tcp;
    uint32_t end = seq + n;
    if (seq_lt(seq, tcb->snd_max)) {
        t->stats.retransmits++;
        tcb->retransmits++;
        tcb->flags &= ~TCB_TIMING; /* Karn */
        tcb->resent_ts = tcb_ts_now(tcb);
    } else if (!tcb_has(tcb, TCB_TIMING)) {
        tcb->flags |= TCB_TIMING;
        tcb->rtt_seq = end;
        tcb->rtt_at = tcp_now(t);
    }
    if (seq_gt(end, tcb->snd_max)) {
        uint32_t fresh = seq_min(end, tcb->snd_end) - tcb->snd_max; /* no FIN */
        t->stats.bytes_out += fresh;
        tcb->bytes_out += fresh;
        tcb->snd_max = end;
    }
    on_ack_sent(tcb);
}

/* One segment of `len` bytes from `c` (and our FIN). False: no mbuf, to be tried again. */
static bool send_segment(struct tcb *tcb, uint32_t seq, struct cursor c, uint32_t len, bool fin)
{
    unsigned flags = fin ? SEG_FIN : 0;
    if (len && seq + len == tcb->snd_end)
        flags |= SEG_PSH;
    uint16_t mss = tcb->mss;
    struct segment_out out = new_segment(tcb, seq, flags);
    int err = len ? transmit_data(tcb, c, len, &out) : transmit_bare(tcb, &out);
    if (err == -EMSGSIZE) {
        /* The path has become narrower than we knew. */
        tcb_set_mss(tcb);
        if (tcb->mss < mss) {
            tcb_mark(tcb);
            return false;
        }
    }
    if (err == -ENOBUFS) {
        retry_soon(tcb);
        return false;
    }
    on_sent(tcb, seq, len + fin);
    return true;
}

static struct cursor send_cursor(const struct tcb *tcb)
{
    return (struct cursor){tcb->cursor, tcb->cursor_off};
}

static struct cursor head_cursor(const struct tcb *tcb)
{
    struct rope_node *head = tcb->snd.head;
    return (struct cursor){head, head ? head->off : 0};
}

/* Sends the next `len` bytes from snd_nxt and moves it on. */
static bool send_next(struct tcb *tcb, uint32_t len, bool fin)
{
    struct cursor c = send_cursor(tcb);
    if (!send_segment(tcb, tcb->snd_nxt, c, len, fin))
        return false;
    cursor_advance(&c, len);
    tcb->cursor = c.node;
    tcb->cursor_off = c.off;
    tcb->snd_nxt += len + fin;
    return true;
}

/* What may be in flight beyond cwnd: limited transmit (RFC 3042). */
static uint32_t cwnd_now(const struct tcb *tcb)
{
    if (tcb_has(tcb, TCB_RECOVERY) || tcb->dup_acks == 0)
        return tcb->cc.cwnd;
    unsigned extra = tcb->dup_acks < 2 ? tcb->dup_acks : 2;
    return tcb->cc.cwnd + extra * tcb->mss;
}

/* A part of what is wanted is worth sending when it is half the largest window the peer ever gave
 * (RFC 9293 §3.8.6.2.1). */
static bool is_silly(const struct tcb *tcb, uint32_t len)
{
    return len == 0 || (len < tcb->mss && 2ull * len < tcb->max_wnd);
}

static void restart_if_idle(struct tcb *tcb)
{
    bool idle = tcb_flight(tcb) == 0 && tcb->snd_nxt == tcb->snd_max && tcb->sent_at &&
                tcp_now(tcb->tcp) - tcb->sent_at > rtt_timeout(&tcb->rtt, 0);
    if (idle)
        tcb->cc.ops->on_idle(&tcb->cc, tcb->mss);
}

/* Sends one segment of new data or FIN if both windows let it; false when there is nothing more
 * to do now. */
static bool send_one(struct tcb *tcb)
{
    if (seq_geq(tcb->snd_nxt, tcb_snd_limit(tcb)))
        return false;
    uint32_t unsent = tcb->snd_end - tcb->snd_nxt;
    int32_t room = seq_diff(window_right(tcb), tcb->snd_nxt);
    uint32_t usable = room > 0 ? (uint32_t)room : 0;
    uint32_t most = unsent < tcb->mss ? unsent : tcb->mss;
    /* What goes again is copied anyway, and full segments fill the peer's holes soonest. */
    bool again = seq_lt(tcb->snd_nxt, tcb->snd_max);
    uint32_t len = again || !unsent ? most : transmit_length(tcb, send_cursor(tcb), most);
    bool fin = len == unsent && tcb_has(tcb, TCB_FIN_QUEUED);
    if (len + fin > usable) {
        /* What was worth sending once is worth it again: held back, it would be sent by persist
         * timer and timed out in turns, without backing off. */
        if (len > usable && is_silly(tcb, usable) && !(again && usable))
            return false;
        if (len == 0)
            return false;
        fin = false;
        len = len < usable ? len : usable;
    }
    if (tcb_flight(tcb) && tcb_flight(tcb) + len > cwnd_now(tcb))
        return false;
    return send_next(tcb, len, fin);
}

static void send_new(struct tcb *tcb)
{
    restart_if_idle(tcb);
    while (send_one(tcb))
        ;
}

/* The first unacknowledged segment once more; snd_nxt stays. */
static void resend_head(struct tcb *tcb)
{
    uint32_t sent = tcb->snd_max - tcb->snd_una;
    uint32_t data = (uint32_t)tcb->snd.len < sent ? (uint32_t)tcb->snd.len : sent;
    struct cursor c = head_cursor(tcb);
    uint32_t len = data < tcb->mss ? data : tcb->mss;
    bool fin = seq_gt(tcb->snd_max, tcb->snd_end) && tcb->snd_una + len == tcb->snd_end;
    if (len + fin == 0 || send_segment(tcb, tcb->snd_una, c, len, fin))
        tcb->flags &= ~TCB_RESEND_HEAD;
}

/* Sets rtx_at for what is outstanding now: retransmission, persist, or neither. */
static void arm_retransmit(struct tcb *tcb)
{
    uint64_t now = tcp_now(tcb->tcp);
    if (tcb_flight(tcb)) {
        if (tcb_has(tcb, TCB_PERSIST)) {
            tcb->flags &= ~TCB_PERSIST;
            tcb->backoffs = 0;
            tcb->rtx_at = NEVER;
        }
        if (tcb->rtx_at == NEVER)
            tcb->rtx_at = now + rtt_timeout(&tcb->rtt, tcb->backoffs);
    } else if (tcb->snd_nxt != tcb_snd_limit(tcb) && !tcb_has(tcb, TCB_OUT_RETRY)) {
        /* Nothing in flight and yet held back: by the peer's window. */
        if (!tcb_has(tcb, TCB_PERSIST)) {
            tcb->flags |= TCB_PERSIST;
            tcb->backoffs = tcb->probes = 0;
            tcb->rtx_at = now + rtt_timeout(&tcb->rtt, 0);
        }
    } else {
        tcb->flags &= ~TCB_PERSIST;
        tcb->rtx_at = NEVER;
    }
}

void tcb_output(struct tcb *tcb)
{
    if (!tcb_is_open(tcb))
        return;
    if (!tcb_is_connecting(tcb)) {
        if (tcb_has(tcb, TCB_RESEND_HEAD))
            resend_head(tcb);
        send_new(tcb);
        tcb->peak = tcb_flight(tcb);
        arm_retransmit(tcb);
    }
    if (tcb_has(tcb, TCB_ACK_NOW) && tcb->state != TCP_SYN_SENT)
        tcb_send_ack(tcb);
}

void tcb_send_ack(struct tcb *tcb)
{
    struct segment_out out = new_segment(tcb, acceptable_seq(tcb), 0);
    if (transmit_bare(tcb, &out) == -ENOBUFS) {
        tcb->flags |= TCB_ACK_NOW;
        retry_soon(tcb);
        return;
    }
    on_ack_sent(tcb);
}

void tcb_challenge(struct tcb *tcb)
{
    uint64_t now = tcp_now(tcb->tcp);
    if (now - tcb->challenge_at >= TCP_CHALLENGE_NS || tcb->challenge_at == 0) {
        tcb->challenge_at = now;
        tcb->challenges = 0;
    }
    if (tcb->challenges >= TCP_CHALLENGE_MAX)
        return;
    tcb->challenges++;
    tcb->tcp->stats.challenge_acks++;
    tcb_send_ack(tcb);
}

void tcb_send_rst(struct tcb *tcb)
{
    struct segment_out out = new_segment(tcb, acceptable_seq(tcb), SEG_RST);
    out.sacks = 0;
    tcb->tcp->stats.reset_out++;
    transmit_bare(tcb, &out); /* best effort: the peer's next segment meets no connection */
}

int tcb_send_syn(struct tcb *tcb)
{
    struct tcp *t = tcb->tcp;
    bool answer = tcb->state == TCP_SYN_RCVD;
    uint32_t window = t->o.rcv_buf < 65535 ? t->o.rcv_buf : 65535;
    struct segment_out out = {
        .tuple = tcb->tuple,
        .seq = tcb->iss,
        .ack = answer ? tcb->rcv_nxt : 0,
        .flags = answer ? SEG_SYN | SEG_ACK : SEG_SYN,
        .window = (uint16_t)window,
        .options = SEG_OPT_MSS,
        .mss = (uint16_t)(tcb->path.route.mtu - 40),
        .wscale = t->rcv_wscale,
        .ts_val = tcb_ts_now(tcb),
        .ts_echo = answer ? tcb->ts_recent : 0,
    };
    if (out.mss > t->max_segment)
        out.mss = t->max_segment;
    if (!answer || tcb_has(tcb, TCB_TS))
        out.options |= SEG_OPT_TS;
    if (!answer || tcb_has(tcb, TCB_SACK))
        out.options |= SEG_OPT_SACK_OK;
    if (!answer || tcb_has(tcb, TCB_WSCALE))
        out.options |= SEG_OPT_WSCALE;
    int err = transmit_bare(tcb, &out);
    if (!tcb_is_open(tcb))
        return err; /* the network has told us of a dead neighbour meanwhile */
    if (tcb->snd_max != tcb->iss)
        tcb->resent_ts = out.ts_val;
    if (!tcb_has(tcb, TCB_TIMING) && tcb->snd_max == tcb->iss) {
        tcb->flags |= TCB_TIMING;
        tcb->rtt_seq = tcb->iss + 1;
        tcb->rtt_at = tcp_now(t);
    }
    tcb->snd_nxt = tcb->snd_max = tcb->iss + 1;
    tcb->rtx_at = tcp_now(t) + rtt_timeout(&tcb->rtt, tcb->backoffs);
    return err;
}

void tcb_send_probe(struct tcb *tcb)
{
    uint32_t unsent = tcb->snd_end - tcb->snd_nxt;
    uint32_t usable =
        seq_gt(window_right(tcb), tcb->snd_nxt) ? window_right(tcb) - tcb->snd_nxt : 0;
    if (usable && unsent) {
        /* A window too small to be worth it, for too long: the override of RFC 9293
         * §3.8.6.2.1. */
        uint32_t len = usable < unsent ? usable : unsent;
        send_next(tcb, len < tcb->mss ? len : tcb->mss, false);
        return;
    }
    tcb->tcp->stats.zero_window_probes++;
    struct cursor c = head_cursor(tcb);
    send_segment(tcb, tcb->snd_una, c, unsent ? 1 : 0, unsent == 0);
}

void tcb_send_keepalive(struct tcb *tcb)
{
    struct segment_out out = new_segment(tcb, tcb->snd_una - 1, 0);
    tcb->tcp->stats.keepalives++;
    transmit_bare(tcb, &out);
}

void tcp_reply_rst(struct tcp *t, const struct segment *seg)
{
    struct segment_out out = {.tuple = seg->tuple, .flags = SEG_RST};
    if (seg->flags & SEG_RST)
        return;
    if (seg->flags & SEG_ACK) {
        out.seq = seg->ack;
    } else {
        out.ack = seg->seq + segment_seq_len(seg);
        out.flags = SEG_RST | SEG_ACK;
    }
    t->stats.reset_out++;
    tcp_send_bare(t, &out);
}
