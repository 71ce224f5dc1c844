/* A small world on virtual time: a client host and an origin host with stacks of their own, and the
 * proxy's real cores between them, on one simulated wire. For tests/flow and tests/sim.
 *
 *   client 10.9.0.3, 10.9.0.4   proxy 10.9.0.1   origin 10.9.0.2    (all /24, on one wire)
 *
 * Nothing sleeps: world_run() jumps from one event to the next.
 */
#ifndef MILLRACE_TESTS_KIT_WORLD_H
#define MILLRACE_TESTS_KIT_WORLD_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "config/snapshot.h"
#include "dataplane/core.h"
#include "dataplane/port/wire.h"
#include "dataplane/stream/rope.h"
#include "dataplane/stream/stream.h"
#include "dataplane/tcp/tcp.h"
#include "runtime/sched.h"

#define WORLD_CLIENT    "10.9.0.3"
#define WORLD_OTHER     "10.9.0.4" /* of the client's host, too */
#define WORLD_PROXY     "10.9.0.1"
#define WORLD_ORIGIN    "10.9.0.2"
#define WORLD_MS        1000000ull
#define WORLD_S         1000000000ull
#define WORLD_MAX_CORES 4
#define WORLD_MAX_OLD   8

struct host {
    struct sched sched;
    struct rope_pool ropes;
    struct rte_mempool *mbufs;
    struct net *net;
    struct tcp *tcp;
    struct netif nif;
    struct port *port;
    struct world *world;
};

/* One end of a connection in a test's hands. What arrives is gathered in rx; what is sent goes out
 * as the window allows. Lives until the world ends. */
struct peer {
    struct task task;
    struct list_node node;    /* world.peers */
    struct list_node waiting; /* world.accepted, until world_accept() */
    struct host *host;
    struct stream *stream; /* NULL once closed or dead */
    struct rope out;
    char *rx; /* NUL-terminated */
    size_t rx_len, rx_cap, taken;
    bool eof; /* the other side has sent FIN */
    int err;  /* what the stream died of, 0 */
    bool connected;
    bool paused;     /* doesn't read: its window closes */
    bool shut;       /* FIN after `out` */
    bool count_only; /* rx keeps no bytes, rx_len counts and rx_sum sums them up */
    uint64_t rx_sum;
    uint16_t port; /* of the listener that accepted it */
    void *user;
};

struct world_opts {
    const char *yaml;
    uint64_t seed;
    unsigned cores; /* 0: 1 */
    struct wire_path path;
    unsigned mbufs;        /* a pool; 0: 4095 */
    unsigned proxy_mbufs;  /* of the proxy's pool; 0: as `mbufs` */
    bool plain;            /* for benchmarks: stock pools, no transcript; don't world_free() it */
    uint32_t misroute_ppm; /* frames that reach the wrong core's queue */
    struct blocking *pool; /* for the cores, of the test's own; NULL: jobs are run in place */
};

struct blocking;
struct health;

#define WORLD_MAX_PORTS 16

struct world {
    uint64_t now, seed;
    struct wire *wire;
    struct rte_mempool *pools[3];
    struct host client, origin;
    struct snapshot *snapshot;           /* the newest */
    struct snapshot *old[WORLD_MAX_OLD]; /* oldest first */
    unsigned nold;
    struct core_shared shared;
    struct core *cores[WORLD_MAX_CORES];
    struct core *core_table[WORLD_MAX_CORES];
    struct health *health; /* control's part in what is known of endpoints; NULL: plain */
    uint64_t health_due;
    struct tcp_listener *listeners[WORLD_MAX_PORTS]; /* the origin's */
    uint16_t ports[WORLD_MAX_PORTS];
    struct list_node peers, accepted;
    char *transcript; /* ring of text lines of what was on the wire */
    size_t transcript_at;
    bool transcript_full;
    uint64_t core_tsc; /* cycles spent in the cores' passes */
};

/* Fails the test (cmocka) when the configuration is bad or memory is short. */
struct world *world_new(const struct world_opts *o);

/* Closes what is left, checks that nothing is left over (connections, tasks, timers, mbufs) and
 * frees. */
void world_free(struct world *w);

/* Replaces the configuration as control would, listeners that drain included. */
void world_reload(struct world *w, const char *yaml);
/* The same, but doesn't wait for the cores to take it; theirs are freed when they have. */
void world_publish(struct world *w, const char *yaml);
/* Versions that a core may still work by, the newest not counted. */
unsigned world_old_versions(struct world *w);

/* Until `done` says so; false when `limit` ns went by first. */
bool world_run(struct world *w, bool (*done)(void *ctx), void *ctx, uint64_t limit);
/* For that long. */
void world_sleep(struct world *w, uint64_t ns);
/* Until nothing is going on but keepalives and idle timers: no frame on the wire, nothing runnable,
 * for 50 ms. */
void world_settle(struct world *w);

/* Prints the last frames on the wire to stderr. */
void world_dump(struct world *w);

/* The origin accepts connections on `port`, or refuses them again (those that are open live on). */
void world_listen(struct world *w, uint16_t port);
void world_unlisten(struct world *w, uint16_t port);

/* From the client's host to the proxy. */
struct peer *world_connect(struct world *w, uint16_t port);
struct peer *world_connect_from(struct world *w, uint16_t port, const char *addr);
/* The next connection that the origin accepted, within 10 s; fails the test without one. */
struct peer *world_accept(struct world *w);
/* NULL when none comes within `ns`. */
struct peer *world_accept_within(struct world *w, uint64_t ns);

void peer_send(struct peer *p, const void *data, size_t len);
void peer_say(struct peer *p, const char *text);
void peer_shutdown(struct peer *p);
void peer_close(struct peer *p);
void peer_abort(struct peer *p);
void peer_pause(struct peer *p, bool paused);

/* Runs until exactly `text` (not yet taken) has arrived; fails the test with both texts and the
 * transcript when something else did or 30 s went by. */
void peer_expect(struct peer *p, const char *text);
/* Runs until the bytes not yet taken contain `text`, and takes all up to its end; returns what was
 * taken (valid until the next call). */
const char *peer_expect_through(struct peer *p, const char *text);
void peer_expect_bytes(struct peer *p, size_t len);
/* Until FIN, or until death by `err`. */
void peer_expect_eof(struct peer *p);
void peer_expect_error(struct peer *p, int err);
/* Nothing arrives for `ns`. */
void peer_expect_silence(struct peer *p, uint64_t ns);

/* What the cores say of themselves, summed up. */
struct core_status *world_status(struct world *w);

#endif
