#include <errno.h>
#include <string.h>

#include "dataplane/proxy/conn.h"
#include "dataplane/proxy/hello.h"

/* Bytes both ways between a client and an origin; half-close is kept; what one side can't take is
 * left unread on the other, whose window closes. */

#define HELLO_NODES 16 /* of a ClientHello; when it comes in more, they are made fewer */

struct direction {
    struct rope bytes;
    bool ended; /* FIN has been passed on */
};

enum tunnel_state {
    TUNNEL_HELLO, /* waiting for the ClientHello that says where it goes */
    TUNNEL_DIAL,
    TUNNEL_PERMIT,  /* waiting for a permit to open a connection */
    TUNNEL_OPENING, /* it is there */
    TUNNEL_ACQUIRE, /* the endpoint has as many connections as it may: waiting for one */
    TUNNEL_CONNECT,
    TUNNEL_OPEN,
};

struct tunnel {
    struct conn c;
    struct tunnel_hello *hello; /* NULL: goes to one upstream, whatever the bytes */
    struct upstream *upstream;  /* a reference; NULL in HELLO */
    struct tried tried;
    struct endpoint *ep; /* the one that is dialled or connected; held */
    struct upconn *conn;
    struct pool_wait wait;
    struct conn_permits for_conn;
    struct admission admission;
    struct permits_core *conn_from; /* in PERMIT */
    struct direction up, down;
    uint64_t hash; /* of the client's address */
    uint64_t started, connect_due, moved;
    uint64_t sent, answered; /* bytes */
    struct inet_end client;
    uint32_t last_addr; /* of the endpoint that was tried last; 0: none was */
    uint16_t last_port;
    uint8_t state;
    uint8_t attempts;
    uint8_t why; /* enum access_reason: how it has ended */
};

static struct proxy *proxy_of(const struct tunnel *t)
{
    return t->c.listener->proxy;
}

static uint64_t now_of(const struct tunnel *t)
{
    return sched_now(proxy_of(t)->sched);
}

/* A broken side breaks the other: the peer must not take the rest for the whole. */
static enum step tunnel_cut(struct tunnel *t, enum access_reason why)
{
    t->why = (uint8_t)why;
    if (t->conn)
        pool_discard(t->conn, true);
    t->conn = NULL;
    stream_abort(t->c.stream);
    t->c.stream = NULL;
    return STEP_DONE;
}

/* It goes there. */
static enum step tunnel_route(struct tunnel *t, const struct config_upstream *to)
{
    struct proxy *p = proxy_of(t);
    t->upstream = upstream_get(&p->upstreams, p->snapshot, to);
    t->upstream->count.requests++;
    t->c.listener->count.requests++;
    t->c.task.label = t->upstream->name;
    t->state = TUNNEL_DIAL;
    return STEP_AGAIN;
}

static enum step turn_away(struct tunnel *t, enum turned_away why)
{
    t->c.listener->count.turned_away[why]++;
    return tunnel_cut(t, ACCESS_client_gone); /* there is no record of what wasn't routed */
}

static enum step tunnel_hello(struct tunnel *t)
{
    const struct config_tunnel *cfg = t->c.listener->cfg->tunnel;
    struct rope *in = &t->up.bytes;
    const struct config_upstream *to;
    enum turned_away why;
    if (!rope_is_empty(in) && hello_route(t->hello, t->c.listener, in, &to, &why))
        return to ? tunnel_route(t, to) : turn_away(t, why);
    if (in->nodes > HELLO_NODES)
        rope_compact(proxy_of(t)->ropes, in);
    ssize_t n = stream_read(t->c.stream, &t->c.task, in, RELAY_BYTES);
    if (n > 0)
        return STEP_AGAIN;
    if (n != -EAGAIN)
        return turn_away(t, TURNED_AWAY_hello_cut);
    uint64_t due = t->started + cfg->hello_timeout;
    if (now_of(t) >= due)
        return turn_away(t, TURNED_AWAY_hello_timeout);
    sleep_arm(&t->c.timer, &t->c.task, due);
    return STEP_WAIT;
}

static enum step tunnel_await(struct tunnel *t)
{
    sleep_arm(&t->c.timer, &t->c.task, t->connect_due);
    return STEP_WAIT;
}

