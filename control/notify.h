/* What systemd is told (sd_notify(3)): that we serve, reload, drain, stop, and that every core goes
 * on. Without NOTIFY_SOCKET in the environment nothing is sent.
 *
 * The watchdog is fed by the cores, not by control: one that stands still stops the feeding,
 * however lively control is. An idle core makes a pass at least once a second, so between two feeds
 * lie NOTIFY_FEED_NS at the most, and WatchdogSec= must leave room for that.
 *
 * Thread: control's loop.
 */
#ifndef MILLRACE_CONTROL_NOTIFY_H
#define MILLRACE_CONTROL_NOTIFY_H

#include "control/cores.h"

#define NOTIFY_FEED_NS 1500000000ull

struct notify {
    struct cores cores;
    uint64_t watchdog_ns; /* what systemd waits for a feed; 0: it has no watchdog on us */
    struct {
        uint64_t passes; /* at the last feed */
        bool moved;      /* since then */
    } core[CONFIG_MAX_CORES];
};

void notify_init(struct notify *n, const struct cores *cores);

/* True when systemd's patience is shorter than what idle cores need: it would kill us for nothing.
 */
bool notify_is_hasty(const struct notify *n);

/* Called about twice a second. Feeds the watchdog, true, when each running core has made a pass
 * since the last feed. */
bool notify_feed(struct notify *n);

void notify_ready(const struct notify *n, uint64_t version);
void notify_reloading(uint64_t now_ns); /* to be followed by notify_ready() */
/* systemd waits for the end for timeout and grace, whatever TimeoutStopSec= says. */
void notify_draining(uint64_t timeout_ns, uint64_t grace_ns);
void notify_stopping(uint64_t grace_ns);

#endif
