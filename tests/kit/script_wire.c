/* The script's side of the wire: frames in, and frames that must come out. */
#include <arpa/inet.h>
#include <ctype.h>
#include <stdlib.h>
#include <string.h>

#include <rte_arp.h>

#include "dataplane/net/csum.h"
#include "tests/kit/script_priv.h"

#define ETH RTE_ETHER_HDR_LEN

static const char *const unreachable_codes[] = {
    "net", "host", "proto", "port", "frag_needed", "source_route", [13] = "admin",
};

static int code_of(const char *name)
{
    for (unsigned i = 0; i < RTE_DIM(unreachable_codes); i++)
        if (unreachable_codes[i] && strcmp(unreachable_codes[i], name) == 0)
            return (int)i;
    return -1;
}

/* --- frames in --- */

static void log_line(struct script *s, const char *direction, uint64_t at, const char *text)
{
    fprintf(s->log, "%11.6f %s %s\n", (double)(at - s->start_at) / 1e9, direction, text);
}

static void inject_frame(struct script *s, struct rte_mbuf *m, bool more_follow)
{
    net_rig_in(&s->rig.net, m);
    if (!more_follow)
        script_settle(s);
}

static void inject_ip(struct script *s, const struct rig_ip4 *ip, bool link_broadcast,
                      bool more_follow)
{
    struct rte_mbuf *m = net_rig_ip4(&s->rig.net, ip);
    if (link_broadcast)
        memset(rte_pktmbuf_mtod(m, void *), 0xff, 6);
    inject_frame(s, m, more_follow);
}

static void inject_segment(struct script *s, const char *text, bool more_follow)
{
    struct script_segment seg;
    static uint8_t bytes[65536 + 60];
    const char *error = script_segment_parse(text, true, &seg);
    if (error)
        script_fail(s, "%s", error);
    uint32_t src = seg.src ? seg.src : RIG_PEER, dst = seg.dst ? seg.dst : RIG_US;
    size_t len = script_segment_build(&seg, &s->conn->flow, src, dst, bytes);
    if (len > 1980)
        script_fail(s, "a segment of %zu bytes doesn't fit a frame", len);
    inject_ip(s,
              &(struct rig_ip4){.src = src,
                                .dst = dst,
                                .proto = IPPROTO_TCP,
                                .tos = (uint8_t)seg.tos.lo,
                                .payload = bytes,
                                .payload_len = (uint16_t)len},
              seg.link_broadcast, more_follow);
}

static size_t parse_hex(struct script *s, const char *text, uint8_t *out, size_t max)
{
    size_t n = 0;
    while (*text) {
        unsigned v;
        if (isspace((unsigned char)*text)) {
            text++;
            continue;
        }
        if (n == max || !isxdigit((unsigned char)text[0]) || sscanf(text, "%2x", &v) != 1 ||
            !isxdigit((unsigned char)text[1]))
            script_fail(s, "bad hexadecimal bytes");
        out[n++] = (uint8_t)v;
        text += 2;
    }
    return n;
}

static void inject_raw(struct script *s, const char *text, bool more_follow)
{
    uint8_t bytes[1980];
    if (strncmp(text, "tcp", 3) == 0) {
        size_t n = parse_hex(s, text + 3, bytes, sizeof bytes);
        inject_ip(
            s,
            &(struct rig_ip4){.proto = IPPROTO_TCP, .payload = bytes, .payload_len = (uint16_t)n},
            false, more_follow);
        return;
    }
    size_t at = 0;
    if (strncmp(text, "ip", 2) == 0) {
        struct rte_ether_hdr eh = {rig_us_mac, rig_peer_mac, htons(RTE_ETHER_TYPE_IPV4)};
        memcpy(bytes, &eh, sizeof eh);
        at = sizeof eh;
        text += 2;
    } else {
        text += strlen("frame");
    }
    size_t n = parse_hex(s, text, bytes + at, sizeof bytes - at);
    inject_frame(s, net_rig_mbuf(&s->rig.net, bytes, at + n), more_follow);
}

