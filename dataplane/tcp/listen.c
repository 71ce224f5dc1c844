#include "dataplane/tcp/listen.h"

#include <errno.h>
#include <stdlib.h>

#include <rte_byteorder.h>

#define MAX_LOOKED_AT 64         /* half-open connections, in search of one that gives way */
#define ODD_ACK_NS    (500 * MS) /* between ACKs that a half-open connection answers oddities with */

static struct tcp_listener *find_listener(const struct tcp *t, uint32_t addr, uint16_t port)
{
    struct tcp_listener *any = NULL;
    list_for_each(n, &t->listeners)
    {
        struct tcp_listener *l = container_of(n, struct tcp_listener, node);
        if (l->o.port != port)
            continue;
        if (l->o.addr == addr)
            return l;
        if (l->o.addr == 0)
            any = l;
    }
    return any;
}

static struct tcp_listener *listener_of(const struct tcp *t, const struct tuple *tuple)
{
    return find_listener(t, tuple->local_addr, rte_be_to_cpu_16(tuple->local_port));
}

bool listen_is_open(const struct tcp *t, const struct tuple *tuple)
{
    return listener_of(t, tuple) != NULL;
}

int tcp_listen(struct tcp *t, const struct tcp_listener_opts *o, struct tcp_listener **ret_listener)
{
    struct tcp_listener *same = find_listener(t, o->addr, o->port);
    if (same && same->o.addr == o->addr)
        return -EADDRINUSE;
    struct tcp_listener *l = calloc(1, sizeof(*l));
    if (!l)
        return -ENOMEM;
    l->o = *o;
    if (!l->o.backlog)
        l->o.backlog = 1024;
    list_push_tail(&t->listeners, &l->node);
    *ret_listener = l;
    return 0;
}

void tcp_listener_free(struct tcp *t, struct tcp_listener *l)
{
    for (unsigned tries = 0; tries < TCP_SYNACK_TRIES && l->half_open; tries++) {
        list_for_each_safe(n, tmp, &t->half_fifo[tries])
        {
            struct half_open *h = container_of(n, struct half_open, fifo);
            if (h->listener == l)
                half_open_free(t, h);
        }
    }
    list_remove(&l->node);
    free(l);
}

void tcp_listener_set_ctx(struct tcp_listener *l, void *ctx)
{
    l->o.ctx = ctx;
}

static uint16_t syn_window(const struct tcp *t)
{
    return t->o.rcv_buf < 65535 ? (uint16_t)t->o.rcv_buf : 65535;
}

static void send_syn_ack(struct tcp *t, const struct half_open *h)
{
    struct net_route route;
    if (net_route_lookup(t->o.net, h->tuple.peer_addr, h->tuple.local_addr, &route) != 0)
        return;
    uint32_t mss = route.mtu - 40u;
    struct segment_out out = {
        .tuple = h->tuple,
        .seq = h->iss,
        .ack = h->irs + 1,
        .flags = SEG_SYN | SEG_ACK,
        .window = syn_window(t),
        .options = h->options | SEG_OPT_MSS,
        .mss = (uint16_t)(mss < t->max_segment ? mss : t->max_segment),
        .wscale = t->rcv_wscale,
        .ts_val = isn_ts_clock(tcp_now(t)) + h->ts_offset,
        .ts_echo = h->ts_recent,
    };
    tcp_send_bare(t, &out);
}

/* <SEQ=SND.NXT><ACK=RCV.NXT><CTL=ACK>, seldom. */
static void send_odd_ack(struct tcp *t, struct half_open *h)
{
    uint64_t now = tcp_now(t);
    if (h->ack_at && now - h->ack_at < ODD_ACK_NS)
        return;
    h->ack_at = now;
    struct segment_out out = {
        .tuple = h->tuple,
        .seq = h->iss + 1,
        .ack = h->irs + 1,
        .flags = SEG_ACK,
        .window = syn_window(t),
        .options = h->options & SEG_OPT_TS,
        .ts_val = isn_ts_clock(now) + h->ts_offset,
        .ts_echo = h->ts_recent,
    };
    tcp_send_bare(t, &out);
}

/* Half-open connections of one number of tries wait equally long, so each list is in order of
 * time and its head is due first. */
static void file_half_open(struct tcp *t, struct half_open *h)
{
    h->due_at = tcp_now(t) + (SECOND << h->tries);
    list_push_tail(&t->half_fifo[h->tries], &h->fifo);
    if (!timer_is_armed(&t->half_timer) || h->due_at < t->half_timer.at_)
        timer_arm(&t->o.sched->wheel, &t->half_timer, h->due_at);
}

void half_open_free(struct tcp *t, struct half_open *h)
{
    list_remove(&h->fifo);
    h->listener->half_open--;
    table_remove(&t->half_open, h);
    t->stats.half_open = t->half_open.count;
    slab_put(&t->half_opens, h);
}

