/* The mbuf pool's marks, and what each connection may hold of it. */
#include "dataplane/tcp/engine.h"

/* Mbufs that a connection may always hold while there are any: a window of one segment works, and
 * its ACK isn't a delayed one. */
#define SHARE_MIN 4

/* Parts of what is free above the low mark. Windows ask for less than is granted, since one once
 * given is never taken back: what was promised in better times is refused only at the last. */
#define SHARE_WANT 64
#define SHARE_MOST 16

static enum tcp_memory memory_of(uint32_t left, uint32_t low)
{
    if (left >= low)
        return TCP_MEMORY_PLENTY;
    if (left >= low / 2)
        return TCP_MEMORY_LOW;
    return left >= low / 4 ? TCP_MEMORY_NONE : TCP_MEMORY_EMPTY;
}

static struct tcp_share share_of(enum tcp_memory memory, uint32_t left, uint32_t low)
{
    if (memory >= TCP_MEMORY_NONE)
        return (struct tcp_share){.want = 0, .most = 0};
    uint32_t above = left > low ? left - low : 0;
    return (struct tcp_share){
        .want = above / SHARE_WANT + SHARE_MIN,
        .most = above / SHARE_MOST + SHARE_MIN,
    };
}

/* How many this core may take and still be right about what is left, when each segment costs it
 * and every other core up to four: its own, a copy, an ACK, an answer. */
static uint32_t good_for(const struct tcp *t, uint32_t left, uint32_t low)
{
    uint32_t edge = left > low ? low : low / 4;
    return left > edge ? (left - edge) / (4u * t->o.cores) : 0;
}

void tcp_memory_count(struct tcp *t)
{
    uint32_t low = t->o.mbuf_low;
    if (!low) {
        t->memory_ = TCP_MEMORY_PLENTY;
        t->share_ = (struct tcp_share){UINT32_MAX, UINT32_MAX};
        t->memory_good_ = UINT32_MAX;
        t->memory_at_ = NEVER;
        return;
    }
    uint32_t left = rope_mbufs_left(t->o.mbufs);
    t->memory_ = memory_of(left, low);
    t->share_ = share_of(t->memory_, left, low);
    t->memory_good_ = good_for(t, left, low);
    t->memory_at_ = tcp_now(t) + MS;
}
