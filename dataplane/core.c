#include "dataplane/core.h"

#include <assert.h>
#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <rte_pause.h>

#include "dataplane/core_private.h"
#include "dataplane/misbehave.h"
#include "dataplane/port/eal.h"
#include "dataplane/tls/registry.h"
#include "dataplane/upstream/shared.h"
#include "runtime/clock.h"
#include "runtime/sampler.h"
#include "runtime/trap.h"

#define MAILBOX_PASS   64            /* items delivered a pass */
#define LOOK_AGAIN_NS  20000ull      /* a pass as young as that has seen all that has come */
#define SPIN_GATHERS   4             /* looks without a frame before a core sleeps */
#define SLEEP_MAX_NS   1000000000ull /* the watchdog looks for progress */
#define SLEEP_BLIND_NS 1000000ull    /* where there is nothing to sleep on */
#define APPLY_RETRY_NS 100000000ull
#define MBUF_LOW_SHARE 16 /* of the pool, under which windows shrink */
#define MBUF_LOW_MOST  4

struct core_io *core_io_of(struct core *c)
{
    return &c->io;
}

/* The low mark, whose last quarter no payload gets (tcp_opts): from it each queue receives two
 * bursts of ACKs, and each core answers one. A small pool may have less to spare. */
static uint32_t mbuf_low(const struct core_opts *o)
{
    uint32_t size = o->shared->mbufs->size, ncores = o->shared->ncores;
    uint32_t need = (2 * o->nports + 1) * IO_BURST * ncores;
    uint32_t low = 4 * need < size / MBUF_LOW_MOST ? 4 * need : size / MBUF_LOW_MOST;
    return low > size / MBUF_LOW_SHARE ? low : size / MBUF_LOW_SHARE;
}

static int init_stack(struct core *c, const struct core_opts *o, const struct snapshot *s)
{
    struct rte_mempool *mbufs = o->shared->mbufs;
    struct net_opts no = {.sched = &c->sched, .mbufs = mbufs, .seed = o->seed};
    c->net = net_new(&no);
    if (!c->net)
        return -ENOMEM;
    struct tcp_opts to = {
        .sched = &c->sched,
        .net = c->net,
        .ropes = &c->ropes,
        .mbufs = mbufs,
        .seed = o->seed ^ 0x746370,
        .core = (uint16_t)o->index,
        .cores = (uint16_t)o->shared->ncores,
        .max_conns = s->runtime.connections,
        .rcv_buf = (uint32_t)s->runtime.memory_rcv_buf,
        .snd_buf = (uint32_t)s->runtime.memory_snd_buf,
        .mbuf_low = mbuf_low(o),
    };
    memcpy(to.secret, o->shared->secret, sizeof(to.secret));
    c->tcp = tcp_new(&to);
    return c->tcp ? 0 : -ENOMEM;
}

/* In a pass that has been at work for a while a FIN may have come in that concerns a pooled
 * connection: one more look is enough for all that the pass takes from the pools. */
static void receive_again(void *ctx)
{
    struct core *c = ctx;
    if (c->received_again || clock_tsc() < c->look_again_tsc)
        return;
    c->received_again = true;
    io_receive(&c->io);
}

static void on_endpoint_news(void *ctx)
{
    struct core *c = ctx;
    c->news = true;
}

/* The secret is random, the seed and the index make it this core's. */
static void make_key(const struct core_opts *o, uint8_t key[CSPRNG_KEY])
{
    uint64_t own[2] = {o->seed, o->index};
    memcpy(key, o->shared->secret, sizeof(o->shared->secret));
    memcpy(key + sizeof(o->shared->secret), own, sizeof(own));
}

