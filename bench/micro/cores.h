/* Two cores' loops, for measures that need both. They run all the time, as busy polling ones do. */
#ifndef MILLRACE_BENCH_CORES_H
#define MILLRACE_BENCH_CORES_H

#include <pthread.h>

#include "bench/micro/measure.h"
#include "runtime/mailbox.h"
#include "runtime/sched.h"

struct core {
    struct sched sched;
    struct mailbox mailbox;
};

void core_start(struct core *c);

/* Its thread has ended, or is this one. */
void core_end(struct core *c);

/* Until the task is done. */
void core_run(struct core *c, const struct task *t);

/* Runs `main(NULL)` on the other CPU; join the thread. */
pthread_t core_run_other(void *(*main)(void *), const struct cpus *cpus);

/* Both call it, set up and ready to go: returns when both have. */
void core_line_up(void);

#endif
