/* Producers and a consumer who dawdle, change their mind and are aborted at random, from seeds. The
 * bound always holds, nothing is lost or comes twice, and each producer's order is kept. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <errno.h>
#include <inttypes.h>
#include <string.h>

#include <cmocka.h>

#include "runtime/chan_mpsc.h"
#include "runtime/rng.h"
#include "runtime/sched.h"
#include "tests/kit/heap.h"

#define START     77777ull
#define SEEDS     400
#define PRODUCERS 6
#define ITEMS     60
#define CAPACITY  8
#define MS        1000000ull

static uint64_t seed;
static struct sched sched;
static struct mpsc ch;
static void *slots[CAPACITY];

#define check(cond)                                                                                \
    do {                                                                                           \
        if (!(cond))                                                                               \
            fail_msg("seed %" PRIu64 ": not (%s)", seed, #cond);                                   \
    } while (0)

static void *item_of(unsigned id, unsigned n)
{
    return (void *)((uintptr_t)id << 32 | n); // NOLINT(performance-no-int-to-ptr)
}

enum act { CHOOSING, NAPPING, SENDING, RESERVING, HOLDING };

struct producer {
    struct task task;
    struct sleep nap;
    struct rng rng;
    unsigned id;
    enum act act;
    bool begun; /* the future has been polled */
    uint64_t until;
    unsigned next;
    struct mpsc_send send;
    struct mpsc_reserve reserve;
    struct mpsc_permit permit;
    uint8_t accepted[ITEMS];
};

static struct producer producers[PRODUCERS];
static unsigned producers_left;

/* Wakes up by itself in a while, now and then: a lost wake-up must not be covered by it always. */
static void nap(struct producer *p, bool surely)
{
    p->until = task_now(&p->task) + 1 + rng_below(&p->rng, 1000);
    if (surely || rng_chance(&p->rng, 300000))
        sleep_arm(&p->nap, &p->task, p->until);
}

static enum act choose(struct producer *p)
{
    switch (rng_below(&p->rng, 4)) {
    case 0:
        nap(p, true);
        return NAPPING;
    case 1:
        mpsc_reserve_init(&p->reserve, &ch);
        return RESERVING;
    case 2:
        mpsc_send_init(&p->send, &ch, item_of(p->id, p->next));
        return SENDING;
    default:
        switch (mpsc_try_send(&ch, item_of(p->id, p->next))) {
        case 0:
            p->accepted[p->next] = 1;
            break;
        case -EPIPE:
            p->next = ITEMS - 1;
            break;
        default:
            break;
        }
        p->next++;
        return CHOOSING;
    }
}

/* Ready: sent, refused or thought better of. */
static enum poll send(struct producer *p)
{
    if (p->begun && rng_chance(&p->rng, 200000)) {
        mpsc_send_drop(&p->send);
    } else if (mpsc_send_poll(&p->send, &p->task) == POLL_PENDING) {
        nap(p, false);
        return POLL_PENDING;
    } else if (p->send.future.status == 0) {
        p->accepted[p->next] = 1;
    } else {
        p->next = ITEMS - 1;
    }
    p->next++;
    return POLL_READY;
}

static enum poll reserve(struct producer *p)
{
    if (p->begun && rng_chance(&p->rng, 200000)) {
        mpsc_reserve_drop(&p->reserve);
        return POLL_READY;
    }
    if (mpsc_reserve_poll(&p->reserve, &p->task) == POLL_PENDING) {
        nap(p, false);
        return POLL_PENDING;
    }
    if (p->reserve.future.status != 0)
        p->next = ITEMS;
    else if (rng_chance(&p->rng, 800000)) /* else dropped with the future, when it is next used */
        p->permit = mpsc_permit_take(&p->reserve.permit);
    mpsc_reserve_drop(&p->reserve);
    return POLL_READY;
}

static void use_permit(struct producer *p)
{
    if (rng_chance(&p->rng, 300000)) {
        mpsc_permit_put(&p->permit);
        return;
    }
    mpsc_permit_send(&p->permit, item_of(p->id, p->next));
    p->accepted[p->next++] = 1;
}

static enum poll act(struct producer *p)
{
    switch (p->act) {
    case CHOOSING:
        p->act = choose(p);
        p->begun = false;
        return POLL_READY;
    case NAPPING:
    case HOLDING:
        if (task_now(&p->task) < p->until)
            return POLL_PENDING;
        if (p->act == HOLDING)
            use_permit(p);
        break;
    case SENDING:
        if (send(p) == POLL_PENDING) {
            p->begun = true;
            return POLL_PENDING;
        }
        break;
    case RESERVING:
        if (reserve(p) == POLL_PENDING) {
            p->begun = true;
            return POLL_PENDING;
        }
        if (p->permit.ch_) {
            nap(p, true);
            p->act = HOLDING;
            return POLL_READY;
        }
        break;
    }
    p->act = CHOOSING;
    return POLL_READY;
}

