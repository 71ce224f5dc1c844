#include <string.h>

#include "dataplane/core_private.h"
#include "dataplane/proxy/conn.h"
#include "dataplane/upstream/probe.h"
#include "runtime/clock.h"

static void add_listener(void *ctx, const struct listener *l)
{
    struct core_status *st = ctx;
    if (st->nlisteners == STATUS_MAX_LISTENERS)
        return;
    struct listener_stats *to = &st->listeners[st->nlisteners++];
    memcpy(to->name, l->name, sizeof(to->name));
    to->address = l->address;
    to->draining = l->draining;
    to->accepted = l->count.accepted;
    to->refused = l->count.refused;
    to->denied = l->count.denied;
    to->limited = l->count.limited;
    to->rate_limited = l->count.rate_limited;
    to->requests = l->count.requests;
    to->bytes_in = l->count.bytes_in;
    to->bytes_out = l->count.bytes_out;
    memcpy(to->status, l->count.status, sizeof(to->status));
    memcpy(to->turned_away, l->count.turned_away, sizeof(to->turned_away));
    to->conns = l->live;
}

static void add_endpoint(struct core_status *st, const struct endpoint *ep)
{
    if (st->nendpoints == STATUS_MAX_ENDPOINTS)
        return;
    struct endpoint_stats *to = &st->endpoints[st->nendpoints++];
    int32_t streak;
    memset(to, 0, sizeof(*to));
    to->upstream = (uint16_t)(st->nupstreams - 1);
    to->addr = ep->addr;
    to->port = ep->port;
    to->weight = ep->weight;
    to->healthy = !(ep->flags & ENDPOINT_UNHEALTHY);
    to->ejected = ep->flags & ENDPOINT_EJECTED ? 1 : 0;
    to->backup = ep->backup;
    to->used = ep->place_ != BALANCE_NOWHERE;
    to->probed = ep->probe_ && probe_last(ep->probe_, &streak, &to->probe);
    to->active = ep->active;
    to->idle = ep->nidle_;
    list_for_each(n, &ep->waiters_) to->waiting++;
    to->picks = ep->count.picks;
    to->failures = ep->count.failures;
    to->connects = ep->count.connects;
    to->reused = ep->count.reused;
    to->ejections = ep->count.ejections;
}

static void add_upstream(void *ctx, const struct upstream *u)
{
    struct core_status *st = ctx;
    if (st->nupstreams == STATUS_MAX_UPSTREAMS)
        return;
    struct upstream_stats *to = &st->upstreams[st->nupstreams++];
    const struct upstream_shared *shared = u->limiter.shared;
    memcpy(to->name, u->name, sizeof(to->name));
    to->requests = u->count.requests;
    to->attempts = u->count.attempts;
    to->connects = u->count.connects;
    to->connect_failed = u->count.connect_failed;
    to->reused = u->count.reused;
    to->responses = u->count.responses;
    to->resets = u->count.resets;
    to->timeouts = u->count.timeouts;
    to->bytes_in = u->count.bytes_in;
    to->bytes_out = u->count.bytes_out;
    to->no_endpoint = u->count.no_endpoint;
    to->pool_waits = u->count.pool_waits;
    to->pool_timeout = u->count.pool_timeout;
    to->retries = u->count.retries;
    to->no_budget = u->count.no_budget;
    to->queue_waits = u->limiter.count.queued;
    to->queue_full = u->limiter.count.queue_full;
    to->queue_timeout = u->limiter.count.queue_timeout;
    to->queue_shed = u->limiter.count.shed;
    to->no_time = u->limiter.count.too_late;
    to->in_flight = (uint32_t)counter_get(&u->limiter.side.requests->in_use_);
    to->queued = (uint32_t)counter_get(&u->limiter.side.requests->waiting);
    to->requests_limit = permits_limit(shared->limits.requests);
    to->connections_limit = permits_limit(shared->limits.connections);
    to->queue_limit = u->limiter.queue_max;
    to->budget_left = (uint32_t)(u->limiter.budget.tokens_ / RETRY_BUDGET_TOKEN) +
                      (st->core == 0 ? retry_budget_pool(&shared->budget) : 0);
    to->active = u->active;
    to->idle = u->idle;
    to->used = u->balance.n;
    to->panic = u->balance.panic;
    to->backups = u->balance.backups;
    list_for_each(n, &u->endpoints_)
    {
        const struct endpoint *ep = container_of(n, struct endpoint, node_);
        if (!ep->removed_)
            add_endpoint(st, ep);
    }
}

void core_fill_status(struct core *c, struct core_status *st)
{
    struct proxy_counters pc;
    memset(st, 0, offsetof(struct core_status, listeners)); /* the lists are long */
    st->nlisteners = st->nupstreams = st->nendpoints = 0;
    st->core = c->index;
    st->cpu = c->cpu;
    st->now = sched_now(&c->sched);
    st->passes = atomic_load_explicit(&c->passes, memory_order_relaxed);
    st->busy_passes = c->busy_passes;
    st->busy_tsc = c->busy_tsc;
    st->total_tsc = clock_tsc() - c->started_tsc;
    st->tsc_hz = c->tsc_hz;
    st->snapshot_version = c->snapshot->version;
    sched_read_stats(&c->sched, &st->sched);
    sched_poll_hist(&c->sched, &st->poll_ns);
    st->nkinds = c->sched.nkinds;
    memcpy(st->kinds, c->sched.kinds, st->nkinds * sizeof(st->kinds[0]));
    st->pass_ns = c->pass_ns;
    st->timers = timer_wheel_count(&c->sched.wheel);
    st->tasks_permanent = c->tasks_permanent;
    st->timers_permanent = c->timers_permanent;
    st->net = *net_stats(c->net);
    st->tcp = *tcp_stats(c->tcp);
    st->tls = *tls_stats(c->tls);
    st->handoff_out = c->io.handoff_out;
    st->handoff_in = c->io.handoff_in;
    st->handoff_full = c->io.handoff_full;
    st->access_log_dropped = access_ring_dropped(c->log);
    st->rope_nodes = c->ropes.in_use;
    st->mbufs_avail = rte_mempool_avail_count(c->shared->mbufs);
    st->mbufs_total = c->shared->mbufs->size;
    proxy_counters(c->proxy, &pc);
    st->limits_forgotten = pc.limits_forgotten;
    st->limits_untracked = pc.limits_untracked;
    st->clients = pc.clients;
    st->exchanges = pc.exchanges;
    st->tunnels = pc.tunnels;
    proxy_each_listener(c->proxy, add_listener, st);
    proxy_each_upstream(c->proxy, add_upstream, st);
}
