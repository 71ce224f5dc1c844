#include <stdio.h>
#include <string.h>

#include "dataplane/proxy/conn.h"
#include "dataplane/proxy/exchange.h"

#define EMPTY_PAGE 1024 /* slots of nobody that a page looks at */

static const char *const state_names[] = {
#define CONN_STATE(name, text) #name,
#include "dataplane/proxy/conn_state.def"
#undef CONN_STATE
};

const char *conn_state_name(enum conn_state s)
{
    return (unsigned)s < CONN_STATE_COUNT ? state_names[s] : "?";
}

bool conn_state_parse(const char *name, enum conn_state *ret_state)
{
    for (unsigned i = 0; i < CONN_STATE_COUNT; i++) {
        if (strcmp(name, state_names[i]) != 0)
            continue;
        *ret_state = (enum conn_state)i;
        return true;
    }
    return false;
}

static enum conn_state exchange_state(const struct exchange *x)
{
    switch (x->state) {
    case EXCHANGE_CONNECT:
        return CONN_STATE_connecting;
    case EXCHANGE_AWAIT_HEAD:
        return CONN_STATE_sent;
    case EXCHANGE_RELAY:
        return CONN_STATE_relaying;
    default:
        return CONN_STATE_waiting;
    }
}

static enum conn_state client_state(const struct client *c)
{
    switch ((enum client_state)c->state) {
    case CLIENT_HEAD:
        return c->in.len ? CONN_STATE_head : CONN_STATE_idle;
    case CLIENT_EXCHANGE:
        return exchange_state(c->x);
    case CLIENT_FLUSH:
        return c->out.len ? CONN_STATE_answering : CONN_STATE_idle;
    case CLIENT_LINGER:
        return CONN_STATE_closing;
    }
    return CONN_STATE_idle;
}

static void put_text(char *to, size_t size, const char *from)
{
    record_text(to, size, from, strlen(from));
}

/* Nothing pins an exchange's configuration: the route has a name while that is in force. */
static void route_info(const struct exchange *x, struct conn_info *to)
{
    const struct config_http *http = client_http(x->client);
    if (x->version != client_proxy(x->client)->snapshot->version || x->route >= http->nroutes)
        return;
    const struct config_route *r = &http->routes[x->route];
    snprintf(to->route, sizeof(to->route), "%s%s%s", r->host_kind == CONFIG_HOST_EXACT ? "" : "*",
             r->host_kind == CONFIG_HOST_ANY ? "" : r->host, r->path_prefix);
}

static void exchange_info(const struct exchange *x, struct conn_info *to)
{
    to->exchange_ns = client_now(x->client) - x->started;
    to->attempts = x->attempts;
    to->endpoint_addr = x->record.upstream_addr;
    to->endpoint_port = x->record.upstream_port;
    route_info(x, to);
    put_text(to->upstream, sizeof(to->upstream), x->upstream->name);
    put_text(to->method, sizeof(to->method), x->record.method);
    put_text(to->host, sizeof(to->host), x->record.host);
    put_text(to->target, sizeof(to->target), x->record.target);
}

static void client_part(const struct conn *c, const struct stream_info *info, struct conn_info *to)
{
    struct inet_end client = conn_client(c);
    to->client_addr = client.addr;
    to->client_port = client.port;
    to->has_ip6 = client.is_ip6;
    if (client.is_ip6)
        memcpy(to->client_ip6, client.ip6, sizeof(to->client_ip6));
    if (!c->via)
        return;
    to->peer_addr = info->peer_addr;
    to->peer_port = info->peer_port;
}

static void stream_part(const struct conn *c, uint64_t now, struct conn_info *to)
{
    struct stream_info info;
    struct stream_detail detail;
    if (!c->stream)
        return;
    stream_get_info(c->stream, &info);
    stream_get_detail(c->stream, &detail);
    client_part(c, &info, to);
    to->local_addr = info.local_addr;
    to->local_port = info.local_port;
    to->bytes_in = info.bytes_in;
    to->bytes_out = info.bytes_out;
    to->retransmits = info.retransmits;
    to->srtt_us = (uint32_t)(info.srtt_ns / 1000);
    to->idle_ns = now - detail.moved_at;
    to->tcp_state = detail.state;
    to->cwnd = detail.cwnd;
    to->unacked = detail.unacked;
    to->send_queue = detail.send_queue;
    to->recv_queue = detail.recv_queue;
    to->rto_us = detail.rto_us;
}

/* No memset: the texts are most of it. */
static void clear(struct conn_info *to)
{
    static const struct conn_info none;
    memcpy(to, &none, offsetof(struct conn_info, listener));
    to->upstream[0] = to->method[0] = to->host[0] = to->target[0] = to->route[0] = 0;
    memcpy((char *)to + offsetof(struct conn_info, tcp_state),
           (const char *)&none + offsetof(struct conn_info, tcp_state),
           sizeof(none) - offsetof(struct conn_info, tcp_state));
}

static void conn_fill(const struct conn *c, struct conn_info *to)
{
    const struct listener *l = c->listener;
    uint64_t now = sched_now(l->proxy->sched);
    clear(to);
    put_text(to->listener, sizeof(to->listener), l->name);
    to->draining = l->draining;
    to->age_ns = now - c->accepted_at;
    stream_part(c, now, to);
    if (c->task.kind_ == &secure_kind) {
        to->state = CONN_STATE_handshake;
        return;
    }
    if (c->task.kind_ == &greeting_kind) {
        to->state = CONN_STATE_greeting;
        return;
    }
    if (!l->http) {
        tunnel_info(c, to);
        return;
    }
    const struct client *client = container_of(c, struct client, c);
    to->state = client_state(client);
    to->requests = client->requests;
    if (client->x)
        exchange_info(client->x, to);
}

static bool is_wanted(const struct conns_filter *f, const struct conn_info *i)
{
    return (!f->listener[0] || strcmp(f->listener, i->listener) == 0) &&
           (!f->netmask ||
            (!i->has_ip6 && (i->client_addr & f->netmask) == (f->client & f->netmask))) &&
           (!f->by_state || f->state == i->state);
}

void proxy_list_conns(struct proxy *p, struct conns_page *page)
{
    unsigned looked = 0, empty = 0;
    uint32_t last = conn_table_last(&p->conns);
    page->n = 0;
    while (page->at < last && looked < CONNS_PAGE && empty < EMPTY_PAGE) {
        const struct conn *c = conn_table_at(&p->conns, ++page->at);
        if (!c) {
            empty++;
            continue;
        }
        looked++;
        conn_fill(c, &page->conns[page->n]);
        page->n += is_wanted(&page->filter, &page->conns[page->n]);
    }
    page->done = page->at >= last;
}
