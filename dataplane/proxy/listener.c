#include "dataplane/proxy/listener.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "dataplane/proxy/duties.h"
#include "dataplane/proxy/greeting.h"
#include "dataplane/proxy/secure.h"
#include "dataplane/route/access.h"

static void give_up(struct listener *l, struct arrival *a, uint64_t *counter)
{
    (*counter)++;
    duties_leave(l, &a->ticket);
    if (a->via)
        slab_put(&l->proxy->headers, a->via);
    stream_abort(a->stream);
}

static struct inet_end client_of(const struct arrival *a)
{
    struct stream_info info;
    if (a->via)
        return a->via->client;
    stream_get_info(a->stream, &info);
    return (struct inet_end){.addr = info.peer_addr, .port = info.peer_port};
}

bool listener_serve(struct listener *l, const struct arrival *a)
{
    return l->http ? client_start(l, a) : tunnel_start(l, a);
}

void listener_admit(struct listener *l, struct arrival *a)
{
    struct inet_end client = client_of(a);
    if (!duties_allow(l->cfg->access, &client)) {
        give_up(l, a, &l->count.denied);
        return;
    }
    if (!duties_enter(l, &client, &a->ticket)) {
        give_up(l, a, &l->count.limited);
        return;
    }
    if (l->cfg->tls ? secure_start(l, a) : listener_serve(l, a))
        l->count.accepted++;
    else
        give_up(l, a, &l->count.refused);
}

static void on_accept(void *ctx, struct stream *s)
{
    struct listener *l = ctx;
    struct arrival a = {.stream = s, .at = sched_now(l->proxy->sched)};
    struct inet_end peer = client_of(&a);
    if (l->proxy->draining || l->live >= l->max)
        give_up(l, &a, &l->count.refused);
    else if (!greeting_is_due(l, peer.addr))
        listener_admit(l, &a);
    else if (!greeting_start(l, &a))
        give_up(l, &a, &l->count.refused);
}

static bool is_unwelcome(struct listener *l, uint32_t peer_addr, enum tcp_welcome *ret_answer)
{
    const struct config_proxy_protocol *x = l->cfg->proxy_protocol;
    if (greeting_is_due(l, peer_addr)) /* what counts is the address in its header */
        return false;
    if (x && x->others == CONFIG_OTHERS_REFUSE) {
        l->count.turned_away[TURNED_AWAY_proxy_untrusted]++;
        *ret_answer = TCP_WELCOME_RESET;
        return true;
    }
    if (access_allows(l->cfg->access, peer_addr))
        return false;
    l->count.denied++;
    *ret_answer =
        l->cfg->access->refuse == CONFIG_REFUSE_SILENT ? TCP_WELCOME_IGNORE : TCP_WELCOME_RESET;
    return true;
}

/* Over the limit a SYN stays unanswered: the peer tries again, and finds room or gives up. */
static enum tcp_welcome may_accept(void *ctx, uint32_t peer_addr)
{
    struct listener *l = ctx;
    enum tcp_welcome no;
    if (is_unwelcome(l, peer_addr, &no))
        return no;
    if (!l->proxy->draining && l->live < l->max)
        return TCP_WELCOME_ACCEPT;
    l->count.refused++;
    return TCP_WELCOME_IGNORE;
}

static bool is_at(const struct listener *l, const struct config_addr *a)
{
    return l->address.port == a->port && l->address.addr == a->addr;
}

static bool is_of(const struct listener *l, const struct config_listener *cfg)
{
    return is_at(l, &cfg->address) && l->http == (cfg->http != NULL) &&
           strcmp(l->name, cfg->name) == 0;
}

/* Snapshots have them in much the same order as the one before: from where the last one was found
 * the next is mostly one step away. */
static struct listener *find(struct proxy *p, const struct config_listener *cfg)
{
    struct list_node *from = p->found ? p->found : &p->listeners, *n = from;
    do {
        n = n->next;
        if (n == &p->listeners)
            continue;
        struct listener *l = container_of(n, struct listener, node);
        if (is_of(l, cfg)) {
            p->found = n;
            return l;
        }
    } while (n != from);
    return NULL;
}

/* The one that is open at an address. */
static struct listener *find_open(struct proxy *p, const struct config_addr *a)
{
    list_for_each(n, &p->listeners)
    {
        struct listener *l = container_of(n, struct listener, node);
        if (l->tcp && is_at(l, a))
            return l;
    }
    return NULL;
}

static struct listener *listener_new(struct proxy *p, const struct config_listener *cfg)
{
    struct listener *l = calloc(1, sizeof(*l));
    if (!l)
        return NULL;
    list_init(&l->conns);
    l->proxy = p;
    l->cfg = cfg;
    l->address = cfg->address;
    l->http = cfg->http != NULL;
    strncpy(l->name, cfg->name, sizeof(l->name) - 1);
    l->is_new = true;
    list_push_tail(&p->listeners, &l->node);
    return l;
}

void listener_free(struct listener *l)
{
    assert(l->live == 0);
    if (l->proxy->found == &l->node)
        l->proxy->found = NULL;
    list_remove(&l->node);
    if (l->tcp)
        tcp_listener_free(l->proxy->tcp, l->tcp);
    free(l);
}

