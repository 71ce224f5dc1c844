#include "tests/kit/tcp_pair.h"

#include <assert.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <rte_byteorder.h>
#include <rte_ip.h>

#include "tests/kit/eal.h"

#define START_NS 123456789012345ull
#define ADDR(n)  rte_cpu_to_be_32((uint32_t)RTE_IPV4(10, 0, 0, 1 + (n)))

/* --- the link --- */

static uint32_t be32(const uint8_t *p)
{
    return (uint32_t)p[0] << 24 | (uint32_t)p[1] << 16 | (uint32_t)p[2] << 8 | p[3];
}

bool pair_parse(unsigned from, const uint8_t *f, uint32_t len, struct pair_segment *ret)
{
    if (len < 54 || f[12] != 8 || f[13] != 0 || f[23] != 6)
        return false;
    const uint8_t *t = f + 34;
    *ret = (struct pair_segment){
        .from = from,
        .seq = be32(t + 4),
        .ack = be32(t + 8),
        .len = (uint32_t)(f[16] << 8 | f[17]) - 20 - (t[12] >> 4) * 4u,
        .src_port = (uint16_t)(t[0] << 8 | t[1]),
        .dst_port = (uint16_t)(t[2] << 8 | t[3]),
        .window = (uint16_t)(t[14] << 8 | t[15]),
        .flags = t[13],
    };
    return true;
}

static void trace(struct tcp_pair *p, unsigned from, const uint8_t *f, uint32_t len,
                  const char *fate)
{
    char *line = p->trace[p->traced++ % PAIR_TRACE];
    size_t size = sizeof(p->trace[0]);
    int n = snprintf(line, size, "%11.6f %u> ", (double)(p->now - START_NS) / 1e9, from);
    struct pair_segment g;
    if (!pair_parse(from, f, len, &g)) {
        snprintf(line + n, size - (size_t)n, "other %u %s", len, fate);
        return;
    }
    snprintf(line + n, size - (size_t)n, "%c%c%c%c%c %u:%u(%u) ack %u win %u opts %u %s",
             g.flags & 2 ? 'S' : '-', g.flags & 1 ? 'F' : '-', g.flags & 4 ? 'R' : '-',
             g.flags & 8 ? 'P' : '-', g.flags & 16 ? '.' : '-', g.seq, g.seq + g.len, g.len, g.ack,
             g.window, (f[46] >> 4) * 4u - 20, fate);
}

void pair_dump(const struct tcp_pair *p)
{
    unsigned from = p->traced > PAIR_TRACE ? p->traced - PAIR_TRACE : 0;
    fprintf(stderr, "seed %llu\n", (unsigned long long)p->o.seed);
    for (unsigned i = from; i < p->traced; i++)
        fprintf(stderr, "%s\n", p->trace[i % PAIR_TRACE]);
    for (unsigned i = 0; i < 2; i++) {
        const struct pair_end *e = i ? &p->b : &p->a;
        fprintf(stderr,
                "%c: sent %llu of %llu, got %llu, eof %d, shut %d, closed %d, err %d, bad %d\n",
                'a' + i, (unsigned long long)e->sent, (unsigned long long)e->to_send,
                (unsigned long long)e->got, e->eof, e->shut, e->closed, e->err, e->bad);
    }
}

static void enqueue(struct tcp_pair *p, unsigned to, const uint8_t *bytes, uint32_t len,
                    uint64_t delay)
{
    struct pair_frame *f = malloc(sizeof(*f) + len);
    *f = (struct pair_frame){.at = p->now + delay, .order = p->order++, .to = to, .len = len};
    memcpy(f->bytes, bytes, len);
    struct pair_frame **at = &p->flying;
    while (*at && ((*at)->at < f->at || ((*at)->at == f->at && (*at)->order < f->order)))
        at = &(*at)->next;
    f->next = *at;
    *at = f;
}

