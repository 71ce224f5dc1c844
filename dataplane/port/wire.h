/* A wire in memory, for tests and the simulator: a switch between two or more ports, in virtual
 * time, with delay, loss, reordering, duplication and corruption from a seed.
 *
 * Each end is a struct port with its own MAC (02:00:00:00:00:01 for end 0, ...:02 for end 1, ...).
 * A unicast frame goes to the end whose MAC it carries, any other to all ends but the sender's.
 *
 * A frame behaves as on a NIC: what arrives is a fresh mbuf of the receiver's pool; the sent mbuf
 * is held until a later wire_advance() and only then freed. Sending asserts what drivers rely on:
 * one segment, a direct mbuf, at least one reference, no more than the MTU; and, when the mbuf is
 * let go, that nobody wrote into its bytes meanwhile.
 *
 * Thread: one. Never blocks. No virtual time passes but by wire_advance().
 */
#ifndef MILLRACE_DATAPLANE_PORT_WIRE_H
#define MILLRACE_DATAPLANE_PORT_WIRE_H

#include <stdbool.h>
#include <stdint.h>

#include <rte_mempool.h>

#include "dataplane/port/port.h"

#define WIRE_MAX_ENDS   8
#define WIRE_MAX_QUEUES 16

/* What the network does to the frames that one end sends. ppm: of 1,000,000 frames. */
struct wire_path {
    uint64_t delay_ns;
    uint64_t jitter_ns;     /* added, uniform in 0..jitter; keeps the order */
    uint64_t rate_bps;      /* bottleneck; 0: none */
    uint32_t queue_packets; /* in front of the bottleneck, then frames are lost; 0: no bound */
    uint32_t loss_ppm;
    uint32_t reorder_ppm;
    uint64_t reorder_ns; /* a reordered frame is late by 1..this; 0: by up to delay + 1 ms */
    uint32_t duplicate_ppm;
    uint32_t corrupt_ppm;  /* 1 to 8 bits of one byte flipped, behind the Ethernet header */
    uint32_t misroute_ppm; /* delivered to a random receive queue instead of the hash's */
};

/* What became of a frame: a mask, since a frame can be both late and corrupt. */
enum wire_fate {
    WIRE_SENT = 1 << 0,      /* accepted; arrives later */
    WIRE_LOST = 1 << 1,      /* by loss_ppm */
    WIRE_OVERFLOW = 1 << 2,  /* bottleneck queue full */
    WIRE_REORDERED = 1 << 3, /* with WIRE_SENT */
    WIRE_DUPLICATE = 1 << 4, /* with WIRE_SENT: the second copy */
    WIRE_CORRUPT = 1 << 5,   /* with WIRE_SENT */
    WIRE_NO_PORT = 1 << 6,   /* unicast to a MAC that is nobody's */
    WIRE_ARRIVED = 1 << 7,
    WIRE_MISSED = 1 << 8, /* on arrival: the receive ring was full or the pool empty */
};

/* Called once when a frame is sent (the fate then decided) and once for each arrival; `end` is the
 * sender's, then the receiver's. The bytes are the frame's as the receiver gets it. */
typedef void (*wire_tap)(void *ctx, unsigned end, uint64_t now, const uint8_t *bytes, uint32_t len,
                         unsigned fate);

struct wire_opts {
    uint64_t seed;
    uint64_t now; /* where virtual time starts */
    uint16_t ends, queues;
    struct rte_mempool *pools[WIRE_MAX_ENDS]; /* one an end; may be the same */
    uint16_t mtu;                             /* 0: 1500 */
    uint16_t rx_ring;                         /* frames a receive queue holds; 0: 1024 */
    uint16_t tx_ring;                         /* sent mbufs a queue holds; 0: 512 */
    uint64_t complete_ns;  /* a sent mbuf is held for this long; 0: until the next wire_advance() */
    uint32_t offloads;     /* enum netif_offload that the ports offer; never NETIF_TX_MULTI_SEGS */
    bool pad;              /* frames under 60 bytes arrive padded, with bytes that aren't 0 */
    struct wire_path path; /* of every end, until wire_set_path() */
    wire_tap tap;          /* NULL: none */
    void *tap_ctx;
};

struct wire;

/* NULL: no memory. */
struct wire *wire_new(const struct wire_opts *o);
/* Frees everything still on the way or unread. */
void wire_free(struct wire *w);

/* The wire's; port_close() of it does nothing. */
struct port *wire_port(struct wire *w, unsigned end);

/* For frames that `end` sends from now on. */
void wire_set_path(struct wire *w, unsigned end, const struct wire_path *path);

/* Moves time on: delivers and completes all that is due by `now`, in order. */
void wire_advance(struct wire *w, uint64_t now);

/* When something is due next; UINT64_MAX: nothing is on the way. */
uint64_t wire_next_timeout(const struct wire *w);

/* Frames delivered but not yet taken by rx_burst, over all queues of `end`. */
unsigned wire_rx_pending(const struct wire *w, unsigned end);

#endif
