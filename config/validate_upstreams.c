/* Upstreams: their endpoints, and what is known of them. */
#include <string.h>
#include "config/maglev.h"
#include "config/units.h"
#include "config/validate.h"

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

static void check_address(struct validate *v, const struct config_addr *e,
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
        const struct config_addr *address = &u->endpoints[i].address;
        const struct yaml_node *node = bind_where(v->b, address, "address");

        if (!node)
            continue;
        check_address(v, address, node);
        items[n++] = (struct validate_item){node->text, node};
    }
    if (items)
        validate_distinct(v, items, n, "the endpoint");
}

/* Backups stand in for others; if all were of weight 0, nothing would be served at all. Who drains
 * an upstream by hand means just that. */
static void check_primaries(struct validate *v, const struct config_upstream *u)
{
    const struct yaml_node *n = bind_where(v->b, &u->endpoints[0], "endpoints");

    for (size_t i = 0; i < u->nendpoints; i++) {
        const struct config_endpoint *e = &u->endpoints[i];

        if ((!e->backup && e->weight) || v->b->by_hand)
            return;
        if (bind_where(v->b, &e->backup, BIND_FAULTY) || bind_where(v->b, &e->weight, BIND_FAULTY))
            return;
    }
    if (n)
        bind_fault(v->b, n, "at least one endpoint must have a weight and be no backup");
}

static void check_hash_name(struct validate *v, const struct config_hash *h)
{
    const struct yaml_node *by = bind_where(v->b, &h->by, "by");
    const struct yaml_node *name = bind_where(v->b, &h->name, "name");
    bool is_named = h->by == CONFIG_HASH_HEADER || h->by == CONFIG_HASH_COOKIE;

    if (by && is_named && !h->name && !bind_where(v->b, &h->name, BIND_FAULTY))
        bind_fault(v->b, by, "the name of the %s is missing: expected a \"name\" beside it",
                   h->by == CONFIG_HASH_HEADER ? "header" : "cookie");
    if (name && !is_named && !bind_where(v->b, &h->by, BIND_FAULTY))
        bind_fault(v->b, name, "only a header or a cookie has a name");
}

static void check_hash(struct validate *v, const struct config_upstream *u)
{
    const struct config_hash *h = &u->hash;
    const struct yaml_node *size = bind_where(v->b, &h->size, "table");
    uint32_t near = h->size;

    check_hash_name(v, h);
    if (!size)
        return;
    while (!maglev_is_prime(near))
        near++;
    if (near != h->size)
        bind_fault(v->b, size, "expected a prime number, found %u (did you mean %u?)", h->size,
                   near);
    else if (h->size < u->nendpoints)
        bind_fault(v->b, size, "expected at least as many entries as endpoints (%zu), found %u",
                   u->nendpoints, h->size);
}

/* `high` must not be under `low`; said of the one that was given. */
static void check_order(struct validate *v, const uint64_t *low, const char *low_name,
                        const uint64_t *high, const char *high_name)
{
    const struct yaml_node *n = bind_where(v->b, low, low_name);
    char text[UNITS_TEXT_MAX];

    if (*low <= *high || bind_where(v->b, low, BIND_FAULTY) || bind_where(v->b, high, BIND_FAULTY))
        return;
    if (n) {
        units_format_duration(*high, text);
        bind_fault(v->b, n, "expected at most the %s (%s), found %s", high_name, text, n->text);
    } else {
        units_format_duration(*low, text);
        n = bind_where(v->b, high, high_name);
        bind_fault(v->b, n, "expected at least the %s (%s), found %s", low_name, text, n->text);
    }
}

/* What can be asked of an answer, where there is none. */
static void check_probe(struct validate *v, const struct config_health *h)
{
    const struct yaml_node *idle[] = {
        bind_where(v->b, &h->host, "host"),
        h->nstatuses ? bind_where(v->b, &h->statuses[0], "[]") : NULL,
        bind_where(v->b, &h->body_starts, "body_starts"),
        bind_where(v->b, &h->body_contains, "body_contains"),
    };

    check_order(v, &h->timeout, "timeout", &h->interval, "interval");
    if (h->path || bind_where(v->b, &h->path, BIND_FAULTY))
        return;
    for (size_t i = 0; i < sizeof(idle) / sizeof(idle[0]); i++)
        if (idle[i])
            bind_fault(v->b, idle[i], "a probe without a path gets no answer");
}

static void check_outlier(struct validate *v, const struct config_upstream *u)
{
    const struct config_outlier *o = u->outlier;
    const struct yaml_node *n = bind_where(v->b, o, "outlier");

    check_order(v, &o->ejection, "ejection", &o->max_ejection, "max_ejection");
    if (n && !o->consecutive && !o->error_rate && !o->latency &&
        !bind_where(v->b, &o->consecutive, BIND_FAULTY) &&
        !bind_where(v->b, &o->error_rate, BIND_FAULTY) &&
        !bind_where(v->b, &o->latency, BIND_FAULTY))
        bind_fault(v->b, n, "expected one of consecutive, error_rate and latency to be on");
}

static void check_pool(struct validate *v, const struct config_pool *p)
{
    const struct yaml_node *min = bind_where(v->b, &p->min, "min");
    const struct yaml_node *idle = bind_where(v->b, &p->idle, "idle");

    if (idle && p->idle > p->max)
        bind_fault(v->b, idle, "expected at most max (%u), found %u", p->max, p->idle);
    if (min && p->min > p->max)
        bind_fault(v->b, min, "expected at most max (%u), found %u", p->max, p->min);
    else if (min && p->min > p->idle && !bind_where(v->b, &p->idle, BIND_FAULTY))
        bind_fault(v->b, min, "expected at most idle (%u), found %u", p->idle, p->min);
}

static void check_ahead(struct validate *v, const struct config_upstream *u)
{
    const struct yaml_node *min = bind_where(v->b, &u->pool.min, "min");

    if (min && u->pool.min && u->proxy_protocol != CONFIG_PROXY_OFF)
        bind_fault(v->b, min,
                   "a connection that tells its client by proxy_protocol can't be opened ahead");
}

static void check_upstream(struct validate *v, const struct config_upstream *u)
{
    check_endpoints(v, u);
    if (u->nendpoints)
        check_primaries(v, u);
    check_hash(v, u);
    check_pool(v, &u->pool);
    check_ahead(v, u);
    if (u->health)
        check_probe(v, u->health);
    if (u->outlier)
        check_outlier(v, u);
}

void validate_upstreams(struct validate *v)
{
    const struct snapshot *s = v->s;
    struct validate_item *items = validate_items(v, s->nupstreams);
    size_t n = 0;

    for (size_t i = 0; items && i < s->nupstreams; i++) {
        const struct config_upstream *u = &s->upstreams[i];
        const struct yaml_node *node = bind_where(v->b, &u->name, "name");

        check_upstream(v, u);
        if (node)
            items[n++] = (struct validate_item){u->name, node};
    }
    if (items)
        validate_distinct(v, items, n, "the name");
}
