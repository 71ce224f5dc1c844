/* Between two cores, and with the blocking pool. */
#include <poll.h>
#include <pthread.h>
#include <string.h>

#include "bench/micro/cores.h"
#include "bench/micro/measure.h"
#include "runtime/blocking.h"
#include "runtime/chan_mpsc_remote.h"
#include "runtime/mailbox.h"

#define JOBS     200
#define ITEMS    100000
#define CAPACITY 1024

static struct core own, other;
static char values[ITEMS]; /* value n is the address of the n-th */

static void no_drop(struct task *t)
{
    (void)t;
}

/* mpsc: the other core sends, this one receives what there is. */

static struct producer {
    struct task task;
    struct mpsc_port *port;
    struct mpsc_port_send send;
    bool is_sending;
    uintptr_t sent;
} producer;

static enum poll producer_poll(struct task *t)
{
    struct producer *p = &producer;
    while (p->is_sending || p->sent < ITEMS) {
        if (!p->is_sending) {
            if (!task_consume(t, 1))
                return POLL_PENDING;
            mpsc_port_send_init(&p->send, p->port, &values[p->sent++]);
        }
        p->is_sending = mpsc_port_send_poll(&p->send, t) == POLL_PENDING;
        if (p->is_sending)
            return POLL_PENDING;
    }
    return POLL_READY;
}

static void producer_drop(struct task *t)
{
    mpsc_port_sender_put(producer.port);
}

static const struct task_kind producer_kind = {"producer", producer_poll, producer_drop};

static void *producer_main(void *arg)
{
    task_spawn(&other.sched, &producer.task, &producer_kind);
    core_line_up();
    core_run(&other, &producer.task);
    return NULL;
}

static struct consumer {
    struct task task;
    struct mpsc_remote_recv_many recv;
    void *items[64];
    uintptr_t sum;
} consumer;

static enum poll consumer_poll(struct task *t)
{
    struct consumer *c = &consumer;
    while (mpsc_remote_recv_many_poll(&c->recv, t) == POLL_READY) {
        if (c->recv.future.status < 0)
            return POLL_READY;
        for (unsigned i = 0; i < c->recv.n; i++)
            c->sum += (uintptr_t)((const char *)c->items[i] - values);
        if (!task_consume(t, c->recv.n))
            return POLL_PENDING;
    }
    return POLL_PENDING;
}

static const struct task_kind consumer_kind = {"consumer", consumer_poll, no_drop};

static double mpsc_once(const struct cpus *cpus)
{
    struct mpsc_remote *ch;
    core_start(&own);
    core_start(&other);
    if (mpsc_remote_new(
            &(struct mpsc_remote_opts){.capacity = CAPACITY,
                                       .nports = 1,
                                       .receiver = &own.mailbox,
                                       .senders = (struct mailbox *const[]){&other.mailbox}},
            &ch) < 0)
        fail("no channel");
    producer = (struct producer){.port = mpsc_remote_port(ch, 0)};
    consumer = (struct consumer){.sum = 0};
    mpsc_remote_recv_many_init(&consumer.recv, ch, consumer.items, 64);
    task_spawn(&own.sched, &consumer.task, &consumer_kind);
    pthread_t thread = core_run_other(producer_main, cpus);
    core_line_up();
    uint64_t start = clock_now_ns();
    core_run(&own, &consumer.task);
    double each = wall_ns_each(start, ITEMS);
    pthread_join(thread, NULL);
    if (consumer.sum != (uintptr_t)ITEMS * (ITEMS - 1) / 2)
        fail("items were lost");
    core_end(&own);
    core_end(&other);
    mpsc_remote_free(ch);
    return each;
}

static void run_mpsc(struct samples *ret_samples, const struct cpus *cpus)
{
    for (unsigned i = 0; i < SAMPLES; i++)
        ret_samples->each[i] = mpsc_once(cpus);
}

/* The blocking pool: one job after another. */

static struct round_trip {
    struct blocking_job job;
    struct mailbox mailbox;
    bool is_back;
} trip;

static void nothing_run(struct blocking_job *job)
{
    (void)job;
}

static void on_done(struct blocking_job *job)
{
    trip.is_back = true;
}

static void wait_asleep(struct mailbox *mb)
{
    struct pollfd fd = {.fd = mailbox_fd(mb), .events = POLLIN};
    if (!mailbox_prepare_sleep(mb))
        return;
    poll(&fd, 1, -1);
    mailbox_end_sleep(mb);
}

static void go_and_return(struct blocking *pool, bool asleep)
{
    trip.is_back = false;
    if (blocking_submit(pool, &trip.job) < 0)
        fail("a job was refused");
    while (!trip.is_back) {
        if (asleep)
            wait_asleep(&trip.mailbox);
        mailbox_drain(&trip.mailbox, 1);
    }
}

/* `spin_ns` 0: thread and core both sleep in between. */
static void run_blocking(struct samples *ret_samples, const struct cpus *cpus, uint64_t spin_ns)
{
    static const struct blocking_class class = {.name = "nothing", .max_queued = 16};
    struct blocking *pool;
    cpu_set_t set;
    CPU_ZERO(&set);
    CPU_SET(cpus->other, &set);
    memset(&trip, 0, sizeof(trip));
    trip.job = (struct blocking_job){.run = nothing_run, .done = on_done, .reply = &trip.mailbox};
    if (mailbox_init(&trip.mailbox) < 0 ||
        blocking_new(
            &(struct blocking_opts){
                .threads = 1, .classes = &class, .nclasses = 1, .spin_ns = spin_ns, .cpus = &set},
            &pool) < 0)
        fail("no blocking pool");
    for (unsigned i = 0; i < SAMPLES; i++) {
        uint64_t start = clock_now_ns();
        for (unsigned n = 0; n < JOBS; n++)
            go_and_return(pool, spin_ns == 0);
        ret_samples->each[i] = wall_ns_each(start, JOBS);
    }
    blocking_stop(pool, BLOCKING_RETURN);
    blocking_free(pool);
    mailbox_fini(&trip.mailbox);
}

static void run_blocking_spun(struct samples *ret_samples, const struct cpus *cpus)
{
    run_blocking(ret_samples, cpus, 10 * CLOCK_NS_PER_S);
}

static void run_blocking_parked(struct samples *ret_samples, const struct cpus *cpus)
{
    run_blocking(ret_samples, cpus, 0);
}

const struct measure measures_cores[] = {
    {"mpsc_cores", "mpsc send + recv, two cores", run_mpsc},
    {"blocking_spun", "blocking round trip, both sides spin", run_blocking_spun},
    {"blocking_parked", "blocking round trip, both sides asleep", run_blocking_parked},
    {NULL, NULL, NULL},
};
