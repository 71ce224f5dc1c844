#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <errno.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/mailbox.h"
#include "runtime/permits.h"
#include "runtime/rng.h"
#include "runtime/sched.h"

#define START     1234567891ull
#define MS        1000000ull
#define MAX_CORES 8

/* Cores in one thread: each with its scheduler, mailbox and share of the permits. */
struct core {
    struct sched sched;
    struct mailbox box;
    struct permits_core *permits;
};

/* Acquires, keeps what it got until it is told to put it or is aborted. */
struct client {
    struct task task;
    struct core *core;
    struct permits_acquire acquire;
    struct leased_permit permit;
    uint64_t deadline;
    unsigned order;  /* of being granted, from 1 */
    unsigned ticket; /* of asking, per core */
    bool has_ended;
    int status;
};

static struct core cores[MAX_CORES];
static unsigned ncores;
static struct permits *permits;
static struct client clients[64];
static uint64_t now;
static unsigned grants;

static enum poll client_poll(struct task *t)
{
    struct client *c = container_of(t, struct client, task);
    if (c->has_ended || future_poll(&c->acquire.future, t) == POLL_PENDING)
        return POLL_PENDING;
    c->has_ended = true;
    c->status = c->acquire.future.status;
    if (c->status == 0) {
        c->permit = leased_permit_take(&c->acquire.permit);
        c->order = ++grants;
    }
    return POLL_PENDING;
}

static void client_drop(struct task *t)
{
    struct client *c = container_of(t, struct client, task);
    future_drop(&c->acquire.future);
    leased_permit_put(&c->permit);
}

static const struct task_kind client_kind = {"client", client_poll, client_drop};

static void start(const struct permits_opts *o)
{
    now = START;
    grants = 0;
    ncores = o->cores;
    memset(clients, 0, sizeof(clients));
    assert_int_equal(permits_new(o, &permits), 0);
    for (unsigned i = 0; i < ncores; i++) {
        sched_init(&cores[i].sched, &(struct sched_opts){.now = START});
        assert_int_equal(mailbox_init(&cores[i].box), 0);
        cores[i].permits = permits_join(permits, i, &cores[i].sched, &cores[i].box);
    }
}

static void start_simple(uint32_t limit, unsigned n)
{
    start(&(struct permits_opts){.limit = limit, .cores = n, .queue = 16});
}

static bool step(struct core *c)
{
    sched_latch(&c->sched, now);
    bool any = mailbox_drain(&c->box, UINT_MAX) > 0;
    return sched_step(&c->sched, now) || any;
}

/* All cores, until nothing moves. */
static void run(void)
{
    bool any;
    do {
        any = false;
        for (unsigned i = 0; i < ncores; i++)
            any |= step(&cores[i]);
    } while (any);
}

static void stop(void)
{
    for (unsigned i = 0; i < 64; i++)
        task_abort(&clients[i].task);
    for (unsigned i = 0; i < ncores; i++) {
        permits_leave(cores[i].permits);
        sched_fini(&cores[i].sched);
    }
    assert_int_equal(permits_leased(permits), 0);
    for (unsigned i = 0; i < ncores; i++)
        mailbox_fini(&cores[i].box);
    permits_free(permits);
}

static struct client *ask_by(unsigned client, unsigned core, uint64_t deadline)
{
    struct client *c = &clients[client];
    *c = (struct client){.core = &cores[core], .deadline = deadline};
    permits_acquire_init(&c->acquire, cores[core].permits, deadline);
    task_spawn(&cores[core].sched, &c->task, &client_kind);
    return c;
}

/* A client of core `core`, and everything that follows from its asking. */
static struct client *ask(unsigned client, unsigned core)
{
    struct client *c = ask_by(client, core, UINT64_MAX);
    run();
    return c;
}

static void put(struct client *c)
{
    leased_permit_put(&c->permit);
    run();
}

