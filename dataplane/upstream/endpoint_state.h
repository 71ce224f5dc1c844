/* What is known of endpoints, as the cores tell control and control tells the cores. Plain values,
 * by name: no pointer of either side.
 *
 * Cores observe (probes on one core, requests on each), control decides (control/health.h), and all
 * cores balance by what it decided.
 */
#ifndef MILLRACE_DATAPLANE_UPSTREAM_ENDPOINT_STATE_H
#define MILLRACE_DATAPLANE_UPSTREAM_ENDPOINT_STATE_H

#include <stdbool.h>
#include <stdint.h>

/* Why an endpoint isn't used; 0: it is. */
enum endpoint_flags {
    ENDPOINT_UNHEALTHY = 1, /* its probes fail */
    ENDPOINT_EJECTED = 2,   /* it answers requests badly */
};

/* An endpoint's name: it survives reloads. */
struct endpoint_key {
    char upstream[64];
    uint32_t addr; /* network order */
    uint16_t port; /* host order */
};

struct endpoint_update {
    struct endpoint_key key;
    uint8_t flags; /* enum endpoint_flags: the new state as a whole */
};

/* How a probe ended. */
enum probe_result {
#define PROBE(name, text) PROBE_##name,
#include "dataplane/upstream/probe.def"
#undef PROBE
    PROBE_RESULT_COUNT
};
const char *probe_result_name(enum probe_result r);

/* Latencies as a histogram: four buckets to a power of two, from 64 us to 64 s. */
#define LATENCY_BUCKETS 80
#define LATENCY_MIN_NS  65536

unsigned latency_bucket(uint64_t ns);
/* The middle of a bucket, ns. */
uint64_t latency_value(unsigned bucket);

/* What requests found of one endpoint on one core. */
struct endpoint_tally {
    uint32_t requests, failed;
    uint32_t latency[LATENCY_BUCKETS]; /* of answers that weren't failures, request to head */
};

struct endpoint_report {
    struct endpoint_key key;
    uint64_t at;                 /* the core's `now` */
    bool probed;                 /* `streak` and `probe` say something */
    int32_t streak;              /* good probes in a row, or with a minus bad ones */
    uint8_t probe;               /* enum probe_result of the last */
    uint32_t failed_in_a_row;    /* requests, when that reached the configured number; else 0 */
    struct endpoint_tally tally; /* since the last report */
};

#endif
