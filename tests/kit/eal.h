/* DPDK for tests: an EAL without huge pages, root or devices, and mbuf pools that notice mistakes.
 */
#ifndef MILLRACE_TESTS_KIT_EAL_H
#define MILLRACE_TESTS_KIT_EAL_H

#include <rte_mbuf.h>
#include <rte_mempool.h>

/* Starts the EAL once per process (about 0.3 s); later calls are free. Exits the test on failure.
 */
void kit_eal_init(void);

/* A pool without caches whose puts poison the buffer and the mbuf, so that use after free shows as
 * garbage (and under ASan as an error), and double frees abort. priv_size 0, 2176-byte data rooms.
 */
struct rte_mempool *kit_pool_new(unsigned n);

/* The stock kind, for benchmarks: nothing is poisoned. Free it with rte_mempool_free(). */
struct rte_mempool *kit_pool_new_plain(unsigned n);

/* Fails the process (abort) with a message if any mbuf is still out. */
void kit_pool_free(struct rte_mempool *mp);

/* Mbufs now in use. */
unsigned kit_pool_used(struct rte_mempool *mp);

#endif
