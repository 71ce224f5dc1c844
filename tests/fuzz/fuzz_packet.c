/* Any packet in any state. The input is a program of small steps: raw frames, segments near what a
 * connection expects, ICMP errors about one, ARP, calls of the application, time, and mbufs running
 * out. The flows stand in every state of RFC 9293 before the first step. Checksums are made right,
 * so that what lies behind them is reached. What has to hold:
 *   - no bytes crash, leak or read behind their buffer, and TCP's own invariants stay;
 *   - every frame is consumed by exactly one counted reason;
 *   - what is sent has right lengths and checksums;
 *   - no step makes us answer without end. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "dataplane/net/csum.h"
#include "tests/kit/eal.h"
#include "tests/kit/script_segment.h"
#include "tests/kit/tcp_rig.h"

int LLVMFuzzerInitialize(int *argc, char ***argv);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define CHECK(cond)                                                                                \
    do {                                                                                           \
        if (!(cond)) {                                                                             \
            fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, #cond);                             \
            abort();                                                                               \
        }                                                                                          \
    } while (0)

#define FLOWS       12
#define LISTEN_PORT 8080
#define PEER_PORT   40000
#define ISN         0xffffff00u /* the peers': wraps early */
#define MBUFS       2047

/* Frames that one step may make us send: everything in flight of every flow, resent. */
#define STEP_OUT_MAX 4096

struct flow {
    struct script_flow script; /* ports and ISNs */
    uint32_t peer_nxt;         /* what we have acknowledged of the peer */
    uint32_t us_nxt;           /* after the last number we have sent */
    struct stream *stream;
    struct task task;
};

struct fuzz {
    struct tcp_rig rig;
    struct flow flows[FLOWS];
    struct rte_mbuf *held[MBUFS];
    unsigned nheld;
    unsigned out; /* frames sent in this step */
    uint64_t in;  /* frames given to net_input() */
};

static struct rte_mempool *pool;

int LLVMFuzzerInitialize(int *argc, char ***argv)
{
    kit_eal_init();
    pool = kit_pool_new(MBUFS);
    return 0;
}

/* --- the input --- */

struct input {
    const uint8_t *p, *end;
};

static uint8_t take(struct input *in)
{
    return in->p < in->end ? *in->p++ : 0;
}

static uint16_t take16(struct input *in)
{
    uint16_t hi = take(in);
    return (uint16_t)(hi << 8 | take(in));
}

static size_t take_bytes(struct input *in, uint8_t *to, size_t n)
{
    size_t left = (size_t)(in->end - in->p);
    if (n > left)
        n = left;
    memcpy(to, in->p, n);
    in->p += n;
    return n;
}

/* Mostly near zero, now and then far. */
static uint32_t take_offset(struct input *in)
{
    uint8_t kind = take(in);
    if (kind < 0x80)
        return 0;
    if (kind < 0xe0)
        return (uint32_t)(int32_t)(int8_t)take(in);
    if (kind < 0xf8)
        return (uint32_t)(int32_t)(int16_t)take16(in);
    uint32_t hi = take16(in);
    return hi << 16 | take16(in);
}

/* --- the wire --- */

static void see_segment(struct fuzz *f, const struct rte_ipv4_hdr *ip)
{
    char buf[128];
    struct script_flow any = {0};
    const struct rte_tcp_hdr *th = (const struct rte_tcp_hdr *)(ip + 1);
    uint32_t len = rte_be_to_cpu_16(ip->total_length) - 20u - (th->data_off >> 4) * 4u;
    uint32_t seq = rte_be_to_cpu_32(th->sent_seq);
    uint16_t i = (uint16_t)(rte_be_to_cpu_16(th->dst_port) - PEER_PORT);
    CHECK(len == 0 || len <= 1460);
    if (len == 0) /* with payload the bytes would be compared as well: they aren't scripted here */
        CHECK(!script_segment_verify(&any, ip, buf, sizeof buf));
    if (i >= FLOWS || (th->tcp_flags & RTE_TCP_RST_FLAG))
        return;
    struct flow *w = &f->flows[i];
    w->script.us_port = rte_be_to_cpu_16(th->src_port);
    w->us_nxt =
        seq + len + !!(th->tcp_flags & RTE_TCP_SYN_FLAG) + !!(th->tcp_flags & RTE_TCP_FIN_FLAG);
    if (th->tcp_flags & RTE_TCP_ACK_FLAG)
        w->peer_nxt = rte_be_to_cpu_32(th->recv_ack);
}

