#include "dataplane/upstream/shared.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "dataplane/upstream/limiter.h"

#define BUDGET_BURST 100 /* retries */

/* A message to each core that comes behind all that was posted before. */
struct fence_post {
    struct mailbox_item item;
    struct fence *fence;
};

struct fence {
    atomic_uint pending;
    struct fence_post posts[];
};

struct upstream_registry {
    struct registry_cores cores;
    struct list_node upstreams;
};

static void on_fence(struct mailbox_item *item)
{
    struct fence_post *p = container_of(item, struct fence_post, item);
    atomic_fetch_sub_explicit(&p->fence->pending, 1, memory_order_release);
}

static struct fence *fence_new(const struct registry_cores *c)
{
    struct fence *f = calloc(1, sizeof(*f) + c->n * sizeof(f->posts[0]));
    if (!f)
        return NULL;
    atomic_init(&f->pending, c->n);
    for (unsigned i = 0; i < c->n; i++) {
        struct mailbox *mb = c->mailbox(c->ctx, i);
        f->posts[i].fence = f;
        f->posts[i].item.deliver = on_fence;
        if (mb)
            mailbox_post(mb, &f->posts[i].item);
        else
            on_fence(&f->posts[i].item);
    }
    return f;
}

/* No core can reach the object any more. Sends the fence at the first call that finds it unused. */
static bool is_free(const struct registry_cores *c, const struct shared_limits *l, uint64_t gone,
                    struct fence **fence)
{
    if (!gone || c->acked(c->ctx) < gone ||
        atomic_load_explicit(&l->users, memory_order_acquire) != 0)
        return false;
    if (!*fence)
        *fence = fence_new(c);
    return *fence && atomic_load_explicit(&(*fence)->pending, memory_order_acquire) == 0;
}

static void limits_fini(struct shared_limits *l)
{
    permits_free(l->requests);
    permits_free(l->connections);
}

static int limits_init(struct shared_limits *l, unsigned cores,
                       const struct permits_discipline *discipline)
{
    struct permits_opts o = {.limit = UINT32_MAX, .cores = cores, .queue = UINT32_MAX};
    o.discipline = discipline;
    int err = permits_new(&o, &l->requests);
    if (err)
        return err;
    o.discipline = NULL;
    o.wanted = limiter_connection_wanted;
    err = permits_new(&o, &l->connections);
    if (err)
        permits_free(l->requests);
    return err;
}

static void endpoint_free(struct endpoint_shared *e)
{
    list_remove(&e->node_);
    limits_fini(&e->limits);
    free(e->fence_);
    free(e);
}

static void upstream_free(struct upstream_shared *u)
{
    struct list_node *n;
    while ((n = list_pop_head(&u->endpoints_)))
        endpoint_free(container_of(n, struct endpoint_shared, node_));
    list_remove(&u->node_);
    limits_fini(&u->limits);
    free(u->fence_);
    free(u);
}

static struct endpoint_shared *endpoint_new(struct upstream_shared *u, unsigned cores,
                                            const struct config_addr *a)
{
    struct endpoint_shared *e = calloc(1, sizeof(*e));
    if (!e)
        return NULL;
    if (limits_init(&e->limits, cores, NULL) != 0) {
        free(e);
        return NULL;
    }
    e->addr_ = a->addr;
    e->port_ = a->port;
    list_push_tail(&u->endpoints_, &e->node_);
    return e;
}

static struct upstream_shared *upstream_new(struct upstream_registry *r,
                                            const struct config_upstream *cfg)
{
    struct upstream_shared *u = aligned_alloc(64, sizeof(*u));
    if (!u)
        return NULL;
    memset(u, 0, sizeof(*u));
    if (limits_init(&u->limits, r->cores.n, &limiter_discipline) != 0) {
        free(u);
        return NULL;
    }
    struct retry_budget_opts o = {
        .ratio_ppm = cfg->retries.budget_ratio * 10000u,
        .min_per_second = cfg->retries.budget_min,
        .burst = BUDGET_BURST,
        .cores = r->cores.n,
    };
    retry_budget_init(&u->budget, &o);
    list_init(&u->endpoints_);
    strncpy(u->name_, cfg->name, sizeof(u->name_) - 1);
    list_push_tail(&r->upstreams, &u->node_);
    return u;
}

struct upstream_registry *upstream_registry_new(const struct registry_cores *c)
{
    struct upstream_registry *r = calloc(1, sizeof(*r));
    if (!r)
        return NULL;
    assert(c->n > 0 && c->n <= PERMITS_MAX_CORES);
    r->cores = *c;
    list_init(&r->upstreams);
    return r;
}

