#include "control/supervisor.h"

#include <errno.h>
#include <inttypes.h>
#include <linux/capability.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "control/budgets.h"
#include "control/certs.h"
#include "control/stalls.h"
#include "control/supervisor_impl.h"
#include "control/version.h"
#include "runtime/clock.h"

uint64_t supervisor_now(void)
{
    return clock_now_ns();
}

uint64_t supervisor_wall_now(void)
{
    return clock_now_ns() + (uint64_t)clock_wall_offset();
}

const char *supervisor_state_name(const struct supervisor *s)
{
    static const char *const names[] = {"starting", "running", "draining", "stopping", "ended"};

    return names[s->state];
}

static int fail(struct supervisor *s, const char *line)
{
    log_error(s->log, "%s", line);
    return 1;
}

/* --- events ------------------------------------------------------------------------------------
 */

static void on_signal(uv_signal_t *h, int signum)
{
    struct supervisor *s = h->data;

    switch (signum) {
    case SIGHUP:
        supervisor_reload(s, "SIGHUP", NULL, NULL);
        break;
    case SIGUSR1:
        log_reopen(s->log);
        break;
    case SIGTERM:
        if (s->state == RUN_SERVING)
            supervisor_drain(s, "SIGTERM", NULL);
        else if (s->state == RUN_DRAINING)
            supervisor_stop(s, "second SIGTERM");
        else
            supervisor_force(s, "another SIGTERM");
        break;
    case SIGINT:
        if (s->state == RUN_STOPPING)
            supervisor_force(s, "second SIGINT");
        else
            supervisor_stop(s, "SIGINT");
        break;
    }
}

static void on_source(void *ctx, enum source_event ev)
{
    struct supervisor *s = ctx;

    switch (ev) {
    case SOURCE_CHANGED:
        supervisor_reload(s, "it has changed", NULL, NULL);
        break;
    case SOURCE_GONE:
        log_warn(s->log, "%s is gone; version %" PRIu64 " goes on, a restart would fail",
                 s->source->name, s->publish.current->version);
        break;
    case SOURCE_BACK:
        log_info(s->log, "%s is back", s->source->name);
        break;
    }
}

/* The core's thread: no more than a wake-up. */
static void on_core_exit(void *ctx, unsigned index)
{
    struct supervisor *s = ctx;

    uv_async_send(&s->core_exit);
}

static void on_engine_log(void *ctx, enum config_log_level level, const char *source,
                          const char *line)
{
    struct supervisor *s = ctx;

    log_line(s->log, level, source, "%s", line);
}

static bool on_is_healthy(void *ctx)
{
    const struct supervisor *s = ctx;

    return s->state == RUN_SERVING;
}

/* Says all that is known first: the core dump is of a process whose other threads went on. */
_Noreturn static void abort_for(struct supervisor *s, unsigned stuck)
{
    struct stall_record r;
    char line[1024];

    for (unsigned i = 0; i < s->cores.n; i++) {
        watchdog_describe(&s->watchdog, i, supervisor_now(), line, sizeof(line));
        log_error(s->log, "%s", line);
    }
    if (watchdog_culprit(&s->watchdog, stuck, &r)) {
        stalls_frames_line(&r, line, sizeof(line));
        log_error(s->log, "core %u was at %s", stuck, line);
    }
    log_error(s->log, "core %u (cpu %u) has been stuck for 2 s: aborting", stuck,
              engine_core_cpu(s->engine, stuck));
    log_flush(s->log, 500);
    abort();
}

static void on_tick(uv_timer_t *h)
{
    struct supervisor *s = h->data;
    int stuck = watchdog_check(&s->watchdog, supervisor_now());

    atomic_store_explicit(&engine_shared(s->engine)->wall_offset, clock_wall_offset(),
                          memory_order_relaxed);
    publish_poll(&s->publish);
    supervisor_look_at_draining(s);
    supervisor_tick_tls(s);
    if (s->health_stale)
        supervisor_apply_health(s);
    if (stuck >= 0)
        abort_for(s, (unsigned)stuck);
    notify_feed(&s->notify);
}

/* --- start -------------------------------------------------------------------------------------
 */

static bool may_open_ports(void)
{
    struct __user_cap_header_struct h = {.version = _LINUX_CAPABILITY_VERSION_3};
    struct __user_cap_data_struct d[2];

    if (syscall(SYS_capget, &h, d))
        return geteuid() == 0;
    return (d[0].effective & (1u << CAP_NET_ADMIN)) != 0;
}

static int load_config(struct supervisor *s, struct config_errors *errs)
{
    struct config_host host = {.cpus = (unsigned)sysconf(_SC_NPROCESSORS_CONF),
                               .tls = certs_checker(true)};
    struct snapshot *base = NULL;
    char *text = NULL;
    size_t len;

    int e = s->source->ops->load(s->source, &text, &len, errs);
    if (!e)
        e = config_load_text(s->source->name, text, len, &host, &base, errs);
    if (!e)
        e = publish_init(&s->publish, base, text, len, supervisor_wall_now());
    s->publishing = e == 0;
    s->host.tls = certs_checker(false);
    s->publish.host = &s->host;
    free(text);
    return e;
}

