/* A frame on the in-memory wire: plain bytes, and what a NIC does to them. Wire's only. */
#ifndef MILLRACE_DATAPLANE_PORT_WIRE_FRAME_H
#define MILLRACE_DATAPLANE_PORT_WIRE_FRAME_H

#include <stdint.h>

#include <rte_mbuf.h>

struct wire_frame {
    uint32_t len;
    uint8_t bytes[];
};

/* Malloced; the caller frees. Aborts without memory (this is test equipment). */
struct wire_frame *wire_frame_of(const struct rte_mbuf *m, uint32_t pad_to);
struct wire_frame *wire_frame_copy(const struct wire_frame *f);

/* Which receive queue: the same for all frames between two addresses (and TCP or UDP ports). */
uint64_t wire_frame_flow_hash(const struct wire_frame *f);

/* Fills the checksums that m's flags ask for; asserts that the port offers it (enum netif_offload)
 * and that the sender left what a NIC needs: lengths, and the pseudo-header's sum. */
void wire_frame_tx_offload(struct wire_frame *f, const struct rte_mbuf *m, uint32_t offloads);

/* Marks m's checksums good or bad when the port offers it. */
void wire_frame_rx_offload(const struct wire_frame *f, struct rte_mbuf *m, uint32_t offloads);

/* An mbuf that the port still reads: nobody may write into the bytes that it sends. */
struct wire_held;
struct wire_held *wire_held_new(struct rte_mbuf *m);
/* Asserts that it is as it was, and frees the mbuf. */
void wire_held_release(struct wire_held *h);

#endif
