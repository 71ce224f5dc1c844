/* The embedded port's wire: a veth pair whose one end is the kernel's, with an address, and whose
 * other end, named after it with a "p" behind, is ours through AF_XDP.
 *
 * Both ends carry the alias "millrace", by which a leftover of a crash is known and replaced. An
 * interface of that name that isn't ours is never touched.
 *
 * Thread: set-up. */
#ifndef MILLRACE_DATAPLANE_PORT_VETH_H
#define MILLRACE_DATAPLANE_PORT_VETH_H

#include "config/snapshot.h"
#include "dataplane/port/port.h"

struct veth;

/* Makes the pair with `queues` queues each way, up, offloads off, cfg->host_address on the kernel's
 * end. The caller holds the device's lock. 0, or -errno with ret_error filled and nothing left. */
int veth_new(const struct config_port *cfg, uint16_t queues, struct veth **ret_veth,
             struct port_error *ret_error);

/* Removes the pair. */
void veth_free(struct veth *v);

/* Our end's name. */
const char *veth_port_end(const struct veth *v);

#endif
