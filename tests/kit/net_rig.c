#include "tests/kit/net_rig.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <rte_arp.h>
#include <rte_ip.h>

#include "dataplane/net/csum.h"
#include "tests/kit/eal.h"

#define START_NS 987654321012345ull

const struct rte_ether_addr rig_us_mac = {{0x02, 0, 0, 0, 0, 0x01}};
const struct rte_ether_addr rig_peer_mac = {{0x02, 0, 0, 0, 0, 0x02}};
const struct rte_ether_addr rig_broadcast_mac = {{0xff, 0xff, 0xff, 0xff, 0xff, 0xff}};

static void rig_flush(struct netif *nif)
{
    struct net_rig *r = nif->flush_ctx;
    for (unsigned i = 0; i < nif->tx_n; i++) {
        if (r->out_n == NET_RIG_OUT) {
            rte_pktmbuf_free(nif->tx[i]);
            r->out_lost++;
        } else {
            r->out[(r->out_head + r->out_n++) % NET_RIG_OUT] = nif->tx[i];
        }
    }
    nif->tx_n = 0;
}

void net_rig_init(struct net_rig *r, const struct net_rig_opts *o)
{
    kit_eal_init();
    memset(r, 0, sizeof *r);
    r->pool_borrowed = o->pool != NULL;
    r->pool = o->pool ? o->pool : kit_pool_new(o->mbufs ? o->mbufs : 1023);
    sched_init(&r->sched, &(struct sched_opts){.now = START_NS});
    r->net = net_new(&(struct net_opts){
        .sched = &r->sched, .mbufs = r->pool, .seed = o->seed, .max_neighbors = o->max_neighbors});
    if (!r->pool || !r->net)
        abort();
    r->nif = (struct netif){
        .mac = rig_us_mac,
        .mtu = o->mtu ? o->mtu : 1500,
        .offloads = o->offloads,
        .gateway = RIG_GATEWAY,
        .naddrs = 1,
        .addrs = {{.addr = RIG_US, .prefix = 24}},
        .flush = rig_flush,
        .flush_ctx = r,
    };
    if (net_add_if(r->net, &r->nif, o->announce))
        abort();
}

void net_rig_fini(struct net_rig *r)
{
    net_free(r->net);
    net_rig_out_clear(r);
    sched_fini(&r->sched);
    if (!r->pool_borrowed)
        kit_pool_free(r->pool);
}

struct rte_mbuf *net_rig_mbuf(struct net_rig *r, const void *bytes, size_t len)
{
    struct rte_mbuf *m = rte_pktmbuf_alloc(r->pool);
    void *p = m ? rte_pktmbuf_append(m, (uint16_t)len) : NULL;
    if (!p) {
        fprintf(stderr, "net_rig: no mbuf for %zu bytes\n", len);
        abort();
    }
    if (len)
        memcpy(p, bytes, len);
    return m;
}

void net_rig_in(struct net_rig *r, struct rte_mbuf *m)
{
    net_input(r->net, &r->nif, &m, 1);
}

struct rte_mbuf *net_rig_out(struct net_rig *r)
{
    if (r->nif.tx_n)
        rig_flush(&r->nif);
    if (r->out_n == 0)
        return NULL;
    struct rte_mbuf *m = r->out[r->out_head];
    r->out_head = (r->out_head + 1) % NET_RIG_OUT;
    r->out_n--;
    return m;
}

unsigned net_rig_out_clear(struct net_rig *r)
{
    unsigned n = 0;
    for (struct rte_mbuf *m; (m = net_rig_out(r)); n++)
        rte_pktmbuf_free(m);
    return n;
}

void net_rig_advance(struct net_rig *r, uint64_t ns)
{
    uint64_t end = sched_now(&r->sched) + ns;
    for (;;) {
        uint64_t next = sched_next_timeout(&r->sched);
        if (next < sched_now(&r->sched))
            next = sched_now(&r->sched);
        if (next > end)
            next = end;
        while (sched_step(&r->sched, next))
            ;
        if (next == end)
            return;
    }
}

