#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <semaphore.h>
#include <string.h>

#include <cmocka.h>

#include "runtime/blocking.h"
#include "runtime/list.h"

#define PATIENCE_MS 30000 /* an answer that takes longer is lost */

static struct mailbox box;
static struct blocking *pool;
static unsigned answers; /* done calls in this test */
static sem_t gate_reached, gate_open;

struct job {
    struct blocking_job job;
    unsigned runs, dones;
    int status;
    bool gated;     /* says so when it has started, and waits at the gate */
    unsigned again; /* submits itself so many times from done */
    char thread_name[16];
    int cpus; /* the running thread may use */
    bool on_owner;
    pthread_t owner;
};

static void job_run(struct blocking_job *b)
{
    struct job *j = container_of(b, struct job, job);
    cpu_set_t set;
    j->runs++;
    pthread_getname_np(pthread_self(), j->thread_name, sizeof(j->thread_name));
    pthread_getaffinity_np(pthread_self(), sizeof(set), &set);
    j->cpus = CPU_COUNT(&set);
    if (j->gated) {
        sem_post(&gate_reached);
        sem_wait(&gate_open);
    }
}

static void job_done(struct blocking_job *b)
{
    struct job *j = container_of(b, struct job, job);
    j->dones++;
    j->status = b->status;
    j->on_owner = pthread_equal(j->owner, pthread_self());
    answers++;
    if (j->again > 0) {
        j->again--;
        assert_int_equal(blocking_submit(pool, b), 0);
    }
}

static struct job job_of(struct mailbox *reply)
{
    return (struct job){.job = {.run = job_run, .done = job_done, .reply = reply},
                        .owner = pthread_self(),
                        .status = 99};
}

static void start_pool(unsigned threads, unsigned queue, uint64_t spin_ns)
{
    struct blocking_opts o = {.threads = threads, .queue = queue, .spin_ns = spin_ns};
    assert_int_equal(blocking_new(&o, &pool), 0);
}

static void await_answers(unsigned n)
{
    while (answers < n) {
        if (mailbox_drain(&box, 64) > 0 || !mailbox_prepare_sleep(&box))
            continue;
        struct pollfd pfd = {.fd = mailbox_fd(&box), .events = POLLIN};
        int rc = poll(&pfd, 1, PATIENCE_MS);
        mailbox_end_sleep(&box);
        if (rc == 0)
            fail_msg("%u of %u answers, then none for %d ms", answers, n, PATIENCE_MS);
    }
}

static int set_up(void **state)
{
    (void)state;
    answers = 0;
    pool = NULL;
    sem_init(&gate_reached, 0, 0);
    sem_init(&gate_open, 0, 0);
    return mailbox_init(&box);
}

static int tear_down(void **state)
{
    (void)state;
    if (pool)
        blocking_stop(pool);
    blocking_free(pool);
    mailbox_fini(&box);
    sem_destroy(&gate_reached);
    sem_destroy(&gate_open);
    return 0;
}

static void job_runs_on_a_named_thread_and_answers_at_home(void **state)
{
    (void)state;
    struct job j = job_of(&box);
    start_pool(1, 4, 0);
    assert_int_equal(blocking_submit(pool, &j.job), 0);
    await_answers(1);
    assert_int_equal(j.runs, 1);
    assert_int_equal(j.dones, 1);
    assert_int_equal(j.status, 0);
    assert_true(j.on_owner);
    assert_string_equal(j.thread_name, "mr-block/0");
    assert_false(blocking_cancel(&j.job)); /* long done */
}

static void threads_keep_to_the_cpus_given(void **state)
{
    (void)state;
    struct job j = job_of(&box);
    cpu_set_t mine, one;
    sched_getaffinity(0, sizeof(mine), &mine);
    CPU_ZERO(&one);
    for (int cpu = 0; cpu < CPU_SETSIZE; cpu++) {
        if (CPU_ISSET(cpu, &mine)) {
            CPU_SET(cpu, &one);
            break;
        }
    }
    struct blocking_opts o = {.threads = 1, .queue = 4, .cpus = &one};
    assert_int_equal(blocking_new(&o, &pool), 0);
    assert_int_equal(blocking_submit(pool, &j.job), 0);
    await_answers(1);
    assert_int_equal(j.cpus, 1);
}

