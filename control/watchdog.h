/* Notices a core that is stuck: its pass counter stands still although control's own clock goes on.
 *
 * A machine that was suspended, or a control thread that got no CPU, is not a stuck core: a check
 * that comes late starts the count anew.
 */
#ifndef MILLRACE_CONTROL_WATCHDOG_H
#define MILLRACE_CONTROL_WATCHDOG_H

#include <stddef.h>

#include "control/cores.h"
#include "runtime/stall.h"

#define WATCHDOG_STUCK_NS 2000000000ull
#define WATCHDOG_LATE_NS  1500000000ull /* between two checks, which come every half second */

struct watchdog {
    struct cores cores;
    uint64_t checked_at; /* 0: not yet */
    struct {
        uint64_t passes, moved_at;
    } core[CONFIG_MAX_CORES];
};

void watchdog_init(struct watchdog *w, const struct cores *cores);

/* Called about twice a second. The index of a core that has been stuck for WATCHDOG_STUCK_NS, else
 * -1. */
int watchdog_check(struct watchdog *w, uint64_t now_ns);

/* One line on how core `i` is: its heartbeat, and what it is doing. */
void watchdog_describe(const struct watchdog *w, unsigned i, uint64_t now_ns, char *ret_line,
                       size_t len);

/* What core `i` has been doing for so long, if the sampler has caught it. */
bool watchdog_culprit(const struct watchdog *w, unsigned i, struct stall_record *ret_record);

#endif
