/* Sequence numbers live on a circle of 2^32 (RFC 9293 §3.4): compared and subtracted only here.
 * Two numbers compare rightly while they are less than 2^31 apart. */
#ifndef MILLRACE_DATAPLANE_TCP_SEQ_H
#define MILLRACE_DATAPLANE_TCP_SEQ_H

#include <stdbool.h>
#include <stdint.h>

/* How far `a` stands after `b`; negative when before. */
static inline int32_t seq_diff(uint32_t a, uint32_t b)
{
    return (int32_t)(a - b);
}

static inline bool seq_lt(uint32_t a, uint32_t b)
{
    return seq_diff(a, b) < 0;
}

static inline bool seq_leq(uint32_t a, uint32_t b)
{
    return seq_diff(a, b) <= 0;
}

static inline bool seq_gt(uint32_t a, uint32_t b)
{
    return seq_diff(a, b) > 0;
}

static inline bool seq_geq(uint32_t a, uint32_t b)
{
    return seq_diff(a, b) >= 0;
}

static inline uint32_t seq_max(uint32_t a, uint32_t b)
{
    return seq_gt(a, b) ? a : b;
}

static inline uint32_t seq_min(uint32_t a, uint32_t b)
{
    return seq_lt(a, b) ? a : b;
}

/* lo <= s < hi */
static inline bool seq_in(uint32_t s, uint32_t lo, uint32_t hi)
{
    return s - lo < hi - lo;
}

#endif
