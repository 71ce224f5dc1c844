#include "dataplane/upstream/balance.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "dataplane/upstream/upstream.h"
#include "dataplane/upstream/usable.h"
#include "runtime/hash.h"

#define AVOID_TRIES 4

const struct balancer *balancer_of(enum config_balance kind)
{
    switch (kind) {
    case CONFIG_ROUND_ROBIN:
        return &balance_round_robin;
    case CONFIG_LEAST_REQUEST:
        return &balance_least_request;
    case CONFIG_RANDOM:
        return &balance_random;
    case CONFIG_CONSISTENT_HASH:
        return &balance_consistent_hash;
    }
    return &balance_random;
}

/* In one piece, the largest members first: a snapshot may have thousands of upstreams. */
int balance_tables_init(struct balance_tables *t, size_t nendpoints)
{
    size_t each = sizeof(t->used[0]) + sizeof(t->by_index[0]) + sizeof(t->due[0]) +
                  sizeof(t->alias[0]) + sizeof(t->heap[0]);
    void *block = calloc(nendpoints, each);
    if (!block)
        return -ENOMEM;
    t->room = (uint32_t)nendpoints;
    t->used = block;
    t->by_index = t->used + nendpoints;
    t->due = (uint64_t *)(t->by_index + nendpoints);
    t->alias = (struct balance_alias *)(t->due + nendpoints);
    t->heap = (uint16_t *)(t->alias + nendpoints);
    return 0;
}

void balance_tables_fini(struct balance_tables *t)
{
    free(t->used); /* the block */
    *t = (struct balance_tables){0};
}

void tried_add(struct tried *t, const struct endpoint *ep)
{
    if (tried_has(t, ep))
        return;
    if (t->n == TRIED_MAX)
        memmove(t->endpoints, t->endpoints + 1, sizeof(t->endpoints[0]) * --t->n);
    t->endpoints[t->n++] = ep;
}

bool tried_has(const struct tried *t, const struct endpoint *ep)
{
    for (unsigned i = 0; i < t->n; i++)
        if (t->endpoints[i] == ep)
            return true;
    return false;
}

/* Of `n` endpoints from place `at` on, the first that isn't in `t`; NULL: all are. */
static struct endpoint *first_untried(struct endpoint **from, uint32_t n, uint32_t at,
                                      const struct tried *t)
{
    for (uint32_t i = 0; i < n && i <= t->n; i++) {
        struct endpoint *ep = from[(at + i) % n];
        if (!tried_has(t, ep))
            return ep;
    }
    return NULL;
}

/* One that isn't in `t`, as the balancer comes upon it; or the first one after. */
static struct endpoint *pick_used(struct upstream *up, uint64_t hash, const struct tried *t)
{
    struct balance *b = &up->balance;
    struct endpoint *ep = b->t.used[0];
    for (unsigned i = 0; b->n > 1 && i <= AVOID_TRIES; i++) {
        ep = b->kind->pick(b, &up->set_->rng, hash);
        if (!tried_has(t, ep))
            return ep;
        hash = hash_mix(hash + 1);
    }
    return first_untried(b->t.used, b->n, ep->place_, t);
}

static struct endpoint *pick_spare(struct upstream *up, const struct tried *t)
{
    struct balance *b = &up->balance;
    if (!b->spares || !t->n)
        return NULL;
    return first_untried(b->t.used + b->n, b->spares, rng_below(&up->set_->rng, b->spares), t);
}

static struct endpoint *pick_untried(struct upstream *up, uint64_t hash, const struct tried *t)
{
    struct endpoint *ep = pick_used(up, hash, t);
    return ep ? ep : pick_spare(up, t);
}

struct endpoint *upstream_pick(struct upstream *up, uint64_t hash, struct tried *t)
{
    struct balance *b = &up->balance;
    if (b->n == 0) {
        up->count.no_endpoint++;
        return NULL;
    }
    struct endpoint *ep = pick_untried(up, hash, t);
    if (ep)
        return ep;
    *t = (struct tried){{t->endpoints[t->n - 1]}, 1}; /* once more around */
    ep = pick_untried(up, hash, t);
    return ep ? ep : b->t.used[0];
}

struct endpoint *upstream_pick_other(struct upstream *up, uint64_t hash,
                                     const struct endpoint *avoid)
{
    struct tried t = {{avoid}, avoid != NULL};
    struct endpoint *ep = up->balance.n ? pick_used(up, hash, &t) : NULL;
    return ep ? ep : upstream_pick(up, hash, &(struct tried){0});
}

/* The alias method (Vose): every place takes an n-th of the whole, filled up by one other. */
void balance_alias_build(struct balance *b)
{
    uint64_t total = 0;
    uint32_t n = b->n, small = 0, large = n;
    uint16_t *todo = b->t.heap; /* free to use: round robin alone keeps anything there */
    uint64_t *share = b->t.due;
    for (uint32_t i = 0; i < n; i++)
        total += b->t.used[i]->weight;
    for (uint32_t i = 0; i < n; i++) {
        /* In units of which a place holds `total`. */
        share[i] = (uint64_t)b->t.used[i]->weight * n;
        if (share[i] < total)
            todo[small++] = (uint16_t)i;
        else
            todo[--large] = (uint16_t)i;
    }
    while (small > 0 && large < n) {
        uint16_t s = todo[--small], l = todo[large];
        b->t.alias[s] = (struct balance_alias){(uint32_t)((share[s] << 32) / total), l};
        share[l] -= total - share[s];
        if (share[l] < total) {
            large++;
            todo[small++] = l;
        }
    }
    while (large < n)
        b->t.alias[todo[large]] = (struct balance_alias){UINT32_MAX, todo[large]}, large++;
    while (small > 0)
        small--, b->t.alias[todo[small]] = (struct balance_alias){UINT32_MAX, todo[small]};
}

struct endpoint *balance_draw(const struct balance *b, struct rng *rng)
{
    uint64_t r = rng_next(rng);
    uint32_t i = (uint32_t)((r >> 32) * b->n >> 32);
    if (b->weighted && (uint32_t)r > b->t.alias[i].cut)
        i = b->t.alias[i].other;
    return b->t.used[i];
}
