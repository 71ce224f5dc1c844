/* Any, by the weights. */
#include "dataplane/upstream/balance.h"

static void rebuild(struct balance *b, struct rng *rng)
{
    if (b->weighted)
        balance_alias_build(b);
}

static struct endpoint *pick(struct balance *b, struct rng *rng, uint64_t hash)
{
    return balance_draw(b, rng);
}

const struct balancer balance_random = {"random", rebuild, pick};
