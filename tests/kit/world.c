#include "tests/kit/world.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <arpa/inet.h>
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>
#include <rte_ip.h>
#include <rte_tcp.h>

#include "config/build.h"
#include "config/load.h"
#include "control/health.h"
#include "dataplane/core_private.h"
#include "dataplane/net/net.h"
#include "dataplane/proxy/proxy.h"
#include "dataplane/route/limit.h"
#include "runtime/clock.h"
#include "tests/kit/eal.h"

#define TRANSCRIPT_BYTES 65536
#define START            1234567891ull
#define WAIT             (30 * WORLD_S)

/* Hosts ------------------------------------------------------------------------------------- */

static void host_flush(struct netif *nif)
{
    struct host *h = nif->flush_ctx;
    uint16_t n = nif->tx_n, sent = h->port->ops->tx_burst(h->port, 0, nif->tx, n);
    nif->tx_n = 0;
    rte_pktmbuf_free_bulk(nif->tx + sent, (unsigned)(n - sent));
}

static void host_init(struct host *h, struct world *w, unsigned end, const char *addr,
                      const char *other)
{
    struct port_info info;
    h->world = w;
    h->mbufs = w->pools[end];
    h->port = wire_port(w->wire, end);
    struct sched_opts so = {.now = w->now};
    sched_init(&h->sched, &so);
    rope_pool_init(&h->ropes, h->mbufs, 0);
    h->port->ops->info(h->port, &info);
    h->nif = (struct netif){.mac = info.mac,
                            .mtu = info.mtu,
                            .offloads = info.offloads,
                            .naddrs = other ? 2 : 1,
                            .flush = host_flush,
                            .flush_ctx = h};
    h->nif.addrs[0] = (struct netif_addr){inet_addr(addr), 24};
    if (other)
        h->nif.addrs[1] = (struct netif_addr){inet_addr(other), 24};
    struct net_opts no = {.sched = &h->sched, .mbufs = h->mbufs, .seed = w->seed + end};
    h->net = net_new(&no);
    struct tcp_opts to = {.sched = &h->sched,
                          .net = h->net,
                          .ropes = &h->ropes,
                          .mbufs = h->mbufs,
                          .seed = w->seed * 3 + end,
                          .cores = 1,
                          .time_wait_ns = WORLD_S};
    memcpy(to.secret, "a host's secret", 16);
    h->tcp = tcp_new(&to);
    assert_non_null(h->tcp);
    assert_int_equal(net_add_if(h->net, &h->nif, true), 0);
}

static bool host_pass(struct host *h, uint64_t now)
{
    struct rte_mbuf *pkts[32];
    sched_latch(&h->sched, now);
    bool any = false;
    for (uint16_t q = 0; q < h->world->shared.ncores; q++) {
        uint16_t n = h->port->ops->rx_burst(h->port, q, pkts, 32);
        net_input(h->net, &h->nif, pkts, n);
        any |= n > 0;
    }
    any |= sched_step(&h->sched, now);
    tcp_flush(h->tcp);
    any |= h->nif.tx_n > 0;
    host_flush(&h->nif);
    return any;
}

static uint64_t host_next(const struct host *h)
{
    return sched_is_runnable(&h->sched) ? h->sched.now_ : sched_next_timeout(&h->sched);
}

static void host_fini(struct host *h)
{
    tcp_free(h->tcp);
    net_free(h->net);
    sched_fini(&h->sched);
    rope_pool_fini(&h->ropes);
}

/* Peers ------------------------------------------------------------------------------------- */