/* Lets go of the endpoint and what was waited for. A connection whose ends have not both sent their
 * FIN is broken. */
static void tunnel_let_go(struct tunnel *t)
{
    pool_wait_cancel(&t->wait);
    admission_cancel(&t->admission);
    conn_permits_put(&t->for_conn);
    if (t->conn)
        pool_discard(t->conn, !(t->up.ended && t->down.ended));
    t->conn = NULL;
    if (t->ep)
        endpoint_release(t->ep);
    t->ep = NULL;
}

/* Another endpoint, or this one again. */
static enum step tunnel_again(struct tunnel *t)
{
    tried_add(&t->tried, t->ep);
    tunnel_let_go(t);
    t->state = TUNNEL_DIAL;
    return STEP_AGAIN;
}

/* How a wait for a permit came to nothing. */
static enum access_reason refused(int err)
{
    switch (err) {
    case -EBUSY:
        return ACCESS_queue_full;
    case -ETIMEDOUT:
        return ACCESS_queue_timeout;
    case -ECANCELED:
        return ACCESS_queue_shed;
    default:
        return ACCESS_no_endpoint;
    }
}

static enum step tunnel_permit(struct tunnel *t)
{
    bool upstreams = t->conn_from == t->upstream->limiter.side.connections;
    struct leased_permit *to = upstreams ? &t->for_conn.upstream : &t->for_conn.endpoint;
    int err = admission_is_waiting(&t->admission)
                  ? admission_poll(&t->admission, &t->c.task, to)
                  : admission_begin(&t->admission, &t->upstream->limiter, t->conn_from,
                                    CONFIG_PRIORITY_NORMAL, &t->c.task, now_of(t), NO_TIME, to);
    if (err == -EAGAIN)
        return STEP_WAIT;
    if (err == -ESHUTDOWN || (!err && t->ep->removed_)) {
        t->attempts--;
        t->upstream->count.attempts--;
        return tunnel_again(t);
    }
    if (err)
        return tunnel_cut(t, refused(err));
    t->state = TUNNEL_OPENING;
    return STEP_AGAIN;
}

/* A connection to t->ep. */
static enum step tunnel_acquire(struct tunnel *t)
{
    struct pool_request r = {
        .task = &t->c.task, .fresh = true, .wait = &t->wait, .permits = &t->for_conn};
    struct pool_grant got = {0};
    int err = pool_acquire(t->ep, &r, &got);
    switch (err) {
    case 0:
        t->conn = got.conn;
        t->connect_due = now_of(t) + t->upstream->connect_timeout;
        t->state = TUNNEL_CONNECT;
        return STEP_AGAIN;
    case -EDQUOT:
        t->conn_from = got.from;
        t->state = TUNNEL_PERMIT;
        return STEP_AGAIN;
    case -EAGAIN:
        t->connect_due = now_of(t) + t->upstream->pool.acquire_timeout;
        t->state = TUNNEL_ACQUIRE;
        return STEP_AGAIN;
    case -ENETUNREACH:
    case -EHOSTUNREACH:
    case -EADDRNOTAVAIL:
        t->upstream->count.connect_failed++;
        if (err != -EADDRNOTAVAIL)
            endpoint_judge(t->ep, ATTEMPT_FAILED, 0);
        return tunnel_again(t);
    default:
        return tunnel_cut(t, ACCESS_no_memory);
    }
}

static enum step tunnel_dial(struct tunnel *t)
{
    struct endpoint *ep = upstream_pick(t->upstream, t->hash, &t->tried);
    if (!ep || t->attempts >= MAX_ATTEMPTS)
        return tunnel_cut(t, ep || t->attempts ? ACCESS_connect_failed : ACCESS_no_endpoint);
    endpoint_hold(ep);
    t->ep = ep;
    t->last_addr = ep->addr;
    t->last_port = ep->port;
    t->attempts++;
    t->upstream->count.attempts++;
    return tunnel_acquire(t);
}

/* In the queue for a connection. */
static enum step tunnel_queue(struct tunnel *t)
{
    if (t->wait.granted)
        return tunnel_acquire(t);
    if (!t->wait.endpoint) {
        /* It is no longer used. That was no attempt. */
        t->attempts--;
        t->upstream->count.attempts--;
        return tunnel_again(t);
    }
    if (now_of(t) < t->connect_due)
        return tunnel_await(t);
    t->upstream->count.pool_timeout++;
    return tunnel_cut(t, ACCESS_pool_timeout);
}