static int init_proxy(struct core *c, const struct core_opts *o, const struct snapshot *s)
{
    struct tls_opts to = {
        .sched = &c->sched,
        .ropes = &c->ropes,
        .mailbox = &c->mailbox,
        .pool = o->shared->pool,
        .class = CORE_JOBS_HANDSHAKE,
        .core = o->index,
    };
    c->log = access_ring_new(s->log.access_buffer);
    c->tls = tls_new(&to);
    if (!c->log || !c->tls)
        return -ENOMEM;
    struct proxy_opts po = {
        .sched = &c->sched,
        .tcp = c->tcp,
        .ropes = &c->ropes,
        .log = c->log,
        .mailbox = &c->mailbox,
        .tls = c->tls,
        .limits = o->shared->limits,
        .seed = o->seed ^ 0x70726f7879,
        .core = o->index,
        .cores = o->shared->ncores,
        .receive = receive_again,
        .on_report = on_endpoint_news,
        .ctx = c,
    };
    make_key(o, po.key);
    c->proxy = proxy_new(&po);
    if (!c->proxy)
        return -ENOMEM;
    return proxy_apply(c->proxy, s);
}

static int init_all(struct core *c, const struct core_opts *o, const struct snapshot *s)
{
    int err = init_stack(c, o, s);
    if (!err)
        err = io_init(&c->io, o, s);
    if (err)
        return err;
    c->io.net = c->net;
    c->io.tcp = c->tcp;
    for (unsigned i = 0; i < c->io.nports && !err; i++)
        err = net_add_if(c->net, &c->io.ports[i].nif, c->io.ports[i].has_queue && o->index == 0);
    return err ? err : init_proxy(c, o, s);
}

struct core *core_new(const struct core_opts *o)
{
    struct core *c = aligned_alloc(64, (sizeof(*c) + 63) & ~(size_t)63);
    if (!c)
        return NULL;
    memset(c, 0, sizeof(*c));
    if (mailbox_init(&c->mailbox) != 0) {
        free(c);
        return NULL;
    }
    const struct snapshot *s = atomic_load_explicit(&o->shared->snapshot, memory_order_acquire);
    c->index = o->index;
    c->cpu = o->cpu;
    c->busy_poll = o->busy;
    c->shared = o->shared;
    gather_init(&c->gather);
    c->tsc_hz = o->virtual_clock ? CLOCK_NS_PER_S : clock_tsc_calibrate();
    c->started_tsc = clock_tsc();
    struct sched_opts so = {.now = o->now, .account = !o->virtual_clock, .tsc_hz = c->tsc_hz};
    sched_init(&c->sched, &so);
    rope_pool_init(&c->ropes, o->shared->mbufs, 0);
    c->ropes.reserve = mbuf_low(o) / 8 * 3; /* between where windows close and the last quarter */
    if (init_all(c, o, s) != 0) {
        core_free(c);
        return NULL;
    }
    c->tasks_permanent = c->sched.stats.live;
    c->timers_permanent = (uint32_t)timer_wheel_count(&c->sched.wheel);
    c->snapshot = s;
    atomic_store_explicit(&c->acked_version, s->version, memory_order_release);
    return c;
}

void core_free(struct core *c)
{
    if (c->proxy)
        proxy_free(c->proxy);
    while (mailbox_drain(&c->mailbox, MAILBOX_PASS)) /* jobs of what is gone */
        ;
    if (c->tls)
        tls_free(c->tls);
    if (c->tcp)
        tcp_free(c->tcp);
    if (c->net)
        net_free(c->net);
    if (c->io.rx)
        io_fini(&c->io);
    if (c->log)
        access_ring_free(c->log);
    mailbox_fini(&c->mailbox);
    sched_fini(&c->sched);
    rope_pool_fini(&c->ropes);
    free(c);
}

static uint64_t acked_by_all(void *ctx)
{
    const struct core_shared *shared = ctx;
    uint64_t least = UINT64_MAX;
    for (unsigned i = 0; shared->cores && i < shared->ncores; i++) {
        uint64_t v = shared->cores[i] ? core_acked_version(shared->cores[i]) : UINT64_MAX;
        least = v < least ? v : least;
    }
    return least;
}

static struct mailbox *mailbox_of(void *ctx, unsigned core)
{
    const struct core_shared *shared = ctx;
    return shared->cores && shared->cores[core] ? &shared->cores[core]->mailbox : NULL;
}

