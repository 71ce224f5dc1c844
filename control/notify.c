#include "control/notify.h"

#include <inttypes.h>
#include <string.h>
#include <systemd/sd-daemon.h>
#include <unistd.h>

void notify_init(struct notify *n, const struct cores *cores)
{
    uint64_t us;

    memset(n, 0, sizeof(*n));
    n->cores = *cores;
    if (sd_watchdog_enabled(0, &us) > 0)
        n->watchdog_ns = us * 1000;
}

bool notify_is_hasty(const struct notify *n)
{
    return n->watchdog_ns && n->watchdog_ns < 2 * NOTIFY_FEED_NS;
}

bool notify_feed(struct notify *n)
{
    bool all = true;

    for (unsigned i = 0; i < n->cores.n; i++) {
        if (!cores_is_running(&n->cores, i))
            continue;
        if (n->cores.ops->passes(n->cores.ctx, i) != n->core[i].passes)
            n->core[i].moved = true;
        all &= n->core[i].moved;
    }
    if (!all)
        return false;
    for (unsigned i = 0; i < n->cores.n; i++) {
        n->core[i].passes = n->cores.ops->passes(n->cores.ctx, i);
        n->core[i].moved = false;
    }
    if (n->watchdog_ns)
        sd_notify(0, "WATCHDOG=1");
    return true;
}

void notify_ready(const struct notify *n, uint64_t version)
{
    sd_notifyf(0, "READY=1\nMAINPID=%d\nSTATUS=Serving with %u %s, configuration version %" PRIu64,
               getpid(), n->cores.n, n->cores.n == 1 ? "core" : "cores", version);
}

void notify_reloading(uint64_t now_ns)
{
    sd_notifyf(0, "RELOADING=1\nMONOTONIC_USEC=%" PRIu64 "\nSTATUS=Reloading", now_ns / 1000);
}

void notify_draining(uint64_t timeout_ns, uint64_t grace_ns)
{
    sd_notifyf(
        0, "STOPPING=1\nEXTEND_TIMEOUT_USEC=%" PRIu64 "\nSTATUS=Draining for at most %" PRIu64 " s",
        (timeout_ns + grace_ns) / 1000, timeout_ns / 1000000000);
}

void notify_stopping(uint64_t grace_ns)
{
    sd_notifyf(0, "STOPPING=1\nEXTEND_TIMEOUT_USEC=%" PRIu64 "\nSTATUS=Stopping", grace_ns / 1000);
}