static void count_bytes(struct tunnel *t, uint64_t sent, uint64_t answered)
{
    t->sent += sent;
    t->answered += answered;
    t->c.listener->count.bytes_in += sent;
    t->c.listener->count.bytes_out += answered;
    t->upstream->count.bytes_out += sent;
    t->upstream->count.bytes_in += answered;
}

static int tunnel_greet(struct tunnel *t)
{
    struct proxy_header ends;
    if (!upconn_wants_header(t->conn))
        return 0;
    conn_ends(&t->c, &ends);
    return upconn_greet(t->conn, &ends);
}

static enum step tunnel_connect(struct tunnel *t)
{
    int err = stream_status(t->conn->stream);
    if (err == 0 && tunnel_greet(t) != 0)
        return tunnel_cut(t, ACCESS_no_memory);
    if (err == 0) {
        endpoint_judge(t->conn->endpoint, ATTEMPT_OK, 0);
        t->state = TUNNEL_OPEN;
        t->moved = now_of(t);
        count_bytes(t, t->up.bytes.len, 0); /* the ClientHello, and what came with it */
        return STEP_AGAIN;
    }
    if (err == -EAGAIN && now_of(t) < t->connect_due)
        return tunnel_await(t);
    t->upstream->count.connect_failed++;
    endpoint_judge(t->conn->endpoint, ATTEMPT_FAILED, 0);
    return tunnel_again(t);
}

/* Before the tunnel is open a client's death ends it. */
static enum step tunnel_begin(struct tunnel *t)
{
    if (stream_status(t->c.stream) < 0)
        return tunnel_cut(t, ACCESS_client_gone);
    stream_watch(t->c.stream, &t->c.task);
    switch ((enum tunnel_state)t->state) {
    case TUNNEL_DIAL:
        return tunnel_dial(t);
    case TUNNEL_PERMIT:
        return tunnel_permit(t);
    case TUNNEL_OPENING:
        return tunnel_acquire(t);
    case TUNNEL_ACQUIRE:
        return tunnel_queue(t);
    default:
        return tunnel_connect(t);
    }
}

/* One read and one write. STEP_DONE: a side is dead. */
static enum step tunnel_move(struct tunnel *t, struct direction *d, struct stream *from,
                             struct stream *to, uint64_t *bytes)
{
    if (d->ended)
        return STEP_WAIT;
    if (rope_is_empty(&d->bytes)) {
        /* Taking only what fits keeps the rest in the sender's window. */
        uint64_t space = stream_write_space(to);
        if (space == 0) {
            stream_watch_write(to, &t->c.task);
            return stream_status(to) < 0 || stream_status(from) < 0 ? STEP_DONE : STEP_WAIT;
        }
        ssize_t n =
            stream_read(from, &t->c.task, &d->bytes, space < RELAY_BYTES ? space : RELAY_BYTES);
        if (n == -EAGAIN)
            return STEP_WAIT;
        if (n < 0)
            return STEP_DONE;
        if (n == 0) {
            d->ended = true;
            return stream_shutdown(to) < 0 ? STEP_DONE : STEP_AGAIN;
        }
        *bytes += (uint64_t)n;
    }
    ssize_t n = stream_write(to, &t->c.task, &d->bytes);
    if (n == -EAGAIN)
        return STEP_WAIT;
    if (n < 0)
        return STEP_DONE;
    t->moved = now_of(t);
    return STEP_AGAIN;
}

static enum step tunnel_open(struct tunnel *t)
{
    struct stream *client = t->c.stream, *origin = t->conn->stream;
    uint64_t sent = 0, answered = 0;
    enum step up = tunnel_move(t, &t->up, client, origin, &sent);
    enum step down = tunnel_move(t, &t->down, origin, client, &answered);
    count_bytes(t, sent, answered);
    if (up == STEP_DONE || down == STEP_DONE)
        return tunnel_cut(t,
                          stream_status(client) < 0 ? ACCESS_client_gone : ACCESS_upstream_reset);
    if (t->up.ended && t->down.ended) {
        t->why = ACCESS_ok;
        return STEP_DONE;
    }
    if (up == STEP_AGAIN || down == STEP_AGAIN)
        return STEP_AGAIN;
    uint64_t due = t->moved + t->c.listener->cfg->tunnel->idle_timeout;
    if (now_of(t) >= due)
        return tunnel_cut(t, ACCESS_tunnel_idle);
    sleep_arm(&t->c.timer, &t->c.task, due);
    return STEP_WAIT;
}