static enum poll producer_poll(struct task *t)
{
    struct producer *p = container_of(t, struct producer, task);
    while (p->next < ITEMS || p->act == HOLDING) {
        if (!task_consume(t, 1) || act(p) == POLL_PENDING)
            return POLL_PENDING;
    }
    return POLL_READY;
}

static void producer_drop(struct task *t)
{
    struct producer *p = container_of(t, struct producer, task);
    sleep_cancel(&p->nap);
    if (p->act == SENDING)
        mpsc_send_drop(&p->send);
    if (p->act == RESERVING)
        mpsc_reserve_drop(&p->reserve);
    mpsc_permit_put(&p->permit);
    mpsc_sender_put(&ch);
    producers_left--;
}

static const struct task_kind producer_kind = {"producer", producer_poll, producer_drop};

struct consumer {
    struct task task;
    struct sleep nap;
    struct rng rng;
    bool many, waiting, done;
    uint64_t until;
    unsigned got, close_after;
    struct mpsc_recv recv;
    struct mpsc_recv_many recv_many;
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
        mpsc_close(&ch);
}

/* Status of the receive that was begun, or -EAGAIN. */
static int receive(struct consumer *c)
{
    if (!c->waiting) {
        c->many = rng_chance(&c->rng, 500000);
        mpsc_recv_init(&c->recv, &ch);
        mpsc_recv_many_init(&c->recv_many, &ch, c->items, 1 + rng_below(&c->rng, CAPACITY));
    }
    enum poll p =
        c->many ? mpsc_recv_many_poll(&c->recv_many, &c->task) : mpsc_recv_poll(&c->recv, &c->task);
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
    mpsc_recv_drop(&c->recv);
    mpsc_recv_many_drop(&c->recv_many);
    c->waiting = false;
}

static enum poll consumer_poll(struct task *t)
{
    struct consumer *c = container_of(t, struct consumer, task);
    while (task_consume(t, 1)) {
        if (task_now(t) < c->until)
            return POLL_PENDING;
        if (c->waiting && rng_chance(&c->rng, 200000))
            stop_waiting(c);
        int rc = receive(c);
        if (rc == -EPIPE) {
            c->done = true;
            return POLL_READY;
        }
        if (rc == -EAGAIN)
            return POLL_PENDING;
        if (rng_chance(&c->rng, 400000)) {
            c->until = task_now(t) + rng_below(&c->rng, 2000);
            sleep_arm(&c->nap, t, c->until);
        }
    }
    return POLL_PENDING;
}

static void consumer_drop(struct task *t)
{
    sleep_cancel(&container_of(t, struct consumer, task)->nap);
    stop_waiting(container_of(t, struct consumer, task));
}

static const struct task_kind consumer_kind = {"consumer", consumer_poll, consumer_drop};

static void check_bound(void)
{
    check(mpsc_len(&ch) + mpsc_reserved(&ch) <= mpsc_capacity(&ch));
    if (!mpsc_is_closed(&ch))
        check(mpsc_len(&ch) + mpsc_reserved(&ch) + mpsc_free(&ch) == mpsc_capacity(&ch));
}

static void run_to_the_end(struct rng *rng)
{
    uint64_t now = START;
    while (!consumer.done || producers_left > 0) {
        sched_step(&sched, now);
        check_bound();
        if (rng_chance(rng, 5000))
            task_abort(&producers[rng_below(rng, PRODUCERS)].task);
        if (sched_is_runnable(&sched))
            continue;
        uint64_t next = sched_next_timeout(&sched);
        check(next != UINT64_MAX || (consumer.done && producers_left == 0)); /* a lost wake-up */
        now = next > now && next != UINT64_MAX ? next : now;
    }
}

static void spawn_all(struct rng *rng)
{
    for (unsigned i = 0; i < PRODUCERS; i++) {
        producers[i] = (struct producer){.id = i, .rng = {rng_next(rng)}};
        mpsc_sender_get(&ch);
        task_spawn(&sched, &producers[i].task, &producer_kind);
    }
    producers_left = PRODUCERS;
    mpsc_sender_put(&ch); /* ours */
    consumer = (struct consumer){.rng = {rng_next(rng)}};
    if (rng_chance(rng, 300000))
        consumer.close_after = 1 + rng_below(rng, PRODUCERS * ITEMS / 2);
    task_spawn(&sched, &consumer.task, &consumer_kind);
}

static void nothing_is_lost_and_the_bound_holds(void **state)
{
    (void)state;
    unsigned long total = 0, closed = 0;
    for (seed = 1; seed <= SEEDS; seed++) {
        struct rng rng = {seed};
        sched_init(&sched, &(struct sched_opts){.now = START});
        mpsc_init(&ch, slots, 1 + rng_below(&rng, CAPACITY));
        spawn_all(&rng);
        run_to_the_end(&rng);
        for (unsigned i = 0; i < PRODUCERS; i++)
            check(memcmp(producers[i].accepted, consumer.received[i], ITEMS) == 0);
        total += consumer.got;
        closed += mpsc_is_closed(&ch);
        sched_fini(&sched);
        mpsc_fini(&ch);
    }
    /* It did what it says. */
    assert_true(total > 100ul * SEEDS);
    assert_true(closed > SEEDS / 10);
}

