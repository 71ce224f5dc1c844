#include <assert.h>
#include <string.h>

#include "bench/micro/measure.h"
#include "runtime/join.h"
#include "runtime/mailbox.h"
#include "runtime/slab.h"
#include "runtime/wait.h"

#define BATCHES 400
#define START   1000000007ull

struct bench_task;

/* A driver task does something to all the others, and gives them their turn. */
struct bench {
    struct sched sched;
    struct slab slab;
    struct wait_list parked;
    struct mailbox mailbox;
    struct remote_waker remote[TASKS];
    struct bench_task *others[TASKS];
    void (*wake)(struct bench *b);
    struct task driver;
    unsigned batches; /* left */
    unsigned polls;   /* of the others */
};

struct bench_task {
    struct task task;
    struct bench *bench;
    struct wait_node node;
    unsigned yields;
};

static void no_drop(struct task *t)
{
    (void)t;
}

static struct bench *bench_start(bool account)
{
    static struct bench b;
    memset(&b, 0, sizeof(b));
    sched_init(&b.sched, &(struct sched_opts){.now = clock_now_ns(), .account = account});
    slab_init(&b.slab, sizeof(struct bench_task), 0);
    wait_list_init(&b.parked);
    return &b;
}

static void bench_end(struct bench *b)
{
    sched_fini(&b->sched);
    slab_fini(&b->slab);
}

static struct bench_task *spawn_one(struct bench *b, const struct task_kind *kind)
{
    struct bench_task *x = slab_get_zeroed(&b->slab);
    x->bench = b;
    task_spawn(&b->sched, &x->task, kind);
    return x;
}

static void free_drop(struct task *t)
{
    struct bench_task *x = container_of(t, struct bench_task, task);
    wait_cancel(&x->node);
    slab_put(&x->bench->slab, x);
}

/* One sample after another: `BATCHES` batches of `TASKS`, each begun by `kind`'s driver. */
static void sample_driver(struct bench *b, const struct task_kind *kind,
                          struct samples *ret_samples)
{
    for (unsigned i = 0; i < SAMPLES; i++) {
        uint64_t start = cpu_now_ns();
        b->batches = BATCHES;
        task_spawn(&b->sched, &b->driver, kind);
        run_until_done(&b->sched, &b->driver);
        ret_samples->each[i] = cpu_ns_each(start, (uint64_t)BATCHES * TASKS);
    }
}

/* spawn + finish: memory from a slab, one poll, back to the slab. */

static enum poll finish_poll(struct task *t)
{
    container_of(t, struct bench_task, task)->bench->polls++;
    return POLL_READY;
}

static const struct task_kind finish_kind = {"finish", finish_poll, free_drop};

static enum poll spawner_poll(struct task *t)
{
    struct bench *b = container_of(t, struct bench, driver);
    if (b->sched.stats.live == 1) {
        if (b->batches-- == 0)
            return POLL_READY;
        for (unsigned i = 0; i < TASKS; i++)
            spawn_one(b, &finish_kind);
    }
    task_yield(t);
    return POLL_PENDING;
}

static const struct task_kind spawner_kind = {"spawner", spawner_poll, no_drop};

static void run_spawn_finish(struct samples *ret_samples, const struct cpus *cpus)
{
    struct bench *b = bench_start(false);
    sample_driver(b, &spawner_kind, ret_samples);
    bench_end(b);
}

/* spawn + join: the driver waits for each one's handle. */

struct joined {
    struct join_task task;
    struct future value;
    struct join_handle handle;
};

struct joiner {
    struct task task;
    struct sched *sched;
    struct slab slab;
    struct joined *joined[TASKS];
    unsigned batches, next;
};

static enum poll value_poll(struct future *f, struct task *t)
{
    (void)t;
    f->status = 0;
    return POLL_READY;
}

static const struct future_kind value_kind = {"value", value_poll, NULL};
static const struct join_kind joined_kind = {.task = {JOIN_TASK("joined")}};

