#include "dataplane/tcp/time_wait.h"

#include "dataplane/tcp/listen.h"

#define ACK_NS (100 * MS) /* between answers to bare segments */

static void push(struct tcp *t, struct time_wait *w)
{
    w->until = tcp_now(t) + t->o.time_wait_ns;
    list_push_tail(&t->time_wait_fifo, &w->fifo);
    if (!timer_is_armed(&t->time_wait_timer))
        timer_arm(&t->o.sched->wheel, &t->time_wait_timer, w->until);
}

static struct time_wait *oldest(struct tcp *t)
{
    struct list_node *n = list_first(&t->time_wait_fifo);
    return n ? container_of(n, struct time_wait, fifo) : NULL;
}

void time_wait_free(struct tcp *t, struct time_wait *w)
{
    list_remove(&w->fifo);
    table_remove(&t->time_wait, w);
    t->stats.time_wait = t->time_wait.count;
    slab_put(&t->time_waits, w);
}

void time_wait_add(struct tcp *t, const struct tcb *tcb)
{
    if (t->time_wait.count >= t->o.max_time_wait)
        time_wait_free(t, oldest(t));
    struct time_wait *w = slab_get_zeroed(&t->time_waits);
    if (!w)
        return;
    w->tuple = tcb->tuple;
    w->rcv_nxt = tcb->rcv_nxt;
    w->snd_nxt = tcb->snd_max;
    w->ts = tcb_has(tcb, TCB_TS);
    w->ts_recent = tcb->ts_recent;
    w->ts_offset = tcb->ts_offset;
    uint32_t window = tcb->rcv_adv - tcb->rcv_nxt;
    w->window = seq_gt(tcb->rcv_adv, tcb->rcv_nxt) ? (uint16_t)(window >> tcb->rcv_wscale) : 0;
    int err = table_insert(&t->time_wait, w, table_hash(&t->time_wait, &w->tuple));
    assert(err == 0); /* room was made */
    (void)err;
    t->stats.time_wait = t->time_wait.count;
    push(t, w);
}

static void send_ack(struct tcp *t, struct time_wait *w, const struct segment *seg)
{
    uint64_t now = tcp_now(t);
    /* Two sides in TIME_WAIT that disagree must not answer each other for ever. */
    if (segment_seq_len(seg) == 0 && w->ack_at && now - w->ack_at < ACK_NS)
        return;
    w->ack_at = now;
    struct segment_out out = {
        .tuple = w->tuple,
        .seq = w->snd_nxt,
        .ack = w->rcv_nxt,
        .flags = SEG_ACK,
        .window = w->window,
        .options = w->ts ? SEG_OPT_TS : 0,
        .ts_val = isn_ts_clock(now) + w->ts_offset,
        .ts_echo = w->ts_recent,
    };
    tcp_send_bare(t, &out);
}

/* RFC 1122 §4.2.2.13 and RFC 6191: a SYN that can't be of the old connection starts a new one. */
static bool is_new_life(const struct time_wait *w, const struct segment *seg)
{
    if ((seg->flags & (SEG_SYN | SEG_ACK | SEG_RST | SEG_FIN)) != SEG_SYN)
        return false;
    if (w->ts && (seg->options & SEG_OPT_TS) && seg->ts_val != w->ts_recent)
        return seq_gt(seg->ts_val, w->ts_recent);
    return seq_gt(seg->seq, w->rcv_nxt);
}

static bool is_too_old(const struct time_wait *w, const struct segment *seg)
{
    return w->ts && (seg->options & SEG_OPT_TS) && seq_lt(seg->ts_val, w->ts_recent);
}

enum tcp_drop time_wait_input(struct tcp *t, struct time_wait *w, struct segment *seg)
{
    if (is_new_life(w, seg) && listen_is_open(t, &seg->tuple)) {
        uint32_t above = w->snd_nxt;
        time_wait_free(t, w);
        return listen_syn(t, seg, &above);
    }
    if (seg->flags & SEG_RST) {
        if (seg->seq != w->rcv_nxt || is_too_old(w, seg))
            return TCP_DROP_rst_window;
        t->stats.reset_in++;
        time_wait_free(t, w);
        return TCP_DROP_accepted;
    }
    bool bare = segment_seq_len(seg) == 0;
    if (bare && seg->seq == w->rcv_nxt && !is_too_old(w, seg))
        return TCP_DROP_time_wait;
    send_ack(t, w, seg);
    /* The peer's FIN again: our ACK was lost, and 2 MSL start anew. */
    if ((seg->flags & SEG_FIN) && seg->seq + segment_seq_len(seg) == w->rcv_nxt) {
        list_remove(&w->fifo);
        push(t, w);
    }
    return TCP_DROP_time_wait;
}

void time_wait_on_timer(struct timer *timer, uint64_t now)
{
    struct tcp *t = container_of(timer, struct tcp, time_wait_timer);
    struct time_wait *w;
    while ((w = oldest(t)) && w->until <= now)
        time_wait_free(t, w);
    if (w)
        timer_arm(&t->o.sched->wheel, timer, w->until);
}
