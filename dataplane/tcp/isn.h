/* Initial sequence numbers (RFC 6528) and timestamp offsets (RFC 7323 §5.4): a clock plus a keyed
 * hash of the flow. */
#ifndef MILLRACE_DATAPLANE_TCP_ISN_H
#define MILLRACE_DATAPLANE_TCP_ISN_H

#include "dataplane/tcp/tuple.h"

/* The clock ticks every 4 us, so numbers of one flow grow over its lives. */
static inline uint32_t isn_generate(struct siphash_key key, const struct tuple *t, uint64_t now)
{
    return (uint32_t)(now / 4000) + (uint32_t)tuple_hash(key, t, TUPLE_ISN);
}

/* Per flow, the same for all its lives: a later life's timestamps are newer (RFC 6191). */
static inline uint32_t isn_ts_offset(struct siphash_key key, const struct tuple *t)
{
    return (uint32_t)tuple_hash(key, t, TUPLE_TIMESTAMP);
}

/* The timestamp clock: a millisecond a tick. */
static inline uint32_t isn_ts_clock(uint64_t now)
{
    return (uint32_t)(now / 1000000);
}

#endif