static void spawn_joined(struct joiner *j)
{
    for (unsigned i = 0; i < TASKS; i++) {
        struct joined *x = j->joined[i] = slab_get_zeroed(&j->slab);
        future_init(&x->value, &value_kind);
        join_spawn(j->sched, &x->task, &joined_kind, &x->value, &x->handle);
    }
}

static enum poll joiner_poll(struct task *t)
{
    struct joiner *j = container_of(t, struct joiner, task);
    for (;;) {
        for (; j->next < TASKS; j->next++) {
            struct joined *x = j->joined[j->next];
            if (future_poll(&x->handle.f, t) == POLL_PENDING)
                return POLL_PENDING;
            slab_put(&j->slab, x);
        }
        if (j->batches-- == 0)
            return POLL_READY;
        spawn_joined(j);
        j->next = 0;
    }
}

static const struct task_kind joiner_kind = {"joiner", joiner_poll, no_drop};

static void run_spawn_join(struct samples *ret_samples, const struct cpus *cpus)
{
    static struct sched sched;
    static struct joiner j;
    sched_init(&sched, &(struct sched_opts){.now = clock_now_ns()});
    j = (struct joiner){.sched = &sched};
    slab_init(&j.slab, sizeof(struct joined), 0);
    for (unsigned i = 0; i < SAMPLES; i++) {
        uint64_t start = cpu_now_ns();
        j.batches = BATCHES;
        j.next = TASKS;
        task_spawn(&sched, &j.task, &joiner_kind);
        run_until_done(&sched, &j.task);
        ret_samples->each[i] = cpu_ns_each(start, (uint64_t)BATCHES * TASKS);
    }
    sched_fini(&sched);
    slab_fini(&j.slab);
}

/* wake + poll: woken one by one through pointers, or as those parked on a wait list. */

static enum poll woken_poll(struct task *t)
{
    container_of(t, struct bench_task, task)->bench->polls++;
    return POLL_PENDING;
}

static enum poll parked_poll(struct task *t)
{
    struct bench_task *x = container_of(t, struct bench_task, task);
    x->bench->polls++;
    wait_park(&x->bench->parked, &x->node, t);
    return POLL_PENDING;
}

static const struct task_kind woken_kind = {"woken", woken_poll, free_drop};
static const struct task_kind parked_kind = {"parked", parked_poll, free_drop};

static void wake_woken(struct bench *b)
{
    for (unsigned i = 0; i < TASKS; i++)
        task_wake(&b->others[i]->task);
}

static void wake_parked(struct bench *b)
{
    wait_wake_all(&b->parked);
}

static enum poll waker_poll(struct task *t)
{
    struct bench *b = container_of(t, struct bench, driver);
    if (b->polls >= TASKS) {
        if (b->batches-- == 0)
            return POLL_READY;
        b->polls = 0;
        b->wake(b);
    }
    task_yield(t);
    return POLL_PENDING;
}

static const struct task_kind waker_kind = {"waker", waker_poll, no_drop};

static void run_wake(struct samples *ret_samples, const struct task_kind *kind,
                     void (*wake)(struct bench *b), bool account)
{
    struct bench *b = bench_start(account);
    b->wake = wake;
    for (unsigned i = 0; i < TASKS; i++)
        b->others[i] = spawn_one(b, kind);
    sample_driver(b, &waker_kind, ret_samples);
    bench_end(b);
}

static void run_wake_poll(struct samples *ret_samples, const struct cpus *cpus)
{
    run_wake(ret_samples, &woken_kind, wake_woken, false);
}

static void run_wake_poll_timed(struct samples *ret_samples, const struct cpus *cpus)
{
    run_wake(ret_samples, &woken_kind, wake_woken, true);
}

static void run_wait_list(struct samples *ret_samples, const struct cpus *cpus)
{
    run_wake(ret_samples, &parked_kind, wake_parked, false);
}

/* The same through the mailbox, as another thread would, but from this one. */

static void wake_remote(struct bench *b)
{
    for (unsigned i = 0; i < TASKS; i++)
        remote_wake(b->remote[i]);
    mailbox_drain(&b->mailbox, TASKS);
}

