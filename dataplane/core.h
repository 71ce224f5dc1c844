/* One core: the run-to-completion loop and everything it owns. The only place that sees every
 * layer.
 *
 * One pass: rx_burst → net → tcp → wakes → mailbox → timers → tasks → tcp_flush → tx_flush →
 * quiescent.
 *
 * Life: core_new() on the set-up thread, core_run() on the core's own thread (it pins itself and
 * registers with the EAL), core_free() on the set-up thread after core_run() has returned. For
 * tests and the simulator core_pass() runs one pass with a given `now` instead of core_run().
 */
#ifndef MILLRACE_DATAPLANE_CORE_H
#define MILLRACE_DATAPLANE_CORE_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "config/snapshot.h"
#include "dataplane/messages.h"
#include "dataplane/port/port.h"
#include "runtime/mailbox.h"

struct core;
struct sampler;
struct stall_ring;
struct access_ring;  /* proxy/access_log.h */
struct limit_table;  /* route/limit.h */
struct tls_registry; /* tls/registry.h */
struct blocking;

/* Classes of the blocking pool's jobs. */
enum core_jobs { CORE_JOBS_HANDSHAKE, CORE_JOBS_COUNT };

/* What the cores of one process share: built by control, read-only but for the atomics. */
struct core_shared {
    unsigned ncores;
    struct core **cores;
    _Atomic(struct snapshot *) snapshot; /* the newest; release by control, acquire by cores */
    atomic_uint drained; /* cores with nothing of their own left; they end together (relaxed) */
    atomic_int_fast64_t wall_offset; /* CLOCK_REALTIME - CLOCK_MONOTONIC, ns; control, each s */
    uint8_t secret[16];
    struct rte_mempool *mbufs;
    struct sampler *sampler;             /* runtime/sampler.h; NULL: none watches */
    struct upstream_registry *upstreams; /* control's; core_prepare() makes it */
    struct limit_table *limits;          /* of clients; NULL: none hold */
    struct tls_registry *tls;            /* control's; core_prepare() makes it */
    struct blocking *pool;               /* NULL: its jobs are run in place */
};

struct core_opts {
    unsigned index, cpu;
    struct core_shared *shared;
    struct port **ports; /* all ports; queue `index` of each is this core's (if it has so many) */
    unsigned nports;
    uint64_t seed;
    uint64_t now;
    bool virtual_clock;
    bool busy; /* poll: busy */
    uint32_t handoff_size;
};

/* Control's thread. Connects `s` with what the cores share, and makes a prepared one, whose version
 * is set, what they work by. core_prepare(): 0, -ENOMEM or -EINVAL (files of certificates), with
 * one line in err; `ncores` is set; harmless if `s` is not published after all; may block. */
int core_prepare(struct core_shared *shared, struct snapshot *s, char *err, size_t err_len);
void core_publish(struct core_shared *shared, struct snapshot *s);
/* Now and then: lets go of what cores no longer work by, keys among it. */
void core_tidy(struct core_shared *shared);
/* New sessions get tickets by a new key. 0 or -errno: the old one goes on. */
int core_rotate_tickets(struct core_shared *shared);
/* After the last core_free(). */
void core_shared_fini(struct core_shared *shared);

struct core *core_new(const struct core_opts *o); /* NULL: no memory */
void core_free(struct core *c);

/* Until CORE_MSG_STOP, or all cores are drained. Core's own thread. */
void core_run(struct core *c);

/* One pass at `now`; true if anything was done. */
bool core_pass(struct core *c, uint64_t now);
uint64_t core_next_timeout(const struct core *c);

/* Any thread. */
void core_post(struct core *c, struct core_msg *m);

/* Newest snapshot version this core works by (any thread, acquire). */
uint64_t core_acked_version(const struct core *c);
/* True when this core holds no pin of versions up to and including `version` (any thread). */
bool core_has_released(const struct core *c, uint64_t version);

/* Passes so far, for the watchdog (any thread, relaxed). A sleeping core wakes at least once a
 * second, so a count that stands still for two means a core that is stuck. */
uint64_t core_passes(const struct core *c);

/* The kind of task that is polled now, "pass" in a pass between polls, NULL between passes (any
 * thread; it may have changed since). */
const char *core_activity(const struct core *c);

/* Its polls that took too long (any thread). */
const struct stall_ring *core_stalls(const struct core *c);

/* Records for the access log; the log thread is the only consumer. */
struct access_ring *core_access_ring(struct core *c);

/* The core's mailbox: blocking pool completions and wakes from elsewhere. */
struct mailbox *core_mailbox(struct core *c);

#endif
