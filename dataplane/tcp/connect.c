/* Active open, from the application's side. */
#include <errno.h>

#include <rte_byteorder.h>

#include "dataplane/tcp/engine.h"

struct candidate {
    struct tcp *t;
    struct tuple tuple;
};

/* A four-tuple is free when no connection of any age has it (RFC 6056 §3.1). */
static bool is_in_use(void *ctx, uint16_t port)
{
    struct candidate *c = ctx;
    c->tuple.local_port = rte_cpu_to_be_16(port);
    uint64_t hash = table_hash(&c->t->conns, &c->tuple);
    return table_find(&c->t->conns, &c->tuple, hash) ||
           table_find(&c->t->time_wait, &c->tuple, hash) ||
           table_find(&c->t->half_open, &c->tuple, hash);
}

int tcp_connect(struct tcp *t, const struct tcp_connect_opts *o, struct stream **ret_stream)
{
    struct net_path path = {0};
    int err = net_route_lookup(t->o.net, o->dst, o->src, &path.route);
    if (err)
        return err;
    struct candidate c = {
        .t = t,
        .tuple = {.local_addr = o->src ? o->src : path.route.src,
                  .peer_addr = o->dst,
                  .peer_port = rte_cpu_to_be_16(o->dst_port)},
    };
    uint16_t port;
    err = ports_pick(&t->ports, &t->rng, is_in_use, &c, &port);
    if (err)
        return err;
    c.tuple.local_port = rte_cpu_to_be_16(port);
    struct tcb *tcb = tcb_new(t, &c.tuple);
    if (!tcb)
        return -ENOBUFS;
    uint64_t now = tcp_now(t);
    tcb->path = path;
    tcb->flags |= TCB_HANDLE | TCB_ACTIVE;
    tcb->stream.rd_task = tcb->stream.wr_task = o->task;
    tcb_init_send(tcb, isn_generate(t->key, &c.tuple, now) + t->o.isn_offset);
    tcb_set_mss(tcb);
    tcb->misc_at = now + t->o.connect_timeout_ns;
    tcb_set_state(tcb, TCP_SYN_SENT);
    err = tcb_send_syn(tcb);
    if (err == -EHOSTUNREACH || err == -ENETUNREACH) {
        tcb->flags &= ~TCB_HANDLE;
        tcb_die(tcb, err);
        tcb_leave(tcb);
        return err;
    }
    tcb_leave(tcb);
    *ret_stream = &tcb->stream;
    return 0;
}
