#include "dataplane/proxy/duties.h"

#include "dataplane/http/h1/writer.h"
#include "dataplane/route/access.h"
#include "dataplane/route/forwarded.h"
#include "dataplane/route/limit.h"
#include "dataplane/route/template.h"

#define SECOND 1000000000ull

/* What limits tell clients apart by. */
static uint32_t limit_key(const struct proxy *p, const struct inet_end *client)
{
    return client->is_ip6 && p->limits.table ? client_limits_ip6(&p->limits, client->ip6)
                                             : client->addr;
}

bool duties_allow(const struct config_access *x, const struct inet_end *client)
{
    return !x || (client->is_ip6 ? x->nallow == 0 : access_allows(x, client->addr));
}

static bool is_closed(const struct config_maintenance *m, struct refusal *ret_refusal)
{
    if (!m || !m->enabled)
        return false;
    *ret_refusal = (struct refusal){.status = m->status,
                                    .why = ACCESS_maintenance,
                                    .retry_after = (uint32_t)(m->retry_after / SECOND),
                                    .body = m->body};
    return true;
}

static bool is_over(struct client *c, const struct config_limit *limit,
                    const struct inet_end *client, struct refusal *ret_refusal)
{
    struct proxy *p = client_proxy(c);
    uint64_t wait;
    if (!limit || !p->limits.table ||
        client_limits_take(&p->limits, limit, limit_key(p, client), client_now(c), &wait))
        return false;
    c->c.listener->count.rate_limited++;
    *ret_refusal = (struct refusal){.status = 429,
                                    .why = ACCESS_rate_limited,
                                    .retry_after = (uint32_t)((wait + SECOND - 1) / SECOND)};
    return true;
}

struct inet_end client_end(const struct client *c, const struct http_head *head)
{
    const struct config_http *http = client_http(c);
    struct inet_end e = conn_client(&c->c);
    if (!http->nproxied || e.is_ip6)
        return e;
    uint32_t addr = forwarded_client(http->proxied, http->nproxied, e.addr, head);
    return addr == e.addr ? e : (struct inet_end){.addr = addr};
}

bool duties_pass_listener(struct client *c, const struct http_head *head,
                          struct refusal *ret_refusal)
{
    const struct config_http *http = client_http(c);
    struct inet_end client = client_end(c, head);
    return !is_closed(http->maintenance, ret_refusal) &&
           !is_over(c, http->rate_limit, &client, ret_refusal);
}

/* Without a host there is no telling where a location on it leads. */
static struct refusal redirection(const struct config_route *route,
                                  const struct http_route_key *key)
{
    uint32_t needs_host = route->redirect->location.variables & 1u << CONFIG_VAR_host;
    if (needs_host && !key->host.len)
        return (struct refusal){.status = 400, .why = ACCESS_bad_request};
    return (struct refusal){.status = route->redirect->status,
                            .why = ACCESS_redirected,
                            .redirect = route->redirect,
                            .route = route,
                            .key = key};
}

bool duties_pass_route(struct client *c, const struct exchange_request *r,
                       struct refusal *ret_refusal)
{
    const struct config_route *route = r->route;
    struct inet_end client = client_end(c, r->head);
    if (!duties_allow(route->access, &client)) {
        *ret_refusal = (struct refusal){.status = 403, .why = ACCESS_denied};
        return false;
    }
    if (is_closed(route->maintenance, ret_refusal) ||
        is_over(c, route->rate_limit, &client, ret_refusal))
        return false;
    if (!route->redirect)
        return true;
    *ret_refusal = redirection(route, r->key);
    return false;
}

/* Without the "/" at its end: what follows begins with it. */
static uint32_t prefix_len(const struct config_route *r)
{
    return (uint32_t)(r->path_prefix_len - (r->path_prefix[r->path_prefix_len - 1] == '/'));
}

/* What is written beside the usual fields. */
struct lines {
    const char *id_header;
    const char *id;
    const struct config_redirect *redirect;
    struct template_vars vars;
};

static void put_lines(struct h1_writer *w, const void *ctx)
{
    const struct lines *l = ctx;
    if (l->redirect) {
        H1_PUT(w, "Location: ");
        template_put_location(w, &l->redirect->location, &l->vars);
        H1_PUT(w, "\r\n");
    }
    if (l->id_header)
        edit_put_id(w, l->id_header, l->id);
}

void duties_answer(struct client *c, const struct http_head *head, bool keep_alive,
                   const struct refusal *no, struct access_record *r)
{
    const struct config_request_id *ids = client_http(c)->request_id;
    char ip[INET_TEXT];
    record_client(r, ip);
    struct lines lines = {
        .id_header = ids && r->has_id ? ids->header : NULL,
        .id = r->request_id,
        .redirect = no->redirect,
        .vars = {.client_ip = ip,
                 .https = client_is_secure(c),
                 .listener = c->c.listener->name,
                 .request_id = access_record_id(r),
                 .head = head,
                 .key = no->key,
                 .prefix_len = no->route ? prefix_len(no->route) : 0},
    };
    struct http_answer a = {.status = no->status,
                            .keep_alive = keep_alive,
                            .head_request = head && head->method == HTTP_HEAD,
                            .retry_after = no->retry_after,
                            .body = no->body,
                            .put = put_lines,
                            .ctx = &lines};
    client_answer(c, &a);
}

static bool is_too_fast(struct proxy *p, const struct config_limit *rate, uint32_t addr)
{
    uint64_t wait;
    return rate->interval &&
           !client_limits_take(&p->limits, rate, addr, sched_now(p->sched), &wait);
}

bool duties_enter(struct listener *l, const struct inet_end *client, struct conn_ticket *ret_ticket)
{
    const struct config_per_client *limits = &l->cfg->per_client;
    struct proxy *p = l->proxy;
    *ret_ticket = (struct conn_ticket){0};
    if (!p->limits.table || (!limits->rate.interval && !limits->connections))
        return true;
    uint32_t addr = limit_key(p, client);
    if (is_too_fast(p, &limits->rate, addr))
        return false;
    if (!limits->connections)
        return true;
    if (!client_limits_enter(&p->limits, limits->rate.id, addr, limits->connections,
                             sched_now(p->sched)))
        return false;
    *ret_ticket = (struct conn_ticket){limits->rate.id, addr};
    return true;
}

void duties_leave(struct listener *l, const struct conn_ticket *ticket)
{
    if (ticket->addr)
        client_limits_leave(&l->proxy->limits, ticket->id, ticket->addr);
}