static void leases_come_in_chunks_and_are_kept_up_to_two(void **state)
{
    (void)state;
    start_simple(64, 2); /* chunks of four */
    for (unsigned i = 0; i < 20; i++) {
        assert_int_equal(ask(i, 0)->status, 0);
        assert_int_equal(permits_in_use(permits), i + 1);
        assert_int_equal(permits_leased(permits), (i + 4) / 4 * 4);
    }
    for (unsigned i = 0; i < 20; i++) {
        put(&clients[i]);
        assert_true(permits_leased(permits) - permits_in_use(permits) <= 8);
    }
    assert_int_equal(permits_in_use(permits), 0);
    assert_in_range(permits_leased(permits), 1, 8);
    stop();
}

static void nothing_shared_is_written_while_nobody_waits(void **state)
{
    (void)state;
    struct leased_permit p;
    start_simple(8, 4); /* chunks of one: the worst case */
    for (unsigned i = 0; i < 4; i++) {
        assert_int_equal(permits_try(cores[i].permits, &p), 0);
        leased_permit_put(&p);
    }
    struct permits before;
    memcpy(&before, permits, sizeof(before));
    for (unsigned n = 0; n < 1000; n++) {
        for (unsigned i = 0; i < 4; i++) {
            assert_int_equal(permits_try(cores[i].permits, &p), 0);
            leased_permit_put(&p);
        }
    }
    assert_memory_equal(&before, permits, sizeof(before));
    stop();
}

static void a_waiter_gets_what_another_core_keeps_idle(void **state)
{
    (void)state;
    start_simple(1, 2);
    put(ask(0, 0));
    assert_int_equal(permits_leased(permits), 1);
    ask_by(1, 1, UINT64_MAX);
    step(&cores[1]);
    assert_false(clients[1].has_ended); /* core 0 has a message */
    step(&cores[0]);
    step(&cores[1]);
    assert_int_equal(clients[1].status, 0);
    assert_true(clients[1].has_ended);
    stop();
}

static void a_try_that_fails_asks_the_others(void **state)
{
    (void)state;
    struct leased_permit p = {0};
    start_simple(1, 2);
    put(ask(0, 0));
    assert_int_equal(permits_try(cores[1].permits, &p), -EAGAIN);
    run();
    assert_int_equal(permits_try(cores[1].permits, &p), 0);
    leased_permit_put(&p);
    stop();
}

static void idle_leases_go_back_in_time(void **state)
{
    (void)state;
    start_simple(64, 2);
    put(ask(0, 0));
    now += PERMITS_IDLE_NS - 1;
    run();
    put(ask(1, 0));
    now += 1;
    run(); /* it was used since */
    assert_int_equal(permits_leased(permits), 4);
    now += PERMITS_IDLE_NS - 1;
    run();
    assert_int_equal(permits_leased(permits), 4);
    now += 1;
    run();
    assert_int_equal(permits_leased(permits), 0);
    assert_int_equal(sched_next_timeout(&cores[0].sched),
                     UINT64_MAX); /* sleeps as long as it may */
    stop();
}

static void cores_take_turns_and_each_is_first_in_first_out(void **state)
{
    static const unsigned asked_on[] = {0, 0, 0, 2, 2, 1, 0, 1};
    /* One from each core in turn, the oldest of each: */
    static const unsigned served[] = {0, 5, 3, 1, 7, 4, 2, 6};
    (void)state;
    start_simple(1, 3);
    ask(50, 0);
    for (unsigned i = 0; i < 8; i++)
        ask(i, asked_on[i]);
    struct client *holder = &clients[50];
    permits->last_ = 2;
    for (unsigned i = 0; i < 8; i++) {
        put(holder);
        holder = &clients[served[i]];
        if (holder->order != i + 2)
            fail_msg("turn %u isn't client %u's", i, served[i]);
    }
    stop();
}

static void newcomers_queue_behind_those_who_wait_elsewhere(void **state)
{
    (void)state;
    start_simple(2, 2);
    ask(0, 0);
    ask(1, 0);
    ask(2, 1);
    leased_permit_put(&clients[0].permit); /* promised to core 1, which hasn't heard of it */
    ask_by(3, 0, UINT64_MAX);
    step(&cores[0]);
    assert_false(clients[3].has_ended);
    run();
    assert_int_equal(clients[2].order, 3);
    assert_int_equal(clients[3].order, 0);
    put(&clients[1]);
    assert_int_equal(clients[3].order, 4);
    stop();
}

