#include "dataplane/net/neighbor.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>

#include "dataplane/net/net_priv.h"

#define CHUNK 64 /* entries allocated at once */

#define RESOLVE_TRIES     3
#define RESOLVE_FIRST_NS  (500 * NET_NS_PER_MS) /* doubled for each further try */
#define PROBE_TRIES       3
#define PROBE_INTERVAL_NS NET_NS_PER_SEC         /* RFC 4861 §10 RETRANS_TIMER */
#define REACHABLE_NS      (30 * NET_NS_PER_SEC)  /* RFC 4861 §10 REACHABLE_TIME, × 0.5 to 1.5 */
#define UNUSED_NS         (600 * NET_NS_PER_SEC) /* then an entry goes */
#define EVICTABLE_NS      (5 * NET_NS_PER_SEC)   /* unused this long: may go when room is needed */
#define FAILED_FIRST_NS   NET_NS_PER_SEC         /* fail at once this long; doubled each time */
#define FAILED_MAX_SHIFT  3
#define EVICT_STEPS       64 /* entries looked at in one go */

static const char *const state_names[] = {
#define NEIGH_STATE(name, has_mac, next) #name,
#include "dataplane/net/neigh_state.def"
#undef NEIGH_STATE
};

static const bool state_has_mac[] = {
#define NEIGH_STATE(name, has_mac, next) has_mac,
#include "dataplane/net/neigh_state.def"
#undef NEIGH_STATE
};

#ifndef NDEBUG
#define NEXT(name) (1u << NEIGH_##name)
static const uint8_t state_next[] = {
#define NEIGH_STATE(name, has_mac, next) next,
#include "dataplane/net/neigh_state.def"
#undef NEIGH_STATE
};
#undef NEXT
#endif

const char *neigh_state_name(enum neigh_state s)
{
    return state_names[s];
}

static void neigh_fire(struct timer *t, uint64_t now);

static void arm(struct neigh *ne, uint64_t at)
{
    /* Also earlier than before: a moved timer must not fire by an old state's time. */
    timer_arm(&ne->net->sched->wheel, &ne->timer, at);
}

/* RFC 4861 §6.3.4: spread, so that hosts that started together don't ask together. */
static uint64_t reachable_ns(struct net *n)
{
    return REACHABLE_NS / 2 + rng_below(&n->rng, REACHABLE_NS / NET_NS_PER_MS) * NET_NS_PER_MS;
}

static void neigh_set_state(struct neigh *ne, enum neigh_state s)
{
    struct net *n = ne->net;
    assert(state_next[ne->state] & (1u << s));
    assert(s != NEIGH_none || ne->pend_n == 0);
    n->neighs.incomplete += (s == NEIGH_incomplete) - (ne->state == NEIGH_incomplete);
    ne->state = s;
    ne->tries = 0;
    uint64_t now = net_now(n);
    switch (s) {
    case NEIGH_reachable:
        ne->fails = 0;
        arm(ne, now + reachable_ns(n));
        break;
    case NEIGH_stale:
        arm(ne, now + UNUSED_NS);
        break;
    case NEIGH_failed:
        ne->retry_at = now + (FAILED_FIRST_NS << ne->fails);
        if (ne->fails < FAILED_MAX_SHIFT)
            ne->fails++;
        arm(ne, now + UNUSED_NS);
        break;
    default: /* incomplete and probe are armed with each request they send */
        timer_cancel(&n->sched->wheel, &ne->timer);
        break;
    }
}

/* --- packets that wait --- */

static bool pend_push(struct neigh *ne, struct rte_mbuf *m)
{
    struct neigh_table *t = &ne->net->neighs;
    if (ne->pend_n == NEIGH_PENDING_MAX || t->pend_used == NEIGH_PENDING_TOTAL)
        return false;
    uint16_t i = t->pend_free;
    t->pend_free = t->pend[i].next;
    t->pend[i].m = m;
    if (ne->pend_n++)
        t->pend[ne->pend_tail].next = i;
    else
        ne->pend_head = i;
    ne->pend_tail = i;
    ne->net->stats.mbufs_queued = ++t->pend_used;
    return true;
}

static struct rte_mbuf *pend_pop(struct neigh *ne)
{
    struct neigh_table *t = &ne->net->neighs;
    if (ne->pend_n == 0)
        return NULL;
    uint16_t i = ne->pend_head;
    struct rte_mbuf *m = t->pend[i].m;
    ne->pend_head = t->pend[i].next;
    ne->pend_n--;
    t->pend[i].next = t->pend_free;
    t->pend_free = i;
    ne->net->stats.mbufs_queued = --t->pend_used;
    return m;
}

