/* The data plane of one process, from set-up to the last joined thread: EAL, mbuf pool, ports,
 * cores and their threads. Control's only way in, beside core.h and messages.h.
 *
 * Life: engine_start() once per process (the EAL can't be initialised twice), then messages to the
 * cores, then engine_stop(). The caller's CPU affinity is the same after engine_start() as before.
 *
 * Thread: set-up and control thread; may block. The log call may come from any thread.
 */
#ifndef MILLRACE_DATAPLANE_ENGINE_H
#define MILLRACE_DATAPLANE_ENGINE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "config/snapshot.h"
#include "dataplane/core.h"

struct engine;

struct engine_opts {
    /* One line without a newline from DPDK, libbpf or the engine itself; `source` is "dpdk",
     * "xdp", "engine" or a port's name. Must not block for long. May be NULL. */
    void (*log)(void *ctx, enum config_log_level level, const char *source, const char *line);
    /* A core's thread has left its loop: drained, or told to stop. Called on that thread: set an
     * atomic and wake a loop, no more. May be NULL. */
    void (*on_core_exit)(void *ctx, unsigned index);
    void *ctx;
    uint64_t seed; /* 0: from the kernel */
};

/* Starts everything as `s` says and publishes it to the cores as the first snapshot; the snapshot
 * stays the caller's and must live until a newer one has been acknowledged or the engine has
 * stopped. 0, or -errno with one line in err that says what is wrong and what to do; a failure
 * leaves nothing behind on the host. */
int engine_start(struct snapshot *s, const struct engine_opts *o, struct engine **ret_engine,
                 char *err, size_t err_len);

/* Stops the cores that still run (what they hold is aborted), joins their threads, closes the ports
 * and frees. A core that does not answer within `timeout_ms` is left behind together with all that
 * it may touch, and the result is -ETIMEDOUT: the process should exit. */
int engine_stop(struct engine *e, unsigned timeout_ms);

struct core_shared *engine_shared(struct engine *e);
unsigned engine_ncores(const struct engine *e);
struct core *engine_core(struct engine *e, unsigned index);
unsigned engine_core_cpu(const struct engine *e, unsigned index);

/* False once the core's thread has left its loop (acquire). Messages posted to it afterwards are
 * never finished. */
bool engine_core_is_running(const struct engine *e, unsigned index);

unsigned engine_nports(const struct engine *e);
void engine_port_info(const struct engine *e, unsigned index, struct port_info *ret_info);
/* Of the whole port. Control's thread; may be a few system calls. */
void engine_port_counters(const struct engine *e, unsigned index, struct port_counters *ret);

/* "22.11.11", for `millrace version`. */
const char *engine_dpdk_version(void);

/* The pool for what is too long for a core; its classes are enum core_jobs. */
struct blocking *engine_pool(struct engine *e);

/* What a configuration costs in memory, without starting anything. */
struct engine_cost {
    char what[96];        /* "mbuf pool", "connections of core 0" … */
    char setting[64];     /* the key that changes it: "runtime.connections" */
    uint64_t count, each; /* bytes each */
};
#define ENGINE_MAX_COSTS 40 /* two a port, and some */

/* Fills costs[0..return value). */
unsigned engine_costs(const struct snapshot *s, struct engine_cost costs[ENGINE_MAX_COSTS]);

#endif
