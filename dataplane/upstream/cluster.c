#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "dataplane/upstream/judge.h"
#include "dataplane/upstream/pool.h"
#include "dataplane/upstream/probe.h"
#include "dataplane/upstream/upstream.h"
#include "dataplane/upstream/usable.h"

void upstreams_init(struct upstreams *u, const struct upstreams_opts *o)
{
    memset(u, 0, sizeof(*u));
    u->o_ = *o;
    u->sched = o->sched;
    u->tcp = o->tcp;
    u->rng.state = o->seed;
    list_init(&u->all_);
    list_init(&u->reports_);
    pool_warmer_init(u);
    slab_init(&u->conns_, sizeof(struct upconn), 0);
    slab_init(&u->endpoints_, sizeof(struct endpoint), 0);
    slab_init(&u->upstreams_, sizeof(struct upstream), 0);
    slab_init(&u->tallies_, sizeof(struct endpoint_tally), 0);
    slab_init(&u->probes_, probe_size(), 0);
}

void upstream_maybe_free(struct upstream *up)
{
    if (!up->removed_ || up->refs_ || !list_is_empty(&up->endpoints_))
        return;
    if (up->set_->found_ == &up->node_)
        up->set_->found_ = NULL;
    list_remove(&up->node_);
    limiter_fini(&up->limiter);
    balance_tables_fini(&up->balance.t);
    balance_tables_fini(&up->fresh_);
    slab_put(&up->set_->upstreams_, up);
}

void endpoint_maybe_free(struct endpoint *ep)
{
    if (!ep->removed_ || ep->conns_ || ep->refs_)
        return;
    struct upstream *up = ep->upstream;
    assert(list_is_empty(&ep->waiters_) && list_is_empty(&ep->granted_list_) && !ep->probe_);
    list_remove(&ep->node_);
    list_remove(&ep->warm_node_);
    list_remove(&ep->report_node_);
    limiter_side_leave(&ep->side);
    slab_put(&up->set_->endpoints_, ep);
    upstream_maybe_free(up);
}

/* The last step may free the upstream too. */
static void endpoint_remove(struct endpoint *ep)
{
    ep->removed_ = true;
    ep->place_ = BALANCE_NOWHERE;
    ep->conns_++; /* keeps it to the end */
    probe_stop(ep);
    judge_discard(ep);
    list_remove(&ep->report_node_);
    pool_close_idle(ep);
    pool_send_away(ep);
    ep->conns_--;
    endpoint_maybe_free(ep);
}

static void upstream_remove(struct upstream *up)
{
    up->removed_ = true;
    up->refs_++;
    up->nendpoints = 0;
    up->balance.n = up->balance.spares = 0;
    up->balance.table = NULL;
    list_for_each_safe(n, tmp, &up->endpoints_)
        endpoint_remove(container_of(n, struct endpoint, node_));
    up->cfg = NULL;
    up->deadline_header = NULL;
    upstream_put(up);
}

void upstreams_fini(struct upstreams *u)
{
    u->closing_ = true;
    list_for_each_safe(n, tmp, &u->all_) upstream_remove(container_of(n, struct upstream, node_));
    assert(list_is_empty(&u->all_));
    pool_warmer_fini(u);
    free(u->by_index_);
    free(u->scratch_);
    slab_fini(&u->conns_);
    slab_fini(&u->endpoints_);
    slab_fini(&u->upstreams_);
    slab_fini(&u->tallies_);
    slab_fini(&u->probes_);
}

void endpoint_hold(struct endpoint *ep)
{
    ep->refs_++;
    ep->count.picks++;
}