static void waits_end_by_deadline_and_queues_are_bounded(void **state)
{
    (void)state;
    struct permits_stats st;
    start(&(struct permits_opts){.limit = 1, .cores = 2, .queue = 2});
    ask(0, 0);
    ask_by(1, 1, START + 200 * MS);
    ask_by(2, 1, START + 100 * MS);
    run();
    assert_int_equal(ask(3, 1)->status, -EBUSY);
    ask(4, 0); /* each core has a queue of its own */
    assert_false(clients[4].has_ended);
    now = START + 100 * MS - 1;
    run();
    assert_false(clients[2].has_ended);
    now++;
    run();
    assert_int_equal(clients[2].status, -ETIMEDOUT);
    permits_stats_get(permits, &st);
    assert_int_equal(st.waiting, 2);
    assert_int_equal(st.waits, 3);
    assert_int_equal(st.timed_out, 1);
    assert_int_equal(st.refused, 1);
    now = START + 200 * MS;
    run();
    assert_int_equal(clients[1].status, -ETIMEDOUT);
    put(&clients[0]);
    assert_int_equal(clients[4].status, 0);
    assert_int_equal(permits->waiting_, 0);
    stop();
}

static void whoever_goes_leaves_its_turn_to_others(void **state)
{
    (void)state;
    start_simple(1, 3);
    ask(0, 0);
    ask(1, 1);
    ask(2, 2);
    permits->last_ = 0;
    leased_permit_put(&clients[0].permit); /* core 1 is told */
    task_abort(&clients[1].task);          /* and has nobody left */
    run();
    assert_int_equal(clients[2].order, 2);

    ask(3, 0);
    leased_permit_put(&clients[2].permit);
    mailbox_drain(&cores[0].box, 1); /* granted, but not yet run */
    assert_true(leased_permit_is_held(&clients[3].acquire.permit));
    task_abort(&clients[3].task);
    run();
    assert_int_equal(permits_in_use(permits), 0);
    stop();
}

static void the_limit_changes_live(void **state)
{
    (void)state;
    start_simple(2, 2);
    for (unsigned i = 0; i < 8; i++)
        ask(i, i % 2);
    assert_int_equal(grants, 2);
    permits_set_limit(permits, 5);
    assert_int_equal(permits_limit(permits), 5);
    run();
    assert_int_equal(grants, 5);
    permits_set_limit(permits, 2);
    for (unsigned i = 0; i < 3; i++) {
        put(&clients[i]);
        assert_int_equal(grants, 5); /* still not under it */
    }
    put(&clients[3]);
    assert_int_equal(grants, 6);
    permits_set_limit(permits, 0);
    for (unsigned i = 0; i < 8; i++)
        leased_permit_put(&clients[i].permit);
    run();
    assert_int_equal(grants, 6);
    permits_set_limit(permits, 100);
    run();
    assert_int_equal(grants, 8);
    stop();
}

static void a_cache_from_before_the_limit_fell_is_not_used(void **state)
{
    (void)state;
    struct leased_permit p[8], q = {0};
    start_simple(64, 2);
    for (unsigned i = 0; i < 8; i++)
        assert_int_equal(permits_try(cores[0].permits, &p[i]), 0);
    assert_int_equal(permits_try(cores[1].permits, &q), 0); /* and three cached */
    permits_set_limit(permits, 9);
    struct leased_permit r = {0};
    assert_int_equal(permits_try(cores[1].permits, &r), -EAGAIN);
    leased_permit_put(&p[0]);
    assert_int_equal(permits_try(cores[1].permits, &r), 0);
    /* What is put while over the limit isn't kept to be granted again. */
    permits_set_limit(permits, 2);
    for (unsigned i = 1; i < 8; i++)
        leased_permit_put(&p[i]);
    assert_int_equal(permits_try(cores[0].permits, &p[0]), -EAGAIN);
    leased_permit_put(&q);
    assert_int_equal(permits_try(cores[0].permits, &p[0]), 0);
    leased_permit_put(&p[0]);
    leased_permit_put(&r);
    stop();
}

