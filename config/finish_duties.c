#include "config/finish_duties.h"

#include <arpa/inet.h>
#include <stdlib.h>
#include <string.h>
#include "config/schema.h"
#include "runtime/hash.h"

#define NS_PER_S 1000000000ull
#define ID_BITS  0x7fffffffu

static int by_lo(const void *a, const void *b)
{
    const struct config_range *x = a, *y = b;

    return x->lo == y->lo ? (x->hi > y->hi) - (x->hi < y->hi) : x->lo < y->lo ? -1 : 1;
}

/* Sorted, and those that touch made one. `to` has room for n. */
static size_t make_ranges(const struct config_addr *nets, size_t n, struct config_range *to)
{
    size_t count = 0;

    for (size_t i = 0; i < n; i++) {
        uint32_t lo = ntohl(nets[i].addr);

        to[i] = (struct config_range){
            lo, lo | (nets[i].prefix ? UINT32_MAX >> (nets[i].prefix - 1) >> 1 : UINT32_MAX)};
    }
    qsort(to, n, sizeof(to[0]), by_lo);
    for (size_t i = 0; i < n; i++) {
        struct config_range *last = count ? &to[count - 1] : NULL;

        if (last && (last->hi == UINT32_MAX || to[i].lo <= last->hi + 1))
            last->hi = to[i].hi > last->hi ? to[i].hi : last->hi;
        else
            to[count++] = to[i];
    }
    return count;
}

/* `from` without `minus`, both as make_ranges() leaves them. `to` has room for nfrom + nminus. */
static size_t subtract(const struct config_range *from, size_t nfrom,
                       const struct config_range *minus, size_t nminus, struct config_range *to)
{
    size_t count = 0, j = 0;

    for (size_t i = 0; i < nfrom; i++) {
        uint64_t lo = from[i].lo, hi = from[i].hi;

        while (j < nminus && minus[j].hi < lo)
            j++;
        for (size_t k = j; k < nminus && minus[k].lo <= hi && lo <= hi; k++) {
            if (minus[k].lo > lo)
                to[count++] = (struct config_range){(uint32_t)lo, minus[k].lo - 1};
            lo = (uint64_t)minus[k].hi + 1;
        }
        if (lo <= hi)
            to[count++] = (struct config_range){(uint32_t)lo, (uint32_t)hi};
    }
    return count;
}

static bool finish_access(struct config_access *x, struct arena *a, struct arena *scratch)
{
    static const struct config_range everybody = {0, UINT32_MAX};
    struct config_range *allow, *deny;
    size_t nallow, ndeny;

    if (!x)
        return true;
    allow = arena_array(scratch, x->nallow + 1, sizeof(*allow));
    deny = arena_array(scratch, x->ndeny + 1, sizeof(*deny));
    x->inside = arena_array(a, x->nallow + x->ndeny + 1, sizeof(x->inside[0]));
    if (!allow || !deny || !x->inside)
        return false;
    allow[0] = everybody;
    nallow = x->nallow ? make_ranges(x->allow, x->nallow, allow) : 1;
    ndeny = make_ranges(x->deny, x->ndeny, deny);
    x->ninside = subtract(allow, nallow, deny, ndeny, x->inside);
    return true;
}

static bool finish_list(const struct config_addr *nets, size_t n, struct arena *a,
                        struct config_range **ret, size_t *ret_n)
{
    struct config_range *to = arena_array(a, n + 1, sizeof(to[0]));

    if (!to)
        return false;
    *ret_n = make_ranges(nets, n, to);
    *ret = to;
    return true;
}

static bool finish_trust(struct config_http *http, struct arena *a)
{
    struct config_request_id *id = http->request_id;

    return finish_list(http->proxies, http->nproxies, a, &http->proxied, &http->nproxied) &&
           (!id || finish_list(id->trust, id->ntrust, a, &id->inside, &id->ninside));
}

static bool finish_proxy_protocol(struct config_proxy_protocol *x, struct arena *a)
{
    return !x || finish_list(x->from, x->nfrom, a, &x->inside, &x->ninside);
}

struct numbered {
    struct config_limit *limit;
    size_t order; /* in the snapshot, what drains last */
};

/* Limits of a snapshot, to give each an id. */
struct limits {
    struct numbered *list;
    size_t n;
};

