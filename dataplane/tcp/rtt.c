#include "dataplane/tcp/rtt.h"

static uint32_t clamp_rto(uint64_t us)
{
    if (us < RTT_RTO_MIN_US)
        return RTT_RTO_MIN_US;
    return us > RTT_RTO_MAX_US ? RTT_RTO_MAX_US : (uint32_t)us;
}

void rtt_init(struct rtt *r)
{
    *r = (struct rtt){.rto_us = RTT_RTO_INITIAL_US};
}

void rtt_sample(struct rtt *r, uint64_t ns)
{
    uint64_t us = ns / 1000;
    if (us == 0)
        us = 1; /* 0 says "no sample" */
    if (us > RTT_RTO_MAX_US)
        us = RTT_RTO_MAX_US;
    uint32_t m = (uint32_t)us;
    if (r->srtt_us == 0) {
        r->srtt_us = m;
        r->var_us = m / 2;
    } else {
        uint32_t err = m > r->srtt_us ? m - r->srtt_us : r->srtt_us - m;
        r->var_us = (uint32_t)((3ull * r->var_us + err) / 4);
        r->srtt_us = (uint32_t)((7ull * r->srtt_us + m) / 8);
        if (r->srtt_us == 0)
            r->srtt_us = 1;
    }
    uint64_t margin = 4ull * r->var_us;
    if (margin < RTT_GRANULARITY_US)
        margin = RTT_GRANULARITY_US;
    r->rto_us = clamp_rto(r->srtt_us + margin);
}

uint64_t rtt_timeout(const struct rtt *r, unsigned backoffs)
{
    if (backoffs > 16)
        backoffs = 16;
    return 1000ull * clamp_rto((uint64_t)r->rto_us << backoffs);
}