static void closing_fails_all_who_wait(void **state)
{
    (void)state;
    struct leased_permit p = {0};
    start_simple(1, 2);
    for (unsigned i = 0; i < 6; i++)
        ask(i, i % 2);
    permits_close(permits);
    run();
    for (unsigned i = 1; i < 6; i++)
        assert_int_equal(clients[i].status, -ESHUTDOWN);
    assert_true(leased_permit_is_held(&clients[0].permit));
    assert_int_equal(permits_try(cores[1].permits, &p), -ESHUTDOWN);
    permits_set_limit(permits, 10);
    permits_close(permits);
    assert_int_equal(ask(7, 0)->status, -ESHUTDOWN);
    put(&clients[0]);
    assert_int_equal(permits_leased(permits), 0);
    stop();
}

static void a_core_leaves_and_the_others_go_on(void **state)
{
    (void)state;
    start_simple(1, 2);
    put(ask(0, 0)); /* cached there */
    ask_by(1, 1, UINT64_MAX);
    step(&cores[1]); /* waits; core 0 has a message that it hasn't read */
    task_abort(&clients[0].task);
    permits_leave(cores[0].permits);
    run();
    assert_true(clients[1].has_ended);
    task_abort(&clients[1].task);
    permits_leave(cores[1].permits);
    sched_fini(&cores[0].sched);
    sched_fini(&cores[1].sched);
    mailbox_fini(&cores[0].box);
    mailbox_fini(&cores[1].box);
    permits_free(permits);
    permits_free(NULL);
}

/* Disciplines: who goes next is the caller's to say. */

static struct permits_acquire *pick_last(struct permits_core *c, uint64_t at)
{
    (void)at;
    return permits_queue_last(c);
}

static const struct permits_discipline lifo = {"lifo", pick_last};

/* Drops first what has waited too long to be of use, as CoDel does. */
static struct permits_acquire *pick_fresh(struct permits_core *c, uint64_t at)
{
    struct permits_acquire *a, *next;
    for (a = permits_queue_first(c); a; a = next) {
        next = permits_queue_next(c, a);
        if (at - a->since <= 50 * MS)
            return a;
        permits_refuse(a, -ECANCELED);
    }
    return NULL;
}

static const struct permits_discipline fresh = {"fresh", pick_fresh};

static void a_discipline_says_who_goes_next(void **state)
{
    (void)state;
    start(&(struct permits_opts){.limit = 1, .cores = 1, .queue = 16, .discipline = &lifo});
    for (unsigned i = 0; i < 4; i++)
        ask(i, 0);
    put(&clients[0]);
    assert_int_equal(clients[3].order, 2);
    put(&clients[3]);
    assert_int_equal(clients[2].order, 3);
    stop();

    start(&(struct permits_opts){.limit = 1, .cores = 2, .queue = 16, .discipline = &fresh});
    for (unsigned i = 0; i < 3; i++)
        ask(i, 0);
    now += 60 * MS;
    ask(3, 0);
    put(&clients[0]);
    assert_int_equal(clients[1].status, -ECANCELED);
    assert_int_equal(clients[2].status, -ECANCELED);
    assert_int_equal(clients[3].order, 2);
    ask(4, 0);
    ask(5, 1);
    now += 60 * MS;
    put(&clients[3]); /* all are stale, on both cores: nobody takes it */
    assert_int_equal(clients[4].status, -ECANCELED);
    assert_int_equal(clients[5].status, -ECANCELED);
    assert_int_equal(permits_in_use(permits), 0);
    assert_int_equal(ask(6, 1)->order, 3);
    stop();
}

/* Permits held without need: what idle connections do. */
static void on_wanted(struct permits_core *c)
{
    leased_permit_put(c->user);
}