static void pend_drop(struct neigh *ne)
{
    struct rte_mbuf *m;
    while ((m = pend_pop(ne)))
        net_drop(ne->net, m, NET_DROP_neigh_failed);
}

static void pend_send(struct neigh *ne)
{
    struct rte_mbuf *m;
    while ((m = pend_pop(ne)))
        ether_output(ne->net, ne->nif, m, &ne->mac, RTE_ETHER_TYPE_IPV4);
}

/* --- the table --- */

static struct neigh **bucket_of(struct neigh_table *t, const struct netif *nif, uint32_t ip)
{
    struct rng h = {t->key ^ ((uint64_t)nif->index << 32 | ip)};
    return &t->buckets[rng_next(&h) & t->bucket_mask];
}

int neigh_init(struct net *n, uint32_t max)
{
    struct neigh_table *t = &n->neighs;
    uint32_t nbuckets = 64;
    while (nbuckets < max && nbuckets < (1u << 20))
        nbuckets *= 2;
    t->max = max;
    t->bucket_mask = nbuckets - 1;
    t->key = rng_next(&n->rng);
    t->buckets = calloc(nbuckets, sizeof *t->buckets);
    t->slots = calloc((max + CHUNK - 1) / CHUNK * CHUNK, sizeof *t->slots);
    for (uint16_t i = 0; i < NEIGH_PENDING_TOTAL; i++)
        t->pend[i].next = i + 1;
    if (t->buckets && t->slots)
        return 0;
    free(t->buckets);
    free(t->slots);
    return -ENOMEM;
}

void neigh_fini(struct net *n)
{
    struct neigh_table *t = &n->neighs;
    for (uint32_t i = 0; i < t->nslots; i++) {
        pend_drop(t->slots[i]);
        timer_cancel(&n->sched->wheel, &t->slots[i]->timer);
    }
    for (uint32_t i = 0; i < t->nslots; i += CHUNK)
        free(t->slots[i]); /* the chunk's first entry is its start */
    free(t->slots);
    free(t->buckets);
}

static void neigh_release(struct neigh *ne)
{
    struct neigh_table *t = &ne->net->neighs;
    struct neigh **at = bucket_of(t, ne->nif, ne->ip);
    while (*at != ne)
        at = &(*at)->hash_next;
    *at = ne->hash_next;
    neigh_set_state(ne, NEIGH_none);
    ne->hash_next = t->free;
    t->free = ne;
    ne->net->stats.neighbors = --t->count;
    net_paths_changed(ne->net);
}

static bool is_evictable(const struct neigh *ne, uint64_t now)
{
    return ne->state != NEIGH_none && ne->state != NEIGH_incomplete && ne->pend_n == 0 &&
           now - ne->used_at >= EVICTABLE_NS;
}

/* Second chance: the hand spares once what has been used since it came by. */
static bool evict_one(struct net *n)
{
    struct neigh_table *t = &n->neighs;
    uint64_t now = net_now(n);
    for (unsigned i = 0; i < EVICT_STEPS && i < 2 * t->nslots; i++) {
        struct neigh *ne = t->slots[t->hand];
        t->hand = (t->hand + 1) % t->nslots;
        if (ne->referenced) {
            ne->referenced = false;
        } else if (is_evictable(ne, now)) {
            neigh_release(ne);
            n->stats.neigh_evicted++;
            return true;
        }
    }
    return false;
}

static void grow(struct net *n)
{
    struct neigh_table *t = &n->neighs;
    struct neigh *chunk = calloc(CHUNK, sizeof *chunk);
    if (!chunk)
        return;
    for (unsigned i = 0; i < CHUNK; i++) {
        chunk[i].net = n;
        chunk[i].timer.fire = neigh_fire;
        chunk[i].hash_next = t->free;
        t->free = &chunk[i];
        t->slots[t->nslots++] = &chunk[i];
    }
}

struct neigh *neigh_find(struct net *n, const struct netif *nif, uint32_t ip)
{
    struct neigh *ne = *bucket_of(&n->neighs, nif, ip);
    while (ne && (ne->ip != ip || ne->nif != nif))
        ne = ne->hash_next;
    return ne;
}

struct neigh *neigh_get(struct net *n, struct netif *nif, uint32_t ip)
{
    struct neigh *ne = neigh_find(n, nif, ip);
    if (ne)
        return ne;
    struct neigh_table *t = &n->neighs;
    if (t->count >= t->max && !evict_one(n))
        return NULL;
    if (!t->free)
        grow(n);
    ne = t->free;
    if (!ne)
        return NULL;
    assert(ne->state == NEIGH_none);
    t->free = ne->hash_next;
    struct neigh **bucket = bucket_of(t, nif, ip);
    ne->hash_next = *bucket;
    *bucket = ne;
    ne->nif = nif;
    ne->ip = ip;
    ne->fails = 0;
    ne->referenced = false;
    ne->used_at = net_now(n);
    n->stats.neighbors = ++t->count;
    return ne;
}

