/* Lists of addresses (config/duties.h). Thread: any; they are immutable. */
#ifndef MILLRACE_DATAPLANE_ROUTE_ACCESS_H
#define MILLRACE_DATAPLANE_ROUTE_ACCESS_H

#include <rte_byteorder.h>

#include "config/snapshot.h"

/* `addr` in network order; `ranges` sorted and disjoint. */
static inline bool access_has(const struct config_range *ranges, size_t n, uint32_t addr)
{
    uint32_t a = rte_be_to_cpu_32(addr);
    while (n) {
        const struct config_range *mid = ranges + n / 2;
        if (a >= mid->lo && a <= mid->hi)
            return true;
        if (a > mid->hi) {
            ranges = mid + 1;
            n -= n / 2 + 1;
        } else {
            n /= 2;
        }
    }
    return false;
}

static inline bool access_allows(const struct config_access *x, uint32_t addr)
{
    return !x || access_has(x->inside, x->ninside, addr);
}

#endif
