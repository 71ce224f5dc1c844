/* The simulator: clients, the proxy and origins on a wire that loses, reorders, duplicates and
 * corrupts frames, all from one seed, on virtual time.
 *
 *   sim [--seeds N] [--seed S] [--jobs J] [--verbose]
 *
 * Each seed draws its own impairments (up to 10 % each), core count, connections, requests, sizes,
 * balancer, pool and probes, which an origin answers as it likes, and policies (see policies.h)
 * that reloads move. Checked: every byte stream equals what was sent, every request gets its
 * answer, nothing is stuck, nothing (connection, task, mbuf, rope node, permit) is left over; and
 * after every pass that limits and budgets hold, pools keep their bounds, no more endpoints are
 * ejected than may be, and there is always one to go to. A failing seed is printed with the last
 * frames on the wire; `sim --seed S` replays it.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#include "dataplane/core_private.h"
#include "dataplane/proxy/conn.h"
#include "runtime/rng.h"
#include "tests/kit/eal.h"
#include "tests/kit/world.h"
#include "tests/sim/policies.h"

#define MAX_CONNS  12
#define TIME_LIMIT (3600 * WORLD_S)
#define QUIET      (60 * WORLD_S) /* longer than any request of who went away */

static const char sim_yaml_1[] = "version: 1\n"
                                 "runtime: { cores: [0] }\n";
static const char sim_yaml_2[] = "version: 1\n"
                                 "runtime: { cores: [0, 1] }\n";
static const char sim_yaml_rest[] =
    "ports:\n"
    "  - { name: p, driver: veth, device: mill0, addresses: [10.9.0.1/24] }\n"
    "listeners:\n"
    "  - name: web\n"
    "    address: 10.9.0.1:80\n"
    "    http:\n"
    "      timeouts: { header: 1h, idle: 1h, body: 1h }\n"
    "      limits: { body_size: unlimited }\n"
    "      routes:\n" POLICIES_ROUTE "        - { upstream: app }\n"
    "  - name: raw\n"
    "    address: 10.9.0.1:81\n"
    "    tunnel: { upstream: raw, timeouts: { idle: 1h } }\n"
    "upstreams:\n"
    "  - name: app\n"
    "    endpoints:\n"
    "      - 10.9.0.2:9000\n"
    "      - { address: 10.9.0.2:9002, weight: 3 }\n"
    "      - { address: 10.9.0.2:9003, weight: 2 }\n"
    "      - { address: 10.9.0.2:9004, backup: true }\n"
    "    timeouts: { connect: 5m, request: 1h, idle: 1h }\n";

static const char *const balancers[] = {"round_robin", "least_request", "random",
                                        "consistent_hash"};
#define POOL_MAX    6
#define ENDPOINTS   4
#define MAX_EJECTED 1 /* a quarter of them */

/* A body is a function of its number, so that both ends can check it byte by byte. */
static uint8_t body_byte(uint32_t id, uint32_t i)
{
    return (uint8_t)((id * 2654435761u + i * 40503u) >> 13);
}

struct dialog {
    struct sim *sim;
    struct peer *client;
    bool tunnel;
    unsigned requests, sent, answered;
    uint32_t id;       /* of the request that is out */
    uint32_t up, down; /* body sizes of that request */
    size_t at;         /* of client->rx, checked so far */
};

struct sim {
    struct world *w;
    struct rng rng;
    unsigned ndialogs, done;
    struct dialog dialogs[MAX_CONNS];
    unsigned cores;
    char app[1024]; /* the part of the configuration that doesn't move */
    struct policies *policies;
    bool failed;
    const char *why;
};

static void sim_fail(struct sim *s, const char *why)
{
    if (!s->failed)
        s->why = why;
    s->failed = true;
}

static uint32_t draw_size(struct rng *r)
{
    switch (rng_below(r, 4)) {
    case 0:
        return 0;
    case 1:
        return rng_below(r, 100);
    case 2:
        return rng_below(r, 5000);
    default:
        return rng_below(r, 200000);
    }
}

