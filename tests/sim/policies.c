#include "tests/sim/policies.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "dataplane/core_private.h"
#include "dataplane/proxy/access_log.h"
#include "dataplane/proxy/conn.h"
#include "dataplane/upstream/shared.h"
#include "dataplane/upstream/upstream.h"
#include "runtime/rng.h"

#define ASKERS      6
#define JOBS        32
#define RELOADS     4
#define STATUSES    600
#define REQUEST_NS  (20 * WORLD_S)
#define APP         0 /* indices of the upstreams in the configuration */
#define TIGHT       2
#define ENDPOINTS   3
#define LIMITED     (4 + 2 * ENDPOINTS) /* requests and connections of all that has a limit */
#define EJECTED     1                   /* at once, of three with at most half */
#define TURN_NS     (250 * WORLD_MS)
#define FIRST_PORT  9012
#define LAST_PORT   9014
#define ANSWER(s)   "HTTP/1.1 " s "\r\nContent-Length: 2\r\n\r\nok"
#define CONN_CLOSES "\r\nconnection: close\r\n"

struct asker {
    struct peer *peer;
    unsigned left;
    bool waits;
    uint64_t leaves; /* when it gives up waiting */
};

/* An origin's answer that is due later. */
struct job {
    struct peer *peer;
    uint64_t due;
};

/* A limit that moves: what is over it may stay until it is given up, and no more. */
struct ceiling {
    uint32_t limit, most;
};

struct limited {
    struct permits *permits;
    struct ceiling c;
};

struct values {
    unsigned app_requests, app_connections;
    unsigned requests, endpoint_requests, connections, endpoint_connections, queue,
        queue_timeout_ms, attempts, try_ms;
    bool adaptive;
    unsigned health, consecutive; /* 0: no probes, 1: of TCP, 2: of HTTP; 0: no ejection */
};

struct policies {
    struct world *w;
    struct rng rng;
    struct values now;
    unsigned ratio, floor; /* %, a second */
    uint32_t kill_ppm;
    unsigned reloads, queue_was;
    uint64_t start, next_reload, next_turn;
    struct limited limited[LIMITED];
    struct ceiling queued;
    struct asker askers[ASKERS];
    unsigned naskers;
    struct job jobs[JOBS];
    uint64_t ejected, asked, killed, broken, answers[STATUSES], records[STATUSES], nrecords;
    const char *wrong;
};

static void must(struct policies *p, bool holds, const char *what)
{
    if (!holds && !p->wrong)
        p->wrong = what;
}

/* The configuration --------------------------------------------------------------------------- */

static void draw_values(struct policies *p)
{
    static const unsigned tries[] = {0, 300, 2000};
    struct rng *r = &p->rng;
    p->now = (struct values){
        .app_requests = 1 + rng_below(r, 12),
        .app_connections = 1 + rng_below(r, 12),
        .requests = 1 + rng_below(r, 5),
        .endpoint_requests = 1 + rng_below(r, 4),
        .connections = 1 + rng_below(r, 8),
        .endpoint_connections = 1 + rng_below(r, 4),
        .queue = rng_below(r, 6),
        .queue_timeout_ms = 10 + rng_below(r, 3000),
        .attempts = 1 + rng_below(r, 4),
        .try_ms = tries[rng_below(r, 3)],
        .adaptive = rng_chance(r, 500000),
        .health = rng_below(r, 3),
        .consecutive = rng_below(r, 4),
    };
}

struct policies *policies_new(uint64_t seed)
{
    static const unsigned ratios[] = {0, 10, 20, 50}, floors[] = {0, 3, 20};
    struct policies *p = calloc(1, sizeof(*p));
    p->rng.state = seed * 0x9e3779b97f4a7c15ull + 1;
    p->ratio = ratios[rng_below(&p->rng, 4)];
    p->floor = floors[rng_below(&p->rng, 3)];
    p->kill_ppm = rng_chance(&p->rng, 500000) ? 400000 : 0;
    p->naskers = rng_below(&p->rng, ASKERS + 1);
    p->reloads = rng_below(&p->rng, RELOADS + 1);
    draw_values(p);
    p->queue_was = p->now.queue;
    return p;
}

void policies_free(struct policies *p)
{
    free(p);
}

