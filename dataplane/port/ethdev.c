#include "dataplane/port/ethdev.h"

#include <assert.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#include <linux/if_xdp.h>
#include <rte_dev.h>
#include <rte_errno.h>
#include <rte_ethdev.h>
#include <rte_malloc.h>

#include "dataplane/net/netif.h"
#include "dataplane/port/error.h"

/* Which of DPDK's offloads make one of ours; all of them must be there. */
static const struct {
    uint32_t ours;
    uint64_t rx, tx;
} offload_table[] = {
    {NETIF_TX_IP_CSUM, 0, RTE_ETH_TX_OFFLOAD_IPV4_CKSUM},
    {NETIF_TX_TCP_CSUM, 0, RTE_ETH_TX_OFFLOAD_TCP_CKSUM},
    {NETIF_RX_CSUM, RTE_ETH_RX_OFFLOAD_IPV4_CKSUM | RTE_ETH_RX_OFFLOAD_TCP_CKSUM, 0},
    {NETIF_TX_MULTI_SEGS, 0, RTE_ETH_TX_OFFLOAD_MULTI_SEGS},
};

/* What the burst functions rely on; see the design's rules for mbufs that reach a port. */
static void check_sendable(const struct ethdev *e, struct rte_mbuf *const *pkts, uint16_t n)
{
#ifndef NDEBUG
    for (uint16_t i = 0; i < n; i++) {
        const struct rte_mbuf *m = pkts[i];
        assert(rte_mbuf_refcnt_read(m) >= 1);
        assert(RTE_MBUF_DIRECT(m));
        assert((e->offloads & NETIF_TX_MULTI_SEGS) || m->nb_segs == 1);
        assert(m->pkt_len <= (uint32_t)e->mtu + RTE_ETHER_HDR_LEN);
    }
#else
    (void)e, (void)pkts, (void)n;
#endif
}

static void add_relaxed(uint64_t *counter, uint64_t n)
{
    __atomic_store_n(counter, *counter + n, __ATOMIC_RELAXED);
}

static uint16_t ethdev_rx_burst(struct port *p, uint16_t queue, struct rte_mbuf **pkts, uint16_t n)
{
    struct ethdev *e = (struct ethdev *)p;
    struct ethdev_queue *q = &e->queues[queue];
    uint64_t bytes = 0;
    uint16_t got = rte_eth_rx_burst(q->dev, q->queue, pkts, n);
    if (!got)
        return 0;
    for (uint16_t i = 0; i < got; i++)
        bytes += pkts[i]->pkt_len;
    add_relaxed(&q->rx_packets, got);
    add_relaxed(&q->rx_bytes, bytes);
    return got;
}

static uint16_t ethdev_tx_burst(struct port *p, uint16_t queue, struct rte_mbuf **pkts, uint16_t n)
{
    struct ethdev *e = (struct ethdev *)p;
    struct ethdev_queue *q = &e->queues[queue];
    uint32_t len[256];
    uint64_t bytes = 0;
    if (n > RTE_DIM(len))
        n = RTE_DIM(len);
    check_sendable(e, pkts, n);
    /* Afterwards the mbufs are the driver's. */
    for (uint16_t i = 0; i < n; i++)
        len[i] = pkts[i]->pkt_len;
    uint16_t sent = rte_eth_tx_burst(q->dev, q->queue, pkts, n);
    for (uint16_t i = 0; i < sent; i++)
        bytes += len[i];
    add_relaxed(&q->tx_packets, sent);
    add_relaxed(&q->tx_bytes, bytes);
    add_relaxed(&q->tx_full, (uint64_t)(n - sent));
    return sent;
}

static unsigned ethdev_sleep_fds(struct port *p, uint16_t queue, int *ret_fds, unsigned max)
{
    const struct ethdev *e = (const struct ethdev *)p;
    if (max == 0 || e->queues[queue].fd < 0)
        return 0;
    ret_fds[0] = e->queues[queue].fd;
    return 1;
}