static void send_body(struct peer *p, uint32_t id, uint32_t len, bool chunked, struct rng *r)
{
    char head[32];
    static uint8_t buf[200000];
    for (uint32_t i = 0; i < len; i++)
        buf[i] = body_byte(id, i);
    if (!chunked) {
        peer_send(p, buf, len);
        return;
    }
    for (uint32_t at = 0; at < len;) {
        uint32_t n = 1 + rng_below(r, 9000);
        n = n < len - at ? n : len - at;
        snprintf(head, sizeof(head), "%x\r\n", n);
        peer_say(p, head);
        peer_send(p, buf + at, n);
        peer_say(p, "\r\n");
        at += n;
    }
    peer_say(p, "0\r\n\r\n");
}

static void next_request(struct dialog *d)
{
    struct sim *s = d->sim;
    char head[256];
    d->id = (uint32_t)rng_next(&s->rng);
    d->up = draw_size(&s->rng);
    d->down = draw_size(&s->rng);
    bool chunked = rng_chance(&s->rng, 500000);
    bool last = d->sent + 1 == d->requests && rng_chance(&s->rng, 500000);
    snprintf(head, sizeof(head), "POST /%u/%u/%u HTTP/1.1\r\nHost: sim\r\n%s%sX-Len: %u\r\n", d->id,
             d->up, d->down, last ? "Connection: close\r\n" : "",
             chunked ? "Transfer-Encoding: chunked\r\n" : "", d->up);
    peer_say(d->client, head);
    if (!chunked) {
        snprintf(head, sizeof(head), "Content-Length: %u\r\n", d->up);
        peer_say(d->client, head);
    }
    peer_say(d->client, "\r\n");
    send_body(d->client, d->id, d->up, chunked, &s->rng);
    d->sent++;
}

/* Takes one message's body out of text: its length (payload) into ret_len and its end; NULL when it
 * is not all there yet; "bad" through ret_bad. */
static const char *whole_body(const char *head, const char *end, uint32_t id, uint32_t want,
                              bool *ret_bad)
{
    const char *body = strstr(head, "\r\n\r\n");
    if (!body)
        return NULL;
    body += 4;
    size_t head_len = (size_t)(body - head);
    char *copy = strndup(head, head_len);
    bool chunked = strstr(copy, "Transfer-Encoding: chunked") != NULL;
    free(copy);
    uint32_t at = 0;
    if (!chunked) {
        if ((size_t)(end - body) < want)
            return NULL;
        for (; at < want; at++)
            *ret_bad |= (uint8_t)body[at] != body_byte(id, at);
        return body + want;
    }
    for (const char *p = body;;) {
        if (!memchr(p, '\n', (size_t)(end - p)))
            return NULL;
        char *after;
        uint32_t n = (uint32_t)strtoul(p, &after, 16);
        p = after + 2;
        if ((size_t)(end - p) < (size_t)n + 2)
            return NULL;
        for (uint32_t i = 0; i < n; i++, at++)
            *ret_bad |= at >= want || (uint8_t)p[i] != body_byte(id, at);
        p += n + 2;
        if (n == 0) {
            *ret_bad |= at != want;
            return p;
        }
    }
}

/* A probe's answer is left to chance. */
static void answer_probe(struct sim *s, struct peer *o)
{
    if (!strstr(o->rx + o->taken, "\r\n\r\n"))
        return;
    o->taken = o->rx_len;
    if (rng_below(&s->rng, 3))
        peer_say(o, "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok");
    else
        peer_say(o, "HTTP/1.1 503 No\r\nContent-Length: 0\r\n\r\n");
}