/* "unreachable CODE [mtu N] [SEQ:…]", "time_exceeded [SEQ:…]": quotes our segment at SEQ. */
static void inject_icmp(struct script *s, const char *text, bool more_follow)
{
    char kind[32] = "", code[32] = "";
    const struct script_flow *f = &s->conn->flow;
    struct {
        uint8_t type, code;
        uint16_t check, unused, mtu;
        struct rte_ipv4_hdr ip;
        uint16_t ports[2];
        uint32_t seq;
    } __rte_packed msg = {0};
    if (sscanf(text, "%31s %31s", kind, code) < 1)
        script_fail(s, "an ICMP type was expected");
    msg.type = strcmp(kind, "unreachable") == 0 ? 3 : strcmp(kind, "time_exceeded") == 0 ? 11 : 0;
    int c = msg.type == 3 ? code_of(code) : 0;
    if (!msg.type || c < 0)
        script_fail(s, "unknown ICMP type or code");
    msg.code = (uint8_t)c;
    const char *mtu = strstr(text, "mtu "), *quote = strchr(text, '[');
    if (mtu)
        msg.mtu = htons((uint16_t)strtoul(mtu + 4, NULL, 0));
    msg.ip = (struct rte_ipv4_hdr){.version_ihl = 0x45,
                                   .total_length = htons(40),
                                   .time_to_live = 50,
                                   .next_proto_id = IPPROTO_TCP,
                                   .src_addr = RIG_US,
                                   .dst_addr = RIG_PEER};
    msg.ports[0] = htons(f->us_port);
    msg.ports[1] = htons(f->peer_port);
    msg.seq = htonl(f->us_isn + (quote ? (uint32_t)strtoll(quote + 1, NULL, 0) : 0));
    msg.check = csum_finish(csum_partial(&msg, sizeof msg, 0));
    inject_ip(s,
              &(struct rig_ip4){.src = IP4(203, 0, 113, 5),
                                .proto = IPPROTO_ICMP,
                                .payload = &msg,
                                .payload_len = sizeof msg},
              false, more_follow);
}

void script_inject(struct script *s, const char *text, bool more_follow)
{
    script_start(s);
    script_no_output(s);
    log_line(s, "<", tcp_rig_now(&s->rig), text);
    if (strncmp(text, "tcp ", 4) == 0 || strncmp(text, "ip ", 3) == 0 ||
        strncmp(text, "frame ", 6) == 0)
        inject_raw(s, text, more_follow);
    else if (strncmp(text, "icmp ", 5) == 0)
        inject_icmp(s, text + 5, more_follow);
    else if (strcmp(text, "arp reply") == 0)
        inject_frame(s,
                     net_rig_arp(&s->rig.net, &(struct rig_arp){.op = 2,
                                                                .eth_dst = rig_us_mac,
                                                                .sha = rig_peer_mac,
                                                                .spa = RIG_PEER,
                                                                .tha = rig_us_mac,
                                                                .tpa = RIG_US}),
                     more_follow);
    else
        inject_segment(s, text, more_follow);
}

/* --- frames out --- */

static void print_frame(struct script *s, const struct rte_mbuf *m, char *buf, size_t size)
{
    struct rig_arp a;
    const struct rte_ether_hdr *eh = rte_pktmbuf_mtod(m, const struct rte_ether_hdr *);
    const struct rte_ipv4_hdr *ip = (const struct rte_ipv4_hdr *)(eh + 1);
    if (net_rig_parse_arp(m, &a))
        snprintf(buf, size, "arp %s %s", a.op == 1 ? "request" : "reply",
                 rte_is_broadcast_ether_addr(&a.eth_dst) ? "(broadcast)" : "(unicast)");
    else if (eh->ether_type == htons(RTE_ETHER_TYPE_IPV4) && ip->next_proto_id == IPPROTO_TCP) {
        const struct rte_tcp_hdr *th = (const struct rte_tcp_hdr *)(ip + 1);
        const struct script_conn *c = script_conn_of(s, ntohs(th->dst_port));
        script_segment_print(ip, c ? &c->flow : &s->conn->flow, true, buf, size);
        if (c && c != s->conn)
            snprintf(buf + strlen(buf), size - strlen(buf), " (conn %d)", (int)(c - s->conns));
    } else
        snprintf(buf, size, "frame of type %04x, %u bytes", ntohs(eh->ether_type), m->pkt_len);
}

static bool answer_arp(struct script *s, struct rte_mbuf *m)
{
    struct rig_arp a;
    if (!s->arp_auto || !net_rig_parse_arp(m, &a))
        return false;
    if (a.op == 1 && a.spa != a.tpa)
        net_rig_arp_reply(&s->rig.net, a.tpa, &rig_peer_mac);
    return true;
}

/* The next frame that went out, in one piece whose headers are aligned, which a zero-copy payload's
 * aren't. */
static struct rte_mbuf *take_out(struct script *s)
{
    struct rte_mbuf *m = net_rig_out(&s->rig.net);
    if (!m)
        return m;
    struct rte_mbuf *c = rte_pktmbuf_copy(m, s->frames, 0, UINT32_MAX);
    if (!c)
        script_fail(s, "no mbuf for what was sent");
    rte_pktmbuf_free(m);
    return c;
}

