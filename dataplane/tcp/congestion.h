/* Congestion control: what may be in flight. One algorithm is a const struct of functions; the
 * sender (ack.c, timers.c) tells it what happened and reads cwnd.
 *
 * All sizes in bytes. `flight` is what was sent and not yet acknowledged when the event happened.
 */
#ifndef MILLRACE_DATAPLANE_TCP_CONGESTION_H
#define MILLRACE_DATAPLANE_TCP_CONGESTION_H

#include <stdint.h>

struct congestion_ops;

struct congestion {
    const struct congestion_ops *ops;
    uint32_t cwnd;
    uint32_t ssthresh;
    uint32_t acked_; /* since cwnd last grew in congestion avoidance (RFC 3465) */
};

struct congestion_ops {
    const char *name;
    void (*init)(struct congestion *c, uint32_t mss);
    /* New data acknowledged outside of recovery; `flight` is what was out when the sender had last
     * sent all it could. */
    void (*on_ack)(struct congestion *c, uint32_t mss, uint32_t acked, uint32_t flight);
    /* Third duplicate ACK: a segment is taken for lost, recovery starts. */
    void (*on_loss)(struct congestion *c, uint32_t mss, uint32_t flight);
    /* One more duplicate ACK in recovery: another segment has left the network. */
    void (*on_dup_ack)(struct congestion *c, uint32_t mss);
    /* An ACK in recovery that moves on but leaves a hole. */
    void (*on_partial_ack)(struct congestion *c, uint32_t mss, uint32_t acked);
    /* Recovery ends; `flight` is what is still out. */
    void (*on_recovered)(struct congestion *c, uint32_t mss, uint32_t flight);
    /* The retransmission timer fired; `again` when it is not the first time for this loss. */
    void (*on_timeout)(struct congestion *c, uint32_t mss, uint32_t flight, int again);
    /* About to send after more than an RTO of silence (RFC 5681 §4.1). */
    void (*on_idle)(struct congestion *c, uint32_t mss);
};

extern const struct congestion_ops congestion_newreno;

/* Initial window (RFC 6928). */
static inline uint32_t congestion_initial(uint32_t mss)
{
    uint32_t floor = 2 * mss > 14600 ? 2 * mss : 14600;
    return 10 * mss < floor ? 10 * mss : floor;
}

#endif
