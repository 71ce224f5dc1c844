#include "dataplane/misbehave.h"

#include <time.h>

#include "runtime/clock.h"
#include "runtime/list.h"

/* Functions of their own, so that their names are in the call chain. */
__attribute__((noinline)) static void compute(uint64_t ns)
{
    for (uint64_t from = clock_now_ns(); clock_now_ns() - from < ns;)
        ;
}

__attribute__((noinline)) static void sleep_over(uint64_t ns)
{
    struct timespec ts = {.tv_sec = (time_t)(ns / CLOCK_NS_PER_S),
                          .tv_nsec = (long)(ns % CLOCK_NS_PER_S)};
    nanosleep(&ts, NULL);
}

static enum poll misbehave_poll(struct task *t)
{
    struct misbehaviour *m = container_of(t, struct misbehaviour, task_);
    (m->sleeps ? sleep_over : compute)(m->ns);
    return POLL_READY;
}

static void misbehave_drop(struct task *t)
{
    struct misbehaviour *m = container_of(t, struct misbehaviour, task_);
    m->finished(m);
}

static const struct task_kind misbehaviour_kind = {"misbehaviour", misbehave_poll, misbehave_drop,
                                                   sizeof(struct misbehaviour)};

void misbehave_start(struct misbehaviour *m, struct sched *s)
{
    m->task_ = (struct task){.label = m->label};
    task_spawn(s, &m->task_, &misbehaviour_kind);
}
