#include "bench/micro/cores.h"

#include <sched.h>
#include <stdatomic.h>

#include <rte_pause.h>

#define DRAIN 64 /* items a pass */

static atomic_uint arrived; /* seq_cst: who leaves has seen the other's set-up */

void core_start(struct core *c)
{
    sched_init(&c->sched, &(struct sched_opts){.now = clock_now_ns()});
    if (mailbox_init(&c->mailbox) < 0)
        fail("no mailbox");
}

void core_end(struct core *c)
{
    while (mailbox_drain(&c->mailbox, DRAIN) > 0)
        ;
    sched_fini(&c->sched);
    mailbox_fini(&c->mailbox);
}

void core_run(struct core *c, const struct task *t)
{
    while (task_is_live(t)) {
        if (mailbox_is_pending(&c->mailbox))
            mailbox_drain(&c->mailbox, DRAIN);
        sched_step(&c->sched, clock_now_ns());
    }
}

/* On its own CPU from the start: this one isn't given up while we spin. */
pthread_t core_run_other(void *(*main)(void *), const struct cpus *cpus)
{
    pthread_attr_t attr;
    pthread_t thread;
    cpu_set_t set;
    CPU_ZERO(&set);
    CPU_SET(cpus->other, &set);
    atomic_store(&arrived, 0);
    if (pthread_attr_init(&attr) != 0 ||
        pthread_attr_setaffinity_np(&attr, sizeof(set), &set) != 0 ||
        pthread_create(&thread, &attr, main, NULL) != 0)
        fail("no second thread");
    pthread_attr_destroy(&attr);
    return thread;
}

void core_line_up(void)
{
    atomic_fetch_add(&arrived, 1);
    while (atomic_load(&arrived) < 2)
        rte_pause();
}
