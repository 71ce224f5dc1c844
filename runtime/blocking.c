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
#include "runtime/list.h"

/* job->state_. The one who moves a job out of QUEUED decides its fate. */
enum job_state {
    JOB_IDLE,
    JOB_QUEUED,
    JOB_RUNNING,
    JOB_CANCELLED,
};

struct worker {
    _Alignas(64) pthread_mutex_t lock; /* of the rest; readers take it only for statistics */
    struct hist queue_ns, run_ns;
    uint64_t completed, cancelled;
    struct blocking *pool;
    pthread_t thread;
};

struct blocking {
    struct worker *workers;
    unsigned nworkers; /* started */
    unsigned limit;
    uint64_t spin_ns;
    bool is_stopped; /* set-up thread's */
    sem_t bell;
    atomic_uint_fast64_t submitted, refused, returned;

    /* Submitters push here, newest first; a worker takes all at once, so there is no ABA. Push is
     * release, take is acquire. */
    _Alignas(64) _Atomic(struct blocking_job *) inbox;
    /* queued/stopping and parked are Dekker's pair, all seq_cst: a submitter counts its job in
     * queued, then reads parked; a worker counts itself in parked, then reads queued and stopping.
     */
    atomic_uint queued;
    atomic_uint parked; /* workers that nobody has rung for yet */
    atomic_bool stopping;
    atomic_uint submitting; /* submitters between their look at stopping and their push */

    _Alignas(64) pthread_mutex_t take_lock; /* workers only; submitters never need it */
    struct blocking_job *ready;             /* taken from inbox, oldest first; under take_lock */
};

/* A count, not the list, is the bound: it refuses exactly when `limit` jobs wait. */
static int push_job(struct blocking *p, struct blocking_job *job)
{
    if (atomic_fetch_add_explicit(&p->queued, 1, memory_order_seq_cst) >= p->limit) {
        atomic_fetch_sub_explicit(&p->queued, 1, memory_order_relaxed);
        return -EBUSY;
    }
    struct blocking_job *head = atomic_load_explicit(&p->inbox, memory_order_relaxed);
    do {
        job->next_ = head;
    } while (!atomic_compare_exchange_weak_explicit(&p->inbox, &head, job, memory_order_release,
                                                    memory_order_relaxed));
    return 0;
}

static void refill_ready(struct blocking *p)
{
    struct blocking_job *job = atomic_exchange_explicit(&p->inbox, NULL, memory_order_acquire);
    while (job) {
        struct blocking_job *older = job->next_;
        job->next_ = p->ready;
        p->ready = job;
        job = older;
    }
}

