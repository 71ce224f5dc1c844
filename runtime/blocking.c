#include "runtime/blocking.h"

#include <assert.h>
#include <errno.h>
#include <pthread.h>
#include <semaphore.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <rte_pause.h>

#include "runtime/clock.h"
#include "runtime/counter.h"
#include "runtime/list.h"

/* job->state_. The one who moves a job out of QUEUED decides its fate. */
enum job_state {
    JOB_IDLE,
    JOB_QUEUED,
    JOB_RUNNING,
    JOB_CANCELLED,
};

/* What a worker has done for a class. */
struct tally {
    struct hist queue_ns, run_ns;
    uint64_t completed, cancelled;
};

struct worker {
    _Alignas(64) pthread_mutex_t lock; /* of the tallies; readers take it only for statistics */
    struct tally *tallies;             /* one a class */
    struct counter parks;
    struct blocking *pool;
    pthread_t thread;
};

/* The jobs of one class. */
struct queue {
    struct blocking_class class;
    struct counter returned; /* by blocking_stop() */
    /* Submitters push here, newest first; a worker takes all at once, so there is no ABA. Push is
     * release, take is acquire. */
    _Alignas(64) _Atomic(struct blocking_job *) inbox;
    /* A job can start when queued > 0 and running < the cap; see wake_for() and park() for why none
     * is overlooked. All seq_cst. */
    atomic_uint queued;
    atomic_uint running;
    atomic_uint_fast64_t submitted, refused; /* relaxed: statistics */

    _Alignas(64) struct blocking_job *ready; /* taken from inbox, oldest first; under take_lock */
};

struct blocking {
    struct worker *workers;
    struct queue *queues;
    unsigned nworkers; /* set up */
    unsigned nstarted; /* with a thread */
    unsigned nqueues;
    uint64_t spin_ns;
    bool is_stopped; /* set-up thread's */
    sem_t bell;

    _Alignas(64) atomic_uint parked; /* workers that nobody has rung for yet */
    atomic_uint submitting;          /* submitters between their look at stopping and their push */
    atomic_bool stopping;            /* no more jobs come in */
    atomic_uint ending;              /* a stop_order, once the last job is in */

    _Alignas(64) pthread_mutex_t take_lock; /* workers only; submitters never need it */
    unsigned turn;                          /* the queue to look at first; under take_lock */
};

enum stop_order {
    STAY,
    LEAVE_JOBS,
    FINISH_JOBS,
};

/* A count, not the list, is the bound: it refuses exactly when so many jobs wait. */
static int push_job(struct queue *q, struct blocking_job *job)
{
    if (atomic_fetch_add_explicit(&q->queued, 1, memory_order_seq_cst) >= q->class.max_queued) {
        atomic_fetch_sub_explicit(&q->queued, 1, memory_order_relaxed);
        return -EBUSY;
    }
    struct blocking_job *head = atomic_load_explicit(&q->inbox, memory_order_relaxed);
    do {
        job->next_ = head;
    } while (!atomic_compare_exchange_weak_explicit(&q->inbox, &head, job, memory_order_release,
                                                    memory_order_relaxed));
    return 0;
}

static void refill_ready(struct queue *q)
{
    struct blocking_job *job = atomic_exchange_explicit(&q->inbox, NULL, memory_order_acquire);
    while (job) {
        struct blocking_job *older = job->next_;
        job->next_ = q->ready;
        q->ready = job;
        job = older;
    }
}

static bool is_below_cap(struct queue *q)
{
    return atomic_load_explicit(&q->running, memory_order_seq_cst) < q->class.max_running;
}

static bool can_start(struct queue *q)
{
    return atomic_load_explicit(&q->queued, memory_order_seq_cst) > 0 && is_below_cap(q);
}

static bool any_can_start(struct blocking *p)
{
    for (unsigned i = 0; i < p->nqueues; i++) {
        if (can_start(&p->queues[i]))
            return true;
    }
    return false;
}

/* Under take_lock. NULL when none waits, or the only one is not quite there yet. */
static struct blocking_job *pop_queue(struct queue *q)
{
    if (!q->ready)
        refill_ready(q);
    struct blocking_job *job = q->ready;
    if (job) {
        q->ready = job->next_;
        atomic_fetch_add_explicit(&q->running, 1, memory_order_seq_cst);
        atomic_fetch_sub_explicit(&q->queued, 1, memory_order_relaxed);
    }
    return job;
}