static void ethdev_info(const struct port *p, struct port_info *ret_info)
{
    const struct ethdev *e = (const struct ethdev *)p;
    *ret_info = (struct port_info){.mac = e->mac,
                                   .mtu = e->mtu,
                                   .queues = e->nqueues,
                                   .offloads = e->offloads,
                                   .driver = e->driver};
}

/* The driver reports only part of what its socket counts. */
static void add_socket_counters(int fd, struct port_counters *c)
{
    struct xdp_statistics s = {0};
    socklen_t len = sizeof(s);
    if (getsockopt(fd, SOL_XDP, XDP_STATISTICS, &s, &len))
        return;
    c->rx_missed += s.rx_ring_full;
    c->no_mbuf += s.rx_fill_ring_empty_descs;
    c->tx_errors += s.tx_invalid_descs;
}

static void ethdev_counters(const struct port *p, struct port_counters *ret_counters)
{
    const struct ethdev *e = (const struct ethdev *)p;
    struct port_counters c = {0};
    for (uint16_t i = 0; i < e->nqueues; i++) {
        const struct ethdev_queue *q = &e->queues[i];
        c.rx_packets += __atomic_load_n(&q->rx_packets, __ATOMIC_RELAXED);
        c.rx_bytes += __atomic_load_n(&q->rx_bytes, __ATOMIC_RELAXED);
        c.tx_packets += __atomic_load_n(&q->tx_packets, __ATOMIC_RELAXED);
        c.tx_bytes += __atomic_load_n(&q->tx_bytes, __ATOMIC_RELAXED);
        c.tx_full += __atomic_load_n(&q->tx_full, __ATOMIC_RELAXED);
        if (e->steer)
            add_socket_counters(q->fd, &c);
    }
    for (uint16_t i = 0; i < e->ndevs; i++) {
        struct rte_eth_stats s;
        if (rte_eth_stats_get(e->devs[i].id, &s))
            continue;
        c.rx_missed += s.imissed;
        c.no_mbuf += s.rx_nombuf;
    }
    if (e->steer) {
        uint64_t verdicts[STEER_VERDICTS];
        steer_counters(e->steer, verdicts);
        c.steer_redirect = verdicts[STEER_REDIRECT];
        c.steer_pass = verdicts[STEER_PASS];
        c.steer_drop = verdicts[STEER_DROP];
    }
    *ret_counters = c;
}

static void ethdev_close(struct port *p)
{
    ethdev_free((struct ethdev *)p);
}

static const struct port_ops ethdev_ops = {
    .name = "ethdev",
    .rx_burst = ethdev_rx_burst,
    .tx_burst = ethdev_tx_burst,
    .sleep_fds = ethdev_sleep_fds,
    .info = ethdev_info,
    .counters = ethdev_counters,
    .close = ethdev_close,
};

static int lock_device(struct ethdev *e, const char *device, struct port_error *ret_error)
{
    pid_t owner = 0;
    int rc = device_lock_get(device, &e->lock, &owner);
    if (rc == -EBUSY)
        return port_fail(ret_error, rc,
                         "port %s: another Millrace (process %d) has device %s: stop it, or choose "
                         "another device",
                         e->name, (int)owner, device);
    if (rc)
        return port_fail(ret_error, rc, "port %s: can't lock device %s in /run/millrace: %s",
                         e->name, device, strerror(-rc));
    return 0;
}

