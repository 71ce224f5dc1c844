/* DPDK's environment: started once a process, before any port.
 *
 * Thread: eal_start(), eal_stop() and the pool functions belong to the set-up thread;
 * eal_thread_register() to the thread that registers. All may block.
 */
#ifndef MILLRACE_DATAPLANE_PORT_EAL_H
#define MILLRACE_DATAPLANE_PORT_EAL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <rte_mempool.h>

#include "config/snapshot.h"
#include "dataplane/port/port.h"

/* Of a pool's mbufs, what each core's cache is filled to; it may hold half as many again. Count it
 * when sizing a pool. */
#define EAL_MBUF_CACHE 256

struct eal_opts {
    uint64_t memory; /* bytes that all pools and tables need: the sum of eal_mbuf_pool_bytes() and
                        what else comes from rte_malloc; drivers' own needs are added */
    const struct config_port *ports; /* decides about PCI and huge pages */
    size_t nports;
    /* DPDK's, libbpf's and libxdp's output, one call a line, without the newline; may come from any
     * thread. NULL: thrown away. Must stay callable until the process ends. */
    void (*log)(void *ctx, enum config_log_level level, const char *line);
    void *log_ctx;
};

struct eal_info {
    bool huge_pages;
    char text[256]; /* one line for the log: which memory is used and why */
};

/* Starts the EAL; the calling thread's CPU affinity and signal mask are as before afterwards. Huge
 * pages are used when enough of them are free, ordinary memory otherwise (not with a pci port).
 * Leaves nothing on the host that outlives the process, however it ends. Needs root (CAP_NET_ADMIN)
 * when a port is configured. 0 or -errno with ret_error filled. One call a process: after a failure
 * the process can only end. */
int eal_start(const struct eal_opts *o, struct eal_info *ret_info, struct port_error *ret_error);

/* After every port is closed and every pool freed. */
void eal_stop(void);

/* Pins the calling thread to `cpu` and gives it a DPDK thread number (mempool caches, QSBR).
 * 0 or -errno. */
int eal_thread_register(unsigned cpu);
void eal_thread_unregister(void);

/* A pool of n mbufs with 2176-byte buffers (128 headroom + 2048) that every driver can use, AF_XDP
 * included: one dense stretch of memory. NULL with ret_error filled when memory is short. Free with
 * rte_mempool_free() after the ports that use it are closed. */
struct rte_mempool *eal_mbuf_pool_new(const char *name, uint32_t n, struct port_error *ret_error);

/* Memory that a pool of n takes. */
uint64_t eal_mbuf_pool_bytes(uint32_t n);

#endif