static enum step tunnel_step(struct tunnel *t)
{
    switch ((enum tunnel_state)t->state) {
    case TUNNEL_OPEN:
        return tunnel_open(t);
    case TUNNEL_HELLO:
        return tunnel_hello(t);
    default:
        return tunnel_begin(t);
    }
}

static enum poll tunnel_poll(struct task *task)
{
    struct tunnel *t = container_of(task, struct tunnel, c.task);
    do {
        switch (tunnel_step(t)) {
        case STEP_AGAIN:
            break;
        case STEP_WAIT:
            return POLL_PENDING;
        case STEP_DONE:
            return POLL_READY;
        }
    } while (task_consume(task, 1));
    return POLL_PENDING;
}

/* Of one that had somewhere to go. */
static void tunnel_record(struct tunnel *t)
{
    struct access_record r;
    record_conn(&r, t->c.listener, &t->client);
    r.bytes_in = t->sent;
    r.bytes_out = t->answered;
    r.upstream_addr = t->last_addr;
    r.upstream_port = t->last_port;
    r.attempts = t->attempts;
    record_text(r.upstream, sizeof(r.upstream), t->upstream->name, strlen(t->upstream->name));
    if (t->hello)
        record_text(r.host, sizeof(r.host), t->hello->name, strlen(t->hello->name));
    record_put(&r, proxy_of(t), t->started, t->why);
}

static void tunnel_drop(struct task *task)
{
    struct tunnel *t = container_of(task, struct tunnel, c.task);
    struct proxy *p = proxy_of(t);
    if (t->upstream && t->c.listener->cfg->tunnel->access_log)
        tunnel_record(t);
    rope_clear(p->ropes, &t->up.bytes);
    rope_clear(p->ropes, &t->down.bytes);
    tunnel_let_go(t);
    if (t->upstream)
        upstream_put(t->upstream);
    if (t->hello)
        slab_put(&p->hellos, t->hello);
    conn_fini(&t->c);
    slab_put(&p->tunnels, t);
}

const struct task_kind tunnel_kind = {"tunnel", tunnel_poll, tunnel_drop, sizeof(struct tunnel)};

void tunnel_info(const struct conn *c, struct conn_info *to)
{
    const struct tunnel *t = container_of(c, struct tunnel, c);
    to->state = t->state == TUNNEL_OPEN    ? CONN_STATE_tunnel
                : t->state == TUNNEL_HELLO ? CONN_STATE_hello
                                           : CONN_STATE_dialing;
    to->attempts = t->attempts;
    if (t->hello)
        record_text(to->host, sizeof(to->host), t->hello->name, strlen(t->hello->name));
    if (!t->upstream)
        return;
    record_text(to->upstream, sizeof(to->upstream), t->upstream->name, strlen(t->upstream->name));
    if (!t->conn)
        return;
    to->endpoint_addr = t->conn->endpoint->addr;
    to->endpoint_port = t->conn->endpoint->port;
}

size_t tunnel_size(void)
{
    return sizeof(struct tunnel);
}

bool tunnel_start(struct listener *l, const struct arrival *a)
{
    const struct config_tunnel *cfg = l->cfg->tunnel;
    struct proxy *p = l->proxy;
    struct tunnel_hello *hello = cfg->nsni ? slab_get_zeroed(&p->hellos) : NULL;
    struct tunnel *t = cfg->nsni && !hello ? NULL : slab_get_zeroed(&p->tunnels);
    if (!t) {
        if (hello)
            slab_put(&p->hellos, hello);
        return false;
    }
    conn_init(&t->c, l, &tunnel_kind, a);
    t->client = conn_client(&t->c);
    t->hash = inet_hash(&t->client);
    t->why = ACCESS_shutdown; /* unless it ends by itself */
    t->started = now_of(t);
    t->hello = hello;
    t->state = TUNNEL_HELLO;
    if (!hello)
        tunnel_route(t, cfg->upstream);
    return true;
}
