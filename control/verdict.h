/* Which endpoints of one upstream are used: the decisions alone. No messages, no clock, no cores.
 *
 * Unhealthy is who fails its probes; the first probe decides at once, later ones by thresholds.
 * Ejected is who answers requests badly: for `ejection`, times how often that happened lately (a
 * time of `ejection` in good standing takes one off), up to `max_ejection`. Never ejected are more
 * than max_ejected %, rounded down; one whose loss would leave less than panic % usable, or none;
 * and one that is unhealthy anyway. When one that fails can't be ejected, those that are out may do
 * no worse: the one that has been out longest is recalled (but not in the first tenth of
 * `ejection`), and that ejection doesn't count.
 *
 * Thread: control's. Times are monotonic ns.
 */
#ifndef MILLRACE_CONTROL_VERDICT_H
#define MILLRACE_CONTROL_VERDICT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "config/snapshot.h"
#include "dataplane/messages.h"

enum verdict_cause {
#define VERDICT(name, text) VERDICT_##name,
#include "control/verdict.def"
#undef VERDICT
    VERDICT_CAUSE_COUNT
};
const char *verdict_cause_name(enum verdict_cause c);
const char *verdict_cause_text(enum verdict_cause c);

struct verdict_endpoint {
    struct endpoint_key key;
    uint16_t weight;
    bool backup;
    uint8_t flags; /* enum endpoint_flags */
    bool tested;   /* a probe has ended */
    uint8_t probe; /* enum probe_result of the last */
    int32_t streak;
    uint32_t level; /* ejections that count for the length of the next */
    uint64_t ejected_at, ejected_until, returned_at;
    struct endpoint_tally tally; /* of the present window, all cores */
    uint64_t untold;             /* a bit for each core that doesn't know `flags` yet */
};

struct verdict_upstream;

/* `ep` has other flags than `before`. */
typedef void (*verdict_change)(void *ctx, struct verdict_upstream *up, struct verdict_endpoint *ep,
                               uint8_t before, enum verdict_cause cause);

struct verdict_upstream {
    char name[64];
    struct verdict_endpoint *endpoints; /* owned */
    size_t nendpoints;
    uint16_t panic;
    bool has_health, has_outlier;
    uint32_t healthy, unhealthy;
    struct config_outlier outlier;
    uint64_t window_end; /* 0: none, there is no outlier detection */
    verdict_change on_change;
    void *ctx;
};

/* As `cfg` says, with what `old` (NULL: nothing) knew of the endpoints that are still there.
 * Endpoints that are new are untold everywhere. 0, or -ENOMEM and nothing to fini. */
int verdict_init(struct verdict_upstream *up, const struct config_upstream *cfg,
                 const struct verdict_upstream *old, uint64_t now, verdict_change on_change,
                 void *ctx);
void verdict_fini(struct verdict_upstream *up);

/* What the settings no longer allow for ends: to be called after verdict_init() with an old one. */
void verdict_settle(struct verdict_upstream *up);

/* NULL: none. */
struct verdict_endpoint *verdict_find(struct verdict_upstream *up, const struct endpoint_key *key);

/* A core's report about `ep`, whose key it has. */
void verdict_report(struct verdict_upstream *up, struct verdict_endpoint *ep,
                    const struct endpoint_report *r, uint64_t now);

/* All cores' tallies up to the end of the window are in: judges by rate and latency, and begins
 * the next window. */
void verdict_window(struct verdict_upstream *up, uint64_t now);

/* Brings back those whose ejection is over. */
void verdict_expire(struct verdict_upstream *up, uint64_t now);

/* When the next ejection ends; UINT64_MAX: there is none. */
uint64_t verdict_next_return(const struct verdict_upstream *up);

#endif
