/* One timer in the wheel per connection, for three deadlines. It is filed under the earliest; a
 * deadline that only moves later costs a store, so that ACKs don't touch the wheel. */
#include <errno.h>

#include "dataplane/tcp/engine.h"

void tcb_set_timer(struct tcb *tcb)
{
    uint64_t at = tcb->rtx_at < tcb->ack_at ? tcb->rtx_at : tcb->ack_at;
    if (tcb->misc_at < at)
        at = tcb->misc_at;
    struct timer_wheel *wheel = &tcb->tcp->o.sched->wheel;
    if (at == NEVER)
        timer_cancel(wheel, &tcb->timer);
    else
        timer_arm(wheel, &tcb->timer, at);
}

void tcb_start_keepalive(struct tcb *tcb)
{
    tcb->probes = 0;
    tcb->misc_at = tcp_now(tcb->tcp) + tcb->tcp->o.keepalive_idle_ns;
}

static void syn_timeout(struct tcb *tcb)
{
    tcb->tcp->stats.retransmits++;
    tcb->retransmits++;
    tcb->backoffs++;
    tcb->flags |= TCB_LOST_SYN;
    int err = tcb_send_syn(tcb); /* sets rtx_at */
    if (err == -EHOSTUNREACH || err == -ENETUNREACH)
        tcb_die(tcb, err);
}

/* RFC 6298 §5.4 to 5.6, and everything sent goes again from snd_una: what the peer holds out of
 * order is not known here. */
static void retransmit_timeout(struct tcb *tcb)
{
    if (tcb->expiries >= TCP_RTX_MAX) {
        tcb_die(tcb, -ETIMEDOUT);
        return;
    }
    tcb->tcp->stats.rto++;
    tcb->cc.ops->on_timeout(&tcb->cc, tcb->mss, tcb_flight(tcb), tcb->expiries > 0);
    tcb->expiries++;
    if (tcb->backoffs < TCP_RTX_MAX)
        tcb->backoffs++;
    tcb->recover = tcb->snd_max;
    tcb->dup_acks = 0;
    tcb->flags &= ~(TCB_RECOVERY | TCB_PARTIAL | TCB_RESEND_HEAD | TCB_TIMING);
    tcb->snd_nxt = tcb->snd_una;
    tcb->cursor = tcb->snd.head;
    tcb->cursor_off = tcb->cursor ? tcb->cursor->off : 0;
    tcb_mark(tcb);
}

/* RFC 9293 §3.8.6.1: probes go on for as long as they are answered. */
static void persist_timeout(struct tcb *tcb, uint64_t now)
{
    if (tcb->probes >= TCP_RTX_MAX) {
        tcb_die(tcb, -ETIMEDOUT);
        return;
    }
    tcb->probes++;
    if (tcb->backoffs < UINT8_MAX)
        tcb->backoffs++;
    tcb->rtx_at = now + rtt_timeout(&tcb->rtt, tcb->backoffs);
    tcb_send_probe(tcb);
    if (tcb_flight(tcb))
        tcb_mark(tcb); /* it went as data: the retransmission timer takes over */
}

static void on_rtx(struct tcb *tcb, uint64_t now)
{
    tcb->rtx_at = NEVER;
    if (tcb_is_connecting(tcb))
        syn_timeout(tcb);
    else if (tcb_has(tcb, TCB_PERSIST))
        persist_timeout(tcb, now);
    else if (tcb_flight(tcb))
        retransmit_timeout(tcb);
}

static void on_ack_due(struct tcb *tcb)
{
    tcb->ack_at = NEVER;
    if (tcb_has(tcb, TCB_WND_RETRY)) {
        tcb->flags &= ~TCB_WND_RETRY;
        window_on_read(tcb); /* arms itself again while mbufs are short */
    }
    if (tcb_has(tcb, TCB_OUT_RETRY)) {
        tcb->flags &= ~TCB_OUT_RETRY;
        tcb_wake_writer(tcb);
        tcb_mark(tcb);
    }
    if (tcb->rcv_nxt != tcb->last_ack && tcb->state != TCP_SYN_SENT) {
        tcb->flags |= TCB_ACK_NOW;
        tcb_mark(tcb);
    }
}

/* RFC 9293 §3.8.4. */
static void keepalive(struct tcb *tcb, uint64_t now)
{
    uint64_t idle_at = tcb->heard_at + tcb->tcp->o.keepalive_idle_ns;
    if (tcb_flight(tcb) || tcb_has(tcb, TCB_PERSIST)) {
        /* Retransmission and persist notice a dead peer themselves. */
        tcb->misc_at = now + tcb->tcp->o.keepalive_idle_ns;
    } else if (idle_at > now) {
        tcb->misc_at = idle_at;
    } else if (tcb->probes >= TCP_KEEPALIVE_MAX) {
        tcb_die(tcb, -ETIMEDOUT);
    } else {
        tcb->probes++;
        tcb->misc_at = now + TCP_KEEPALIVE_NS;
        tcb_send_keepalive(tcb);
    }
}

static void on_misc(struct tcb *tcb, uint64_t now)
{
    tcb->misc_at = NEVER;
    if (tcb_is_connecting(tcb)) {
        tcb_die(tcb, -ETIMEDOUT);
    } else if (tcb_has(tcb, TCB_HANDLE)) {
        keepalive(tcb, now);
    } else {
        /* Closed by the application, and no progress since. In FIN_WAIT_2 nothing of ours is
         * missing, so the peer needs no RST until it speaks. */
        if (tcb->state != TCP_FIN_WAIT_2)
            tcb_send_rst(tcb);
        tcb_die(tcb, -ETIMEDOUT);
    }
}

void tcb_on_timer(struct timer *timer, uint64_t now)
{
    struct tcb *tcb = container_of(timer, struct tcb, timer);
    if (tcb->ack_at <= now)
        on_ack_due(tcb);
    if (tcb_is_open(tcb) && tcb->rtx_at <= now)
        on_rtx(tcb, now);
    if (tcb_is_open(tcb) && tcb->misc_at <= now)
        on_misc(tcb, now);
    tcb_leave(tcb);
}
