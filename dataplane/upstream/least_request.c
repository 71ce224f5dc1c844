/* Power of two choices: of two at random the less busy for its weight. Near the quality of looking
 * at all of them, in constant time, and without the herd that runs to the one that looks best. */
#include "dataplane/upstream/upstream.h"

static void rebuild(struct balance *b, struct rng *rng)
{
    if (b->weighted)
        balance_alias_build(b);
}

static struct endpoint *pick(struct balance *b, struct rng *rng, uint64_t hash)
{
    struct endpoint *x = balance_draw(b, rng), *y = balance_draw(b, rng);
    if (x == y)
        y = b->t.used[(y->place_ + 1u) % b->n];
    return (uint64_t)x->active * y->weight <= (uint64_t)y->active * x->weight ? x : y;
}

const struct balancer balance_least_request = {"least_request", rebuild, pick};
