/* Local ports of our own connects: random (RFC 6056 §3.3.1) within the class of ports that belongs
 * to this core, so that the answer's owner is known from its destination port alone. */
#ifndef MILLRACE_DATAPLANE_TCP_PORTS_H
#define MILLRACE_DATAPLANE_TCP_PORTS_H

#include <stdbool.h>
#include <stdint.h>

#include "runtime/rng.h"

struct port_space {
    uint16_t lo, hi; /* inclusive, host order */
    uint16_t core, cores;
};

static inline bool ports_contain(const struct port_space *s, uint16_t port)
{
    return port >= s->lo && port <= s->hi;
}

/* `port` must lie in the space. */
static inline uint16_t ports_owner(const struct port_space *s, uint16_t port)
{
    return (uint16_t)((port - s->lo) % s->cores);
}

/* How many ports are this core's. */
uint32_t ports_count(const struct port_space *s);

/* A random port of this core for which in_use() is false; tries each at most once.
 * -EADDRNOTAVAIL when all are in use. */
int ports_pick(const struct port_space *s, struct rng *rng,
               bool (*in_use)(void *ctx, uint16_t port), void *ctx, uint16_t *ret_port);

#endif
