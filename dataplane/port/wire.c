#include "dataplane/port/wire.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include <rte_ether.h>
#include <rte_mbuf.h>

#include "dataplane/net/netif.h"
#include "dataplane/port/wire_frame.h"
#include "runtime/rng.h"

#define WIRE_DEFAULT_RX_RING 1024
#define WIRE_DEFAULT_TX_RING 512
#define WIRE_MIN_FRAME       60 /* without the checksum behind it */
#define WIRE_LATE_NS         1000000ull

/* Frames that have arrived, or mbufs that are being sent. */
struct mbuf_fifo {
    struct rte_mbuf **ring;
    uint16_t head, n, size;
};

struct wire_end {
    struct port base;
    struct wire *w;
    unsigned index;
    struct rte_ether_addr mac;
    struct rte_mempool *pool;
    struct wire_path path;
    struct mbuf_fifo rx[WIRE_MAX_QUEUES];
    uint16_t tx_held[WIRE_MAX_QUEUES];
    uint64_t line_free;    /* when the bottleneck has sent what it has */
    uint64_t last_arrival; /* of what keeps the order */
    uint32_t queued;       /* in front of the bottleneck */
    struct port_counters counters;
};

enum wire_event_kind { WIRE_COMPLETE, WIRE_DEPART, WIRE_DELIVER };

/* Something due at a time; ties go by the order in which they were made. */
struct wire_event {
    uint64_t due, order;
    enum wire_event_kind kind;
    uint16_t end, queue;
    union {
        struct wire_frame *frame; /* WIRE_DELIVER: owned */
        struct wire_held *held;   /* WIRE_COMPLETE: owned */
    };
};

struct wire {
    uint64_t now, order;
    struct rng rng;
    uint16_t nends, nqueues, mtu, tx_ring;
    uint64_t complete_ns;
    uint32_t offloads;
    bool pad;
    wire_tap tap;
    void *tap_ctx;
    struct wire_end ends[WIRE_MAX_ENDS];
    struct wire_event *heap;
    size_t nevents, heap_size;
};

/* --- What is due: a binary heap -------------------------------------------------------------- */

static bool is_before(const struct wire_event *a, const struct wire_event *b)
{
    return a->due != b->due ? a->due < b->due : a->order < b->order;
}

static void heap_push(struct wire *w, struct wire_event ev)
{
    if (w->nevents == w->heap_size) {
        w->heap_size = w->heap_size ? w->heap_size * 2 : 256;
        w->heap = realloc(w->heap, w->heap_size * sizeof(*w->heap));
        if (!w->heap)
            abort();
    }
    ev.order = w->order++;
    size_t i = w->nevents++;
    for (; i > 0 && is_before(&ev, &w->heap[(i - 1) / 2]); i = (i - 1) / 2)
        w->heap[i] = w->heap[(i - 1) / 2];
    w->heap[i] = ev;
}

static struct wire_event heap_pop(struct wire *w)
{
    struct wire_event top = w->heap[0], last = w->heap[--w->nevents];
    size_t i = 0;
    for (;;) {
        size_t child = 2 * i + 1;
        if (child >= w->nevents)
            break;
        if (child + 1 < w->nevents && is_before(&w->heap[child + 1], &w->heap[child]))
            child++;
        if (!is_before(&w->heap[child], &last))
            break;
        w->heap[i] = w->heap[child];
        i = child;
    }
    w->heap[i] = last;
    return top;
}

static void tell(const struct wire *w, unsigned end, const struct wire_frame *f, unsigned fate)
{
    if (w->tap)
        w->tap(w->tap_ctx, end, w->now, f->bytes, f->len, fate);
}

/* --- Sending --------------------------------------------------------------------------------- */

/* What the path does to one frame. Drawn in full for each, so that a changed rate doesn't change
 * what the others decide. */
struct fortune {
    bool lost, reordered, duplicated, corrupt, misrouted;
    uint64_t jitter, late;
    uint64_t flips, route; /* seeds of their own */
};

static uint64_t draw_below(struct rng *r, uint64_t n)
{
    uint64_t x = rng_next(r);
    return n ? x % n : 0;
}

