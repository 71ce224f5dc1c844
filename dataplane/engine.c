#include "dataplane/engine.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <time.h>

#include <rte_version.h>

#include "dataplane/port/eal.h"
#include "dataplane/proxy/access_log.h"
#include "dataplane/route/limit.h"
#include "runtime/blocking.h"
#include "runtime/clock.h"
#include "runtime/sampler.h"

#define TRAFFIC_MBUFS_MIN 4096u /* a core; what is in flight, beside the drivers' rings */
#define TRAFFIC_MBUFS_MAX 16384u
#define MBUF_PAYLOAD      2048u
#define TABLES_MEMORY     (16ull << 20) /* rings and what else is small */
#define HANDOFF_SIZE      1024u
#define POOL_SPIN_NS      20000u /* a parked thread takes longer to wake than most jobs to run */

/* DPDK may log until the process ends, so this stays when the engine goes; muted then. */
struct engine_log {
    void (*fn)(void *ctx, enum config_log_level level, const char *source, const char *line);
    void *ctx;
    atomic_bool muted;
};

struct engine_thread {
    struct engine *engine;
    struct core *core;
    unsigned index, cpu;
    bool started;
    atomic_bool running; /* release by the core's thread at its end, acquire by control */
    pthread_t thread;
    struct core_msg stop;
};

struct engine {
    struct core_shared shared;
    struct core *cores[CONFIG_MAX_CORES];
    struct engine_thread threads[CONFIG_MAX_CORES];
    struct port *ports[NET_MAX_IFS];
    unsigned nports;
    struct engine_log *log;
    struct sampler *sampler;
    void (*on_core_exit)(void *ctx, unsigned index);
    void *ctx;
    bool eal;
};

static int set_error(char *err, size_t err_len, int e, const char *text)
{
    snprintf(err, err_len, "%s", text);
    return e;
}

/* --- sizes -------------------------------------------------------------------------------------
 */

/* Queues over the number of cores would be polled by nobody. */
static uint16_t port_queues(const struct config_port *p, unsigned ncores)
{
    unsigned n = p->queues ? p->queues : p->driver == CONFIG_VETH ? 1 : ncores;

    return (uint16_t)(n < ncores ? n : ncores);
}

/* Mbufs for what is queued and in flight on one core: full buffers of every connection, within
 * limits; beyond that TCP's watermarks close the windows. */
static uint32_t traffic_mbufs(const struct snapshot *s)
{
    uint64_t bytes =
        s->runtime.connections * (s->runtime.memory_rcv_buf + s->runtime.memory_snd_buf);
    uint64_t n = bytes / MBUF_PAYLOAD;

    n = n < TRAFFIC_MBUFS_MIN ? TRAFFIC_MBUFS_MIN : n > TRAFFIC_MBUFS_MAX ? TRAFFIC_MBUFS_MAX : n;
    return (uint32_t)n + 2 * EAL_MBUF_CACHE;
}

/* All cores' traffic, divided among the ports: one pool serves all of them. */
static uint32_t port_traffic(const struct snapshot *s)
{
    return traffic_mbufs(s) * s->runtime.ncores / (uint32_t)(s->nports ? s->nports : 1);
}

static uint32_t port_mbufs(const struct snapshot *s, const struct config_port *p)
{
    uint32_t rings = port_ring_mbufs(p, port_queues(p, s->runtime.ncores));

    return p->pool_size ? p->pool_size : rings + port_traffic(s);
}

static uint32_t pool_size(const struct snapshot *s)
{
    uint32_t n = 0;

    for (size_t i = 0; i < s->nports; i++)
        n += port_mbufs(s, &s->ports[i]);
    return n;
}

static int check_sizes(const struct snapshot *s, char *err, size_t err_len)
{
    if (s->nports > NET_MAX_IFS) {
        snprintf(err, err_len, "ports: at most %u, not %zu", NET_MAX_IFS, s->nports);
        return -E2BIG;
    }
    for (size_t i = 0; i < s->nports; i++) {
        const struct config_port *p = &s->ports[i];
        uint32_t least = port_ring_mbufs(p, port_queues(p, s->runtime.ncores)) +
                         s->runtime.ncores * 4 * EAL_MBUF_CACHE;
        if (port_mbufs(s, p) < least) {
            snprintf(err, err_len,
                     "ports[%s].pool_size: %u mbufs are too few: the driver's rings and %u core%s "
                     "need at least %u",
                     p->name, p->pool_size, s->runtime.ncores, s->runtime.ncores == 1 ? "" : "s",
                     least);
            return -EINVAL;
        }
    }
    return 0;
}

