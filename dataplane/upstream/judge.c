#include "dataplane/upstream/judge.h"

#include <errno.h>
#include <string.h>

#include "dataplane/upstream/probe.h"

#define SUB_BITS 2 /* four buckets to a power of two */

unsigned latency_bucket(uint64_t ns)
{
    if (ns < LATENCY_MIN_NS)
        return 0;
    unsigned power = 63 - (unsigned)__builtin_clzll(ns);
    unsigned b = (power - 16) << SUB_BITS | (unsigned)(ns >> (power - SUB_BITS) & 3);
    return b < LATENCY_BUCKETS ? b : LATENCY_BUCKETS - 1;
}

uint64_t latency_value(unsigned bucket)
{
    unsigned power = 16 + (bucket >> SUB_BITS);
    return ((4ull + (bucket & 3)) << (power - SUB_BITS)) + (1ull << (power - SUB_BITS - 1));
}

const char *probe_result_name(enum probe_result r)
{
    static const char *const names[] = {
#define PROBE(name, text) #name,
#include "dataplane/upstream/probe.def"
#undef PROBE
    };
    return r < PROBE_RESULT_COUNT ? names[r] : "?";
}

int judge_prepare(struct endpoint *ep, bool wanted)
{
    if (!wanted || ep->tally_)
        return 0;
    ep->tally_ = slab_get_zeroed(&ep->upstream->set_->tallies_);
    return ep->tally_ ? 0 : -ENOMEM;
}

void judge_discard(struct endpoint *ep)
{
    if (ep->tally_)
        slab_put(&ep->upstream->set_->tallies_, ep->tally_);
    ep->tally_ = NULL;
    ep->failed_in_a_row_ = 0;
}

void judge_report(struct endpoint *ep)
{
    struct upstreams *u = ep->upstream->set_;
    if (!list_is_linked(&ep->report_node_))
        list_push_tail(&u->reports_, &ep->report_node_);
    if (u->o_.on_report)
        u->o_.on_report(u->o_.ctx);
}

void endpoint_judge(struct endpoint *ep, enum attempt_result r, uint64_t latency)
{
    struct endpoint_tally *t = ep->tally_;
    ep->count.failures += r == ATTEMPT_FAILED;
    if (!t || ep->removed_)
        return;
    t->requests++;
    if (r == ATTEMPT_OK) {
        if (latency)
            t->latency[latency_bucket(latency)]++;
        ep->failed_in_a_row_ = 0;
        return;
    }
    t->failed++;
    ep->failed_in_a_row_++;
    /* Again and again: control may not be free to do anything about it the first time. */
    uint32_t limit = ep->upstream->consecutive_;
    if (limit && ep->failed_in_a_row_ % limit == 0)
        judge_report(ep);
}

static void fill_report(struct endpoint *ep, struct endpoint_report *r)
{
    const struct upstream *up = ep->upstream;
    memset(r, 0, sizeof(*r));
    memcpy(r->key.upstream, up->name, sizeof(r->key.upstream));
    r->key.addr = ep->addr;
    r->key.port = ep->port;
    r->at = sched_now(up->set_->sched);
    if (ep->probe_)
        r->probed = probe_last(ep->probe_, &r->streak, &r->probe);
    if (!ep->tally_)
        return;
    uint32_t limit = up->consecutive_;
    r->failed_in_a_row = limit && ep->failed_in_a_row_ >= limit ? ep->failed_in_a_row_ : 0;
    r->tally = *ep->tally_;
    memset(ep->tally_, 0, sizeof(*ep->tally_));
}

/* Whoever has a tally that isn't empty has something to tell now. */
static void gather_tallies(struct upstreams *u)
{
    list_for_each(n, &u->all_)
    {
        struct upstream *up = container_of(n, struct upstream, node_);
        if (!up->cfg || !up->cfg->outlier)
            continue;
        list_for_each(m, &up->endpoints_)
        {
            struct endpoint *ep = container_of(m, struct endpoint, node_);
            if (ep->tally_ && ep->tally_->requests && !list_is_linked(&ep->report_node_))
                list_push_tail(&u->reports_, &ep->report_node_);
        }
    }
}

unsigned upstreams_take_reports(struct upstreams *u, bool all, struct endpoint_report *ret,
                                unsigned max)
{
    unsigned n = 0;
    struct list_node *node;
    if (all)
        gather_tallies(u);
    while (n < max && (node = list_pop_head(&u->reports_)))
        fill_report(container_of(node, struct endpoint, report_node_), &ret[n++]);
    return n;
}
