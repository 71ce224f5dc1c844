/* Leased permits: two cores take them and give them back as fast as they can; there are always
 * enough. */
#include "bench/micro/cores.h"
#include "bench/micro/measure.h"
#include "runtime/permits.h"

#define ROUNDS 200000
#define LIMIT  1024

static struct core own, other;

static void no_drop(struct task *t)
{
    (void)t;
}

struct taker {
    struct task task;
    struct permits_core *core;
    unsigned left;
};

static enum poll taker_poll(struct task *t)
{
    struct taker *k = container_of(t, struct taker, task);
    struct permits_acquire a;
    for (; k->left > 0; k->left--) {
        permits_acquire_init(&a, k->core, UINT64_MAX);
        if (future_poll(&a.future, t) == POLL_PENDING)
            return POLL_PENDING; /* out of budget: there are enough for both */
        struct leased_permit p = leased_permit_take(&a.permit);
        __asm__ volatile("" ::: "memory");
        leased_permit_put(&p);
    }
    return POLL_READY;
}

static const struct task_kind taker_kind = {"taker", taker_poll, no_drop};

static struct permits *permits;

static double take_permits(struct core *c, unsigned index)
{
    struct taker k = {.core = permits_join(permits, index, &c->sched, &c->mailbox), .left = ROUNDS};
    task_spawn(&c->sched, &k.task, &taker_kind);
    core_line_up();
    uint64_t start = cpu_now_ns();
    core_run(c, &k.task);
    double each = cpu_ns_each(start, ROUNDS);
    permits_leave(k.core);
    return each;
}

static double other_each;

static void *taker_main(void *arg)
{
    other_each = take_permits(&other, 1);
    return NULL;
}

static void run_permits(struct samples *ret_samples, const struct cpus *cpus)
{
    for (unsigned i = 0; i < SAMPLES; i++) {
        core_start(&own);
        core_start(&other);
        if (permits_new(&(struct permits_opts){.limit = LIMIT, .cores = 2, .queue = 16}, &permits) <
            0)
            fail("no permits");
        pthread_t thread = core_run_other(taker_main, cpus);
        double each = take_permits(&own, 0);
        pthread_join(thread, NULL);
        ret_samples->each[i] = (each + other_each) / 2;
        core_end(&own);
        core_end(&other);
        permits_free(permits);
    }
}

const struct measure measures_permits[] = {
    {"permit_cores", "leased permit acquired and put, two cores at it", run_permits},
    {NULL, NULL, NULL},
};