static void what_is_held_without_need_is_asked_for(void **state)
{
    (void)state;
    struct leased_permit idle[2] = {{0}};
    start(&(struct permits_opts){.limit = 2, .cores = 2, .queue = 16, .wanted = on_wanted});
    for (unsigned i = 0; i < 2; i++) {
        cores[i].permits->user = &idle[i];
        assert_int_equal(permits_try(cores[i].permits, &idle[i]), 0);
    }
    assert_false(permits_is_wanted(cores[0].permits));
    ask_by(0, 1, UINT64_MAX);
    step(&cores[1]);
    assert_true(permits_is_wanted(cores[0].permits));
    run();
    assert_int_equal(clients[0].order, 1);
    assert_false(leased_permit_is_held(&idle[0]));
    assert_false(leased_permit_is_held(&idle[1]));
    stop();
}

/* Gives back one of those it holds, for each that waits now. */
struct hoard {
    struct leased_permit idle[4];
};

static void on_wanted_by_some(struct permits_core *c)
{
    struct hoard *h = c->user;
    struct permits_stats st;
    permits_stats_get(c->permits_, &st);
    for (unsigned i = 0; i < 4 && st.waiting > 0; i++) {
        st.waiting -= leased_permit_is_held(&h->idle[i]);
        leased_permit_put(&h->idle[i]);
    }
}

/* Who begins to wait after the others were asked is asked for again. */
static void everyone_who_waits_is_asked_for(void **state)
{
    (void)state;
    struct hoard h = {0}, none = {0};
    start(&(struct permits_opts){.limit = 4, .cores = 2, .queue = 16, .wanted = on_wanted_by_some});
    cores[0].permits->user = &h;
    cores[1].permits->user = &none;
    for (unsigned i = 0; i < 4; i++)
        assert_int_equal(permits_try(cores[0].permits, &h.idle[i]), 0);
    ask_by(0, 1, UINT64_MAX);
    step(&cores[1]);
    ask_by(1, 1, UINT64_MAX);
    mailbox_drain(&cores[1].box, UINT_MAX);
    step(&cores[0]); /* it gives one, and that is on its way */
    sched_step(&cores[1].sched, now);
    run();
    assert_int_equal(clients[0].order, 1);
    assert_int_equal(clients[1].order, 2);
    for (unsigned i = 0; i < 4; i++)
        leased_permit_put(&h.idle[i]);
    stop();
}

/* Many cores in one thread, from a seed: what must hold after each event. */

enum { EVENTS = 4000 };

struct model {
    uint64_t seed;
    struct rng rng;
    unsigned next_ticket;
};

