/* Channels and permits of one core. */
#include <string.h>

#include "bench/micro/measure.h"
#include "runtime/chan_mpsc.h"
#include "runtime/chan_oneshot.h"
#include "runtime/chan_watch.h"
#include "runtime/chan_watch_remote.h"
#include "runtime/semaphore.h"

#define ITEMS    50000
#define CAPACITY 64
#define BATCHES  400

/* What is inlined must not be left out, nor be taken out of the loop. */
#define COMPILER_BARRIER() __asm__ volatile("" ::: "memory")

static struct sched sched;
static char values[ITEMS]; /* value n is the address of the n-th */

static void no_drop(struct task *t)
{
    (void)t;
}

/* Does something ITEMS times, in as many polls as its budget makes of it: it never waits. */
struct looper {
    struct task task;
    void (*body)(struct looper *l);
    unsigned left;
};

static enum poll looper_poll(struct task *t)
{
    struct looper *l = container_of(t, struct looper, task);
    l->body(l);
    return l->left == 0 ? POLL_READY : POLL_PENDING;
}

static const struct task_kind looper_kind = {"looper", looper_poll, no_drop};

static void sample_loop(struct samples *ret_samples, void (*body)(struct looper *l))
{
    struct looper l = {.body = body};
    sched_init(&sched, &(struct sched_opts){.now = clock_now_ns()});
    for (unsigned i = 0; i < SAMPLES; i++) {
        uint64_t start = cpu_now_ns();
        l.left = ITEMS;
        task_spawn(&sched, &l.task, &looper_kind);
        run_until_done(&sched, &l.task);
        ret_samples->each[i] = cpu_ns_each(start, ITEMS);
    }
    sched_fini(&sched);
}

/* mpsc: a producer and a consumer, each until it must wait or its budget is spent. */

struct producer {
    struct task task;
    struct mpsc *ch;
    struct mpsc_send send;
    bool is_sending;
    uintptr_t sent;
};

static enum poll producer_poll(struct task *t)
{
    struct producer *p = container_of(t, struct producer, task);
    while (p->is_sending || p->sent < ITEMS) {
        if (!p->is_sending) {
            if (!task_consume(t, 1))
                return POLL_PENDING;
            mpsc_send_init(&p->send, p->ch, &values[p->sent++]);
        }
        p->is_sending = mpsc_send_poll(&p->send, t) == POLL_PENDING;
        if (p->is_sending)
            return POLL_PENDING;
    }
    return POLL_READY;
}

static void producer_drop(struct task *t)
{
    mpsc_sender_put(container_of(t, struct producer, task)->ch);
}

static const struct task_kind producer_kind = {"producer", producer_poll, producer_drop};

struct consumer {
    struct task task;
    struct mpsc_recv recv;
    uintptr_t sum;
};

static enum poll consumer_poll(struct task *t)
{
    struct consumer *c = container_of(t, struct consumer, task);
    while (mpsc_recv_poll(&c->recv, t) == POLL_READY) {
        if (c->recv.future.status < 0)
            return POLL_READY;
        c->sum += (uintptr_t)((const char *)c->recv.item - values);
        if (!task_consume(t, 1))
            return POLL_PENDING;
    }
    return POLL_PENDING;
}

static const struct task_kind consumer_kind = {"consumer", consumer_poll, no_drop};

static void run_mpsc(struct samples *ret_samples, const struct cpus *cpus)
{
    static void *slots[CAPACITY];
    static struct mpsc ch;
    static struct producer p;
    static struct consumer c;
    sched_init(&sched, &(struct sched_opts){.now = clock_now_ns()});
    for (unsigned i = 0; i < SAMPLES; i++) {
        uint64_t start = cpu_now_ns();
        mpsc_init(&ch, slots, CAPACITY);
        p = (struct producer){.ch = &ch};
        c = (struct consumer){.sum = 0};
        mpsc_recv_init(&c.recv, &ch);
        task_spawn(&sched, &p.task, &producer_kind);
        task_spawn(&sched, &c.task, &consumer_kind);
        run_until_done(&sched, &c.task);
        ret_samples->each[i] = cpu_ns_each(start, ITEMS);
        if (c.sum != (uintptr_t)ITEMS * (ITEMS - 1) / 2)
            fail("items were lost");
        mpsc_fini(&ch);
    }
    sched_fini(&sched);
}

/* oneshot: TASKS tasks, each of which makes one, parks on it and gets a value, again and again. */

struct answers {
    struct task task;
    struct oneshot_tx tx[TASKS];
    unsigned asked, batches;
};

struct asker {
    struct task task;
    struct answers *answers;
    struct oneshot_rx rx;
    unsigned index;
    uintptr_t sum;
};

static void ask(struct asker *a)
{
    oneshot_init(&a->answers->tx[a->index], &a->rx);
    a->answers->asked++;
}

static enum poll asker_poll(struct task *t)
{
    struct asker *a = container_of(t, struct asker, task);
    while (oneshot_recv_poll(&a->rx, t) == POLL_READY) {
        if (a->rx.future.status < 0)
            return POLL_READY;
        a->sum += (uintptr_t)((const char *)a->rx.value - values);
        ask(a);
    }
    return POLL_PENDING;
}

static void asker_drop(struct task *t)
{
    oneshot_rx_drop(&container_of(t, struct asker, task)->rx);
}