static void transmit(struct pair_host *h, struct rte_mbuf *m)
{
    struct tcp_pair *p = h->pair;
    assert(m->nb_segs == 1 && m->pkt_len == m->data_len);
    const uint8_t *bytes = rte_pktmbuf_mtod(m, const uint8_t *);
    bool lost = p->cut || rng_chance(&p->rng, p->o.loss_ppm) ||
                (p->filter && p->filter(p->filter_ctx, h->index, bytes, m->data_len));
    p->frames++;
    bool late = rng_chance(&p->rng, p->o.reorder_ppm);
    bool twice = rng_chance(&p->rng, p->o.dup_ppm);
    trace(p, h->index, bytes, m->data_len, lost ? "LOST" : late ? "late" : "");
    if (!lost) {
        uint64_t delay = p->o.delay_ns;
        enqueue(p, !h->index, bytes, m->data_len,
                late ? delay + rng_below(&p->rng, (uint32_t)delay * 2 + 1000) : delay);
        if (twice)
            enqueue(p, !h->index, bytes, m->data_len, delay + rng_below(&p->rng, 100000));
    }
    if (h->nsent == sizeof(h->sent) / sizeof(*h->sent))
        rte_pktmbuf_free(h->sent[--h->nsent]);
    h->sent[h->nsent++] = m;
}

static void flush(struct netif *nif)
{
    struct pair_host *h = nif->flush_ctx;
    for (unsigned i = 0; i < nif->tx_n; i++)
        transmit(h, nif->tx[i]);
    nif->tx_n = 0;
}

static void complete_sent(struct pair_host *h)
{
    while (h->nsent)
        rte_pktmbuf_free(h->sent[--h->nsent]);
}

static void deliver(struct tcp_pair *p, struct pair_frame *f)
{
    struct pair_host *h = &p->host[f->to];
    struct rte_mbuf *m = rte_pktmbuf_alloc(h->pool);
    if (m) {
        memcpy(rte_pktmbuf_append(m, (uint16_t)f->len), f->bytes, f->len);
        if (h->nif.offloads & NETIF_RX_CSUM)
            m->ol_flags |= RTE_MBUF_F_RX_L4_CKSUM_GOOD | RTE_MBUF_F_RX_IP_CKSUM_GOOD;
        net_input(h->net, &h->nif, &m, 1);
    }
    free(f);
}

/* --- endpoints --- */

static uint8_t pattern(uint64_t seed, uint64_t at)
{
    return (uint8_t)((at * 131 + (at >> 8) * 17 + (at >> 16) * 7) ^ seed);
}

static void finish(struct pair_end *e, int err)
{
    e->err = err;
    e->closed = true;
    if (e->s)
        stream_close(e->s);
    e->s = NULL;
}

static bool write_some(struct pair_end *e)
{
    uint32_t chunk = e->chunk ? e->chunk : 1460;
    uint8_t bytes[65536];
    uint64_t n = e->to_send - e->sent < chunk ? e->to_send - e->sent : chunk;
    for (uint64_t i = 0; i < n; i++)
        bytes[i] = pattern(e->seed, e->sent + i);
    struct rope r = {0};
    if (rope_append(&e->host->ropes, &r, bytes, n) != 0) {
        sleep_arm(&e->retry, &e->task, task_now(&e->task) + 5 * PAIR_MS);
        return false;
    }
    ssize_t w = stream_write(e->s, &e->task, &r);
    rope_clear(&e->host->ropes, &r);
    if (w < 0) {
        if (w != -EAGAIN)
            finish(e, (int)w);
        return false;
    }
    e->sent += (uint64_t)w;
    return true;
}

static void check_bytes(struct pair_end *e, const struct rope *r)
{
    for (const struct rope_node *n = r->head; n; n = n->next)
        for (uint32_t i = 0; i < n->len; i++)
            if ((uint8_t)rope_node_data(n)[i] != pattern(e->peer_seed, e->got++))
                e->bad = true;
}

static bool read_some(struct pair_end *e)
{
    if (e->got >= e->read_max || e->eof) {
        stream_watch(e->s, &e->task);
        int err = stream_status(e->s);
        if (err && err != -EAGAIN)
            finish(e, err);
        return false;
    }
    struct rope r = {0};
    ssize_t n = stream_read(e->s, &e->task, &r, e->read_max - e->got);
    if (n > 0) {
        check_bytes(e, &r);
        rope_clear(&e->host->ropes, &r);
        return true;
    }
    if (n == 0)
        e->eof = true;
    else if (n != -EAGAIN)
        finish(e, (int)n);
    return false;
}

