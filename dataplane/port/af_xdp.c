/* AF_XDP ports, those on a veth pair included.
 *
 * DPDK's driver takes several queues only on NICs with combined channels, which veth hasn't, so
 * each queue is a device of its own. The driver insists on attaching a program for each, so it gets
 * ours with empty maps (all frames pass), and when all sockets exist the steer program with the
 * addresses and every socket takes its place.
 */
#include "dataplane/port/ethdev.h"

#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include <linux/if_xdp.h>
#include <rte_mbuf.h>

#include "dataplane/port/error.h"
#include "dataplane/port/link.h"

#define FDS_MAX 1024

/* Our process's AF_XDP sockets; the driver has no call that tells them. */
struct xdp_fds {
    unsigned n;
    int fd[FDS_MAX];
};

static bool is_af_xdp(int fd)
{
    int domain = 0;
    socklen_t len = sizeof(domain);
    return !getsockopt(fd, SOL_SOCKET, SO_DOMAIN, &domain, &len) && domain == AF_XDP;
}

static int xdp_fds_scan(struct xdp_fds *ret_fds)
{
    DIR *dir = opendir("/proc/self/fd");
    if (!dir)
        return -errno;
    ret_fds->n = 0;
    for (const struct dirent *d; (d = readdir(dir)) && ret_fds->n < FDS_MAX;) {
        int fd = atoi(d->d_name);
        if (d->d_name[0] != '.' && is_af_xdp(fd))
            ret_fds->fd[ret_fds->n++] = fd;
    }
    closedir(dir);
    return 0;
}

/* The one in `after` that isn't in `before`; -1: none. */
static int xdp_fds_new_one(const struct xdp_fds *before, const struct xdp_fds *after)
{
    for (unsigned i = 0; i < after->n; i++) {
        bool old = false;
        for (unsigned k = 0; k < before->n; k++)
            old |= before->fd[k] == after->fd[i];
        if (!old)
            return after->fd[i];
    }
    return -1;
}

static int clear_interface(const struct ethdev *e, const char *ifname, unsigned ifindex,
                           struct port_error *ret_error)
{
    char other[16] = "";
    int rc = steer_remove_leftover(ifindex, other);
    if (rc == -EBUSY && other[0])
        return port_fail(ret_error, rc,
                         "port %s: interface %s already runs the XDP program \"%s\": detach it "
                         "first (ip link set dev %s xdp off)",
                         e->name, ifname, other, ifname);
    if (rc)
        return port_fail(ret_error, rc, "port %s: can't detach XDP from %s: %s", e->name, ifname,
                         strerror(-rc));
    return 0;
}

/* One queue: a device, its socket, and the socket's place in the steer program. */
static int open_queue(struct ethdev *e, const struct config_port *cfg, const char *ifname,
                      uint16_t queue, int object_fd, struct port_error *ret_error)
{
    struct xdp_fds before, after;
    char name[64], args[512];
    uint16_t dev;
    const char *extra = cfg->driver_args && cfg->driver_args[0] ? cfg->driver_args : NULL;
    snprintf(name, sizeof(name), "net_af_xdp_%s_%u", ifname, queue);
    snprintf(args, sizeof(args),
             "iface=%s,start_queue=%u,queue_count=1,xdp_prog=/proc/self/fd/%d%s%s", ifname, queue,
             object_fd, extra ? "," : "", extra ? extra : "");
    int rc = xdp_fds_scan(&before);
    if (!rc)
        rc = ethdev_add_device(e, name, args, &dev, ret_error);
    if (!rc)
        rc = ethdev_start(e, dev, queue, 1, ret_error);
    if (rc)
        return rc;
    rc = xdp_fds_scan(&after);
    int fd = xdp_fds_new_one(&before, &after);
    if (rc || fd < 0)
        return port_fail(ret_error, -ENOENT, "port %s: can't find the AF_XDP socket of queue %u",
                         e->name, queue);
    e->queues[queue].fd = fd;
    rc = steer_set_socket(e->steer, queue, fd);
    if (rc)
        return port_fail(ret_error, rc, "port %s: can't steer to queue %u: %s", e->name, queue,
                         strerror(-rc));
    return 0;
}

static int open_queues(struct ethdev *e, const struct config_port *cfg, const char *ifname,
                       unsigned ifindex, struct port_error *ret_error)
{
    int object_fd = steer_object_fd();
    if (object_fd < 0)
        return port_fail(ret_error, object_fd, "port %s: no memory file: %s", e->name,
                         strerror(-object_fd));
    int rc = 0;
    for (uint16_t i = 0; i < e->nqueues && !rc; i++) {
        rc = clear_interface(e, ifname, ifindex, ret_error);
        if (!rc)
            rc = open_queue(e, cfg, ifname, i, object_fd, ret_error);
    }
    close(object_fd);
    if (!rc)
        rc = clear_interface(e, ifname, ifindex, ret_error);
    if (rc)
        return rc;
    rc = steer_attach(e->steer, ifindex);
    if (rc)
        return port_fail(ret_error, rc, "port %s: can't attach the steer program to %s: %s",
                         e->name, ifname, strerror(-rc));
    return 0;
}