static const struct task_kind asker_kind = {"asker", asker_poll, asker_drop};

static enum poll answers_poll(struct task *t)
{
    struct answers *a = container_of(t, struct answers, task);
    if (a->asked == TASKS) {
        if (a->batches-- == 0)
            return POLL_READY;
        a->asked = 0;
        for (uintptr_t i = 0; i < TASKS; i++)
            oneshot_send(&a->tx[i], &values[i]);
    }
    task_yield(t);
    return POLL_PENDING;
}

static const struct task_kind answers_kind = {"answers", answers_poll, no_drop};

static void run_oneshot(struct samples *ret_samples, const struct cpus *cpus)
{
    static struct answers answers;
    static struct asker askers[TASKS];
    sched_init(&sched, &(struct sched_opts){.now = clock_now_ns()});
    memset(&answers, 0, sizeof(answers));
    for (unsigned i = 0; i < TASKS; i++) {
        askers[i] = (struct asker){.answers = &answers, .index = i};
        ask(&askers[i]);
        task_spawn(&sched, &askers[i].task, &asker_kind);
    }
    for (unsigned i = 0; i < SAMPLES; i++) {
        uint64_t start = cpu_now_ns();
        answers.batches = BATCHES;
        task_spawn(&sched, &answers.task, &answers_kind);
        run_until_done(&sched, &answers.task);
        ret_samples->each[i] = cpu_ns_each(start, (uint64_t)BATCHES * TASKS);
    }
    sched_fini(&sched);
}

static struct watch watched;

static void read_watch(struct looper *l)
{
    for (; l->left > 0; l->left--) {
        const unsigned *value = watch_get(&watched);
        __asm__ volatile("" ::"r"(*value) : "memory");
    }
}

static void run_watch(struct samples *ret_samples, const struct cpus *cpus)
{
    unsigned value = 7;
    watch_init(&watched, &value);
    sample_loop(ret_samples, read_watch);
    watch_fini(&watched);
}

/* The form that cores share: a value is good until the reader says that it is quiescent, here every
 * 64 reads. */

struct shared_value {
    struct watch_value head;
    unsigned n;
};

static struct watch_remote shared;
static struct rte_rcu_qsbr *qsbr;

static void read_shared(struct looper *l)
{
    rte_rcu_qsbr_thread_online(qsbr, 0);
    for (; l->left > 0; l->left--) {
        const struct watch_value *v = watch_remote_get(&shared);
        __asm__ volatile("" ::"r"(container_of(v, struct shared_value, head)->n) : "memory");
        if (l->left % 64 == 0)
            rte_rcu_qsbr_quiescent(qsbr, 0);
    }
    rte_rcu_qsbr_thread_offline(qsbr, 0);
}

static void keep(struct watch_value *v)
{
    (void)v;
}

static void run_watch_cores(struct samples *ret_samples, const struct cpus *cpus)
{
    static struct shared_value value = {.n = 7};
    static struct watch_reader reader;
    static struct mailbox mailbox;
    qsbr = qsbr_new(1);
    if (!qsbr || mailbox_init(&mailbox) < 0)
        fail("no readers");
    watch_remote_init(&shared,
                      &(struct watch_remote_opts){.first = &value.head,
                                                  .qsbr = qsbr,
                                                  .readers = &reader,
                                                  .mailboxes = (struct mailbox *const[]){&mailbox},
                                                  .nreaders = 1,
                                                  .free = keep});
    sample_loop(ret_samples, read_shared);
    watch_remote_fini(&shared);
    mailbox_fini(&mailbox);
    qsbr_free(qsbr);
}

static struct semaphore semaphore;

static void acquire_permits(struct looper *l)
{
    struct semaphore_acquire a;
    for (; l->left > 0; l->left--) {
        semaphore_acquire_init(&a, &semaphore, 1);
        if (future_poll(&a.future, &l->task) == POLL_PENDING)
            return; /* out of budget: nobody else has a permit */
        struct permit p = permit_take(&a.permit);
        COMPILER_BARRIER();
        permit_put(&p);
    }
}

static void try_permits(struct looper *l)
{
    struct permit p;
    for (; l->left > 0; l->left--) {
        if (semaphore_try_acquire(&semaphore, 1, &p) < 0)
            fail("a permit was refused");
        COMPILER_BARRIER();
        permit_put(&p);
    }
}

static void run_permits(struct samples *ret_samples, void (*body)(struct looper *l))
{
    semaphore_init(&semaphore, CAPACITY);
    sample_loop(ret_samples, body);
    semaphore_fini(&semaphore);
}

static void run_semaphore(struct samples *ret_samples, const struct cpus *cpus)
{
    run_permits(ret_samples, acquire_permits);
}

static void run_semaphore_try(struct samples *ret_samples, const struct cpus *cpus)
{
    run_permits(ret_samples, try_permits);
}

const struct measure measures_sync[] = {
    {"mpsc", "mpsc send + recv, one core", run_mpsc},
    {"oneshot", "oneshot made, parked on, sent, received", run_oneshot},
    {"watch", "watch read", run_watch},
    {"watch_cores", "watch read, the form that cores share", run_watch_cores},
    {"semaphore", "permit acquired (future) and put", run_semaphore},
    {"semaphore_try", "permit tried and put", run_semaphore_try},
    {NULL, NULL, NULL},
};