int ethdev_new(const struct config_port *cfg, uint16_t queues, struct rte_mempool *pool, bool lock,
               struct ethdev **ret_ethdev, struct port_error *ret_error)
{
    static const char *const names[] = {"veth", "af_xdp", "pci", "memif", "tap"};
    if (queues < 1 || queues > STEER_MAX_QUEUES)
        return port_fail(ret_error, -EINVAL, "port %s: queues: 1 to %d", cfg->name,
                         STEER_MAX_QUEUES);
    size_t size = sizeof(struct ethdev) + queues * sizeof(struct ethdev_queue);
    struct ethdev *e = aligned_alloc(RTE_CACHE_LINE_SIZE, RTE_ALIGN(size, RTE_CACHE_LINE_SIZE));
    if (!e)
        return port_fail(ret_error, -ENOMEM, "port %s: out of memory", cfg->name);
    memset(e, 0, size);
    e->base.ops = &ethdev_ops;
    e->name = cfg->name;
    e->driver = names[cfg->driver];
    e->pool = pool;
    e->mtu = cfg->mtu ? cfg->mtu : RTE_ETHER_MTU;
    e->nqueues = queues;
    e->rx_descriptors = cfg->rx_descriptors ? cfg->rx_descriptors : ETHDEV_DEFAULT_DESCRIPTORS;
    e->tx_descriptors = cfg->tx_descriptors ? cfg->tx_descriptors : ETHDEV_DEFAULT_DESCRIPTORS;
    for (uint16_t i = 0; i < queues; i++)
        e->queues[i].fd = -1;
    int rc = lock ? lock_device(e, cfg->device, ret_error) : 0;
    if (rc) {
        free(e);
        return rc;
    }
    *ret_ethdev = e;
    return 0;
}

void ethdev_free(struct ethdev *e)
{
    if (e->steer)
        steer_detach(e->steer); /* first: the kernel gets its interface back at once */
    for (uint16_t i = 0; i < e->ndevs; i++) {
        rte_eth_dev_stop(e->devs[i].id);
        rte_eth_dev_close(e->devs[i].id);
        if (e->devs[i].vdev[0])
            rte_eal_hotplug_remove("vdev", e->devs[i].vdev);
    }
    steer_free(e->steer);
    veth_free(e->veth);
    device_lock_put(e->lock);
    free(e);
}

int ethdev_add_device(struct ethdev *e, const char *name, const char *args, uint16_t *ret_dev,
                      struct port_error *ret_error)
{
    uint16_t dev;
    if (args) {
        int rc = rte_eal_hotplug_add("vdev", name, args);
        if (rc)
            return port_fail(ret_error, rc, "port %s: DPDK can't open %s (%s): %s", e->name, name,
                             args, strerror(-rc));
    }
    int rc = rte_eth_dev_get_port_by_name(name, &dev);
    if (rc) {
        if (args)
            rte_eal_hotplug_remove("vdev", name);
        return port_fail(ret_error, rc, "port %s: DPDK has no device %s", e->name, name);
    }
    e->devs[e->ndevs].id = dev;
    if (args)
        snprintf(e->devs[e->ndevs].vdev, sizeof(e->devs[0].vdev), "%s", name);
    e->ndevs++;
    *ret_dev = dev;
    return 0;
}

static int check_descriptors(const struct ethdev *e, const char *key, uint16_t n,
                             const struct rte_eth_desc_lim *lim, struct port_error *ret_error)
{
    uint16_t align = lim->nb_align ? lim->nb_align : 1;
    if (n >= lim->nb_min && n <= lim->nb_max && n % align == 0)
        return 0;
    return port_fail(ret_error, -EINVAL,
                     "port %s: %s: %u, but this device takes %u to %u in steps of %u", e->name, key,
                     n, lim->nb_min, lim->nb_max, align);
}

