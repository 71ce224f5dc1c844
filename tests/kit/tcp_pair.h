/* Two stacks back to back on virtual time, over a link with delay, loss, reordering and duplication
 * from a seed, and endpoints that send a known pattern and check what they get. */
#ifndef MILLRACE_TESTS_KIT_TCP_PAIR_H
#define MILLRACE_TESTS_KIT_TCP_PAIR_H

#include <stdbool.h>
#include <stdint.h>

#include "dataplane/tcp/tcp.h"
#include "runtime/rng.h"
#include "runtime/sched.h"
#include "runtime/task.h"

#define PAIR_MS    1000000ull
#define PAIR_S     1000000000ull
#define PAIR_PORT  80
#define PAIR_TRACE 400 /* last lines of the transcript */

struct tcp_pair;

struct pair_frame {
    struct pair_frame *next;
    uint64_t at, order;
    unsigned to;
    uint32_t len;
    uint8_t bytes[];
};

struct pair_host {
    struct sched sched;
    struct rte_mempool *pool;
    struct rope_pool ropes;
    struct net *net;
    struct tcp *tcp;
    struct netif nif;
    struct tcp_listener *listener;
    struct tcp_pair *pair;
    unsigned index;
    struct rte_mbuf *sent[4096]; /* held as a driver would, until the next event */
    unsigned nsent;
};

struct pair_opts {
    uint64_t seed;
    unsigned mbufs; /* a pool; 0: 4095 */
    uint64_t delay_ns;
    uint32_t loss_ppm, reorder_ppm, dup_ppm;
    uint16_t mtu;           /* 0: 1500 */
    uint32_t offloads;      /* RX and TX checksums are then neither made nor checked */
    struct tcp_opts tcp[2]; /* buffers, timers, isn_offset; the rest is filled in */
};

/* One end of a connection: a task that writes `to_send` bytes of a pattern, reads what comes and
 * checks it, and then closes as told. */
struct pair_end {
    struct task task;
    struct sleep retry; /* when the pool is empty */
    struct tcp_pair *pair;
    struct pair_host *host;
    struct stream *s; /* NULL before and after */
    uint64_t seed;    /* of the pattern it sends; the peer checks against the other end's */
    uint64_t peer_seed;
    uint64_t to_send, sent, got;
    uint32_t chunk;    /* bytes a write; 0: 1460 */
    uint64_t read_max; /* stop reading after that many bytes; UINT64_MAX: never */
    bool shutdown;     /* FIN after to_send */
    bool close_at_eof; /* close when both directions are done */
    bool eof, connected, shut, closed;
    bool bad; /* a byte differed */
    int err;  /* what the stream died of */
    unsigned polls;
};

struct tcp_pair {
    struct pair_host host[2];
    uint64_t now, order;
    struct rng rng;
    struct pair_opts o;
    struct pair_frame *flying;
    bool cut; /* everything is lost */
    uint64_t frames;
    bool (*filter)(void *ctx, unsigned from, const uint8_t *frame, uint32_t len); /* true: lose */
    void *filter_ctx;
    struct pair_end a, b; /* a connects from host 0, b is accepted on host 1 */
    bool refuse;
    unsigned accepted;
    char trace[PAIR_TRACE][160];
    unsigned traced;
};

struct tcp_pair *pair_new(const struct pair_opts *o);
/* Ends what is left; checks that nothing has leaked: connections, timers, nodes, mbufs. */
void pair_free(struct tcp_pair *p);

void pair_listen(struct tcp_pair *p);
/* a connects to PAIR_PORT of host 1; 0 or the error. */
int pair_connect(struct tcp_pair *p);

/* One event. False when nothing will ever happen again. */
bool pair_step(struct tcp_pair *p);
/* Until done() or `ns` have gone by; false then. */
bool pair_run(struct tcp_pair *p, bool (*done)(struct tcp_pair *p), uint64_t ns);
void pair_sleep(struct tcp_pair *p, uint64_t ns);

bool pair_established(struct tcp_pair *p);
/* Both have got all that the other wanted to send, and closed. */
bool pair_all_closed(struct tcp_pair *p);
bool pair_all_received(struct tcp_pair *p);

/* Lets the end run again after a test has changed what it wants. */
void pair_kick(struct pair_end *e);
void pair_end_close(struct pair_end *e);
void pair_end_abort(struct pair_end *e);

/* True when this frame is a TCP segment; its fields (host order) and payload length. */
struct pair_segment {
    unsigned from;
    uint32_t seq, ack, len;
    uint16_t src_port, dst_port, window;
    uint8_t flags; /* as in the header */
};
bool pair_parse(unsigned from, const uint8_t *frame, uint32_t len, struct pair_segment *ret);

void pair_dump(const struct tcp_pair *p);

#endif
