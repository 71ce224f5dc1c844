/* NIC queues. A port is opened once by the set-up thread and polled per (port, queue) by one core.
 *
 * May use: runtime, config/snapshot.h, any rte_*, libbpf, libmnl. Used by: core, tests. The layers
 * between see only struct netif.
 *
 * Ownership: rx_burst gives out one reference an mbuf; tx_burst takes over the references of the
 * first `returned` mbufs, the rest stay with the caller.
 */
#ifndef MILLRACE_DATAPLANE_PORT_PORT_H
#define MILLRACE_DATAPLANE_PORT_PORT_H

#include <stdbool.h>
#include <stdint.h>

#include <rte_ether.h>
#include <rte_mbuf.h>
#include <rte_mempool.h>

#include "config/snapshot.h"

struct port;

/* One line that says what is wrong and what to do; filled on failure. */
struct port_error {
    char text[512];
};

struct port_info {
    struct rte_ether_addr mac;
    uint16_t mtu;
    uint16_t queues;
    uint32_t offloads; /* enum netif_offload */
    const char *driver;
};

struct port_counters {
    uint64_t rx_packets, rx_bytes, tx_packets, tx_bytes;
    uint64_t rx_missed, tx_full, tx_errors, no_mbuf;
    /* XDP steer verdicts; all 0 where the port has none. */
    uint64_t steer_redirect, steer_pass, steer_drop;
};

struct port_ops {
    const char *name;
    uint16_t (*rx_burst)(struct port *p, uint16_t queue, struct rte_mbuf **pkts, uint16_t n);
    uint16_t (*tx_burst)(struct port *p, uint16_t queue, struct rte_mbuf **pkts, uint16_t n);
    /* File descriptors to sleep on for this queue (at most max); returns how many, 0: can't sleep,
     * poll on a timer. */
    unsigned (*sleep_fds)(struct port *p, uint16_t queue, int *ret_fds, unsigned max);
    void (*info)(const struct port *p, struct port_info *ret_info);
    void (*counters)(const struct port *p, struct port_counters *ret_counters);
    void (*close)(struct port *p);
};

struct port {
    const struct port_ops *ops;
};

/* Opens a port as the config says (driver veth, af_xdp, pci, memif, tap). The EAL must be up
 * (eal.h). `pool` feeds the receive queues. Set-up thread only; may block. 0 or -errno with
 * ret_error filled; a failure leaves nothing behind on the host. */
int port_open(const struct config_port *cfg, uint16_t queues, struct rte_mempool *pool,
              struct port **ret_port, struct port_error *ret_error);

/* Closes and frees; removes what port_open() made on the host. */
void port_close(struct port *p);

/* Mbufs that the driver's rings may hold on to: part of the pool's size. */
uint32_t port_ring_mbufs(const struct config_port *cfg, uint16_t queues);

#endif
