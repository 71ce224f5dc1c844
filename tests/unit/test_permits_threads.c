/* Leased permits between threads, each a core with its own loop, asleep when there is nothing to
 * do. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/mailbox.h"
#include "runtime/permits.h"
#include "runtime/rng.h"
#include "runtime/sched.h"

#define START 1234567891ull

struct core {
    struct sched sched;
    struct mailbox box;
    struct permits_core *permits;
};

enum { THREADS = 3, TASKS = 6, ROUNDS = 40000 };

struct worker_task {
    struct task task;
    struct worker *worker;
    struct permits_acquire acquire;
    struct leased_permit permit;
    bool is_waiting;
};

struct worker {
    pthread_t thread;
    struct core core;
    struct worker_task task[TASKS];
    struct mailbox_item nudge;
    struct rng rng;
    unsigned rounds, cancels;
};

static struct permits *permits;
static struct worker workers[THREADS];
static atomic_int flying, most_flying;
static atomic_uint workers_busy;
static atomic_bool is_over_limit;
static int flying_max;

static void count_grant(void)
{
    int n = atomic_fetch_add_explicit(&flying, 1, memory_order_relaxed) + 1;
    int most = atomic_load_explicit(&most_flying, memory_order_relaxed);
    while (n > most && !atomic_compare_exchange_weak(&most_flying, &most, n))
        ;
    if (n > flying_max)
        atomic_store(&is_over_limit, true);
}

static void count_put(void)
{
    atomic_fetch_sub_explicit(&flying, 1, memory_order_relaxed);
}

static void let_go(struct worker_task *t)
{
    if (leased_permit_is_held(&t->permit))
        count_put();
    leased_permit_put(&t->permit);
}

static enum poll worker_poll(struct task *task)
{
    struct worker_task *t = container_of(task, struct worker_task, task);
    struct worker *w = t->worker;
    while (w->rounds < ROUNDS && task_consume(task, 1)) {
        if (leased_permit_is_held(&t->permit)) {
            /* A little while in others' turns. */
            if (rng_chance(&w->rng, 300000)) {
                task_yield(task);
                return POLL_PENDING;
            }
            let_go(t);
        }
        if (!t->is_waiting) {
            permits_acquire_init(&t->acquire, w->core.permits, UINT64_MAX);
            t->is_waiting = true;
            w->rounds++;
        } else if (rng_chance(&w->rng, 50000)) {
            future_drop(&t->acquire.future);
            t->is_waiting = false;
            w->cancels++;
            continue;
        }
        if (future_poll(&t->acquire.future, task) == POLL_PENDING)
            return POLL_PENDING;
        t->is_waiting = false;
        t->permit = leased_permit_take(&t->acquire.permit);
        count_grant();
    }
    if (w->rounds < ROUNDS)
        return POLL_PENDING;
    return POLL_READY;
}

static void worker_drop(struct task *task)
{
    struct worker_task *t = container_of(task, struct worker_task, task);
    future_drop(&t->acquire.future);
    let_go(t);
}

static const struct task_kind worker_kind = {"worker", worker_poll, worker_drop};

static void on_nudge(struct mailbox_item *item)
{
    (void)item;
}

static void sleep_a_little(struct worker *w)
{
    if (!mailbox_prepare_sleep(&w->core.box))
        return;
    struct pollfd pfd = {.fd = mailbox_fd(&w->core.box), .events = POLLIN};
    if (poll(&pfd, 1, 60000) == 0)
        abort(); /* a wake-up was lost */
    mailbox_end_sleep(&w->core.box);
}

/* A core that has done its part stays for the others: it may hold what they wait for. */
static void *work(void *arg)
{
    struct worker *w = arg;
    uint64_t time = START;
    bool is_busy = true;
    while (atomic_load(&workers_busy) > 0) {
        bool any = mailbox_drain(&w->core.box, 16) > 0;
        any |= sched_step(&w->core.sched, ++time);
        if (is_busy && w->core.sched.stats.live == 0) {
            is_busy = false;
            if (atomic_fetch_sub(&workers_busy, 1) == 1)
                for (unsigned i = 0; i < THREADS; i++)
                    mailbox_post(&workers[i].core.box, &workers[i].nudge);
        } else if (!any && !sched_is_runnable(&w->core.sched)) {
            /* Some tasks would wait for others of this core that have ended their rounds. */
            sleep_a_little(w);
        }
    }
    return NULL;
}

static void run_workers(uint32_t limit, void (*meanwhile)(void))
{
    assert_int_equal(
        permits_new(&(struct permits_opts){.limit = limit, .cores = THREADS, .queue = TASKS},
                    &permits),
        0);
    atomic_store(&workers_busy, THREADS);
    atomic_store(&flying, 0);
    atomic_store(&most_flying, 0);
    for (unsigned i = 0; i < THREADS; i++) {
        struct worker *w = &workers[i];
        memset(w, 0, sizeof(*w));
        w->rng.state = i + 1;
        w->nudge.deliver = on_nudge;
        sched_init(&w->core.sched, &(struct sched_opts){.now = START});
        assert_int_equal(mailbox_init(&w->core.box), 0);
        w->core.permits = permits_join(permits, i, &w->core.sched, &w->core.box);
        for (unsigned j = 0; j < TASKS; j++) {
            w->task[j].worker = w;
            task_spawn(&w->core.sched, &w->task[j].task, &worker_kind);
        }
    }
    for (unsigned i = 0; i < THREADS; i++)
        assert_int_equal(pthread_create(&workers[i].thread, NULL, work, &workers[i]), 0);
    if (meanwhile)
        meanwhile();
    for (unsigned i = 0; i < THREADS; i++)
        pthread_join(workers[i].thread, NULL);
    for (unsigned i = 0; i < THREADS; i++) {
        permits_leave(workers[i].core.permits);
        sched_fini(&workers[i].core.sched);
    }
    for (unsigned i = 0; i < THREADS; i++)
        mailbox_fini(&workers[i].core.box);
    assert_int_equal(permits_leased(permits), 0);
    permits_free(permits);
}

static void threads_never_exceed_the_limit(void **state)
{
    static const uint32_t limits[] = {1, 2, 7, 100};
    (void)state;
    for (size_t i = 0; i < sizeof(limits) / sizeof(limits[0]); i++) {
        flying_max = (int)limits[i];
        atomic_store(&is_over_limit, false);
        run_workers(limits[i], NULL);
        assert_false(atomic_load(&is_over_limit));
        assert_true(atomic_load(&most_flying) >= 1);
        /* Whoever has to wait may change its mind, mostly after it has been granted. */
        if (limits[i] < TASKS)
            assert_true(workers[0].cancels > 100);
        assert_int_equal(atomic_load(&flying), 0);
    }
}

static void move_limit(void)
{
    struct rng rng = {99};
    while (atomic_load(&workers_busy) > 0) {
        permits_set_limit(permits, 1 + rng_below(&rng, 6));
        sched_yield();
    }
}

static void threads_go_on_while_the_limit_moves(void **state)
{
    (void)state;
    flying_max = 6;
    atomic_store(&is_over_limit, false);
    run_workers(3, move_limit);
    assert_false(atomic_load(&is_over_limit));
    assert_int_equal(atomic_load(&flying), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(threads_never_exceed_the_limit),
        cmocka_unit_test(threads_go_on_while_the_limit_moves),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
