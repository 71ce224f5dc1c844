#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "dataplane/proxy/conn.h"
#include "dataplane/proxy/duties.h"
#include "dataplane/proxy/exchange.h"
#include "dataplane/proxy/greeting.h"
#include "dataplane/proxy/hello.h"
#include "dataplane/proxy/listener.h"
#include "dataplane/proxy/secure.h"

void conn_init(struct conn *c, struct listener *l, const struct task_kind *kind,
               const struct arrival *a)
{
    c->ticket = a->ticket;
    c->listener = l;
    c->stream = a->stream;
    c->via = a->via;
    c->accepted_at = a->at;
    list_push_tail(&l->conns, &c->node);
    l->live++;
    c->number = conn_table_put(&l->proxy->conns, c);
    task_spawn(l->proxy->sched, &c->task, kind);
}

void conn_fini(struct conn *c)
{
    sleep_cancel(&c->timer);
    list_remove(&c->node);
    conn_table_take(&c->listener->proxy->conns, c->number);
    assert(c->listener->live > 0);
    c->listener->live--;
    duties_leave(c->listener, &c->ticket);
    if (c->via)
        slab_put(&c->listener->proxy->headers, c->via);
    if (c->stream)
        stream_close(c->stream);
}

void conn_ends(const struct conn *c, struct proxy_header *ret_ends)
{
    struct stream_info info;
    if (c->via) {
        *ret_ends = *c->via;
        return;
    }
    stream_get_info(c->stream, &info);
    *ret_ends = (struct proxy_header){.client = {.addr = info.peer_addr, .port = info.peer_port},
                                      .to = {.addr = info.local_addr, .port = info.local_port}};
}

struct inet_end conn_client(const struct conn *c)
{
    struct stream_info info;
    if (c->via)
        return c->via->client;
    stream_get_info(c->stream, &info);
    return (struct inet_end){.addr = info.peer_addr, .port = info.peer_port};
}

struct proxy *proxy_new(const struct proxy_opts *o)
{
    struct proxy *p = calloc(1, sizeof(*p));
    if (!p)
        return NULL;
    p->sched = o->sched;
    p->tcp = o->tcp;
    p->ropes = o->ropes;
    p->log = o->log;
    p->tls = o->tls;
    p->core = o->core;
    p->cores = o->cores;
    list_init(&p->listeners);
    csprng_init(&p->random, o->key);
    client_limits_init(&p->limits, o->limits, o->core);
    slab_init(&p->clients, sizeof(struct client), 0);
    slab_init(&p->exchanges, sizeof(struct exchange), 0);
    slab_init(&p->tunnels, tunnel_size(), 0);
    slab_init(&p->greetings, greeting_size(), 0);
    slab_init(&p->headers, sizeof(struct proxy_header), 0);
    slab_init(&p->hellos, sizeof(struct tunnel_hello), 0);
    slab_init(&p->handshakes, secure_size(), 0);
    struct upstreams_opts uo = {
        .sched = o->sched,
        .tcp = o->tcp,
        .ropes = o->ropes,
        .mailbox = o->mailbox,
        .seed = o->seed,
        .core = o->core,
        .cores = o->cores,
        .receive = o->receive,
        .on_report = o->on_report,
        .ctx = o->ctx,
    };
    upstreams_init(&p->upstreams, &uo);
    return p;
}

void proxy_abort_all(struct proxy *p)
{
    list_for_each(n, &p->listeners) listener_abort_all(container_of(n, struct listener, node));
}

void proxy_free(struct proxy *p)
{
    struct list_node *n;
    proxy_abort_all(p);
    while ((n = list_first(&p->listeners)))
        listener_free(container_of(n, struct listener, node));
    timer_cancel(&p->sched->wheel, &p->drain_timer);
    upstreams_fini(&p->upstreams);
    slab_fini(&p->clients);
    slab_fini(&p->exchanges);
    slab_fini(&p->tunnels);
    slab_fini(&p->greetings);
    slab_fini(&p->headers);
    slab_fini(&p->hellos);
    free(p->hello);
    slab_fini(&p->handshakes);
    conn_table_fini(&p->conns);
    edits_free(p);
    free(p->fields);
    free(p->path);
    free(p);
}