/* NULL when none waits, or the only one is not quite there yet. */
static struct blocking_job *pop_job(struct blocking *p)
{
    if (atomic_load_explicit(&p->queued, memory_order_relaxed) == 0)
        return NULL;
    pthread_mutex_lock(&p->take_lock);
    if (!p->ready)
        refill_ready(p);
    struct blocking_job *job = p->ready;
    if (job) {
        p->ready = job->next_;
        atomic_fetch_sub_explicit(&p->queued, 1, memory_order_relaxed);
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

static void park(struct blocking *p)
{
    atomic_fetch_add_explicit(&p->parked, 1, memory_order_seq_cst);
    bool stay_up = atomic_load_explicit(&p->queued, memory_order_seq_cst) > 0 ||
                   atomic_load_explicit(&p->stopping, memory_order_seq_cst);
    /* When someone has claimed us already, the token must be taken all the same. */
    if (stay_up && claim_parked(p))
        return;
    while (sem_wait(&p->bell) < 0 && errno == EINTR)
        ;
}

/* The next job; NULL when the pool stops. */
static struct blocking_job *next_job(struct blocking *p)
{
    uint64_t idle_since = 0;
    for (;;) {
        if (atomic_load_explicit(&p->stopping, memory_order_acquire))
            return NULL;
        struct blocking_job *job = pop_job(p);
        if (job)
            return job;
        uint64_t now = clock_now_ns();
        if (!idle_since)
            idle_since = now;
        if (now - idle_since >= p->spin_ns) {
            park(p);
            idle_since = 0;
        } else {
            rte_pause();
        }
    }
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

static void record_job(struct worker *w, uint64_t submitted, uint64_t start, uint64_t end)
{
    pthread_mutex_lock(&w->lock);
    hist_record(&w->queue_ns, start > submitted ? start - submitted : 0);
    hist_record(&w->run_ns, end - start);
    w->completed++;
    pthread_mutex_unlock(&w->lock);
}

static void handle_job(struct worker *w, struct blocking_job *job)
{
    if (!claim_job(job, JOB_RUNNING)) {
        pthread_mutex_lock(&w->lock);
        w->cancelled++;
        pthread_mutex_unlock(&w->lock);
        give_back(job, -ECANCELED);
        return;
    }
    uint64_t submitted = job->submitted_, start = clock_now_ns();
    job->run(job);
    record_job(w, submitted, start, clock_now_ns());
    give_back(job, 0);
}

static void *worker_main(void *arg)
{
    struct worker *w = arg;
    struct blocking_job *job;
    while ((job = next_job(w->pool)))
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
    assert(job->run && job->done && job->reply);
    assert(atomic_load_explicit(&job->state_, memory_order_relaxed) == JOB_IDLE);
    int rc = -ESHUTDOWN;
    atomic_fetch_add_explicit(&p->submitting, 1, memory_order_seq_cst);
    if (!atomic_load_explicit(&p->stopping, memory_order_seq_cst)) {
        job->item_.deliver = deliver_done;
        job->submitted_ = clock_now_ns();
        atomic_store_explicit(&job->state_, JOB_QUEUED, memory_order_relaxed);
        rc = push_job(p, job);
        if (rc < 0)
            atomic_store_explicit(&job->state_, JOB_IDLE, memory_order_relaxed);
        else
            wake_one(p);
    }
    atomic_fetch_sub_explicit(&p->submitting, 1, memory_order_seq_cst);
    atomic_fetch_add_explicit(rc < 0 ? &p->refused : &p->submitted, 1, memory_order_relaxed);
    return rc;
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
    p->nworkers++;
    snprintf(name, sizeof(name), "mr-block/%u", index);
    pthread_setname_np(w->thread, name);
out:
    pthread_attr_destroy(&attr);
    return -rc;
}

static struct blocking *alloc_pool(const struct blocking_opts *o)
{
    struct blocking *p = aligned_alloc(64, sizeof(*p));
    if (!p)
        return NULL;
    memset(p, 0, sizeof(*p));
    p->limit = o->queue;
    p->spin_ns = o->spin_ns;
    p->workers = aligned_alloc(64, o->threads * sizeof(*p->workers));
    if (!p->workers) {
        free(p);
        return NULL;
    }
    memset(p->workers, 0, o->threads * sizeof(*p->workers));
    for (unsigned i = 0; i < o->threads; i++)
        pthread_mutex_init(&p->workers[i].lock, NULL);
    pthread_mutex_init(&p->take_lock, NULL);
    sem_init(&p->bell, 0, 0);
    return p;
}

int blocking_new(const struct blocking_opts *o, struct blocking **ret_pool)
{
    assert(o->threads > 0);
    struct blocking *p = alloc_pool(o);
    if (!p)
        return -ENOMEM;
    for (unsigned i = 0; i < o->threads; i++) {
        int rc = start_worker(p, i, o->cpus);
        if (rc < 0) {
            blocking_stop(p);
            blocking_free(p);
            return rc;
        }
    }
    *ret_pool = p;
    return 0;
}

void blocking_stop(struct blocking *p)
{
    struct blocking_job *job;
    if (p->is_stopped)
        return;
    p->is_stopped = true;
    atomic_store_explicit(&p->stopping, true, memory_order_seq_cst);
    while (wake_one(p))
        ;
    for (unsigned i = 0; i < p->nworkers; i++)
        pthread_join(p->workers[i].thread, NULL);
    /* seq_cst with the submitter's pair: who was not counted here sees stopping. */
    while (atomic_load_explicit(&p->submitting, memory_order_seq_cst) > 0)
        rte_pause();
    while ((job = pop_job(p))) {
        claim_job(job, JOB_CANCELLED);
        atomic_fetch_add_explicit(&p->returned, 1, memory_order_relaxed);
        give_back(job, -ECANCELED);
    }
}

void blocking_free(struct blocking *p)
{
    if (!p)
        return;
    assert(p->is_stopped);
    sem_destroy(&p->bell);
    pthread_mutex_destroy(&p->take_lock);
    for (unsigned i = 0; i < p->nworkers; i++)
        pthread_mutex_destroy(&p->workers[i].lock);
    free(p->workers);
    free(p);
}

void blocking_stats_get(struct blocking *p, struct blocking_stats *ret_stats)
{
    memset(ret_stats, 0, sizeof(*ret_stats));
    ret_stats->submitted = atomic_load_explicit(&p->submitted, memory_order_relaxed);
    ret_stats->refused = atomic_load_explicit(&p->refused, memory_order_relaxed);
    ret_stats->cancelled = atomic_load_explicit(&p->returned, memory_order_relaxed);
    ret_stats->queued = atomic_load_explicit(&p->queued, memory_order_relaxed);
    for (unsigned i = 0; i < p->nworkers; i++) {
        struct worker *w = &p->workers[i];
        pthread_mutex_lock(&w->lock);
        hist_merge(&ret_stats->queue_ns, &w->queue_ns);
        hist_merge(&ret_stats->run_ns, &w->run_ns);
        ret_stats->completed += w->completed;
        ret_stats->cancelled += w->cancelled;
        pthread_mutex_unlock(&w->lock);
    }
}
