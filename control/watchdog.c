#include "control/watchdog.h"

#include <string.h>

void watchdog_init(struct watchdog *w, const struct cores *cores)
{
    memset(w, 0, sizeof(*w));
    w->cores = *cores;
}

int watchdog_check(struct watchdog *w, uint64_t now_ns)
{
    bool anew = w->checked_at == 0 || now_ns - w->checked_at > WATCHDOG_LATE_NS;

    w->checked_at = now_ns;
    for (unsigned i = 0; i < w->cores.n; i++) {
        uint64_t passes = w->cores.ops->passes(w->cores.ctx, i);
        if (anew || passes != w->core[i].passes || !cores_is_running(&w->cores, i)) {
            w->core[i].passes = passes;
            w->core[i].moved_at = now_ns;
        } else if (now_ns - w->core[i].moved_at >= WATCHDOG_STUCK_NS) {
            return (int)i;
        }
    }
    return -1;
}
