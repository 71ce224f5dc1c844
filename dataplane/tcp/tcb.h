/* The control block of one connection, private to this folder.
 *
 * Life: tcb_new() → (segments, timers, stream calls) → tcb_die() or a graceful end, which take it
 * out of the table; its memory goes back when the handle is gone as well, in tcb_leave(). Every
 * entry from outside (segment, timer, stream call, flush) ends with tcb_leave(), the only place
 * that may free it, so a tcb pointer is good for the whole of an entry.
 */
#ifndef MILLRACE_DATAPLANE_TCP_TCB_H
#define MILLRACE_DATAPLANE_TCP_TCB_H

#include <assert.h>
#include <stdbool.h>
#include <stdint.h>

#include "dataplane/net/net.h"
#include "dataplane/stream/rope.h"
#include "dataplane/stream/stream.h"
#include "dataplane/tcp/congestion.h"
#include "dataplane/tcp/reass.h"
#include "dataplane/tcp/rtt.h"
#include "dataplane/tcp/state.h"
#include "dataplane/tcp/tuple.h"
#include "runtime/list.h"
#include "runtime/timer.h"

struct tcp;

#define NEVER UINT64_MAX

enum tcb_flag {
    TCB_HANDLE = 1 << 0,       /* the application holds the stream */
    TCB_TABLED = 1 << 1,       /* in the table of connections */
    TCB_ACTIVE = 1 << 2,       /* opened by us */
    TCB_TS = 1 << 3,           /* timestamps in use */
    TCB_SACK = 1 << 4,         /* the peer takes SACK blocks */
    TCB_FIN_QUEUED = 1 << 5,   /* our FIN follows the last byte of the send rope */
    TCB_FIN_RCVD = 1 << 6,     /* the peer's FIN is in rcv_nxt */
    TCB_ACK_NOW = 1 << 7,      /* an ACK goes out in this flush */
    TCB_RECOVERY = 1 << 8,     /* between loss and the ACK of recover */
    TCB_PARTIAL = 1 << 9,      /* a partial ACK has been seen in this recovery */
    TCB_RESEND_HEAD = 1 << 10, /* the segment at snd_una goes out again in this flush */
    TCB_PERSIST = 1 << 11,     /* rtx_at is the persist timer's */
    TCB_WANT_WRITE = 1 << 12,  /* a writer was told -EAGAIN */
    TCB_OUT_RETRY = 1 << 13,   /* something could not be sent for want of an mbuf */
    TCB_WND_RETRY = 1 << 14,   /* the window stays small for want of mbufs */
    TCB_TIMING = 1 << 15,      /* rtt_seq, rtt_at: a segment is being timed */
    TCB_ACCEPT = 1 << 16,      /* not yet handed to the listener */
    TCB_LOST_SYN = 1 << 17,    /* our SYN or SYN/ACK was sent again */
    TCB_WSCALE = 1 << 18,      /* both sides scale their windows */
};

struct tcb {
    /* Lines 0 and 1: read and written for every segment. */
    struct stream stream; /* first: a stream is a tcb */
    struct tuple tuple;
    uint8_t state; /* enum tcp_state; tcb_set_state() */
    uint8_t snd_wscale, rcv_wscale;
    uint8_t dup_acks; /* saturates */
    uint32_t flags;   /* enum tcb_flag */
    uint32_t rcv_nxt;
    uint32_t rcv_adv; /* the right edge of the window the peer was told, never moved back */
    uint32_t snd_una, snd_nxt; /* snd_nxt goes back to snd_una on a timeout */
    uint32_t snd_max;          /* the greatest snd_nxt ever */
    uint32_t snd_end;          /* after the last byte in the send rope; our FIN's number */
    uint32_t snd_wnd, max_wnd; /* as the peer gave it; the greatest ever */
    uint32_t snd_wl1, snd_wl2; /* seq and ack of the segment that gave it */
    uint32_t last_ack;         /* rcv_nxt as last sent */
    uint32_t ts_recent;        /* to be echoed */
    struct tcp *tcp;
    uint16_t mss;     /* payload a segment we send, all but SACK options taken off */
    uint16_t rcv_mss; /* largest payload seen, for "every second full segment" */