static void see(struct fuzz *f, const struct rte_mbuf *m)
{
    struct rte_ether_hdr eh;
    uint8_t frame[2048];
    CHECK(m->pkt_len >= 42 && m->pkt_len <= 1514 && m->nb_segs == 1);
    memcpy(&eh, rte_pktmbuf_mtod(m, void *), sizeof eh);
    memcpy(frame, rte_pktmbuf_mtod_offset(m, void *, 14), m->pkt_len - 14);
    if (eh.ether_type != rte_cpu_to_be_16(RTE_ETHER_TYPE_IPV4))
        return;
    const struct rte_ipv4_hdr *ip = (const struct rte_ipv4_hdr *)frame;
    uint16_t total = rte_be_to_cpu_16(ip->total_length);
    CHECK(ip->version_ihl == 0x45 && total == m->pkt_len - 14);
    CHECK(csum_finish(csum_partial(ip, 20, 0)) == 0);
    if (ip->next_proto_id == IPPROTO_TCP) {
        uint64_t pseudo = csum_pseudo4(ip->src_addr, ip->dst_addr, IPPROTO_TCP, total - 20);
        CHECK(csum_finish(csum_partial(ip + 1, total - 20u, pseudo)) == 0);
        see_segment(f, ip);
    } else {
        CHECK(ip->next_proto_id == IPPROTO_ICMP);
        CHECK(csum_finish(csum_partial(ip + 1, total - 20u, 0)) == 0);
    }
}

static void settle(struct fuzz *f)
{
    tcp_rig_settle(&f->rig);
    for (struct rte_mbuf *m; (m = net_rig_out(&f->rig.net)); rte_pktmbuf_free(m)) {
        CHECK(++f->out <= STEP_OUT_MAX);
        see(f, m);
    }
}

static struct rte_mbuf *frame(const void *bytes, size_t len)
{
    struct rte_mbuf *m = rte_pktmbuf_alloc(pool);
    if (!m)
        return NULL; /* the port has none either */
    memcpy(rte_pktmbuf_append(m, (uint16_t)len), bytes, len);
    return m;
}

static void receive(struct fuzz *f, const void *bytes, size_t len)
{
    struct rte_mbuf *m = frame(bytes, len);
    if (!m)
        return;
    struct net_flow flow;
    net_classify(m, &flow);
    f->in++;
    net_rig_in(&f->rig.net, m);
}

struct packet {
    struct rte_ether_hdr eth;
    struct rte_ipv4_hdr ip;
    uint8_t l4[1480];
};

static void receive_ip(struct fuzz *f, struct packet *p, uint8_t proto, size_t l4_len)
{
    p->eth =
        (struct rte_ether_hdr){rig_us_mac, rig_peer_mac, rte_cpu_to_be_16(RTE_ETHER_TYPE_IPV4)};
    p->ip = (struct rte_ipv4_hdr){
        .version_ihl = 0x45,
        .total_length = rte_cpu_to_be_16((uint16_t)(20 + l4_len)),
        .time_to_live = 64,
        .next_proto_id = proto,
        .src_addr = RIG_PEER,
        .dst_addr = RIG_US,
    };
    p->ip.hdr_checksum = csum_finish(csum_partial(&p->ip, 20, 0));
    receive(f, p, 34 + l4_len);
}

static void receive_segment(struct fuzz *f, const struct flow *w, struct packet *p, uint8_t flags,
                            uint32_t seq, uint32_t ack, uint16_t win, unsigned opt_len,
                            unsigned len)
{
    struct rte_tcp_hdr *th = (struct rte_tcp_hdr *)p->l4;
    size_t l4_len = sizeof *th + opt_len + len;
    *th = (struct rte_tcp_hdr){
        .src_port = rte_cpu_to_be_16(w->script.peer_port),
        .dst_port = rte_cpu_to_be_16(w->script.us_port),
        .sent_seq = rte_cpu_to_be_32(seq),
        .recv_ack = rte_cpu_to_be_32(ack),
        .data_off = (uint8_t)((20 + opt_len) / 4 << 4),
        .tcp_flags = flags,
        .rx_win = rte_cpu_to_be_16(win),
    };
    uint64_t pseudo = csum_pseudo4(RIG_PEER, RIG_US, IPPROTO_TCP, (uint16_t)l4_len);
    th->cksum = csum_finish(csum_partial(p->l4, l4_len, pseudo));
    receive_ip(f, p, IPPROTO_TCP, l4_len);
}