static struct fortune draw_fortune(struct rng *r, const struct wire_path *p)
{
    struct fortune f;
    uint64_t late = p->reorder_ns ? p->reorder_ns : p->delay_ns + WIRE_LATE_NS;
    f.lost = rng_chance(r, p->loss_ppm);
    f.reordered = rng_chance(r, p->reorder_ppm);
    f.duplicated = rng_chance(r, p->duplicate_ppm);
    f.corrupt = rng_chance(r, p->corrupt_ppm);
    f.misrouted = rng_chance(r, p->misroute_ppm);
    f.jitter = draw_below(r, p->jitter_ns + 1);
    f.late = 1 + draw_below(r, late);
    f.flips = rng_next(r);
    f.route = rng_next(r);
    return f;
}

static void corrupt(struct wire_frame *f, uint64_t seed)
{
    struct rng r = {seed};
    uint32_t behind = f->len - RTE_ETHER_HDR_LEN;
    if (f->len <= RTE_ETHER_HDR_LEN)
        return;
    /* More than one byte could cancel out in a 16-bit sum, which no stack can notice; Ethernet's
     * own check, which would, isn't part of the wire. */
    f->bytes[RTE_ETHER_HDR_LEN + rng_below(&r, behind)] ^= (uint8_t)(1 + rng_below(&r, 255));
}

/* Time at the far side of the bottleneck; false: its queue is full. */
static bool pass_bottleneck(struct wire_end *e, uint32_t len, uint64_t *ret_departure)
{
    struct wire *w = e->w;
    *ret_departure = w->now;
    if (!e->path.rate_bps)
        return true;
    if (e->path.queue_packets && e->queued >= e->path.queue_packets)
        return false;
    uint64_t start = RTE_MAX(e->line_free, w->now);
    e->line_free = start + (uint64_t)len * 8 * 1000000000ull / e->path.rate_bps;
    e->queued++;
    heap_push(w, (struct wire_event){
                     .due = e->line_free, .kind = WIRE_DEPART, .end = (uint16_t)e->index});
    *ret_departure = e->line_free;
    return true;
}

static void deliver_later(struct wire *w, unsigned to, const struct wire_frame *f, uint64_t due,
                          const struct fortune *luck)
{
    uint64_t hash = luck->misrouted ? luck->route : wire_frame_flow_hash(f);
    heap_push(w, (struct wire_event){.due = due,
                                     .kind = WIRE_DELIVER,
                                     .end = (uint16_t)to,
                                     .queue = (uint16_t)(hash % w->nqueues),
                                     .frame = wire_frame_copy(f)});
}

/* To the one it is for, or to all others. False: to nobody. */
static bool deliver_to_all(struct wire_end *from, const struct wire_frame *f, uint64_t due,
                           const struct fortune *luck)
{
    struct wire *w = from->w;
    const struct rte_ether_addr *dst = (const struct rte_ether_addr *)f->bytes;
    bool any = false;
    for (unsigned i = 0; i < w->nends; i++) {
        bool wanted =
            rte_is_multicast_ether_addr(dst) || rte_is_same_ether_addr(dst, &w->ends[i].mac);
        if (i == from->index || !wanted)
            continue;
        deliver_later(w, i, f, due, luck);
        any = true;
    }
    return any;
}

/* Decides the frame's fate and puts it on its way. */
static void put_on_wire(struct wire_end *e, struct wire_frame *f)
{
    struct wire *w = e->w;
    struct fortune luck = draw_fortune(&w->rng, &e->path);
    uint64_t departure;
    unsigned fate = WIRE_SENT;
    if (luck.lost) {
        tell(w, e->index, f, WIRE_LOST);
        return;
    }
    if (!pass_bottleneck(e, f->len, &departure)) {
        tell(w, e->index, f, WIRE_OVERFLOW);
        return;
    }
    uint64_t due = RTE_MAX(departure + e->path.delay_ns + luck.jitter, e->last_arrival);
    if (luck.reordered) {
        due += luck.late;
        fate |= WIRE_REORDERED;
    } else {
        e->last_arrival = due;
    }
    /* The duplicate first: what went bad on one way may have been good on the other. */
    if (luck.duplicated && deliver_to_all(e, f, due + luck.late, &luck))
        tell(w, e->index, f, fate | WIRE_DUPLICATE);
    if (luck.corrupt) {
        corrupt(f, luck.flips);
        fate |= WIRE_CORRUPT;
    }
    tell(w, e->index, f, deliver_to_all(e, f, due, &luck) ? fate : WIRE_NO_PORT);
}

