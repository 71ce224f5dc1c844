/* The passive side before a connection exists: listeners and half-open connections. */
#ifndef MILLRACE_DATAPLANE_TCP_LISTEN_H
#define MILLRACE_DATAPLANE_TCP_LISTEN_H

#include "dataplane/tcp/engine.h"

struct tcp_listener {
    struct list_node node;
    struct tcp_listener_opts o;
    uint32_t half_open;
};

/* A SYN that has been answered: passive SYN_RECEIVED. */
struct half_open {
    struct tuple tuple;
    uint32_t iss, irs;
    uint32_t ts_offset, ts_recent;
    struct list_node fifo;
    uint64_t sent_at; /* first SYN/ACK */
    uint64_t due_at;  /* next SYN/ACK */
    uint64_t ack_at;  /* last ACK in answer to something odd */
    struct tcp_listener *listener;
    uint16_t peer_window, peer_mss;
    uint8_t options; /* enum segment_option: what both sides have agreed on */
    uint8_t snd_wscale;
    uint8_t tries; /* SYN/ACKs sent by the timer */
};

static_assert(sizeof(struct half_open) <= 128, "half-open connections are small");

/* A segment to a tuple that no object has. */
enum tcp_drop listen_input(struct tcp *t, struct segment *seg);

/* A SYN in TIME_WAIT that may start a new life: its numbers start above `above`. */
enum tcp_drop listen_syn(struct tcp *t, const struct segment *seg, const uint32_t *above);
bool listen_is_open(const struct tcp *t, const struct tuple *tuple);

/* A segment for a half-open connection. */
enum tcp_drop half_open_input(struct tcp *t, struct half_open *h, struct segment *seg);
void half_open_on_timer(struct timer *timer, uint64_t now);
void half_open_free(struct tcp *t, struct half_open *h);

#endif