void policies_yaml(const struct policies *p, char *out, size_t size)
{
    const struct values *v = &p->now;
    char try[32] = "off";
    if (v->try_ms)
        snprintf(try, sizeof(try), "%ums", v->try_ms);
    int n = snprintf(
        out, size,
        "    limits: { requests: %u, connections: %u, queue_timeout: 1h }\n"
        "  - name: raw\n"
        "    endpoints: [10.9.0.2:9001]\n"
        "    timeouts: { connect: 5m, idle: 1h }\n"
        "  - name: tight\n"
        "    endpoints: [10.9.0.2:9012, 10.9.0.2:9013, 10.9.0.2:9014]\n"
        "    timeouts: { connect: 2s, request: 20s, try: %s, idle: 1h }\n"
        "    limits:\n"
        "      { requests: %u, endpoint_requests: %u, connections: %u, endpoint_connections: %u,\n"
        "        queue: %u, queue_timeout: %ums, queue_order: %s }\n"
        "    retries:\n"
        "      { attempts: %u, when: { 503: true },\n"
        "        budget: { ratio: %u%%, min_per_second: %u } }\n",
        v->app_requests, v->app_connections, try, v->requests, v->endpoint_requests, v->connections,
        v->endpoint_connections, v->queue, v->queue_timeout_ms, v->adaptive ? "adaptive" : "fifo",
        v->attempts, p->ratio, p->floor);
    if (v->consecutive && (size_t)n < size)
        n += snprintf(
            out + n, size - (size_t)n,
            "    outlier: { consecutive: %u, ejection: 700ms, window: 1s, max_ejected: 50%% }\n",
            v->consecutive);
    if (v->health && (size_t)n < size)
        snprintf(out + n, size - (size_t)n,
                 "    health: { interval: 500ms, timeout: 400ms, healthy: 1, unhealthy: 1%s }\n",
                 v->health == 2 ? ", path: /probe" : "");
}

/* The origin ---------------------------------------------------------------------------------- */

static void answer_later(struct policies *p, struct peer *o)
{
    for (unsigned i = 0; i < JOBS; i++) {
        if (p->jobs[i].peer)
            continue;
        p->jobs[i] = (struct job){o, p->w->now + rng_below(&p->rng, 300) * WORLD_MS};
        if (p->next_turn > p->jobs[i].due)
            p->next_turn = p->jobs[i].due;
        return;
    }
}

static void forget(struct policies *p, const struct peer *o)
{
    for (unsigned i = 0; i < JOBS; i++)
        if (p->jobs[i].peer == o)
            p->jobs[i].peer = NULL;
}

bool policies_serve(struct policies *p, struct peer *o, uint16_t port)
{
    if (port < FIRST_PORT || port > LAST_PORT)
        return false;
    if (o->eof || o->err) {
        forget(p, o);
        peer_close(o);
        return true;
    }
    if (o->rx_len == o->taken || !strstr(o->rx + o->taken, "\r\n\r\n"))
        return true;
    const char *head = o->rx + o->taken;
    bool probe = strncmp(head, "GET /probe ", 11) == 0;
    must(p, probe || strncmp(head, "GET /tight ", 11) == 0, "the origin got a damaged request");
    o->taken = o->rx_len;
    unsigned how = rng_below(&p->rng, 100);
    if (how < 50)
        peer_say(o, ANSWER("200 OK"));
    else if (how < 65)
        peer_say(o, ANSWER("503 Down"));
    else if (how < 85)
        answer_later(p, o);
    else if (how < 95)
        peer_abort(o);
    /* else silent */
    return true;
}

static void answer_due(struct policies *p)
{
    for (unsigned i = 0; i < JOBS; i++) {
        struct peer *o = p->jobs[i].peer;
        if (!o || p->jobs[i].due > p->w->now)
            continue;
        p->jobs[i].peer = NULL;
        if (o->stream)
            peer_say(o, ANSWER("200 OK"));
    }
}

/* The clients --------------------------------------------------------------------------------- */

static void ask(struct policies *p, struct asker *a)
{
    if (!a->peer)
        a->peer = world_connect(p->w, 80);
    peer_say(a->peer, "GET /tight HTTP/1.1\r\nHost: sim\r\n\r\n");
    a->waits = true;
    a->leaves = rng_chance(&p->rng, p->kill_ppm)
                    ? p->w->now + (uint64_t)rng_below(&p->rng, 400) * WORLD_MS
                    : UINT64_MAX;
    a->left--;
    p->asked++;
}

static void leave(struct asker *a)
{
    if (a->peer->stream)
        peer_abort(a->peer);
    a->peer = NULL;
    a->waits = false;
}

/* The length of the answer that is there whole; 0: it isn't yet. */
static size_t whole_answer(struct policies *p, struct peer *c, bool *ret_closes)
{
    const char *head = c->rx ? c->rx + c->taken : "", *end = strstr(head, "\r\n\r\n");
    if (!end)
        return 0;
    char *copy = strndup(head, (size_t)(end + 2 - head));
    char *length = strcasestr(copy, "\r\ncontent-length:");
    *ret_closes = strcasestr(copy, CONN_CLOSES) != NULL;
    size_t n = (size_t)(end + 4 - head) + (length ? strtoul(length + 17, NULL, 10) : 0);
    must(p, length && strncmp(head, "HTTP/1.1 ", 9) == 0, "a client got a damaged answer");
    free(copy);
    return c->rx_len - c->taken < n ? 0 : n;
}