static void keep_bytes(struct peer *p, struct rope *r)
{
    if (p->count_only) {
        for (const struct rope_node *n = r->head; n; n = n->next)
            for (uint32_t i = 0; i < n->len; i++)
                p->rx_sum = p->rx_sum * 31 + (uint8_t)rope_node_data(n)[i];
        p->rx_len += r->len;
        rope_clear(&p->host->ropes, r);
        return;
    }
    if (p->rx_len + r->len + 1 > p->rx_cap) {
        p->rx_cap = (p->rx_len + r->len + 1) * 2;
        p->rx = realloc(p->rx, p->rx_cap);
        assert_non_null(p->rx);
    }
    rope_copy_out(r, 0, p->rx + p->rx_len, r->len);
    p->rx_len += r->len;
    p->rx[p->rx_len] = 0;
    rope_clear(&p->host->ropes, r);
}

static void peer_died(struct peer *p, int err)
{
    p->err = err;
    stream_abort(p->stream);
    p->stream = NULL;
    rope_clear(&p->host->ropes, &p->out);
}

static bool peer_read(struct peer *p)
{
    struct rope r = {0};
    if (p->paused || p->eof)
        return false;
    ssize_t n = stream_read(p->stream, &p->task, &r, 65536);
    if (n > 0) {
        keep_bytes(p, &r);
        return true;
    }
    if (n == 0)
        p->eof = true;
    else if (n != -EAGAIN)
        peer_died(p, (int)n);
    return false;
}

static bool peer_write(struct peer *p)
{
    if (rope_is_empty(&p->out)) {
        if (p->shut)
            stream_shutdown(p->stream);
        return false;
    }
    ssize_t n = stream_write(p->stream, &p->task, &p->out);
    if (n < 0 && n != -EAGAIN)
        peer_died(p, (int)n);
    return n > 0;
}

static enum poll peer_poll(struct task *t)
{
    struct peer *p = container_of(t, struct peer, task);
    if (!p->stream)
        return POLL_PENDING;
    int st = stream_status(p->stream);
    if (st == -EAGAIN)
        return POLL_PENDING;
    if (st == 0)
        p->connected = true;
    while (p->stream && task_consume(t, 1)) {
        bool moved = peer_read(p);
        if (p->stream)
            moved |= peer_write(p);
        if (!moved)
            break;
    }
    /* While it doesn't read it still wants to hear of the other side's death. */
    if (p->stream && (st = stream_status(p->stream)) < 0 && st != -EAGAIN)
        peer_died(p, st);
    return POLL_PENDING;
}

static void peer_drop(struct task *t)
{
    struct peer *p = container_of(t, struct peer, task);
    rope_clear(&p->host->ropes, &p->out);
    if (p->stream)
        stream_abort(p->stream);
    list_remove(&p->node);
    list_remove(&p->waiting);
    free(p->rx);
    free(p);
}

static const struct task_kind peer_kind = {"peer", peer_poll, peer_drop};

static struct peer *peer_new(struct host *h)
{
    struct peer *p = calloc(1, sizeof(*p));
    assert_non_null(p);
    p->host = h;
    list_push_tail(&h->world->peers, &p->node);
    task_spawn(&h->sched, &p->task, &peer_kind);
    return p;
}

static void on_accept(void *ctx, struct stream *s)
{
    struct host *h = ctx;
    struct peer *p = peer_new(h);
    p->stream = s;
    p->connected = true;
    list_push_tail(&h->world->accepted, &p->waiting);
}

struct peer *world_connect(struct world *w, uint16_t port)
{
    return world_connect_from(w, port, WORLD_CLIENT);
}

struct peer *world_connect_from(struct world *w, uint16_t port, const char *addr)
{
    struct peer *p = peer_new(&w->client);
    struct tcp_connect_opts o = {
        .dst = inet_addr(WORLD_PROXY), .dst_port = port, .src = inet_addr(addr), .task = &p->task};
    assert_int_equal(tcp_connect(w->client.tcp, &o, &p->stream), 0);
    stream_watch(p->stream, &p->task);
    stream_watch_write(p->stream, &p->task);
    return p;
}

void peer_send(struct peer *p, const void *data, size_t len)
{
    assert_int_equal(rope_append(&p->host->ropes, &p->out, data, len), 0);
    task_wake(&p->task);
}