static int start_config(struct supervisor *s)
{
    struct config_errors errs;

    config_errors_init(&errs);
    int e = load_config(s, &errs);
    for (unsigned i = 0; i < errs.count; i++)
        log_error(s->log, "%s", errs.list[i].text);
    if (errs.more)
        log_error(s->log, "... and %zu more", errs.more);
    config_errors_fini(&errs);
    if (e)
        return 1;
    const struct config_log *c = &s->publish.current->log;
    e = log_configure(s->log, c);
    if (e) {
        log_error(s->log, "log.access: can't open %s: %s", c->access, strerror(-e));
        return 1;
    }
    return 0;
}

static const char *socket_path(const struct supervisor *s)
{
    return s->o->socket ? s->o->socket : s->publish.current->admin.socket;
}

static int start_sockets(struct supervisor *s)
{
    struct metrics_opts mo = {.address = s->publish.current->admin.metrics,
                              .ask = supervisor_on_metrics,
                              .is_healthy = on_is_healthy,
                              .ctx = s};
    char err[512];

    if (socket_path(s) && admin_claim(socket_path(s), &s->lock, err, sizeof(err)))
        return fail(s, err);
    if (s->publish.current->admin.has_metrics &&
        metrics_new(&s->loop, &mo, &s->metrics, err, sizeof(err)))
        return fail(s, err);
    return 0;
}

static void log_budget(struct supervisor *s)
{
    char line[900];
    uint64_t need = budgets_total(s->publish.current), have = budgets_available();

    budgets_line(s->publish.current, line, sizeof(line));
    log_info(s->log, "%s", line);
    if (have && need > have)
        log_warn(s->log,
                 "the budget of %" PRIu64 " MiB is more than the %" PRIu64
                 " MiB this machine has free: lower runtime.connections or pool sizes "
                 "(millrace check --budget)",
                 need >> 20, have >> 20);
}

static int start_engine(struct supervisor *s)
{
    struct engine_opts o = {.log = on_engine_log, .on_core_exit = on_core_exit, .ctx = s};
    struct access_ring *rings[CONFIG_MAX_CORES];
    char err[512];

    if (engine_start(s->publish.current, &o, &s->engine, err, sizeof(err)))
        return fail(s, err);
    s->cores = cores_of_engine(s->engine);
    publish_set_cores(&s->publish, &s->cores);
    s->published_wall = supervisor_wall_now();
    s->last_reload_ok = true;
    watchdog_init(&s->watchdog, &s->cores);
    notify_init(&s->notify, &s->cores);
    drain_init(&s->drain, &s->cores);
    for (unsigned i = 0; i < s->cores.n; i++)
        rings[i] = core_access_ring(engine_core(s->engine, i));
    log_set_access_rings(s->log, rings, s->cores.n);
    return 0;
}

static int start_admin(struct supervisor *s)
{
    struct admin_opts o = {.path = socket_path(s), .on_request = supervisor_on_admin, .ctx = s};
    char err[512];

    int e = status_new(&s->loop, &s->cores, STATUS_WAIT_MS, &s->status);
    if (!e)
        e = conns_new(&s->loop, &s->cores, STATUS_WAIT_MS, &s->conns);
    if (e || supervisor_start_health(s) || supervisor_start_tls(s))
        return fail(s, "out of memory");
    if (o.path && admin_new(&s->loop, &o, &s->admin, err, sizeof(err)))
        return fail(s, err);
    return 0;
}

static void log_serving(struct supervisor *s)
{
    const struct snapshot *c = s->publish.current;

    for (size_t i = 0; i < c->nlisteners; i++) {
        const struct config_listener *l = &c->listeners[i];
        const uint8_t *b = (const uint8_t *)&l->address.addr;
        if (l->address.addr)
            log_info(s->log, "listener %s: %s on %u.%u.%u.%u:%u", l->name,
                     l->http ? "http" : "tunnel", b[0], b[1], b[2], b[3], l->address.port);
        else
            log_info(s->log, "listener %s: %s on port %u of every address", l->name,
                     l->http ? "http" : "tunnel", l->address.port);
    }
    if (s->admin)
        log_info(s->log, "admin socket %s", socket_path(s));
    if (s->metrics) {
        const uint8_t *b = (const uint8_t *)&c->admin.metrics.addr;
        log_info(s->log, "metrics on http://%u.%u.%u.%u:%u/metrics", b[0], b[1], b[2], b[3],
                 c->admin.metrics.port);
    }
    log_info(s->log, "millrace %s (%s) serves with %u %s, configuration %s", MILLRACE_VERSION,
             MILLRACE_BUILD, s->cores.n, s->cores.n == 1 ? "core" : "cores", c->path);
}