static uint64_t mbuf_bytes(void)
{
    return eal_mbuf_pool_bytes(65536) / 65536;
}

__attribute__((format(printf, 5, 6))) static void add_cost(struct engine_cost *c, const char *what,
                                                           uint64_t count, uint64_t each,
                                                           const char *setting, ...)
{
    va_list ap;

    snprintf(c->what, sizeof(c->what), "%s", what);
    va_start(ap, setting);
    vsnprintf(c->setting, sizeof(c->setting), setting, ap);
    va_end(ap);
    c->count = count;
    c->each = each;
}

/* Of all Maglev tables; the cores share them. */
static uint64_t hash_places(const struct snapshot *s)
{
    uint64_t n = 0;

    for (size_t i = 0; i < s->nupstreams; i++)
        n += s->upstreams[i].hash.table ? s->upstreams[i].hash.size : 0;
    return n;
}

unsigned engine_costs(const struct snapshot *s, struct engine_cost costs[ENGINE_MAX_COSTS])
{
    unsigned n = 0, cores = s->runtime.ncores;
    char what[96];

    for (size_t i = 0; i < s->nports && i < NET_MAX_IFS; i++) {
        const struct config_port *p = &s->ports[i];
        uint32_t all = port_mbufs(s, p), rings = port_ring_mbufs(p, port_queues(p, cores));
        snprintf(what, sizeof(what), "mbufs in %s's rings", p->name);
        add_cost(&costs[n++], what, rings < all ? rings : all, mbuf_bytes(), "ports[%s].queues",
                 p->name);
        snprintf(what, sizeof(what), "mbufs for %s's traffic", p->name);
        add_cost(&costs[n++], what, rings < all ? all - rings : 0, mbuf_bytes(),
                 "ports[%s].pool_size", p->name);
    }
    add_cost(&costs[n++], "TCP connections", (uint64_t)s->runtime.connections * cores,
             tcp_conn_size(), "runtime.connections");
    add_cost(&costs[n++], "access records", (uint64_t)s->log.access_buffer * cores,
             sizeof(struct access_record), "log.access_buffer");
    if (hash_places(s))
        add_cost(&costs[n++], "places in hash tables", hash_places(s), sizeof(uint16_t),
                 "upstreams[].hash.table");
    add_cost(&costs[n++], "clients with limits", s->runtime.tracked_clients, LIMIT_CLIENT_BYTES,
             "runtime.tracked_clients");
    return n;
}

/* --- start -------------------------------------------------------------------------------------
 */

static void on_log(void *ctx, enum config_log_level level, const char *line)
{
    struct engine_log *l = ctx;

    if (l->fn && !atomic_load_explicit(&l->muted, memory_order_acquire))
        l->fn(l->ctx, level, "dpdk", line);
}

static void engine_say(struct engine *e, const char *line)
{
    if (e->log->fn)
        e->log->fn(e->log->ctx, CONFIG_LOG_INFO, "engine", line);
}

static int start_eal(struct engine *e, const struct snapshot *s, char *err, size_t err_len)
{
    struct eal_opts o = {
        .memory = eal_mbuf_pool_bytes(pool_size(s)) + TABLES_MEMORY,
        .ports = s->ports,
        .nports = s->nports,
        .log = on_log,
        .log_ctx = e->log,
    };
    struct eal_info info;
    struct port_error pe = {""};

    int r = eal_start(&o, &info, &pe);
    if (r)
        return set_error(err, err_len, r, pe.text);
    e->eal = true;
    engine_say(e, info.text);
    e->shared.mbufs = eal_mbuf_pool_new("mbufs", pool_size(s), &pe);
    return e->shared.mbufs ? 0 : set_error(err, err_len, -ENOMEM, pe.text);
}

static int open_ports(struct engine *e, const struct snapshot *s, char *err, size_t err_len)
{
    struct port_error pe = {""};

    for (size_t i = 0; i < s->nports; i++) {
        const struct config_port *p = &s->ports[i];
        int r = port_open(p, port_queues(p, s->runtime.ncores), e->shared.mbufs,
                          &e->ports[e->nports], &pe);
        if (r)
            return set_error(err, err_len, r, pe.text);
        e->nports++;
    }
    return 0;
}

static int random_bytes(void *to, size_t n)
{
    return getrandom(to, n, 0) == (ssize_t)n ? 0 : -EIO;
}

