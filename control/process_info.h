/* What there is to say about the process beside its cores: for status and metrics. */
#ifndef MILLRACE_CONTROL_PROCESS_INFO_H
#define MILLRACE_CONTROL_PROCESS_INFO_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "config/overrides.h"
#include "control/history.h"
#include "control/log.h"
#include "dataplane/core.h"
#include "dataplane/messages.h"
#include "runtime/blocking.h"

struct process_port {
    const char *name, *device;
    struct port_info info;
    struct port_counters counters;
};

/* A certificate of a listener that runs. */
struct process_cert {
    const char *listener, *file, *name, *type;
    int64_t not_after; /* seconds since 1970 */
};

struct process_info {
    const char *version, *build, *dpdk, *state; /* state: "running", "draining" … */
    const char *config_path;
    int pid;
    uint64_t uptime_ns, started_wall_ns;
    uint64_t config_version, config_loaded_wall_ns;
    uint64_t reloads, reloads_refused;
    bool last_reload_ok;
    unsigned old_versions; /* configurations that a core still holds on to */
    const struct config_overrides *overrides;
    const struct snapshot *base; /* what it would be without the overrides */
    const struct history *history;
    struct log_stats log;
    const struct config_listener *listeners, *draining; /* for their kinds */
    size_t nlisteners, ndraining;
    const struct process_cert *certs;
    size_t ncerts;
    struct blocking_stats pool[CORE_JOBS_COUNT]; /* by class */
    unsigned npool;
    unsigned nports;
    struct process_port ports[NET_MAX_IFS];
};

#endif
