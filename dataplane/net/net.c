#include "dataplane/net/net.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>

#include "dataplane/net/net_priv.h"

#define NEIGHBORS_DEFAULT 1024

/* RFC 1812 §4.3.2.8 asks for a limit and leaves the figure open. */
#define ICMP_ERRORS_PER_SEC 100
#define ICMP_ERRORS_BURST   50
#define ICMP_ECHO_PER_SEC   10000
#define ICMP_ECHO_BURST     1000

static const char *const drop_names[] = {
#define DROP(name, text) #name,
#include "dataplane/net/drop.def"
#undef DROP
};

static const char *const drop_texts[] = {
#define DROP(name, text) text,
#include "dataplane/net/drop.def"
#undef DROP
};

const char *net_drop_name(enum net_drop d)
{
    return drop_names[d];
}

const char *net_drop_text(enum net_drop d)
{
    return drop_texts[d];
}

static struct net_rate rate_of(uint64_t per_sec, uint64_t burst)
{
    uint64_t interval = NET_NS_PER_SEC / per_sec;
    return (struct net_rate){.interval_ns = interval, .depth_ns = interval * (burst - 1)};
}

struct net *net_new(const struct net_opts *o)
{
    struct net *n = calloc(1, sizeof *n);
    if (!n)
        return NULL;
    n->sched = o->sched;
    n->mbufs = o->mbufs;
    n->rng.state = o->seed;
    n->gen = 1; /* a zeroed path is never current */
    n->ip_id = (uint16_t)rng_next(&n->rng);
    n->icmp_errors = rate_of(ICMP_ERRORS_PER_SEC, ICMP_ERRORS_BURST);
    n->icmp_echo = rate_of(ICMP_ECHO_PER_SEC, ICMP_ECHO_BURST);
    pmtu_init(&n->pmtu, rng_next(&n->rng));
    if (neigh_init(n, o->max_neighbors ? o->max_neighbors : NEIGHBORS_DEFAULT)) {
        free(n);
        return NULL;
    }
    return n;
}

void net_free(struct net *n)
{
    if (!n)
        return;
    for (unsigned i = 0; i < n->nifs; i++)
        timer_cancel(&n->sched->wheel, &n->ifs[i].announce);
    neigh_fini(n);
    free(n);
}

int net_add_if(struct net *n, struct netif *nif, bool announce)
{
    if (n->nifs == NET_MAX_IFS)
        return -ENOSPC;
    struct net_if *ifp = &n->ifs[n->nifs++];
    *ifp = (struct net_if){.net = n, .nif = nif};
    net_paths_changed(n);
    if (announce)
        arp_announce_start(ifp);
    return 0;
}

void net_set_proto(struct net *n, uint8_t proto, net_proto_fn *fn, void *ctx)
{
    n->protos[proto].fn = fn;
    n->protos[proto].ctx = ctx;
}

void net_set_icmp_error(struct net *n, void (*fn)(void *ctx, const struct icmp_error *e), void *ctx)
{
    n->on_icmp_error = fn;
    n->icmp_error_ctx = ctx;
}

void net_set_neighbor_failed(struct net *n, void (*fn)(void *ctx, uint32_t next_hop), void *ctx)
{
    n->on_neighbor_failed = fn;
    n->neighbor_failed_ctx = ctx;
}

const struct net_stats *net_stats(const struct net *n)
{
    return &n->stats;
}

void net_drop(struct net *n, struct rte_mbuf *m, enum net_drop why)
{
    assert(why < NET_DROP_COUNT);
    n->stats.drops[why]++;
    rte_pktmbuf_free(m);
}
