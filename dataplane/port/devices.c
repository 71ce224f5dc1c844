/* The ports that are one DPDK device with all the queues: PCI, memif and TAP. */
#include "dataplane/port/ethdev.h"

#include <errno.h>
#include <net/if.h>
#include <stdio.h>
#include <string.h>

#include <rte_ethdev.h>

#include "dataplane/port/error.h"
#include "dataplane/port/link.h"

/* Adds and starts the device; frees e on failure. */
static int open_device(struct ethdev *e, const char *name, const char *args,
                       struct port_error *ret_error)
{
    uint16_t dev;
    int rc = ethdev_add_device(e, name, args, &dev, ret_error);
    if (!rc)
        rc = ethdev_start(e, dev, 0, e->nqueues, ret_error);
    if (rc)
        ethdev_free(e);
    return rc;
}

int ethdev_open_pci(const struct config_port *cfg, uint16_t queues, struct rte_mempool *pool,
                    struct port **ret_port, struct port_error *ret_error)
{
    struct ethdev *e;
    uint16_t dev;
    if (rte_eth_dev_get_port_by_name(cfg->device, &dev))
        return port_fail(ret_error, -ENODEV,
                         "port %s: DPDK finds no device %s: bind it first (dpdk-devbind.py "
                         "-b vfio-pci %s), and see that no other process has it",
                         cfg->name, cfg->device, cfg->device);
    int rc = ethdev_new(cfg, queues, pool, true, &e, ret_error);
    if (!rc)
        rc = open_device(e, cfg->device, NULL, ret_error);
    if (!rc)
        *ret_port = &e->base;
    return rc;
}

static const char *comma_args(const struct config_port *cfg)
{
    return cfg->driver_args ? cfg->driver_args : "";
}

static const char *comma(const struct config_port *cfg)
{
    return comma_args(cfg)[0] ? "," : "";
}

static unsigned log2_of(uint16_t n)
{
    unsigned log = 0;
    while (n >>= 1)
        log++;
    return log;
}

/* Both ends of a memif name the same socket, so there is no lock: who listens finds it in use. */
int ethdev_open_memif(const struct config_port *cfg, uint16_t queues, struct rte_mempool *pool,
                      struct port **ret_port, struct port_error *ret_error)
{
    struct ethdev *e;
    char name[64], args[512];
    int rc = ethdev_new(cfg, queues, pool, false, &e, ret_error);
    if (rc)
        return rc;
    snprintf(name, sizeof(name), "net_memif_%s", cfg->name);
    snprintf(args, sizeof(args), "socket=%s,socket-abstract=no,rsize=%u%s%s", cfg->device,
             log2_of(e->rx_descriptors), comma(cfg), comma_args(cfg));
    rc = open_device(e, name, args, ret_error);
    if (!rc)
        *ret_port = &e->base;
    return rc;
}

static int set_up_tap(const struct config_port *cfg, struct port_error *ret_error)
{
    struct link_details d;
    int rc = link_get(cfg->device, &d);
    if (!rc && cfg->host_address.addr)
        rc = link_add_ipv4(d.index, cfg->host_address.addr, cfg->host_address.prefix);
    if (!rc)
        rc = link_set_up(d.index);
    if (rc)
        return port_fail(ret_error, rc, "port %s: can't set up interface %s: %s", cfg->name,
                         cfg->device, strerror(-rc));
    return 0;
}

int ethdev_open_tap(const struct config_port *cfg, uint16_t queues, struct rte_mempool *pool,
                    struct port **ret_port, struct port_error *ret_error)
{
    struct ethdev *e;
    char name[64], args[512];
    if (if_nametoindex(cfg->device))
        return port_fail(ret_error, -EEXIST,
                         "port %s: interface %s exists: choose another device name, or remove it "
                         "(ip link del %s)",
                         cfg->name, cfg->device, cfg->device);
    int rc = ethdev_new(cfg, queues, pool, true, &e, ret_error);
    if (rc)
        return rc;
    snprintf(name, sizeof(name), "net_tap_%s", cfg->name);
    snprintf(args, sizeof(args), "iface=%s%s%s", cfg->device, comma(cfg), comma_args(cfg));
    rc = open_device(e, name, args, ret_error);
    if (rc)
        return rc;
    rc = set_up_tap(cfg, ret_error);
    if (rc) {
        ethdev_free(e);
        return rc;
    }
    /* The driver tells the kernel's end's MAC; ours must differ from it. */
    e->mac.addr_bytes[0] |= RTE_ETHER_LOCAL_ADMIN_ADDR;
    e->mac.addr_bytes[5] ^= 1;
    *ret_port = &e->base;
    return 0;
}