void upstream_registry_free(struct upstream_registry *r)
{
    if (!r)
        return;
    struct list_node *n;
    while ((n = list_pop_head(&r->upstreams)))
        upstream_free(container_of(n, struct upstream_shared, node_));
    free(r);
}

static struct upstream_shared *find(const struct upstream_registry *r, const char *name)
{
    list_for_each(n, &r->upstreams)
    {
        struct upstream_shared *u = container_of(n, struct upstream_shared, node_);
        if (!u->gone_ && strcmp(u->name_, name) == 0)
            return u;
    }
    return NULL;
}

static struct endpoint_shared *find_endpoint(const struct upstream_shared *u,
                                             const struct config_addr *a)
{
    list_for_each(n, &u->endpoints_)
    {
        struct endpoint_shared *e = container_of(n, struct endpoint_shared, node_);
        if (!e->gone_ && e->addr_ == a->addr && e->port_ == a->port)
            return e;
    }
    return NULL;
}

/* All that can fail. What was made in vain goes with the next snapshot. */
static int make_missing(struct upstream_registry *r, struct snapshot *s)
{
    for (size_t i = 0; i < s->nupstreams; i++) {
        struct config_upstream *cfg = &s->upstreams[i];
        cfg->shared = find(r, cfg->name);
        if (!cfg->shared)
            cfg->shared = upstream_new(r, cfg);
        if (!cfg->shared)
            return -ENOMEM;
        for (size_t k = 0; k < cfg->nendpoints; k++) {
            const struct config_addr *a = &cfg->endpoints[k].address;
            struct endpoint_shared *e = find_endpoint(cfg->shared, a);
            if (!e)
                e = endpoint_new(cfg->shared, r->cores.n, a);
            if (!e)
                return -ENOMEM;
            cfg->endpoints[k].shared = e;
        }
    }
    return 0;
}

static bool has_endpoint(const struct config_upstream *cfg, const struct endpoint_shared *e)
{
    for (size_t k = 0; cfg && k < cfg->nendpoints; k++)
        if (cfg->endpoints[k].shared == e)
            return true;
    return false;
}

static void mark_gone(struct upstream_registry *r, const struct snapshot *s)
{
    list_for_each(n, &r->upstreams)
    {
        struct upstream_shared *u = container_of(n, struct upstream_shared, node_);
        const struct config_upstream *cfg = u->gone_ ? NULL : snapshot_upstream(s, u->name_);
        if (!cfg && !u->gone_)
            u->gone_ = s->version;
        list_for_each(m, &u->endpoints_)
        {
            struct endpoint_shared *e = container_of(m, struct endpoint_shared, node_);
            if (!e->gone_ && !has_endpoint(cfg, e))
                e->gone_ = s->version;
        }
    }
}

static void put_in_force(const struct snapshot *s)
{
    for (size_t i = 0; i < s->nupstreams; i++) {
        const struct config_upstream *cfg = &s->upstreams[i];
        const struct config_limits *l = &cfg->limits;
        permits_set_limit(cfg->shared->limits.requests, l->requests);
        permits_set_limit(cfg->shared->limits.connections, l->connections);
        retry_budget_set(&cfg->shared->budget, cfg->retries.budget_ratio * 10000u,
                         cfg->retries.budget_min);
        for (size_t k = 0; k < cfg->nendpoints; k++) {
            struct shared_limits *e = &cfg->endpoints[k].shared->limits;
            permits_set_limit(e->requests, l->endpoint_requests);
            permits_set_limit(e->connections, l->endpoint_connections);
        }
    }
}

static void collect(struct upstream_registry *r)
{
    list_for_each_safe(n, tmp, &r->upstreams)
    {
        struct upstream_shared *u = container_of(n, struct upstream_shared, node_);
        list_for_each_safe(m, tmp2, &u->endpoints_)
        {
            struct endpoint_shared *e = container_of(m, struct endpoint_shared, node_);
            if (is_free(&r->cores, &e->limits, e->gone_, &e->fence_))
                endpoint_free(e);
        }
        if (list_is_empty(&u->endpoints_) && is_free(&r->cores, &u->limits, u->gone_, &u->fence_))
            upstream_free(u);
    }
}

int upstream_registry_prepare(struct upstream_registry *r, struct snapshot *s)
{
    return make_missing(r, s);
}

void upstream_registry_commit(struct upstream_registry *r, const struct snapshot *s)
{
    assert(s->version > 0);
    mark_gone(r, s);
    put_in_force(s);
    collect(r);
}

unsigned upstream_registry_count(const struct upstream_registry *r)
{
    unsigned n = 0;
    list_for_each(u, &r->upstreams)
    {
        n++;
        list_for_each(e, &container_of(u, struct upstream_shared, node_)->endpoints_) n++;
    }
    return n;
}