/* A job that may start, from the queues in turn. */
static struct blocking_job *pop_job(struct blocking *p)
{
    struct blocking_job *job = NULL;
    if (!any_can_start(p))
        return NULL;
    pthread_mutex_lock(&p->take_lock);
    for (unsigned i = 0; i < p->nqueues && !job; i++) {
        unsigned at = (p->turn + i) % p->nqueues;
        if (can_start(&p->queues[at]))
            job = pop_queue(&p->queues[at]);
        if (job)
            p->turn = at + 1;
    }
    pthread_mutex_unlock(&p->take_lock);
    return job;
}

/* Takes one worker out of the parked count; true: it gets, or has, a token of the bell. */
static bool claim_parked(struct blocking *p)
{
    unsigned n = atomic_load_explicit(&p->parked, memory_order_seq_cst);
    while (n > 0) {
        if (atomic_compare_exchange_weak_explicit(&p->parked, &n, n - 1, memory_order_seq_cst,
                                                  memory_order_seq_cst))
            return true;
    }
    return false;
}

static bool wake_one(struct blocking *p)
{
    if (!claim_parked(p))
        return false;
    sem_post(&p->bell);
    return true;
}

/* A submitted job needs a thread, unless its class is at its cap: then one of those that run jobs
 * of the class looks again when it is done. Either this reads the lower count of `running`, or that
 * thread reads the higher one of `queued` (Dekker, seq_cst). */
static void wake_for(struct blocking *p, struct queue *q)
{
    if (is_below_cap(q))
        wake_one(p);
}

/* The other half of Dekker's pair: submitters count their job, then read parked; we count ourselves
 * in parked, then look for jobs. Whoever makes a job startable, by bringing it or by ending one of
 * its class, so adds one thread that looks. */
static void park(struct worker *w)
{
    struct blocking *p = w->pool;
    atomic_fetch_add_explicit(&p->parked, 1, memory_order_seq_cst);
    bool stay_up =
        any_can_start(p) || atomic_load_explicit(&p->ending, memory_order_seq_cst) != STAY;
    /* When someone has claimed us already, the token must be taken all the same. */
    if (stay_up && claim_parked(p))
        return;
    counter_inc(&w->parks);
    while (sem_wait(&p->bell) < 0 && errno == EINTR)
        ;
}

/* True when this thread is no longer needed: at the end, jobs that wait do so for a thread that
 * runs one of their class. */
static bool may_leave(struct blocking *p)
{
    unsigned order = atomic_load_explicit(&p->ending, memory_order_acquire);
    return order == LEAVE_JOBS || (order == FINISH_JOBS && !any_can_start(p));
}

/* The next job; NULL when the pool stops. */
static struct blocking_job *next_job(struct worker *w)
{
    struct blocking *p = w->pool;
    uint64_t idle_since = 0;
    while (!may_leave(p)) {
        struct blocking_job *job = pop_job(p);
        if (job)
            return job;
        uint64_t now = clock_now_ns();
        if (!idle_since)
            idle_since = now;
        if (now - idle_since >= p->spin_ns) {
            park(w);
            idle_since = 0;
        } else {
            rte_pause();
        }
    }
    return NULL;
}

static bool claim_job(struct blocking_job *job, enum job_state as)
{
    unsigned queued = JOB_QUEUED;
    return atomic_compare_exchange_strong_explicit(&job->state_, &queued, as, memory_order_acq_rel,
                                                   memory_order_relaxed);
}

static void give_back(struct blocking_job *job, int status)
{
    job->status = status;
    mailbox_post(job->reply, &job->item_);
}

static void record_run(struct worker *w, unsigned class, uint64_t submitted, uint64_t start,
                       uint64_t end)
{
    struct tally *tally = &w->tallies[class];
    pthread_mutex_lock(&w->lock);
    hist_record(&tally->queue_ns, start > submitted ? start - submitted : 0);
    hist_record(&tally->run_ns, end - start);
    tally->completed++;
    pthread_mutex_unlock(&w->lock);
}

static void record_cancelled(struct worker *w, unsigned class)
{
    pthread_mutex_lock(&w->lock);
    w->tallies[class].cancelled++;
    pthread_mutex_unlock(&w->lock);
}