/* The origin's half of a connection: answers each request as its path says. */
static void serve(struct sim *s, struct peer *o)
{
    for (;;) {
        const char *head = o->rx ? o->rx + o->taken : NULL;
        uint32_t id, up, down;
        bool bad = false;
        if (!head || !*head)
            return;
        if (*head == 'G') {
            answer_probe(s, o);
            return;
        }
        if (sscanf(head, "POST /%u/%u/%u ", &id, &up, &down) != 3) {
            if (strstr(head, "\r\n\r\n"))
                sim_fail(s, "the origin got a damaged request");
            return;
        }
        const char *end = whole_body(head, o->rx + o->rx_len, id, up, &bad);
        if (bad)
            sim_fail(s, "the origin got a damaged body");
        if (!end)
            return;
        o->taken = (size_t)(end - o->rx);
        char text[128];
        unsigned how = rng_below(&s->rng, 8);
        if (how == 0) { /* until close */
            peer_say(o, "HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n");
            send_body(o, id, down, false, &s->rng);
            peer_shutdown(o);
            return;
        }
        bool chunked = how < 4;
        if (chunked)
            snprintf(text, sizeof(text), "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n");
        else
            snprintf(text, sizeof(text), "HTTP/1.1 200 OK\r\nContent-Length: %u\r\n\r\n", down);
        peer_say(o, text);
        send_body(o, id, down, chunked, &s->rng);
    }
}

static void echo(struct peer *o)
{
    if (o->rx_len > o->taken) {
        peer_send(o, o->rx + o->taken, o->rx_len - o->taken);
        o->taken = o->rx_len;
    }
    if (o->eof && !o->shut)
        peer_shutdown(o);
}

static void check_tunnel(struct dialog *d)
{
    struct peer *c = d->client;
    for (; d->at < c->rx_len; d->at++)
        if (d->at >= d->up || (uint8_t)c->rx[d->at] != body_byte(d->id, (uint32_t)d->at))
            sim_fail(d->sim, "the tunnel damaged its bytes");
    if (c->eof) {
        if (d->at != d->up)
            sim_fail(d->sim, "the tunnel lost bytes");
        d->answered = d->requests;
        d->sim->done++;
    }
}

static void check_answers(struct dialog *d)
{
    struct sim *s = d->sim;
    struct peer *c = d->client;
    bool bad = false;
    const char *head = c->rx ? c->rx + c->taken : NULL;
    if (!head || !*head)
        return;
    if (strncmp(head, "HTTP/1.1 200 ", c->rx_len - c->taken < 13 ? c->rx_len - c->taken : 13)) {
        sim_fail(s, "an answer that is not 200");
        return;
    }
    const char *end = whole_body(head, c->rx + c->rx_len, d->id, d->down, &bad);
    if (bad)
        sim_fail(s, "the client got a damaged body");
    if (!end)
        return;
    c->taken = (size_t)(end - c->rx);
    d->answered++;
    if (d->answered < d->requests)
        next_request(d);
    else
        s->done++;
}

/* Something came since the last look: bodies are gone through again only then. */
static bool has_news(struct peer *p)
{
    size_t state = p->rx_len * 4 + (p->eof ? 2 : 0) + (p->err ? 1 : 0) + 1;
    if ((uintptr_t)p->user == state)
        return false;
    p->user = (void *)state;
    return true;
}

/* What holds between any two steps. */
static void check_upstream(struct sim *s, const struct upstream *up)
{
    unsigned ejected = 0;
    list_for_each(n, &up->endpoints_)
    {
        const struct endpoint *ep = container_of(n, struct endpoint, node_);
        ejected += ep->flags & ENDPOINT_EJECTED ? 1 : 0;
        if (ep->active + ep->nidle_ + ep->warming_ != ep->conns_)
            sim_fail(s, "a connection is in no state or in two");
        if (ep->conns_ > up->pool.max)
            sim_fail(s, "more connections than the pool may have");
        if (ep->place_ == BALANCE_NOWHERE && ep->nidle_)
            sim_fail(s, "a pooled connection to an endpoint that isn't used");
    }
    if (ejected > MAX_EJECTED)
        sim_fail(s, "more endpoints are ejected than may be");
    if (!up->balance.n)
        sim_fail(s, "no endpoint to go to");
}

static void check_cores(struct sim *s)
{
    for (unsigned i = 0; i < s->w->shared.ncores; i++) {
        const struct upstreams *u = &s->w->cores[i]->proxy->upstreams;
        for (size_t k = 0; k < u->nby_index_; k++)
            check_upstream(s, u->by_index_[k]);
    }
}

