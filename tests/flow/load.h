/* Many clients and an origin that answers by itself, for tests of what holds under load. Everything
 * is driven from world_run(): load_step() looks at all peers after each pass. */
#ifndef MILLRACE_TESTS_FLOW_LOAD_H
#define MILLRACE_TESTS_FLOW_LOAD_H

#include "runtime/rng.h"
#include "tests/flow/flow.h"

#define LOAD_CLIENTS  64
#define LOAD_JOBS     128
#define LOAD_STATUSES 600

struct load;

/* One request that the origin has and has not answered. */
struct load_job {
    struct peer *peer;
    uint64_t due;
    bool used;
};

struct load {
    struct world *w;
    struct rng rng;
    struct load_job jobs[LOAD_JOBS];
    struct peer *clients[LOAD_CLIENTS];
    unsigned nclients;
    const char *request;                 /* what a client says; NULL: GET */
    bool again;                          /* a client that was answered asks again */
    uint64_t think;                      /* ns before it does */
    uint64_t ready[LOAD_CLIENTS];        /* when it does; 0: it waits for an answer */
    const char *answer;                  /* of the origin; NULL: OK2 */
    uint64_t (*service)(struct load *l); /* how long the origin takes, ns */
    bool (*kill)(struct load *l);        /* may end a client that waits. NULL: never */
    unsigned in_flight, most;            /* at the origin */
    uint64_t seen;                       /* requests the origin has got */
    uint64_t answers[LOAD_STATUSES];     /* by status */
    uint64_t killed;
};

static inline struct load_job *load_job_of(struct load *l, const struct peer *p)
{
    return p->user;
}

static inline void load_take(struct load *l, struct peer *p)
{
    for (unsigned i = 0; i < LOAD_JOBS; i++) {
        struct load_job *j = &l->jobs[i];
        if (j->used)
            continue;
        *j = (struct load_job){.peer = p, .due = l->w->now + l->service(l), .used = true};
        p->user = j;
        l->seen++;
        if (++l->in_flight > l->most)
            l->most = l->in_flight;
        return;
    }
    fail();
}

static inline void load_end(struct load *l, struct load_job *j)
{
    j->used = false;
    j->peer->user = NULL;
    l->in_flight--;
}

/* A dead connection's request is no longer in flight: the origin sees its end. */
static inline void load_origin_ends(struct load *l, struct peer *p)
{
    struct load_job *j = load_job_of(l, p);
    if (p->stream && !p->eof && !p->err)
        return;
    if (j)
        load_end(l, j);
    if (p->stream)
        peer_close(p);
}

static inline void load_origin(struct load *l, struct peer *p)
{
    struct load_job *j = load_job_of(l, p);
    if (!p->stream || p->eof || p->err)
        return;
    if (!j && p->rx_len - p->taken >= 4 && strstr(p->rx + p->taken, "\r\n\r\n")) {
        p->taken = p->rx_len;
        load_take(l, p);
        j = load_job_of(l, p);
    }
    if (j && l->w->now >= j->due) {
        load_end(l, j);
        peer_say(p, l->answer ? l->answer : OK2);
    }
}

static inline void load_count(struct load *l, unsigned i)
{
    struct peer *p = l->clients[i];
    const char *head = p->rx + p->taken,
               *end = p->rx_len > p->taken ? strstr(head, "\r\n\r\n") : NULL;
    const char *length = end ? strstr(head, "Content-Length: ") : NULL;
    if (!end || !length || length > end)
        return;
    size_t whole = (size_t)(end + 4 - head) + strtoul(length + 16, NULL, 10);
    if (p->rx_len - p->taken < whole)
        return;
    l->answers[atoi(head + 9)]++;
    p->taken += whole;
    l->ready[i] = l->again ? l->w->now + l->think + 1 : UINT64_MAX;
}

static inline void load_client(struct load *l, unsigned i)
{
    struct peer *p = l->clients[i];
    if (l->ready[i] == 0)
        load_count(l, i);
    if (!p->stream || p->eof || p->err) {
        if (p->stream)
            peer_close(p);
        l->clients[i] = world_connect(l->w, 80);
        l->ready[i] = l->again ? l->w->now + 1 : UINT64_MAX;
        return;
    }
    if (l->ready[i] == 0) {
        if (l->kill && l->kill(l)) {
            peer_abort(p);
            l->killed++;
        }
    } else if (l->w->now >= l->ready[i]) {
        l->ready[i] = 0;
        peer_say(p, l->request ? l->request : GET);
    }
}

static inline void load_each_origin(struct load *l, void (*look)(struct load *, struct peer *))
{
    list_for_each_safe(n, tmp, &l->w->peers)
    {
        struct peer *p = container_of(n, struct peer, node);
        if (p->host == &l->w->origin)
            look(l, p);
    }
}

/* For world_run(); never says that it is done. */
static inline bool load_step(void *ctx)
{
    struct load *l = ctx;
    /* What came in one pass has no order here: ends first. */
    load_each_origin(l, load_origin_ends);
    load_each_origin(l, load_origin);
    for (unsigned i = 0; i < l->nclients; i++)
        load_client(l, i);
    return false;
}

static inline void load_start(struct load *l, struct world *w, unsigned clients)
{
    l->w = w;
    l->nclients = clients;
    for (unsigned i = 0; i < clients; i++) {
        l->clients[i] = world_connect(w, 80);
        if (i % 16 == 0) /* not more than wait for a neighbour's address */
            world_sleep(w, WORLD_MS);
    }
    world_sleep(w, WORLD_MS);
    for (unsigned i = 0; i < clients; i++)
        l->ready[i] = w->now;
}

/* In steps of a millisecond: what is due is seen that late at most. */
static inline void load_run(struct load *l, uint64_t ns)
{
    uint64_t end = l->w->now + ns;
    while (l->w->now < end) {
        uint64_t step = end - l->w->now < WORLD_MS ? end - l->w->now : WORLD_MS;
        world_run(l->w, load_step, l, step);
    }
}

/* Nobody asks any more, and what is in flight ends. */
static inline void load_stop(struct load *l, uint64_t ns)
{
    l->again = false;
    l->kill = NULL;
    for (unsigned i = 0; i < l->nclients; i++)
        if (l->ready[i] != 0)
            l->ready[i] = UINT64_MAX;
    load_run(l, ns);
}

#endif
