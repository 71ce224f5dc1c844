/* Round-trip time and retransmission timeout (RFC 6298). Times in microseconds; min 200 ms as
 * deployed stacks have it (the RFC's second is too long for a proxy), max 60 s. */
#ifndef MILLRACE_DATAPLANE_TCP_RTT_H
#define MILLRACE_DATAPLANE_TCP_RTT_H

#include <stdint.h>

#define RTT_RTO_MIN_US      200000
#define RTT_RTO_MAX_US      60000000
#define RTT_RTO_INITIAL_US  1000000
#define RTT_RTO_LOST_SYN_US 3000000 /* RFC 6298 §5.7 */
#define RTT_GRANULARITY_US  1000

struct rtt {
    uint32_t srtt_us; /* 0: no sample yet */
    uint32_t var_us;
    uint32_t rto_us;
};

void rtt_init(struct rtt *r);

/* One measurement, not of a retransmitted segment (Karn). */
void rtt_sample(struct rtt *r, uint64_t ns);

/* The timeout after `backoffs` expiries without progress, ns. */
uint64_t rtt_timeout(const struct rtt *r, unsigned backoffs);

#endif
