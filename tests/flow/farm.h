/* Origins on several ports that answer by themselves, for tests of balancing and health. */
#ifndef MILLRACE_TESTS_FLOW_FARM_H
#define MILLRACE_TESTS_FLOW_FARM_H

#include "tests/flow/flow.h"

#define FARM_PORTS 4 /* 9000 and up */

struct farm {
    struct world *w;
    struct {
        const char *probe;  /* what /healthz gets; NULL: nothing */
        const char *answer; /* what everything else gets; NULL: nothing */
        uint64_t delay;     /* before an answer that is no probe's */
        unsigned probes, requests;
        char head[512]; /* of the last probe */
    } port[FARM_PORTS];
    struct peer *late; /* its answer is due when the timer fires */
    struct timer timer;
};

#define FARM_500 "HTTP/1.1 500 Internal Server Error\r\nContent-Length: 2\r\n\r\nno"

static inline void farm_on_late(struct timer *t, uint64_t now)
{
    struct farm *f = container_of(t, struct farm, timer);
    if (f->late)
        peer_say(f->late, OK2);
    f->late = NULL;
}

static inline void farm_answer(struct farm *f, struct peer *o, unsigned i)
{
    const char *head = o->rx + o->taken;
    bool is_probe = strncmp(head, "GET /healthz", 12) == 0;
    o->taken = o->rx_len;
    if (is_probe) {
        f->port[i].probes++;
        snprintf(f->port[i].head, sizeof(f->port[i].head), "%s", head);
        if (f->port[i].probe)
            peer_say(o, f->port[i].probe);
        return;
    }
    f->port[i].requests++;
    if (f->port[i].delay && !f->late) {
        f->late = o;
        f->timer.fire = farm_on_late;
        timer_arm(&f->w->origin.sched.wheel, &f->timer, f->w->now + f->port[i].delay);
    } else if (f->port[i].answer) {
        peer_say(o, f->port[i].answer);
    }
}

/* For world_run(): never done. */
static inline bool farm_work(void *ctx)
{
    struct farm *f = ctx;
    list_for_each_safe(n, tmp, &f->w->peers)
    {
        struct peer *o = container_of(n, struct peer, node);
        struct stream_info info;
        if (o->host != &f->w->origin || !o->stream)
            continue;
        stream_get_info(o->stream, &info);
        if (o->rx && o->rx_len > o->taken && strstr(o->rx + o->taken, "\r\n\r\n"))
            farm_answer(f, o, info.local_port - 9000u);
        if (o->eof && !o->shut)
            peer_shutdown(o);
    }
    return false;
}

static inline void farm_run(struct farm *f, uint64_t ns)
{
    world_run(f->w, farm_work, f, ns);
}

/* Until `at`, counted from `from`. */
static inline void farm_run_until(struct farm *f, uint64_t from, uint64_t at)
{
    assert_true(f->w->now <= from + at);
    farm_run(f, from + at - f->w->now);
}

static inline void farm_init(struct farm *f, const char *yaml, unsigned cores, uint64_t seed)
{
    struct world_opts o = {
        .yaml = yaml, .seed = seed, .cores = cores, .path = {.delay_ns = 100000}};
    memset(f, 0, sizeof(*f));
    f->w = world_new(&o);
    for (unsigned i = 0; i < FARM_PORTS; i++) {
        f->port[i].probe = f->port[i].answer = OK2;
        world_listen(f->w, (uint16_t)(9000 + i));
    }
}

struct farm_wait {
    struct farm *f;
    struct peer *c;
};

static inline bool farm_has_answer(void *ctx)
{
    struct farm_wait *fw = ctx;
    farm_work(fw->f);
    return fw->c->err || fw->c->eof || (fw->c->rx && strstr(fw->c->rx + fw->c->taken, "\r\n\r\n"));
}

/* One request on `c`; its answer's status, within 30 s. */
static inline int farm_get(struct farm *f, struct peer *c)
{
    struct farm_wait fw = {f, c};
    peer_say(c, GET);
    if (!world_run(f->w, farm_has_answer, &fw, 30 * WORLD_S) || !c->rx) {
        world_dump(f->w);
        fail_msg("no answer");
    }
    int status = atoi(c->rx + c->taken + 9);
    farm_run(f, WORLD_MS);
    c->taken = c->rx_len;
    return status;
}

static inline struct endpoint_stats *farm_endpoint(struct farm *f, unsigned i)
{
    struct core_status *st = world_status(f->w);
    for (unsigned k = 0; k < st->nendpoints; k++)
        if (st->endpoints[k].port == 9000 + i)
            return &st->endpoints[k];
    fail_msg("no endpoint %u", i);
    return NULL;
}

#define FARM_YAML(cores, upstream) FARM_YAML_(cores, upstream)
#define FARM_YAML_(cores, upstream)                                                                \
    FLOW_HEAD(cores) FLOW_LISTENERS("") "upstreams:\n  - name: app\n" upstream

#endif
