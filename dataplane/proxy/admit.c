/* From a routed request to a connection: the upstream's permit, an endpoint, its permit, and a
 * connection with its own. */
#include <errno.h>

#include "dataplane/proxy/admit.h"
#include "dataplane/proxy/exchange.h"

#define OTHER_PICKS 3 /* endpoints that are tried when the first has no permit */

static struct task *task_of(const struct exchange *x)
{
    return &x->client->c.task;
}

/* How a wait that came to nothing is answered. */
static enum step refused(struct exchange *x, int err)
{
    switch (err) {
    case -EBUSY:
        return exchange_fail(x, 503, ACCESS_queue_full);
    case -ETIMEDOUT:
        if (client_now(x->client) >= x->deadline)
            return exchange_fail(x, 504, ACCESS_request_timeout);
        return exchange_fail(x, 503, ACCESS_queue_timeout);
    case -ECANCELED:
        return exchange_fail(x, 503, ACCESS_queue_shed);
    case -ETIME:
        return exchange_fail(x, 503, ACCESS_no_time);
    default:
        return exchange_fail(x, 503, ACCESS_no_endpoint);
    }
}

/* One wait for one permit: begins it, or goes on with it. */
static int wait_for(struct exchange *x, struct permits_core *from, struct leased_permit *to)
{
    if (admission_is_waiting(&x->admission))
        return admission_poll(&x->admission, task_of(x), to);
    return admission_begin(&x->admission, &x->upstream->limiter, from, x->priority, task_of(x),
                           client_now(x->client), x->deadline, to);
}

enum step exchange_admit(struct exchange *x)
{
    int err = wait_for(x, x->upstream->limiter.side.requests, &x->admitted);
    if (err == -EAGAIN)
        return exchange_wait(x);
    if (err)
        return refused(x, err);
    x->admitted_at = client_now(x->client);
    x->state = EXCHANGE_PICK;
    return STEP_AGAIN;
}

/* The balancer's choice, or another endpoint that has a permit to give; else the choice, to wait
 * for. */
static struct endpoint *choose(struct exchange *x)
{
    struct endpoint *first = upstream_pick(x->upstream, x->hash, &x->tried), *ep = first;
    for (unsigned i = 0; ep && i <= OTHER_PICKS; i++) {
        bool wanted = ep == first || !tried_has(&x->tried, ep);
        if (wanted && permits_try(ep->side.requests, &x->permit) == 0)
            return ep;
        ep = upstream_pick_other(x->upstream, x->hash, ep);
    }
    return first;
}

enum step exchange_pick(struct exchange *x)
{
    struct endpoint *ep = choose(x);
    if (!ep)
        return exchange_fail(x, 503, ACCESS_no_endpoint);
    uint64_t try_timeout = x->upstream->try_timeout;
    endpoint_hold(ep);
    x->ep = ep;
    x->attempts++;
    x->any_sent = x->request_sent = x->request_cut = x->judged = false;
    x->try_due = try_timeout ? client_now(x->client) + try_timeout : NO_TIME;
    x->upstream->count.attempts++;
    x->record.upstream_addr = ep->addr;
    x->record.upstream_port = ep->port;
    x->state = leased_permit_is_held(&x->permit) ? EXCHANGE_DIAL : EXCHANGE_PERMIT;
    return STEP_AGAIN;
}

/* The endpoint is no longer used: that was no attempt. */
static enum step pick_anew(struct exchange *x)
{
    x->attempts--;
    x->upstream->count.attempts--;
    exchange_end_attempt(x, LEAVE_BROKEN);
    x->state = EXCHANGE_PICK;
    return STEP_AGAIN;
}

enum step exchange_permit(struct exchange *x)
{
    int err = wait_for(x, x->ep->side.requests, &x->permit);
    if (err == -EAGAIN)
        return exchange_wait(x);
    if (err == -ESHUTDOWN || (!err && x->ep->removed_))
        return pick_anew(x);
    if (err)
        return refused(x, err);
    x->state = EXCHANGE_DIAL;
    return STEP_AGAIN;
}

enum step exchange_conn_permit(struct exchange *x)
{
    bool upstreams = x->conn_from == x->upstream->limiter.side.connections;
    int err = wait_for(x, x->conn_from, upstreams ? &x->for_conn.upstream : &x->for_conn.endpoint);
    if (err == -EAGAIN)
        return exchange_wait(x);
    if (err == -ESHUTDOWN || (!err && x->ep->removed_))
        return pick_anew(x);
    if (err)
        return refused(x, err);
    x->state = EXCHANGE_DIAL;
    return STEP_AGAIN;
}

enum step exchange_dial(struct exchange *x)
{
    struct pool_request r = {.task = task_of(x),
                             .fresh = x->fresh,
                             .wait = &x->wait,
                             .permits = &x->for_conn,
                             .owner = &x->client->owner};
    struct pool_grant got = {0};
    uint64_t now = client_now(x->client);
    int err = pool_acquire(x->ep, &r, &got);
    switch (err) {
    case 0:
        x->conn = got.conn;
        x->record.reused = x->reused = got.reused;
        x->due = now + x->upstream->connect_timeout;
        x->state = EXCHANGE_CONNECT;
        return STEP_AGAIN;
    case -EDQUOT:
        x->conn_from = got.from;
        x->state = EXCHANGE_CONN_PERMIT;
        return STEP_AGAIN;
    case -EAGAIN:
        x->due = now + x->upstream->pool.acquire_timeout;
        x->state = EXCHANGE_ACQUIRE;
        return STEP_AGAIN;
    case -ENETUNREACH:
    case -EHOSTUNREACH:
        endpoint_judge(x->ep, ATTEMPT_FAILED, 0);
        x->upstream->count.connect_failed++;
        return exchange_retry(x, CONFIG_RETRY_CONNECT, 502, ACCESS_connect_failed);
    case -EADDRNOTAVAIL:
        x->upstream->count.connect_failed++;
        return exchange_retry(x, CONFIG_RETRY_CONNECT, 502, ACCESS_connect_failed);
    default:
        return exchange_fail(x, 503, ACCESS_no_memory);
    }
}

enum step exchange_acquire(struct exchange *x)
{
    if (x->wait.granted) {
        x->state = EXCHANGE_DIAL;
        return STEP_AGAIN;
    }
    if (!x->wait.endpoint)
        return pick_anew(x);
    if (client_now(x->client) < x->due)
        return exchange_wait(x);
    x->upstream->count.pool_timeout++;
    return exchange_fail(x, 503, ACCESS_pool_timeout);
}
