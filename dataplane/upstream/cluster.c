#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "dataplane/upstream/pool.h"
#include "dataplane/upstream/upstream.h"

void upstreams_init(struct upstreams *u, struct sched *sched, struct tcp *tcp, uint64_t seed)
{
    memset(u, 0, sizeof(*u));
    u->sched = sched;
    u->tcp = tcp;
    u->rng.state = seed;
    list_init(&u->all_);
    slab_init(&u->conns_, sizeof(struct upconn), 0);
    slab_init(&u->endpoints_, sizeof(struct endpoint), 0);
    slab_init(&u->upstreams_, sizeof(struct upstream), 0);
}

void upstream_maybe_free(struct upstream *up)
{
    if (!up->removed_ || up->refs_ || !list_is_empty(&up->endpoints_))
        return;
    if (up->set_->found_ == &up->node_)
        up->set_->found_ = NULL;
    list_remove(&up->node_);
    slab_put(&up->set_->upstreams_, up);
}

void endpoint_maybe_free(struct endpoint *ep)
{
    if (!ep->removed_ || ep->conns_)
        return;
    struct upstream *up = ep->upstream;
    list_remove(&ep->node_);
    slab_put(&up->set_->endpoints_, ep);
    upstream_maybe_free(up);
}

/* The last step may free the upstream too. */
static void endpoint_remove(struct endpoint *ep)
{
    ep->removed_ = true;
    ep->conns_++; /* keeps it through the loop */
    pool_close_idle(ep);
    ep->conns_--;
    endpoint_maybe_free(ep);
}

static void upstream_remove(struct upstream *up)
{
    up->removed_ = true;
    up->refs_++;
    list_for_each_safe(n, tmp, &up->endpoints_)
        endpoint_remove(container_of(n, struct endpoint, node_));
    up->nendpoints = 0;
    upstream_put(up);
}

void upstreams_fini(struct upstreams *u)
{
    list_for_each_safe(n, tmp, &u->all_) upstream_remove(container_of(n, struct upstream, node_));
    assert(list_is_empty(&u->all_));
    free(u->by_index_);
    slab_fini(&u->conns_);
    slab_fini(&u->endpoints_);
    slab_fini(&u->upstreams_);
}

/* Snapshots have them in much the same order as the one before: from where the last one was found
 * the next is mostly one step away. */
static struct upstream *find(struct upstreams *u, const char *name)
{
    struct list_node *from = u->found_ ? u->found_ : &u->all_, *n = from;
    do {
        n = n->next;
        if (n == &u->all_)
            continue;
        struct upstream *up = container_of(n, struct upstream, node_);
        if (!up->removed_ && strcmp(up->name, name) == 0) {
            u->found_ = n;
            return up;
        }
    } while (n != from);
    return NULL;
}

static struct endpoint *find_endpoint(struct upstream *up, const struct config_addr *a)
{
    list_for_each(n, &up->endpoints_)
    {
        struct endpoint *ep = container_of(n, struct endpoint, node_);
        if (!ep->removed_ && ep->addr == a->addr && ep->port == a->port)
            return ep;
    }
    return NULL;
}

static struct upstream *upstream_new(struct upstreams *u, const char *name)
{
    struct upstream *up = slab_get_zeroed(&u->upstreams_);
    if (!up)
        return NULL;
    list_init(&up->endpoints_);
    up->set_ = u;
    strncpy(up->name, name, sizeof(up->name) - 1);
    list_push_tail(&u->all_, &up->node_);
    return up;
}

static struct endpoint *endpoint_new(struct upstream *up, const struct config_addr *a)
{
    struct endpoint *ep = slab_get_zeroed(&up->set_->endpoints_);
    if (!ep)
        return NULL;
    ep->upstream = up;
    ep->addr = a->addr;
    ep->port = a->port;
    list_init(&ep->idle_);
    list_push_tail(&up->endpoints_, &ep->node_);
    return ep;
}

static bool is_configured(const struct config_upstream *cfg, const struct endpoint *ep)
{
    for (size_t i = 0; i < cfg->nendpoints; i++)
        if (cfg->endpoints[i].addr == ep->addr && cfg->endpoints[i].port == ep->port)
            return true;
    return false;
}

/* Adding comes first: it is all that can fail, and what was added in vain does no harm. */
static int add_missing(struct upstreams *u, const struct snapshot *s, struct upstream **table)
{
    for (size_t i = 0; i < s->nupstreams; i++) {
        const struct config_upstream *cfg = &s->upstreams[i];
        struct upstream *up = find(u, cfg->name);
        if (!up)
            up = upstream_new(u, cfg->name);
        if (!up)
            return -ENOMEM;
        for (size_t k = 0; k < cfg->nendpoints; k++)
            if (!find_endpoint(up, &cfg->endpoints[k]) && !endpoint_new(up, &cfg->endpoints[k]))
                return -ENOMEM;
        table[i] = up;
    }
    return 0;
}

static void adopt(struct upstream *up, const struct config_upstream *cfg)
{
    uint32_t kept = 0;
    up->refs_++;
    list_for_each_safe(n, tmp, &up->endpoints_)
    {
        struct endpoint *ep = container_of(n, struct endpoint, node_);
        if (ep->removed_)
            continue;
        if (is_configured(cfg, ep))
            kept++;
        else
            endpoint_remove(ep);
    }
    up->refs_--;
    up->nendpoints = kept;
    up->balance = cfg->balance;
    up->connect_timeout = cfg->connect_timeout;
    up->request_timeout = cfg->request_timeout;
    up->idle_timeout = cfg->idle_timeout;
    up->pool = cfg->pool;
}

int upstreams_apply(struct upstreams *u, const struct snapshot *s)
{
    struct upstream **table = calloc(s->nupstreams + 1, sizeof(*table));
    if (!table)
        return -ENOMEM;
    int err = add_missing(u, s, table);
    if (err) {
        free(table);
        return err;
    }
    list_for_each(n, &u->all_) container_of(n, struct upstream, node_)->named_ = false;
    for (size_t i = 0; i < s->nupstreams; i++)
        table[i]->named_ = true;
    list_for_each_safe(n, tmp, &u->all_)
    {
        struct upstream *up = container_of(n, struct upstream, node_);
        if (!up->removed_ && !up->named_)
            upstream_remove(up);
    }
    for (size_t i = 0; i < s->nupstreams; i++)
        adopt(table[i], &s->upstreams[i]);
    free(u->by_index_);
    u->by_index_ = table;
    u->nby_index_ = s->nupstreams;
    return 0;
}

struct upstream *upstream_get(struct upstreams *u, const struct snapshot *s,
                              const struct config_upstream *cfg)
{
    size_t i = (size_t)(cfg - s->upstreams);
    assert(i < u->nby_index_);
    u->by_index_[i]->refs_++;
    return u->by_index_[i];
}

void upstream_put(struct upstream *up)
{
    assert(up->refs_ > 0);
    up->refs_--;
    upstream_maybe_free(up);
}
