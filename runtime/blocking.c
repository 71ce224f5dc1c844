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

/* Bounded queue after D. Vyukov. A cell is free for position `pos` when seq == pos and full when
 * seq == pos + 1; both stores of seq (release) pair with the loads (acquire) of the next user. */
struct cell {
    atomic_size_t seq;
    struct blocking_job *job;
};

struct worker {
    _Alignas(64) pthread_mutex_t lock; /* of the rest; readers take it only for statistics */
    struct hist queue_ns, run_ns;
    uint64_t completed, cancelled;
    struct blocking *pool;
    pthread_t thread;
};

struct blocking {
    struct cell *cells;
    size_t mask;
    struct worker *workers;
    unsigned nworkers; /* started */
    uint64_t spin_ns;
    bool is_stopped; /* set-up thread's */
    sem_t bell;
    atomic_uint_fast64_t submitted, refused, returned;

    /* tail/stopping and parked are Dekker's pair, all seq_cst: a submitter advances tail, then
     * reads parked; a worker counts itself in parked, then reads tail and stopping. */
    _Alignas(64) atomic_size_t tail;
    _Alignas(64) atomic_size_t head;
    _Alignas(64) atomic_uint parked; /* workers that nobody has rung for yet */
    atomic_bool stopping;
    atomic_uint submitting; /* submitters between their look at stopping and their push */
};

static int push_job(struct blocking *p, struct blocking_job *job)
{
    size_t pos = atomic_load_explicit(&p->tail, memory_order_relaxed);
    for (;;) {
        struct cell *cell = &p->cells[pos & p->mask];
        size_t seq = atomic_load_explicit(&cell->seq, memory_order_acquire);
        if (seq == pos) {
            if (atomic_compare_exchange_weak_explicit(&p->tail, &pos, pos + 1, memory_order_seq_cst,
                                                      memory_order_relaxed)) {
                cell->job = job;
                atomic_store_explicit(&cell->seq, pos + 1, memory_order_release);
                return 0;
            }
        } else if ((ptrdiff_t)(seq - pos) < 0) {
            return -EBUSY;
        } else {
            pos = atomic_load_explicit(&p->tail, memory_order_relaxed);
        }
    }
}

static struct blocking_job *pop_job(struct blocking *p)
{
    size_t pos = atomic_load_explicit(&p->head, memory_order_relaxed);
    for (;;) {
        struct cell *cell = &p->cells[pos & p->mask];
        size_t seq = atomic_load_explicit(&cell->seq, memory_order_acquire);
        if (seq == pos + 1) {
            if (atomic_compare_exchange_weak_explicit(&p->head, &pos, pos + 1, memory_order_relaxed,
                                                      memory_order_relaxed)) {
                struct blocking_job *job = cell->job;
                atomic_store_explicit(&cell->seq, pos + p->mask + 1, memory_order_release);
                return job;
            }
        } else if ((ptrdiff_t)(seq - (pos + 1)) < 0) {
            return NULL;
        } else {
            pos = atomic_load_explicit(&p->head, memory_order_relaxed);
        }
    }
}

static size_t queue_len(const struct blocking *p)
{
    size_t head = atomic_load_explicit(&p->head, memory_order_seq_cst);
    size_t tail = atomic_load_explicit(&p->tail, memory_order_seq_cst);
    return (ptrdiff_t)(tail - head) > 0 ? tail - head : 0;
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
    bool stay_up = queue_len(p) > 0 || atomic_load_explicit(&p->stopping, memory_order_seq_cst);
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

static size_t round_up_pow2(size_t n)
{
    size_t size = 2;
    while (size < n)
        size *= 2;
    return size;
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
    p->mask = round_up_pow2(o->queue) - 1;
    p->spin_ns = o->spin_ns;
    p->cells = calloc(p->mask + 1, sizeof(*p->cells));
    p->workers = aligned_alloc(64, o->threads * sizeof(*p->workers));
    if (!p->cells || !p->workers) {
        free(p->cells);
        free(p->workers);
        free(p);
        return NULL;
    }
    for (size_t i = 0; i <= p->mask; i++)
        atomic_store_explicit(&p->cells[i].seq, i, memory_order_relaxed);
    memset(p->workers, 0, o->threads * sizeof(*p->workers));
    for (unsigned i = 0; i < o->threads; i++)
        pthread_mutex_init(&p->workers[i].lock, NULL);
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
    free(p->cells);
    free(p->workers);
    free(p);
}

void blocking_stats_get(struct blocking *p, struct blocking_stats *ret_stats)
{
    memset(ret_stats, 0, sizeof(*ret_stats));
    ret_stats->submitted = atomic_load_explicit(&p->submitted, memory_order_relaxed);
    ret_stats->refused = atomic_load_explicit(&p->refused, memory_order_relaxed);
    ret_stats->cancelled = atomic_load_explicit(&p->returned, memory_order_relaxed);
    ret_stats->queued = (unsigned)queue_len(p);
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