static void full_queue_refuses(void **state)
{
    (void)state;
    struct job holder = job_of(&box), waiting[4], extra = job_of(&box);
    struct blocking_stats st;
    start_pool(1, 4, 0);
    holder.gated = true;
    assert_int_equal(blocking_submit(pool, &holder.job), 0);
    sem_wait(&gate_reached);
    for (int i = 0; i < 4; i++) {
        waiting[i] = job_of(&box);
        assert_int_equal(blocking_submit(pool, &waiting[i].job), 0);
    }
    assert_int_equal(blocking_submit(pool, &extra.job), -EBUSY);
    blocking_stats_get(pool, &st);
    assert_int_equal(st.queued, 4);
    assert_int_equal(st.refused, 1);
    sem_post(&gate_open);
    await_answers(5);
    assert_int_equal(blocking_submit(pool, &extra.job), 0);
    await_answers(6);
    blocking_stop(pool);
    blocking_stats_get(pool, &st);
    assert_int_equal(st.submitted, 6);
    assert_int_equal(st.completed, 6);
    assert_int_equal(st.cancelled, 0);
    assert_int_equal(st.queued, 0);
    assert_int_equal(st.queue_ns.count, 6);
    assert_int_equal(st.run_ns.count, 6);
}

static void cancelled_before_start_never_runs_but_answers(void **state)
{
    (void)state;
    struct job holder = job_of(&box), victim = job_of(&box);
    struct blocking_stats st;
    start_pool(1, 4, 0);
    holder.gated = true;
    assert_int_equal(blocking_submit(pool, &holder.job), 0);
    sem_wait(&gate_reached);
    assert_int_equal(blocking_submit(pool, &victim.job), 0);
    assert_true(blocking_cancel(&victim.job));
    assert_true(blocking_cancel(&victim.job));
    assert_false(blocking_cancel(&holder.job)); /* runs already */
    sem_post(&gate_open);
    await_answers(2);
    assert_int_equal(holder.status, 0);
    assert_int_equal(victim.status, -ECANCELED);
    assert_int_equal(victim.runs, 0);
    assert_int_equal(victim.dones, 1);
    blocking_stop(pool);
    blocking_stats_get(pool, &st);
    assert_int_equal(st.cancelled, 1);
    assert_int_equal(st.completed, 1);
}

static void *open_gate(void *arg)
{
    (void)arg;
    sem_post(&gate_open);
    return NULL;
}

static void stop_returns_what_has_not_started(void **state)
{
    (void)state;
    struct job holder = job_of(&box), waiting[3], late = job_of(&box);
    pthread_t opener;
    start_pool(1, 4, 0);
    holder.gated = true;
    assert_int_equal(blocking_submit(pool, &holder.job), 0);
    sem_wait(&gate_reached);
    for (int i = 0; i < 3; i++) {
        waiting[i] = job_of(&box);
        assert_int_equal(blocking_submit(pool, &waiting[i].job), 0);
    }
    assert_int_equal(pthread_create(&opener, NULL, open_gate, NULL), 0);
    blocking_stop(pool);
    blocking_stop(pool);
    pthread_join(opener, NULL);
    assert_int_equal(blocking_submit(pool, &late.job), -ESHUTDOWN);
    while (mailbox_drain(&box, 64))
        ;
    assert_int_equal(answers, 4);
    assert_int_equal(holder.status, 0);
    /* Those may have run before the stop was seen, or come back; never neither, never both. */
    for (int i = 0; i < 3; i++) {
        assert_int_equal(waiting[i].dones, 1);
        assert_int_equal(waiting[i].runs, waiting[i].status == 0);
    }
    assert_int_equal(late.dones, 0);
}

static void resubmitting_from_done_loses_nothing(void **state)
{
    (void)state;
    static const uint64_t spins[] = {0, 20000};
    for (unsigned s = 0; s < 2; s++) {
        struct job jobs[16];
        start_pool(2, 16, spins[s]);
        answers = 0;
        for (unsigned i = 0; i < 16; i++) {
            jobs[i] = job_of(&box);
            jobs[i].again = 499;
            assert_int_equal(blocking_submit(pool, &jobs[i].job), 0);
        }
        await_answers(16 * 500);
        for (unsigned i = 0; i < 16; i++)
            assert_int_equal(jobs[i].runs, 500);
        blocking_stop(pool);
        blocking_free(pool);
        pool = NULL;
    }
}