static bool sim_is_done(void *ctx)
{
    struct sim *s = ctx;
    check_cores(s);
    list_for_each_safe(n, tmp, &s->w->peers)
    {
        struct peer *o = container_of(n, struct peer, node);
        if (o->host != &s->w->origin || !o->stream || !has_news(o))
            continue;
        struct stream_info i;
        stream_get_info(o->stream, &i);
        if (policies_serve(s->policies, o, i.local_port))
            continue;
        if (i.local_port == 9001)
            echo(o);
        else
            serve(s, o);
        if (o->eof && !o->shut)
            peer_shutdown(o); /* after what is still to be sent */
    }
    for (unsigned i = 0; i < s->ndialogs; i++) {
        struct dialog *d = &s->dialogs[i];
        if (d->answered == d->requests || !has_news(d->client))
            continue;
        if (d->client->err)
            sim_fail(s, "a client's connection died");
        else if (d->tunnel)
            check_tunnel(d);
        else
            check_answers(d);
    }
    policies_step(s->policies);
    if (policies_wrong(s->policies))
        sim_fail(s, policies_wrong(s->policies));
    return s->failed || (s->done == s->ndialogs && policies_is_done(s->policies));
}

static void start_dialog(struct sim *s, struct dialog *d)
{
    static uint8_t buf[200000];
    d->sim = s;
    d->tunnel = rng_below(&s->rng, 4) == 0;
    d->client = world_connect(s->w, d->tunnel ? 81 : 80);
    d->requests = 1 + rng_below(&s->rng, 5);
    if (!d->tunnel) {
        next_request(d);
        return;
    }
    d->id = (uint32_t)rng_next(&s->rng);
    d->up = draw_size(&s->rng);
    for (uint32_t i = 0; i < d->up; i++)
        buf[i] = body_byte(d->id, i);
    peer_send(d->client, buf, d->up);
    peer_shutdown(d->client);
}

static struct wire_path draw_path(struct rng *r)
{
    struct wire_path p = {
        .delay_ns = 1000 + rng_below(r, 20000000),
        .jitter_ns = rng_below(r, 1000000),
    };
    if (rng_chance(r, 700000))
        p.loss_ppm = rng_below(r, 100000);
    if (rng_chance(r, 500000))
        p.reorder_ppm = rng_below(r, 100000);
    if (rng_chance(r, 500000))
        p.duplicate_ppm = rng_below(r, 100000);
    if (rng_chance(r, 300000))
        p.corrupt_ppm = rng_below(r, 50000);
    if (rng_chance(r, 300000)) {
        p.rate_bps = 1000000ull + rng_below(r, 100000000);
        p.queue_packets = 20 + rng_below(r, 200);
    }
    return p;
}

/* How the upstream is balanced, pooled and watched. */
static void draw_upstream(struct sim *s)
{
    unsigned min = rng_below(&s->rng, 3);
    int n = snprintf(s->app, sizeof(s->app),
                     "    balance: %s\n    panic: %u%%\n"
                     "    pool: { min: %u, max: %u, idle: %u, acquire_timeout: 5m%s%s }\n",
                     balancers[rng_below(&s->rng, 4)], 1 + rng_below(&s->rng, 100), min, POOL_MAX,
                     min + rng_below(&s->rng, 3), rng_below(&s->rng, 2) ? ", lifetime: 500ms" : "",
                     rng_below(&s->rng, 2) ? ", requests: 2" : "");
    if (rng_below(&s->rng, 4))
        snprintf(s->app + n, sizeof(s->app) - (size_t)n,
                 "    health: { interval: 500ms, timeout: 400ms, healthy: 1, unhealthy: 1%s }\n"
                 "    outlier: { consecutive: 1, error_rate: off, latency: 110%%, requests: 1, "
                 "window: 300ms, ejection: 700ms, max_ejected: 25%% }\n",
                 rng_below(&s->rng, 2) ? ", path: /" : "");
}

static const char *configuration(const struct sim *s)
{
    static char yaml[8192];
    int n = snprintf(yaml, sizeof(yaml), "%s%s%s", s->cores == 2 ? sim_yaml_2 : sim_yaml_1,
                     sim_yaml_rest, s->app);
    policies_yaml(s->policies, yaml + n, sizeof(yaml) - (size_t)n);
    return yaml;
}

