/* Small seeded generator (splitmix64): the same seed gives the same run. Not for secrets. */
#ifndef MILLRACE_RUNTIME_RNG_H
#define MILLRACE_RUNTIME_RNG_H

#include <stdbool.h>
#include <stdint.h>

struct rng {
    uint64_t state;
};

static inline uint64_t rng_next(struct rng *r)
{
    uint64_t z = (r->state += 0x9e3779b97f4a7c15ull);
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ull;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebull;
    return z ^ (z >> 31);
}

/* 0 <= result < n; n > 0. */
static inline uint32_t rng_below(struct rng *r, uint32_t n)
{
    return (uint32_t)(((rng_next(r) >> 32) * n) >> 32);
}

/* True with probability ppm / 1,000,000. */
static inline bool rng_chance(struct rng *r, uint32_t ppm)
{
    return rng_below(r, 1000000) < ppm;
}

#endif
