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

/* Another than `avoid`, if the balancer comes upon one; else its neighbour. */
static struct endpoint *pick_other(struct upstream *up, uint64_t hash, const struct endpoint *avoid)
{
    struct balance *b = &up->balance;
    for (unsigned i = 0; i < AVOID_TRIES; i++) {
        hash = hash_mix(hash + 1);
        struct endpoint *ep = b->kind->pick(b, &up->set_->rng, hash);
        if (ep != avoid)
            return ep;
    }
    return b->t.used[(avoid->place_ + 1u) % b->n];
}

struct endpoint *upstream_pick(struct upstream *up, uint64_t hash, const struct endpoint *avoid)
{
    struct balance *b = &up->balance;
    if (b->n == 0) {
        up->count.no_endpoint++;
        return NULL;
    }
    struct endpoint *ep = b->t.used[0];
    if (b->n > 1) {
        ep = b->kind->pick(b, &up->set_->rng, hash);
        if (ep == avoid)
            ep = pick_other(up, hash, avoid);
    }
    return ep;
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
