#include "control/verdict.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define RECALL_PART 10 /* of the time of one ejection: nobody is recalled before */

static const struct {
    const char *name, *text;
} causes[] = {
#define VERDICT(name, text) {#name, text},
#include "control/verdict.def"
#undef VERDICT
};

const char *verdict_cause_name(enum verdict_cause c)
{
    return c < VERDICT_CAUSE_COUNT ? causes[c].name : "?";
}

const char *verdict_cause_text(enum verdict_cause c)
{
    return c < VERDICT_CAUSE_COUNT ? causes[c].text : "?";
}

static void set_flags(struct verdict_upstream *up, struct verdict_endpoint *ep, uint8_t flags,
                      enum verdict_cause cause)
{
    uint8_t before = ep->flags;

    if (before == flags)
        return;
    ep->flags = flags;
    ep->untold = UINT64_MAX;
    up->on_change(up->ctx, up, ep, before, cause);
}

/* --- life --------------------------------------------------------------------------------------
 */

struct verdict_endpoint *verdict_find(struct verdict_upstream *up, const struct endpoint_key *key)
{
    for (size_t i = 0; i < up->nendpoints; i++)
        if (up->endpoints[i].key.addr == key->addr && up->endpoints[i].key.port == key->port)
            return &up->endpoints[i];
    return NULL;
}

static void endpoint_init(struct verdict_endpoint *ep, const struct config_upstream *cfg,
                          const struct config_endpoint *e, const struct verdict_endpoint *old)
{
    if (old)
        *ep = *old;
    else
        ep->untold = UINT64_MAX;
    strncpy(ep->key.upstream, cfg->name, sizeof(ep->key.upstream) - 1);
    ep->key.addr = e->address.addr;
    ep->key.port = e->address.port;
    ep->weight = e->weight;
    ep->backup = e->backup;
}

int verdict_init(struct verdict_upstream *up, const struct config_upstream *cfg,
                 const struct verdict_upstream *old, uint64_t now, verdict_change on_change,
                 void *ctx)
{
    memset(up, 0, sizeof(*up));
    up->endpoints = calloc(cfg->nendpoints, sizeof(up->endpoints[0]));
    if (!up->endpoints)
        return -ENOMEM;
    up->nendpoints = cfg->nendpoints;
    strncpy(up->name, cfg->name, sizeof(up->name) - 1);
    up->panic = cfg->panic;
    up->on_change = on_change;
    up->ctx = ctx;
    if (cfg->health) {
        up->has_health = true;
        up->healthy = cfg->health->healthy;
        up->unhealthy = cfg->health->unhealthy;
    }
    if (cfg->outlier) {
        bool same = old && old->has_outlier && old->outlier.window == cfg->outlier->window;
        up->has_outlier = true;
        up->outlier = *cfg->outlier;
        up->window_end = same ? old->window_end : now + cfg->outlier->window;
    }
    for (size_t i = 0; i < cfg->nendpoints; i++) {
        struct endpoint_key key = {.addr = cfg->endpoints[i].address.addr,
                                   .port = cfg->endpoints[i].address.port};
        endpoint_init(&up->endpoints[i], cfg, &cfg->endpoints[i],
                      old ? verdict_find((struct verdict_upstream *)old, &key) : NULL);
    }
    return 0;
}

void verdict_fini(struct verdict_upstream *up)
{
    free(up->endpoints);
    up->endpoints = NULL;
    up->nendpoints = 0;
}

void verdict_settle(struct verdict_upstream *up)
{
    uint8_t kept =
        (up->has_health ? ENDPOINT_UNHEALTHY : 0) | (up->has_outlier ? ENDPOINT_EJECTED : 0);

    for (size_t i = 0; i < up->nendpoints; i++) {
        struct verdict_endpoint *ep = &up->endpoints[i];

        if (!up->has_health)
            ep->tested = false;
        if (!up->has_outlier)
            ep->level = 0;
        set_flags(up, ep, ep->flags & kept, VERDICT_config);
    }
}

/* --- probes ------------------------------------------------------------------------------------
 */

