#include "dataplane/core_io.h"

#include <assert.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "dataplane/core_private.h"

#define DEFAULT_HANDOFF 4096
#define TX_TRIES        8 /* a full ring drains while we kick it; then frames are dropped */

static void handed_to(struct core_io *io, unsigned core)
{
    io->kicked |= 1ull << core;
}

static void wake_kicked(struct core_io *io)
{
    for (unsigned i = 0; io->kicked; i++, io->kicked >>= 1)
        if (io->kicked & 1)
            mailbox_post(core_mailbox(io->shared->cores[i]), &io->kick[i]);
}

static void on_kick(struct mailbox_item *item)
{
    /* Being awake is all that was asked for. */
}

/* Takes over the reference. */
static void hand_over(struct core_io *io, unsigned core, struct rte_mbuf *m, bool receive)
{
    struct core_io *to = core_io_of(io->shared->cores[core]);
    if (rte_ring_enqueue(receive ? to->rx : to->tx, m) != 0) {
        io->handoff_full++;
        rte_pktmbuf_free(m);
        return;
    }
    io->handoff_out++;
    handed_to(io, core);
}

static void copy_to_others(struct core_io *io, const struct rte_mbuf *m, unsigned port)
{
    for (unsigned i = 0; i < io->shared->ncores; i++) {
        if (i == io->index)
            continue;
        struct rte_mbuf *copy = rte_pktmbuf_copy(m, io->shared->mbufs, 0, UINT32_MAX);
        if (!copy)
            return;
        copy->port = (uint16_t)port;
        hand_over(io, i, copy, true);
    }
}

/* Sorts a burst: what is ours stays in pkts; returns how many. */
static unsigned keep_ours(struct core_io *io, unsigned port, struct rte_mbuf **pkts, unsigned n)
{
    unsigned kept = 0;
    for (unsigned i = 0; i < n; i++) {
        struct rte_mbuf *m = pkts[i];
        struct net_flow f;
        unsigned owner = io->index;
        switch (net_classify(m, &f)) {
        case NET_KIND_ARP:
            copy_to_others(io, m, port);
            break;
        case NET_KIND_TCP4:
            owner = tcp_owner(io->tcp, f.local_addr, f.local_port, f.peer_addr, f.peer_port);
            break;
        case NET_KIND_OTHER:
            break;
        }
        if (owner == io->index) {
            pkts[kept++] = m;
            continue;
        }
        m->port = (uint16_t)port;
        hand_over(io, owner, m, true);
    }
    return kept;
}

static bool receive_port(struct core_io *io, struct io_port *p)
{
    struct rte_mbuf *pkts[IO_BURST];
    bool any = false;
    for (unsigned b = 0; b < IO_BURSTS; b++) {
        unsigned n = p->port->ops->rx_burst(p->port, (uint16_t)io->index, pkts, IO_BURST);
        if (n == 0)
            break;
        any = true;
        io->frames += n;
        unsigned ours = io->shared->ncores > 1 ? keep_ours(io, p->index, pkts, n) : n;
        net_input(io->net, &p->nif, pkts, ours);
        if (n < IO_BURST)
            break;
    }
    return any;
}

static bool receive_handed(struct core_io *io)
{
    struct rte_mbuf *pkts[IO_BURST];
    unsigned n = rte_ring_dequeue_burst(io->rx, (void **)pkts, IO_BURST, NULL);
    io->handoff_in += n;
    io->frames += n;
    for (unsigned i = 0; i < n; i++) {
        struct rte_mbuf *m = pkts[i];
        struct netif *nif = &io->ports[m->port].nif;
        struct net_flow f;
        if (net_classify(m, &f) == NET_KIND_ARP)
            net_input_copy(io->net, nif, m);
        else
            net_input(io->net, nif, &m, 1);
    }
    return n > 0;
}

bool io_receive(struct core_io *io)
{
    bool any = false;
    for (unsigned i = 0; i < io->nports; i++)
        if (io->ports[i].has_queue)
            any |= receive_port(io, &io->ports[i]);
    if (io->shared->ncores > 1)
        any |= receive_handed(io);
    return any;
}

static void send_frames(struct core_io *io, struct io_port *p, struct rte_mbuf **pkts, uint16_t n)
{
    uint16_t sent = 0;
    for (unsigned tries = 0; sent < n && tries < TX_TRIES; tries++) {
        uint16_t k =
            p->port->ops->tx_burst(p->port, (uint16_t)io->index, pkts + sent, (uint16_t)(n - sent));
        sent = (uint16_t)(sent + k);
    }
    io->tx_dropped += (uint64_t)(n - sent);
    rte_pktmbuf_free_bulk(pkts + sent, (unsigned)(n - sent));
}

