/* The edge's own duties. */
#include <ctype.h>
#include <string.h>
#include "config/location.h"
#include "config/validate.h"

static const char *lower(struct validate *v, const char *text)
{
    char *copy = arena_strndup(v->b->scratch, text, strlen(text));

    for (char *p = copy; p && *p; p++)
        *p = (char)tolower((unsigned char)*p);
    if (!copy)
        v->b->out_of_memory = true;
    return copy ? copy : "";
}

static void check_distinct(struct validate *v, const struct config_header *set, size_t n)
{
    struct validate_item *items = validate_items(v, n);
    size_t count = 0;

    for (size_t i = 0; items && i < n; i++) {
        const struct yaml_node *node = bind_where(v->b, &set[i].name, "name");

        if (node)
            items[count++] = (struct validate_item){lower(v, set[i].name), node};
    }
    if (items)
        validate_distinct(v, items, count, "the field");
}

static bool is_forwarded_by(enum config_forwarded f, const char *name)
{
    bool is_x = !strcasecmp(name, "x-forwarded-for") || !strcasecmp(name, "x-forwarded-proto") ||
                !strcasecmp(name, "x-forwarded-host");

    if (is_x)
        return f == CONFIG_FORWARDED_X || f == CONFIG_FORWARDED_BOTH;
    return !strcasecmp(name, "forwarded") &&
           (f == CONFIG_FORWARDED_RFC7239 || f == CONFIG_FORWARDED_BOTH);
}

static bool tells_time_left(const struct snapshot *s, const char *name)
{
    for (size_t i = 0; i < s->nupstreams; i++) {
        const char *header = s->upstreams[i].deadline_header;

        if (header && !strcasecmp(header, name))
            return true;
    }
    return false;
}

/* Who else writes a field of this name, ids aside; NULL: nobody. */
static const char *writer_of(const struct snapshot *s, const struct config_http *http,
                             const char *name, bool of_request)
{
    if (http->via && !strcasecmp(name, "via"))
        return "the listener's `via`";
    if (!of_request)
        return NULL;
    if (http->trace && (!strcasecmp(name, "traceparent") || !strcasecmp(name, "tracestate")))
        return "the listener's `traceparent`";
    if (is_forwarded_by(http->forwarded, name))
        return "the listener's `forwarded`";
    return tells_time_left(s, name) ? "an upstream's `deadline_header`" : NULL;
}

static const char *other_writer(const struct snapshot *s, const struct config_http *http,
                                const char *name, bool of_request)
{
    const struct config_request_id *id = http->request_id;

    if (id && id->header && !strcasecmp(name, id->header))
        return "the listener's `request_id`";
    return writer_of(s, http, name, of_request);
}

static void check_id(struct validate *v, const struct config_http *http)
{
    const struct config_request_id *id = http->request_id;
    const struct yaml_node *n = id ? bind_where(v->b, &id->header, "header") : NULL;
    const char *other = n ? writer_of(v->s, http, id->header, true) : NULL;

    if (other)
        bind_fault(v->b, n, "%s is written by %s", yaml_quote(v->b->scratch, n->text, n->len),
                   other);
}

static void check_writer(struct validate *v, const struct config_http *http, const void *field,
                         const char *key, const char *name, bool of_request)
{
    const struct yaml_node *n = bind_where(v->b, field, key);
    const char *other = n ? other_writer(v->s, http, name, of_request) : NULL;

    if (other)
        bind_fault(v->b, n, "%s is written by %s: only without that can it be changed here",
                   yaml_quote(v->b->scratch, n->text, n->len), other);
}

static void check_edit(struct validate *v, const struct config_http *http,
                       const struct config_header_edit *e, bool of_request)
{
    check_distinct(v, e->set, e->nset);
    for (size_t i = 0; i < e->nset; i++)
        check_writer(v, http, &e->set[i].name, "name", e->set[i].name, of_request);
    for (size_t i = 0; i < e->nadd; i++)
        check_writer(v, http, &e->add[i].name, "name", e->add[i].name, of_request);
    for (size_t i = 0; i < e->nremove; i++)
        check_writer(v, http, &e->remove[i], "[]", e->remove[i], of_request);
}

static void check_headers(struct validate *v, const struct config_http *http,
                          const struct config_headers *h)
{
    if (!h)
        return;
    check_edit(v, http, &h->request, true);
    check_edit(v, http, &h->response, false);
}

/* Is the key there, right or wrong? */
static bool has_key(const struct yaml_node *map, const char *name)
{
    for (const struct yaml_node *n = map->first; n; n = n->next)
        if (n->key->text && !strcmp(n->key->text, name))
            return true;
    return false;
}

static void check_access(struct validate *v, const struct config_access *x)
{
    const struct yaml_node *n = x ? bind_where(v->b, x, "access") : NULL;

    if (n && !has_key(n, "allow") && !has_key(n, "deny"))
        bind_fault(v->b, n, "expected allow or deny, found neither");
}

static void check_per_client(struct validate *v, const struct config_per_client *p)
{
    const struct yaml_node *n = bind_where(v->b, &p->rate.burst, "burst");

    if (n && p->rate.burst && !p->rate.rate.count && !bind_where(v->b, &p->rate.rate, BIND_FAULTY))
        bind_fault(v->b, n, "is the burst of a connection_rate, and there is none");
}

static void check_rewrite(struct validate *v, const struct config_route *r)
{
    const struct yaml_node *n = r->rewrite ? bind_where(v->b, r->rewrite, "rewrite") : NULL;

    if (!n)
        return;
    if (r->redirect)
        bind_fault(v->b, n, "a route that redirects asks no origin");
    else if (!has_key(n, "prefix") && !has_key(n, "host"))
        bind_fault(v->b, n, "expected prefix or host, found neither");
}

static void check_redirect(struct validate *v, const struct config_http *http,
                           const struct config_route *r)
{
    const struct yaml_node *n, *headers;

    if (!r->redirect)
        return;
    n = bind_where(v->b, &r->redirect->location, "location");
    headers = r->headers ? bind_where(v->b, r->headers, "headers") : NULL;
    if (n && location_leads_back(http, r))
        bind_fault(v->b, n, "%s leads back to this route, again and again",
                   yaml_quote(v->b->scratch, n->text, n->len));
    if (headers)
        bind_fault(v->b, headers,
                   "a route that redirects asks no origin, whose messages these are");
}

void validate_duties(struct validate *v)
{
    for (size_t i = 0; i < v->s->nlisteners; i++) {
        const struct config_listener *l = &v->s->listeners[i];

        check_access(v, l->access);
        check_per_client(v, &l->per_client);
        if (!l->http)
            continue;
        check_id(v, l->http);
        check_headers(v, l->http, l->http->headers);
        for (size_t j = 0; j < l->http->nroutes; j++) {
            const struct config_route *r = &l->http->routes[j];

            check_access(v, r->access);
            check_redirect(v, l->http, r);
            check_rewrite(v, r);
            check_headers(v, l->http, r->headers);
        }
    }
}