/* --- flows in every state --- */

#define FIN 1
#define SYN 2
#define ACK 0x10

static void on_accept(void *ctx, struct stream *s)
{
    struct fuzz *f = ctx;
    struct stream_info info;
    stream_get_info(s, &info);
    uint16_t i = (uint16_t)(info.peer_port - PEER_PORT);
    if (i < FLOWS && !f->flows[i].stream)
        f->flows[i].stream = s;
    else
        stream_abort(s);
}

static void plain(struct fuzz *f, struct flow *w, uint8_t flags)
{
    struct packet p;
    receive_segment(f, w, &p, flags, w->peer_nxt, w->us_nxt, 8000, 0, 0);
    settle(f);
}

static void open_passive(struct fuzz *f, struct flow *w, const uint8_t *options, unsigned len)
{
    struct packet p;
    if (len)
        memcpy(p.l4 + 20, options, len);
    receive_segment(f, w, &p, SYN, ISN, 0, 8000, len, 0);
    settle(f);
}

static void end(struct flow *w, void (*how)(struct stream *s))
{
    if (w->stream)
        how(w->stream);
    w->stream = NULL;
}

static void connect_to(struct fuzz *f, struct flow *w)
{
    const struct tcp_connect_opts o = {
        .dst = RIG_PEER, .dst_port = w->script.peer_port, .task = &w->task};
    if (w->stream || tcp_connect(f->rig.tcp, &o, &w->stream) != 0)
        return;
    settle(f);
}

static void write_bytes(struct fuzz *f, struct flow *w, uint32_t n)
{
    struct rope r = {0};
    uint8_t bytes[256] = {0};
    while (n && rope_append(&f->rig.ropes, &r, bytes, n < 256 ? n : 256) == 0)
        n -= n < 256 ? n : 256;
    if (w->stream && r.len)
        stream_write(w->stream, &w->task, &r);
    rope_clear(&f->rig.ropes, &r);
}

static void read_bytes(struct fuzz *f, struct flow *w, uint64_t n)
{
    struct rope r = {0};
    if (!w->stream)
        return;
    ssize_t got = stream_read(w->stream, &w->task, &r, n);
    CHECK(rope_check(&r));
    CHECK(got < 0 ? r.len == 0 : r.len == (uint64_t)got);
    rope_clear(&f->rig.ropes, &r);
}

static void populate(struct fuzz *f)
{
    static const uint8_t full[20] = {2, 4, 0x05, 0xb4, 4, 2, 8, 10, 0, 0,
                                     0, 1, 0,    0,    0, 0, 1, 3,  3, 7};
    struct flow *w = f->flows;
    net_rig_arp_reply(&f->rig.net, RIG_PEER, &rig_peer_mac);
    f->in++;
    for (unsigned i = 0; i < FLOWS; i++) {
        w[i].script.peer_port = (uint16_t)(PEER_PORT + i);
        w[i].script.us_port = LISTEN_PORT;
        w[i].peer_nxt = ISN;
    }
    connect_to(f, &w[0]);             /* SYN_SENT */
    open_passive(f, &w[1], full, 20); /* half open */
    for (unsigned i = 2; i < 11; i++) {
        bool ts = i == 3; /* its segments carry no timestamps: the ACK passes all the same */
        open_passive(f, &w[i], ts ? full : NULL, ts ? 20 : 0);
        plain(f, &w[i], ACK);
    }
    /* 2 and 3 stay ESTABLISHED. */
    write_bytes(f, &w[4], 12000); /* data in flight, more than the window */
    settle(f);
    plain(f, &w[5], ACK | FIN); /* CLOSE_WAIT */
    plain(f, &w[6], ACK | FIN); /* LAST_ACK */
    end(&w[6], stream_close);
    if (w[7].stream)
        stream_shutdown(w[7].stream); /* FIN_WAIT_1 */
    end(&w[8], stream_close);         /* FIN_WAIT_2, an orphan */
    settle(f);
    plain(f, &w[8], ACK);
    end(&w[9], stream_close); /* TIME_WAIT */
    settle(f);
    plain(f, &w[9], ACK | FIN);
    end(&w[10], stream_close); /* CLOSING */
    uint32_t before = w[10].us_nxt;
    settle(f);
    struct packet p;
    receive_segment(f, &w[10], &p, ACK | FIN, w[10].peer_nxt, before, 8000, 0, 0);
    settle(f);
    /* 11 has no connection. */
}