static int check_limits(const struct ethdev *e, const struct rte_eth_dev_info *info, uint16_t n,
                        struct port_error *ret_error)
{
    uint16_t most = RTE_MIN(info->max_rx_queues, info->max_tx_queues);
    uint32_t room = rte_pktmbuf_data_room_size(e->pool) - RTE_PKTMBUF_HEADROOM;
    uint32_t max_mtu = RTE_MIN((uint32_t)info->max_mtu, room - RTE_ETHER_HDR_LEN - 4u);
    if (n > most)
        return port_fail(ret_error, -EINVAL, "port %s: queues: %u, but this device has %u", e->name,
                         n, most);
    if (e->mtu > max_mtu || e->mtu < info->min_mtu)
        return port_fail(ret_error, -EINVAL, "port %s: mtu: %u, but this device takes %u to %u",
                         e->name, e->mtu, info->min_mtu, max_mtu);
    int rc =
        check_descriptors(e, "rx_descriptors", e->rx_descriptors, &info->rx_desc_lim, ret_error);
    return rc ? rc
              : check_descriptors(e, "tx_descriptors", e->tx_descriptors, &info->tx_desc_lim,
                                  ret_error);
}

/* The offloads that the device has, in both languages. */
static uint32_t choose_offloads(const struct rte_eth_dev_info *info, struct rte_eth_conf *conf)
{
    uint32_t ours = 0;
    for (unsigned i = 0; i < RTE_DIM(offload_table); i++) {
        if ((info->rx_offload_capa & offload_table[i].rx) != offload_table[i].rx ||
            (info->tx_offload_capa & offload_table[i].tx) != offload_table[i].tx)
            continue;
        ours |= offload_table[i].ours;
        conf->rxmode.offloads |= offload_table[i].rx;
        conf->txmode.offloads |= offload_table[i].tx;
    }
    return ours;
}

static int set_up_queues(struct ethdev *e, uint16_t dev, uint16_t first, uint16_t n,
                         const struct rte_eth_dev_info *info, const struct rte_eth_conf *conf)
{
    int socket = rte_eth_dev_socket_id(dev);
    struct rte_eth_rxconf rx = info->default_rxconf;
    struct rte_eth_txconf tx = info->default_txconf;
    int rc = 0;
    rx.offloads = conf->rxmode.offloads;
    tx.offloads = conf->txmode.offloads;
    for (uint16_t i = 0; i < n && !rc; i++) {
        e->queues[first + i].dev = dev;
        e->queues[first + i].queue = i;
        rc = rte_eth_rx_queue_setup(dev, i, e->rx_descriptors, (unsigned)socket, &rx, e->pool);
        if (!rc)
            rc = rte_eth_tx_queue_setup(dev, i, e->tx_descriptors, (unsigned)socket, &tx);
    }
    return rc;
}

int ethdev_start(struct ethdev *e, uint16_t dev, uint16_t first, uint16_t n,
                 struct port_error *ret_error)
{
    struct rte_eth_dev_info info;
    struct rte_eth_conf conf = {.rxmode.mtu = e->mtu};
    int rc = rte_eth_dev_info_get(dev, &info);
    if (rc)
        return port_fail(ret_error, rc, "port %s: the device doesn't answer: %s", e->name,
                         strerror(-rc));
    rc = check_limits(e, &info, n, ret_error);
    if (rc)
        return rc;
    uint32_t offloads = choose_offloads(&info, &conf);
    e->offloads = first == 0 ? offloads : e->offloads & offloads;
    if (n > 1 && info.flow_type_rss_offloads) {
        conf.rxmode.mq_mode = RTE_ETH_MQ_RX_RSS;
        conf.rx_adv_conf.rss_conf.rss_hf =
            info.flow_type_rss_offloads & (RTE_ETH_RSS_IPV4 | RTE_ETH_RSS_NONFRAG_IPV4_TCP);
    }
    rc = rte_eth_dev_configure(dev, n, n, &conf);
    if (!rc)
        rc = set_up_queues(e, dev, first, n, &info, &conf);
    if (!rc)
        rc = rte_eth_dev_start(dev);
    if (!rc && first == 0)
        rc = rte_eth_macaddr_get(dev, &e->mac);
    if (rc)
        return port_fail(ret_error, rc, "port %s: can't start the device's queues: %s", e->name,
                         strerror(-rc));
    return 0;
}