static void judge_probe(struct verdict_upstream *up, struct verdict_endpoint *ep,
                        const struct endpoint_report *r)
{
    bool first = !ep->tested;
    bool is_bad = ep->flags & ENDPOINT_UNHEALTHY;

    ep->tested = true;
    ep->streak = r->streak;
    ep->probe = r->probe;
    if (r->streak < 0 && !is_bad && (first || -(int64_t)r->streak >= up->unhealthy))
        set_flags(up, ep, ep->flags | ENDPOINT_UNHEALTHY, VERDICT_probe);
    else if (r->streak > 0 && is_bad && (first || r->streak >= (int64_t)up->healthy))
        set_flags(up, ep, ep->flags & ~ENDPOINT_UNHEALTHY, VERDICT_probe);
}

/* --- ejection ----------------------------------------------------------------------------------
 */

static bool is_primary(const struct verdict_endpoint *ep)
{
    return !ep->backup && ep->weight > 0;
}

/* What would be left without one more. */
static bool may_eject(const struct verdict_upstream *up, const struct verdict_endpoint *ep)
{
    size_t ejected = 1, primaries = 0, usable = 0;

    for (size_t i = 0; i < up->nendpoints; i++) {
        const struct verdict_endpoint *e = &up->endpoints[i];

        ejected += (e->flags & ENDPOINT_EJECTED) != 0;
        primaries += is_primary(e);
        usable += is_primary(e) && !e->flags && e != ep;
    }
    if (ejected > up->nendpoints * up->outlier.max_ejected / 100)
        return false;
    return !is_primary(ep) || (usable > 0 && usable * 100 >= up->panic * primaries);
}

/* Good standing since the last return takes ejections off. */
static uint32_t level_now(const struct verdict_upstream *up, const struct verdict_endpoint *ep,
                          uint64_t now)
{
    uint64_t paid = ep->level ? (now - ep->returned_at) / up->outlier.ejection : 0;

    return paid < ep->level ? ep->level - (uint32_t)paid : 0;
}

static void bring_back(struct verdict_upstream *up, struct verdict_endpoint *ep, uint64_t now,
                       enum verdict_cause cause)
{
    ep->returned_at = now;
    memset(&ep->tally, 0, sizeof(ep->tally)); /* what it did before is paid for */
    set_flags(up, ep, ep->flags & ~ENDPOINT_EJECTED, cause);
}

/* In the stead of `ep`, which fails and stays: the one of its kind that has been out longest. */
static void recall(struct verdict_upstream *up, const struct verdict_endpoint *ep, uint64_t now)
{
    struct verdict_endpoint *oldest = NULL;

    for (size_t i = 0; i < up->nendpoints; i++) {
        struct verdict_endpoint *e = &up->endpoints[i];

        if (e->flags == ENDPOINT_EJECTED && e->weight > 0 && e->backup == ep->backup &&
            now - e->ejected_at >= up->outlier.ejection / RECALL_PART &&
            (!oldest || e->ejected_at < oldest->ejected_at))
            oldest = e;
    }
    if (!oldest)
        return;
    oldest->level--;
    bring_back(up, oldest, now, VERDICT_recalled);
}

/* Who is much slower than the others says nothing against those that are out. */
static bool is_failing(enum verdict_cause cause)
{
    return cause == VERDICT_consecutive || cause == VERDICT_error_rate;
}

static void eject(struct verdict_upstream *up, struct verdict_endpoint *ep, uint64_t now,
                  enum verdict_cause cause)
{
    uint64_t time;

    if (ep->flags)
        return;
    if (!may_eject(up, ep)) {
        if (is_failing(cause))
            recall(up, ep, now);
        return;
    }
    ep->level = level_now(up, ep, now) + 1;
    if (__builtin_mul_overflow(up->outlier.ejection, ep->level, &time) ||
        time > up->outlier.max_ejection)
        time = up->outlier.max_ejection;
    ep->ejected_at = now;
    ep->ejected_until = now + time;
    set_flags(up, ep, ep->flags | ENDPOINT_EJECTED, cause);
}

void verdict_expire(struct verdict_upstream *up, uint64_t now)
{
    for (size_t i = 0; i < up->nendpoints; i++) {
        struct verdict_endpoint *ep = &up->endpoints[i];

        if (ep->flags & ENDPOINT_EJECTED && now >= ep->ejected_until)
            bring_back(up, ep, now, VERDICT_time);
    }
}

/* --- windows -----------------------------------------------------------------------------------
 */

static void add_tally(struct endpoint_tally *sum, const struct endpoint_tally *t)
{
    sum->requests += t->requests;
    sum->failed += t->failed;
    for (unsigned i = 0; i < LATENCY_BUCKETS; i++)
        sum->latency[i] += t->latency[i];
}