/* --- asking --- */

static void ask(struct neigh *ne)
{
    struct net *n = ne->net;
    uint64_t wait = PROBE_INTERVAL_NS;
    if (ne->state == NEIGH_incomplete) {
        wait = RESOLVE_FIRST_NS << ne->tries;
        arp_request(n, ne->nif, ne->ip, NULL);
    } else {
        arp_request(n, ne->nif, ne->ip, &ne->mac);
    }
    ne->tries++;
    arm(ne, net_now(n) + wait);
}

static void start(struct neigh *ne, enum neigh_state s)
{
    neigh_set_state(ne, s);
    ask(ne);
}

static void fail(struct neigh *ne)
{
    struct net *n = ne->net;
    uint32_t ip = ne->ip;
    neigh_set_state(ne, NEIGH_failed);
    n->stats.neigh_failures++;
    pend_drop(ne);
    if (n->on_neighbor_failed)
        n->on_neighbor_failed(n->neighbor_failed_ctx, ip);
}

static void neigh_fire(struct timer *timer, uint64_t now)
{
    struct neigh *ne = container_of(timer, struct neigh, timer);
    switch ((enum neigh_state)ne->state) {
    case NEIGH_incomplete:
        if (ne->tries < RESOLVE_TRIES)
            ask(ne);
        else
            fail(ne);
        break;
    case NEIGH_probe:
        if (ne->tries < PROBE_TRIES)
            ask(ne);
        else
            start(ne, NEIGH_incomplete); /* it may have another MAC by now */
        break;
    case NEIGH_reachable:
        neigh_set_state(ne, NEIGH_stale);
        break;
    case NEIGH_stale:
    case NEIGH_failed:
        if (now - ne->used_at >= UNUSED_NS)
            neigh_release(ne);
        else
            arm(ne, ne->used_at + UNUSED_NS);
        break;
    default:
        assert(!"timer of an unused neighbour");
    }
}

/* --- in and out --- */

void neigh_learn(struct neigh *ne, const struct rte_ether_addr *mac, bool solicited)
{
    bool same = state_has_mac[ne->state] && rte_is_same_ether_addr(mac, &ne->mac);
    bool asked =
        ne->state == NEIGH_incomplete || ne->state == NEIGH_probe || ne->state == NEIGH_failed;
    if (same && !(solicited && asked))
        return; /* one-way evidence says nothing new (RFC 4861 §7.3.1) */
    rte_ether_addr_copy(mac, &ne->mac);
    neigh_set_state(ne, solicited && asked ? NEIGH_reachable : NEIGH_stale);
    if (ne->pend_n == 0)
        return;
    if (ne->state == NEIGH_stale)
        start(ne, NEIGH_probe);
    pend_send(ne);
}

static int enqueue(struct neigh *ne, struct rte_mbuf *m)
{
    if (pend_push(ne, m))
        return 0;
    net_drop(ne->net, m, NET_DROP_neigh_queue_full);
    return -ENOBUFS;
}

/* Spoofed sources must not fill the table with questions: half of it is for those who answered. */
static int resolve(struct neigh *ne, struct rte_mbuf *m)
{
    struct net *n = ne->net;
    if (n->neighs.incomplete >= (n->neighs.max + 1) / 2) {
        if (ne->state == NEIGH_none)
            neigh_release(ne);
        net_drop(n, m, NET_DROP_neigh_table_full);
        return -ENOBUFS;
    }
    start(ne, NEIGH_incomplete);
    return enqueue(ne, m);
}

int neigh_output(struct neigh *ne, struct rte_mbuf *m)
{
    struct net *n = ne->net;
    ne->used_at = net_now(n);
    ne->referenced = true;
    switch ((enum neigh_state)ne->state) {
    case NEIGH_stale:
        start(ne, NEIGH_probe);
        break;
    case NEIGH_reachable:
    case NEIGH_probe:
        break;
    case NEIGH_incomplete:
        return enqueue(ne, m);
    case NEIGH_failed:
        if (net_now(n) < ne->retry_at) {
            net_drop(n, m, NET_DROP_neigh_failed);
            return -EHOSTUNREACH;
        }
        return resolve(ne, m);
    default:
        return resolve(ne, m);
    }
    ether_output(n, ne->nif, m, &ne->mac, RTE_ETHER_TYPE_IPV4);
    return 0;
}