static uint32_t largest_hello(const struct config_listener *list, size_t n)
{
    uint32_t size = 0;
    for (size_t i = 0; i < n; i++)
        if (list[i].tunnel && list[i].tunnel->nsni && list[i].tunnel->hello_size > size)
            size = list[i].tunnel->hello_size;
    return size;
}

static int grow_hello(struct proxy *p, const struct snapshot *s)
{
    uint32_t size = largest_hello(s->listeners, s->nlisteners);
    if (size <= p->hello_size)
        return 0;
    uint8_t *more = realloc(p->hello, size);
    if (!more)
        return -ENOMEM;
    p->hello = more;
    p->hello_size = size;
    return 0;
}

/* Scratch space for the largest head that any listener takes. */
static int grow_scratch(struct proxy *p, const struct snapshot *s)
{
    uint32_t fields = RESPONSE_FIELDS, path = 4096;
    for (size_t i = 0; i < s->nlisteners; i++) {
        const struct config_http *h = s->listeners[i].http;
        if (h && h->header_count > fields)
            fields = h->header_count;
        if (h && h->header_size > path)
            path = h->header_size;
    }
    p->request_of = NULL;
    if (fields > p->nfields) {
        struct http_header *more = realloc(p->fields, fields * sizeof(*more));
        if (!more)
            return -ENOMEM;
        p->fields = more;
        p->nfields = (uint16_t)fields;
    }
    if (path > p->path_size) {
        char *more = realloc(p->path, path);
        if (!more)
            return -ENOMEM;
        p->path = more;
        p->path_size = path;
    }
    return 0;
}

int proxy_apply(struct proxy *p, const struct snapshot *s)
{
    int err = grow_scratch(p, s);
    if (!err)
        err = grow_hello(p, s);
    if (!err)
        err = edits_prepare(p, s);
    if (!err)
        err = listeners_prepare(p, s);
    if (err) {
        edits_rollback(p);
        return err;
    }
    err = upstreams_apply(&p->upstreams, s);
    if (err) {
        listeners_rollback(p);
        edits_rollback(p);
        return err;
    }
    edits_commit(p);
    listeners_commit(p, s);
    p->snapshot = s;
    return 0;
}

void proxy_set_wall(struct proxy *p, int64_t offset)
{
    p->wall_offset = offset;
}

static void on_drain_deadline(struct timer *t, uint64_t now)
{
    proxy_abort_all(container_of(t, struct proxy, drain_timer));
}

void proxy_drain(struct proxy *p, uint64_t deadline)
{
    p->draining = true;
    p->drain_timer.fire = on_drain_deadline;
    timer_arm(&p->sched->wheel, &p->drain_timer, deadline);
    listeners_drain(p);
    upstreams_close_idle(&p->upstreams);
}

bool proxy_is_drained(const struct proxy *p)
{
    if (!p->draining)
        return false;
    list_for_each(n, &p->listeners) if (container_of(n, struct listener, node)->live) return false;
    return true;
}

bool proxy_set_endpoint(struct proxy *p, const struct endpoint_update *update)
{
    return upstreams_set_endpoint(&p->upstreams, update);
}

unsigned proxy_take_reports(struct proxy *p, bool all, struct endpoint_report *ret, unsigned max)
{
    return upstreams_take_reports(&p->upstreams, all, ret, max);
}

void proxy_counters(const struct proxy *p, struct proxy_counters *ret_counters)
{
    ret_counters->clients = p->clients.in_use;
    ret_counters->exchanges = p->exchanges.in_use;
    ret_counters->tunnels = p->tunnels.in_use;
    ret_counters->limits_forgotten = p->limits.forgotten;
    ret_counters->limits_untracked = p->limits.untracked;
}

void proxy_each_listener(struct proxy *p, void (*visit)(void *ctx, const struct listener *l),
                         void *ctx)
{
    list_for_each(n, &p->listeners) visit(ctx, container_of(n, struct listener, node));
}

void proxy_each_upstream(struct proxy *p, void (*visit)(void *ctx, const struct upstream *u),
                         void *ctx)
{
    list_for_each(n, &p->upstreams.all_) visit(ctx, container_of(n, struct upstream, node_));
}
