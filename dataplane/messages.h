/* What control and the cores say to each other.
 *
 * Control posts to a core's mailbox; the core answers by finishing the message (msg_done): an
 * atomic flag plus a wake-up of control's loop. A message belongs to its sender before posting and
 * after it is done, to the core in between. Nothing here allocates.
 */
#ifndef MILLRACE_DATAPLANE_MESSAGES_H
#define MILLRACE_DATAPLANE_MESSAGES_H

#include <stdatomic.h>
#include <stdint.h>

#include "config/snapshot.h"
#include "dataplane/net/net.h"
#include "dataplane/port/port.h"
#include "dataplane/proxy/conn_info.h"
#include "dataplane/proxy/turned_away.h"
#include "dataplane/tcp/tcp.h"
#include "dataplane/tls/tls.h"
#include "dataplane/upstream/endpoint_state.h"
#include "runtime/hist.h"
#include "runtime/mailbox.h"
#include "runtime/sched.h"

struct core;
struct misbehaviour;

enum core_msg_kind {
    CORE_MSG_STATUS, /* fill `status` */
    CORE_MSG_DRAIN,  /* stop accepting, close idle connections, finish exchanges until `deadline` */
    CORE_MSG_STOP,   /* abort everything and leave the loop */
    CORE_MSG_CONNS,  /* fill `conns` */
#ifdef MILLRACE_DEBUG_VERBS
    CORE_MSG_MISBEHAVE, /* start `misbehaviour` (misbehave.h); done at once */
#endif
    CORE_MSG_WATCH, /* kept until there is news about endpoints, which fills `reports`: a probe has
                       ended, requests fail one after the other */
    CORE_MSG_TALLY, /* fill `reports` with what requests found since the last report */
    CORE_MSG_ENDPOINTS, /* take over `updates` */
};

/* Counters of one listener or upstream on one core; also the sums over cores. */
struct listener_stats {
    char name[64];
    struct config_addr address;
    bool draining; /* gone from the configuration, with connections left */
    uint64_t accepted, refused, requests, bytes_in, bytes_out;
    uint64_t denied, limited, rate_limited;
    uint64_t status[6]; /* by class: [2] is 2xx */
    uint64_t turned_away[TURNED_AWAY_COUNT];
    uint32_t conns; /* now */
};

struct upstream_stats {
    char name[64];
    uint64_t requests, attempts, connects, connect_failed, reused, responses, resets, timeouts;
    uint64_t bytes_in, bytes_out;
    uint64_t no_endpoint, pool_waits, pool_timeout;
    uint64_t retries, no_budget; /* retries decided, and those that the budget didn't allow */
    uint64_t queue_waits, queue_full, queue_timeout, queue_shed, no_time;
    uint32_t in_flight, queued; /* requests that hold a permit, or wait for one, now */
    uint32_t requests_limit, connections_limit, queue_limit;
    uint32_t budget_left;    /* whole retries: the core's own, and on core 0 those of all */
    uint32_t active, idle;   /* connections now */
    uint32_t used;           /* endpoints that requests may go to now */
    uint32_t panic, backups; /* 0 or 1, why these: see struct balance */
};

struct endpoint_stats {
    uint16_t upstream; /* index of its upstream in core_status.upstreams */
    uint16_t port;     /* host order */
    uint32_t addr;     /* network order */
    bool probed;       /* by this core, and a probe has ended */
    uint8_t probe;     /* enum probe_result of that */
    uint32_t weight;
    uint32_t healthy, ejected, backup, used; /* 0 or 1 */
    uint32_t active, idle, waiting; /* connections in use and not; requests that wait for one */
    uint64_t picks, failures, connects, reused;
    uint64_t ejections; /* the same on every core */
};

#define STATUS_MAX_LISTENERS 64
#define STATUS_MAX_UPSTREAMS 256
#define STATUS_MAX_ENDPOINTS 1024

struct core_status {
    unsigned core; /* index */
    unsigned cpu;
    uint64_t now, passes, busy_passes, busy_tsc, total_tsc, tsc_hz;
    uint64_t snapshot_version;
    struct sched_stats sched;
    struct sched_kind kinds[SCHED_KINDS]; /* of tasks */
    unsigned nkinds;
    struct hist poll_ns, pass_ns;
    uint64_t timers; /* armed now */
    /* Of sched.live and timers: the core's own housekeeping, there as long as the core is. */
    uint32_t tasks_permanent, timers_permanent;
    struct net_stats net;
    struct tcp_stats tcp;
    struct tls_stats tls;
    uint64_t handoff_out, handoff_in, handoff_full;
    uint64_t access_log_dropped;
    uint64_t limits_forgotten, limits_untracked; /* struct client_limits */
    uint32_t rope_nodes, mbufs_avail, mbufs_total;
    uint32_t clients, exchanges, tunnels; /* live objects of the proxy */
    struct listener_stats listeners[STATUS_MAX_LISTENERS];
    unsigned nlisteners;
    struct upstream_stats upstreams[STATUS_MAX_UPSTREAMS];
    unsigned nupstreams;
    struct endpoint_stats endpoints[STATUS_MAX_ENDPOINTS];
    unsigned nendpoints;
};

struct core_msg {
    struct mailbox_item item;
    enum core_msg_kind kind;
    uint64_t deadline;                     /* CORE_MSG_DRAIN: monotonic ns */
    struct core_status *status;            /* CORE_MSG_STATUS */
    struct conns_page *conns;              /* CORE_MSG_CONNS */
    struct misbehaviour *misbehaviour;     /* CORE_MSG_MISBEHAVE */
    struct endpoint_report *reports;       /* CORE_MSG_WATCH, _TALLY: room for max_reports */
    unsigned max_reports, nreports;        /* as many as there is room for: there may be more */
    const struct endpoint_update *updates; /* CORE_MSG_ENDPOINTS */
    unsigned nupdates;
    unsigned missed; /* of them, about endpoints that this core doesn't know (yet) */
    void (*done)(struct core_msg *m); /* called on the core's thread when it is finished: set an
                                         atomic and uv_async_send, no more */
    void *ctx;
    struct core *core_; /* set by core_post() */
};

#endif