/* Beside the cores where there is room: a pool's thread on a core's CPU takes its time. */
static void pool_cpus(const struct snapshot *s, cpu_set_t *ret_cpus)
{
    cpu_set_t all;
    if (sched_getaffinity(0, sizeof(all), &all) < 0)
        CPU_ZERO(&all);
    *ret_cpus = all;
    for (unsigned i = 0; i < s->runtime.ncores; i++)
        CPU_CLR(s->runtime.cores[i], ret_cpus);
    if (CPU_COUNT(ret_cpus) == 0)
        *ret_cpus = all;
}

static int start_pool(struct engine *e, const struct snapshot *s, char *err, size_t err_len)
{
    const struct blocking_class classes[CORE_JOBS_COUNT] = {
        [CORE_JOBS_HANDSHAKE] = {.name = "tls_handshake",
                                 .max_running = s->runtime.tls_handshakes,
                                 .max_queued = s->runtime.tls_queue},
    };
    cpu_set_t cpus;
    struct blocking_opts o = {
        .threads = s->runtime.blocking_threads,
        .classes = classes,
        .nclasses = CORE_JOBS_COUNT,
        .spin_ns = POOL_SPIN_NS,
        .cpus = &cpus,
    };

    pool_cpus(s, &cpus);
    int r = blocking_new(&o, &e->shared.pool);
    return r ? set_error(err, err_len, r, "can't start the blocking pool: the process limit?") : 0;
}

static int make_cores(struct engine *e, struct snapshot *s, uint64_t seed, char *err,
                      size_t err_len)
{
    struct core_opts o = {
        .shared = &e->shared,
        .ports = e->ports,
        .nports = e->nports,
        .busy = s->runtime.poll == CONFIG_POLL_BUSY,
        .handoff_size = HANDOFF_SIZE,
    };

    if ((!seed && random_bytes(&seed, sizeof(seed))) ||
        random_bytes(e->shared.secret, sizeof(e->shared.secret)))
        return set_error(err, err_len, -EIO, "the kernel gives no random numbers");
    e->shared.limits = limit_table_new(s->runtime.tracked_clients, e->shared.secret);
    if (!e->shared.limits)
        return set_error(err, err_len, -ENOMEM, "not enough memory for runtime.tracked_clients");
    e->shared.cores = e->cores;
    e->shared.ncores = s->runtime.ncores;
    int r = core_prepare(&e->shared, s, err, err_len);
    if (r)
        return r;
    core_publish(&e->shared, s);
    atomic_store_explicit(&e->shared.wall_offset, clock_wall_offset(), memory_order_relaxed);
    for (unsigned i = 0; i < s->runtime.ncores; i++) {
        o.index = i;
        o.cpu = s->runtime.cores[i];
        o.seed = seed + i * 0x9e3779b97f4a7c15ull;
        o.now = clock_now_ns();
        e->cores[i] = core_new(&o);
        if (!e->cores[i])
            return set_error(err, err_len, -ENOMEM,
                             "not enough memory for a core: lower runtime.connections "
                             "(millrace check --budget shows what each setting costs)");
    }
    return 0;
}

static void *core_main(void *arg)
{
    struct engine_thread *t = arg;
    struct engine *e = t->engine;
    char name[16];

    snprintf(name, sizeof(name), "core/%u", t->index);
    pthread_setname_np(pthread_self(), name);
    core_run(t->core);
    atomic_store_explicit(&t->running, false, memory_order_release);
    if (e->on_core_exit)
        e->on_core_exit(e->ctx, t->index);
    return NULL;
}

/* Signals are control's business: core threads take none. */
static int start_threads(struct engine *e, const struct snapshot *s, char *err, size_t err_len)
{
    sigset_t all, before;
    int r = sampler_new(&e->sampler);

    if (!r)
        r = sampler_start(e->sampler);
    if (r)
        return set_error(err, err_len, r, "can't start the sampler's thread: the process limit?");
    e->shared.sampler = e->sampler;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    for (unsigned i = 0; i < e->shared.ncores && !r; i++) {
        struct engine_thread *t = &e->threads[i];
        t->engine = e;
        t->core = e->cores[i];
        t->index = i;
        t->cpu = s->runtime.cores[i];
        atomic_store_explicit(&t->running, true, memory_order_relaxed);
        r = pthread_create(&t->thread, NULL, core_main, t);
        t->started = r == 0;
        if (r)
            atomic_store_explicit(&t->running, false, memory_order_relaxed);
    }
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return r ? set_error(err, err_len, -r, "can't start a core's thread: the process limit?") : 0;
}

