#include <stdlib.h>
#include <string.h>
#include "config/finish_duties.h"
#include "config/maglev.h"
#include "config/resolve.h"

static int by_name(const void *a, const void *b)
{
    const struct config_upstream *const *x = a, *const *y = b;

    return strcmp((*x)->name, (*y)->name);
}

struct upstream_index upstream_index_make(const struct snapshot *s, struct arena *a)
{
    struct upstream_index x = {arena_array(a, s->nupstreams, sizeof(x.sorted[0])), 0};

    if (!x.sorted)
        return x;
    for (size_t i = 0; i < s->nupstreams; i++)
        if (s->upstreams[i].name) /* a faulty one has none */
            x.sorted[x.count++] = &s->upstreams[i];
    qsort(x.sorted, x.count, sizeof(x.sorted[0]), by_name);
    return x;
}

const struct config_upstream *upstream_index_find(const struct upstream_index *x, const char *name)
{
    const struct config_upstream key = {.name = name}, *wanted = &key;
    const struct config_upstream **found =
        bsearch(&wanted, x->sorted, x->count, sizeof(x->sorted[0]), by_name);

    return found ? *found : NULL;
}

static void each_of(const struct config_listener *list, size_t n, void *context,
                    void (*each)(void *context, const struct config_upstream **ref))
{
    for (size_t i = 0; i < n; i++) {
        const struct config_listener *l = &list[i];

        if (l->tunnel && l->tunnel->upstream)
            each(context, &l->tunnel->upstream);
        for (size_t j = 0; l->tunnel && j < l->tunnel->nsni; j++)
            if (l->tunnel->sni[j].upstream)
                each(context, &l->tunnel->sni[j].upstream);
        for (size_t j = 0; l->http && j < l->http->nroutes; j++)
            if (l->http->routes[j].upstream)
                each(context, &l->http->routes[j].upstream);
    }
}

void config_each_reference(const struct snapshot *s, void *context,
                           void (*each)(void *context, const struct config_upstream **ref))
{
    each_of(s->listeners, s->nlisteners, context, each);
    each_of(s->draining, s->ndraining, context, each);
}

/* Most specific first; see config_http.routes. */
static int by_precedence(const void *a, const void *b)
{
    const struct config_route *x = a, *y = b;

    if (x->host_kind != y->host_kind)
        return x->host_kind > y->host_kind ? -1 : 1;
    if (x->host_len != y->host_len)
        return x->host_len > y->host_len ? -1 : 1;
    if (x->host && strcmp(x->host, y->host))
        return strcmp(x->host, y->host);
    if (x->path_prefix_len != y->path_prefix_len)
        return x->path_prefix_len > y->path_prefix_len ? -1 : 1;
    return strcmp(x->path_prefix, y->path_prefix);
}

/* As config_tunnel.sni; equal ones stay as they are. */
static bool comes_before(const struct config_sni *x, const struct config_sni *y)
{
    if (x->host_kind != y->host_kind)
        return x->host_kind > y->host_kind;
    if (x->host_len != y->host_len)
        return x->host_len > y->host_len;
    return x->nalpn && !y->nalpn;
}

static void sort_sni(struct config_tunnel *t)
{
    for (size_t i = 1; i < t->nsni; i++) {
        struct config_sni s = t->sni[i];
        size_t to = i;

        for (; to > 0 && comes_before(&s, &t->sni[to - 1]); to--)
            t->sni[to] = t->sni[to - 1];
        t->sni[to] = s;
    }
}

static bool finish_upstream(struct config_upstream *u, struct arena *a)
{
    struct arena *scratch;
    bool whole;

    u->hash.table = NULL; /* in a copy: another snapshot's */
    if (u->balance != CONFIG_CONSISTENT_HASH)
        return true;
    while (!maglev_is_prime(u->hash.size)) /* set by hand */
        u->hash.size++;
    scratch = arena_new();
    whole = scratch && maglev_build(u, a, scratch, &u->hash.table);
    arena_free(scratch);
    return whole;
}

bool config_finish(struct snapshot *s)
{
    bool whole = true;

    s->admin.has_metrics = s->admin.metrics.port;
    for (size_t i = 0; i < s->nlisteners; i++) {
        struct config_http *http = s->listeners[i].http;

        if (s->listeners[i].tunnel)
            sort_sni(s->listeners[i].tunnel);
        if (http)
            qsort(http->routes, http->nroutes, sizeof(http->routes[0]), by_precedence);
    }
    whole &= finish_duties(s);
    for (size_t i = 0; i < s->nupstreams; i++)
        whole &= finish_upstream(&s->upstreams[i], s->arena_);
    return whole;
}
