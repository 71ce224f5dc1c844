#include "dataplane/upstream/pool.h"

#include <assert.h>
#include <errno.h>

/* Bytes that nobody asked for, a FIN, a RST: none of them leaves a connection fit for use. */
static bool is_fit(const struct upconn *c)
{
    return stream_status(c->stream) == 0 && !stream_at_eof(c->stream) &&
           stream_read_avail(c->stream) == 0;
}

static bool is_used(const struct endpoint *ep)
{
    return ep->place_ != BALANCE_NOWHERE && !ep->upstream->set_->closing_;
}

void pool_endpoint_init(struct endpoint *ep)
{
    list_init(&ep->idle_);
    list_init(&ep->opening_);
    list_init(&ep->waiters_);
    list_init(&ep->granted_list_);
    ep->place_ = BALANCE_NOWHERE;
}

/* --- permits ----------------------------------------------------------------------------------
 */

void conn_permits_put(struct conn_permits *p)
{
    leased_permit_put(&p->endpoint);
    leased_permit_put(&p->upstream);
}

/* -EDQUOT and who has none to give. */
static int take_permits(struct endpoint *ep, struct conn_permits *p, struct permits_core **ret_from)
{
    struct permits_core *up = ep->upstream->limiter.side.connections, *own = ep->side.connections;
    *ret_from = up;
    if (!leased_permit_is_held(&p->upstream) && permits_try(up, &p->upstream) != 0)
        return -EDQUOT;
    *ret_from = own;
    if (!leased_permit_is_held(&p->endpoint) && permits_try(own, &p->endpoint) != 0)
        return -EDQUOT;
    return 0;
}

/* Somebody waits for what an idle connection holds. */
static bool is_wanted_elsewhere(const struct endpoint *ep)
{
    return permits_is_wanted(ep->upstream->limiter.side.connections) ||
           permits_is_wanted(ep->side.connections);
}

/* --- the queue ---------------------------------------------------------------------------------
 */

/* One more may have a connection: an idle one, or a new one. */
static bool has_room(const struct endpoint *ep)
{
    return ep->active + ep->warming_ + ep->granted_ < ep->upstream->pool.max;
}

void pool_grant(struct endpoint *ep)
{
    while (!list_is_empty(&ep->waiters_) && has_room(ep)) {
        struct list_node *n = list_pop_head(&ep->waiters_);
        struct pool_wait *w = container_of(n, struct pool_wait, node_);
        w->granted = true;
        ep->granted_++;
        list_push_tail(&ep->granted_list_, n);
        task_wake(w->task_);
    }
}

static void wait_leave(struct pool_wait *w)
{
    list_remove(&w->node_);
    if (w->granted)
        w->endpoint->granted_--;
    w->endpoint = NULL;
    w->granted = false;
}

void pool_wait_cancel(struct pool_wait *w)
{
    struct endpoint *ep = w->endpoint;
    if (!ep)
        return;
    wait_leave(w);
    pool_grant(ep);
}

static void send_away(struct list_node *queue)
{
    struct list_node *n;
    while ((n = list_first(queue))) {
        struct pool_wait *w = container_of(n, struct pool_wait, node_);
        wait_leave(w);
        task_wake(w->task_);
    }
}

void pool_send_away(struct endpoint *ep)
{
    send_away(&ep->granted_list_);
    send_away(&ep->waiters_);
}

static int wait_join(struct endpoint *ep, struct task *t, struct pool_wait *w)
{
    assert(!w->endpoint);
    w->endpoint = ep;
    w->task_ = t;
    list_push_tail(&ep->waiters_, &w->node_);
    ep->upstream->count.pool_waits++;
    return -EAGAIN;
}

/* --- idle connections --------------------------------------------------------------------------
 */

static void take_off_idle(struct upconn *c)
{
    struct endpoint *ep = c->endpoint;
    list_remove(&c->node_);
    sleep_cancel(&c->idle_);
    assert(ep->nidle_ > 0 && ep->upstream->idle > 0);
    ep->nidle_--;
    ep->upstream->idle--;
}