/* After give_back() the job may be anything: its class is read before. */
static void handle_job(struct worker *w, struct blocking_job *job)
{
    unsigned class = job->class;
    bool runs = claim_job(job, JOB_RUNNING);
    if (runs) {
        uint64_t submitted = job->submitted_, start = clock_now_ns();
        job->run(job);
        record_run(w, class, submitted, start, clock_now_ns());
    } else {
        record_cancelled(w, class);
    }
    atomic_fetch_sub_explicit(&w->pool->queues[class].running, 1, memory_order_seq_cst);
    give_back(job, runs ? 0 : -ECANCELED);
}

static void *worker_main(void *arg)
{
    struct worker *w = arg;
    struct blocking_job *job;
    while ((job = next_job(w)))
        handle_job(w, job);
    return NULL;
}

static void deliver_done(struct mailbox_item *item)
{
    struct blocking_job *job = container_of(item, struct blocking_job, item_);
    atomic_store_explicit(&job->state_, JOB_IDLE, memory_order_relaxed);
    job->done(job);
}

int blocking_submit(struct blocking *p, struct blocking_job *job)
{
    assert(job->run && job->done && job->reply && job->class < p->nqueues);
    assert(atomic_load_explicit(&job->state_, memory_order_relaxed) == JOB_IDLE);
    struct queue *q = &p->queues[job->class];
    int rc = -ESHUTDOWN;
    atomic_fetch_add_explicit(&p->submitting, 1, memory_order_seq_cst);
    if (!atomic_load_explicit(&p->stopping, memory_order_seq_cst)) {
        job->item_.deliver = deliver_done;
        job->submitted_ = clock_now_ns();
        atomic_store_explicit(&job->state_, JOB_QUEUED, memory_order_relaxed);
        rc = push_job(q, job);
        if (rc < 0)
            atomic_store_explicit(&job->state_, JOB_IDLE, memory_order_relaxed);
        else
            wake_for(p, q);
    }
    atomic_fetch_sub_explicit(&p->submitting, 1, memory_order_seq_cst);
    atomic_fetch_add_explicit(rc < 0 ? &q->refused : &q->submitted, 1, memory_order_relaxed);
    return rc;
}

void blocking_run_inline(struct blocking_job *job)
{
    assert(job->run && job->done && job->reply);
    job->item_.deliver = deliver_done;
    atomic_store_explicit(&job->state_, JOB_RUNNING, memory_order_relaxed);
    job->run(job);
    give_back(job, 0);
}

bool blocking_cancel(struct blocking_job *job)
{
    return claim_job(job, JOB_CANCELLED) ||
           atomic_load_explicit(&job->state_, memory_order_relaxed) == JOB_CANCELLED;
}

static int start_worker(struct blocking *p, unsigned index, const cpu_set_t *cpus)
{
    struct worker *w = &p->workers[index];
    pthread_attr_t attr;
    sigset_t all, before;
    char name[16];

    w->pool = p;
    int rc = pthread_attr_init(&attr);
    if (rc)
        return -rc;
    if (cpus)
        rc = pthread_attr_setaffinity_np(&attr, sizeof(*cpus), cpus);
    if (rc)
        goto out;
    /* Signals are for the control thread. */
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    rc = pthread_create(&w->thread, &attr, worker_main, w);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (rc)
        goto out;
    p->nstarted++;
    snprintf(name, sizeof(name), "mr-block/%u", index);
    pthread_setname_np(w->thread, name);
out:
    pthread_attr_destroy(&attr);
    return -rc;
}

static void *alloc_lines(size_t size)
{
    void *lines = aligned_alloc(64, size);
    if (lines)
        memset(lines, 0, size);
    return lines;
}

static int init_workers(struct blocking *p, unsigned threads)
{
    p->workers = alloc_lines(threads * sizeof(*p->workers));
    if (!p->workers)
        return -ENOMEM;
    for (unsigned i = 0; i < threads; i++) {
        struct worker *w = &p->workers[i];
        w->tallies = calloc(p->nqueues, sizeof(*w->tallies));
        if (!w->tallies)
            return -ENOMEM;
        pthread_mutex_init(&w->lock, NULL);
        p->nworkers++;
    }
    return 0;
}

static int init_queues(struct blocking *p, const struct blocking_opts *o)
{
    p->queues = alloc_lines(o->nclasses * sizeof(*p->queues));
    if (!p->queues)
        return -ENOMEM;
    p->nqueues = o->nclasses;
    for (unsigned i = 0; i < o->nclasses; i++) {
        struct blocking_class *class = &p->queues[i].class;
        *class = o->classes[i];
        assert(class->name && class->max_queued > 0);
        if (class->max_running == 0 || class->max_running > o->threads)
            class->max_running = o->threads;
    }
    return 0;
}