void peer_say(struct peer *p, const char *text)
{
    peer_send(p, text, strlen(text));
}

void peer_shutdown(struct peer *p)
{
    p->shut = true;
    task_wake(&p->task);
}

void peer_close(struct peer *p)
{
    if (p->stream)
        stream_close(p->stream);
    p->stream = NULL;
}

void peer_abort(struct peer *p)
{
    if (p->stream)
        stream_abort(p->stream);
    p->stream = NULL;
}

void peer_pause(struct peer *p, bool paused)
{
    p->paused = paused;
    task_wake(&p->task);
}

/* The world ---------------------------------------------------------------------------------- */

static void note(struct world *w, const char *line)
{
    size_t n = strlen(line);
    if (w->transcript_at + n + 1 > TRANSCRIPT_BYTES) {
        memset(w->transcript + w->transcript_at, 0, TRANSCRIPT_BYTES - w->transcript_at);
        w->transcript_at = 0;
        w->transcript_full = true;
    }
    memcpy(w->transcript + w->transcript_at, line, n);
    w->transcript_at += n;
}

static const char *end_name(unsigned end)
{
    static const char *const names[] = {"client", "proxy", "origin"};
    return end < 3 ? names[end] : "?";
}

static void tap(void *ctx, unsigned end, uint64_t now, const uint8_t *bytes, uint32_t len,
                unsigned fate)
{
    struct world *w = ctx;
    char line[200];
    const struct rte_ipv4_hdr *ip = (const void *)(bytes + 14);
    if (fate & WIRE_ARRIVED)
        return;
    int n =
        snprintf(line, sizeof(line), "%12.6f %-6s ", (double)(now - START) / 1e9, end_name(end));
    if (len >= 54 && bytes[12] == 8 && bytes[13] == 0 && bytes[14] == 0x45 &&
        ip->next_proto_id == 6) {
        const struct rte_tcp_hdr *t = (const void *)(bytes + 14 + (ip->version_ihl & 15) * 4);
        uint32_t data = rte_be_to_cpu_16(ip->total_length) - (uint32_t)(ip->version_ihl & 15) * 4 -
                        (uint32_t)(t->data_off >> 4) * 4;
        n += snprintf(line + n, sizeof(line) - (size_t)n,
                      "%u > %u %s%s%s%s seq %u len %u ack %u win %u", ntohs(t->src_port),
                      ntohs(t->dst_port), t->tcp_flags & 2 ? "S" : "", t->tcp_flags & 1 ? "F" : "",
                      t->tcp_flags & 4 ? "R" : "", t->tcp_flags & 16 ? "." : "", ntohl(t->sent_seq),
                      data, ntohl(t->recv_ack), ntohs(t->rx_win));
    } else {
        n += snprintf(line + n, sizeof(line) - (size_t)n, "type %02x%02x len %u", bytes[12],
                      bytes[13], len);
    }
    snprintf(line + n, sizeof(line) - (size_t)n, "%s%s%s%s%s\n", fate & WIRE_LOST ? " LOST" : "",
             fate & WIRE_OVERFLOW ? " OVERFLOW" : "", fate & WIRE_REORDERED ? " LATE" : "",
             fate & WIRE_DUPLICATE ? " TWICE" : "", fate & WIRE_CORRUPT ? " CORRUPT" : "");
    note(w, line);
}

void world_dump(struct world *w)
{
    fprintf(stderr, "--- seed %" PRIu64 ", at %.6f s; last frames sent:\n", w->seed,
            (double)(w->now - START) / 1e9);
    if (w->transcript_full)
        fputs(w->transcript + w->transcript_at + 1, stderr);
    char saved = w->transcript[w->transcript_at];
    w->transcript[w->transcript_at] = 0;
    fputs(w->transcript, stderr);
    w->transcript[w->transcript_at] = saved;
}