static void check_sendable(const struct wire *w, const struct rte_mbuf *m)
{
    assert(rte_mbuf_refcnt_read(m) >= 1);
    assert(RTE_MBUF_DIRECT(m));
    assert(m->nb_segs == 1 && !m->next && m->data_len == m->pkt_len);
    assert(m->pkt_len >= RTE_ETHER_HDR_LEN);
    assert(m->pkt_len <= (uint32_t)w->mtu + RTE_ETHER_HDR_LEN);
    (void)w, (void)m;
}

static void send_one(struct wire_end *e, uint16_t queue, struct rte_mbuf *m)
{
    struct wire *w = e->w;
    check_sendable(w, m);
    struct wire_frame *f = wire_frame_of(m, w->pad ? WIRE_MIN_FRAME : 0);
    wire_frame_tx_offload(f, m, w->offloads);
    e->counters.tx_packets++;
    e->counters.tx_bytes += m->pkt_len;
    e->tx_held[queue]++;
    heap_push(w, (struct wire_event){.due = w->now + w->complete_ns,
                                     .kind = WIRE_COMPLETE,
                                     .end = (uint16_t)e->index,
                                     .queue = queue,
                                     .held = wire_held_new(m)});
    put_on_wire(e, f);
    free(f);
}

static uint16_t wire_tx_burst(struct port *p, uint16_t queue, struct rte_mbuf **pkts, uint16_t n)
{
    struct wire_end *e = (struct wire_end *)p;
    uint16_t sent = 0;
    assert(queue < e->w->nqueues);
    while (sent < n && e->tx_held[queue] < e->w->tx_ring)
        send_one(e, queue, pkts[sent++]);
    e->counters.tx_full += (uint64_t)(n - sent);
    return sent;
}

/* --- Arriving -------------------------------------------------------------------------------- */

static struct rte_mbuf *mbuf_of(const struct wire_end *e, const struct wire_frame *f)
{
    struct rte_mbuf *m = rte_pktmbuf_alloc(e->pool);
    char *to = m ? rte_pktmbuf_append(m, (uint16_t)f->len) : NULL;
    if (!to) {
        rte_pktmbuf_free(m);
        return NULL;
    }
    memcpy(to, f->bytes, f->len);
    m->port = (uint16_t)e->index;
    wire_frame_rx_offload(f, m, e->w->offloads);
    return m;
}

static void arrive(struct wire_end *e, uint16_t queue, const struct wire_frame *f)
{
    struct mbuf_fifo *q = &e->rx[queue];
    struct rte_mbuf *m = NULL;
    if (q->n == q->size)
        e->counters.rx_missed++;
    else if (!(m = mbuf_of(e, f)))
        e->counters.no_mbuf++;
    tell(e->w, e->index, f, m ? WIRE_ARRIVED : WIRE_MISSED);
    if (m)
        q->ring[(q->head + q->n++) % q->size] = m;
}

static uint16_t wire_rx_burst(struct port *p, uint16_t queue, struct rte_mbuf **pkts, uint16_t n)
{
    struct wire_end *e = (struct wire_end *)p;
    struct mbuf_fifo *q = &e->rx[queue];
    uint16_t got = 0;
    assert(queue < e->w->nqueues);
    for (; got < n && q->n > 0; got++, q->n--) {
        pkts[got] = q->ring[q->head];
        q->head = (uint16_t)((q->head + 1) % q->size);
        e->counters.rx_packets++;
        e->counters.rx_bytes += pkts[got]->pkt_len;
    }
    return got;
}

/* --- The port -------------------------------------------------------------------------------- */

static unsigned wire_sleep_fds(struct port *p, uint16_t queue, int *ret_fds, unsigned max)
{
    (void)p, (void)queue, (void)ret_fds, (void)max;
    return 0;
}

static void wire_info(const struct port *p, struct port_info *ret_info)
{
    const struct wire_end *e = (const struct wire_end *)p;
    *ret_info = (struct port_info){.mac = e->mac,
                                   .mtu = e->w->mtu,
                                   .queues = e->w->nqueues,
                                   .offloads = e->w->offloads,
                                   .driver = "wire"};
}

static void wire_counters(const struct port *p, struct port_counters *ret_counters)
{
    *ret_counters = ((const struct wire_end *)p)->counters;
}

static void wire_close(struct port *p)
{
    (void)p;
}

