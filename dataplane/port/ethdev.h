/* A port over DPDK devices: one device with a queue for each core, or (AF_XDP) a device a queue.
 *
 * Ours to the port folder only; others see struct port. Thread: set-up, but for the bursts and
 * ethdev_sleep_fds() (the queue's core) and the counters (any).
 */
#ifndef MILLRACE_DATAPLANE_PORT_ETHDEV_H
#define MILLRACE_DATAPLANE_PORT_ETHDEV_H

#include <stdint.h>

#include <rte_common.h>
#include <rte_ether.h>
#include <rte_mempool.h>

#include "config/snapshot.h"
#include "dataplane/port/lock.h"
#include "dataplane/port/port.h"
#include "dataplane/port/veth.h"
#include "dataplane/xdp/steer.h"

#define ETHDEV_DEFAULT_DESCRIPTORS 1024

/* What one core polls. The counters have one writer, that core; read with relaxed loads. */
struct ethdev_queue {
    uint16_t dev, queue; /* DPDK's numbers */
    int fd;              /* to sleep on; -1: none */
    uint64_t rx_packets, rx_bytes, tx_packets, tx_bytes, tx_full;
} __rte_cache_aligned;

struct ethdev {
    struct port base;
    const char *name; /* the port's, for messages; the config's, which must outlive us */
    const char *driver;
    struct rte_mempool *pool;
    struct rte_ether_addr mac;
    uint16_t mtu, nqueues, ndevs, rx_descriptors, tx_descriptors;
    uint32_t offloads; /* enum netif_offload */
    /* What else goes with the port, each NULL when it has none; freed in ethdev_free(). */
    struct device_lock *lock;
    struct veth *veth;
    struct steer *steer;
    /* DPDK devices, with the virtual ones' names ("" for a PCI device, which isn't ours to remove).
     */
    struct {
        uint16_t id;
        char vdev[64];
    } devs[STEER_MAX_QUEUES];
    struct ethdev_queue queues[];
};

/* Room for `queues`, no device yet; takes the lock on cfg->device when `lock_device`. */
int ethdev_new(const struct config_port *cfg, uint16_t queues, struct rte_mempool *pool,
               bool lock_device, struct ethdev **ret_ethdev, struct port_error *ret_error);

/* Everything, in the order that leaves the host as it was. */
void ethdev_free(struct ethdev *e);

/* Makes a virtual device, or finds a probed PCI device when args is NULL; adds it to the port. */
int ethdev_add_device(struct ethdev *e, const char *name, const char *args, uint16_t *ret_dev,
                      struct port_error *ret_error);

/* Configures the device with queues [first, first + n) of the port, and starts it. */
int ethdev_start(struct ethdev *e, uint16_t dev, uint16_t first, uint16_t n,
                 struct port_error *ret_error);

/* Each opens the port for its driver. */
int ethdev_open_af_xdp(const struct config_port *cfg, uint16_t queues, struct rte_mempool *pool,
                       struct port **ret_port, struct port_error *ret_error);
int ethdev_open_pci(const struct config_port *cfg, uint16_t queues, struct rte_mempool *pool,
                    struct port **ret_port, struct port_error *ret_error);
int ethdev_open_memif(const struct config_port *cfg, uint16_t queues, struct rte_mempool *pool,
                      struct port **ret_port, struct port_error *ret_error);
int ethdev_open_tap(const struct config_port *cfg, uint16_t queues, struct rte_mempool *pool,
                    struct port **ret_port, struct port_error *ret_error);

#endif
