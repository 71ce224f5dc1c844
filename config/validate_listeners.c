/* Listeners and their routes. */
#include <string.h>
#include "config/units.h"
#include "config/validate.h"

static void check_names(struct validate *v)
{
    const struct snapshot *s = v->s;
    struct validate_item *items = validate_items(v, s->nlisteners);
    size_t n = 0;

    for (size_t i = 0; items && i < s->nlisteners; i++) {
        const struct yaml_node *node = bind_where(v->b, &s->listeners[i].name, "name");

        if (node)
            items[n++] = (struct validate_item){s->listeners[i].name, node};
    }
    if (items)
        validate_distinct(v, items, n, "the name");
}

static void check_same_addresses(struct validate *v)
{
    const struct snapshot *s = v->s;
    struct validate_item *items = validate_items(v, s->nlisteners);
    size_t n = 0;

    for (size_t i = 0; items && i < s->nlisteners; i++) {
        const struct config_listener *l = &s->listeners[i];
        const struct yaml_node *node = bind_where(v->b, &l->address, "address");
        char text[UNITS_TEXT_MAX];

        if (!node)
            continue;
        units_format_listen(&l->address, text);
        items[n++] = (struct validate_item){config_say(v->b->scratch, "%s", text), node};
    }
    if (items)
        validate_distinct(v, items, n, "the address");
}

/* "*:80" and "10.0.0.1:80" would share connections. */
static void check_overlap(struct validate *v, const struct config_listener *l,
                          const struct yaml_node *at)
{
    for (size_t i = 0; i < v->s->nlisteners; i++) {
        const struct config_listener *x = &v->s->listeners[i];
        const struct yaml_node *other = bind_where(v->b, &x->address, "address");

        if (!other || x->address.addr || x->address.port != l->address.port)
            continue;
        bind_fault(v->b, at, "the address is taken already by \"*:%u\", in line %u",
                   x->address.port, other->line);
        return;
    }
}

static void check_address(struct validate *v, const struct config_listener *l)
{
    const struct yaml_node *n = bind_where(v->b, &l->address, "address");

    if (!n || !l->address.addr)
        return;
    check_overlap(v, l, n);
    if (v->know_addresses && !validate_is_ours(v->s, l->address.addr))
        bind_fault(v->b, n, "expected an address of one of the ports, found %s",
                   yaml_quote(v->b->scratch, n->text, n->len));
}

static const struct yaml_node *route_node(struct validate *v, const struct config_route *r)
{
    const struct yaml_node *n = bind_where(v->b, r, "path_prefix");

    if (!n)
        n = bind_where(v->b, r, "host");
    return n ? n : bind_where(v->b, r, "routes");
}

static void check_routes(struct validate *v, const struct config_http *http)
{
    struct validate_item *items = validate_items(v, http->nroutes);
    size_t n = 0;

    for (size_t i = 0; items && i < http->nroutes; i++) {
        const struct config_route *r = &http->routes[i];
        const struct yaml_node *node = route_node(v, r);

        if (!node || bind_where(v->b, r, BIND_FAULTY))
            continue;
        items[n++] = (struct validate_item){config_say(v->b->scratch, "%s%s%s",
                                                       r->host_kind == CONFIG_HOST_EXACT ? "" : "*",
                                                       r->host ? r->host : "", r->path_prefix),
                                            node};
    }
    if (items)
        validate_distinct(v, items, n, "the route for");
}

static void check_same_names(struct validate *v, const struct config_tunnel *t)
{
    struct validate_item *items = validate_items(v, t->nsni);
    size_t n = 0;

    for (size_t i = 0; items && i < t->nsni; i++) {
        const struct config_sni *s = &t->sni[i];
        const struct yaml_node *node = bind_where(v->b, s, "match");

        if (node && !s->nalpn)
            items[n++] = (struct validate_item){
                config_say(v->b->scratch, "%s%s", s->host_kind == CONFIG_HOST_EXACT ? "" : "*",
                           s->host ? s->host : ""),
                node};
    }
    if (items)
        validate_distinct(v, items, n, "the entry for");
}

static void check_tunnel(struct validate *v, const struct config_tunnel *t)
{
    const struct yaml_node *tunnel = bind_where(v->b, t, "tunnel");
    const struct yaml_node *pass = bind_where(v->b, &t->not_tls, "not_tls");
    bool has_upstream = t->upstream || bind_where(v->b, &t->upstream, BIND_FAULTY);
    bool has_sni = t->nsni || bind_where(v->b, &t->sni, BIND_FAULTY);

    if (tunnel && !has_upstream && !has_sni)
        bind_fault(v->b, tunnel, "expected upstream or sni, found neither");
    if (pass && t->not_tls == CONFIG_NOT_TLS_PASS && has_sni && !has_upstream)
        bind_fault(v->b, pass, "pass goes to the tunnel's upstream, and there is none");
    check_same_names(v, t);
}

static void check_header_size(struct validate *v, const struct config_http *http)
{
    const struct yaml_node *n = bind_where(v->b, &http->header_size, "header_size");
    char text[UNITS_TEXT_MAX];

    if (!n || http->header_size <= v->s->runtime.memory_rcv_buf)
        return;
    units_format_size(v->s->runtime.memory_rcv_buf, text);
    bind_fault(v->b, n, "expected at most runtime.receive_buffer (%s), found %s", text, n->text);
}

void validate_listeners(struct validate *v)
{
    check_names(v);
    check_same_addresses(v);
    for (size_t i = 0; i < v->s->nlisteners; i++) {
        const struct config_listener *l = &v->s->listeners[i];

        check_address(v, l);
        if (l->tunnel)
            check_tunnel(v, l->tunnel);
        if (!l->http)
            continue;
        check_routes(v, l->http);
        check_header_size(v, l->http);
    }
}