static struct half_open *half_open_new(struct tcp *t, struct tcp_listener *l,
                                       const struct segment *seg)
{
    struct half_open *h = slab_get_zeroed(&t->half_opens);
    if (!h)
        return NULL;
    h->tuple = seg->tuple;
    if (table_insert(&t->half_open, h, table_hash(&t->half_open, &h->tuple)) != 0) {
        slab_put(&t->half_opens, h);
        return NULL;
    }
    h->listener = l;
    l->half_open++;
    t->stats.half_open = t->half_open.count;
    return h;
}

static void fill_half_open(struct tcp *t, struct half_open *h, const struct segment *seg,
                           const uint32_t *above)
{
    uint64_t now = tcp_now(t);
    h->iss = isn_generate(t->key, &h->tuple, now) + t->o.isn_offset;
    /* A new life of the flow must start above the old one (RFC 6191 §2). */
    if (above && seq_leq(h->iss, *above))
        h->iss = *above + 65536;
    h->irs = seg->seq;
    h->ts_offset = isn_ts_offset(t->key, &h->tuple);
    h->ts_recent = seg->ts_val;
    h->options = seg->options & (SEG_OPT_WSCALE | SEG_OPT_SACK_OK | SEG_OPT_TS);
    h->snd_wscale = seg->options & SEG_OPT_WSCALE ? seg->wscale : 0;
    h->peer_window = seg->window;
    h->peer_mss = (seg->options & SEG_OPT_MSS) && seg->mss ? seg->mss : SEG_MSS_DEFAULT;
    h->sent_at = now;
}

/* A full queue costs the one that has kept us waiting longest its place. So a flood of SYNs
 * shortens the time for a handshake's third step, but doesn't shut the door for a minute. */
static bool make_room(struct tcp *t, const struct tcp_listener *l)
{
    bool any = t->half_open.count >= t->o.max_half_open;
    unsigned looked = 0;
    t->stats.listen_overflow++;
    for (unsigned tries = TCP_SYNACK_TRIES; tries-- > 0;) {
        list_for_each(n, &t->half_fifo[tries])
        {
            struct half_open *h = container_of(n, struct half_open, fifo);
            if (h->listener == l || any) {
                half_open_free(t, h);
                return true;
            }
            if (++looked == MAX_LOOKED_AT)
                return false;
        }
    }
    return false;
}

static enum tcp_welcome welcome_of(const struct tcp_listener *l, const struct segment *seg)
{
    return l->o.may_accept ? l->o.may_accept(l->o.ctx, seg->tuple.peer_addr) : TCP_WELCOME_ACCEPT;
}

enum tcp_drop listen_syn(struct tcp *t, const struct segment *seg, const uint32_t *above)
{
    struct tcp_listener *l = listener_of(t, &seg->tuple);
    if (tcp_memory(t) != TCP_MEMORY_PLENTY)
        return TCP_DROP_no_memory;
    enum tcp_welcome welcome = welcome_of(l, seg);
    if (welcome == TCP_WELCOME_RESET)
        tcp_reply_rst(t, seg);
    if (welcome != TCP_WELCOME_ACCEPT)
        return TCP_DROP_listener_refused;
    if ((l->half_open >= l->o.backlog || t->half_open.count >= t->o.max_half_open) &&
        !make_room(t, l))
        return TCP_DROP_listener_syn_full;
    struct half_open *h = half_open_new(t, l, seg);
    if (!h)
        return TCP_DROP_no_memory;
    fill_half_open(t, h, seg, above);
    file_half_open(t, h);
    send_syn_ack(t, h);
    return TCP_DROP_accepted;
}

enum tcp_drop listen_input(struct tcp *t, struct segment *seg)
{
    if (t->o.cores > 1 && tcp_owner(t, seg->tuple.local_addr, seg->tuple.local_port,
                                    seg->tuple.peer_addr, seg->tuple.peer_port) != t->o.core)
        return TCP_DROP_wrong_owner;
    if (seg->flags & SEG_RST)
        return TCP_DROP_rst_no_conn;
    bool is_open = listen_is_open(t, &seg->tuple);
    bool is_syn = (seg->flags & (SEG_SYN | SEG_ACK)) == SEG_SYN;
    if (is_open && is_syn)
        return seg->flags & SEG_FIN ? TCP_DROP_syn_fin : listen_syn(t, seg, NULL);
    if (is_open && !(seg->flags & SEG_ACK))
        return TCP_DROP_ack_missing;
    tcp_reply_rst(t, seg);
    return is_syn ? TCP_DROP_no_listener : TCP_DROP_no_conn;
}

/* The handshake is complete: the half-open connection becomes a control block. NULL: none left,
 * and the peer's ACK will be asked for again. */
