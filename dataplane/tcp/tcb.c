#include "dataplane/tcp/tcb.h"

#include <string.h>

#include "dataplane/tcp/engine.h"
#include "dataplane/tcp/time_wait.h"

#define IP_TCP_HDR_LEN 40
/* Below this a "segment size" is an attack on our CPU; such a peer gets segments larger than it
 * asked for, as from other stacks. */
#define MIN_MSS 88

struct tcb *tcb_new(struct tcp *t, const struct tuple *tuple)
{
    struct tcb *tcb = slab_get_zeroed(&t->tcbs);
    if (!tcb)
        return NULL;
    tcb->tuple = *tuple;
    if (table_insert(&t->conns, tcb, table_hash(&t->conns, tuple)) != 0) {
        slab_put(&t->tcbs, tcb);
        return NULL;
    }
    tcb->tcp = t;
    tcb->stream.ops = &tcb_stream_ops;
    tcb->flags = TCB_TABLED;
    tcb->timer.fire = tcb_on_timer;
    tcb->rtx_at = tcb->ack_at = tcb->misc_at = NEVER;
    tcb->heard_at = tcp_now(t);
    tcb->ts_offset = isn_ts_offset(t->key, tuple);
    tcb->resent_ts = isn_ts_clock(tcp_now(t)) + tcb->ts_offset - (1u << 30); /* long ago */
    tcb->cc.ops = t->congestion;
    tcb->rcv_mss = SEG_MSS_DEFAULT;
    tcb->peer_mss = SEG_MSS_DEFAULT;
    rtt_init(&tcb->rtt);
    t->stats.conns = t->conns.count;
    return tcb;
}

void tcb_init_send(struct tcb *tcb, uint32_t iss)
{
    tcb->iss = iss;
    tcb->snd_una = tcb->snd_nxt = tcb->snd_max = tcb->recover = iss;
    tcb->snd_end = iss + 1; /* our SYN comes before the first byte */
}

void tcb_set_mss(struct tcb *tcb)
{
    uint32_t path = tcb->path.route.mtu > IP_TCP_HDR_LEN + MIN_MSS
                        ? tcb->path.route.mtu - IP_TCP_HDR_LEN
                        : MIN_MSS;
    uint32_t mss = tcb->peer_mss < path ? tcb->peer_mss : path;
    if (mss > tcb->tcp->max_segment)
        mss = tcb->tcp->max_segment;
    if (mss < MIN_MSS)
        mss = MIN_MSS;
    if (tcb_has(tcb, TCB_TS))
        mss -= SEG_TS_LEN; /* RFC 6691 */
    tcb->mss = (uint16_t)mss;
}

void tcb_mark(struct tcb *tcb)
{
    if (tcb_is_open(tcb) && !list_is_linked(&tcb->pending))
        list_push_tail(&tcb->tcp->pending, &tcb->pending);
}

/* Out of the table: from here on segments of the tuple are somebody else's. */
static void unlink_tcb(struct tcb *tcb)
{
    struct tcp *t = tcb->tcp;
    if (!tcb_has(tcb, TCB_TABLED))
        return;
    table_remove(&t->conns, tcb);
    tcb->flags &= ~TCB_TABLED;
    t->stats.conns = t->conns.count;
    tcb->rtx_at = tcb->ack_at = tcb->misc_at = NEVER;
    timer_cancel(&t->o.sched->wheel, &tcb->timer);
    list_remove(&tcb->pending);
    list_push_tail(&t->dead, &tcb->pending);
}

void tcb_die(struct tcb *tcb, int err)
{
    struct tcp *t = tcb->tcp;
    if (tcb->state == TCP_CLOSED)
        return;
    tcb_set_state(tcb, TCP_CLOSED);
    unlink_tcb(tcb);
    tcb->err = (int16_t)err;
    rope_clear(t->o.ropes, &tcb->snd);
    tcb->cursor = NULL;
    reass_clear(&tcb->reass, &t->reass);
    if (err)
        rope_clear(t->o.ropes, &tcb->rcv);
    if (err == -ETIMEDOUT)
        t->stats.timeouts++;
    tcb_wake_reader(tcb);
    tcb_wake_writer(tcb);
}

