#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "dataplane/proxy/conn.h"
#include "dataplane/proxy/exchange.h"

void conn_init(struct conn *c, struct listener *l, struct stream *s, const struct task_kind *kind)
{
    c->listener = l;
    c->stream = s;
    list_push_tail(&l->conns, &c->node);
    l->live++;
    l->count.accepted++;
    task_spawn(l->proxy->sched, &c->task, kind);
}

void conn_fini(struct conn *c)
{
    sleep_cancel(&c->timer);
    list_remove(&c->node);
    assert(c->listener->live > 0);
    c->listener->live--;
    if (c->stream)
        stream_close(c->stream);
}

static void on_accept(void *ctx, struct stream *s)
{
    struct listener *l = ctx;
    if (l->proxy->draining || l->live >= l->max) {
        l->count.refused++;
        stream_abort(s);
        return;
    }
    if (l->cfg->http)
        client_start(l, s);
    else
        tunnel_start(l, s);
}

/* Over the limit a SYN stays unanswered: the peer tries again, and finds room or gives up. */
static bool may_accept(void *ctx)
{
    struct listener *l = ctx;
    if (!l->proxy->draining && l->live < l->max)
        return true;
    l->count.refused++;
    return false;
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
    p->core = o->core;
    p->cores = o->cores;
    list_init(&p->listeners);
    slab_init(&p->clients, sizeof(struct client), 0);
    slab_init(&p->exchanges, sizeof(struct exchange), 0);
    slab_init(&p->tunnels, tunnel_size(), 0);
    upstreams_init(&p->upstreams, o->sched, o->tcp, o->seed);
    return p;
}

static void listener_abort_all(struct listener *l)
{
    list_for_each_safe(n, tmp, &l->conns)
    {
        struct conn *c = container_of(n, struct conn, node);
        if (c->stream) {
            stream_abort(c->stream);
            c->stream = NULL;
        }
        task_abort(&c->task);
    }
}

void proxy_abort_all(struct proxy *p)
{
    list_for_each(n, &p->listeners) listener_abort_all(container_of(n, struct listener, node));
}

void proxy_free(struct proxy *p)
{
    struct list_node *n;
    proxy_abort_all(p);
    while ((n = list_pop_head(&p->listeners))) {
        struct listener *l = container_of(n, struct listener, node);
        if (l->tcp)
            tcp_listener_free(p->tcp, l->tcp);
        free(l);
    }
    timer_cancel(&p->sched->wheel, &p->drain_timer);
    upstreams_fini(&p->upstreams);
    slab_fini(&p->clients);
    slab_fini(&p->exchanges);
    slab_fini(&p->tunnels);
    free(p->fields);
    free(p->path);
    free(p);
}

static struct listener *find_listener(struct proxy *p, const char *name)
{
    list_for_each(n, &p->listeners)
    {
        struct listener *l = container_of(n, struct listener, node);
        if (strcmp(l->name, name) == 0)
            return l;
    }
    return NULL;
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

static int add_listener(struct proxy *p, const struct config_listener *cfg)
{
    struct listener *l = calloc(1, sizeof(*l));
    if (!l)
        return -ENOMEM;
    list_init(&l->conns);
    l->proxy = p;
    l->cfg = cfg;
    strncpy(l->name, cfg->name, sizeof(l->name) - 1);
    struct tcp_listener_opts o = {
        .addr = cfg->address.addr,
        .port = cfg->address.port,
        .on_accept = on_accept,
        .may_accept = may_accept,
        .ctx = l,
    };
    int err = tcp_listen(p->tcp, &o, &l->tcp);
    if (err) {
        free(l);
        return err;
    }
    list_push_tail(&p->listeners, &l->node);
    return 0;
}

/* Every core its share, the first ones what is left over: the sum is the limit. A core without any
 * would leave the clients that are its own without an answer, so each has one at the least. */
static uint32_t share(uint32_t limit, unsigned core, unsigned cores)
{
    uint32_t n = limit / cores + (core < limit % cores ? 1 : 0);
    return n ? n : 1;
}

static void remove_listener(struct proxy *p, struct listener *l)
{
    list_remove(&l->node);
    tcp_listener_free(p->tcp, l->tcp);
    free(l);
}

int proxy_apply(struct proxy *p, const struct snapshot *s)
{
    struct list_node *last = list_last(&p->listeners);
    int err = grow_scratch(p, s);
    for (size_t i = 0; i < s->nlisteners && !err; i++)
        if (!find_listener(p, s->listeners[i].name))
            err = add_listener(p, &s->listeners[i]);
    if (!err)
        err = upstreams_apply(&p->upstreams, s);
    if (err) {
        for (struct list_node *n; (n = list_last(&p->listeners)) && n != last;)
            remove_listener(p, container_of(n, struct listener, node));
        return err;
    }
    for (size_t i = 0; i < s->nlisteners; i++) {
        struct listener *l = find_listener(p, s->listeners[i].name);
        l->cfg = &s->listeners[i];
        l->max = share(l->cfg->connections, p->core, p->cores);
    }
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
    list_for_each(n, &p->listeners)
    {
        struct listener *l = container_of(n, struct listener, node);
        if (l->tcp)
            tcp_listener_free(p->tcp, l->tcp);
        l->tcp = NULL;
        /* Those that wait for a request see that they are no longer wanted. */
        list_for_each(m, &l->conns) task_wake(&container_of(m, struct conn, node)->task);
    }
    upstreams_close_idle(&p->upstreams);
}

bool proxy_is_drained(const struct proxy *p)
{
    if (!p->draining)
        return false;
    list_for_each(n, &p->listeners) if (container_of(n, struct listener, node)->live) return false;
    return true;
}

void proxy_counters(const struct proxy *p, struct proxy_counters *ret_counters)
{
    ret_counters->clients = p->clients.in_use;
    ret_counters->exchanges = p->exchanges.in_use;
    ret_counters->tunnels = p->tunnels.in_use;
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
