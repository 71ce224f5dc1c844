/* TIME_WAIT as small objects of their own, oldest first out. */
#ifndef MILLRACE_DATAPLANE_TCP_TIME_WAIT_H
#define MILLRACE_DATAPLANE_TCP_TIME_WAIT_H

#include "dataplane/tcp/engine.h"

struct time_wait {
    struct tuple tuple;
    uint32_t rcv_nxt, snd_nxt;
    uint32_t ts_recent, ts_offset;
    uint16_t window; /* as it would stand in the header */
    bool ts;
    struct list_node fifo;
    uint64_t until;
    uint64_t ack_at; /* last ACK sent */
};

static_assert(sizeof(struct time_wait) <= 128, "TIME_WAIT connections are small");

/* Best effort: without memory the connection just ends. The tuple must be in no table. */
void time_wait_add(struct tcp *t, const struct tcb *tcb);
enum tcp_drop time_wait_input(struct tcp *t, struct time_wait *w, struct segment *seg);
void time_wait_on_timer(struct timer *timer, uint64_t now);
void time_wait_free(struct tcp *t, struct time_wait *w);

#endif
