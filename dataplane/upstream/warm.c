/* Connections opened ahead of requests: one task a core sees to the endpoints that have fewer than
 * pool.min. What can't be reached is tried again after a time that doubles. */
#include <string.h>

#include "dataplane/upstream/pool.h"

#define BACKOFF_MIN_NS 1000000000ull
#define BACKOFF_MAX_NS 30000000000ull

static bool wants_more(const struct endpoint *ep)
{
    return ep->place_ != BALANCE_NOWHERE && !ep->upstream->proxy_protocol &&
           ep->conns_ < ep->upstream->pool.min;
}

void pool_warm_failed(struct endpoint *ep)
{
    uint64_t wait = 2 * ep->warm_backoff_;
    if (wait < BACKOFF_MIN_NS)
        wait = BACKOFF_MIN_NS;
    ep->warm_backoff_ = wait < BACKOFF_MAX_NS ? wait : BACKOFF_MAX_NS;
    ep->warm_at_ = sched_now(ep->upstream->set_->sched) + ep->warm_backoff_;
}

/* One connection more. False: nothing more to do for now. */
static bool warm_one(struct endpoint *ep, uint64_t now)
{
    struct upconn *c;
    struct conn_permits permits = {0};
    if (!wants_more(ep) || now < ep->warm_at_)
        return false;
    if (permits_try(ep->upstream->limiter.side.connections, &permits.upstream) != 0 ||
        permits_try(ep->side.connections, &permits.endpoint) != 0 ||
        upconn_open(ep, NULL, &permits, &c) != 0) {
        conn_permits_put(&permits);
        pool_warm_failed(ep);
        return false;
    }
    list_push_head(&ep->opening_, &c->node_);
    sleep_arm(&c->idle_, &c->task_, now + ep->upstream->connect_timeout);
    return true;
}

static enum poll warmer_poll(struct task *t)
{
    struct upstreams *u = container_of(t, struct upstreams, warmer_);
    uint64_t now = task_now(t), next = UINT64_MAX;
    list_for_each_safe(n, tmp, &u->warm_)
    {
        struct endpoint *ep = container_of(n, struct endpoint, warm_node_);
        do {
            if (!task_consume(t, 1))
                return POLL_PENDING;
        } while (warm_one(ep, now));
        if (!wants_more(ep))
            list_remove(n);
        else if (ep->warm_at_ < next)
            next = ep->warm_at_;
    }
    if (list_is_empty(&u->warm_))
        return POLL_READY;
    sleep_arm(&u->warmer_sleep_, t, next);
    return POLL_PENDING;
}

static void warmer_drop(struct task *t)
{
    sleep_cancel(&container_of(t, struct upstreams, warmer_)->warmer_sleep_);
}

static const struct task_kind warmer_kind = {"pool_warmer", warmer_poll, warmer_drop};

void pool_keep_warm(struct endpoint *ep)
{
    struct upstreams *u = ep->upstream->set_;
    if (!ep->upstream->pool.min || !wants_more(ep) || u->closing_)
        return;
    if (!list_is_linked(&ep->warm_node_))
        list_push_tail(&u->warm_, &ep->warm_node_);
    if (task_is_live(&u->warmer_)) {
        task_wake(&u->warmer_);
        return;
    }
    memset(&u->warmer_, 0, sizeof(u->warmer_));
    task_spawn(u->sched, &u->warmer_, &warmer_kind);
}

void pool_warmer_init(struct upstreams *u)
{
    list_init(&u->warm_);
}

void pool_warmer_fini(struct upstreams *u)
{
    while (list_pop_head(&u->warm_))
        ;
    task_abort(&u->warmer_);
}
