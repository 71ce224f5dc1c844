/* TCP (RFC 9293) of one core, sans IO: segments and `now` in, segments and timers out.
 *
 * May use: runtime, net, stream, rte_mbuf. Used by: tls, http, upstream, proxy, core.
 *
 * Connections appear to the layers above as struct stream. A connection belongs to the core that
 * owns it (tcp_owner()); a core that receives someone else's segment hands the mbuf over before
 * net_input() would deliver it.
 */
#ifndef MILLRACE_DATAPLANE_TCP_TCP_H
#define MILLRACE_DATAPLANE_TCP_TCP_H

#include <stdbool.h>
#include <stdint.h>

#include "dataplane/net/net.h"
#include "dataplane/stream/rope.h"
#include "dataplane/stream/stream.h"

struct sched;
struct task;

enum tcp_drop {
#define DROP(name, text) TCP_DROP_##name,
#include "dataplane/tcp/drop.def"
#undef DROP
    TCP_DROP_COUNT
};
const char *tcp_drop_name(enum tcp_drop d);
const char *tcp_drop_text(enum tcp_drop d);

struct tcp;

struct tcp_opts {
    struct sched *sched;
    struct net *net;
    struct rope_pool *ropes;
    struct rte_mempool *mbufs;
    uint8_t secret[16];   /* keys the ISN (RFC 6528), the table's and the owner's hash; the same
                             on all cores */
    uint64_t seed;        /* local port choice */
    uint16_t core, cores; /* this core's index, how many there are: owner and port space */
    uint16_t port_lo, port_hi; /* local ports for connects; 0: 32768..60999 */
    uint32_t max_conns;        /* tcbs, TIME_WAIT and half-open not counted; 0: 65536 */
    uint32_t max_half_open;    /* 0: 4096 */
    uint32_t max_time_wait;    /* oldest goes first; 0: 16384 */
    uint32_t rcv_buf, snd_buf; /* bytes a connection; 0: 256 KiB, 256 KiB */
    /* Fewer free mbufs: windows shrink, SYNs are not answered. Under half of it windows close, and
     * the last quarter is not for payload at all; `ropes`' reserve should be more than that, and
     * less than half, so that neither side's bytes alone can use up what ACKs need. 0: no marks. */
    uint32_t mbuf_low;
    uint64_t keepalive_idle_ns;  /* 0: 2 h */
    uint64_t time_wait_ns;       /* 0: 60 s */
    uint64_t connect_timeout_ns; /* SYN retransmissions end; 0: 60 s */
    uint32_t isn_offset; /* added to every initial sequence number; the numbers stay unpredictable
                            by the secret alone */
};

struct tcp *tcp_new(const struct tcp_opts *o); /* NULL: no memory */
/* Aborts what is left, without sending. */
void tcp_free(struct tcp *t);

/* Which core owns a flow: a pure function of the packet's addresses and ports (all network order).
 * Local ports of our connects carry the core; the rest is a keyed hash. */
uint16_t tcp_owner(const struct tcp *t, uint32_t local_addr, uint16_t local_port,
                   uint32_t peer_addr, uint16_t peer_port);

struct tcp_listener;

enum tcp_welcome {
    TCP_WELCOME_ACCEPT,
    TCP_WELCOME_IGNORE, /* nothing is sent: the peer tries again */
    TCP_WELCOME_RESET,  /* RST: it knows at once */
};

struct tcp_listener_opts {
    uint32_t addr;    /* network order; 0 for every local address */
    uint16_t port;    /* host order */
    uint32_t backlog; /* half-open connections of this listener; 0: 1024 */
    /* A connection has completed its handshake. The callee owns the stream; it may close or abort
     * it at once. Called from packet input: do little, spawn a task. */
    void (*on_accept)(void *ctx, struct stream *s);
    /* Asked before a SYN is answered; `peer_addr` in network order. May be NULL. */
    enum tcp_welcome (*may_accept)(void *ctx, uint32_t peer_addr);
    void *ctx;
};

/* -EADDRINUSE, -ENOMEM. */
int tcp_listen(struct tcp *t, const struct tcp_listener_opts *o,
               struct tcp_listener **ret_listener);
/* New SYNs are refused with RST from now on, half-open ones are dropped; accepted connections go
 * on. */
void tcp_listener_free(struct tcp *t, struct tcp_listener *l);
/* What is accepted from now on goes to `ctx`, handshakes that are under way included. */
void tcp_listener_set_ctx(struct tcp_listener *l, void *ctx);

struct tcp_connect_opts {
    uint32_t dst;      /* network order */
    uint16_t dst_port; /* host order */
    uint32_t src;      /* network order, 0: by route */
    struct task *task; /* woken when connected or dead (stream_status()) */
};

/* Sends the SYN. stream_status() is -EAGAIN until it is answered. Errors at once: -ENETUNREACH,
 * -EHOSTUNREACH (the next hop is known not to answer), -EADDRNOTAVAIL (every local port to this
 * endpoint is in use), -ENOBUFS (no tcb). A SYN that finds no mbuf is sent again by its timer. */
int tcp_connect(struct tcp *t, const struct tcp_connect_opts *o, struct stream **ret_stream);

struct tcp_stats {
    uint64_t segs_in, segs_out, bytes_in, bytes_out;
    uint64_t accepted, connected, refused, reset_in, reset_out, timeouts;
    uint64_t retransmits, fast_retransmits, rto, zero_window_probes, keepalives;
    uint64_t dup_acks_in, ooo_in, challenge_acks, listen_overflow, copies_out, zero_copy_out;
    uint64_t drops[TCP_DROP_COUNT];
    uint32_t conns, half_open, time_wait; /* now */
    uint64_t mbufs_held;                  /* now: in send, receive and out-of-order queues */
};
const struct tcp_stats *tcp_stats(struct tcp *t);

/* Sends what was put off to the end of the pass: ACKs and data of connections touched since the
 * last call. The core loop calls it before the tx flush; tests after each input. */
void tcp_flush(struct tcp *t);

/* Bytes of one idle connection's control block, for the memory budget. */
size_t tcp_conn_size(void);

#endif
