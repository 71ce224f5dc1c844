/* Absolute deadlines: ns of the monotonic clock as uint64_t, passed down from caller to callee and
 * combined by the minimum. A callee never gets more time than its caller has left. */
#ifndef MILLRACE_RUNTIME_DEADLINE_H
#define MILLRACE_RUNTIME_DEADLINE_H

#include <stdbool.h>
#include <stdint.h>

/* Never. The greatest time there is, so that deadline_min() needs no special case; 0 is a time long
 * past, not "none". */
#define DEADLINE_NONE UINT64_MAX

/* `ns` from now; DEADLINE_NONE where that is beyond the clock's range, and for ns DEADLINE_NONE. */
static inline uint64_t deadline_after(uint64_t now, uint64_t ns)
{
    return ns > UINT64_MAX - now ? DEADLINE_NONE : now + ns;
}

static inline uint64_t deadline_min(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

/* At its very ns it has passed. */
static inline bool deadline_is_past(uint64_t deadline, uint64_t now)
{
    return deadline != DEADLINE_NONE && now >= deadline;
}

/* ns left, 0 when it has passed; DEADLINE_NONE for none. */
static inline uint64_t deadline_left(uint64_t deadline, uint64_t now)
{
    if (deadline == DEADLINE_NONE)
        return DEADLINE_NONE;
    return deadline > now ? deadline - now : 0;
}

#endif