/* The driver takes the pool's first chunk, in the length that all objects have without gaps, for
 * the sockets' memory; an object beyond it would be lost without a word. */
static bool is_dense(struct rte_mempool *pool)
{
    const struct rte_mempool_memhdr *chunk = STAILQ_FIRST(&pool->mem_list);
    size_t object = pool->header_size + pool->elt_size + pool->trailer_size;
    uintptr_t end = (uintptr_t)chunk->addr + pool->populated_size * object;
    const struct rte_mempool_objhdr *hdr;
    STAILQ_FOREACH(hdr, &pool->elt_list, next)
    {
        uintptr_t start = (uintptr_t)(hdr + 1) - pool->header_size;
        if (start < (uintptr_t)chunk->addr || start + object > end)
            return false;
    }
    return true;
}

static bool is_power_of_2(uint16_t n)
{
    return n && (n & (n - 1)) == 0;
}

static int check_config(const struct ethdev *e, const struct config_port *cfg,
                        struct port_error *ret_error)
{
    /* Behind the mbuf's headroom the kernel keeps XDP's. */
    unsigned room = rte_pktmbuf_data_room_size(e->pool) - RTE_PKTMBUF_HEADROOM - 256;
    unsigned max_mtu = room - RTE_ETHER_HDR_LEN - 4;
    if (e->mtu > max_mtu)
        return port_fail(ret_error, -EINVAL, "port %s: mtu: %u, but AF_XDP takes %u at the most",
                         e->name, e->mtu, max_mtu);
    if (!is_power_of_2(e->rx_descriptors) || e->rx_descriptors != e->tx_descriptors)
        return port_fail(ret_error, -EINVAL,
                         "port %s: rx_descriptors and tx_descriptors: %u and %u, but AF_XDP needs "
                         "the same power of two for both",
                         e->name, e->rx_descriptors, e->tx_descriptors);
    const char *budget = cfg->driver_args ? strstr(cfg->driver_args, "busy_budget=") : NULL;
    if (budget && atoi(budget + strlen("busy_budget=")) <= 0)
        return port_fail(ret_error, -EINVAL,
                         "port %s: driver_args: busy_budget=0 lets the driver block a core for a "
                         "second: leave it out, or use 1 or more",
                         e->name);
    if (!is_dense(e->pool))
        return port_fail(ret_error, -ENOMEM,
                         "port %s: the mbuf pool isn't one stretch of memory, which AF_XDP needs: "
                         "free more huge pages, or use none",
                         e->name);
    return 0;
}

static int check_nic(const struct ethdev *e, const char *ifname, struct link_details *ret_nic,
                     struct port_error *ret_error)
{
    int rc = link_get(ifname, ret_nic);
    if (rc)
        return port_fail(ret_error, rc, "port %s: no interface %s: check device (ip link)", e->name,
                         ifname);
    if (ret_nic->mtu < e->mtu)
        return port_fail(ret_error, -EINVAL,
                         "port %s: mtu: %u, but %s's is %u: ip link set dev %s mtu %u, or set the "
                         "port's to %u",
                         e->name, e->mtu, ifname, ret_nic->mtu, ifname, e->mtu, ret_nic->mtu);
    unsigned has = link_rx_queues(ifname);
    if (has != e->nqueues)
        return port_fail(ret_error, -EINVAL,
                         "port %s: queues: %u, but %s spreads what it receives over %u: use as "
                         "many, or ethtool -L %s combined %u",
                         e->name, e->nqueues, ifname, has, ifname, e->nqueues);
    if (ret_nic->up)
        return 0;
    rc = link_set_up(ret_nic->index);
    if (rc)
        return port_fail(ret_error, rc, "port %s: can't bring %s up: %s", e->name, ifname,
                         strerror(-rc));
    return 0;
}

int ethdev_open_af_xdp(const struct config_port *cfg, uint16_t queues, struct rte_mempool *pool,
                       struct port **ret_port, struct port_error *ret_error)
{
    struct ethdev *e;
    struct link_details nic;
    const char *ifname = cfg->device;
    int rc = ethdev_new(cfg, queues, pool, true, &e, ret_error);
    if (rc)
        return rc;
    rc = check_config(e, cfg, ret_error);
    if (!rc && cfg->driver == CONFIG_VETH) {
        rc = veth_new(cfg, queues, &e->veth, ret_error);
        if (!rc)
            ifname = veth_port_end(e->veth);
    }
    if (!rc)
        rc = check_nic(e, ifname, &nic, ret_error);
    if (!rc) {
        rc = steer_new(cfg->addresses, cfg->naddresses, &e->steer);
        if (rc)
            port_fail(ret_error, rc, "port %s: can't load the steer program: %s%s", e->name,
                      strerror(-rc), rc == -EPERM ? ": run as root" : "");
    }
    if (!rc)
        rc = open_queues(e, cfg, ifname, nic.index, ret_error);
    if (rc) {
        ethdev_free(e);
        return rc;
    }
    *ret_port = &e->base;
    return 0;
}
