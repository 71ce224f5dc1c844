#include <netinet/in.h>

#include <rte_icmp.h>
#include <rte_tcp.h>

#include "dataplane/net/csum.h"
#include "dataplane/net/net_priv.h"

#define TYPE_ECHO_REPLY      0
#define TYPE_UNREACHABLE     3
#define TYPE_ECHO            8
#define TYPE_TIME_EXCEEDED   11
#define TYPE_PARAM_PROBLEM   12
#define CODE_FRAG_NEEDED     4
#define ERROR_SIZE_MAX       576  /* RFC 1812 §4.3.2.3: as much of the packet as fits */
#define TOS_INTERNET_CONTROL 0xc0 /* RFC 1812 §4.3.2.5 */

/* The common head of every message (RFC 792); `rest` is id and sequence, or unused and MTU. */
struct icmp_msg {
    uint8_t type, code;
    uint16_t check;
    uint16_t rest[2];
};

/* --- echo --- */

/* An mbuf whose bytes we alone hold, and in as many pieces as the port takes; NULL: none left. */
static struct rte_mbuf *make_own(struct net *n, struct rte_mbuf *m, const struct netif *nif)
{
    bool own = m->nb_segs == 1 && RTE_MBUF_DIRECT(m) && rte_mbuf_refcnt_read(m) == 1;
    if (likely(own))
        return m;
    struct rte_mbuf *c = rte_pktmbuf_copy(m, n->mbufs, 0, UINT32_MAX);
    if (c && c->nb_segs > 1 && !(nif->offloads & NETIF_TX_MULTI_SEGS)) {
        rte_pktmbuf_free(c);
        c = NULL;
    }
    if (c)
        rte_pktmbuf_free(m);
    return c;
}

/* RFC 1122 §3.2.2.6. m->data_off at the IP header. */
static void echo(struct net *n, struct rte_mbuf *m, const struct ip4_rx *rx)
{
    if (!net_rate_take(&n->icmp_echo, net_now(n))) {
        net_drop(n, m, NET_DROP_icmp_rate);
        return;
    }
    rte_pktmbuf_adj(m, rx->hdr_len);
    struct rte_mbuf *r = make_own(n, m, rx->nif);
    if (!r) {
        net_drop(n, m, NET_DROP_no_mbuf);
        return;
    }
    struct icmp_msg *msg = rte_pktmbuf_mtod(r, struct icmp_msg *);
    msg->type = TYPE_ECHO_REPLY;
    msg->check = csum_update16(msg->check, rte_cpu_to_be_16(TYPE_ECHO << 8), 0);
    /* An update can't tell +0 from -0 (RFC 1624 §3): an echo of nothing but zeros needs the other.
     */
    if (msg->check == 0)
        msg->check = csum_finish(csum_mbuf(r, 0, r->pkt_len, 0));
    r->ol_flags = 0;
    n->stats.icmp_echo++;
    n->stats.drops[NET_DROP_delivered]++;
    net_output4(n, NULL, r, rx->dst, rx->src, IPPROTO_ICMP, rx->tos & ~3, false);
}

/* --- errors about what we sent --- */

static bool is_error(uint8_t type)
{
    return type == TYPE_UNREACHABLE || type == TYPE_TIME_EXCEEDED || type == TYPE_PARAM_PROBLEM;
}

