/* The kernel's network interfaces: what ports need of rtnetlink and ethtool.
 *
 * All actions return 0 or -errno and act in the calling thread's network namespace.
 * Thread: set-up. */
#ifndef MILLRACE_DATAPLANE_PORT_LINK_H
#define MILLRACE_DATAPLANE_PORT_LINK_H

#include <stdbool.h>
#include <stdint.h>

struct link_details {
    unsigned index;
    uint32_t mtu;
    bool up;
    char kind[16];   /* "veth", "bridge"; "" for hardware */
    char alias[256]; /* "" when none */
};

/* -ENODEV: no such interface. */
int link_get(const char *name, struct link_details *ret_details);

/* A pair of virtual Ethernet interfaces, down, each with `queues` receive and transmit queues. */
int link_add_veth(const char *name, const char *peer, uint16_t queues, uint16_t mtu);
int link_delete(unsigned index);

int link_set_alias(unsigned index, const char *alias);
int link_set_up(unsigned index);

/* No link-local address, no router solicitations. Before link_set_up(). */
int link_disable_ipv6(unsigned index, const char *name);

/* addr in network order; the address may already be there. */
int link_add_ipv4(unsigned index, uint32_t addr, uint8_t prefix);

/* What hides a frame's real form from a peer that isn't the kernel: transmit checksums,
 * segmentation and receive coalescing. */
int link_disable_offloads(const char *name);

/* Receive queues in use (ethtool's channels); 1 when the driver can't tell. */
unsigned link_rx_queues(const char *name);

#endif
