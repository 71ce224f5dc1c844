#include "dataplane/tcp/ports.h"

#include <errno.h>

uint32_t ports_count(const struct port_space *s)
{
    uint32_t span = (uint32_t)s->hi - s->lo + 1;
    return span > s->core ? (span - s->core - 1) / s->cores + 1 : 0;
}

int ports_pick(const struct port_space *s, struct rng *rng,
               bool (*in_use)(void *ctx, uint16_t port), void *ctx, uint16_t *ret_port)
{
    uint32_t n = ports_count(s);
    if (n == 0)
        return -EADDRNOTAVAIL;
    uint32_t start = rng_below(rng, n);
    for (uint32_t i = 0; i < n; i++) {
        uint32_t at = start + i < n ? start + i : start + i - n;
        uint16_t port = (uint16_t)(s->lo + s->core + at * s->cores);
        if (in_use(ctx, port))
            continue;
        *ret_port = port;
        return 0;
    }
    return -EADDRNOTAVAIL;
}
