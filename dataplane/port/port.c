#include "dataplane/port/port.h"

#include "dataplane/port/ethdev.h"

/* DPDK's AF_XDP driver: the fill ring it stocks at set-up, and the part of the completion ring that
 * it may leave unread until the next send. */
#define AF_XDP_FILL       2048
#define AF_XDP_COMPLETION 1024

typedef int (*open_fn)(const struct config_port *cfg, uint16_t queues, struct rte_mempool *pool,
                       struct port **ret_port, struct port_error *ret_error);

static const open_fn openers[] = {
    [CONFIG_VETH] = ethdev_open_af_xdp, [CONFIG_AF_XDP] = ethdev_open_af_xdp,
    [CONFIG_PCI] = ethdev_open_pci,     [CONFIG_MEMIF] = ethdev_open_memif,
    [CONFIG_TAP] = ethdev_open_tap,
};

int port_open(const struct config_port *cfg, uint16_t queues, struct rte_mempool *pool,
              struct port **ret_port, struct port_error *ret_error)
{
    return openers[cfg->driver](cfg, queues, pool, ret_port, ret_error);
}

void port_close(struct port *p)
{
    if (p)
        p->ops->close(p);
}

uint32_t port_ring_mbufs(const struct config_port *cfg, uint16_t queues)
{
    uint32_t rx = cfg->rx_descriptors ? cfg->rx_descriptors : ETHDEV_DEFAULT_DESCRIPTORS;
    uint32_t tx = cfg->tx_descriptors ? cfg->tx_descriptors : ETHDEV_DEFAULT_DESCRIPTORS;
    if (cfg->driver == CONFIG_VETH || cfg->driver == CONFIG_AF_XDP)
        return queues * (AF_XDP_FILL + AF_XDP_COMPLETION + tx);
    return queues * (rx + tx);
}