/* --- steps --- */

static void step_segment(struct fuzz *f, struct input *in)
{
    struct flow *w = &f->flows[take(in) % FLOWS];
    struct packet p;
    uint8_t flags = take(in);
    uint32_t seq = w->peer_nxt + take_offset(in);
    uint32_t ack = w->us_nxt + take_offset(in);
    uint16_t win = take16(in);
    unsigned opt_len = take(in) % 11 * 4, len = take16(in) % 1421;
    memset(p.l4, 0, sizeof p.l4);
    take_bytes(in, p.l4 + 20, opt_len);
    receive_segment(f, w, &p, flags, seq, ack, win, opt_len, len);
}

static void step_frame(struct fuzz *f, struct input *in)
{
    struct packet p = {0};
    uint8_t fix = take(in);
    size_t len = take_bytes(in, (uint8_t *)&p, take16(in) % (sizeof p - 1));
    if (fix & 1)
        memcpy(&p.eth.dst_addr, &rig_us_mac, 6);
    if ((fix & 2) && len >= 34) {
        p.ip.hdr_checksum = 0;
        size_t n = rte_ipv4_hdr_len(&p.ip);
        if (n <= len - 14)
            p.ip.hdr_checksum = csum_finish(csum_partial(&p.ip, n, 0));
    }
    receive(f, &p, len);
}

static void step_l4(struct fuzz *f, struct input *in)
{
    struct packet p = {0};
    uint8_t proto = take(in) & 1 ? IPPROTO_TCP : IPPROTO_ICMP;
    size_t len = take_bytes(in, p.l4, take(in));
    size_t at = proto == IPPROTO_TCP ? 16 : 2;
    if (len >= at + 2) {
        uint64_t sum =
            proto == IPPROTO_TCP ? csum_pseudo4(RIG_PEER, RIG_US, proto, (uint16_t)len) : 0;
        memset(p.l4 + at, 0, 2);
        uint16_t c = csum_finish(csum_partial(p.l4, len, sum));
        memcpy(p.l4 + at, &c, 2);
    }
    receive_ip(f, &p, proto, len);
}

static void step_icmp(struct fuzz *f, struct input *in)
{
    const struct flow *w = &f->flows[take(in) % FLOWS];
    struct packet p = {0};
    p.l4[0] = take(in);
    p.l4[1] = take(in);
    uint16_t mtu = rte_cpu_to_be_16(take16(in));
    memcpy(p.l4 + 6, &mtu, 2);
    struct rte_ipv4_hdr q = {.version_ihl = 0x45,
                             .next_proto_id = IPPROTO_TCP,
                             .src_addr = RIG_US,
                             .dst_addr = RIG_PEER};
    uint16_t ports[2] = {rte_cpu_to_be_16(w->script.us_port),
                         rte_cpu_to_be_16(w->script.peer_port)};
    uint32_t seq = rte_cpu_to_be_32(w->us_nxt + take_offset(in));
    memcpy(p.l4 + 8, &q, sizeof q);
    memcpy(p.l4 + 28, ports, 4);
    memcpy(p.l4 + 32, &seq, 4);
    uint16_t c = csum_finish(csum_partial(p.l4, 36, 0));
    memcpy(p.l4 + 2, &c, 2);
    receive_ip(f, &p, IPPROTO_ICMP, 36);
}

static void step_arp(struct fuzz *f, struct input *in)
{
    uint8_t kind = take(in);
    struct rig_arp a = {
        .op = 1 + (kind & 1),
        .eth_dst = kind & 2 ? rig_broadcast_mac : rig_us_mac,
        .sha = {{2, 0, 0, 0, 0, kind & 4 ? take(in) : 2}},
        .tha = rig_us_mac,
        .spa = kind & 8 ? IP4(10, 0, 0, take(in)) : RIG_PEER,
        .tpa = kind & 16 ? IP4(10, 0, 0, take(in)) : RIG_US,
    };
    if (rte_mempool_avail_count(pool) == 0)
        return;
    struct rte_mbuf *m = net_rig_arp(&f->rig.net, &a);
    f->in++;
    if (kind & 32)
        net_input_copy(f->rig.net.net, &f->rig.net.nif, m);
    else
        net_rig_in(&f->rig.net, m);
}