static struct tcb *promote(struct tcp *t, struct half_open *h)
{
    struct tcb *tcb = tcb_new(t, &h->tuple);
    if (!tcb)
        return NULL;
    if (net_route_lookup(t->o.net, h->tuple.peer_addr, h->tuple.local_addr, &tcb->path.route) != 0)
        tcb->path.route.mtu = SEG_MSS_DEFAULT + 40;
    tcb->flags |= TCB_HANDLE | TCB_ACCEPT;
    if (h->options & SEG_OPT_TS)
        tcb->flags |= TCB_TS;
    if (h->options & SEG_OPT_SACK_OK)
        tcb->flags |= TCB_SACK;
    if (h->options & SEG_OPT_WSCALE)
        tcb->flags |= TCB_WSCALE;
    if (h->tries)
        tcb->flags |= TCB_LOST_SYN;
    else
        tcb->flags |= TCB_TIMING; /* RTT of our SYN/ACK */
    tcb_init_send(tcb, h->iss);
    tcb->snd_nxt = tcb->snd_max = tcb->rtt_seq = h->iss + 1;
    tcb->rtt_at = h->sent_at;
    tcb->snd_wscale = h->snd_wscale;
    tcb->rcv_wscale = h->options & SEG_OPT_WSCALE ? t->rcv_wscale : 0;
    tcb->snd_wnd = tcb->max_wnd = h->peer_window;
    tcb->snd_wl1 = h->irs;
    tcb->snd_wl2 = h->iss + 1;
    tcb->rcv_nxt = tcb->last_ack = h->irs + 1;
    tcb->rcv_adv = tcb->rcv_nxt + syn_window(t);
    tcb->ts_recent = h->ts_recent;
    tcb->ts_recent_at = (uint32_t)(tcp_now(t) / SECOND);
    tcb->peer_mss = h->peer_mss;
    tcb_set_mss(tcb);
    tcb->cc.ops->init(&tcb->cc, tcb->mss);
    tcb_set_state(tcb, TCP_SYN_RCVD);
    return tcb;
}

static enum tcp_drop accept_half_open(struct tcp *t, struct half_open *h, struct segment *seg)
{
    struct tcp_listener *l = h->listener;
    struct tcb *tcb = promote(t, h);
    if (!tcb)
        return TCP_DROP_no_memory;
    half_open_free(t, h);
    enum tcp_drop why = tcb_input(tcb, seg);
    tcb->flags &= ~TCB_ACCEPT;
    if (tcb->err || tcb->state == TCP_SYN_RCVD) {
        /* Dead before anyone has heard of it. */
        tcb_die(tcb, -ECONNRESET);
        tcb->flags &= ~TCB_HANDLE;
        tcb_leave(tcb);
        return why;
    }
    tcb_leave(tcb);
    t->stats.accepted++;
    l->o.on_accept(l->o.ctx, &tcb->stream);
    return why;
}

static bool half_open_in_window(const struct tcp *t, const struct half_open *h, uint32_t seq)
{
    return seq_in(seq, h->irs + 1, h->irs + 2 + syn_window(t));
}

static bool half_open_is_old(const struct half_open *h, const struct segment *seg)
{
    return (h->options & seg->options & SEG_OPT_TS) && seq_lt(seg->ts_val, h->ts_recent);
}

/* RFC 9293 §3.10.7.4 for a passive SYN_RECEIVED, in its order of steps. */
enum tcp_drop half_open_input(struct tcp *t, struct half_open *h, struct segment *seg)
{
    bool is_syn = seg->flags & SEG_SYN;
    if (is_syn && seg->seq == h->irs && !(seg->flags & (SEG_ACK | SEG_RST))) {
        h->ts_recent = seg->ts_val;
        send_syn_ack(t, h); /* ours was lost, or is late */
        return TCP_DROP_duplicate;
    }
    if (seg->flags & SEG_RST) {
        if (seg->seq != h->irs + 1)
            return TCP_DROP_rst_window;
        t->stats.reset_in++;
        half_open_free(t, h);
        return TCP_DROP_accepted;
    }
    if (half_open_is_old(h, seg)) {
        send_odd_ack(t, h);
        return TCP_DROP_paws;
    }
    if (!half_open_in_window(t, h, seg->seq)) {
        send_odd_ack(t, h);
        return TCP_DROP_seq_window;
    }
    if (is_syn) {
        send_odd_ack(t, h);
        return TCP_DROP_rst_challenge;
    }
    if (!(seg->flags & SEG_ACK))
        return TCP_DROP_ack_missing;
    if (seg->ack != h->iss + 1) {
        tcp_reply_rst(t, seg);
        return TCP_DROP_ack_invalid;
    }
    return accept_half_open(t, h, seg);
}

void half_open_on_timer(struct timer *timer, uint64_t now)
{
    struct tcp *t = container_of(timer, struct tcp, half_timer);
    uint64_t next = NEVER;
    for (unsigned tries = TCP_SYNACK_TRIES; tries-- > 0;) {
        struct list_node *n;
        while ((n = list_first(&t->half_fifo[tries]))) {
            struct half_open *h = container_of(n, struct half_open, fifo);
            if (h->due_at > now) {
                next = h->due_at < next ? h->due_at : next;
                break;
            }
            if (h->tries + 1 == TCP_SYNACK_TRIES) {
                t->stats.timeouts++;
                half_open_free(t, h);
                continue;
            }
            list_remove(&h->fifo);
            h->tries++;
            t->stats.retransmits++;
            send_syn_ack(t, h);
            file_half_open(t, h);
        }
    }
    if (next != NEVER)
        timer_arm(&t->o.sched->wheel, &t->half_timer, next);
}