static int prepare_tls(struct core_shared *shared, struct snapshot *s, char *err, size_t err_len)
{
    struct config_tls_fault fault;
    const char *listener = NULL;
    if (!shared->tls)
        shared->tls = tls_registry_new(shared->ncores);
    if (!shared->tls)
        return -ENOMEM;
    int rc = tls_registry_prepare(shared->tls, s, &fault, &listener);
    if (rc == -EINVAL)
        snprintf(err, err_len, "listeners[%s].tls.%s: %s", listener, fault.key, fault.text);
    return rc;
}

static int prepare_upstreams(struct core_shared *shared, struct snapshot *s)
{
    struct registry_cores rc = {
        .ctx = shared, .n = shared->ncores, .acked = acked_by_all, .mailbox = mailbox_of};
    if (!shared->upstreams)
        shared->upstreams = upstream_registry_new(&rc);
    return shared->upstreams ? upstream_registry_prepare(shared->upstreams, s) : -ENOMEM;
}

int core_prepare(struct core_shared *shared, struct snapshot *s, char *err, size_t err_len)
{
    int rc = prepare_tls(shared, s, err, err_len);
    if (!rc)
        rc = prepare_upstreams(shared, s);
    if (rc == -ENOMEM)
        snprintf(err, err_len, "out of memory");
    return rc;
}

int core_rotate_tickets(struct core_shared *shared)
{
    return shared->tls ? tls_registry_rotate(shared->tls) : 0;
}

void core_tidy(struct core_shared *shared)
{
    if (shared->tls)
        tls_registry_tidy(shared->tls, acked_by_all(shared));
}

void core_publish(struct core_shared *shared, struct snapshot *s)
{
    upstream_registry_commit(shared->upstreams, s);
    atomic_store_explicit(&shared->snapshot, s, memory_order_release);
}

void core_shared_fini(struct core_shared *shared)
{
    tls_registry_free(shared->tls);
    shared->tls = NULL;
    upstream_registry_free(shared->upstreams);
    shared->upstreams = NULL;
}

/* Between two passes nothing of the proxy points into a snapshot but its listeners, which
 * proxy_apply() moves to the new one: so adopting it and letting go of the old are one act. */
static void adopt_snapshot(struct core *c, uint64_t now)
{
    const struct snapshot *s = atomic_load_explicit(&c->shared->snapshot, memory_order_acquire);
    if (s == c->snapshot || now < c->apply_again)
        return;
    if (proxy_apply(c->proxy, s) != 0) {
        c->apply_again = now + APPLY_RETRY_NS;
        return;
    }
    c->snapshot = s;
    atomic_store_explicit(&c->acked_version, s->version, memory_order_release);
}

static void tell_news(struct core *c)
{
    struct core_msg *m = c->watch;
    m->nreports = proxy_take_reports(c->proxy, false, m->reports, m->max_reports);
    c->news = m->nreports == m->max_reports;
    if (m->nreports == 0)
        return;
    c->watch = NULL;
    m->done(m);
}

bool core_pass(struct core *c, uint64_t now)
{
    sched_latch(&c->sched, now);
    c->received_again = false;
    c->io.frames = 0;
    bool any = io_receive(&c->io);
    any |= mailbox_drain(&c->mailbox, MAILBOX_PASS) > 0;
    adopt_snapshot(c, now);
    proxy_set_wall(c->proxy, atomic_load_explicit(&c->shared->wall_offset, memory_order_relaxed));
    any |= sched_step(&c->sched, now);
    if (c->news && c->watch)
        tell_news(c);
    tcp_flush(c->tcp);
    any |= io_send(&c->io);
    sched_pass_end(&c->sched);
    atomic_store_explicit(&c->passes, atomic_load_explicit(&c->passes, memory_order_relaxed) + 1,
                          memory_order_relaxed);
    return any;
}

uint64_t core_next_timeout(const struct core *c)
{
    if (sched_is_runnable(&c->sched) || mailbox_is_pending(&c->mailbox) || io_is_pending(&c->io))
        return sched_now(&c->sched);
    return sched_next_timeout(&c->sched);
}

