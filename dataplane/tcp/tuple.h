/* A flow's four-tuple as its local end sees it, and the keyed hashes of it. Every hash is
 * SipHash-2-4 with the instance's secret, so that nobody outside can aim for collisions, guess
 * initial sequence numbers or steer flows to one core. */
#ifndef MILLRACE_DATAPLANE_TCP_TUPLE_H
#define MILLRACE_DATAPLANE_TCP_TUPLE_H

#include <stdbool.h>
#include <stdint.h>

#include "runtime/siphash.h"

/* All in network order. */
struct tuple {
    uint32_t local_addr, peer_addr;
    uint16_t local_port, peer_port;
};

enum tuple_use { /* keeps the hashes of one secret apart */
                 TUPLE_TABLE,
                 TUPLE_ISN,
                 TUPLE_TIMESTAMP,
                 TUPLE_OWNER,
};

static inline bool tuple_equal(const struct tuple *a, const struct tuple *b)
{
    return a->local_addr == b->local_addr && a->peer_addr == b->peer_addr &&
           a->local_port == b->local_port && a->peer_port == b->peer_port;
}

static inline uint64_t tuple_hash(struct siphash_key key, const struct tuple *t, enum tuple_use use)
{
    uint64_t addrs = (uint64_t)t->local_addr << 32 | t->peer_addr;
    uint64_t ports = (uint64_t)use << 32 | (uint32_t)t->local_port << 16 | t->peer_port;
    return siphash16(key, addrs, ports);
}

#endif