int blocking_new(const struct blocking_opts *o, struct blocking **ret_pool)
{
    assert(o->threads > 0 && o->nclasses > 0 && o->nclasses <= BLOCKING_CLASSES);
    struct blocking *p = alloc_lines(sizeof(*p));
    if (!p)
        return -ENOMEM;
    p->spin_ns = o->spin_ns;
    pthread_mutex_init(&p->take_lock, NULL);
    sem_init(&p->bell, 0, 0);
    int rc = init_queues(p, o);
    if (rc == 0)
        rc = init_workers(p, o->threads);
    for (unsigned i = 0; rc == 0 && i < o->threads; i++)
        rc = start_worker(p, i, o->cpus);
    if (rc < 0) {
        blocking_stop(p, BLOCKING_RETURN);
        blocking_free(p);
        return rc;
    }
    *ret_pool = p;
    return 0;
}

/* What the threads have left. */
static void return_jobs(struct queue *q)
{
    struct blocking_job *job;
    while ((job = pop_queue(q))) {
        claim_job(job, JOB_CANCELLED);
        atomic_fetch_sub_explicit(&q->running, 1, memory_order_relaxed);
        counter_inc(&q->returned);
        give_back(job, -ECANCELED);
    }
}

void blocking_stop(struct blocking *p, enum blocking_end how)
{
    if (p->is_stopped)
        return;
    p->is_stopped = true;
    atomic_store_explicit(&p->stopping, true, memory_order_seq_cst);
    /* seq_cst with the submitter's pair: who was not counted here sees stopping. */
    while (atomic_load_explicit(&p->submitting, memory_order_seq_cst) > 0)
        rte_pause();
    atomic_store_explicit(&p->ending, how == BLOCKING_DRAIN ? FINISH_JOBS : LEAVE_JOBS,
                          memory_order_seq_cst);
    while (wake_one(p))
        ;
    for (unsigned i = 0; i < p->nstarted; i++)
        pthread_join(p->workers[i].thread, NULL);
    for (unsigned i = 0; i < p->nqueues; i++)
        return_jobs(&p->queues[i]);
}

void blocking_free(struct blocking *p)
{
    if (!p)
        return;
    assert(p->is_stopped);
    sem_destroy(&p->bell);
    pthread_mutex_destroy(&p->take_lock);
    for (unsigned i = 0; i < p->nworkers; i++) {
        pthread_mutex_destroy(&p->workers[i].lock);
        free(p->workers[i].tallies);
    }
    free(p->workers);
    free(p->queues);
    free(p);
}

static void add_tally(struct blocking_stats *st, struct worker *w, unsigned class)
{
    const struct tally *tally = &w->tallies[class];
    pthread_mutex_lock(&w->lock);
    hist_merge(&st->queue_ns, &tally->queue_ns);
    hist_merge(&st->run_ns, &tally->run_ns);
    st->completed += tally->completed;
    st->cancelled += tally->cancelled;
    pthread_mutex_unlock(&w->lock);
}

void blocking_stats_get(struct blocking *p, unsigned class, struct blocking_stats *ret_stats)
{
    assert(class < p->nqueues);
    struct queue *q = &p->queues[class];
    *ret_stats = (struct blocking_stats){
        .name = q->class.name,
        .submitted = atomic_load_explicit(&q->submitted, memory_order_relaxed),
        .refused = atomic_load_explicit(&q->refused, memory_order_relaxed),
        .cancelled = counter_get(&q->returned),
        .queued = atomic_load_explicit(&q->queued, memory_order_relaxed),
        .running = atomic_load_explicit(&q->running, memory_order_relaxed),
    };
    for (unsigned i = 0; i < p->nworkers; i++)
        add_tally(ret_stats, &p->workers[i], class);
}

unsigned blocking_classes(const struct blocking *p)
{
    return p->nqueues;
}

uint64_t blocking_parks(struct blocking *p, unsigned *ret_parked)
{
    uint64_t parks = 0;
    for (unsigned i = 0; i < p->nworkers; i++)
        parks += counter_get(&p->workers[i].parks);
    *ret_parked = atomic_load_explicit(&p->parked, memory_order_relaxed);
    return parks;
}