/* Nothing of this core's own is left. An exchange's last bytes and FINs still have to be
 * acknowledged. */
static bool is_drained(const struct core *c)
{
    return c->drain_end && proxy_is_drained(c->proxy) && tcp_stats(c->tcp)->conns == 0;
}

/* A drained core goes on until all are: its queues may receive for the others. */
static bool is_finished(struct core *c, uint64_t now)
{
    if (c->stopping)
        return true;
    if (!c->drained && is_drained(c)) {
        c->drained = true;
        atomic_fetch_add_explicit(&c->shared->drained, 1, memory_order_relaxed);
    }
    if (c->drained)
        return atomic_load_explicit(&c->shared->drained, memory_order_relaxed) >=
                   c->shared->ncores ||
               now >= c->drain_end;
    return c->drain_end && proxy_is_drained(c->proxy) && now >= c->drain_end;
}

static unsigned sleep_set(struct core *c, struct pollfd *fds, bool *ret_blind)
{
    unsigned n = 0;
    fds[n++] = (struct pollfd){.fd = mailbox_fd(&c->mailbox), .events = POLLIN};
    for (unsigned i = 0; i < c->io.nports; i++) {
        struct io_port *p = &c->io.ports[i];
        if (p->has_queue && p->nfds == 0)
            *ret_blind = true;
        for (unsigned k = 0; k < p->nfds; k++)
            fds[n++] = (struct pollfd){.fd = p->fds[k], .events = POLLIN};
    }
    return n;
}

/* Sleeps until the next timer, a frame or a message. `starved`: frames are there but no mbufs to
 * take them, so the sockets would not let us sleep. Returns true when a socket woke us. */
static bool core_sleep(struct core *c, uint64_t now, bool starved)
{
    struct pollfd *fds = c->idle;
    bool blind = starved;
    if (!mailbox_prepare_sleep(&c->mailbox))
        return false;
    uint64_t next = core_next_timeout(c);
    unsigned n = sleep_set(c, fds, &blind);
    uint64_t most = blind || c->drained ? SLEEP_BLIND_NS : SLEEP_MAX_NS;
    uint64_t ns = next <= now ? 0 : next - now < most ? next - now : most;
    struct timespec ts = {.tv_sec = (time_t)(ns / CLOCK_NS_PER_S),
                          .tv_nsec = (long)(ns % CLOCK_NS_PER_S)};
    int ready = ns ? ppoll(fds, starved ? 1 : n, &ts, NULL) : 0;
    bool by_mailbox = ready > 0 && fds[0].revents;
    mailbox_end_sleep(&c->mailbox);
    return ready > (by_mailbox ? 1 : 0);
}

static void account(struct core *c, uint64_t from, uint64_t to)
{
    c->busy_passes++;
    c->busy_tsc += to - from;
    hist_record(&c->pass_ns, clock_tsc_to_ns(to - from, c->tsc_hz));
}

/* Waits for frames to gather (gather.h), or until a message comes. `poll: busy` never does. */
static void core_gather(const struct core *c)
{
    uint64_t until = clock_tsc() + gather_ns(&c->gather) * c->tsc_hz / CLOCK_NS_PER_S;
    while (clock_tsc() < until && !mailbox_is_pending(&c->mailbox) && !io_is_pending(&c->io))
        rte_pause();
}

static bool has_tun(const struct core *c)
{
    for (unsigned i = 0; i < c->io.nports; i++) {
        struct port_info info = {0};
        c->io.ports[i].port->ops->info(c->io.ports[i].port, &info);
        if (info.driver && strcmp(info.driver, "tap") == 0)
            return true;
    }
    return false;
}

/* From here on the core is caught when it takes too long, and in debug builds when it blocks. */
static void enter_loop(struct core *c)
{
    char name[16];
    struct trap_opts o = {
        .name = name, .wake_fd = mailbox_fd(&c->mailbox), .idle = c->idle, .tun = has_tun(c)};
    snprintf(name, sizeof(name), "core/%u", c->index);
    sched_bind_thread(&c->sched);
    tls_thread_init();
    if (c->shared->sampler)
        sampler_attach(c->shared->sampler, &c->sched);
    trap_arm(&o);
}

