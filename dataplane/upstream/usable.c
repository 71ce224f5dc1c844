#include "dataplane/upstream/usable.h"

#include "dataplane/upstream/pool.h"

struct census {
    uint32_t primaries, usable, backups; /* backups: usable ones */
};

static bool is_candidate(const struct endpoint *ep)
{
    return !ep->removed_ && ep->weight > 0;
}

static struct census count_endpoints(const struct upstream *up)
{
    struct census c = {0};
    list_for_each(n, &up->endpoints_)
    {
        const struct endpoint *ep = container_of(n, struct endpoint, node_);
        if (!is_candidate(ep))
            continue;
        c.primaries += !ep->backup;
        c.usable += !ep->backup && !ep->flags;
        c.backups += ep->backup && !ep->flags;
    }
    return c;
}

/* Under the panic threshold a few would fall under the load of all; backups come first when there
 * is no primary left at all. */
static void choose_mode(struct balance *b, const struct census *c, uint32_t panic)
{
    b->backups = !c->usable && c->backups;
    b->panic = !b->backups && c->usable * 100 < panic * c->primaries;
}

static bool is_used(const struct balance *b, const struct endpoint *ep)
{
    return is_candidate(ep) && ep->backup == b->backups && (b->panic || !ep->flags);
}

/* Who has tried all that are used goes there next, but to a backup not before its time. */
static bool is_spare(const struct balance *b, const struct endpoint *ep)
{
    return is_candidate(ep) && ep->place_ == BALANCE_NOWHERE && ep->flags == ENDPOINT_EJECTED &&
           (!ep->backup || b->backups);
}

/* Behind those that are used. */
static void gather_spares(struct upstream *up)
{
    struct balance *b = &up->balance;
    b->spares = 0;
    list_for_each(n, &up->endpoints_)
    {
        struct endpoint *ep = container_of(n, struct endpoint, node_);
        if (is_spare(b, ep))
            b->t.used[b->n + b->spares++] = ep;
    }
}

static void enter(struct balance *b, struct endpoint *ep)
{
    ep->place_ = (uint16_t)b->n;
    b->weighted |= ep->weight != b->t.used[0]->weight;
}

static void leave(struct endpoint *ep)
{
    if (ep->place_ == BALANCE_NOWHERE)
        return;
    ep->place_ = BALANCE_NOWHERE;
    pool_close_idle(ep);
    pool_send_away(ep);
}

void upstream_refresh(struct upstream *up)
{
    struct balance *b = &up->balance;
    struct census c = count_endpoints(up);
    choose_mode(b, &c, up->panic_);
    b->n = 0;
    b->weighted = false;
    up->refs_++; /* closing connections must not free it under us */
    list_for_each_safe(n, tmp, &up->endpoints_)
    {
        struct endpoint *ep = container_of(n, struct endpoint, node_);
        if (!is_used(b, ep)) {
            leave(ep);
            continue;
        }
        b->t.used[b->n] = ep;
        enter(b, ep);
        b->n++;
        pool_grant(ep);
        pool_keep_warm(ep);
    }
    gather_spares(up);
    if (b->n > 0 && b->kind->rebuild)
        b->kind->rebuild(b, &up->set_->rng);
    up->refs_--;
}