static void go_on(struct policies *p, struct asker *a)
{
    struct peer *c = a->peer;
    bool closes = false;
    size_t n = whole_answer(p, c, &closes);
    if (n) {
        unsigned status = (unsigned)atoi(c->rx + c->taken + 9);
        must(p, status == 200 || status == 502 || status == 503 || status == 504,
             "a status that nobody gives");
        p->answers[status < STATUSES ? status : 0]++;
        c->taken += n;
        a->waits = false;
        if (closes || c->eof || c->err)
            leave(a);
    } else if (c->eof || c->err) {
        p->broken++;
        leave(a);
    } else if (p->w->now >= a->leaves) {
        p->killed++;
        leave(a);
    }
    if (!a->waits && a->left)
        ask(p, a);
}

/* What must hold ------------------------------------------------------------------------------ */

static uint32_t under(struct ceiling *c, uint32_t now)
{
    if (c->most > c->limit)
        c->most = now > c->limit ? now : c->limit;
    return c->most;
}

static void set_ceiling(struct ceiling *c, uint32_t limit, uint32_t now)
{
    c->limit = limit;
    c->most = now > limit ? now : limit;
}

static struct upstream_shared *shared(const struct policies *p, unsigned upstream)
{
    return p->w->snapshot->upstreams[upstream].shared;
}

static void check_permits(struct policies *p)
{
    for (unsigned i = 0; i < LIMITED; i++) {
        struct limited *l = &p->limited[i];
        uint32_t most = l->c.most, leased = permits_leased(l->permits);
        must(p, leased <= most, "more permits leased than the limit");
        must(p, permits_in_use(l->permits) <= leased, "more permits in use than leased");
        under(&l->c, leased);
    }
}

static void check_record(struct policies *p, const struct access_record *r)
{
    bool own = r->reason == ACCESS_queue_full || r->reason == ACCESS_queue_timeout ||
               r->reason == ACCESS_queue_shed || r->reason == ACCESS_no_time;
    must(p, !own || r->status == 503, "a reason of the queue with another status than 503");
    must(p, r->reason != ACCESS_client_gone || r->status == 499, "client_gone without 499");
    must(p, r->reason != ACCESS_request_timeout || r->status == 504 || r->status == 200,
         "a passed deadline without 504");
    must(p, r->reason != ACCESS_ok || r->status == 200 || r->status == 503,
         "ok with a status that the origin didn't give");
    must(p, r->duration_ns <= REQUEST_NS + WORLD_MS, "a request outlived its deadline");
    must(p, r->attempts <= 4, "more attempts than configured");
    p->records[r->status < STATUSES ? r->status : 0]++;
    p->nrecords++;
}

static void check_records(struct policies *p)
{
    struct access_record r;
    for (unsigned i = 0; i < p->w->shared.ncores; i++)
        while (access_ring_take(core_access_ring(p->w->cores[i]), &r))
            if (strcmp(r.upstream, "tight") == 0)
                check_record(p, &r);
    static const unsigned statuses[] = {200, 502, 503, 504};
    for (unsigned i = 0; i < 4; i++)
        must(p, p->answers[statuses[i]] <= p->records[statuses[i]], "an answer without a record");
    must(p, p->nrecords <= p->asked, "two records of one request");
}

static void check_queue(struct policies *p)
{
    uint32_t queued = atomic_load(&shared(p, TIGHT)->queued);
    if (p->queue_was > p->queued.limit) /* a core may still go by the version before */
        p->queued.most = p->queue_was;
    must(p, queued <= p->queued.most, "more in the queue than it holds");
    if (p->queue_was > p->queued.limit && world_old_versions(p->w) == 0) {
        p->queue_was = p->queued.limit;
        set_ceiling(&p->queued, p->queued.limit, queued);
    }
    under(&p->queued, queued);
}

/* What control has decided. */
static void check_ejected(struct policies *p)
{
    for (unsigned i = 0; i < p->w->shared.ncores; i++) {
        const struct upstreams *u = &p->w->cores[i]->proxy->upstreams;
        unsigned ejected = 0;
        list_for_each(n, &u->by_index_[TIGHT]->endpoints_) ejected +=
            container_of(n, struct endpoint, node_)->flags & ENDPOINT_EJECTED ? 1 : 0;
        must(p, ejected <= EJECTED, "more endpoints ejected than half of them");
        p->ejected += ejected;
    }
}

void policies_step(struct policies *p)
{
    check_records(p);
    check_permits(p);
    check_ejected(p);
    check_queue(p);
    for (unsigned i = 0; i < p->naskers; i++)
        if (p->askers[i].waits)
            go_on(p, &p->askers[i]);
}

