#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "control/status.h"

static bool is_same(const struct status_endpoint *e, const char *upstream,
                    const struct endpoint_stats *s)
{
    return e->s.addr == s->addr && e->s.port == s->port && strcmp(e->upstream, upstream) == 0;
}

static void name_it(struct status_endpoint *e, const char *upstream, const struct endpoint_stats *s)
{
    const uint8_t *b = (const uint8_t *)&s->addr;

    memset(e, 0, sizeof(*e));
    memcpy(e->upstream, upstream, sizeof(e->upstream));
    snprintf(e->name, sizeof(e->name), "%u.%u.%u.%u:%u", b[0], b[1], b[2], b[3], s->port);
    e->s.addr = s->addr;
    e->s.port = s->port;
}

static void add(struct endpoint_stats *sum, const struct endpoint_stats *s)
{
    /* What control has told them is the same on all cores, but for a moment. */
    sum->weight = s->weight;
    sum->healthy = s->healthy;
    sum->ejected = s->ejected;
    sum->backup = s->backup;
    sum->used = s->used;
    if (s->ejections > sum->ejections)
        sum->ejections = s->ejections;
    if (s->probed) {
        sum->probed = true;
        sum->probe = s->probe;
    }
    sum->active += s->active;
    sum->idle += s->idle;
    sum->waiting += s->waiting;
    sum->picks += s->picks;
    sum->failures += s->failures;
    sum->connects += s->connects;
    sum->reused += s->reused;
}

static int by_upstream(const void *a, const void *b)
{
    const struct status_endpoint *x = a, *y = b;
    int order = strcmp(x->upstream, y->upstream);

    return order ? order : strcmp(x->name, y->name);
}

unsigned status_sum_endpoints(const struct status_view *v, struct status_endpoint *ret,
                              unsigned max)
{
    unsigned n = 0;

    for (unsigned c = 0; c < v->ncores; c++) {
        const struct core_status *st = v->cores[c].s;
        for (unsigned i = 0, k; st && i < st->nendpoints; i++) {
            const struct endpoint_stats *s = &st->endpoints[i];
            const char *upstream = st->upstreams[s->upstream].name;
            for (k = 0; k < n && !is_same(&ret[k], upstream, s); k++)
                ;
            if (k == max)
                continue;
            if (k == n)
                name_it(&ret[n++], upstream, s);
            add(&ret[k].s, s);
        }
    }
    qsort(ret, n, sizeof(*ret), by_upstream);
    return n;
}

double status_reuse_ratio(uint64_t reused, uint64_t connects)
{
    return reused + connects ? (double)reused / (double)(reused + connects) : 0;
}