static enum poll end_poll(struct task *t)
{
    struct pair_end *e = container_of(t, struct pair_end, task);
    e->polls++;
    if (!e->s)
        return POLL_PENDING;
    int err = stream_status(e->s);
    if (err == -EAGAIN)
        return POLL_PENDING;
    if (err) {
        finish(e, err);
        return POLL_PENDING;
    }
    e->connected = true;
    while (e->s && e->sent < e->to_send && write_some(e))
        ;
    if (e->s && e->shutdown && !e->shut && e->sent == e->to_send) {
        e->shut = true;
        err = stream_shutdown(e->s);
        if (err)
            finish(e, err);
    }
    while (e->s && read_some(e))
        ;
    if (e->s && e->close_at_eof && e->eof && e->sent == e->to_send)
        finish(e, 0);
    return POLL_PENDING;
}

static void end_drop(struct task *t)
{
    struct pair_end *e = container_of(t, struct pair_end, task);
    sleep_cancel(&e->retry);
    if (e->s)
        stream_abort(e->s);
    e->s = NULL;
}

static const struct task_kind end_kind = {"pair_end", end_poll, end_drop};

static void end_init(struct tcp_pair *p, struct pair_end *e, unsigned i)
{
    e->pair = p;
    e->host = &p->host[i];
    e->seed = 0x5a + i;
    e->peer_seed = 0x5a + !i;
    e->read_max = UINT64_MAX;
    task_spawn(&p->host[i].sched, &e->task, &end_kind);
}

static void on_accept(void *ctx, struct stream *s)
{
    struct tcp_pair *p = ctx;
    p->accepted++;
    if (p->refuse || p->b.s) {
        stream_abort(s);
        return;
    }
    p->b.s = s;
    stream_watch(s, &p->b.task);
    stream_watch_write(s, &p->b.task);
    task_wake(&p->b.task);
}

void pair_kick(struct pair_end *e)
{
    task_wake(&e->task);
}

void pair_end_close(struct pair_end *e)
{
    finish(e, 0);
}

void pair_end_abort(struct pair_end *e)
{
    stream_abort(e->s);
    e->s = NULL;
    e->closed = true;
}

/* --- the pair --- */

static void host_init(struct tcp_pair *p, unsigned i)
{
    struct pair_host *h = &p->host[i];
    h->pair = p;
    h->index = i;
    h->pool = kit_pool_new(p->o.mbufs ? p->o.mbufs : 4095);
    sched_init(&h->sched, &(struct sched_opts){.now = START_NS});
    rope_pool_init(&h->ropes, h->pool, 0);
    h->net = net_new(&(struct net_opts){.sched = &h->sched, .mbufs = h->pool, .seed = i});
    h->nif = (struct netif){
        .mac = {{2, 0, 0, 0, 0, (uint8_t)(1 + i)}},
        .mtu = p->o.mtu ? p->o.mtu : 1500,
        .offloads = p->o.offloads,
        .naddrs = 1,
        .addrs = {{.addr = ADDR(i), .prefix = 24}},
        .flush = flush,
        .flush_ctx = h,
    };
    if (net_add_if(h->net, &h->nif, false))
        abort();
    struct tcp_opts o = p->o.tcp[i];
    o.sched = &h->sched;
    o.net = h->net;
    o.ropes = &h->ropes;
    o.mbufs = h->pool;
    o.seed = p->o.seed + i;
    memset(o.secret, (int)(0x11 * (i + 1)), sizeof(o.secret));
    h->tcp = tcp_new(&o);
    if (!h->tcp)
        abort();
}

struct tcp_pair *pair_new(const struct pair_opts *o)
{
    kit_eal_init();
    struct tcp_pair *p = calloc(1, sizeof(*p));
    p->o = *o;
    if (!p->o.delay_ns)
        p->o.delay_ns = 100000;
    p->now = START_NS;
    p->rng.state = o->seed;
    host_init(p, 0);
    host_init(p, 1);
    end_init(p, &p->a, 0);
    end_init(p, &p->b, 1);
    return p;
}

void pair_listen(struct tcp_pair *p)
{
    int err = tcp_listen(p->host[1].tcp,
                         &(struct tcp_listener_opts){
                             .addr = ADDR(1), .port = PAIR_PORT, .on_accept = on_accept, .ctx = p},
                         &p->host[1].listener);
    if (err)
        abort();
}