/* The answer goes out just before the thread parks: the next job meets it on its way there. */
static void parking_thread_does_not_miss_a_job(void **state)
{
    (void)state;
    struct job j = job_of(&box);
    start_pool(1, 1, 0);
    for (unsigned i = 1; i <= 5000; i++) {
        assert_int_equal(blocking_submit(pool, &j.job), 0);
        for (unsigned tries = 0; answers < i && tries < 20000; tries++)
            mailbox_drain(&box, 1);
        await_answers(i);
    }
    assert_int_equal(j.runs, 5000);
}

/* Several cores use one pool, cancel at random, and the pool stops under them. */
#define CORES 3

struct core {
    pthread_t thread;
    struct mailbox box;
    unsigned accepted, refused, dones, runs, cancels_held, returned;
    bool saw_shutdown;
};

struct core_job {
    struct blocking_job job;
    struct core *core;
    unsigned runs;
    bool busy, cancel_held;
};

static atomic_uint rounds_left;

static void core_job_run(struct blocking_job *b)
{
    container_of(b, struct core_job, job)->runs++;
}

static void core_job_done(struct blocking_job *b)
{
    struct core_job *j = container_of(b, struct core_job, job);
    j->busy = false;
    j->core->dones++;
    if (b->status == -ECANCELED)
        j->core->returned++;
    else if (j->cancel_held)
        j->core->returned += 1000000; /* ran although cancel had said no */
}

static void *core_main(void *arg)
{
    struct core *c = arg;
    struct core_job jobs[8];
    memset(jobs, 0, sizeof(jobs));
    for (unsigned i = 0; i < 8; i++) {
        jobs[i].job =
            (struct blocking_job){.run = core_job_run, .done = core_job_done, .reply = &c->box};
        jobs[i].core = c;
    }
    for (unsigned n = 0; !c->saw_shutdown; n++) {
        struct core_job *j = &jobs[n % 8];
        if (!j->busy) {
            int rc = blocking_submit(pool, &j->job);
            j->busy = rc == 0;
            j->cancel_held = rc == 0 && n % 5 == 0 && blocking_cancel(&j->job);
            c->accepted += rc == 0;
            c->refused += rc == -EBUSY;
            c->cancels_held += j->cancel_held;
            c->saw_shutdown = rc == -ESHUTDOWN;
        }
        if (n == 3000)
            atomic_fetch_sub(&rounds_left, 1);
        mailbox_drain(&c->box, 16);
        sched_yield();
    }
    while (c->dones < c->accepted)
        mailbox_drain(&c->box, 16);
    for (unsigned i = 0; i < 8; i++)
        c->runs += jobs[i].runs;
    return NULL;
}

static void pool_may_stop_under_its_cores(void **state)
{
    (void)state;
    static struct core cores[CORES];
    struct blocking_stats st;
    unsigned accepted = 0, returned = 0;
    memset(cores, 0, sizeof(cores));
    start_pool(2, 8, 5000);
    atomic_store(&rounds_left, CORES);
    for (unsigned i = 0; i < CORES; i++) {
        assert_int_equal(mailbox_init(&cores[i].box), 0);
        assert_int_equal(pthread_create(&cores[i].thread, NULL, core_main, &cores[i]), 0);
    }
    while (atomic_load(&rounds_left) > 0)
        sched_yield();
    blocking_stop(pool);
    for (unsigned i = 0; i < CORES; i++) {
        struct core *c = &cores[i];
        pthread_join(c->thread, NULL);
        assert_int_equal(c->dones, c->accepted);
        assert_int_equal(c->runs + c->returned, c->accepted);
        assert_true(c->returned >= c->cancels_held);
        accepted += c->accepted;
        returned += c->returned;
        mailbox_fini(&c->box);
    }
    blocking_stats_get(pool, &st);
    assert_int_equal(st.submitted, accepted);
    assert_int_equal(st.cancelled, returned);
    assert_int_equal(st.completed + st.cancelled, accepted);
}

#define story(f) cmocka_unit_test_setup_teardown(f, set_up, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        story(job_runs_on_a_named_thread_and_answers_at_home),
        story(threads_keep_to_the_cpus_given),
        story(full_queue_refuses),
        story(cancelled_before_start_never_runs_but_answers),
        story(stop_returns_what_has_not_started),
        story(resubmitting_from_done_loses_nothing),
        story(parking_thread_does_not_miss_a_job),
        story(pool_may_stop_under_its_cores),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