/* NET_DROP_delivered when the quote names a TCP segment from the address that the error came to. */
static enum net_drop parse_quote(const struct icmp_msg *msg, uint32_t len, const struct ip4_rx *rx,
                                 struct icmp_error *ret_e)
{
    const struct rte_ipv4_hdr *ip = (const struct rte_ipv4_hdr *)(msg + 1);
    if (len < sizeof *msg + sizeof *ip || (ip->version_ihl >> 4) != 4)
        return NET_DROP_icmp_bad;
    uint32_t hdr_len = rte_ipv4_hdr_len(ip);
    if (hdr_len < sizeof *ip || len < sizeof *msg + hdr_len + 8)
        return NET_DROP_icmp_bad;
    if (ip->src_addr != rx->dst ||
        (ip->fragment_offset & rte_cpu_to_be_16(RTE_IPV4_HDR_OFFSET_MASK)))
        return NET_DROP_icmp_bad;
    if (ip->next_proto_id != IPPROTO_TCP)
        return NET_DROP_icmp_ignored;
    const struct rte_tcp_hdr *th = (const struct rte_tcp_hdr *)((const uint8_t *)ip + hdr_len);
    bool too_big = msg->type == TYPE_UNREACHABLE && msg->code == CODE_FRAG_NEEDED;
    *ret_e = (struct icmp_error){
        .type = msg->type,
        .code = msg->code,
        .mtu = too_big ? rte_be_to_cpu_16(msg->rest[1]) : 0,
        .src = ip->src_addr,
        .dst = ip->dst_addr,
        .src_port = rte_be_to_cpu_16(th->src_port),
        .dst_port = rte_be_to_cpu_16(th->dst_port),
        .seq = rte_be_to_cpu_32(th->sent_seq),
    };
    return NET_DROP_delivered;
}

static void error_in(struct net *n, struct rte_mbuf *m, const struct icmp_msg *msg,
                     const struct ip4_rx *rx)
{
    struct icmp_error e;
    enum net_drop why = parse_quote(msg, m->data_len - rx->hdr_len, rx, &e);
    if (why == NET_DROP_delivered) {
        n->stats.icmp_errors_received++;
        if (n->on_icmp_error)
            n->on_icmp_error(n->icmp_error_ctx, &e);
    }
    net_drop(n, m, why);
}

void icmp_input(struct net *n, struct rte_mbuf *m, const struct ip4_rx *rx)
{
    const struct icmp_msg *msg = rte_pktmbuf_mtod_offset(m, const struct icmp_msg *, rx->hdr_len);
    if (rx->payload_len < sizeof *msg ||
        csum_finish(csum_mbuf(m, rx->hdr_len, rx->payload_len, 0)) != 0)
        net_drop(n, m, NET_DROP_icmp_bad);
    else if (msg->type == TYPE_ECHO && msg->code == 0)
        echo(n, m, rx);
    else if (is_error(msg->type))
        error_in(n, m, msg, rx);
    else
        net_drop(n, m, NET_DROP_icmp_ignored);
}

/* --- errors that we send --- */

/* Broadcasts, fragments and ICMP itself never come here: ip4_input() has let go of them before
 * (RFC 1122 §3.2.2). */
bool icmp_send_unreachable(struct net *n, const struct rte_mbuf *m, const struct ip4_rx *rx,
                           uint8_t code)
{
    if (!net_rate_take(&n->icmp_errors, net_now(n)))
        return false;
    struct rte_mbuf *r = rte_pktmbuf_alloc(n->mbufs);
    if (!r)
        return false;
    uint32_t quote = ERROR_SIZE_MAX - sizeof(struct rte_ipv4_hdr) - sizeof(struct icmp_msg);
    if (quote > m->pkt_len)
        quote = m->pkt_len;
    struct icmp_msg *msg =
        (struct icmp_msg *)rte_pktmbuf_append(r, (uint16_t)(sizeof *msg + quote));
    if (!msg) {
        rte_pktmbuf_free(r);
        return false;
    }
    *msg = (struct icmp_msg){.type = TYPE_UNREACHABLE, .code = code};
    const void *from = rte_pktmbuf_read(m, 0, quote, msg + 1);
    if (from != msg + 1)
        memcpy(msg + 1, from, quote);
    msg->check = csum_finish(csum_partial(msg, sizeof *msg + quote, 0));
    n->stats.icmp_errors_sent++;
    net_output4(n, NULL, r, rx->dst, rx->src, IPPROTO_ICMP, TOS_INTERNET_CONTROL, false);
    return true;
}