/* 0: no answer was timed. */
static uint64_t median(const struct endpoint_tally *t)
{
    uint64_t total = 0, seen = 0;

    for (unsigned i = 0; i < LATENCY_BUCKETS; i++)
        total += t->latency[i];
    for (unsigned i = 0; i < LATENCY_BUCKETS && total; i++) {
        seen += t->latency[i];
        if (2 * seen >= total)
            return latency_value(i);
    }
    return 0;
}

/* An endpoint and how much worse it is than it may be: the worst is ejected first. */
struct suspect {
    struct verdict_endpoint *ep;
    uint64_t score;
};

static int by_score(const void *a, const void *b)
{
    const struct suspect *x = a, *y = b;

    return (x->score > y->score) - (x->score < y->score);
}

static bool is_judged(const struct verdict_upstream *up, const struct verdict_endpoint *ep)
{
    return !ep->flags && ep->tally.requests >= up->outlier.requests;
}

static void judge_rate(struct verdict_upstream *up, struct suspect *s, uint64_t now)
{
    size_t n = 0;

    for (size_t i = 0; i < up->nendpoints; i++) {
        struct verdict_endpoint *ep = &up->endpoints[i];
        const struct endpoint_tally *t = &ep->tally;

        if (is_judged(up, ep) &&
            (uint64_t)t->failed * 100 >= (uint64_t)up->outlier.error_rate * t->requests)
            s[n++] = (struct suspect){ep, (uint64_t)t->failed * 1000000 / t->requests};
    }
    qsort(s, n, sizeof(*s), by_score);
    while (n > 0)
        eject(up, s[--n].ep, now, VERDICT_error_rate);
}

/* The upper median of all but the i-th of n sorted ones, n > 1. */
static uint64_t median_of_others(const struct suspect *s, size_t n, size_t i)
{
    size_t mid = (n - 1) / 2;

    return s[mid < i ? mid : mid + 1].score;
}

static void judge_latency(struct verdict_upstream *up, struct suspect *s, uint64_t now)
{
    size_t n = 0;

    for (size_t i = 0; i < up->nendpoints; i++) {
        struct verdict_endpoint *ep = &up->endpoints[i];
        uint64_t m = is_judged(up, ep) ? median(&ep->tally) : 0;

        if (m)
            s[n++] = (struct suspect){ep, m};
    }
    qsort(s, n, sizeof(*s), by_score);
    for (size_t i = n; i-- > 0 && n > 1;)
        if (s[i].score * 100 > median_of_others(s, n, i) * up->outlier.latency)
            eject(up, s[i].ep, now, VERDICT_latency);
}

void verdict_window(struct verdict_upstream *up, uint64_t now)
{
    struct suspect *s = calloc(up->nendpoints, sizeof(*s));

    /* Without memory this window goes by. */
    if (s && up->outlier.error_rate)
        judge_rate(up, s, now);
    if (s && up->outlier.latency)
        judge_latency(up, s, now);
    free(s);
    for (size_t i = 0; i < up->nendpoints; i++)
        memset(&up->endpoints[i].tally, 0, sizeof(up->endpoints[i].tally));
    up->window_end += up->outlier.window;
    if (up->window_end <= now)
        up->window_end = now + up->outlier.window;
}

/* --- events ------------------------------------------------------------------------------------
 */

void verdict_report(struct verdict_upstream *up, struct verdict_endpoint *ep,
                    const struct endpoint_report *r, uint64_t now)
{
    if (r->probed && up->has_health)
        judge_probe(up, ep, r);
    if (!up->has_outlier)
        return;
    if (!(ep->flags & ENDPOINT_EJECTED))
        add_tally(&ep->tally, &r->tally);
    if (up->outlier.consecutive && r->failed_in_a_row >= up->outlier.consecutive)
        eject(up, ep, now, VERDICT_consecutive);
}

uint64_t verdict_next_return(const struct verdict_upstream *up)
{
    uint64_t next = UINT64_MAX;

    for (size_t i = 0; i < up->nendpoints && up->has_outlier; i++)
        if (up->endpoints[i].flags & ENDPOINT_EJECTED && up->endpoints[i].ejected_until < next)
            next = up->endpoints[i].ejected_until;
    return next;
}
