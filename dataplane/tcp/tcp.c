#include "dataplane/tcp/tcp.h"

#include <errno.h>
#include <netinet/in.h>
#include <stdlib.h>

#include <rte_byteorder.h>

#include "dataplane/tcp/engine.h"
#include "dataplane/tcp/listen.h"
#include "dataplane/tcp/time_wait.h"

static const char *const drop_names[] = {
#define DROP(name, text) #name,
#include "dataplane/tcp/drop.def"
#undef DROP
};

static const char *const drop_texts[] = {
#define DROP(name, text) text,
#include "dataplane/tcp/drop.def"
#undef DROP
};

const char *tcp_drop_name(enum tcp_drop d)
{
    return drop_names[d];
}

const char *tcp_drop_text(enum tcp_drop d)
{
    return drop_texts[d];
}

static void fill_defaults(struct tcp_opts *o)
{
    if (!o->port_lo)
        o->port_lo = 32768;
    if (!o->port_hi)
        o->port_hi = 60999;
    if (!o->cores)
        o->cores = 1;
    if (!o->max_conns)
        o->max_conns = 65536;
    if (!o->max_half_open)
        o->max_half_open = 4096;
    if (!o->max_time_wait)
        o->max_time_wait = 16384;
    if (!o->rcv_buf)
        o->rcv_buf = 256 << 10;
    if (!o->snd_buf)
        o->snd_buf = 256 << 10;
    if (!o->keepalive_idle_ns)
        o->keepalive_idle_ns = 7200 * SECOND;
    if (!o->time_wait_ns)
        o->time_wait_ns = 60 * SECOND;
    if (!o->connect_timeout_ns)
        o->connect_timeout_ns = 60 * SECOND;
}

static bool init_tables(struct tcp *t)
{
    const struct tcp_opts *o = &t->o;
    return table_init(&t->conns, o->max_conns, offsetof(struct tcb, tuple), t->key) == 0 &&
           table_init(&t->half_open, o->max_half_open, offsetof(struct half_open, tuple), t->key) ==
               0 &&
           table_init(&t->time_wait, o->max_time_wait, offsetof(struct time_wait, tuple), t->key) ==
               0;
}

static void init_lists(struct tcp *t)
{
    list_init(&t->pending);
    list_init(&t->dead);
    list_init(&t->listeners);
    list_init(&t->time_wait_fifo);
    for (unsigned i = 0; i < TCP_SYNACK_TRIES; i++)
        list_init(&t->half_fifo[i]);
    t->half_timer.fire = half_open_on_timer;
    t->time_wait_timer.fire = time_wait_on_timer;
}

struct tcp *tcp_new(const struct tcp_opts *o)
{
    struct tcp *t = calloc(1, sizeof(*t));
    if (!t)
        return NULL;
    t->o = *o;
    fill_defaults(&t->o);
    t->key = siphash_key_from(o->secret);
    t->ports = (struct port_space){t->o.port_lo, t->o.port_hi, t->o.core, t->o.cores};
    t->rng.state = o->seed;
    t->congestion = &congestion_newreno;
    t->max_segment =
        (uint16_t)(rte_pktmbuf_data_room_size(o->mbufs) - RTE_PKTMBUF_HEADROOM - SEG_MAX_HDR_LEN);
    t->rcv_wscale = window_scale_for(t->o.rcv_buf);
    t->reass.ropes = o->ropes;
    init_lists(t);
    slab_init(&t->tcbs, sizeof(struct tcb), 0);
    slab_init(&t->half_opens, sizeof(struct half_open), 0);
    slab_init(&t->time_waits, sizeof(struct time_wait), 0);
    slab_init(&t->reass.blocks, sizeof(struct reass_block), 0);
    if (!init_tables(t)) {
        tcp_free(t);
        return NULL;
    }
    net_set_proto(o->net, IPPROTO_TCP, tcp_input, t);
    net_set_icmp_error(o->net, tcp_on_icmp, t);
    net_set_neighbor_failed(o->net, tcp_on_neighbor_failed, t);
    return t;
}

/* Streams whose handles are still out end here; their memory goes with the slab. */
static void free_tcbs(struct tcp *t)
{
    uint32_t pos = 0;
    for (struct tcb *tcb; t->conns.words_ && (tcb = table_next(&t->conns, &pos)); pos = 0) {
        tcb->stream.rd_task = tcb->stream.wr_task = NULL;
        tcb->flags &= ~TCB_HANDLE;
        tcb_die(tcb, -ECONNABORTED);
        tcb_leave(tcb);
    }
    for (struct list_node *n; (n = list_first(&t->dead));) {
        struct tcb *tcb = container_of(n, struct tcb, pending);
        tcb->flags &= ~TCB_HANDLE;
        tcb_leave(tcb);
    }
}

void tcp_free(struct tcp *t)
{
    struct list_node *n;
    free_tcbs(t);
    while ((n = list_first(&t->listeners)))
        tcp_listener_free(t, container_of(n, struct tcp_listener, node));
    while ((n = list_first(&t->time_wait_fifo)))
        time_wait_free(t, container_of(n, struct time_wait, fifo));
    timer_cancel(&t->o.sched->wheel, &t->half_timer);
    timer_cancel(&t->o.sched->wheel, &t->time_wait_timer);
    table_fini(&t->conns);
    table_fini(&t->half_open);
    table_fini(&t->time_wait);
    slab_fini(&t->tcbs);
    slab_fini(&t->half_opens);
    slab_fini(&t->time_waits);
    slab_fini(&t->reass.blocks);
    net_set_proto(t->o.net, IPPROTO_TCP, NULL, NULL);
    net_set_icmp_error(t->o.net, NULL, NULL);
    net_set_neighbor_failed(t->o.net, NULL, NULL);
    free(t);
}

uint16_t tcp_owner(const struct tcp *t, uint32_t local_addr, uint16_t local_port,
                   uint32_t peer_addr, uint16_t peer_port)
{
    uint16_t port = rte_be_to_cpu_16(local_port);
    if (ports_contain(&t->ports, port))
        return ports_owner(&t->ports, port);
    struct tuple tuple = {local_addr, peer_addr, local_port, peer_port};
    return (uint16_t)((tuple_hash(t->key, &tuple, TUPLE_OWNER) >> 32) * t->o.cores >> 32);
}

const struct tcp_stats *tcp_stats(struct tcp *t)
{
    return &t->stats;
}

void tcp_flush(struct tcp *t)
{
    struct list_node *n;
    while ((n = list_pop_head(&t->pending))) {
        struct tcb *tcb = container_of(n, struct tcb, pending);
        tcb_output(tcb);
        tcb_leave(tcb);
    }
}

size_t tcp_conn_size(void)
{
    return sizeof(struct tcb);
}