#define holds(cond)                                                                                \
    do {                                                                                           \
        if (!(cond))                                                                               \
            fail_msg("seed %lu: not true: %s", (unsigned long)m->seed, #cond);                     \
    } while (0)

static uint32_t in_flight(void)
{
    uint32_t n = 0;
    for (unsigned i = 0; i < 64; i++)
        n += leased_permit_is_held(&clients[i].permit) ||
             leased_permit_is_held(&clients[i].acquire.permit);
    return n;
}

static void check_invariants(struct model *m, uint32_t limit_before, uint32_t flight_before)
{
    uint32_t flight = in_flight(), limit = permits_limit(permits), cached = 0, waiting = 0;
    for (unsigned i = 0; i < ncores; i++) {
        const struct permits_core *c = cores[i].permits;
        cached += c->cached_ + c->gifts_;
        waiting += c->nqueue_;
        holds((c->nqueue_ > 0) == (permits->waiting_ >> i & 1));
        holds(c->nqueue_ == 0 || c->cached_ == 0);
    }
    uint32_t bound = limit > limit_before ? limit : limit_before;
    holds(flight <= (flight_before > bound ? flight_before : bound));
    holds(flight <= limit || flight <= flight_before);
    holds(flight == permits_in_use(permits));
    holds(flight + cached == permits_leased(permits));
    struct permits_stats st;
    permits_stats_get(permits, &st);
    holds(st.waiting == waiting);
}

static void random_client_event(struct model *m)
{
    struct client *c = &clients[rng_below(&m->rng, 64)];
    if (!task_is_live(&c->task)) {
        uint64_t deadline =
            rng_chance(&m->rng, 300000) ? now + rng_below(&m->rng, 30 * MS) : UINT64_MAX;
        ask_by((unsigned)(c - clients), rng_below(&m->rng, ncores), deadline);
        c->ticket = ++m->next_ticket;
    } else if (rng_chance(&m->rng, 500000)) {
        task_abort(&c->task);
    } else {
        leased_permit_put(&c->permit);
    }
}

/* One thing happens on one core, or time goes on, or the limit moves. */
static void random_event(struct model *m)
{
    struct core *c = &cores[rng_below(&m->rng, ncores)];
    switch (rng_below(&m->rng, 16)) {
    case 0:
        permits_set_limit(permits, rng_below(&m->rng, 20));
        break;
    case 1:
        now += rng_below(&m->rng, 5 * MS);
        break;
    case 2:
    case 3:
    case 4:
        mailbox_drain(&c->box, 1);
        break;
    case 5:
    case 6:
    case 7:
        sched_step(&c->sched, now);
        break;
    default:
        random_client_event(m);
    }
}

/* When all has come to rest, everyone who could be let in has been. */
static void check_rest(struct model *m)
{
    run();
    uint32_t flight = in_flight(), limit = permits_limit(permits);
    holds(permits->waiting_ == 0 || flight >= limit);
    for (unsigned i = 0; i < 64; i++) {
        for (unsigned j = 0; j < 64; j++) {
            const struct client *a = &clients[i], *b = &clients[j];
            bool overtook = task_is_live(&a->task) && !a->has_ended && task_is_live(&b->task) &&
                            b->order > 0 && a->core == b->core && a->ticket < b->ticket &&
                            a->acquire.since <= b->acquire.since && b->acquire.since > 0;
            holds(!overtook);
        }
    }
}

static void many_cores_never_exceed_the_limit_and_lose_nothing(void **state)
{
    (void)state;
    for (uint64_t seed = 1; seed <= 60; seed++) {
        struct model model = {.seed = seed, .rng = {seed}}, *m = &model;
        start(&(struct permits_opts){.limit = rng_below(&m->rng, 40),
                                     .cores = 1 + rng_below(&m->rng, MAX_CORES),
                                     .queue = 1 + rng_below(&m->rng, 30)});
        for (unsigned i = 0; i < EVENTS; i++) {
            uint32_t limit = permits_limit(permits), flight = in_flight();
            random_event(m);
            check_invariants(m, limit, flight);
            if (rng_chance(&m->rng, 10000))
                check_rest(m);
        }
        /* Everybody lets go: then everyone who waits gets its turn, one after the other. */
        permits_set_limit(permits, 1);
        for (unsigned round = 0; round < 64; round++) {
            for (unsigned i = 0; i < 64; i++)
                leased_permit_put(&clients[i].permit);
            run();
        }
        holds(permits->waiting_ == 0);
        stop();
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(leases_come_in_chunks_and_are_kept_up_to_two),
        cmocka_unit_test(nothing_shared_is_written_while_nobody_waits),
        cmocka_unit_test(a_waiter_gets_what_another_core_keeps_idle),
        cmocka_unit_test(a_try_that_fails_asks_the_others),
        cmocka_unit_test(idle_leases_go_back_in_time),
        cmocka_unit_test(cores_take_turns_and_each_is_first_in_first_out),
        cmocka_unit_test(newcomers_queue_behind_those_who_wait_elsewhere),
        cmocka_unit_test(waits_end_by_deadline_and_queues_are_bounded),
        cmocka_unit_test(whoever_goes_leaves_its_turn_to_others),
        cmocka_unit_test(the_limit_changes_live),
        cmocka_unit_test(a_cache_from_before_the_limit_fell_is_not_used),
        cmocka_unit_test(closing_fails_all_who_wait),
        cmocka_unit_test(a_core_leaves_and_the_others_go_on),
        cmocka_unit_test(a_discipline_says_who_goes_next),
        cmocka_unit_test(what_is_held_without_need_is_asked_for),
        cmocka_unit_test(everyone_who_waits_is_asked_for),
        cmocka_unit_test(many_cores_never_exceed_the_limit_and_lose_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