static uint64_t earlier(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

/* Until we close it: before the origin does, if it has told when that will be. */
static uint64_t idle_due(const struct upconn *c, uint64_t now)
{
    uint64_t idle = c->endpoint->upstream->idle_timeout;
    if (c->keep_alive)
        idle = earlier(idle, c->keep_alive);
    return earlier(now + idle, c->expires_);
}

static void become_idle(struct upconn *c)
{
    struct endpoint *ep = c->endpoint;
    struct sched *sched = ep->upstream->set_->sched;
    c->state_ = UPCONN_IDLE;
    ep->nidle_++;
    ep->upstream->idle++;
    list_push_head(&ep->idle_, &c->node_);
    stream_unwatch(c->stream);
    stream_watch(c->stream, &c->task_);
    sleep_arm(&c->idle_, &c->task_, idle_due(c, sched_now(sched)));
}

static enum poll idle_poll(struct upconn *c)
{
    if (is_fit(c) && task_now(&c->task_) < c->idle_.timer.at_)
        return POLL_PENDING;
    return POLL_READY;
}

static enum poll warming_poll(struct upconn *c)
{
    struct endpoint *ep = c->endpoint;
    int err = stream_status(c->stream);
    if (err == -EAGAIN && task_now(&c->task_) < c->idle_.timer.at_)
        return POLL_PENDING;
    if (err || !is_used(ep) || ep->upstream->proxy_protocol) {
        if (err)
            pool_warm_failed(ep);
        return POLL_READY;
    }
    sleep_cancel(&c->idle_);
    list_remove(&c->node_);
    ep->warming_--;
    ep->warm_backoff_ = 0;
    become_idle(c);
    pool_grant(ep);
    return POLL_PENDING;
}

static enum poll upconn_poll(struct task *t)
{
    struct upconn *c = container_of(t, struct upconn, task_);
    switch ((enum upconn_state)c->state_) {
    case UPCONN_WARMING:
        return warming_poll(c);
    case UPCONN_IDLE:
        return idle_poll(c);
    case UPCONN_USED:
        break; /* a wake-up from before it was taken */
    }
    return POLL_PENDING;
}

static void upconn_drop(struct task *t)
{
    struct upconn *c = container_of(t, struct upconn, task_);
    struct endpoint *ep = c->endpoint;
    struct upstream *up = ep->upstream;
    switch ((enum upconn_state)c->state_) {
    case UPCONN_WARMING:
        list_remove(&c->node_);
        ep->warming_--;
        break;
    case UPCONN_IDLE:
        take_off_idle(c);
        break;
    case UPCONN_USED:
        ep->active--;
        up->active--;
        break;
    }
    sleep_cancel(&c->idle_);
    list_remove(&c->owner_node_);
    if (c->stream)
        stream_close(c->stream);
    conn_permits_put(&c->permits_);
    ep->conns_--;
    slab_put(&up->set_->conns_, c);
    pool_grant(ep);
    pool_keep_warm(ep);
    endpoint_maybe_free(ep);
}

static const struct task_kind upconn_kind = {"upstream_idle", upconn_poll, upconn_drop,
                                             sizeof(struct upconn)};

/* --- taking and giving back --------------------------------------------------------------------
 */

static void mark_used(struct upconn *c)
{
    c->state_ = UPCONN_USED;
    c->endpoint->active++;
    c->endpoint->upstream->active++;
}

/* That may serve the owner. */
static struct upconn *find_idle(struct endpoint *ep, const struct pool_owner *owner)
{
    struct list_node *n;
    if (ep->upstream->proxy_protocol)
        return owner_find_idle(owner, ep);
    n = list_first(&ep->idle_);
    return n ? container_of(n, struct upconn, node_) : NULL;
}

static struct upconn *take_pooled(struct endpoint *ep, const struct pool_owner *owner)
{
    struct upstreams *set = ep->upstream->set_;
    struct upconn *c;
    if (!list_is_empty(&ep->idle_) && set->o_.receive)
        set->o_.receive(set->o_.ctx);
    while ((c = find_idle(ep, owner))) {
        if (!is_fit(c)) {
            task_abort(&c->task_);
            continue;
        }
        take_off_idle(c);
        mark_used(c);
        return c;
    }
    return NULL;
}

static uint64_t end_of_life(struct endpoint *ep)
{
    struct upstreams *set = ep->upstream->set_;
    uint64_t life = ep->upstream->pool.lifetime;
    if (!life)
        return UINT64_MAX;
    return sched_now(set->sched) + life - rng_next(&set->rng) % (life / 10 + 1);
}

int upconn_open(struct endpoint *ep, struct task *t, struct conn_permits *permits,
                struct upconn **ret_conn)
{
    struct upstreams *set = ep->upstream->set_;
    struct upconn *c = slab_get_zeroed(&set->conns_);
    if (!c)
        return -ENOBUFS;
    struct tcp_connect_opts o = {.dst = ep->addr, .dst_port = ep->port, .task = t ? t : &c->task_};
    ep->count.connects++;
    ep->upstream->count.connects++;
    int err = tcp_connect(set->tcp, &o, &c->stream);
    if (err) {
        slab_put(&set->conns_, c);
        return err;
    }
    c->endpoint = ep;
    c->permits_.upstream = leased_permit_take(&permits->upstream);
    c->permits_.endpoint = leased_permit_take(&permits->endpoint);
    c->expires_ = end_of_life(ep);
    ep->conns_++;
    ep->warming_++;
    task_spawn(set->sched, &c->task_, &upconn_kind);
    c->task_.label = ep->upstream->name;
    *ret_conn = c;
    return 0;
}

/* An idle connection that the caller doesn't want gives way to the new one. */
static void make_way(struct endpoint *ep)
{
    struct list_node *n = list_last(&ep->idle_);
    if (n && ep->conns_ >= ep->upstream->pool.max)
        task_abort(&container_of(n, struct upconn, node_)->task_);
}

static int connect_new(struct endpoint *ep, const struct pool_request *r,
                       struct pool_grant *ret_grant)
{
    int err = take_permits(ep, r->permits, &ret_grant->from);
    if (err)
        return err;
    make_way(ep);
    err = upconn_open(ep, r->task, r->permits, &ret_grant->conn);
    if (err)
        return err;
    ep->warming_--;
    mark_used(ret_grant->conn);
    if (ep->upstream->proxy_protocol && r->owner)
        owner_add(r->owner, ret_grant->conn);
    return 0;
}

int pool_acquire(struct endpoint *ep, const struct pool_request *r, struct pool_grant *ret_grant)
{
    if (r->wait->granted)
        wait_leave(r->wait);
    else if (!has_room(ep))
        return wait_join(ep, r->task, r->wait);
    ret_grant->conn = r->fresh ? NULL : take_pooled(ep, r->owner);
    ret_grant->reused = ret_grant->conn != NULL;
    if (ret_grant->reused) {
        ep->count.reused++;
        ep->upstream->count.reused++;
        conn_permits_put(r->permits);
    } else {
        int err = connect_new(ep, r, ret_grant);
        if (err) {
            pool_grant(ep);
            return err;
        }
    }
    stream_watch(ret_grant->conn->stream, r->task);
    stream_watch_write(ret_grant->conn->stream, r->task);
    return 0;
}

static bool is_worth_keeping(const struct upconn *c)
{
    const struct endpoint *ep = c->endpoint;
    const struct config_pool *p = &ep->upstream->pool;
    return is_used(ep) && ep->nidle_ < p->idle && ep->conns_ <= p->max &&
           c->greeted_ == ep->upstream->proxy_protocol && c->requests < p->requests &&
           !is_wanted_elsewhere(ep) && sched_now(ep->upstream->set_->sched) < c->expires_ &&
           is_fit(c);
}

void pool_release(struct upconn *c)
{
    struct endpoint *ep = c->endpoint;
    assert(c->state_ == UPCONN_USED);
    c->requests++;
    if (!is_worth_keeping(c)) {
        pool_discard(c, false);
        return;
    }
    ep->active--;
    ep->upstream->active--;
    if (!c->greeted_) /* it was opened for one client, and then nobody had to be told */
        list_remove(&c->owner_node_);
    become_idle(c);
    pool_grant(ep);
}

void pool_discard(struct upconn *c, bool abort)
{
    assert(c->state_ == UPCONN_USED);
    if (abort) {
        stream_abort(c->stream);
        c->stream = NULL;
    }
    task_abort(&c->task_);
}

void pool_close_idle(struct endpoint *ep)
{
    struct list_node *n;
    while ((n = list_first(&ep->idle_)))
        task_abort(&container_of(n, struct upconn, node_)->task_);
}

/* Of one list. */
static uint32_t close_oldest(struct list_node *conns, uint32_t n)
{
    struct list_node *last;
    uint32_t closed = 0;
    for (; closed < n && (last = list_last(conns)); closed++)
        task_abort(&container_of(last, struct upconn, node_)->task_);
    return closed;
}

/* Those that nobody can use yet first. */
static uint32_t close_unused(struct endpoint *ep, uint32_t n)
{
    ep->conns_++; /* keeps it to the end */
    uint32_t closed = close_oldest(&ep->opening_, n);
    closed += close_oldest(&ep->idle_, n - closed);
    ep->conns_--;
    endpoint_maybe_free(ep);
    return closed;
}

void pool_close_for_others(void *ctx, uint32_t n)
{
    close_unused(ctx, n);
}

void upstream_close_for_others(void *ctx, uint32_t n)
{
    struct upstream *up = ctx;
    up->refs_++;
    list_for_each_safe(node, tmp, &up->endpoints_)
    {
        n -= close_unused(container_of(node, struct endpoint, node_), n);
    }
    upstream_put(up);
}