static struct snapshot *parse(const char *yaml)
{
    struct snapshot *s = NULL;
    struct config_errors errs;
    config_errors_init(&errs);
    int err = config_load_text("world.yaml", yaml, strlen(yaml), NULL, &s, &errs);
    config_check_report(stderr, &errs);
    config_errors_fini(&errs);
    assert_int_equal(err, 0);
    return s;
}

static void start_cores(struct world *w, const struct world_opts *o)
{
    unsigned n = o->cores ? o->cores : 1;
    struct port *port = wire_port(w->wire, 1);
    w->shared.ncores = n;
    w->shared.cores = w->core_table;
    w->shared.mbufs = w->pools[1];
    w->shared.pool = o->pool;
    memcpy(w->shared.secret, "the proxy's key", 16);
    w->shared.limits = limit_table_new(w->snapshot->runtime.tracked_clients, w->shared.secret);
    assert_non_null(w->shared.limits);
    w->snapshot->version = 1;
    char err[256];
    assert_int_equal(core_prepare(&w->shared, w->snapshot, err, sizeof(err)), 0);
    core_publish(&w->shared, w->snapshot);
    for (unsigned i = 0; i < n; i++) {
        struct core_opts co = {.index = i,
                               .cpu = i,
                               .shared = &w->shared,
                               .ports = &port,
                               .nports = 1,
                               .seed = w->seed * 7 + i,
                               .now = w->now,
                               .virtual_clock = true};
        w->core_table[i] = w->cores[i] = core_new(&co);
        assert_non_null(w->cores[i]);
    }
}

/* Control, in the same thread: it is polled in every pass, so its decisions take no time. */
static void on_post(void *ctx, unsigned core, struct core_msg *m)
{
    struct world *w = ctx;
    core_post(w->cores[core], m);
}

static bool on_is_running(void *ctx, unsigned core)
{
    return true;
}

static void on_wake(void *ctx)
{
    /* It is polled anyway. */
}

static const struct cores_ops world_cores = {.post = on_post, .is_running = on_is_running};

static void start_health(struct world *w)
{
    struct health_opts o = {
        .cores = {.ops = &world_cores, .ctx = w, .n = w->shared.ncores}, .wake = on_wake, .ctx = w};
    w->health = health_new(&o);
    assert_non_null(w->health);
    assert_int_equal(health_apply(w->health, w->snapshot, w->now), 0);
}

static struct rte_mempool *pool_of(const struct world_opts *o, unsigned end)
{
    unsigned n = end == 1 && o->proxy_mbufs ? o->proxy_mbufs : o->mbufs;
    return o->plain ? kit_pool_new_plain(n) : kit_pool_new(n ? n : 4095);
}

struct world *world_new(const struct world_opts *o)
{
    struct world *w = calloc(1, sizeof(*w));
    assert_non_null(w);
    kit_eal_init();
    w->transcript = calloc(1, TRANSCRIPT_BYTES + 1);
    w->seed = o->seed ? o->seed : 1;
    w->now = START;
    list_init(&w->peers);
    list_init(&w->accepted);
    struct wire_opts wo = {.seed = w->seed,
                           .now = w->now,
                           .ends = 3,
                           .queues = (uint16_t)(o->cores ? o->cores : 1),
                           .path = o->path,
                           .tap = o->plain ? NULL : tap,
                           .tap_ctx = w,
                           .pad = true};
    wo.path.misroute_ppm = o->misroute_ppm;
    for (unsigned i = 0; i < 3; i++)
        wo.pools[i] = w->pools[i] = pool_of(o, i);
    w->wire = wire_new(&wo);
    assert_non_null(w->wire);
    w->snapshot = parse(o->yaml);
    w->shared.ncores = wo.queues; /* as many queues at every end */
    host_init(&w->client, w, 0, WORLD_CLIENT, WORLD_OTHER);
    host_init(&w->origin, w, 2, WORLD_ORIGIN, NULL);
    start_cores(w, o);
    if (!o->plain)
        start_health(w);
    return w;
}