static void flush(struct netif *nif)
{
    struct io_port *p = nif->flush_ctx;
    uint16_t n = nif->tx_n;
    nif->tx_n = 0;
    if (p->has_queue) {
        send_frames(p->io, p, nif->tx, n);
        return;
    }
    for (uint16_t i = 0; i < n; i++) {
        nif->tx[i]->port = (uint16_t)p->index;
        hand_over(p->io, p->sender, nif->tx[i], false);
    }
}

static bool send_for_others(struct core_io *io)
{
    struct rte_mbuf *pkts[IO_BURST];
    unsigned n = rte_ring_dequeue_burst(io->tx, (void **)pkts, IO_BURST, NULL);
    for (unsigned i = 0; i < n; i++)
        netif_transmit(&io->ports[pkts[i]->port].nif, pkts[i]);
    return n > 0;
}

bool io_send(struct core_io *io)
{
    bool any = io->shared->ncores > 1 && send_for_others(io);
    for (unsigned i = 0; i < io->nports; i++) {
        if (io->ports[i].nif.tx_n == 0)
            continue;
        any = true;
        flush(&io->ports[i].nif);
    }
    if (io->kicked)
        wake_kicked(io);
    return any;
}

bool io_is_pending(const struct core_io *io)
{
    return !rte_ring_empty(io->rx) || !rte_ring_empty(io->tx);
}

static void init_port(struct core_io *io, unsigned i, struct port *port,
                      const struct config_port *cfg)
{
    struct io_port *p = &io->ports[i];
    struct port_info info;
    port->ops->info(port, &info);
    p->io = io;
    p->port = port;
    p->index = i;
    p->has_queue = io->index < info.queues;
    p->sender = io->index % info.queues;
    p->nif.mac = info.mac;
    p->nif.mtu = info.mtu;
    p->nif.index = (uint16_t)i;
    p->nif.offloads = info.offloads;
    p->nif.gateway = cfg->gateway;
    for (size_t a = 0; a < cfg->naddresses && a < NETIF_MAX_ADDRS; a++)
        p->nif.addrs[p->nif.naddrs++] =
            (struct netif_addr){cfg->addresses[a].addr, cfg->addresses[a].prefix};
    p->nif.flush = flush;
    p->nif.flush_ctx = p;
    if (p->has_queue && port->ops->sleep_fds)
        p->nfds = port->ops->sleep_fds(port, (uint16_t)io->index, p->fds, IO_SLEEP_FDS);
}

static struct rte_ring *ring_new(const char *what, const struct core_opts *o)
{
    char name[RTE_RING_NAMESIZE];
    uint32_t size = o->handoff_size ? o->handoff_size : DEFAULT_HANDOFF;
    snprintf(name, sizeof(name), "%s%u_%p", what, o->index, (void *)o->shared);
    return rte_ring_create(name, size, SOCKET_ID_ANY, RING_F_SC_DEQ);
}

int io_init(struct core_io *io, const struct core_opts *o, const struct snapshot *s)
{
    assert(o->nports <= NET_MAX_IFS && o->nports <= s->nports);
    io->index = o->index;
    io->shared = o->shared;
    io->nports = o->nports;
    io->rx = ring_new("rx", o);
    io->tx = ring_new("tx", o);
    if (!io->rx || !io->tx) {
        rte_ring_free(io->rx);
        rte_ring_free(io->tx);
        io->rx = io->tx = NULL;
        return -ENOMEM;
    }
    for (unsigned i = 0; i < CONFIG_MAX_CORES; i++)
        io->kick[i].deliver = on_kick;
    for (unsigned i = 0; i < o->nports; i++)
        init_port(io, i, o->ports[i], &s->ports[i]);
    return 0;
}

static void ring_free(struct rte_ring *r)
{
    void *m;
    while (rte_ring_dequeue(r, &m) == 0)
        rte_pktmbuf_free(m);
    rte_ring_free(r);
}

void io_fini(struct core_io *io)
{
    for (unsigned i = 0; i < io->nports; i++) {
        struct netif *nif = &io->ports[i].nif;
        rte_pktmbuf_free_bulk(nif->tx, nif->tx_n);
        nif->tx_n = 0;
    }
    ring_free(io->rx);
    ring_free(io->tx);
}