static int open_socket(struct listener *l)
{
    struct tcp_listener_opts o = {
        .addr = l->address.addr,
        .port = l->address.port,
        .on_accept = on_accept,
        .may_accept = may_accept,
        .ctx = l,
    };
    int err = tcp_listen(l->proxy->tcp, &o, &l->tcp);
    l->is_opened = err == 0;
    return err;
}

/* Whoever is open at its address is about to go, since a configuration has an address only once: it
 * gives up the socket at the commit. */
static int prepare(struct proxy *p, const struct config_listener *cfg)
{
    struct listener *l = find(p, cfg);
    if (!l)
        l = listener_new(p, cfg);
    if (!l)
        return -ENOMEM;
    return l->tcp || p->draining || find_open(p, &l->address) ? 0 : open_socket(l);
}

int listeners_prepare(struct proxy *p, const struct snapshot *s)
{
    int err = 0;
    for (size_t i = 0; i < s->nlisteners && !err; i++)
        err = prepare(p, &s->listeners[i]);
    if (err)
        listeners_rollback(p);
    return err;
}

void listeners_rollback(struct proxy *p)
{
    list_for_each_safe(n, tmp, &p->listeners)
    {
        struct listener *l = container_of(n, struct listener, node);
        if (l->is_opened)
            tcp_listener_free(p->tcp, l->tcp);
        if (l->is_opened)
            l->tcp = NULL;
        l->is_opened = false;
        if (l->is_new)
            listener_free(l);
    }
}

/* Every core its share, the first ones what is left over: the sum is the limit. A core without any
 * would leave the clients that are its own without an answer, so each has one at the least. */
static uint32_t share(uint32_t limit, unsigned core, unsigned cores)
{
    uint32_t n = limit / cores + (core < limit % cores ? 1 : 0);
    return n ? n : 1;
}

static void set_config(struct listener *l, const struct config_listener *cfg)
{
    const char *deadline = cfg->http ? cfg->http->deadline_header : NULL;
    l->cfg = cfg;
    l->is_listed = true;
    l->deadline_id =
        deadline ? (uint8_t)http_header_find_id(deadline, strlen(deadline)) : HTTP_H_OTHER;
}

static void keep_open(struct proxy *p, const struct config_listener *cfg)
{
    struct listener *l = find(p, cfg);
    assert(l);
    set_config(l, cfg);
    l->max = share(cfg->connections, p->core, p->cores);
    l->draining = false;
}

/* Those that wait for a request see that they are no longer wanted. */
static void wake_all(struct listener *l)
{
    list_for_each(n, &l->conns) task_wake(&container_of(n, struct conn, node)->task);
}

static void keep_draining(struct proxy *p, const struct config_listener *cfg)
{
    struct listener *l = find(p, cfg);
    if (!l) /* it was never open on this core */
        return;
    set_config(l, cfg);
    if (!l->draining)
        wake_all(l);
    l->draining = true;
}

static void give_socket(struct listener *from, struct listener *to)
{
    to->tcp = from->tcp;
    from->tcp = NULL;
    tcp_listener_set_ctx(to->tcp, to);
}

static bool is_going(const struct listener *l)
{
    return l->draining || !l->is_listed;
}

static void move_sockets(struct proxy *p)
{
    list_for_each(n, &p->listeners)
    {
        struct listener *l = container_of(n, struct listener, node);
        if (is_going(l) || l->tcp || p->draining)
            continue;
        struct listener *from = find_open(p, &l->address);
        assert(from && is_going(from));
        give_socket(from, l);
    }
}

/* What goes has no connection left as a rule: control keeps it in the snapshot until then. */
static void close_going(struct proxy *p)
{
    list_for_each_safe(n, tmp, &p->listeners)
    {
        struct listener *l = container_of(n, struct listener, node);
        l->is_new = l->is_opened = false;
        if (!is_going(l))
            continue;
        if (l->tcp)
            tcp_listener_free(p->tcp, l->tcp);
        l->tcp = NULL;
        if (l->draining)
            continue;
        listener_abort_all(l);
        listener_free(l);
    }
}

void listeners_commit(struct proxy *p, const struct snapshot *s)
{
    list_for_each(n, &p->listeners) container_of(n, struct listener, node)->is_listed = false;
    for (size_t i = 0; i < s->nlisteners; i++)
        keep_open(p, &s->listeners[i]);
    for (size_t i = 0; i < s->ndraining; i++)
        keep_draining(p, &s->draining[i]);
    list_for_each(n, &p->listeners)
    {
        struct listener *l = container_of(n, struct listener, node);
        if (!l->is_listed) /* it still has what it knew, until its connections are cut */
            l->draining = false;
    }
    move_sockets(p);
    close_going(p);
}

void listeners_drain(struct proxy *p)
{
    list_for_each(n, &p->listeners)
    {
        struct listener *l = container_of(n, struct listener, node);
        if (l->tcp)
            tcp_listener_free(p->tcp, l->tcp);
        l->tcp = NULL;
        wake_all(l);
    }
}

void listener_abort_all(struct listener *l)
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
