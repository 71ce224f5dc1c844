#include "runtime/clock.h"

#include <time.h>

static uint64_t read_ns(clockid_t id)
{
    struct timespec ts;
    clock_gettime(id, &ts);
    return (uint64_t)ts.tv_sec * CLOCK_NS_PER_S + (uint64_t)ts.tv_nsec;
}

uint64_t clock_now_ns(void)
{
    return read_ns(CLOCK_MONOTONIC);
}

int64_t clock_wall_offset(void)
{
    /* Between two readings of the one, so that a preemption in the middle shows as a wide gap. */
    uint64_t best_gap = UINT64_MAX;
    int64_t offset = 0;
    for (int i = 0; i < 4; i++) {
        uint64_t before = clock_now_ns();
        uint64_t wall = read_ns(CLOCK_REALTIME);
        uint64_t gap = clock_now_ns() - before;
        if (gap < best_gap) {
            best_gap = gap;
            offset = (int64_t)(wall - (before + gap / 2));
        }
    }
    return offset;
}

/* One (tsc, ns) pair, the tightest of several tries. */
static void read_pair(uint64_t *ret_tsc, uint64_t *ret_ns)
{
    uint64_t best_gap = UINT64_MAX;
    for (int i = 0; i < 16; i++) {
        uint64_t before = clock_tsc();
        uint64_t ns = clock_now_ns();
        uint64_t gap = clock_tsc() - before;
        if (gap < best_gap) {
            best_gap = gap;
            *ret_tsc = before + gap / 2;
            *ret_ns = ns;
        }
    }
}

uint64_t clock_tsc_calibrate(void)
{
    uint64_t tsc0 = 0, ns0 = 0, tsc1 = 0, ns1 = 0;
    read_pair(&tsc0, &ns0);
    do {
        read_pair(&tsc1, &ns1);
    } while (ns1 - ns0 < 10 * 1000 * 1000);
    return (uint64_t)((unsigned __int128)(tsc1 - tsc0) * CLOCK_NS_PER_S / (ns1 - ns0));
}