void tcb_enter_time_wait(struct tcb *tcb)
{
    struct tcp *t = tcb->tcp;
    tcb_set_state(tcb, TCP_TIME_WAIT);
    if (tcb_has(tcb, TCB_ACK_NOW)) /* for the peer's FIN; the ACK of ours needs no answer */
        tcb_send_ack(tcb);
    unlink_tcb(tcb);
    time_wait_add(t, tcb);
    tcb_wake_reader(tcb);
    tcb_wake_writer(tcb);
}

static void free_tcb(struct tcb *tcb)
{
    struct tcp *t = tcb->tcp;
    rope_clear(t->o.ropes, &tcb->rcv);
    rope_clear(t->o.ropes, &tcb->snd);
    reass_clear(&tcb->reass, &t->reass);
    unlink_tcb(tcb);
    list_remove(&tcb->pending);
    t->stats.mbufs_held -= tcb->held;
    slab_put(&t->tcbs, tcb);
}

void tcb_leave(struct tcb *tcb)
{
    if (!tcb_is_open(tcb) && !tcb_has(tcb, TCB_HANDLE)) {
        free_tcb(tcb);
        return;
    }
    uint32_t held = tcb->rcv.nodes + tcb->snd.nodes + tcb->reass.nodes;
    tcb->tcp->stats.mbufs_held += (int64_t)held - tcb->held;
    tcb->held = held;
    if (tcb_is_open(tcb))
        tcb_set_timer(tcb);
    tcp_check(tcb);
}

#ifndef NDEBUG
/* Walking ropes after each entry would make long tests quadratic. */
#define CHECK_NODES 64

static void check_cursor(const struct tcb *tcb)
{
    uint64_t at = 0;
    const struct rope_node *n = tcb->snd.head;
    for (; n && n != tcb->cursor; n = n->next)
        at += n->len;
    assert(n == tcb->cursor);
    if (n) {
        assert(tcb->cursor_off >= n->off && tcb->cursor_off < n->off + n->len);
        at += tcb->cursor_off - n->off;
    }
    if (tcb_is_connecting(tcb))
        assert(at == 0);
    else if (seq_leq(tcb->snd_nxt, tcb->snd_end))
        assert(at == tcb_flight(tcb));
}

static void check_ropes(const struct tcb *tcb)
{
    if (tcb->snd.nodes <= CHECK_NODES) {
        assert(rope_check(&tcb->snd));
        if (tcb_is_open(tcb))
            check_cursor(tcb);
    }
    if (tcb->rcv.nodes <= CHECK_NODES)
        assert(rope_check(&tcb->rcv));
    if (tcb->reass.nodes <= CHECK_NODES)
        assert(reass_check(&tcb->reass, tcb->rcv_nxt));
}

void tcp_check(const struct tcb *tcb)
{
    check_ropes(tcb);
    assert(tcb->held == tcb->rcv.nodes + tcb->snd.nodes + tcb->reass.nodes);
    assert(list_is_linked(&tcb->pending) || tcb_has(tcb, TCB_TABLED));
    if (!tcb_is_open(tcb)) {
        assert(tcb_has(tcb, TCB_HANDLE) && !timer_is_armed(&tcb->timer));
        return;
    }
    assert(seq_leq(tcb->snd_una, tcb->snd_nxt) && seq_leq(tcb->snd_nxt, tcb->snd_max));
    assert(seq_leq(tcb->snd_max, tcb_snd_limit(tcb)));
    uint32_t first = tcb_is_connecting(tcb) ? tcb->iss + 1 : tcb->snd_una;
    if (!tcb_fin_acked(tcb))
        assert(tcb->snd.len == tcb->snd_end - first);
    assert(tcb->state == TCP_SYN_SENT || seq_leq(tcb->rcv_nxt, tcb->rcv_adv + 1)); /* FIN */
    assert(tcb_has(tcb, TCB_HANDLE) || tcb->misc_at != NEVER);
    assert(tcb_flight(tcb) == 0 || tcb->rtx_at != NEVER || list_is_linked(&tcb->pending));
    assert(!tcb_has(tcb, TCB_OUT_RETRY) || tcb->ack_at != NEVER);
}
#else
void tcp_check(const struct tcb *tcb)
{
}
#endif
