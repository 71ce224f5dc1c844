/* Exponential back-off with full jitter: before try k + 1 (k = 0, 1, ...) a wait that is uniform in
 * [0, min(cap, base * 2^k)]. Full jitter spreads callers that failed together best, at the least
 * work for the server. Deterministic from the generator's seed. Units: ns. Any thread (a value). */
#ifndef MILLRACE_RUNTIME_BACKOFF_H
#define MILLRACE_RUNTIME_BACKOFF_H

#include <stdint.h>

#include "runtime/rng.h"

/* The longest wait after `failures` failures in a row (from 1); saturates at cap. */
static inline uint64_t backoff_ceiling(uint64_t base, uint64_t cap, uint32_t failures)
{
    uint32_t shift = failures > 0 ? failures - 1 : 0;
    if (base == 0)
        return 0;
    if (shift >= 64 || base > UINT64_MAX >> shift || base << shift > cap)
        return cap;
    return base << shift;
}

/* 0 <= result <= ceiling. */
static inline uint64_t backoff_jitter(struct rng *r, uint64_t ceiling)
{
    if (ceiling == UINT64_MAX)
        return rng_next(r);
    return (uint64_t)(((unsigned __int128)rng_next(r) * (ceiling + 1)) >> 64);
}

#endif