    /* Lines 2 to 4: written by one direction of data or the other. */
    struct rope rcv;          /* in order, not read yet */
    struct rope snd;          /* from snd_una (after our SYN) to snd_end */
    struct rope_node *cursor; /* where snd_nxt stands in snd; NULL at its end */
    uint32_t cursor_off;      /* from the mbuf's buf_addr */
    uint32_t peak;            /* flight after the last output: how much of cwnd is in use */
    uint32_t recover;         /* RFC 6582 */
    uint32_t resent_ts;       /* our timestamp clock at the last retransmission */
    uint32_t sacked[2];       /* first SACK block of the peer's last ACK */
    struct congestion cc;
    struct rtt rtt;
    uint32_t rtt_seq;
    uint64_t rtt_at;
    struct reass reass;

    /* One timer in the wheel for three deadlines; NEVER when not running. */
    struct timer timer;
    uint64_t rtx_at;          /* retransmission or persist */
    uint64_t ack_at;          /* delayed ACK; retries for want of mbufs */
    uint64_t misc_at;         /* connect timeout, keepalive, FIN_WAIT_2 and orphans */
    uint64_t heard_at;        /* last segment received */
    uint64_t sent_at;         /* last data sent */
    struct list_node pending; /* to be flushed; or the dead that are still held */

    /* Cold. */
    struct net_path path;
    uint64_t bytes_in, bytes_out;
    uint64_t challenge_at; /* start of the period that `challenges` counts */
    uint32_t ts_offset;
    uint32_t iss;
    uint32_t held; /* mbufs counted in stats.mbufs_held */
    uint32_t retransmits;
    uint32_t ts_recent_at; /* seconds since start; ages ts_recent (RFC 7323 §5.5) */
    int16_t err;           /* what it died of, -errno */
    uint16_t peer_mss;
    uint8_t backoffs; /* of rtx_at; stay until a fresh RTT sample (Karn) */
    uint8_t expiries; /* of the retransmission timer since snd_una last moved */
    uint8_t probes;   /* unanswered: keepalive or zero window */
    uint8_t challenges;
};

static_assert(sizeof(struct tcb) <= 512, "an idle connection is 1 KiB all told");
static_assert(offsetof(struct tcb, rcv) <= 128, "header prediction reads two lines");
static_assert(offsetof(struct tcb, stream) == 0, "a stream is its tcb");

static inline struct tcb *tcb_of(const struct stream *s)
{
    return (struct tcb *)(const void *)s;
}

static inline bool tcb_has(const struct tcb *tcb, uint32_t flag)
{
    return (tcb->flags & flag) != 0;
}

/* What was sent and is not acknowledged; after a timeout what was sent again. */
static inline uint32_t tcb_flight(const struct tcb *tcb)
{
    return tcb->snd_nxt - tcb->snd_una;
}

/* After the last number we shall ever send as things stand: data and FIN. */
static inline uint32_t tcb_snd_limit(const struct tcb *tcb)
{
    return tcb->snd_end + tcb_has(tcb, TCB_FIN_QUEUED);
}

static inline bool tcb_fin_acked(const struct tcb *tcb)
{
    return tcb_has(tcb, TCB_FIN_QUEUED) && tcb->snd_una == tcb->snd_end + 1;
}

static inline bool tcb_is_connecting(const struct tcb *tcb)
{
    return tcb->state == TCP_SYN_SENT || tcb->state == TCP_SYN_RCVD;
}

/* Exchanges segments with its peer still (TIME_WAIT lives on elsewhere). */
static inline bool tcb_is_open(const struct tcb *tcb)
{
    return tcb->state != TCP_CLOSED && tcb->state != TCP_TIME_WAIT;
}

/* A zeroed control block with its tuple, in the table. NULL: too many, or no memory. */
struct tcb *tcb_new(struct tcp *t, const struct tuple *tuple);

/* Sequence numbers before anything was sent; window scale and MSS from the peer come later. */
void tcb_init_send(struct tcb *tcb, uint32_t iss);

/* Sets the MSS by path and peer. The path's MTU must be known (path.route.mtu). */
void tcb_set_mss(struct tcb *tcb);

/* To be flushed at the end of the pass. */
void tcb_mark(struct tcb *tcb);

/* Ends the connection now, without a packet: err is what the stream says from now on, 0 for a
 * graceful end (received bytes can still be read then). */
void tcb_die(struct tcb *tcb, int err);

/* Hands the connection over to a TIME_WAIT object. */
void tcb_enter_time_wait(struct tcb *tcb);

/* The end of each entry: accounts, checks, sets the timer, frees what is over. */
void tcb_leave(struct tcb *tcb);

/* The invariants, asserted in debug builds. */
void tcp_check(const struct tcb *tcb);

#endif
