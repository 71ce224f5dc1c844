/* What the runtime's own moves cost: ns each, best and median of several rounds. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/clock.h"
#include "runtime/mailbox.h"
#include "runtime/rng.h"
#include "runtime/sched.h"
#include "runtime/wait.h"

#define ROUNDS 15
#define TASKS  128
#define START  1000000007ull

struct bench {
    struct sched sched;
    struct mailbox mailbox;
    uint64_t now;
};

struct bench_task {
    struct task task;
    struct wait_node node;
};

static enum poll finish_poll(struct task *t)
{
    (void)t;
    return POLL_READY;
}

static enum poll wait_poll(struct task *t)
{
    (void)t;
    return POLL_PENDING;
}

static enum poll yield_poll(struct task *t)
{
    task_yield(t);
    return POLL_PENDING;
}

static void no_drop(struct task *t)
{
    (void)t;
}

static const struct task_kind finish_kind = {"finish", finish_poll, no_drop};
static const struct task_kind wait_kind = {"wait", wait_poll, no_drop};
static const struct task_kind yield_kind = {"yield", yield_poll, no_drop};

static struct bench_task tasks[TASKS];

static void run_all(struct bench *b)
{
    while (sched_is_runnable(&b->sched))
        sched_step(&b->sched, ++b->now);
}

static void spawn_all(struct bench *b, const struct task_kind *kind)
{
    memset(tasks, 0, sizeof(tasks));
    for (unsigned i = 0; i < TASKS; i++)
        task_spawn(&b->sched, &tasks[i].task, kind);
}

static void abort_all(void)
{
    for (unsigned i = 0; i < TASKS; i++)
        task_abort(&tasks[i].task);
}

static unsigned bench_spawn(struct bench *b)
{
    for (unsigned n = 0; n < 200; n++) {
        spawn_all(b, &finish_kind);
        run_all(b);
    }
    return 200 * TASKS;
}

static unsigned bench_wake(struct bench *b)
{
    spawn_all(b, &wait_kind);
    run_all(b);
    for (unsigned n = 0; n < 400; n++) {
        for (unsigned i = 0; i < TASKS; i++)
            task_wake(&tasks[i].task);
        run_all(b);
    }
    abort_all();
    return 400 * TASKS;
}

static unsigned bench_yield(struct bench *b)
{
    spawn_all(b, &yield_kind);
    for (unsigned n = 0; n < 400; n++)
        sched_step(&b->sched, ++b->now);
    abort_all();
    return 400 * TASKS;
}

static void on_fire(struct timer *t, uint64_t now)
{
    (void)t;
    (void)now;
}

/* Among 10,000 others, as on a core with as many connections. */
static struct timer crowd[10000];

static unsigned bench_timer_cancel(struct bench *b)
{
    struct rng rng = {b->now};
    struct timer_wheel *w = &b->sched.wheel;
    struct timer t = {.fire = on_fire};
    for (unsigned i = 0; i < 50000; i++) {
        timer_arm(w, &t, b->now + 1 + (rng_next(&rng) >> 30));
        timer_cancel(w, &t);
    }
    return 50000;
}

static unsigned bench_timer_later(struct bench *b)
{
    struct timer_wheel *w = &b->sched.wheel;
    struct timer t = {.fire = on_fire};
    for (unsigned i = 0; i < 50000; i++)
        timer_arm(w, &t, b->now + 1000000000 + i);
    timer_cancel(w, &t);
    return 50000;
}

static unsigned bench_timer_fire(struct bench *b)
{
    struct rng rng = {b->now};
    struct timer_wheel *w = &b->sched.wheel;
    static struct timer fired[20000];
    unsigned n = 0;
    memset(fired, 0, sizeof(fired));
    for (unsigned i = 0; i < 20000; i++) {
        fired[i].fire = on_fire;
        timer_arm(w, &fired[i], b->now + 1 + rng_below(&rng, 2000000000));
    }
    while (n < 20000) {
        b->now += 1000000;
        n += timer_wheel_advance(w, b->now, 256);
    }
    return n;
}

static unsigned bench_idle_step(struct bench *b)
{
    for (unsigned i = 0; i < 100000; i++)
        sched_step(&b->sched, b->now += 700);
    return 100000;
}

static unsigned bench_remote_wake(struct bench *b)
{
    struct remote_waker w[TASKS];
    spawn_all(b, &wait_kind);
    for (unsigned i = 0; i < TASKS; i++) {
        if (remote_slot_take(&b->mailbox, &tasks[i].task, &w[i]) < 0)
            exit(1);
    }
    run_all(b);
    for (unsigned n = 0; n < 200; n++) {
        for (unsigned i = 0; i < TASKS; i++)
            remote_wake(w[i]);
        mailbox_drain(&b->mailbox, TASKS);
        run_all(b);
    }
    for (unsigned i = 0; i < TASKS; i++)
        remote_slot_put(&w[i]);
    abort_all();
    return 200 * TASKS;
}

static const struct {
    const char *name;
    unsigned (*run)(struct bench *b); /* returns how many it did */
    bool account;                     /* with every poll timed */
    bool crowd;                       /* with 10,000 timers armed */
} benches[] = {
    {"task spawn + finish", bench_spawn, false, false},
    {"task wake + poll", bench_wake, false, false},
    {"task wake + poll, timed", bench_wake, true, false},
    {"task yield", bench_yield, false, false},
    {"remote wake + deliver + poll", bench_remote_wake, false, false},
    {"timer arm + cancel", bench_timer_cancel, false, true},
    {"timer move later", bench_timer_later, false, true},
    {"timer arm + cascades + fire", bench_timer_fire, false, false},
    {"idle step, 10,000 timers armed", bench_idle_step, false, true},
};

static int compare_double(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double one_round(unsigned index)
{
    static struct bench b;
    b.now = START;
    sched_init(&b.sched, &(struct sched_opts){.now = START, .account = benches[index].account});
    if (mailbox_init(&b.mailbox) < 0)
        exit(1);
    for (unsigned i = 0; benches[index].crowd && i < 10000; i++) {
        crowd[i].fire = on_fire;
        timer_arm(&b.sched.wheel, &crowd[i], START + 5000000000 + i * 1000000ull);
    }
    uint64_t start = clock_now_ns();
    unsigned n = benches[index].run(&b);
    uint64_t took = clock_now_ns() - start;
    for (unsigned i = 0; i < 10000; i++)
        timer_cancel(&b.sched.wheel, &crowd[i]);
    mailbox_fini(&b.mailbox);
    sched_fini(&b.sched);
    return (double)took / n;
}

int main(void)
{
    printf("%-34s %9s %9s\n", "ns each", "best", "median");
    for (unsigned i = 0; i < sizeof(benches) / sizeof(benches[0]); i++) {
        double ns[ROUNDS];
        for (unsigned r = 0; r < ROUNDS; r++)
            ns[r] = one_round(i);
        qsort(ns, ROUNDS, sizeof(ns[0]), compare_double);
        printf("%-34s %9.1f %9.1f\n", benches[i].name, ns[0], ns[ROUNDS / 2]);
    }
    return 0;
}
