/* What the supervisor's files share: its state. For control/supervisor*.c only. */
#ifndef MILLRACE_CONTROL_SUPERVISOR_IMPL_H
#define MILLRACE_CONTROL_SUPERVISOR_IMPL_H

#include <uv.h>

#include "control/admin.h"
#include "control/conns.h"
#include "control/cores.h"
#include "control/drain.h"
#include "control/health.h"
#include "control/log.h"
#include "control/metrics.h"
#include "control/notify.h"
#include "control/process_info.h"
#include "control/publish.h"
#include "control/status.h"
#include "control/supervisor.h"
#include "control/source.h"
#include "control/watchdog.h"

#define TICK_MS        500
#define ACK_POLL_MS    10
#define ACK_WAIT_NS    3000000000ull
#define STOP_WAIT_MS   3000
#define DRAIN_GRACE_MS 1000
#define STATUS_WAIT_MS 1000

enum run_state { RUN_STARTING, RUN_SERVING, RUN_DRAINING, RUN_STOPPING, RUN_ENDED };

enum { SIG_HUP, SIG_TERM, SIG_INT, SIG_USR1, SIGNALS };

struct supervisor {
    const struct supervisor_opts *o;
    uv_loop_t loop;
    struct log *log;
    enum run_state state;
    int exit_status;
    uint64_t started, started_wall; /* ns */

    struct engine *engine;
    struct cores cores;
    struct publish publish;
    struct config_host host; /* for what is loaded while it runs */
    bool publishing;         /* publish is set up */
    uint64_t published_wall;
    bool last_reload_ok;

    struct config_source *source;
    struct watchdog watchdog;
    struct notify notify;
    struct drain drain;
    struct health *health;
    struct certs *certs;
    struct process_cert *cert_list; /* of the configuration that runs; texts are its contexts' */
    size_t ncert_list;
    uint64_t tickets_at; /* ns: when the process's own ticket keys were made */
    bool health_stale;   /* it has not taken in the configuration that runs, for want of memory */
    struct status *status;
    struct conns *conns;
    struct list_node conns_waiters; /* struct conns_waiter */
    struct status_request nudge;    /* a question whose answer nobody needs wakes sleeping cores */
    struct status_request drained;  /* have draining listeners become empty? */
    struct admin *admin;
    struct metrics *metrics;
    int lock; /* of the admin socket; -1: none */

    uv_signal_t signals[SIGNALS];
    uv_timer_t tick, ack_timer, end_timer, health_timer;
    uv_async_t core_exit, health_wake;
    struct list_node asks;    /* struct ask: status for admin or metrics */
    struct list_node reloads; /* struct reload_wait */
    struct admin_request *drainer[ADMIN_MAX_CLIENTS + 1]; /* who waits for the drain's end */
    unsigned ndrainers;
    bool loop_ready;
};

/* supervisor_ask.c: the admin socket's and the metrics address' questions. */
void supervisor_on_admin(void *ctx, const struct admin_call *call, struct admin_request *r);
void supervisor_on_metrics(void *ctx, struct metrics_request *r);
/* Answers whoever still waits, before the sockets close. */
void supervisor_end_asks(struct supervisor *s);

/* supervisor_conns.c: the list of connections. */
void supervisor_conns(struct supervisor *s, const struct admin_call *call, struct admin_request *r);
void supervisor_end_conns(struct supervisor *s);

/* supervisor_reload.c: changes of the configuration. `call` gives the options, NULL: none. */
void supervisor_reload(struct supervisor *s, const char *why, const struct admin_call *call,
                       struct admin_request *r);
void supervisor_rollback(struct supervisor *s, const struct admin_call *call,
                         struct admin_request *r);
void supervisor_upstream(struct supervisor *s, const struct admin_call *call,
                         struct admin_request *r);
/* Each tick: lets go of listeners that have drained. */
void supervisor_look_at_draining(struct supervisor *s);
void supervisor_end_reloads(struct supervisor *s);
void supervisor_on_ack_timer(uv_timer_t *h);

/* An idle core looks for a new configuration once a second; this makes it look now. */
void supervisor_nudge_cores(struct supervisor *s);

/* supervisor_tls.c: certificates and the other files of TLS listeners. */
int supervisor_start_tls(struct supervisor *s); /* not 0: no memory */
/* A configuration has been published. */
void supervisor_apply_tls(struct supervisor *s);
void supervisor_tick_tls(struct supervisor *s);

/* supervisor_health.c */
int supervisor_start_health(struct supervisor *s); /* not 0: no memory */
/* A configuration has been published. */
void supervisor_apply_health(struct supervisor *s);
void supervisor_on_health_timer(uv_timer_t *h);
void supervisor_on_health_wake(uv_async_t *h);

/* supervisor_end.c: draining and stopping. */
void supervisor_drain(struct supervisor *s, const char *why, struct admin_request *r);
void supervisor_stop(struct supervisor *s, const char *why);
/* Now, whatever still runs; exit status 1. */
void supervisor_force(struct supervisor *s, const char *why);
void supervisor_on_core_exit(uv_async_t *h);

#ifdef MILLRACE_DEBUG_VERBS
/* supervisor_debug.c: has a core misbehave. */
void supervisor_misbehave(struct supervisor *s, const struct admin_call *call,
                          struct admin_request *r);
#endif

uint64_t supervisor_now(void);      /* monotonic ns */
uint64_t supervisor_wall_now(void); /* ns */
const char *supervisor_state_name(const struct supervisor *s);

#endif
