/* What the micro benchmarks of the runtime share: a measure takes its samples itself. */
#ifndef MILLRACE_BENCH_MEASURE_H
#define MILLRACE_BENCH_MEASURE_H

#include <stdint.h>
#include <time.h>

#include "runtime/clock.h"
#include "runtime/sched.h"

#define SAMPLES 6   /* the first is warm-up and isn't told */
#define TASKS   128 /* at once, where there are many */

/* The CPU of all that happens on one core, and the one of the other party. */
struct cpus {
    int own, other;
};

/* ns each, unless the measure's text says otherwise. */
struct samples {
    double each[SAMPLES];
};

struct measure {
    const char *name; /* Tokio's side has the same for the same */
    const char *text;
    void (*run)(struct samples *ret_samples, const struct cpus *cpus);
};

extern const struct measure measures_tasks[]; /* up to one without a name */
extern const struct measure measures_timers[];
extern const struct measure measures_sync[];
extern const struct measure measures_cores[];
extern const struct measure measures_permits[];

/* The calling thread, and the threads that it starts from now on. */
void measure_pin(int cpu);

/* Ends the program: a measure of something that went wrong is none. */
_Noreturn void fail(const char *what);

/* As a core's loop does without ports: one reading of the clock a pass. */
static inline void run_until_done(struct sched *s, const struct task *t)
{
    while (task_is_live(t))
        sched_step(s, clock_now_ns());
}

/* CPU time of this thread: what other processes take of a busy machine doesn't count. For what
 * happens on one core and never sleeps; else clock_now_ns(). */
static inline uint64_t cpu_now_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (uint64_t)t.tv_sec * CLOCK_NS_PER_S + (uint64_t)t.tv_nsec;
}

static inline double cpu_ns_each(uint64_t start, uint64_t n)
{
    return (double)(cpu_now_ns() - start) / (double)n;
}

static inline double wall_ns_each(uint64_t start, uint64_t n)
{
    return (double)(clock_now_ns() - start) / (double)n;
}

#endif
