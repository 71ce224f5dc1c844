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
#include "runtime/rng.h"

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

static void start_classes(unsigned threads, const struct blocking_class *classes, unsigned n,
                          uint64_t spin_ns)
{
    struct blocking_opts o = {
        .threads = threads, .classes = classes, .nclasses = n, .spin_ns = spin_ns};
    assert_int_equal(blocking_new(&o, &pool), 0);
}

static void start_pool(unsigned threads, unsigned queue, uint64_t spin_ns)
{
    start_classes(threads, &(struct blocking_class){"job", 0, queue}, 1, spin_ns);
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
        blocking_stop(pool, BLOCKING_RETURN);
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
    struct blocking_class class = {"job", 0, 4};
    struct blocking_opts o = {.threads = 1, .classes = &class, .nclasses = 1, .cpus = &one};
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
    blocking_stats_get(pool, 0, &st);
    assert_int_equal(st.queued, 4);
    assert_int_equal(st.refused, 1);
    sem_post(&gate_open);
    await_answers(5);
    assert_int_equal(blocking_submit(pool, &extra.job), 0);
    await_answers(6);
    blocking_stop(pool, BLOCKING_RETURN);
    blocking_stats_get(pool, 0, &st);
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
    blocking_stop(pool, BLOCKING_RETURN);
    blocking_stats_get(pool, 0, &st);
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
    blocking_stop(pool, BLOCKING_RETURN);
    blocking_stop(pool, BLOCKING_RETURN);
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
        blocking_stop(pool, BLOCKING_RETURN);
        blocking_free(pool);
        pool = NULL;
    }
}

/* A thread spins about as long as the next job is away, so that job meets it anywhere on its way to
 * the semaphore. */
static void parking_thread_does_not_miss_a_job(void **state)
{
    (void)state;
    struct job j = job_of(&box);
    struct rng rng = {5};
    start_pool(1, 1, 1000);
    for (unsigned i = 1; i <= 30000; i++) {
        for (unsigned n = rng_below(&rng, 2000); n > 0; n--)
            atomic_signal_fence(memory_order_seq_cst);
        assert_int_equal(blocking_submit(pool, &j.job), 0);
        for (unsigned tries = 0; answers < i && tries < 20000; tries++)
            mailbox_drain(&box, 1);
        await_answers(i);
    }
    assert_int_equal(j.runs, 30000);
}

/* Both classes' jobs are in the queue before a thread may take one. */
static void hold_all_threads(struct job *holders, unsigned n)
{
    for (unsigned i = 0; i < n; i++) {
        holders[i] = job_of(&box);
        holders[i].gated = true;
        assert_int_equal(blocking_submit(pool, &holders[i].job), 0);
    }
    for (unsigned i = 0; i < n; i++)
        sem_wait(&gate_reached);
}

static void submit_class(struct job *j, unsigned class)
{
    *j = job_of(&box);
    j->job.class = class;
    assert_int_equal(blocking_submit(pool, &j->job), 0);
}

static void capped_class_leaves_threads_for_the_others(void **state)
{
    (void)state;
    static const struct blocking_class classes[] = {{"slow", 2, 8}, {"quick", 0, 8}};
    struct job slow[5], quick[4];
    struct blocking_stats st;
    start_classes(3, classes, 2, 0);
    hold_all_threads(slow, 2);
    for (unsigned i = 2; i < 5; i++)
        submit_class(&slow[i], 0);
    for (unsigned i = 0; i < 4; i++)
        submit_class(&quick[i], 1);
    await_answers(4);
    for (unsigned i = 0; i < 4; i++)
        assert_int_equal(quick[i].dones, 1);
    blocking_stats_get(pool, 0, &st);
    assert_string_equal(st.name, "slow");
    assert_int_equal(st.running, 2);
    assert_int_equal(st.queued, 3);
    assert_int_equal(st.completed, 0);
    sem_post(&gate_open);
    sem_post(&gate_open);
    await_answers(9);
    blocking_stats_get(pool, 1, &st);
    assert_string_equal(st.name, "quick");
    assert_int_equal(st.completed, 4);
    assert_int_equal(st.queue_ns.count, 4);
    assert_int_equal(st.running, 0);
}

static void one_class_full_refuses_only_its_own(void **state)
{
    (void)state;
    static const struct blocking_class classes[] = {{"a", 0, 2}, {"b", 0, 1}};
    struct job holder, waiting[3], extra = job_of(&box);
    struct blocking_stats st;
    start_classes(1, classes, 2, 0);
    hold_all_threads(&holder, 1);
    submit_class(&waiting[0], 0);
    submit_class(&waiting[1], 0);
    assert_int_equal(blocking_submit(pool, &extra.job), -EBUSY);
    submit_class(&waiting[2], 1);
    extra.job.class = 1;
    assert_int_equal(blocking_submit(pool, &extra.job), -EBUSY);
    for (unsigned class = 0; class < 2; class ++) {
        blocking_stats_get(pool, class, &st);
        assert_int_equal(st.refused, 1);
        assert_int_equal(st.queued, classes[class].max_queued);
    }
    sem_post(&gate_open);
    await_answers(4);
}