static void finish_limit(struct config_limit *l)
{
    uint32_t burst = l->burst;

    l->interval = l->slack = 0;
    if (!l->rate.count)
        return;
    if (!burst)
        burst = l->rate.count / l->rate.seconds ? l->rate.count / l->rate.seconds : 1;
    l->interval = (l->rate.seconds * NS_PER_S + l->rate.count - 1) / l->rate.count;
    l->slack = (burst - 1) * l->interval;
}

/* `what`, `a`, `b`, `c` say which one it is, in this snapshot and in the next. */
static void add_limit(struct limits *all, struct config_limit *l, char what, const char *a,
                      const char *b, const char *c)
{
    uint64_t h = hash_bytes(&what, 1, 0);

    if (!l)
        return;
    h = hash_bytes(a, strlen(a), h);
    h = hash_bytes(b, strlen(b), h);
    h = hash_bytes(c, strlen(c), h);
    l->id = (uint32_t)h & ID_BITS;
    finish_limit(l);
    all->list[all->n] = (struct numbered){l, all->n};
    all->n++;
}

static int by_id(const void *a, const void *b)
{
    const struct numbered *x = a, *y = b;

    if (x->limit->id != y->limit->id)
        return x->limit->id < y->limit->id ? -1 : 1;
    return x->order < y->order ? -1 : 1;
}

/* No two limits share what they know of a client. */
static void tell_apart(struct limits *all)
{
    qsort(all->list, all->n, sizeof(all->list[0]), by_id);
    for (size_t i = 1; i < all->n; i++) {
        struct config_limit *last = all->list[i - 1].limit, *l = all->list[i].limit;

        if (l->id <= last->id)
            l->id = (last->id + 1) & ID_BITS;
    }
}

static void finish_route(struct config_route *r, const struct config_http *http,
                         const char *listener, struct limits *all, uint32_t *edits)
{
    add_limit(all, r->rate_limit, 'r', listener, r->host ? r->host : "", r->path_prefix);
    r->gated =
        r->access || r->rate_limit || r->redirect || (r->maintenance && r->maintenance->enabled);
    r->edit = r->rewrite || r->headers ? ++*edits : http->edit;
}

static void finish_http(struct config_http *http, const char *listener, struct limits *all,
                        uint32_t *edits)
{
    add_limit(all, http->rate_limit, 'h', listener, "", "");
    http->gated = http->rate_limit || (http->maintenance && http->maintenance->enabled);
    http->edit = http->headers || http->request_id || http->trace ? ++*edits : 0;
    for (size_t i = 0; i < http->nroutes; i++)
        finish_route(&http->routes[i], http, listener, all, edits);
}

static bool finish_listener(struct config_listener *l, struct limits *all, uint32_t *edits,
                            struct arena *a, struct arena *scratch)
{
    bool whole = finish_access(l->access, a, scratch);

    whole &= finish_proxy_protocol(l->proxy_protocol, a);
    add_limit(all, &l->per_client.rate, 'l', l->name, "", "");
    if (!l->http)
        return whole;
    finish_http(l->http, l->name, all, edits);
    whole &= finish_trust(l->http, a);
    for (size_t i = 0; i < l->http->nroutes; i++)
        whole &= finish_access(l->http->routes[i].access, a, scratch);
    return whole;
}

static size_t count_limits(const struct config_listener *list, size_t n)
{
    size_t count = 0;

    for (size_t i = 0; i < n; i++)
        count += 2 + (list[i].http ? list[i].http->nroutes : 0);
    return count;
}

static bool finish_all(struct snapshot *s, struct arena *scratch)
{
    size_t most =
        count_limits(s->listeners, s->nlisteners) + count_limits(s->draining, s->ndraining);
    struct limits all = {arena_array(scratch, most, sizeof(all.list[0])), 0};
    bool whole = true;

    if (!all.list)
        return false;
    s->nedits = 0;
    for (size_t i = 0; i < s->nlisteners; i++)
        whole &= finish_listener(&s->listeners[i], &all, &s->nedits, s->arena_, scratch);
    for (size_t i = 0; i < s->ndraining; i++)
        whole &= finish_listener(&s->draining[i], &all, &s->nedits, s->arena_, scratch);
    tell_apart(&all);
    return whole;
}

bool finish_duties(struct snapshot *s)
{
    struct arena *scratch = arena_new();
    bool whole = scratch && finish_all(s, scratch);

    arena_free(scratch);
    return whole;
}