static void run_remote_wake(struct samples *ret_samples, const struct cpus *cpus)
{
    struct bench *b = bench_start(false);
    b->wake = wake_remote;
    if (mailbox_init(&b->mailbox) < 0)
        fail("no mailbox");
    for (unsigned i = 0; i < TASKS; i++) {
        b->others[i] = spawn_one(b, &woken_kind);
        if (remote_slot_take(&b->mailbox, &b->others[i]->task, &b->remote[i]) < 0)
            fail("no slot");
    }
    sample_driver(b, &waker_kind, ret_samples);
    for (unsigned i = 0; i < TASKS; i++)
        remote_slot_put(&b->remote[i]);
    bench_end(b);
    mailbox_fini(&b->mailbox);
}

static enum poll yield_poll(struct task *t)
{
    struct bench_task *x = container_of(t, struct bench_task, task);
    if (x->yields == 0)
        return POLL_READY;
    x->yields--;
    task_yield(t);
    return POLL_PENDING;
}

static const struct task_kind yield_kind = {"yield", yield_poll, free_drop};

static void run_yield(struct samples *ret_samples, const struct cpus *cpus)
{
    struct bench *b = bench_start(false);
    for (unsigned i = 0; i < SAMPLES; i++) {
        uint64_t start = cpu_now_ns();
        for (unsigned n = 0; n < TASKS; n++)
            spawn_one(b, &yield_kind)->yields = BATCHES;
        while (b->sched.stats.live > 0)
            sched_step(&b->sched, clock_now_ns());
        ret_samples->each[i] = cpu_ns_each(start, (uint64_t)BATCHES * TASKS);
    }
    bench_end(b);
}

/* Bytes of a task that waits for a timer, by what was asked of the system. */

struct sleeper {
    struct task task;
    struct sleep sleep;
};

static_assert(sizeof(struct sleeper) <= 128, "a million of them are 128 MB");

static enum poll sleeper_poll(struct task *t)
{
    struct sleeper *s = container_of(t, struct sleeper, task);
    sleep_arm(&s->sleep, t, task_now(t) + 3600 * CLOCK_NS_PER_S);
    return POLL_PENDING;
}

static void sleeper_drop(struct task *t)
{
    sleep_cancel(&container_of(t, struct sleeper, task)->sleep);
}

static const struct task_kind sleeper_kind = {"sleeper", sleeper_poll, sleeper_drop};

static void run_parked_bytes(struct samples *ret_samples, const struct cpus *cpus)
{
    enum { SLEEPERS = 500 * TASKS };
    static struct sleeper *sleepers[SLEEPERS];
    static struct sched sched;
    for (unsigned i = 0; i < SAMPLES; i++) {
        struct slab slab;
        slab_init(&slab, sizeof(struct sleeper), SLEEPERS);
        sched_init(&sched, &(struct sched_opts){.now = START});
        for (unsigned n = 0; n < SLEEPERS; n++) {
            sleepers[n] = slab_get_zeroed(&slab);
            task_spawn(&sched, &sleepers[n]->task, &sleeper_kind);
        }
        while (sched_step(&sched, START))
            ;
        ret_samples->each[i] = (double)slab.bytes / SLEEPERS;
        sched_fini(&sched);
        for (unsigned n = 0; n < SLEEPERS; n++)
            slab_put(&slab, sleepers[n]);
        slab_fini(&slab);
    }
}

const struct measure measures_tasks[] = {
    {"spawn_finish", "task spawn + finish", run_spawn_finish},
    {"spawn_join", "task spawn + join", run_spawn_join},
    {"wake_poll", "task wake + poll", run_wake_poll},
    {"wake_poll_timed", "task wake + poll, every poll timed", run_wake_poll_timed},
    {"wait_list", "parked on a wait list, woken, polled", run_wait_list},
    {"remote_wake", "remote wake + deliver + poll, on one core", run_remote_wake},
    {"yield", "task yield", run_yield},
    {"parked_bytes", "bytes of a parked task with a timer", run_parked_bytes},
    {NULL, NULL, NULL},
};