/* Ten times the producers. */

#define CALM    10
#define BURST   (10 * CALM)
#define QUEUE   64
#define PERIOD  (10 * MS) /* of a producer */
#define SERVICE (1 * MS)  /* of an item: just enough for the calm */
#define SECONDS 5

struct shedder {
    struct task task;
    struct sleep tick;
    uint64_t next;
};

struct server {
    struct task task;
    struct sleep busy;
    struct mpsc_recv recv;
    uint64_t free_at;
    unsigned long served;
};

static unsigned long offered, shed;

static enum poll shedder_poll(struct task *t)
{
    struct shedder *s = container_of(t, struct shedder, task);
    while (s->next <= task_now(t)) {
        s->next += PERIOD;
        offered++;
        shed += mpsc_try_send(&ch, s) == -EAGAIN;
    }
    sleep_arm(&s->tick, t, s->next);
    return POLL_PENDING;
}

static void shedder_drop(struct task *t)
{
    sleep_cancel(&container_of(t, struct shedder, task)->tick);
}

static const struct task_kind shedder_kind = {"shedder", shedder_poll, shedder_drop};

static enum poll server_poll(struct task *t)
{
    struct server *s = container_of(t, struct server, task);
    while (s->free_at <= task_now(t)) {
        if (mpsc_recv_poll(&s->recv, t) == POLL_PENDING)
            return POLL_PENDING;
        s->served++;
        s->free_at = task_now(t) + SERVICE;
        sleep_arm(&s->busy, t, s->free_at);
    }
    return POLL_PENDING;
}

static void server_drop(struct task *t)
{
    sleep_cancel(&container_of(t, struct server, task)->busy);
    mpsc_recv_drop(&container_of(t, struct server, task)->recv);
}

static const struct task_kind server_kind = {"server", server_poll, server_drop};

static struct shedder shedders[BURST];
static struct server server;
static uint64_t now;

static void run_until(uint64_t end)
{
    for (;;) {
        sched_step(&sched, now);
        assert_true(mpsc_len(&ch) <= QUEUE);
        if (sched_is_runnable(&sched))
            continue;
        uint64_t next = sched_next_timeout(&sched);
        if (next > end)
            break;
        now = next;
    }
    now = end;
}

/* Producers from..to, spread evenly over a period. */
static void add_shedders(unsigned from, unsigned to)
{
    for (unsigned i = from; i < to; i++) {
        shedders[i] = (struct shedder){.next = now + (i - from) * PERIOD / (to - from)};
        task_spawn(&sched, &shedders[i].task, &shedder_kind);
    }
}

static void burst_is_shed_to_the_item_and_costs_no_memory(void **state)
{
    (void)state;
    static void *queue[QUEUE];
    now = START;
    sched_init(&sched, &(struct sched_opts){.now = now});
    mpsc_init(&ch, queue, QUEUE);
    server = (struct server){0};
    mpsc_recv_init(&server.recv, &ch);
    task_spawn(&sched, &server.task, &server_kind);
    offered = shed = 0;

    add_shedders(0, CALM);
    run_until(START + 1000 * MS - 1);
    assert_int_equal(offered, 1000);
    assert_int_equal(shed, 0);
    size_t heap = heap_in_use();

    unsigned long served = server.served;
    now++;
    for (unsigned i = 0; i < CALM; i++)
        task_abort(&shedders[i].task);
    add_shedders(0, BURST);
    run_until(START + (1 + SECONDS) * 1000 * MS - 1);
    assert_int_equal(heap_in_use(), heap);
    assert_int_equal(offered - 1000, 100 * BURST * SECONDS);
    assert_int_equal(server.served - served, 1000 * SECONDS);
    assert_int_equal(shed, offered - server.served - mpsc_len(&ch));
    assert_int_equal(mpsc_len(&ch), QUEUE);

    /* Calm again: nothing more is shed once the queue has a place to spare. */
    for (unsigned i = 0; i < BURST; i++)
        if (i % (BURST / CALM) != 0)
            task_abort(&shedders[i].task);
    unsigned long before = shed;
    run_until(now + 1000 * MS);
    assert_true(shed - before <= 1);
    sched_fini(&sched);
    void *item = NULL;
    while (mpsc_try_recv(&ch, &item) == 0)
        ;
    mpsc_fini(&ch);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(nothing_is_lost_and_the_bound_holds),
        cmocka_unit_test(burst_is_shed_to_the_item_and_costs_no_memory),
    };
    return cmocka_run_group_tests_name("chan_mpsc_random", tests, NULL, NULL);
}