/* What takes a whole status. */
static void check_status(struct policies *p)
{
    const struct upstream_stats *u = &world_status(p->w)->upstreams[TIGHT];
    uint64_t seconds = (p->w->now - p->start) / WORLD_S + 2;
    must(p, strcmp(u->name, "tight") == 0, "status of another upstream");
    must(p, u->attempts <= u->requests + u->retries, "more attempts than were decided");
    must(p, u->retries * 100 <= u->requests * p->ratio + p->floor * seconds * 100,
         "more retries than the budget has");
}

/* The run ------------------------------------------------------------------------------------- */

static void limit(struct limited *l, struct permits *permits, uint32_t n)
{
    l->permits = permits;
    set_ceiling(&l->c, n, permits_leased(permits));
}

static struct limited *limit_both(struct limited *l, const struct shared_limits *s,
                                  uint32_t requests, uint32_t connections)
{
    limit(l, s->requests, requests);
    limit(l + 1, s->connections, connections);
    return l + 2;
}

static void set_ceilings(struct policies *p)
{
    const struct config_upstream *tight = &p->w->snapshot->upstreams[TIGHT];
    const struct values *v = &p->now;
    struct limited *l = p->limited;
    l = limit_both(l, &shared(p, APP)->limits, v->app_requests, v->app_connections);
    l = limit_both(l, &shared(p, TIGHT)->limits, v->requests, v->connections);
    for (unsigned i = 0; i < ENDPOINTS; i++)
        l = limit_both(l, &tight->endpoints[i].shared->limits, v->endpoint_requests,
                       v->endpoint_connections);
    set_ceiling(&p->queued, v->queue, atomic_load(&shared(p, TIGHT)->queued));
}

static void draw_reload(struct policies *p)
{
    p->next_reload =
        p->reloads ? p->w->now + (uint64_t)(1 + rng_below(&p->rng, 3000)) * WORLD_MS : UINT64_MAX;
}

void policies_start(struct policies *p, struct world *w)
{
    p->w = w;
    p->start = w->now;
    set_ceilings(p);
    for (uint16_t port = FIRST_PORT; port <= LAST_PORT; port++)
        world_listen(w, port);
    for (unsigned i = 0; i < p->naskers; i++) {
        p->askers[i].left = 1 + rng_below(&p->rng, 8);
        ask(p, &p->askers[i]);
    }
    draw_reload(p);
}

uint64_t policies_turn(struct policies *p, bool *ret_reload)
{
    uint64_t now = p->w->now, next = now + TURN_NS;
    answer_due(p);
    check_status(p);
    *ret_reload = now >= p->next_reload;
    if (*ret_reload) {
        p->reloads--;
        if (p->queue_was < p->now.queue)
            p->queue_was = p->now.queue;
        draw_values(p);
        draw_reload(p);
    }
    next = next < p->next_reload ? next : p->next_reload;
    for (unsigned i = 0; i < JOBS; i++)
        if (p->jobs[i].peer && p->jobs[i].due < next)
            next = p->jobs[i].due;
    p->next_turn = next;
    return next - now;
}

void policies_published(struct policies *p)
{
    set_ceilings(p);
}

bool policies_is_done(const struct policies *p)
{
    for (unsigned i = 0; i < p->naskers; i++)
        if (p->askers[i].waits)
            return false;
    return true;
}

void policies_end(struct policies *p)
{
    check_records(p);
    check_status(p);
    for (unsigned i = 0; i < LIMITED; i += 2)
        must(p, permits_in_use(p->limited[i].permits) == 0, "a permit is lost");
    must(p, atomic_load(&shared(p, TIGHT)->queued) == 0, "a place in the queue is lost");
    must(p, p->killed || p->broken || p->nrecords == p->asked, "a request without a record");
}

void policies_tell(const struct policies *p, char *out, size_t size)
{
    const struct upstream_stats *u = &world_status(p->w)->upstreams[TIGHT];
    snprintf(out, size,
             "%" PRIu64 " asked, %" PRIu64 " killed, %" PRIu64 " broken, %" PRIu64 " ok, %" PRIu64
             " retries, %" PRIu64 " without budget, %" PRIu64 " waits, %" PRIu64 " full, %" PRIu64
             " late, %" PRIu64 " shed, %s, version %u",
             p->asked, p->killed, p->broken, p->answers[200], u->retries, u->no_budget,
             u->queue_waits, u->queue_full, u->queue_timeout, u->queue_shed,
             p->ejected ? "some ejected" : "none ejected", (unsigned)p->w->snapshot->version);
}

const char *policies_wrong(const struct policies *p)
{
    return p->wrong;
}
