/* Catches a core in the act: a thread that looks at all cores every few milliseconds and signals
 * one that has been in the same poll (or stretch of a pass) for SAMPLER_LIMIT_NS. The core's own
 * signal handler then puts kind, label and call chain into its stall ring, so that a stall can be
 * read while it lasts, and says afterwards where it was and not just how long.
 *
 * Cores pay nothing for it but the stores of struct sched_watch.
 */
#ifndef MILLRACE_RUNTIME_SAMPLER_H
#define MILLRACE_RUNTIME_SAMPLER_H

#include <stdint.h>

#define SAMPLER_LIMIT_NS 5000000ull
#define SAMPLER_LOOK_NS  2500000ull
#define SAMPLER_MOST     64 /* cores */

struct sched;
struct sampler;

/* Takes the signal SIGRTMIN+2 of the whole process. 0 or -errno. */
int sampler_new(struct sampler **ret_sampler);

/* Starts the thread, once. 0 or -errno. Without it the owner calls sampler_look(). */
int sampler_start(struct sampler *s);

/* Stops and joins the thread, if there is one. Every core must have been detached. NULL is fine. */
void sampler_free(struct sampler *s);

/* On the core's own thread, bound to `sched` (sched_bind_thread), which must say when its passes
 * begin and end (sched_latch(), sched_pass_end()): watches it from now on. 0, or -ENOSPC. */
int sampler_attach(struct sampler *s, struct sched *sched);

/* On the core's own thread, before it ends. No signal comes afterwards. */
void sampler_detach(struct sampler *s, struct sched *sched);

/* One look, at `now_ns`: what the thread does every SAMPLER_LOOK_NS. Returns how many cores were
 * signalled. Any thread; `now_ns` never goes back. */
unsigned sampler_look(struct sampler *s, uint64_t now_ns);

#endif