static int start(struct supervisor *s)
{
    int e = source_file_new(s->o->config, &s->source);

    if (!e)
        e = s->source->ops->watch(s->source, &s->loop, on_source, s);
    if (e) {
        log_error(s->log, "%s: %s", s->o->config, strerror(-e));
        return 1;
    }
    if (start_config(s))
        return 1;
    if (!may_open_ports())
        return fail(s, "opening ports needs root (CAP_NET_ADMIN): run millrace as root");
    if (start_sockets(s))
        return 1;
    log_budget(s);
    if (start_engine(s) || start_admin(s))
        return 1;
    s->state = RUN_SERVING;
    uv_timer_start(&s->tick, on_tick, TICK_MS, TICK_MS);
    log_serving(s);
    if (notify_is_hasty(&s->notify))
        log_warn(s->log, "WatchdogSec= is under 3 s: idle cores may be too slow for it");
    notify_ready(&s->notify, s->publish.current->version);
    return 0;
}

static int open_loop(struct supervisor *s)
{
    static const int numbers[SIGNALS] = {SIGHUP, SIGTERM, SIGINT, SIGUSR1};

    if (uv_loop_init(&s->loop))
        return fail(s, "can't start the event loop: out of memory or descriptors");
    s->loop_ready = true;
    uv_async_init(&s->loop, &s->core_exit, supervisor_on_core_exit);
    uv_timer_init(&s->loop, &s->tick);
    uv_timer_init(&s->loop, &s->ack_timer);
    uv_timer_init(&s->loop, &s->end_timer);
    uv_timer_init(&s->loop, &s->health_timer);
    uv_async_init(&s->loop, &s->health_wake, supervisor_on_health_wake);
    s->core_exit.data = s->tick.data = s->ack_timer.data = s->end_timer.data = s;
    s->health_timer.data = s->health_wake.data = s;
    for (unsigned i = 0; i < SIGNALS; i++) {
        uv_signal_init(&s->loop, &s->signals[i]);
        s->signals[i].data = s;
        uv_signal_start(&s->signals[i], on_signal, numbers[i]);
    }
    return 0;
}

/* --- end ---------------------------------------------------------------------------------------
 */

static void close_handles(struct supervisor *s)
{
    certs_free(s->certs);
    s->certs = NULL;
    free(s->cert_list);
    s->cert_list = NULL;
    s->ncert_list = 0;
    uv_close((uv_handle_t *)&s->core_exit, NULL);
    uv_close((uv_handle_t *)&s->tick, NULL);
    uv_close((uv_handle_t *)&s->ack_timer, NULL);
    uv_close((uv_handle_t *)&s->end_timer, NULL);
    uv_close((uv_handle_t *)&s->health_timer, NULL);
    uv_close((uv_handle_t *)&s->health_wake, NULL);
    for (unsigned i = 0; i < SIGNALS; i++)
        uv_close((uv_handle_t *)&s->signals[i], NULL);
}

/* Whoever asks gets an answer, then the doors close, then the cores go. */
static void finish(struct supervisor *s)
{
    supervisor_end_reloads(s);
    supervisor_end_asks(s);
    supervisor_end_conns(s);
    admin_close(s->admin);
    metrics_close(s->metrics);
    source_close(s->source);
    status_close(s->status);
    conns_close(s->conns);
    log_set_access_rings(s->log, NULL, 0);
    if (s->engine && engine_stop(s->engine, STOP_WAIT_MS)) {
        fail(s, "a core does not stop: leaving it behind");
        log_free(s->log);
        _exit(1); /* it may still use anything of ours */
    }
    uv_timer_stop(&s->health_timer);
    health_free(s->health);
    s->health = NULL;
    if (s->publishing)
        publish_fini(&s->publish);
    if (s->loop_ready) {
        close_handles(s);
        uv_run(&s->loop, UV_RUN_DEFAULT);
        uv_loop_close(&s->loop);
    }
    if (s->lock >= 0)
        close(s->lock);
}

int supervisor_run(const struct supervisor_opts *o)
{
    struct supervisor *s = calloc(1, sizeof(*s));

    if (!s || log_new(STDERR_FILENO, &s->log)) {
        fprintf(stderr, "millrace: out of memory\n");
        free(s);
        return 1;
    }
    s->o = o;
    s->lock = -1;
    s->started = supervisor_now();
    s->started_wall = supervisor_wall_now();
    list_init(&s->asks);
    list_init(&s->conns_waiters);
    list_init(&s->reloads);
    signal(SIGPIPE, SIG_IGN);

    s->exit_status = open_loop(s) || start(s);
    if (!s->exit_status)
        uv_run(&s->loop, UV_RUN_DEFAULT);
    finish(s);
    if (s->state == RUN_ENDED)
        log_info(s->log, "ended");
    log_free(s->log);
    int status = s->exit_status;
    free(s);
    return status;
}
