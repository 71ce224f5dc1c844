/* What ICMP and the neighbour table say about connections, believed as far as RFC 5927 and
 * RFC 1122 §4.2.3.9 allow. */
#include <errno.h>

#include <rte_byteorder.h>

#include "dataplane/tcp/engine.h"

#define TYPE_UNREACHABLE 3

enum unreachable_code {
    CODE_NET = 0,
    CODE_HOST = 1,
    CODE_PROTO = 2,
    CODE_PORT = 3,
    CODE_FRAG_NEEDED = 4,
    CODE_ADMIN_NET = 9,
    CODE_ADMIN_HOST = 10,
    CODE_ADMIN = 13,
};

/* For routers that don't give a next-hop MTU (RFC 1191 §7). */
static uint16_t lower_plateau(uint16_t mtu)
{
    static const uint16_t plateaus[] = {4352, 2002, 1492, 1280, 1006, NET_PMTU_MIN};
    for (unsigned i = 0; i < sizeof(plateaus) / sizeof(*plateaus); i++)
        if (plateaus[i] < mtu)
            return plateaus[i];
    return NET_PMTU_MIN;
}

/* The path is narrower than we thought: what is in flight was lost, and goes again smaller. */
static void on_too_big(struct tcb *tcb, const struct icmp_error *e)
{
    struct tcp *t = tcb->tcp;
    uint16_t mtu = e->mtu ? e->mtu : lower_plateau(tcb->path.route.mtu);
    if (mtu < NET_PMTU_MIN)
        mtu = NET_PMTU_MIN;
    if (mtu >= tcb->path.route.mtu)
        return;
    net_pmtu_learn(t->o.net, tcb->tuple.peer_addr, mtu);
    tcb->path.route.mtu = mtu;
    tcb_set_mss(tcb);
    if (tcb_is_connecting(tcb))
        return;
    tcb->snd_nxt = tcb->snd_una;
    tcb->cursor = tcb->snd.head;
    tcb->cursor_off = tcb->cursor ? tcb->cursor->off : 0;
    tcb->flags &= ~(TCB_TIMING | TCB_RESEND_HEAD);
    tcb_mark(tcb);
}

static int connect_error(const struct icmp_error *e)
{
    if (e->type != TYPE_UNREACHABLE)
        return 0;
    switch (e->code) {
    case CODE_NET:
    case CODE_ADMIN_NET:
        return -ENETUNREACH;
    case CODE_HOST:
    case CODE_ADMIN_HOST:
    case CODE_ADMIN:
        return -EHOSTUNREACH;
    case CODE_PROTO:
    case CODE_PORT:
        return -ECONNREFUSED;
    default:
        return 0;
    }
}

void tcp_on_icmp(void *ctx, const struct icmp_error *e)
{
    struct tcp *t = ctx;
    struct tuple tuple = {.local_addr = e->src,
                          .peer_addr = e->dst,
                          .local_port = rte_cpu_to_be_16(e->src_port),
                          .peer_port = rte_cpu_to_be_16(e->dst_port)};
    struct tcb *tcb = table_find(&t->conns, &tuple, table_hash(&t->conns, &tuple));
    /* Someone who can't see the flow can't quote what is in flight. */
    if (!tcb || !seq_in(e->seq, tcb->snd_una, tcb->snd_max))
        return;
    int err = connect_error(e);
    if (e->type == TYPE_UNREACHABLE && e->code == CODE_FRAG_NEEDED)
        on_too_big(tcb, e);
    else if (tcb->state == TCP_SYN_SENT && err)
        tcb_die(tcb, err);
    /* Once established an error is soft: the retransmission timer decides. */
    tcb_leave(tcb);
}

void tcp_on_neighbor_failed(void *ctx, uint32_t next_hop)
{
    struct tcp *t = ctx;
    uint32_t pos = 0;
    for (struct tcb *tcb; (tcb = table_next(&t->conns, &pos));) {
        if (tcb->state != TCP_SYN_SENT || tcb->path.route.next_hop != next_hop)
            continue;
        tcb_die(tcb, -EHOSTUNREACH);
        tcb_leave(tcb);
        pos = 0; /* removal moves entries */
    }
}