static void step_app(struct fuzz *f, struct input *in)
{
    struct flow *w = &f->flows[take(in) % FLOWS];
    uint8_t what = take(in);
    switch (what % 6) {
    case 0:
        write_bytes(f, w, take16(in) % 20000);
        break;
    case 1:
        read_bytes(f, w, 1 + take16(in));
        break;
    case 2:
        if (w->stream)
            stream_shutdown(w->stream);
        break;
    case 3:
        end(w, stream_close);
        break;
    case 4:
        end(w, stream_abort);
        break;
    default:
        connect_to(f, w);
    }
}

/* From a microsecond to a minute. */
static void step_time(struct fuzz *f, struct input *in)
{
    uint64_t until = tcp_rig_now(&f->rig) + (1000ull << (take(in) % 26));
    while (tcp_rig_now(&f->rig) < until) {
        tcp_rig_run(&f->rig, until);
        settle(f);
    }
}

static void step_memory(struct fuzz *f, struct input *in)
{
    unsigned leave = take(in);
    while (f->nheld)
        rte_pktmbuf_free(f->held[--f->nheld]);
    if (leave & 0x80)
        return;
    while (rte_mempool_avail_count(pool) > leave &&
           (f->held[f->nheld] = rte_pktmbuf_alloc(pool)) != NULL)
        f->nheld++;
}

static void step(struct fuzz *f, struct input *in)
{
    static void (*const steps[])(struct fuzz * f, struct input * in) = {
        step_segment, step_segment, step_app, step_time,   step_segment, step_frame,
        step_icmp,    step_arp,     step_l4,  step_memory, step_app,     step_time,
    };
    f->out = 0;
    uint8_t op = take(in);
    steps[op % RTE_DIM(steps)](f, in);
    if (!(op & 0x80)) /* else more of the same burst follows */
        settle(f);
}

/* Frames in and frames accounted for; what net lets go of on the way out has reasons of its own. */
static void check_counters(const struct fuzz *f)
{
    const struct net_stats *s = net_stats(f->rig.net.net);
    uint64_t sum = 0;
    for (unsigned d = 0; d < NET_DROP_COUNT; d++)
        if (d != NET_DROP_no_route && d != NET_DROP_neigh_failed && d != NET_DROP_mtu &&
            d != NET_DROP_neigh_queue_full && d != NET_DROP_neigh_table_full)
            sum += s->drops[d];
    CHECK(s->rx_packets == f->in && sum == f->in);
    const struct tcp_stats *t = tcp_stats(f->rig.tcp);
    sum = 0;
    for (unsigned d = 0; d < TCP_DROP_COUNT; d++)
        sum += t->drops[d];
    CHECK(sum == t->segs_in);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static struct fuzz f;
    struct input in = {data, data + size};
    memset(&f, 0, sizeof f);
    tcp_rig_init(&f.rig, &(struct net_rig_opts){.pool = pool, .seed = 1, .max_neighbors = 16},
                 &(struct tcp_opts){.secret = "fuzzed",
                                    .seed = 1,
                                    .cores = 1,
                                    .max_conns = 64,
                                    .max_half_open = 16,
                                    .max_time_wait = 16,
                                    .rcv_buf = 16384,
                                    .snd_buf = 16384,
                                    .mbuf_low = 64});
    struct tcp_listener *l;
    CHECK(tcp_listen(f.rig.tcp,
                     &(struct tcp_listener_opts){
                         .port = LISTEN_PORT, .backlog = 8, .on_accept = on_accept, .ctx = &f},
                     &l) == 0);
    populate(&f);
    while (in.p < in.end)
        step(&f, &in);
    f.out = 0;
    settle(&f);
    check_counters(&f);
    for (unsigned i = 0; i < FLOWS; i++)
        end(&f.flows[i], i & 1 ? stream_close : stream_abort);
    while (f.nheld)
        rte_pktmbuf_free(f.held[--f.nheld]);
    settle(&f);
    tcp_rig_fini(&f.rig);
    CHECK(kit_pool_used(pool) == 0);
    return 0;
}