static void collect(struct script *s)
{
    struct rte_mbuf *m;
    while ((m = take_out(s))) {
        char text[512];
        if (answer_arp(s, m)) {
            rte_pktmbuf_free(m);
            continue;
        }
        print_frame(s, m, text, sizeof text);
        log_line(s, "   >", tcp_rig_now(&s->rig), text);
        if (s->nouts == RTE_DIM(s->outs)) {
            rte_pktmbuf_free(m);
            script_fail(s, "more than %zu packets sent that no line expects", RTE_DIM(s->outs));
        }
        s->outs[s->nouts++] = (struct script_out){tcp_rig_now(&s->rig), m};
    }
}

void script_settle(struct script *s)
{
    tcp_rig_settle(&s->rig);
    collect(s);
    tcp_rig_settle(&s->rig); /* what an ARP answer has let go */
    collect(s);
}

void script_run_until(struct script *s, uint64_t at, bool stop_at_output)
{
    script_settle(s);
    while (tcp_rig_now(&s->rig) < at && !(stop_at_output && s->nouts)) {
        tcp_rig_run(&s->rig, at);
        script_settle(s);
    }
}

void script_no_output(struct script *s)
{
    if (s->nouts == 0)
        return;
    char text[512];
    print_frame(s, s->outs[0].m, text, sizeof text);
    script_fail(s, "sent at %.6f and not expected: %s", (double)(s->outs[0].at - s->start_at) / 1e9,
                text);
}

static struct script_out pop(struct script *s)
{
    struct script_out o = s->outs[0];
    memmove(s->outs, s->outs + 1, --s->nouts * sizeof *s->outs);
    return o;
}

static const char *match_icmp(const char *text, const struct rte_ipv4_hdr *ip, char *buf,
                              size_t size)
{
    const uint8_t *msg = (const uint8_t *)(ip + 1);
    char kind[32], code[32] = "";
    if (ip->next_proto_id != IPPROTO_ICMP || sscanf(text, "%31s %31s", kind, code) < 1)
        return "not an ICMP message";
    if (csum_finish(csum_partial(msg, ntohs(ip->total_length) - 20u, 0)) != 0)
        return "wrong ICMP checksum";
    if (strcmp(kind, "unreachable") != 0 || msg[0] != 3 || msg[1] != code_of(code)) {
        snprintf(buf, size, "ICMP type %u, code %u", msg[0], msg[1]);
        return buf;
    }
    return NULL;
}

static const char *match(struct script *s, const char *text, const struct rte_mbuf *m, char *buf,
                         size_t size)
{
    const struct rte_ether_hdr *eh = rte_pktmbuf_mtod(m, const struct rte_ether_hdr *);
    const struct rte_ipv4_hdr *ip = (const struct rte_ipv4_hdr *)(eh + 1);
    struct rig_arp a;
    if (strncmp(text, "arp ", 4) == 0) {
        uint16_t op = strstr(text, "reply") ? 2 : 1;
        return net_rig_parse_arp(m, &a) && a.op == op ? NULL : "not that ARP message";
    }
    if (eh->ether_type != htons(RTE_ETHER_TYPE_IPV4))
        return "not an IPv4 packet";
    if (!rte_is_same_ether_addr(&eh->dst_addr, &rig_peer_mac))
        return "not sent to the peer's MAC";
    if (strncmp(text, "icmp ", 5) == 0)
        return match_icmp(text + 5, ip, buf, size);
    if (ip->next_proto_id != IPPROTO_TCP)
        return "not a TCP segment";
    struct script_segment seg;
    const char *error = script_segment_parse(text, false, &seg);
    if (!error)
        error = script_segment_verify(&s->conn->flow, ip, buf, size);
    if (!error)
        error = script_segment_match(&seg, &s->conn->flow, ip, buf, size);
    return error;
}

void script_expect(struct script *s, const char *text, const struct script_when *when)
{
    script_start(s);
    script_run_until(s, when->latest, true);
    if (s->nouts == 0)
        script_fail(s, "nothing was sent until %.6f",
                    (double)(tcp_rig_now(&s->rig) - s->start_at) / 1e9);
    struct script_out o = pop(s);
    char buf[256], printed[512];
    print_frame(s, o.m, printed, sizeof printed);
    const char *error = match(s, text, o.m, buf, sizeof buf);
    rte_pktmbuf_free(o.m);
    if (error)
        script_fail(s, "%s: sent was %s", error, printed);
    if (o.at < when->earliest || o.at > when->latest)
        script_fail(s, "sent at %.6f, expected between %.6f and %.6f",
                    (double)(o.at - s->start_at) / 1e9,
                    (double)(int64_t)(when->earliest - s->start_at) / 1e9,
                    (double)(when->latest - s->start_at) / 1e9);
    s->base_at = o.at;
}
