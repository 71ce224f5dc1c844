/* Producers on several cores and a receiver on another, from seeds: stepped in random order in one
 * thread, where a lost wake-up shows as a world that stands still, and on threads of their own. The
 * bound always holds, nothing is lost or comes twice, and each producer's order is kept. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <errno.h>
#include <inttypes.h>
#include <pthread.h>
#include <string.h>

#include <cmocka.h>

#include "runtime/chan_mpsc_remote.h"
#include "runtime/rng.h"
#include "tests/kit/core_rig.h"

#define SENDERS   3 /* cores; the receiver's is one more */
#define HOME      SENDERS
#define CORES     (SENDERS + 1)
#define TASKS     3 /* a sending core */
#define PRODUCERS (SENDERS * TASKS)
#define ITEMS     4000
#define CAPACITY  8

static uint64_t seed;
static unsigned items; /* a producer */
static struct core_rig cores[CORES];
static struct mpsc_remote *ch;

/* Other threads can't fail a test by a jump. */
#define check(cond)                                                                                \
    do {                                                                                           \
        if (!(cond)) {                                                                             \
            fprintf(stderr, "seed %" PRIu64 ": not (%s)\n", seed, #cond);                          \
            abort();                                                                               \
        }                                                                                          \
    } while (0)

static void *item_of(unsigned id, unsigned n)
{
    return (void *)((uintptr_t)id << 32 | n); // NOLINT(performance-no-int-to-ptr)
}

enum act { CHOOSING, DAWDLING, SENDING, RESERVING, HOLDING };

struct producer {
    struct task task;
    struct rng rng;
    struct mpsc_port *port;
    unsigned id, next;
    unsigned dawdle; /* polls to let pass */
    enum act act;
    bool begun; /* the future has been polled */
    struct mpsc_port_send send;
    struct mpsc_port_reserve reserve;
    struct mpsc_port_permit permit;
    uint8_t accepted[ITEMS];
};

static struct producer producers[PRODUCERS];

static void accept(struct producer *p, unsigned n)
{
    memset(p->accepted + p->next, 1, n);
    p->next += n;
}

static void try_send_many(struct producer *p)
{
    void *many[3];
    unsigned n = items - p->next < 3 ? items - p->next : 3;
    for (unsigned i = 0; i < n; i++)
        many[i] = item_of(p->id, p->next + i);
    n = mpsc_port_try_send_many(p->port, many, n);
    accept(p, n);
    if (n == 0)
        p->next++;
}

static enum act choose(struct producer *p)
{
    switch (rng_below(&p->rng, 6)) {
    case 0:
        p->dawdle = rng_below(&p->rng, 4);
        return DAWDLING;
    case 1:
        mpsc_port_reserve_init(&p->reserve, p->port);
        return RESERVING;
    case 2:
        try_send_many(p);
        return CHOOSING;
    case 3:
        if (mpsc_port_try_send(p->port, item_of(p->id, p->next)) == 0)
            accept(p, 1);
        else
            p->next++;
        return CHOOSING;
    default:
        mpsc_port_send_init(&p->send, p->port, item_of(p->id, p->next));
        return SENDING;
    }
}

/* Will look again by itself: seldom, so that a lost wake-up is not covered. */
static enum poll wait(struct producer *p)
{
    p->begun = true;
    if (rng_chance(&p->rng, 100000))
        task_yield(&p->task);
    return POLL_PENDING;
}

static enum poll send(struct producer *p)
{
    if (p->begun && rng_chance(&p->rng, 100000)) {
        mpsc_port_send_drop(&p->send);
        p->next++;
    } else if (mpsc_port_send_poll(&p->send, &p->task) == POLL_PENDING) {
        return wait(p);
    } else if (p->send.future.status == 0) {
        accept(p, 1);
    } else {
        p->next = items;
    }
    p->act = CHOOSING;
    return POLL_READY;
}

static enum poll reserve(struct producer *p)
{
    if (p->begun && rng_chance(&p->rng, 100000)) {
        mpsc_port_reserve_drop(&p->reserve);
        p->act = CHOOSING;
        return POLL_READY;
    }
    if (mpsc_port_reserve_poll(&p->reserve, &p->task) == POLL_PENDING)
        return wait(p);
    p->act = HOLDING;
    if (p->reserve.future.status == 0)
        p->permit = mpsc_port_permit_take(&p->reserve.permit);
    else
        p->next = items;
    p->dawdle = rng_below(&p->rng, 3);
    return POLL_READY;
}

static enum poll dawdle(struct producer *p)
{
    if (p->dawdle > 0) {
        p->dawdle--;
        task_yield(&p->task);
        return POLL_PENDING;
    }
    if (p->permit.port_ && rng_chance(&p->rng, 700000)) {
        mpsc_port_permit_send(&p->permit, item_of(p->id, p->next));
        accept(p, 1);
    }
    mpsc_port_permit_put(&p->permit);
    p->act = CHOOSING;
    return POLL_READY;
}

static enum poll act(struct producer *p)
{
    switch (p->act) {
    case CHOOSING:
        p->begun = false;
        p->act = choose(p);
        return POLL_READY;
    case SENDING:
        return send(p);
    case RESERVING:
        return reserve(p);
    case DAWDLING:
    case HOLDING:
        break;
    }
    return dawdle(p);
}

static void check_bound(const struct mpsc_port *p)
{
    check(rte_ring_count(p->ring_) + mpsc_port_reserved(p) <= rte_ring_get_capacity(p->ring_));
    check(mpsc_port_free(p) + mpsc_port_reserved(p) <= rte_ring_get_capacity(p->ring_));
}

static enum poll producer_poll(struct task *t)
{
    struct producer *p = container_of(t, struct producer, task);
    while (p->next < items || p->act == HOLDING) {
        if (!task_consume(t, 1) || act(p) == POLL_PENDING)
            return POLL_PENDING;
        if (rng_chance(&p->rng, 200)) {
            task_abort(t);
            return POLL_PENDING;
        }
    }
    return POLL_READY;
}

static void producer_drop(struct task *t)
{
    struct producer *p = container_of(t, struct producer, task);
    if (p->act == SENDING)
        mpsc_port_send_drop(&p->send);
    if (p->act == RESERVING)
        mpsc_port_reserve_drop(&p->reserve);
    mpsc_port_permit_put(&p->permit);
    mpsc_port_sender_put(p->port);
}

static const struct task_kind producer_kind = {"producer", producer_poll, producer_drop};

struct consumer {
    struct task task;
    struct rng rng;
    bool many, waiting;
    unsigned got, close_after, dawdle;
    struct mpsc_remote_recv recv;
    struct mpsc_remote_recv_many recv_many;
    void *items[CAPACITY];
    unsigned last[PRODUCERS]; /* sequence number + 1 */
    uint8_t received[PRODUCERS][ITEMS];
};

static struct consumer consumer;

static void take(struct consumer *c, void *item)
{
    unsigned id = (unsigned)((uintptr_t)item >> 32), n = (unsigned)(uintptr_t)item;
    check(n >= c->last[id]);
    c->last[id] = n + 1;
    c->received[id][n] = 1;
    if (++c->got == c->close_after)
        mpsc_remote_close(ch);
}

static int receive(struct consumer *c)
{
    if (!c->waiting) {
        c->many = rng_chance(&c->rng, 500000);
        mpsc_remote_recv_init(&c->recv, ch);
        mpsc_remote_recv_many_init(&c->recv_many, ch, c->items, 1 + rng_below(&c->rng, CAPACITY));
    }
    enum poll p = c->many ? mpsc_remote_recv_many_poll(&c->recv_many, &c->task)
                          : mpsc_remote_recv_poll(&c->recv, &c->task);
    c->waiting = p == POLL_PENDING;
    if (c->waiting)
        return -EAGAIN;
    if (!c->many && c->recv.future.status == 0)
        take(c, c->recv.item);
    for (unsigned i = 0; c->many && i < c->recv_many.n; i++)
        take(c, c->items[i]);
    return c->many ? c->recv_many.future.status : c->recv.future.status;
}

static void stop_waiting(struct consumer *c)
{
    mpsc_remote_recv_drop(&c->recv);
    mpsc_remote_recv_many_drop(&c->recv_many);
    c->waiting = false;
}

static enum poll consumer_poll(struct task *t)
{
    struct consumer *c = container_of(t, struct consumer, task);
    if (c->dawdle > 0) {
        c->dawdle--;
        task_yield(t);
        return POLL_PENDING;
    }
    if (c->waiting && rng_chance(&c->rng, 200000))
        stop_waiting(c);
    for (;;) {
        int rc = receive(c);
        if (rc != 0)
            return rc == -EPIPE ? POLL_READY : POLL_PENDING;
        if (rng_chance(&c->rng, 100000)) {
            c->dawdle = rng_below(&c->rng, 5);
            task_yield(t);
            return POLL_PENDING;
        }
    }
}

static void consumer_drop(struct task *t)
{
    stop_waiting(container_of(t, struct consumer, task));
}

static const struct task_kind consumer_kind = {"consumer", consumer_poll, consumer_drop};

static void open_world(struct rng *rng)
{
    struct mailbox *senders[SENDERS];
    for (unsigned i = 0; i < CORES; i++)
        check(core_rig_init(&cores[i]) == 0);
    for (unsigned i = 0; i < SENDERS; i++)
        senders[i] = &cores[i].mailbox;
    struct mpsc_remote_opts o = {.capacity = 1 + rng_below(rng, CAPACITY),
                                 .nports = SENDERS,
                                 .receiver = &cores[HOME].mailbox,
                                 .senders = senders};
    check(mpsc_remote_new(&o, &ch) == 0);
    for (unsigned i = 0; i < PRODUCERS; i++) {
        struct mpsc_port *port = mpsc_remote_port(ch, i % SENDERS);
        producers[i] = (struct producer){.id = i, .rng = {rng_next(rng)}, .port = port};
        mpsc_port_sender_get(port);
        task_spawn(&cores[i % SENDERS].sched, &producers[i].task, &producer_kind);
    }
    for (unsigned i = 0; i < SENDERS; i++)
        mpsc_port_sender_put(mpsc_remote_port(ch, i)); /* ours */
    consumer = (struct consumer){.rng = {rng_next(rng)}};
    if (rng_chance(rng, 300000))
        consumer.close_after = 1 + rng_below(rng, PRODUCERS * items / 2);
    task_spawn(&cores[HOME].sched, &consumer.task, &consumer_kind);
}

static void close_world(void)
{
    core_rigs_settle(cores, CORES);
    for (unsigned i = 0; i < PRODUCERS; i++)
        check(memcmp(producers[i].accepted, consumer.received[i], items) == 0);
    mpsc_remote_free(ch);
    for (unsigned i = 0; i < CORES; i++) {
        core_rig_stop(&cores[i]);
        core_rig_fini(&cores[i]);
    }
}

static unsigned tasks_left(void)
{
    unsigned n = 0;
    for (unsigned i = 0; i < CORES; i++)
        n += cores[i].sched.stats.live;
    return n;
}

static void step_at_random(struct rng *rng)
{
    while (tasks_left() > 0) {
        unsigned i = rng_below(rng, CORES), idle = 0;
        if (rng_chance(rng, 500000))
            mailbox_drain(&cores[i].mailbox, 1);
        else
            sched_step(&cores[i].sched, ++cores[i].now);
        for (unsigned p = 0; p < SENDERS; p++)
            check_bound(mpsc_remote_port(ch, p));
        for (unsigned c = 0; c < CORES; c++)
            idle += core_rig_is_idle(&cores[c]);
        check(idle < CORES || tasks_left() == 0); /* a lost wake-up */
    }
}

static void any_order_of_events_keeps_the_bound_and_every_item(void **state)
{
    enum { SEEDS = 300 };
    (void)state;
    unsigned long total = 0;
    items = 50;
    for (seed = 1; seed <= SEEDS; seed++) {
        struct rng rng = {seed};
        open_world(&rng);
        step_at_random(&rng);
        total += consumer.got;
        close_world();
    }
    assert_true(total > 100ul * SEEDS); /* it did what it says */
}

static void *run_core(void *arg)
{
    core_rig_run(arg);
    return NULL;
}

static void threads_lose_nothing_and_no_wakeup(void **state)
{
    enum { SEEDS = 4 };
    (void)state;
    items = ITEMS;
    for (seed = 1; seed <= SEEDS; seed++) {
        struct rng rng = {seed};
        pthread_t thread[CORES];
        open_world(&rng);
        for (unsigned i = 0; i < CORES; i++)
            check(pthread_create(&thread[i], NULL, run_core, &cores[i]) == 0);
        for (unsigned i = 0; i < CORES; i++)
            pthread_join(thread[i], NULL);
        close_world();
    }
}

/* A producer that only waits for room and a receiver that only waits for items, one slot between
 * them: each item parks both. */
struct pusher {
    struct task task;
    struct mpsc_port_send send;
    unsigned sent;
};

static enum poll pusher_poll(struct task *t)
{
    struct pusher *p = container_of(t, struct pusher, task);
    while (mpsc_port_send_poll(&p->send, t) == POLL_READY) {
        if (++p->sent == ITEMS)
            return POLL_READY;
        mpsc_port_send_init(&p->send, p->send.port_, item_of(0, p->sent));
    }
    return POLL_PENDING;
}

static void pusher_drop(struct task *t)
{
    mpsc_port_sender_put(container_of(t, struct pusher, task)->send.port_);
}

static const struct task_kind pusher_kind = {"pusher", pusher_poll, pusher_drop};

static void two_threads_in_lockstep_wake_each_other(void **state)
{
    (void)state;
    struct pusher pusher = {0};
    struct mailbox *sender = &cores[0].mailbox;
    pthread_t thread;
    check(core_rig_init(&cores[0]) == 0 && core_rig_init(&cores[HOME]) == 0);
    struct mpsc_remote_opts o = {
        .capacity = 1, .nports = 1, .receiver = &cores[HOME].mailbox, .senders = &sender};
    check(mpsc_remote_new(&o, &ch) == 0);
    mpsc_port_send_init(&pusher.send, mpsc_remote_port(ch, 0), item_of(0, 0));
    consumer = (struct consumer){.rng = {1}};
    task_spawn(&cores[0].sched, &pusher.task, &pusher_kind);
    task_spawn(&cores[HOME].sched, &consumer.task, &consumer_kind);
    check(pthread_create(&thread, NULL, run_core, &cores[0]) == 0);
    core_rig_run(&cores[HOME]);
    pthread_join(thread, NULL);
    assert_int_equal(consumer.got, ITEMS);
    mailbox_drain(&cores[0].mailbox, 10);
    mailbox_drain(&cores[HOME].mailbox, 10);
    mpsc_remote_free(ch);
    core_rig_fini(&cores[0]);
    core_rig_fini(&cores[HOME]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(any_order_of_events_keeps_the_bound_and_every_item),
        cmocka_unit_test(threads_lose_nothing_and_no_wakeup),
        cmocka_unit_test(two_threads_in_lockstep_wake_each_other),
    };
    return cmocka_run_group_tests_name("chan_mpsc_remote_random", tests, NULL, NULL);
}