void endpoint_release(struct endpoint *ep)
{
    assert(ep->refs_ > 0);
    ep->refs_--;
    endpoint_maybe_free(ep);
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

/* Looking begins behind `from` (NULL: at the start): they come in much the same order as before. */
static struct endpoint *find_endpoint(struct upstream *up, uint32_t addr, uint16_t port,
                                      const struct endpoint *from)
{
    const struct list_node *start = from ? &from->node_ : &up->endpoints_, *n = start;
    do {
        n = n->next;
        if (n == &up->endpoints_)
            continue;
        struct endpoint *ep = container_of(n, struct endpoint, node_);
        if (!ep->removed_ && ep->addr == addr && ep->port == port)
            return ep;
    } while (n != start);
    return NULL;
}

static struct upstream *upstream_new(struct upstreams *u, const struct config_upstream *cfg)
{
    struct upstream *up = slab_get_zeroed(&u->upstreams_);
    if (!up)
        return NULL;
    list_init(&up->endpoints_);
    up->set_ = u;
    strncpy(up->name, cfg->name, sizeof(up->name) - 1);
    limiter_init(&up->limiter, cfg->shared, u->o_.core, u->sched, u->o_.mailbox);
    up->limiter.side.close_idle = upstream_close_for_others;
    up->limiter.side.ctx = up;
    list_push_tail(&u->all_, &up->node_);
    return up;
}

static struct endpoint *endpoint_new(struct upstream *up, const struct config_endpoint *cfg)
{
    const struct config_addr *a = &cfg->address;
    struct upstreams *u = up->set_;
    struct endpoint *ep = slab_get_zeroed(&up->set_->endpoints_);
    if (!ep)
        return NULL;
    ep->upstream = up;
    ep->addr = a->addr;
    ep->port = a->port;
    pool_endpoint_init(ep);
    limiter_side_join(&ep->side, &cfg->shared->limits, u->o_.core, u->sched, u->o_.mailbox);
    ep->side.close_idle = pool_close_for_others;
    ep->side.ctx = ep;
    list_push_tail(&up->endpoints_, &ep->node_);
    return ep;
}

/* The one of that name may be an older one, when a snapshot without it was passed over. */
static struct upstream *find_shared(struct upstreams *u, const struct config_upstream *cfg)
{
    struct upstream *up = find(u, cfg->name);
    return up && up->limiter.shared == cfg->shared ? up : NULL;
}

/* An upstream with all that `cfg` names; what it had before is still in force. */
static int add_missing(struct upstreams *u, const struct config_upstream *cfg,
                       struct upstream **ret_upstream)
{
    struct upstream *up = find_shared(u, cfg);
    if (!up)
        up = upstream_new(u, cfg);
    if (!up)
        return -ENOMEM;
    balance_tables_fini(&up->fresh_); /* of an apply that failed */
    if (balance_tables_init(&up->fresh_, cfg->nendpoints) != 0)
        return -ENOMEM;
    struct endpoint *ep = NULL;
    for (size_t i = 0; i < cfg->nendpoints; i++) {
        const struct config_addr *a = &cfg->endpoints[i].address;
        ep = find_endpoint(up, a->addr, a->port, ep);
        if (ep && ep->side.shared != &cfg->endpoints[i].shared->limits)
            ep = NULL;
        if (!ep)
            ep = endpoint_new(up, &cfg->endpoints[i]);
        if (!ep || judge_prepare(ep, cfg->outlier != NULL) != 0)
            return -ENOMEM;
        up->fresh_.by_index[i] = ep;
    }
    *ret_upstream = up;
    return 0;
}

static void remove_gone(struct upstream *up)
{
    const struct balance_tables *t = &up->fresh_;
    list_for_each(n, &up->endpoints_) container_of(n, struct endpoint, node_)->named_ = false;
    for (uint32_t i = 0; i < t->room; i++)
        t->by_index[i]->named_ = true;
    up->refs_++;
    list_for_each_safe(n, tmp, &up->endpoints_)
    {
        struct endpoint *ep = container_of(n, struct endpoint, node_);
        if (!ep->named_ && !ep->removed_)
            endpoint_remove(ep);
    }
    up->refs_--;
}

static void adopt_endpoints(struct upstream *up)
{
    const struct config_upstream *cfg = up->cfg;
    for (size_t i = 0; i < cfg->nendpoints; i++) {
        struct endpoint *ep = up->balance.t.by_index[i];
        ep->weight = cfg->endpoints[i].weight;
        ep->backup = cfg->endpoints[i].backup;
        if (!cfg->outlier)
            judge_discard(ep);
        /* Without memory it is not probed, and asked again by the next reload. */
        probe_prepare(ep);
    }
}

/* None of them begins as they are to begin now. */
static void close_idle(struct upstream *up)
{
    list_for_each(n, &up->endpoints_) pool_close_idle(container_of(n, struct endpoint, node_));
}

static void adopt(struct upstream *up, const struct config_upstream *cfg)
{
    remove_gone(up);
    balance_tables_fini(&up->balance.t);
    up->balance.t = up->fresh_;
    up->fresh_ = (struct balance_tables){0};
    up->balance.kind = balancer_of(cfg->balance);
    up->balance.table = cfg->hash.table;
    up->balance.table_size = cfg->hash.size;
    if (up->proxy_protocol != cfg->proxy_protocol)
        close_idle(up);
    up->proxy_protocol = cfg->proxy_protocol;
    up->cfg = cfg;
    up->nendpoints = (uint32_t)cfg->nendpoints;
    up->panic_ = cfg->panic;
    up->consecutive_ = cfg->outlier ? cfg->outlier->consecutive : 0;
    up->connect_timeout = cfg->connect_timeout;
    up->request_timeout = cfg->request_timeout;
    up->idle_timeout = cfg->idle_timeout;
    up->pool = cfg->pool;
    up->retries = cfg->retries;
    up->try_timeout = cfg->try_timeout;
    up->deadline_header = cfg->deadline_header;
    limiter_apply(&up->limiter, &cfg->limits);
    adopt_endpoints(up);
    upstream_refresh(up);
}

int upstreams_apply(struct upstreams *u, const struct snapshot *s)
{
    struct upstream **table = calloc(s->nupstreams + 1, sizeof(*table));
    int err = table ? 0 : -ENOMEM;
    /* Adding comes first: it is all that can fail, and what was added in vain does no harm. */
    for (size_t i = 0; i < s->nupstreams && !err; i++)
        err = add_missing(u, &s->upstreams[i], &table[i]);
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

bool upstreams_set_endpoint(struct upstreams *u, const struct endpoint_update *update)
{
    struct upstream *up = find(u, update->key.upstream);
    struct endpoint *ep = up ? find_endpoint(up, update->key.addr, update->key.port, NULL) : NULL;
    if (!ep)
        return false;
    if (ep->flags == update->flags)
        return true;
    if (update->flags & ~ep->flags & ENDPOINT_EJECTED)
        ep->count.ejections++;
    /* Back again: what it did before is paid for. */
    if (ep->flags & ~update->flags & ENDPOINT_EJECTED)
        ep->failed_in_a_row_ = 0;
    ep->flags = update->flags;
    upstream_refresh(up);
    return true;
}

void upstreams_close_idle(struct upstreams *u)
{
    u->closing_ = true;
    pool_warmer_fini(u);
    list_for_each_safe(n, tmp, &u->all_)
    {
        struct upstream *up = container_of(n, struct upstream, node_);
        up->refs_++;
        list_for_each_safe(m, tmp2, &up->endpoints_)
        {
            struct endpoint *ep = container_of(m, struct endpoint, node_);
            ep->conns_++;
            probe_stop(ep);
            pool_close_idle(ep);
            ep->conns_--;
            endpoint_maybe_free(ep);
        }
        upstream_put(up);
    }
}
