#include <arpa/inet.h>
#include <stdlib.h>
#include <string.h>
#include "config/resolve.h"
#include "config/suggest.h"
#include "config/units.h"
#include "config/validate.h"

bool validate_is_on(const struct config_addr *a, uint32_t addr)
{
    uint32_t mask = a->prefix ? htonl(UINT32_MAX << (32 - a->prefix)) : 0;

    return !((a->addr ^ addr) & mask);
}

bool validate_is_ours(const struct snapshot *s, uint32_t addr)
{
    for (size_t i = 0; i < s->nports; i++)
        for (size_t j = 0; j < s->ports[i].naddresses; j++)
            if (s->ports[i].addresses[j].addr == addr)
                return true;
    return false;
}

struct validate_item *validate_items(struct validate *v, size_t n)
{
    struct validate_item *items = arena_array(v->b->scratch, n, sizeof(*items));

    if (!items)
        v->b->out_of_memory = true;
    return items;
}

static int by_text(const void *a, const void *b)
{
    const struct validate_item *x = a, *y = b;
    int order = strcmp(x->text, y->text);

    if (order)
        return order;
    if (x->node->line != y->node->line)
        return x->node->line < y->node->line ? -1 : 1;
    return (x->node->col > y->node->col) - (x->node->col < y->node->col);
}

void validate_distinct(struct validate *v, struct validate_item *items, size_t n, const char *what)
{
    const struct validate_item *first = items;

    qsort(items, n, sizeof(*items), by_text);
    for (size_t i = 1; i < n; i++) {
        if (strcmp(first->text, items[i].text))
            first = &items[i];
        else
            bind_fault(v->b, items[i].node, "%s \"%s\" is taken already, in line %u", what,
                       first->text, first->node->line);
    }
}

static void validate_cores(struct validate *v, const struct config_host *host)
{
    const struct config_runtime *r = &v->s->runtime;

    for (unsigned i = 0; i < r->ncores; i++) {
        const struct yaml_node *n = bind_where(v->b, &r->cores[i], "[]");

        if (!n)
            continue;
        if (host && host->cpus && r->cores[i] >= host->cpus)
            bind_fault(v->b, n, "this machine has no CPU %u: expected 0 to %u", r->cores[i],
                       host->cpus - 1);
        for (unsigned j = 0; j < i; j++) {
            if (r->cores[j] == r->cores[i] && bind_where(v->b, &r->cores[j], "[]")) {
                bind_fault(v->b, n, "CPU %u is given twice", r->cores[i]);
                break;
            }
        }
    }
}

static void validate_admin(struct validate *v)
{
    const struct config_addr *m = &v->s->admin.metrics;
    const struct yaml_node *n = bind_where(v->b, m, "metrics");

    if (n && m->addr && validate_is_ours(v->s, m->addr))
        bind_fault(v->b, n, "expected an address of the kernel's, this one is a port's");
}

struct references {
    struct validate *v;
    struct upstream_index index;
};

static void resolve(void *context, const struct config_upstream **ref)
{
    struct references *r = context;
    const struct yaml_node *n = bind_where(r->v->b, ref, "upstream");
    const struct config_upstream *found;
    struct suggest s;

    if (!n)
        return;
    found = upstream_index_find(&r->index, (*ref)->name);
    if (found) {
        *ref = found;
        return;
    }
    if (!r->v->know_upstreams)
        return;
    if (config_errors_full(r->v->b->errs)) {
        bind_fault(r->v->b, n, "unknown upstream \"%s\"", (*ref)->name);
        return;
    }
    suggest_init(&s, n->text, n->len);
    for (size_t i = 0; i < r->index.count; i++)
        suggest_offer(&s, r->index.sorted[i]->name);
    bind_fault(r->v->b, n, "unknown upstream \"%s\"%s", (*ref)->name, bind_guess(r->v->b, s.best));
}

static void find_known(struct validate *v)
{
    const struct snapshot *s = v->s;

    v->know_addresses = v->know_gateways = s->nports;
    v->know_upstreams = s->nupstreams;
    for (size_t i = 0; i < s->nports; i++) {
        const struct config_port *p = &s->ports[i];

        v->know_addresses &= p->naddresses > 0;
        for (size_t j = 0; j < p->naddresses; j++)
            v->know_addresses &= bind_where(v->b, &p->addresses[j], "[]") != NULL;
        v->know_gateways &= !bind_where(v->b, &p->gateway, BIND_FAULTY);
    }
    for (size_t i = 0; i < s->nupstreams; i++)
        v->know_upstreams &= s->upstreams[i].name != NULL;
}

void config_validate(struct bind *b, struct snapshot *s, const struct config_host *host)
{
    struct validate v = {.b = b, .s = s};
    struct references r = {.v = &v};

    find_known(&v);
    validate_cores(&v, host);
    validate_ports(&v);
    validate_listeners(&v);
    validate_duties(&v);
    validate_upstreams(&v);
    validate_admin(&v);
    validate_tls(&v, host);
    r.index = upstream_index_make(s, b->scratch);
    if (r.index.sorted)
        config_each_reference(s, &r, resolve);
    else
        b->out_of_memory = true;
}
