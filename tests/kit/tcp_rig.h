/* net and tcp of one core over a net_rig: one endpoint without any wire or real time. */
#ifndef MILLRACE_TESTS_KIT_TCP_RIG_H
#define MILLRACE_TESTS_KIT_TCP_RIG_H

#include <stdbool.h>
#include <stdint.h>

#include "dataplane/stream/rope.h"
#include "dataplane/tcp/tcp.h"
#include "tests/kit/net_rig.h"

struct tcp_rig {
    struct net_rig net;
    struct rope_pool ropes;
    struct tcp *tcp;
};

/* `o`: sched, net, ropes and mbufs are filled in here. */
void tcp_rig_init(struct tcp_rig *r, const struct net_rig_opts *n, const struct tcp_opts *o);
/* Frees the stack; every mbuf and node must be back then. */
void tcp_rig_fini(struct tcp_rig *r);

/* Runs what is due now, and sends what was put off to the end of the pass. */
void tcp_rig_settle(struct tcp_rig *r);

/* Moves the clock to `until`, or to the first time at which a frame has gone out. */
void tcp_rig_run(struct tcp_rig *r, uint64_t until);

static inline uint64_t tcp_rig_now(const struct tcp_rig *r)
{
    return sched_now(&r->net.sched);
}

#endif
