#include "tests/kit/tcp_rig.h"

#include <stdlib.h>

void tcp_rig_init(struct tcp_rig *r, const struct net_rig_opts *n, const struct tcp_opts *o)
{
    net_rig_init(&r->net, n);
    rope_pool_init(&r->ropes, r->net.pool, 0);
    struct tcp_opts opts = *o;
    opts.sched = &r->net.sched;
    opts.net = r->net.net;
    opts.ropes = &r->ropes;
    opts.mbufs = r->net.pool;
    r->tcp = tcp_new(&opts);
    if (!r->tcp)
        abort();
}

void tcp_rig_fini(struct tcp_rig *r)
{
    tcp_free(r->tcp);
    rope_pool_fini(&r->ropes);
    net_rig_fini(&r->net);
}

void tcp_rig_settle(struct tcp_rig *r)
{
    do
        tcp_flush(r->tcp);
    while (sched_step(&r->net.sched, tcp_rig_now(r)));
    tcp_flush(r->tcp);
    r->net.nif.flush(&r->net.nif);
}

void tcp_rig_run(struct tcp_rig *r, uint64_t until)
{
    tcp_rig_settle(r);
    while (r->net.out_n == 0 && tcp_rig_now(r) < until) {
        uint64_t next = sched_next_timeout(&r->net.sched);
        if (next > until)
            next = until;
        if (next > tcp_rig_now(r))
            sched_step(&r->net.sched, next);
        tcp_rig_settle(r);
    }
}
