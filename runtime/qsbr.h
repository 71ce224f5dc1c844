/* When does nobody hold something old any more: the quiescent states of a set of threads.
 *
 * A reader thread (a core) takes an id. While it is online it may hold what it read from shared
 * pointers; once a pass, between two passes, it says that it holds nothing
 * (rte_rcu_qsbr_quiescent()), and goes offline before it sleeps, so that a sleeper holds up nobody:
 *
 *     rte_rcu_qsbr_thread_online(v, id);
 *     for (;;) {
 *         pass();                              reads shared pointers
 *         rte_rcu_qsbr_quiescent(v, id);
 *         if (idle) { rte_rcu_qsbr_thread_offline(v, id); sleep; rte_rcu_qsbr_thread_online(v, id);
 * }
 *     }
 *     rte_rcu_qsbr_thread_offline(v, id);
 *
 * All of that is inline: two loads a pass, a store when a writer has asked. chan_watch_remote.h has
 * the writer's side.
 */
#ifndef MILLRACE_RUNTIME_QSBR_H
#define MILLRACE_RUNTIME_QSBR_H

#include <rte_rcu_qsbr.h>

/* Set-up thread: for reader threads 0 .. readers - 1, all offline. NULL: no memory. */
struct rte_rcu_qsbr *qsbr_new(unsigned readers);

/* All must be offline. NULL is a no-op. */
void qsbr_free(struct rte_rcu_qsbr *v);

#endif