static struct engine *engine_alloc(const struct engine_opts *o)
{
    struct engine *e = aligned_alloc(64, (sizeof(*e) + 63) & ~(size_t)63);
    struct engine_log *l = calloc(1, sizeof(*l));

    if (!e || !l) {
        free(e);
        free(l);
        return NULL;
    }
    memset(e, 0, sizeof(*e));
    e->log = l;
    l->fn = o->log;
    l->ctx = o->ctx;
    e->on_core_exit = o->on_core_exit;
    e->ctx = o->ctx;
    return e;
}

int engine_start(struct snapshot *s, const struct engine_opts *o, struct engine **ret_engine,
                 char *err, size_t err_len)
{
    int r = check_sizes(s, err, err_len);
    struct engine *e;

    if (r)
        return r;
    e = engine_alloc(o);
    if (!e)
        return set_error(err, err_len, -ENOMEM, "out of memory");
    r = start_eal(e, s, err, err_len);
    if (!r)
        r = open_ports(e, s, err, err_len);
    if (!r)
        r = start_pool(e, s, err, err_len);
    if (!r)
        r = make_cores(e, s, o->seed, err, err_len);
    if (!r)
        r = start_threads(e, s, err, err_len);
    if (r) {
        engine_stop(e, 1000);
        return r;
    }
    *ret_engine = e;
    return 0;
}

/* --- stop --------------------------------------------------------------------------------------
 */

static void on_stopped(struct core_msg *m)
{
    (void)m;
}

static int join(struct engine *e, unsigned timeout_ms)
{
    struct timespec until;
    int r = 0;

    for (unsigned i = 0; i < e->shared.ncores; i++) {
        struct engine_thread *t = &e->threads[i];
        if (!t->started || !engine_core_is_running(e, i))
            continue;
        t->stop.kind = CORE_MSG_STOP;
        t->stop.done = on_stopped;
        core_post(t->core, &t->stop);
    }
    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_sec += timeout_ms / 1000;
    until.tv_nsec += (long)(timeout_ms % 1000) * 1000000;
    if (until.tv_nsec >= 1000000000) {
        until.tv_sec++;
        until.tv_nsec -= 1000000000;
    }
    for (unsigned i = 0; i < e->shared.ncores && !r; i++)
        if (e->threads[i].started)
            r = pthread_timedjoin_np(e->threads[i].thread, NULL, &until);
    return r ? -ETIMEDOUT : 0;
}

int engine_stop(struct engine *e, unsigned timeout_ms)
{
    if (join(e, timeout_ms))
        return -ETIMEDOUT;
    sampler_free(e->sampler);
    if (e->shared.pool)
        blocking_stop(e->shared.pool, BLOCKING_RETURN);
    for (unsigned i = 0; i < e->shared.ncores; i++)
        if (e->cores[i])
            core_free(e->cores[i]);
    blocking_free(e->shared.pool);
    core_shared_fini(&e->shared);
    limit_table_free(e->shared.limits);
    while (e->nports > 0)
        port_close(e->ports[--e->nports]);
    rte_mempool_free(e->shared.mbufs);
    if (e->eal)
        eal_stop();
    atomic_store_explicit(&e->log->muted, true, memory_order_release);
    free(e);
    return 0;
}

/* --- access ------------------------------------------------------------------------------------
 */

struct core_shared *engine_shared(struct engine *e)
{
    return &e->shared;
}

unsigned engine_ncores(const struct engine *e)
{
    return e->shared.ncores;
}

struct blocking *engine_pool(struct engine *e)
{
    return e->shared.pool;
}

struct core *engine_core(struct engine *e, unsigned index)
{
    return e->cores[index];
}

unsigned engine_core_cpu(const struct engine *e, unsigned index)
{
    return e->threads[index].cpu;
}

bool engine_core_is_running(const struct engine *e, unsigned index)
{
    return atomic_load_explicit(&e->threads[index].running, memory_order_acquire);
}

unsigned engine_nports(const struct engine *e)
{
    return e->nports;
}

void engine_port_info(const struct engine *e, unsigned index, struct port_info *ret_info)
{
    e->ports[index]->ops->info(e->ports[index], ret_info);
}

void engine_port_counters(const struct engine *e, unsigned index, struct port_counters *ret)
{
    memset(ret, 0, sizeof(*ret));
    e->ports[index]->ops->counters(e->ports[index], ret);
}

const char *engine_dpdk_version(void)
{
    const char *v = rte_version(); /* "DPDK 22.11.11" */

    return strncmp(v, "DPDK ", 5) == 0 ? v + 5 : v;
}
