/* One core's TCP, and what the files of this folder call of each other. Private to it. */
#ifndef MILLRACE_DATAPLANE_TCP_ENGINE_H
#define MILLRACE_DATAPLANE_TCP_ENGINE_H

#include "dataplane/tcp/isn.h"
#include "dataplane/tcp/ports.h"
#include "dataplane/tcp/segment.h"
#include "dataplane/tcp/seq.h"
#include "dataplane/tcp/table.h"
#include "dataplane/tcp/tcb.h"
#include "dataplane/tcp/tcp.h"
#include "runtime/rng.h"
#include "runtime/sched.h"
#include "runtime/slab.h"

#define MS     1000000ull
#define SECOND (1000 * MS)

#define TCP_DELACK_NS     (40 * MS)
#define TCP_NO_MBUF_NS    (10 * MS) /* until the next try without mbufs */
#define TCP_WND_RETRY_NS  (50 * MS)
#define TCP_FIN_WAIT_2_NS (60 * SECOND)
#define TCP_ORPHAN_NS     (60 * SECOND) /* without progress after close */
#define TCP_KEEPALIVE_NS  (75 * SECOND) /* between unanswered probes */
#define TCP_KEEPALIVE_MAX 9
#define TCP_RTX_MAX       10 /* RFC 1122's R2: over 100 s */
#define TCP_CHALLENGE_NS  (5 * SECOND)
#define TCP_CHALLENGE_MAX 10   /* in TCP_CHALLENGE_NS, per connection (RFC 5961 §7) */
#define TCP_MBUF_SIZE     2048 /* true size of a received segment */
#define TCP_SYNACK_TRIES  6    /* 1, 2, 4, 8, 16, 32 s */

enum tcp_memory {
    TCP_MEMORY_PLENTY,
    TCP_MEMORY_LOW,   /* windows shrink, SYNs are not answered */
    TCP_MEMORY_NONE,  /* windows close, new data isn't copied; payload is taken from those only who
                         hold none: what they wait for may be what frees memory */
    TCP_MEMORY_EMPTY, /* no payload is taken: the rest is for ACKs, ARP and answers */
};

/* A connection's claim on the pool. By the free mbufs above the low mark it falls as others take
 * theirs, so that those who only hold settle where there is room for newcomers, however many. */
struct tcp_share {
    uint32_t want; /* mbufs a direction that windows promise and the send buffer takes */
    uint32_t most; /* received ones beyond which payload is refused, promised or not */
};

struct tcp {
    struct tcp_opts o; /* defaults filled in */
    struct siphash_key key;
    struct port_space ports;
    struct rng rng;
    const struct congestion_ops *congestion;
    uint16_t max_segment; /* payload that fits one mbuf with all headers */
    uint8_t rcv_wscale;

    enum tcp_memory memory_;
    struct tcp_share share_;
    uint32_t memory_good_; /* mbufs to be taken before memory_ must be looked at again ... */
    uint64_t memory_at_;   /* ... and the time */

    struct table conns, half_open, time_wait;
    struct slab tcbs, half_opens, time_waits;
    struct reass_pools reass;

    struct list_node pending; /* tcbs to flush */
    struct list_node dead;    /* tcbs out of the table that are still held */
    struct list_node listeners;
    struct list_node half_fifo[TCP_SYNACK_TRIES]; /* by number of tries; each in order of time */
    struct list_node time_wait_fifo;
    struct timer half_timer, time_wait_timer;

    struct tcp_stats stats;
};

static inline uint64_t tcp_now(const struct tcp *t)
{
    return sched_now(t->o.sched);
}

/* memory.c: how the mbuf pool stands. */
void tcp_memory_count(struct tcp *t);

/* Looked at once a millisecond while there is plenty, more often the less is left. */
static inline enum tcp_memory tcp_memory(struct tcp *t)
{
    if (t->memory_good_ == 0 || tcp_now(t) >= t->memory_at_)
        tcp_memory_count(t);
    return t->memory_;
}

static inline struct tcp_share tcp_share(struct tcp *t)
{
    tcp_memory(t);
    return t->share_;
}

