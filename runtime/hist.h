/* Latency histogram: log-linear buckets of fixed size, O(1) to record.
 *
 * Values are plain integers (ns by custom). Those under 16 are exact; above, a bucket is an eighth
 * of its power of two, so a percentile is at most 12.5 % too high. Values from 2^33 (8.6 s in ns)
 * share the last bucket; `max` stays exact.
 *
 * Thread: single owner, no atomics. Another thread gets a copy (a message, or under a lock).
 */
#ifndef MILLRACE_RUNTIME_HIST_H
#define MILLRACE_RUNTIME_HIST_H

#include <assert.h>
#include <stdint.h>

#define HIST_SUB_BITS 3
#define HIST_SUB      (1u << HIST_SUB_BITS)
#define HIST_TOP_BITS 33
#define HIST_BUCKETS  ((HIST_TOP_BITS - HIST_SUB_BITS + 1) * HIST_SUB)

/* Zeroed memory is an empty histogram. */
struct hist {
    uint64_t count;
    uint64_t sum; /* saturates */
    uint64_t max;
    uint64_t buckets[HIST_BUCKETS];
};
static_assert(sizeof(struct hist) <= 2048, "a histogram must stay small enough to copy");

void hist_init(struct hist *h);
void hist_record(struct hist *h, uint64_t value);

/* Adds `from` to `to`. */
void hist_merge(struct hist *to, const struct hist *from);

/* The smallest recorded bucket's upper end such that at least `ppm` millionths of the values are at
 * or below it (500000: median, 990000: p99); never above `max`. 0 when empty. */
uint64_t hist_percentile(const struct hist *h, uint32_t ppm);

/* Values in buckets that lie wholly at or below `value`: for cumulative exports. */
uint64_t hist_count_le(const struct hist *h, uint64_t value);

/* 0 when empty. */
uint64_t hist_mean(const struct hist *h);

/* Bucket of a value, and the largest value of a bucket (UINT64_MAX for the last). */
unsigned hist_bucket(uint64_t value);
uint64_t hist_bucket_end(unsigned bucket);

#endif