static const struct port_ops wire_ops = {
    .name = "wire",
    .rx_burst = wire_rx_burst,
    .tx_burst = wire_tx_burst,
    .sleep_fds = wire_sleep_fds,
    .info = wire_info,
    .counters = wire_counters,
    .close = wire_close,
};

/* --- The wire -------------------------------------------------------------------------------- */

static void end_init(struct wire *w, unsigned index, const struct wire_opts *o)
{
    struct wire_end *e = &w->ends[index];
    *e = (struct wire_end){.base.ops = &wire_ops,
                           .w = w,
                           .index = index,
                           .mac = {{0x02, 0, 0, 0, 0, (uint8_t)(index + 1)}},
                           .pool = o->pools[index],
                           .path = o->path};
    for (unsigned q = 0; q < o->queues; q++) {
        e->rx[q].size = o->rx_ring ? o->rx_ring : WIRE_DEFAULT_RX_RING;
        e->rx[q].ring = calloc(e->rx[q].size, sizeof(*e->rx[q].ring));
        if (!e->rx[q].ring)
            abort();
    }
}

struct wire *wire_new(const struct wire_opts *o)
{
    assert(o->ends >= 2 && o->ends <= WIRE_MAX_ENDS);
    assert(o->queues >= 1 && o->queues <= WIRE_MAX_QUEUES);
    assert(!(o->offloads & NETIF_TX_MULTI_SEGS));
    struct wire *w = calloc(1, sizeof(*w));
    if (!w)
        return NULL;
    w->now = o->now;
    w->rng.state = o->seed;
    w->nends = o->ends;
    w->nqueues = o->queues;
    w->mtu = o->mtu ? o->mtu : RTE_ETHER_MTU;
    w->tx_ring = o->tx_ring ? o->tx_ring : WIRE_DEFAULT_TX_RING;
    w->complete_ns = o->complete_ns;
    w->offloads = o->offloads;
    w->pad = o->pad;
    w->tap = o->tap;
    w->tap_ctx = o->tap_ctx;
    for (unsigned i = 0; i < o->ends; i++)
        end_init(w, i, o);
    return w;
}

static void event_drop(struct wire_event *ev)
{
    if (ev->kind == WIRE_COMPLETE)
        wire_held_release(ev->held);
    else if (ev->kind == WIRE_DELIVER)
        free(ev->frame);
}

void wire_free(struct wire *w)
{
    if (!w)
        return;
    for (size_t i = 0; i < w->nevents; i++)
        event_drop(&w->heap[i]);
    for (unsigned i = 0; i < w->nends; i++) {
        for (unsigned q = 0; q < w->nqueues; q++) {
            struct mbuf_fifo *rx = &w->ends[i].rx[q];
            for (; rx->n > 0; rx->n--, rx->head = (uint16_t)((rx->head + 1) % rx->size))
                rte_pktmbuf_free(rx->ring[rx->head]);
            free(rx->ring);
        }
    }
    free(w->heap);
    free(w);
}

struct port *wire_port(struct wire *w, unsigned end)
{
    assert(end < w->nends);
    return &w->ends[end].base;
}

void wire_set_path(struct wire *w, unsigned end, const struct wire_path *path)
{
    assert(end < w->nends);
    w->ends[end].path = *path;
}

static void happen(struct wire *w, struct wire_event *ev)
{
    struct wire_end *e = &w->ends[ev->end];
    switch (ev->kind) {
    case WIRE_COMPLETE:
        e->tx_held[ev->queue]--;
        break;
    case WIRE_DEPART:
        e->queued--;
        break;
    case WIRE_DELIVER:
        /* clang's analyzer doesn't see that no two events share a frame. */
        arrive(e, ev->queue, ev->frame); /* NOLINT(clang-analyzer-unix.Malloc) */
        break;
    }
    event_drop(ev);
}

void wire_advance(struct wire *w, uint64_t now)
{
    assert(now >= w->now);
    while (w->nevents > 0 && w->heap[0].due <= now) {
        struct wire_event ev = heap_pop(w);
        w->now = RTE_MAX(w->now, ev.due);
        happen(w, &ev);
    }
    w->now = now;
}

uint64_t wire_next_timeout(const struct wire *w)
{
    return w->nevents > 0 ? w->heap[0].due : UINT64_MAX;
}

unsigned wire_rx_pending(const struct wire *w, unsigned end)
{
    unsigned n = 0;
    for (unsigned q = 0; q < w->nqueues; q++)
        n += w->ends[end].rx[q].n;
    return n;
}