/* The same before an mbuf is taken for long. */
static inline struct tcp_share tcp_share_take(struct tcp *t)
{
    struct tcp_share share = tcp_share(t);
    if (t->memory_good_)
        t->memory_good_--;
    return share;
}

/* Counts why a segment was let go of. */
static inline void tcp_count(struct tcp *t, enum tcp_drop why)
{
    t->stats.drops[why]++;
}

/* input.c: what comes from net. Consume the mbuf. */
void tcp_input(void *ctx, struct rte_mbuf *m, const struct ip4_rx *rx);
/* A segment for a connection; takes seg->m when it keeps the payload. Does not leave the tcb. */
enum tcp_drop tcb_input(struct tcb *tcb, struct segment *seg);

/* ack.c: acknowledgement, window, dup ACKs. TCP_DROP_accepted to go on. */
enum tcp_drop tcb_on_ack(struct tcb *tcb, const struct segment *seg);

/* receive.c: payload and FIN of an acceptable segment. */
enum tcp_drop tcb_on_text(struct tcb *tcb, struct segment *seg);

/* syn_sent.c: the active side of the handshake. */
enum tcp_drop tcb_on_syn_sent(struct tcb *tcb, struct segment *seg);
void tcb_established(struct tcb *tcb);

/* window.c */
uint8_t window_scale_for(uint32_t rcv_buf);
/* The header's window field now; moves rcv_adv. */
uint16_t window_advertise(struct tcb *tcb);
/* Bytes the right edge could move on, SWS avoidance applied. */
uint32_t window_growth(struct tcb *tcb);
/* The application has read: does the peer need to know at once? */
void window_on_read(struct tcb *tcb);

/* output.c */
void tcb_output(struct tcb *tcb);
void tcb_send_ack(struct tcb *tcb);
void tcb_challenge(struct tcb *tcb);
void tcb_send_rst(struct tcb *tcb);
int tcb_send_syn(struct tcb *tcb);
void tcb_send_probe(struct tcb *tcb);
void tcb_send_keepalive(struct tcb *tcb);
/* A segment without a connection behind it. -ENOBUFS or the network's error. */
int tcp_send_bare(struct tcp *t, const struct segment_out *out);
/* RST in answer to a segment of no connection (RFC 9293 §3.10.7.1). */
void tcp_reply_rst(struct tcp *t, const struct segment *seg);

/* transmit.c: one segment with payload from the send rope. */
struct cursor {
    struct rope_node *node;
    uint32_t off;
};
/* How long the next segment from `c` should be, at most `max`: keeps to node boundaries. */
uint32_t transmit_length(const struct tcb *tcb, struct cursor c, uint32_t max);
void cursor_advance(struct cursor *c, uint32_t n);
/* 0, -ENOBUFS, or the network's error (the segment counts as sent then: it is lost, not unsent). */
int transmit_data(struct tcb *tcb, struct cursor c, uint32_t len, struct segment_out *out);
/* Payload-free. */
int transmit_bare(struct tcb *tcb, struct segment_out *out);

/* timers.c */
void tcb_on_timer(struct timer *timer, uint64_t now);
void tcb_set_timer(struct tcb *tcb);
/* Stops what can't run on in a new state: after the handshake, on close. */
void tcb_start_keepalive(struct tcb *tcb);

/* close.c: the application's ends */
void tcb_queue_fin(struct tcb *tcb);
void tcb_close(struct stream *s);
void tcb_abort(struct stream *s);
int tcb_shutdown(struct stream *s);

/* stream_ops.c */
extern const struct stream_ops tcb_stream_ops;
void tcb_wake_reader(struct tcb *tcb);
void tcb_wake_writer(struct tcb *tcb);
/* Room in the send buffer, by bytes and by true size. */
uint64_t tcb_snd_space(const struct tcb *tcb);

/* icmp.c */
void tcp_on_icmp(void *ctx, const struct icmp_error *e);
void tcp_on_neighbor_failed(void *ctx, uint32_t next_hop);

#endif