static void leave_loop(struct core *c)
{
    if (c->shared->sampler)
        sampler_detach(c->shared->sampler, &c->sched);
    sched_bind_thread(NULL);
}

void core_run(struct core *c)
{
    uint64_t last_busy = clock_now_ns();
    bool woken = false, starved = false;
    if (eal_thread_register(c->cpu) != 0)
        return;
    enter_loop(c);
    for (;;) {
        uint64_t now = clock_now_ns();
        uint64_t from = clock_tsc();
        c->look_again_tsc = from + LOOK_AGAIN_NS * c->tsc_hz / CLOCK_NS_PER_S;
        if (core_pass(c, now)) {
            account(c, from, clock_tsc());
            last_busy = now;
            starved = false;
            woken = false;
        } else if (woken) {
            starved = true;
            woken = false;
        }
        gather_pass(&c->gather, now, c->io.frames);
        if (is_finished(c, now))
            break;
        if (c->busy_poll || now == last_busy)
            rte_pause();
        else if (now - last_busy < SPIN_GATHERS * gather_ns(&c->gather))
            core_gather(c);
        else
            woken = core_sleep(c, now, starved);
    }
    proxy_abort_all(c->proxy);
    tcp_flush(c->tcp);
    io_send(&c->io);
    leave_loop(c);
    eal_thread_unregister();
}

/* What control knows of may be in a snapshot that isn't adopted yet. */
static void take_updates(struct core *c, struct core_msg *m)
{
    adopt_snapshot(c, sched_now(&c->sched));
    m->missed = 0;
    for (unsigned i = 0; i < m->nupdates; i++)
        m->missed += !proxy_set_endpoint(c->proxy, &m->updates[i]);
}

static void on_message(struct mailbox_item *item)
{
    struct core_msg *m = container_of(item, struct core_msg, item);
    struct core *c = m->core_;
    switch (m->kind) {
    case CORE_MSG_STATUS:
        core_fill_status(c, m->status);
        break;
    case CORE_MSG_DRAIN:
        c->drain_end = m->deadline;
        proxy_drain(c->proxy, m->deadline);
        break;
    case CORE_MSG_CONNS:
        proxy_list_conns(c->proxy, m->conns);
        break;
    case CORE_MSG_STOP:
        c->stopping = true;
        break;
#ifdef MILLRACE_DEBUG_VERBS
    case CORE_MSG_MISBEHAVE:
        misbehave_start(m->misbehaviour, &c->sched);
        break;
#endif
    case CORE_MSG_WATCH:
        c->watch = m; /* there is never a second one */
        return;
    case CORE_MSG_TALLY:
        m->nreports = proxy_take_reports(c->proxy, true, m->reports, m->max_reports);
        break;
    case CORE_MSG_ENDPOINTS:
        take_updates(c, m);
        break;
    }
    m->done(m);
}

void core_post(struct core *c, struct core_msg *m)
{
    m->core_ = c;
    m->item.deliver = on_message;
    mailbox_post(&c->mailbox, &m->item);
}

uint64_t core_acked_version(const struct core *c)
{
    return atomic_load_explicit(&c->acked_version, memory_order_acquire);
}

bool core_has_released(const struct core *c, uint64_t version)
{
    return core_acked_version(c) > version;
}

uint64_t core_passes(const struct core *c)
{
    return atomic_load_explicit(&c->passes, memory_order_relaxed);
}

const char *core_activity(const struct core *c)
{
    const struct task_kind *kind = atomic_load_explicit(&c->sched.watch.kind, memory_order_relaxed);
    return kind ? kind->name : NULL;
}

const struct stall_ring *core_stalls(const struct core *c)
{
    return &c->sched.stalls;
}

struct access_ring *core_access_ring(struct core *c)
{
    return c->log;
}

struct mailbox *core_mailbox(struct core *c)
{
    return &c->mailbox;
}
