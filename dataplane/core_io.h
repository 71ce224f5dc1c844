/* A core's ports, and the way of frames between cores. Used by core.c only.
 *
 * Each port queue belongs to one core, which alone receives and sends on it. A frame of another
 * core's flow is handed over whole (its sole reference moves); a core without a queue on a port
 * sends through the core that has one. ARP frames are copied to every core.
 */
#ifndef MILLRACE_DATAPLANE_CORE_IO_H
#define MILLRACE_DATAPLANE_CORE_IO_H

#include <stdbool.h>
#include <stdint.h>

#include <rte_ring.h>

#include "config/snapshot.h"
#include "dataplane/core.h"
#include "dataplane/net/net.h"
#include "dataplane/port/port.h"
#include "dataplane/tcp/tcp.h"
#include "runtime/mailbox.h"

#define IO_BURST     32
#define IO_BURSTS    2 /* a pass and port */
#define IO_SLEEP_FDS 8 /* a port */

struct core_io;

struct io_port {
    struct core_io *io;
    struct port *port;
    unsigned index;
    bool has_queue;  /* queue io->index of it is ours */
    unsigned sender; /* the core that sends for us when it isn't */
    struct netif nif;
    int fds[IO_SLEEP_FDS];
    unsigned nfds;
};

struct core_io {
    unsigned index;
    struct core_shared *shared;
    struct net *net;
    struct tcp *tcp;
    struct io_port ports[NET_MAX_IFS];
    unsigned nports;
    struct rte_ring *rx; /* frames that others received for us; m->port says where */
    struct rte_ring *tx; /* frames that others send through our queues */
    struct mailbox_item kick[CONFIG_MAX_CORES]; /* to wake the core that something was handed to */
    uint64_t kicked;                            /* bit per core, this pass */
    unsigned frames;                            /* received in this pass; the core sets it to 0 */
    uint64_t handoff_out, handoff_in, handoff_full, tx_dropped;
};

/* 0/-errno; a failure leaves nothing behind. */
int io_init(struct core_io *io, const struct core_opts *o, const struct snapshot *s);
void io_fini(struct core_io *io);

/* Receives from our queues and from other cores; true if anything came. */
bool io_receive(struct core_io *io);

/* Sends what stands in the netifs and in the tx ring; true if there was anything. Wakes the cores
 * that something was handed to. */
bool io_send(struct core_io *io);

/* True when a frame waits in a ring. */
bool io_is_pending(const struct core_io *io);

#endif