/* False: stuck. */
static bool run_to_end(struct sim *s)
{
    uint64_t end = s->w->now + TIME_LIMIT;
    while (s->w->now < end) {
        bool reload;
        uint64_t next = policies_turn(s->policies, &reload);
        if (reload) {
            world_publish(s->w, configuration(s));
            policies_published(s->policies);
        }
        if (world_run(s->w, sim_is_done, s, next))
            return true;
    }
    return false;
}

/* A process of its own for each seed would cost an EAL start each: a failure ends this one. */
static void run_seed(uint64_t seed, bool verbose)
{
    struct sim *s = calloc(1, sizeof(*s));
    s->rng.state = seed * 0x9e3779b97f4a7c15ull;
    unsigned cores = s->cores = 1 + rng_below(&s->rng, 2);
    draw_upstream(s);
    s->policies = policies_new(seed);
    struct world_opts o = {.yaml = configuration(s),
                           .seed = seed,
                           .cores = cores,
                           .path = draw_path(&s->rng),
                           .mbufs = 8191,
                           .misroute_ppm = cores == 2 ? rng_below(&s->rng, 500000) : 0};
    s->w = world_new(&o);
    world_listen(s->w, 9000);
    for (uint16_t port = 9001; port <= 9000 + ENDPOINTS; port++)
        world_listen(s->w, port);
    s->ndialogs = 1 + rng_below(&s->rng, MAX_CONNS);
    for (unsigned i = 0; i < s->ndialogs; i++)
        start_dialog(s, &s->dialogs[i]);
    policies_start(s->policies, s->w);
    if (!run_to_end(s))
        sim_fail(s, "stuck: an hour went by");
    if (!s->failed) {
        world_sleep(s->w, QUIET);
        policies_end(s->policies);
        if (policies_wrong(s->policies))
            sim_fail(s, policies_wrong(s->policies));
    }
    if (s->failed) {
        world_dump(s->w);
        fprintf(stderr, "seed %" PRIu64 ": %s\n", seed, s->why);
        exit(1);
    }
    if (verbose) {
        char text[256];
        policies_tell(s->policies, text, sizeof(text));
        printf("seed %" PRIu64 ": %u connections, %u cores, %.3f virtual seconds; %s\n", seed,
               s->ndialogs, cores, (double)(s->w->now - 1234567891ull) / 1e9, text);
    }
    world_free(s->w);
    policies_free(s->policies);
    free(s);
}

struct args {
    uint64_t first, count;
    bool verbose;
};

static void run_all(void **state)
{
    struct args *a = *state;
    for (uint64_t i = 0; i < a->count; i++)
        run_seed(a->first + i, a->verbose);
}

static double now_s(void)
{
    struct timespec ts;
    clock_gettime(CLOCK_MONOTONIC, &ts);
    return (double)ts.tv_sec + (double)ts.tv_nsec / 1e9;
}

int main(int argc, char **argv)
{
    struct args a = {.first = 1, .count = 20};
    for (int i = 1; i < argc; i++) {
        if (!strcmp(argv[i], "--seeds") && i + 1 < argc) {
            a.count = strtoull(argv[++i], NULL, 0);
        } else if (!strcmp(argv[i], "--seed") && i + 1 < argc) {
            a.first = strtoull(argv[++i], NULL, 0);
            a.count = 1;
        } else if (!strcmp(argv[i], "--first") && i + 1 < argc) {
            a.first = strtoull(argv[++i], NULL, 0);
        } else if (!strcmp(argv[i], "--verbose")) {
            a.verbose = true;
        } else {
            fprintf(stderr, "usage: sim [--seeds N] [--first S] [--seed S] [--verbose]\n");
            return 2;
        }
    }
    struct CMUnitTest tests[] = {
        {"every_seed_delivers_every_byte_and_leaves_nothing", run_all, NULL, NULL, &a},
    };
    double start = now_s();
    int failed = cmocka_run_group_tests_name("sim", tests, NULL, NULL);
    double took = now_s() - start;
    fprintf(stderr, "# %" PRIu64 " seeds from %" PRIu64 ": %.1f s, %.1f seeds per second\n",
            a.count, a.first, took, (double)a.count / took);
    return failed;
}
