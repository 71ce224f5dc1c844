/* RFC 5681 with RFC 6582's recovery and byte counting (RFC 3465). There is no limit per ACK in slow
 * start (L): receivers that take in bursts acknowledge many segments by one ACK. */
#include "dataplane/tcp/congestion.h"

#define CWND_MAX (1u << 30)

static uint32_t half_flight(uint32_t mss, uint32_t flight)
{
    return flight / 2 > 2 * mss ? flight / 2 : 2 * mss;
}

static void grow(struct congestion *c, uint32_t by)
{
    c->cwnd = c->cwnd + by < CWND_MAX ? c->cwnd + by : CWND_MAX;
}

static void newreno_init(struct congestion *c, uint32_t mss)
{
    c->cwnd = congestion_initial(mss);
    c->ssthresh = UINT32_MAX;
    c->acked_ = 0;
}

static void newreno_on_ack(struct congestion *c, uint32_t mss, uint32_t acked, uint32_t flight)
{
    /* A sender that doesn't fill the window learns nothing about the path from its ACKs. */
    if (flight < c->cwnd / 2)
        return;
    if (c->cwnd < c->ssthresh) {
        grow(c, acked);
        return;
    }
    c->acked_ += acked;
    if (c->acked_ >= c->cwnd) {
        c->acked_ -= c->cwnd;
        grow(c, mss);
    }
}

static void newreno_on_loss(struct congestion *c, uint32_t mss, uint32_t flight)
{
    c->ssthresh = half_flight(mss, flight);
    c->cwnd = c->ssthresh + 3 * mss;
    c->acked_ = 0;
}

static void newreno_on_dup_ack(struct congestion *c, uint32_t mss)
{
    grow(c, mss);
}

static void newreno_on_partial_ack(struct congestion *c, uint32_t mss, uint32_t acked)
{
    c->cwnd = c->cwnd > acked + mss ? c->cwnd - acked : mss;
    if (acked >= mss)
        grow(c, mss);
}

/* RFC 6582 §3.2 step 3, option 2: back to ssthresh, with the burst that this allows held to an
 * initial window. (Option 1's single segment leaves too few in flight to notice the next loss but
 * by a timeout.) */
static void newreno_on_recovered(struct congestion *c, uint32_t mss, uint32_t flight)
{
    uint32_t out = flight + congestion_initial(mss);
    c->cwnd = out < c->ssthresh ? out : c->ssthresh;
}

static void newreno_on_timeout(struct congestion *c, uint32_t mss, uint32_t flight, int again)
{
    if (!again)
        c->ssthresh = half_flight(mss, flight);
    c->cwnd = mss;
    c->acked_ = 0;
}

static void newreno_on_idle(struct congestion *c, uint32_t mss)
{
    uint32_t restart = congestion_initial(mss);
    if (c->cwnd > restart)
        c->cwnd = restart;
}

const struct congestion_ops congestion_newreno = {
    .name = "newreno",
    .init = newreno_init,
    .on_ack = newreno_on_ack,
    .on_loss = newreno_on_loss,
    .on_dup_ack = newreno_on_dup_ack,
    .on_partial_ack = newreno_on_partial_ack,
    .on_recovered = newreno_on_recovered,
    .on_timeout = newreno_on_timeout,
    .on_idle = newreno_on_idle,
};
