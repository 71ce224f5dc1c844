#include "runtime/hist.h"

#include <string.h>

void hist_init(struct hist *h)
{
    memset(h, 0, sizeof(*h));
}

unsigned hist_bucket(uint64_t value)
{
    if (value < HIST_SUB)
        return (unsigned)value;
    if (value >> HIST_TOP_BITS)
        return HIST_BUCKETS - 1;
    unsigned msb = 63 - (unsigned)__builtin_clzll(value);
    unsigned shift = msb - HIST_SUB_BITS;
    return (shift << HIST_SUB_BITS) + (unsigned)(value >> shift);
}

uint64_t hist_bucket_end(unsigned bucket)
{
    if (bucket < HIST_SUB)
        return bucket;
    if (bucket >= HIST_BUCKETS - 1)
        return UINT64_MAX;
    unsigned shift = (bucket >> HIST_SUB_BITS) - 1;
    uint64_t sub = HIST_SUB + (bucket & (HIST_SUB - 1));
    return ((sub + 1) << shift) - 1;
}

static uint64_t add_saturating(uint64_t a, uint64_t b)
{
    uint64_t sum = a + b;
    return sum < a ? UINT64_MAX : sum;
}

void hist_record(struct hist *h, uint64_t value)
{
    h->count++;
    h->sum = add_saturating(h->sum, value);
    if (value > h->max)
        h->max = value;
    h->buckets[hist_bucket(value)]++;
}

void hist_merge(struct hist *to, const struct hist *from)
{
    to->count += from->count;
    to->sum = add_saturating(to->sum, from->sum);
    if (from->max > to->max)
        to->max = from->max;
    for (unsigned i = 0; i < HIST_BUCKETS; i++)
        to->buckets[i] += from->buckets[i];
}

uint64_t hist_percentile(const struct hist *h, uint32_t ppm)
{
    if (h->count == 0)
        return 0;
    uint64_t want = (uint64_t)(((unsigned __int128)h->count * ppm + 999999) / 1000000);
    uint64_t seen = 0;
    if (want == 0)
        want = 1;
    for (unsigned i = 0; i < HIST_BUCKETS; i++) {
        seen += h->buckets[i];
        if (seen >= want) {
            uint64_t end = hist_bucket_end(i);
            return end < h->max ? end : h->max;
        }
    }
    return h->max;
}

uint64_t hist_count_le(const struct hist *h, uint64_t value)
{
    uint64_t n = 0;
    for (unsigned i = 0; i < HIST_BUCKETS && hist_bucket_end(i) <= value; i++)
        n += h->buckets[i];
    return n;
}

uint64_t hist_mean(const struct hist *h)
{
    return h->count ? h->sum / h->count : 0;
}