static atomic_uint order_next;

struct ordered_job {
    struct blocking_job job;
    unsigned at;
};

static void ordered_run(struct blocking_job *b)
{
    container_of(b, struct ordered_job, job)->at = atomic_fetch_add(&order_next, 1);
}

static void ordered_done(struct blocking_job *b)
{
    (void)b;
    answers++;
}

/* Six of one kind came first; the other kinds' turns come all the same. */
static void free_thread_takes_from_the_classes_in_turn(void **state)
{
    (void)state;
    static const struct blocking_class classes[] = {{"a", 0, 8}, {"b", 0, 8}, {"c", 0, 8}};
    static const unsigned class_of[] = {0, 0, 0, 0, 0, 0, 1, 1, 2};
    /* The holder was of the first class, so the second is next. */
    static const unsigned turn_of[] = {2, 4, 5, 6, 7, 8, 0, 3, 1};
    struct job holder;
    struct ordered_job jobs[9];
    start_classes(1, classes, 3, 0);
    atomic_store(&order_next, 0);
    hold_all_threads(&holder, 1);
    for (unsigned i = 0; i < 9; i++) {
        jobs[i] = (struct ordered_job){
            .job = {.run = ordered_run, .done = ordered_done, .reply = &box, .class = class_of[i]}};
        assert_int_equal(blocking_submit(pool, &jobs[i].job), 0);
    }
    sem_post(&gate_open);
    await_answers(10);
    for (unsigned i = 0; i < 9; i++)
        assert_int_equal(jobs[i].at, turn_of[i]);
}

static void drain_runs_what_waits(void **state)
{
    (void)state;
    static const struct blocking_class classes[] = {{"capped", 1, 8}, {"free", 0, 8}};
    struct job holders[1], waiting[8], late = job_of(&box);
    pthread_t opener;
    start_classes(3, classes, 2, 0);
    hold_all_threads(holders, 1);
    for (unsigned i = 0; i < 8; i++)
        submit_class(&waiting[i], i % 2);
    assert_int_equal(pthread_create(&opener, NULL, open_gate, NULL), 0);
    blocking_stop(pool, BLOCKING_DRAIN);
    pthread_join(opener, NULL);
    assert_int_equal(blocking_submit(pool, &late.job), -ESHUTDOWN);
    while (mailbox_drain(&box, 64))
        ;
    assert_int_equal(answers, 9);
    for (unsigned i = 0; i < 8; i++) {
        assert_int_equal(waiting[i].runs, 1);
        assert_int_equal(waiting[i].status, 0);
    }
}

/* A thread of the capped class ends its job just as the others park: what waits is not forgotten.
 */
static void capped_jobs_are_not_overlooked_by_parking_threads(void **state)
{
    (void)state;
    static const struct blocking_class classes[] = {{"one", 1, 16}, {"two", 2, 16}, {"all", 0, 16}};
    struct job jobs[24];
    start_classes(3, classes, 3, 0);
    for (unsigned i = 0; i < 24; i++) {
        jobs[i] = job_of(&box);
        jobs[i].job.class = i % 3;
        jobs[i].again = 299;
        assert_int_equal(blocking_submit(pool, &jobs[i].job), 0);
    }
    await_answers(24 * 300);
    unsigned parked;
    blocking_parks(pool, &parked);
    assert_true(parked <= 3);
}

/* Several cores use one pool with classes, cancel at random, and the pool ends under them. */
#define CORES   3
#define JOBS    12
#define CLASSES 3

static const struct blocking_class core_classes[CLASSES] = {
    {"one", 1, 5}, {"two", 2, 4}, {"all", 0, 6}};

static struct meter { /* of a class: how many run */
    atomic_uint running;
    atomic_uint over; /* times the cap was broken */
} meters[CLASSES];

struct core {
    pthread_t thread;
    struct mailbox box;
    struct rng rng;
    unsigned accepted[CLASSES], returned[CLASSES], refused[CLASSES];
    unsigned dones, runs, ran_though_cancelled, answered_twice;
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
    struct meter *m = &meters[b->class];
    unsigned cap = core_classes[b->class].max_running;
    unsigned before = atomic_fetch_add(&m->running, 1);
    if (cap && before >= cap)
        atomic_fetch_add(&m->over, 1);
    container_of(b, struct core_job, job)->runs++;
    if (b->class < 2)
        sched_yield();
    atomic_fetch_sub(&m->running, 1);
}

static void core_job_done(struct blocking_job *b)
{
    struct core_job *j = container_of(b, struct core_job, job);
    struct core *c = j->core;
    c->answered_twice += !j->busy;
    j->busy = false;
    c->dones++;
    if (b->status == -ECANCELED)
        c->returned[b->class]++;
    else
        c->ran_though_cancelled += j->cancel_held;
}