int pair_connect(struct tcp_pair *p)
{
    return tcp_connect(
        p->host[0].tcp,
        &(struct tcp_connect_opts){.dst = ADDR(1), .dst_port = PAIR_PORT, .task = &p->a.task},
        &p->a.s);
}

static uint64_t next_event(const struct tcp_pair *p)
{
    uint64_t at = p->flying ? p->flying->at : UINT64_MAX;
    for (unsigned i = 0; i < 2; i++) {
        const struct sched *s = &p->host[i].sched;
        uint64_t t = sched_is_runnable(s) || p->host[i].nif.tx_n ? p->now : sched_next_timeout(s);
        at = t < at ? t : at;
    }
    return at > p->now || at == UINT64_MAX ? at : p->now;
}

static void host_pass(struct pair_host *h)
{
    struct tcp_pair *p = h->pair;
    complete_sent(h);
    sched_latch(&h->sched, p->now);
    for (unsigned n = 0; n < 8 && p->flying && p->flying->at <= p->now; n++) {
        struct pair_frame **at = &p->flying;
        while (*at && (*at)->to != h->index && (*at)->at <= p->now)
            at = &(*at)->next;
        struct pair_frame *f = *at;
        if (!f || f->at > p->now)
            break;
        *at = f->next;
        deliver(p, f);
    }
    sched_step(&h->sched, p->now);
    tcp_flush(h->tcp);
    flush(&h->nif);
}

bool pair_step(struct tcp_pair *p)
{
    uint64_t at = next_event(p);
    if (at == UINT64_MAX)
        return false;
    p->now = at;
    host_pass(&p->host[0]);
    host_pass(&p->host[1]);
    return true;
}

bool pair_run(struct tcp_pair *p, bool (*done)(struct tcp_pair *p), uint64_t ns)
{
    uint64_t end = p->now + ns;
    /* What the test did before has not been flushed yet. */
    host_pass(&p->host[0]);
    host_pass(&p->host[1]);
    while (!done || !done(p)) {
        uint64_t at = next_event(p);
        if (at > end) {
            p->now = end;
            return !done || done(p);
        }
        pair_step(p);
    }
    return true;
}

void pair_sleep(struct tcp_pair *p, uint64_t ns)
{
    pair_run(p, NULL, ns);
}

bool pair_established(struct tcp_pair *p)
{
    return p->a.connected && p->b.connected;
}

bool pair_all_received(struct tcp_pair *p)
{
    return p->a.got == p->b.to_send && p->b.got == p->a.to_send;
}

bool pair_all_closed(struct tcp_pair *p)
{
    return p->a.closed && p->b.closed;
}

static void require(const struct tcp_pair *p, bool ok, const char *what)
{
    if (ok)
        return;
    pair_dump(p);
    fprintf(stderr, "left over: %s\n", what);
    abort();
}

static void host_fini(struct pair_host *h)
{
    struct tcp_pair *p = h->pair;
    const struct tcp_stats *s = tcp_stats(h->tcp);
    require(p, s->conns == 0, "connections");
    require(p, s->mbufs_held == 0, "held mbufs");
    require(p, s->half_open == 0, "half-open connections");
    tcp_free(h->tcp);
    net_free(h->net);
    complete_sent(h);
    require(p, timer_wheel_count(&h->sched.wheel) == 0, "timers");
    sched_fini(&h->sched);
    rope_pool_fini(&h->ropes);
    kit_pool_free(h->pool);
}

void pair_free(struct tcp_pair *p)
{
    task_abort(&p->a.task);
    task_abort(&p->b.task);
    p->cut = false;
    p->filter = NULL;
    p->o.loss_ppm = p->o.reorder_ppm = p->o.dup_ppm = 0;
    pair_sleep(p, 400 * PAIR_S); /* orphans, half-open connections, TIME_WAIT */
    while (p->flying) {
        struct pair_frame *f = p->flying;
        p->flying = f->next;
        free(f);
    }
    if (p->host[1].listener)
        tcp_listener_free(p->host[1].tcp, p->host[1].listener);
    host_fini(&p->host[0]);
    host_fini(&p->host[1]);
    free(p);
}
