#include "runtime/sampler.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "runtime/clock.h"
#include "runtime/frames.h"
#include "runtime/sched.h"

struct watched {
    struct sched *sched; /* NULL: a free place */
    pid_t thread;
    const struct task_kind *kind; /* as of the last look */
    uint64_t beat, seen;          /* seen: when this stretch was first looked at */
    bool sampled;
};

struct sampler {
    pthread_mutex_t lock; /* of all that follows; taken by cores at their start and end only */
    pthread_cond_t wake;
    struct watched cores[SAMPLER_MOST];
    bool started, stopping;
    pthread_t thread;
};

static int sampler_signal(void)
{
    return SIGRTMIN + 2;
}

static void on_signal(int number, siginfo_t *info, void *context)
{
    (void)number, (void)info;
    int saved = errno;
    struct sched *s = sched_of_thread();
    uintptr_t frames[STALL_FRAMES];
    if (s)
        sched_sample(s, frames, frames_of_context(context, frames, STALL_FRAMES));
    errno = saved;
}

static bool is_stuck(struct watched *w, uint64_t now)
{
    const struct task_kind *kind =
        atomic_load_explicit(&w->sched->watch.kind, memory_order_relaxed);
    uint64_t beat = atomic_load_explicit(&w->sched->watch.beat, memory_order_relaxed);
    if (!kind || kind != w->kind || beat != w->beat) {
        w->kind = kind;
        w->beat = beat;
        w->seen = now;
        w->sampled = false;
        return false;
    }
    return !w->sampled && now - w->seen >= SAMPLER_LIMIT_NS;
}

/* Under the lock, so that no thread ends between being found stuck and being signalled. */
static unsigned look(struct sampler *s, uint64_t now)
{
    unsigned n = 0;
    for (unsigned i = 0; i < SAMPLER_MOST; i++) {
        struct watched *w = &s->cores[i];
        if (!w->sched || !is_stuck(w, now))
            continue;
        w->sampled = true;
        n += syscall(SYS_tgkill, getpid(), w->thread, sampler_signal()) == 0;
    }
    return n;
}

unsigned sampler_look(struct sampler *s, uint64_t now_ns)
{
    pthread_mutex_lock(&s->lock);
    unsigned n = look(s, now_ns);
    pthread_mutex_unlock(&s->lock);
    return n;
}

static void add_ns(struct timespec *ts, uint64_t ns)
{
    ts->tv_nsec += (long)ns;
    if (ts->tv_nsec >= (long)CLOCK_NS_PER_S) {
        ts->tv_sec++;
        ts->tv_nsec -= (long)CLOCK_NS_PER_S;
    }
}

static void *sampler_main(void *arg)
{
    struct sampler *s = arg;
    pthread_setname_np(pthread_self(), "sampler");
    pthread_mutex_lock(&s->lock);
    while (!s->stopping) {
        struct timespec until;
        look(s, clock_now_ns());
        clock_gettime(CLOCK_MONOTONIC, &until);
        add_ns(&until, SAMPLER_LOOK_NS);
        pthread_cond_clockwait(&s->wake, &s->lock, CLOCK_MONOTONIC, &until);
    }
    pthread_mutex_unlock(&s->lock);
    return NULL;
}

static int install_handler(void)
{
    struct sigaction sa = {.sa_sigaction = on_signal, .sa_flags = SA_SIGINFO | SA_RESTART};
    sigemptyset(&sa.sa_mask);
    return sigaction(sampler_signal(), &sa, NULL) ? -errno : 0;
}

/* The thread takes no signals; whom they are for is control's business. */
int sampler_start(struct sampler *s)
{
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    int rc = -pthread_create(&s->thread, NULL, sampler_main, s);
    s->started = rc == 0;
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return rc;
}

int sampler_new(struct sampler **ret_sampler)
{
    struct sampler *s = calloc(1, sizeof(*s));
    if (!s)
        return -ENOMEM;
    frames_prepare();
    pthread_mutex_init(&s->lock, NULL);
    pthread_cond_init(&s->wake, NULL);
    int rc = install_handler();
    if (rc) {
        free(s);
        return rc;
    }
    *ret_sampler = s;
    return 0;
}

void sampler_free(struct sampler *s)
{
    if (!s)
        return;
    pthread_mutex_lock(&s->lock);
    s->stopping = true;
    pthread_cond_signal(&s->wake);
    pthread_mutex_unlock(&s->lock);
    if (s->started)
        pthread_join(s->thread, NULL);
    pthread_cond_destroy(&s->wake);
    pthread_mutex_destroy(&s->lock);
    free(s);
}

static struct watched *find(struct sampler *s, const struct sched *sched)
{
    for (unsigned i = 0; i < SAMPLER_MOST; i++)
        if (s->cores[i].sched == sched)
            return &s->cores[i];
    return NULL;
}

static void admit_signal(int how)
{
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, sampler_signal());
    pthread_sigmask(how, &set, NULL);
}

int sampler_attach(struct sampler *s, struct sched *sched)
{
    pthread_mutex_lock(&s->lock);
    struct watched *w = find(s, NULL);
    if (w)
        *w = (struct watched){.sched = sched, .thread = gettid()};
    pthread_mutex_unlock(&s->lock);
    if (!w)
        return -ENOSPC;
    admit_signal(SIG_UNBLOCK);
    return 0;
}

void sampler_detach(struct sampler *s, struct sched *sched)
{
    pthread_mutex_lock(&s->lock);
    struct watched *w = find(s, sched);
    if (w)
        w->sched = NULL;
    pthread_mutex_unlock(&s->lock);
    admit_signal(SIG_BLOCK);
}
