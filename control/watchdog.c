#include "control/watchdog.h"

#include <inttypes.h>
#include <stdio.h>
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

bool watchdog_culprit(const struct watchdog *w, unsigned i, struct stall_record *ret_record)
{
    struct stall_record r;

    if (stall_read(w->cores.ops->stalls(w->cores.ctx, i), &r, 1) != 1 || !r.running)
        return false;
    *ret_record = r;
    return true;
}

void watchdog_describe(const struct watchdog *w, unsigned i, uint64_t now_ns, char *ret_line,
                       size_t len)
{
    const char *activity = w->cores.ops->activity(w->cores.ctx, i);
    double still = (double)(now_ns - w->core[i].moved_at) / 1e9;
    struct stall_record r;
    int n = snprintf(ret_line, len, "core %u: %" PRIu64 " passes, the last %.1f s ago, ", i,
                     w->core[i].passes, still);

    if (n < 0 || (size_t)n >= len)
        return;
    if (!cores_is_running(&w->cores, i))
        snprintf(ret_line + n, len - (size_t)n, "has ended");
    else if (!activity)
        snprintf(ret_line + n, len - (size_t)n, "between two passes");
    else if (strcmp(activity, "pass") == 0)
        snprintf(ret_line + n, len - (size_t)n, "in a pass, in no task");
    else if (watchdog_culprit(w, i, &r) && strcmp(r.kind, activity) == 0 && r.label[0])
        snprintf(ret_line + n, len - (size_t)n, "in a task of kind %s, label %s", activity,
                 r.label);
    else
        snprintf(ret_line + n, len - (size_t)n, "in a task of kind %s", activity);
}
