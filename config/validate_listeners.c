/* Listeners, their routes, and upstreams. */
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
        if (!l->http)
            continue;
        check_routes(v, l->http);
        check_header_size(v, l->http);
    }
}

static bool is_reachable(const struct snapshot *s, uint32_t addr)
{
    for (size_t i = 0; i < s->nports; i++) {
        if (s->ports[i].gateway)
            return true;
        for (size_t j = 0; j < s->ports[i].naddresses; j++)
            if (validate_is_on(&s->ports[i].addresses[j], addr))
                return true;
    }
    return false;
}

static void check_endpoint(struct validate *v, const struct config_addr *e,
                           const struct yaml_node *n)
{
    if (!e->addr)
        bind_fault(v->b, n, "expected the address of an origin, found %s",
                   yaml_quote(v->b->scratch, n->text, n->len));
    else if (!v->know_addresses)
        return;
    else if (validate_is_ours(v->s, e->addr))
        bind_fault(v->b, n, "%s is one of our own addresses", n->text);
    else if (v->know_gateways && !is_reachable(v->s, e->addr))
        bind_fault(v->b, n,
                   "%s can't be reached: it is on no port's subnet, and no port has a "
                   "gateway",
                   n->text);
}

static void check_endpoints(struct validate *v, const struct config_upstream *u)
{
    struct validate_item *items = validate_items(v, u->nendpoints);
    size_t n = 0;

    for (size_t i = 0; items && i < u->nendpoints; i++) {
        const struct yaml_node *node = bind_where(v->b, &u->endpoints[i], "[]");

        if (!node)
            continue;
        check_endpoint(v, &u->endpoints[i], node);
        items[n++] = (struct validate_item){node->text, node};
    }
    if (items)
        validate_distinct(v, items, n, "the endpoint");
}

void validate_upstreams(struct validate *v)
{
    const struct snapshot *s = v->s;
    struct validate_item *items = validate_items(v, s->nupstreams);
    size_t n = 0;

    for (size_t i = 0; items && i < s->nupstreams; i++) {
        const struct config_upstream *u = &s->upstreams[i];
        const struct yaml_node *node = bind_where(v->b, &u->name, "name");

        check_endpoints(v, u);
        if (node)
            items[n++] = (struct validate_item){u->name, node};
    }
    if (items)
        validate_distinct(v, items, n, "the name");
}
