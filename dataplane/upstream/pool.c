#include "dataplane/upstream/pool.h"

#include <assert.h>
#include <errno.h>

/* Bytes that nobody asked for, a FIN, a RST: none of them leaves a connection fit for use. */
static bool is_fit(const struct upconn *c)
{
    return stream_status(c->stream) == 0 && !stream_at_eof(c->stream) &&
           stream_read_avail(c->stream) == 0;
}

static void take_off_idle(struct upconn *c)
{
    struct endpoint *ep = c->endpoint;
    list_remove(&c->node_);
    sleep_cancel(&c->idle_);
    assert(ep->nidle_ > 0 && ep->upstream->idle > 0);
    ep->nidle_--;
    ep->upstream->idle--;
}

static enum poll idle_poll(struct task *t)
{
    struct upconn *c = container_of(t, struct upconn, task_);
    if (c->in_use_)
        return POLL_PENDING; /* a wake-up from before it was taken */
    if (is_fit(c) && task_now(t) < c->idle_.timer.at_)
        return POLL_PENDING;
    return POLL_READY;
}

static void upconn_drop(struct task *t)
{
    struct upconn *c = container_of(t, struct upconn, task_);
    struct endpoint *ep = c->endpoint;
    struct upstream *up = ep->upstream;
    if (c->in_use_) {
        ep->active--;
        up->active--;
    } else {
        take_off_idle(c);
    }
    sleep_cancel(&c->idle_);
    if (c->stream)
        stream_close(c->stream);
    ep->conns_--;
    slab_put(&up->set_->conns_, c);
    endpoint_maybe_free(ep);
}

static const struct task_kind upconn_kind = {"upstream_idle", idle_poll, upconn_drop,
                                             sizeof(struct upconn)};

static void mark_in_use(struct upconn *c)
{
    c->in_use_ = true;
    c->endpoint->active++;
    c->endpoint->upstream->active++;
}

static struct upconn *take_pooled(struct endpoint *ep)
{
    struct list_node *n;
    while ((n = list_first(&ep->idle_))) {
        struct upconn *c = container_of(n, struct upconn, node_);
        if (!is_fit(c)) {
            task_abort(&c->task_);
            continue;
        }
        take_off_idle(c);
        mark_in_use(c);
        return c;
    }
    return NULL;
}

static int connect_new(struct endpoint *ep, struct task *t, struct upconn **ret_conn)
{
    struct upstreams *set = ep->upstream->set_;
    struct upconn *c = slab_get_zeroed(&set->conns_);
    if (!c)
        return -ENOBUFS;
    struct tcp_connect_opts o = {.dst = ep->addr, .dst_port = ep->port, .task = t};
    int err = tcp_connect(set->tcp, &o, &c->stream);
    if (err) {
        slab_put(&set->conns_, c);
        return err;
    }
    c->endpoint = ep;
    ep->conns_++;
    mark_in_use(c);
    task_spawn(set->sched, &c->task_, &upconn_kind);
    c->task_.label = ep->upstream->name;
    *ret_conn = c;
    return 0;
}

int pool_acquire(struct endpoint *ep, struct task *t, bool fresh, struct upconn **ret_conn,
                 bool *ret_reused)
{
    struct upconn *c = fresh ? NULL : take_pooled(ep);
    if (c) {
        stream_watch(c->stream, t);
        stream_watch_write(c->stream, t);
        ep->upstream->count.reused++;
        *ret_conn = c;
        *ret_reused = true;
        return 0;
    }
    ep->upstream->count.connects++;
    int err = connect_new(ep, t, ret_conn);
    if (err)
        return err;
    stream_watch((*ret_conn)->stream, t);
    stream_watch_write((*ret_conn)->stream, t);
    *ret_reused = false;
    return 0;
}

void pool_release(struct upconn *c)
{
    struct endpoint *ep = c->endpoint;
    struct upstream *up = ep->upstream;
    assert(c->in_use_);
    c->requests++;
    if (ep->removed_ || up->removed_ || up->set_->closing_ || ep->nidle_ >= up->pool ||
        !is_fit(c)) {
        pool_discard(c, false);
        return;
    }
    c->in_use_ = false;
    ep->active--;
    up->active--;
    ep->nidle_++;
    up->idle++;
    list_push_head(&ep->idle_, &c->node_);
    stream_unwatch(c->stream);
    stream_watch(c->stream, &c->task_);
    sleep_arm(&c->idle_, &c->task_, sched_now(up->set_->sched) + up->idle_timeout);
}

void pool_discard(struct upconn *c, bool abort)
{
    assert(c->in_use_);
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

void upstreams_close_idle(struct upstreams *u)
{
    u->closing_ = true;
    list_for_each_safe(n, tmp, &u->all_)
    {
        struct upstream *up = container_of(n, struct upstream, node_);
        up->refs_++;
        list_for_each_safe(m, tmp2, &up->endpoints_)
        {
            struct endpoint *ep = container_of(m, struct endpoint, node_);
            ep->conns_++;
            pool_close_idle(ep);
            ep->conns_--;
            endpoint_maybe_free(ep);
        }
        upstream_put(up);
    }
}
