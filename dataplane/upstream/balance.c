#include "dataplane/upstream/upstream.h"

/* The i-th endpoint that is still configured. */
static struct endpoint *endpoint_at(struct upstream *up, uint32_t i)
{
    list_for_each(n, &up->endpoints_)
    {
        struct endpoint *ep = container_of(n, struct endpoint, node_);
        if (!ep->removed_ && i-- == 0)
            return ep;
    }
    return NULL;
}

static uint32_t random_index(struct upstream *up)
{
    return rng_below(&up->set_->rng, up->nendpoints);
}

/* Power of two choices: the less busy of two at random. */
static uint32_t two_choices(struct upstream *up)
{
    uint32_t a = random_index(up), b = random_index(up);
    if (a == b)
        b = (a + 1) % up->nendpoints;
    return endpoint_at(up, a)->active <= endpoint_at(up, b)->active ? a : b;
}

struct endpoint *upstream_pick(struct upstream *up, const struct endpoint *avoid)
{
    if (up->nendpoints == 0)
        return NULL;
    uint32_t i = 0;
    switch (up->balance) {
    case CONFIG_ROUND_ROBIN:
        i = up->next_++ % up->nendpoints;
        break;
    case CONFIG_LEAST_REQUEST:
        i = two_choices(up);
        break;
    case CONFIG_RANDOM:
        i = random_index(up);
        break;
    }
    struct endpoint *ep = endpoint_at(up, i);
    if (ep == avoid && up->nendpoints > 1)
        ep = endpoint_at(up, (i + 1) % up->nendpoints);
    return ep;
}