static uint64_t min64(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

static uint64_t world_next(const struct world *w)
{
    uint64_t next = min64(host_next(&w->client), host_next(&w->origin));
    next = w->health ? min64(next, w->health_due) : next;
    next = min64(next, wire_next_timeout(w->wire));
    for (unsigned i = 0; i < w->shared.ncores; i++)
        next = min64(next, core_next_timeout(w->cores[i]));
    for (unsigned end = 0; end < 3; end++)
        if (wire_rx_pending(w->wire, end))
            return w->now;
    return next;
}

static bool world_pass(struct world *w)
{
    wire_advance(w->wire, w->now);
    bool any = host_pass(&w->client, w->now);
    uint64_t from = clock_tsc();
    for (unsigned i = 0; i < w->shared.ncores; i++)
        any |= core_pass(w->cores[i], w->now);
    w->core_tsc += clock_tsc() - from;
    any |= host_pass(&w->origin, w->now);
    if (w->health)
        w->health_due = health_poll(w->health, w->now);
    return any;
}

bool world_run(struct world *w, bool (*done)(void *ctx), void *ctx, uint64_t limit)
{
    uint64_t end = w->now + limit;
    unsigned still = 0;
    for (;;) {
        bool any = world_pass(w);
        if (done && done(ctx))
            return true;
        uint64_t next = any ? w->now : world_next(w);
        assert_true(++still < 100000); /* busy without time passing: a live-lock */
        if (next > end) {
            w->now = end;
            world_pass(w);
            return done ? done(ctx) : false;
        }
        if (next > w->now)
            still = 0;
        w->now = next > w->now ? next : w->now;
    }
}

void world_sleep(struct world *w, uint64_t ns)
{
    world_run(w, NULL, NULL, ns);
}

void world_settle(struct world *w)
{
    for (;;) {
        uint64_t next = wire_next_timeout(w->wire);
        world_sleep(w, 50 * WORLD_MS);
        if (next == UINT64_MAX && wire_next_timeout(w->wire) == UINT64_MAX)
            return;
    }
}

/* No core has a connection of it any more. */
static bool has_drained(void *ctx, const struct config_listener *l)
{
    static struct core_status st;
    struct world *w = ctx;
    if (l < w->snapshot->draining || l >= w->snapshot->draining + w->snapshot->ndraining)
        return false;
    for (unsigned i = 0; i < w->shared.ncores; i++) {
        core_fill_status(w->cores[i], &st);
        for (unsigned k = 0; k < st.nlisteners; k++) {
            const struct listener_stats *x = &st.listeners[k];
            if (x->draining && x->conns && x->address.port == l->address.port &&
                x->address.addr == l->address.addr && strcmp(x->name, l->name) == 0)
                return false;
        }
    }
    return true;
}

static bool is_released(const struct world *w, uint64_t version)
{
    for (unsigned i = 0; i < w->shared.ncores; i++)
        if (!core_has_released(w->cores[i], version))
            return false;
    return true;
}

unsigned world_old_versions(struct world *w)
{
    unsigned gone = 0;
    while (gone < w->nold && is_released(w, w->old[gone]->version))
        snapshot_free(w->old[gone++]);
    memmove(w->old, w->old + gone, (w->nold - gone) * sizeof(w->old[0]));
    w->nold -= gone;
    return w->nold;
}

void world_publish(struct world *w, const char *yaml)
{
    struct snapshot *base = parse(yaml), *s;
    struct config_build b = {
        .base = base, .running = w->snapshot, .is_empty = has_drained, .ctx = w};
    char err[256];
    assert_int_equal(config_build(&b, &s, NULL, err, sizeof(err)), 0);
    snapshot_free(base);
    s->version = w->snapshot->version + 1;
    assert_true(world_old_versions(w) < WORLD_MAX_OLD);
    w->old[w->nold++] = w->snapshot;
    w->snapshot = s;
    assert_int_equal(core_prepare(&w->shared, s, err, sizeof(err)), 0);
    core_publish(&w->shared, s);
    if (w->health)
        assert_int_equal(health_apply(w->health, s, w->now), 0);
}

void world_reload(struct world *w, const char *yaml)
{
    world_publish(w, yaml);
    world_sleep(w, WORLD_MS);
    assert_int_equal(world_old_versions(w), 0);
}

void world_listen(struct world *w, uint16_t port)
{
    struct tcp_listener_opts o = {.port = port, .on_accept = on_accept, .ctx = &w->origin};
    unsigned i = 0;
    while (w->listeners[i])
        assert_true(++i < WORLD_MAX_PORTS);
    assert_int_equal(tcp_listen(w->origin.tcp, &o, &w->listeners[i]), 0);
    w->ports[i] = port;
}

void world_unlisten(struct world *w, uint16_t port)
{
    for (unsigned i = 0; i < WORLD_MAX_PORTS; i++) {
        if (!w->listeners[i] || w->ports[i] != port)
            continue;
        tcp_listener_free(w->origin.tcp, w->listeners[i]);
        w->listeners[i] = NULL;
    }
}

static bool has_accepted(void *ctx)
{
    struct world *w = ctx;
    return !list_is_empty(&w->accepted);
}

struct peer *world_accept_within(struct world *w, uint64_t ns)
{
    if (!world_run(w, has_accepted, w, ns))
        return NULL;
    struct list_node *n = list_pop_head(&w->accepted); /* container_of() may take it twice */
    return container_of(n, struct peer, waiting);
}

struct peer *world_accept(struct world *w)
{
    struct peer *p = world_accept_within(w, 10 * WORLD_S);
    if (!p) {
        world_dump(w);
        fail_msg("the origin saw no connection");
    }
    return p;
}

/* Expectations ------------------------------------------------------------------------------- */

struct want {
    struct peer *p;
    size_t len;
    const char *text;
};

static bool has_len(void *ctx)
{
    struct want *x = ctx;
    return x->p->rx_len - x->p->taken >= x->len || x->p->eof || x->p->err;
}

static void give_up(struct peer *p, const char *what, const char *text)
{
    world_dump(p->host->world);
    fail_msg("expected %s \"%s\"\n  got (%s, error %d) \"%s\"", what, text,
             p->eof ? "at end" : "open", p->err, p->rx ? p->rx + p->taken : "");
}

void peer_expect(struct peer *p, const char *text)
{
    struct want x = {p, strlen(text), text};
    world_run(p->host->world, has_len, &x, WAIT);
    if (p->rx_len - p->taken != x.len || memcmp(p->rx + p->taken, text, x.len) != 0)
        give_up(p, "exactly", text);
    p->taken += x.len;
}

static bool has_text(void *ctx)
{
    struct want *x = ctx;
    return (x->p->rx && strstr(x->p->rx + x->p->taken, x->text)) || x->p->eof || x->p->err;
}

const char *peer_expect_through(struct peer *p, const char *text)
{
    static char *taken; /* of the last call */
    struct want x = {p, 0, text};
    world_run(p->host->world, has_text, &x, WAIT);
    const char *at = p->rx ? strstr(p->rx + p->taken, text) : NULL;
    if (!at)
        give_up(p, "something with", text);
    size_t end = (size_t)(at - p->rx) + strlen(text);
    free(taken);
    taken = strndup(p->rx + p->taken, end - p->taken);
    p->taken = end;
    return taken;
}

void peer_expect_bytes(struct peer *p, size_t len)
{
    struct want x = {p, len, NULL};
    world_run(p->host->world, has_len, &x, 600 * WORLD_S);
    if (p->rx_len - p->taken < len) {
        world_dump(p->host->world);
        fail_msg("expected %zu bytes, got %zu (%s, error %d)", len, p->rx_len - p->taken,
                 p->eof ? "at end" : "open", p->err);
    }
    p->taken += len;
}

static bool has_ended(void *ctx)
{
    struct peer *p = ctx;
    return p->eof || p->err;
}

void peer_expect_eof(struct peer *p)
{
    world_run(p->host->world, has_ended, p, 600 * WORLD_S);
    if (!p->eof || p->rx_len != p->taken)
        give_up(p, "FIN", "");
}

static bool has_died(void *ctx)
{
    struct peer *p = ctx;
    return p->err != 0;
}

void peer_expect_error(struct peer *p, int err)
{
    world_run(p->host->world, has_died, p, 600 * WORLD_S);
    if (p->err != err)
        give_up(p, "error", strerror(-err));
}

void peer_expect_silence(struct peer *p, uint64_t ns)
{
    size_t before = p->rx_len;
    world_sleep(p->host->world, ns);
    if (p->rx_len != before || p->eof || p->err)
        give_up(p, "silence", "");
}

static void add_upstream(struct upstream_stats *sum, const struct upstream_stats *u)
{
#define UPSTREAM_FIELD(group, name, field, kind, help) sum->field += u->field;
#include "control/status_fields.def"
}

struct core_status *world_status(struct world *w)
{
    static struct core_status sum, one;
    core_fill_status(w->cores[0], &sum);
    for (unsigned i = 1; i < w->shared.ncores; i++) {
        core_fill_status(w->cores[i], &one);
        sum.clients += one.clients;
        sum.exchanges += one.exchanges;
        sum.tunnels += one.tunnels;
        sum.rope_nodes += one.rope_nodes;
        sum.handoff_in += one.handoff_in;
        sum.tcp.conns += one.tcp.conns;
        sum.tcp.half_open += one.tcp.half_open;
        sum.tcp.mbufs_held += one.tcp.mbufs_held;
        sum.sched.live += one.sched.live;
        for (unsigned k = 0; k < sum.nupstreams && k < one.nupstreams; k++)
            add_upstream(&sum.upstreams[k], &one.upstreams[k]);
        sum.limits_forgotten += one.limits_forgotten;
        sum.limits_untracked += one.limits_untracked;
    }
    return &sum;
}

/* Clients gone, pooled connections closed, TIME_WAIT over: then nothing may be left. */
static void check_nothing_left(struct world *w)
{
    for (unsigned i = 0; i < w->shared.ncores; i++)
        proxy_drain(w->cores[i]->proxy, w->now + 5 * WORLD_S);
    world_sleep(w, 130 * WORLD_S);
    struct core_status *st = world_status(w);
    if (st->clients || st->exchanges || st->tunnels || st->tcp.conns || st->tcp.mbufs_held ||
        st->rope_nodes || st->sched.live) {
        world_dump(w);
        fail_msg("left over: %u clients, %u exchanges, %u tunnels, %u connections, %" PRIu64
                 " mbufs held, %u rope nodes, %u tasks",
                 st->clients, st->exchanges, st->tunnels, st->tcp.conns, st->tcp.mbufs_held,
                 st->rope_nodes, st->sched.live);
    }
}

void world_free(struct world *w)
{
    list_for_each_safe(n, tmp, &w->peers) task_abort(&container_of(n, struct peer, node)->task);
    check_nothing_left(w);
    /* Some may have been accepted meanwhile: their SYNs were on the wire. */
    list_for_each_safe(n, tmp, &w->peers) task_abort(&container_of(n, struct peer, node)->task);
    world_sleep(w, WORLD_S);
    for (unsigned i = 0; i < w->shared.ncores; i++)
        core_free(w->cores[i]);
    health_free(w->health);
    limit_table_free(w->shared.limits);
    host_fini(&w->client);
    host_fini(&w->origin);
    wire_free(w->wire);
    for (unsigned i = 0; i < 3; i++)
        kit_pool_free(w->pools[i]);
    for (unsigned i = 0; i < w->nold; i++)
        snapshot_free(w->old[i]);
    core_shared_fini(&w->shared);
    snapshot_free(w->snapshot);
    free(w->transcript);
    free(w);
}