struct rte_mbuf *net_rig_arp(struct net_rig *r, const struct rig_arp *a)
{
    struct {
        struct rte_ether_hdr eth;
        struct rte_arp_hdr arp;
        uint8_t pad[18];
    } f = {
        .eth = {a->eth_dst, a->sha, rte_cpu_to_be_16(RTE_ETHER_TYPE_ARP)},
        .arp = {.arp_hardware = rte_cpu_to_be_16(RTE_ARP_HRD_ETHER),
                .arp_protocol = rte_cpu_to_be_16(RTE_ETHER_TYPE_IPV4),
                .arp_hlen = 6,
                .arp_plen = 4,
                .arp_opcode = rte_cpu_to_be_16(a->op),
                .arp_data = {a->sha, a->spa, a->tha, a->tpa}},
    };
    return net_rig_mbuf(r, &f, sizeof f);
}

void net_rig_arp_reply(struct net_rig *r, uint32_t ip, const struct rte_ether_addr *mac)
{
    net_rig_in(r, net_rig_arp(r, &(struct rig_arp){.op = 2,
                                                   .eth_dst = rig_us_mac,
                                                   .sha = *mac,
                                                   .spa = ip,
                                                   .tha = rig_us_mac,
                                                   .tpa = RIG_US}));
}

bool net_rig_parse_arp(const struct rte_mbuf *m, struct rig_arp *ret_arp)
{
    const struct rte_ether_hdr *eh = rte_pktmbuf_mtod(m, const struct rte_ether_hdr *);
    const struct rte_arp_hdr *ah = (const struct rte_arp_hdr *)(eh + 1);
    if (m->data_len < sizeof *eh + sizeof *ah ||
        eh->ether_type != rte_cpu_to_be_16(RTE_ETHER_TYPE_ARP))
        return false;
    *ret_arp = (struct rig_arp){.op = rte_be_to_cpu_16(ah->arp_opcode),
                                .eth_dst = eh->dst_addr,
                                .sha = ah->arp_data.arp_sha,
                                .tha = ah->arp_data.arp_tha,
                                .spa = ah->arp_data.arp_sip,
                                .tpa = ah->arp_data.arp_tip};
    return true;
}

struct rte_mbuf *net_rig_ip4(struct net_rig *r, const struct rig_ip4 *p)
{
    struct {
        struct rte_ether_hdr eth;
        struct rte_ipv4_hdr ip;
        uint8_t rest[2000];
    } f;
    static_assert(offsetof(__typeof__(f), rest) == 34, "a frame has no gaps");
    uint32_t hdr_len = sizeof f.ip + p->options_len;
    f.eth = (struct rte_ether_hdr){rig_us_mac, rig_peer_mac, rte_cpu_to_be_16(RTE_ETHER_TYPE_IPV4)};
    f.ip = (struct rte_ipv4_hdr){
        .version_ihl = (uint8_t)(0x40 | hdr_len / 4),
        .type_of_service = p->tos,
        .total_length = rte_cpu_to_be_16((uint16_t)(hdr_len + p->payload_len)),
        .fragment_offset = rte_cpu_to_be_16(p->frag),
        .time_to_live = p->ttl ? p->ttl : 64,
        .next_proto_id = p->proto,
        .src_addr = p->src ? p->src : RIG_PEER,
        .dst_addr = p->dst ? p->dst : RIG_US,
    };
    if (p->options_len)
        memcpy(f.rest, p->options, p->options_len);
    if (p->payload_len)
        memcpy(f.rest + p->options_len, p->payload, p->payload_len);
    uint8_t hdr[60];
    memcpy(hdr, &f.ip, hdr_len);
    f.ip.hdr_checksum = csum_finish(csum_partial(hdr, hdr_len, 0));
    return net_rig_mbuf(r, &f, sizeof f.eth + hdr_len + p->payload_len);
}

int net_rig_output(struct net_rig *r, struct net_path *p, uint32_t dst, uint8_t proto,
                   const void *bytes, size_t len, bool dont_fragment)
{
    return net_output4(r->net, p, net_rig_mbuf(r, bytes, len), 0, dst, proto, 0, dont_fragment);
}
