/* The two real clocks. Only loops and accounting read them; everything else is given `now`.
 * Any thread. */
#ifndef MILLRACE_RUNTIME_CLOCK_H
#define MILLRACE_RUNTIME_CLOCK_H

#include <stdint.h>

#include <rte_cycles.h>

#define CLOCK_NS_PER_S 1000000000ull

/* CLOCK_MONOTONIC, ns. */
uint64_t clock_now_ns(void);

/* CLOCK_REALTIME - CLOCK_MONOTONIC, ns. */
int64_t clock_wall_offset(void);

/* Cycle counter: cheap, for durations only. */
static inline uint64_t clock_tsc(void)
{
    return rte_rdtsc();
}

/* Measures the counter's frequency against the monotonic clock; takes about 10 ms of CPU. Set-up
 * only: keep the answer. */
uint64_t clock_tsc_calibrate(void);

/* A duration in cycles as ns; exact to rounding for any length. hz > 0. */
static inline uint64_t clock_tsc_to_ns(uint64_t cycles, uint64_t hz)
{
    return (uint64_t)((unsigned __int128)cycles * CLOCK_NS_PER_S / hz);
}

#endif