static void core_submit(struct core *c, struct core_job *j)
{
    unsigned class = j->job.class = rng_below(&c->rng, CLASSES);
    int rc = blocking_submit(pool, &j->job);
    j->busy = rc == 0;
    j->cancel_held = rc == 0 && rng_chance(&c->rng, 200000) && blocking_cancel(&j->job);
    c->accepted[class] += rc == 0;
    c->refused[class] += rc == -EBUSY;
    c->saw_shutdown = rc == -ESHUTDOWN;
}

static void *core_main(void *arg)
{
    struct core *c = arg;
    struct core_job jobs[JOBS];
    unsigned accepted = 0;
    memset(jobs, 0, sizeof(jobs));
    for (unsigned i = 0; i < JOBS; i++) {
        jobs[i].job =
            (struct blocking_job){.run = core_job_run, .done = core_job_done, .reply = &c->box};
        jobs[i].core = c;
    }
    for (unsigned n = 0; !c->saw_shutdown; n++) {
        struct core_job *j = &jobs[rng_below(&c->rng, JOBS)];
        if (!j->busy)
            core_submit(c, j);
        if (n == 1500)
            atomic_fetch_sub(&rounds_left, 1);
        mailbox_drain(&c->box, 16);
        if (rng_chance(&c->rng, 500000))
            sched_yield();
    }
    for (unsigned i = 0; i < CLASSES; i++)
        accepted += c->accepted[i];
    while (c->dones < accepted)
        mailbox_drain(&c->box, 16);
    for (unsigned i = 0; i < JOBS; i++)
        c->runs += jobs[i].runs;
    return NULL;
}

static void run_cores(struct core *cores, uint64_t seed, enum blocking_end how)
{
    memset(cores, 0, CORES * sizeof(*cores));
    memset(meters, 0, sizeof(meters));
    atomic_store(&rounds_left, CORES);
    for (unsigned i = 0; i < CORES; i++) {
        cores[i].rng.state = seed * CORES + i;
        assert_int_equal(mailbox_init(&cores[i].box), 0);
        assert_int_equal(pthread_create(&cores[i].thread, NULL, core_main, &cores[i]), 0);
    }
    while (atomic_load(&rounds_left) > 0)
        sched_yield();
    blocking_stop(pool, how);
    for (unsigned i = 0; i < CORES; i++) {
        pthread_join(cores[i].thread, NULL);
        mailbox_fini(&cores[i].box);
    }
}

static void check_class(const struct core *cores, unsigned class)
{
    struct blocking_stats st;
    uint64_t accepted = 0, returned = 0, refused = 0;
    for (unsigned i = 0; i < CORES; i++) {
        accepted += cores[i].accepted[class];
        returned += cores[i].returned[class];
        refused += cores[i].refused[class];
    }
    blocking_stats_get(pool, class, &st);
    assert_int_equal(meters[class].over, 0);
    assert_int_equal(st.submitted, accepted);
    assert_int_equal(st.cancelled, returned);
    assert_int_equal(st.completed, accepted - returned);
    assert_true(st.refused >= refused); /* and those of the shutdown */
    assert_int_equal(st.queue_ns.count, st.completed);
    assert_int_equal(st.queued, 0);
    assert_int_equal(st.running, 0);
}

static void pool_may_end_under_its_cores(void **state)
{
    (void)state;
    static struct core cores[CORES];
    for (uint64_t seed = 1; seed <= 8; seed++) {
        enum blocking_end how = seed % 2 ? BLOCKING_RETURN : BLOCKING_DRAIN;
        print_message("# seed %u\n", (unsigned)seed);
        start_classes(1 + seed % 3, core_classes, CLASSES, seed % 4 < 2 ? 0 : 5000);
        run_cores(cores, seed, how);
        for (unsigned i = 0; i < CORES; i++) {
            unsigned accepted = 0, returned = 0;
            for (unsigned class = 0; class < CLASSES; class ++) {
                accepted += cores[i].accepted[class];
                returned += cores[i].returned[class];
            }
            assert_int_equal(cores[i].dones, accepted);
            assert_int_equal(cores[i].runs + returned, accepted);
            assert_int_equal(cores[i].ran_though_cancelled, 0);
            assert_int_equal(cores[i].answered_twice, 0);
        }
        for (unsigned class = 0; class < CLASSES; class ++)
            check_class(cores, class);
        blocking_free(pool);
        pool = NULL;
    }
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
        story(capped_class_leaves_threads_for_the_others),
        story(one_class_full_refuses_only_its_own),
        story(free_thread_takes_from_the_classes_in_turn),
        story(drain_runs_what_waits),
        story(capped_jobs_are_not_overlooked_by_parking_threads),
        story(pool_may_end_under_its_cores),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
