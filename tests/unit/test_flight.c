/* Single flight on the virtual clock: who starts, who shares, who leaves. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "runtime/deadline.h"
#include "runtime/flight.h"
#include "runtime/rng.h"

#define START 271828182845ull
#define MS    1000000ull
#define NEVER DEADLINE_NONE

static struct sched sched;
static struct flight flight;

/* What the work does; a test sets it before it asks. */
static struct {
    uint64_t takes;
    int status;
    struct task *kills; /* aborted in its first poll */
    struct task *kills_at_landing;
} plan;

static struct { /* what came of it */
    unsigned starts, drops, landings;
    int refs;             /* references to values: what the callers and the group hold */
    unsigned in_work[16]; /* pieces of work by key, those named k0, k1 ... */
} tally;

struct value {
    unsigned serial; /* of the work that made it */
    char key[16];
};

struct lookup {
    struct flight_work work;
    struct sleep sleep;
    uint64_t ready_at;
    unsigned serial;
    int status;
};

static struct lookup *lookup_of(struct future *f)
{
    return container_of(f, struct lookup, work.f);
}

static enum poll lookup_poll(struct future *f, struct task *t)
{
    struct lookup *l = lookup_of(f);
    if (plan.kills) {
        struct task *victim = plan.kills;
        plan.kills = NULL;
        task_abort(victim);
        /* It dies after this poll; nobody may join it meanwhile. */
        assert_false(flight_is_running(&flight, l->work.key, l->work.key_len));
    }
    if (task_now(t) < l->ready_at) {
        sleep_arm(&l->sleep, t, l->ready_at);
        return POLL_PENDING;
    }
    f->status = l->status;
    if (l->status == 0) {
        struct value *v = l->work.value;
        v->serial = l->serial;
        snprintf(v->key, sizeof(v->key), "%.*s", (int)l->work.key_len, (const char *)l->work.key);
        tally.refs++;
    }
    return POLL_READY;
}

static unsigned *in_work(const struct flight_work *w)
{
    const char *key = w->key;
    bool is_numbered = w->key_len == 2 && key[0] == 'k';
    return is_numbered ? &tally.in_work[key[1] - '0'] : NULL;
}

static void lookup_drop(struct future *f)
{
    struct lookup *l = lookup_of(f);
    sleep_cancel(&l->sleep);
    tally.drops++;
    if (in_work(&l->work))
        --*in_work(&l->work);
}

static void lookup_start(struct flight_work *w)
{
    static const struct future_kind kind = {"lookup", lookup_poll, lookup_drop};
    struct lookup *l = container_of(w, struct lookup, work);
    assert_ptr_equal(flight_arg(w), &tally);
    future_init(&w->f, &kind);
    l->ready_at = sched_now(&sched) + plan.takes;
    l->status = plan.status;
    l->serial = ++tally.starts;
    if (in_work(w))
        assert_int_equal(++*in_work(w), 1);
}

static void lookup_landed(struct flight_work *w)
{
    assert_true(future_is_done(&w->f));
    tally.landings++;
    if (plan.kills_at_landing)
        task_abort(plan.kills_at_landing);
}

static void value_share(void *value)
{
    (void)value;
    tally.refs++;
}

static void value_release(void *value)
{
    assert_true(((struct value *)value)->serial > 0);
    tally.refs--;
}

static const struct flight_kind lookup_kind = {
    .name = "lookup",
    .work_size = sizeof(struct lookup),
    .value_size = sizeof(struct value),
    .start = lookup_start,
    .landed = lookup_landed,
    .share = value_share,
    .release = value_release,
};

/* A task that makes one call. */
struct caller {
    struct task task;
    struct flight_call call;
    struct value value;
    struct task *kills; /* when it has its answer */
    bool done;
    int status;
    uint64_t done_at;
};

static enum poll caller_poll(struct task *t)
{
    struct caller *c = container_of(t, struct caller, task);
    assert_false(c->done);
    if (future_poll(&c->call.f, t) == POLL_PENDING)
        return POLL_PENDING;
    c->done = true;
    c->status = c->call.f.status;
    c->done_at = task_now(t);
    if (c->status == 0)
        tally.refs--; /* it has seen enough of its copy */
    if (c->kills)
        task_abort(c->kills);
    return POLL_READY;
}

static void caller_drop(struct task *t)
{
    future_drop(&container_of(t, struct caller, task)->call.f);
}

static const struct task_kind caller_kind = {"caller", caller_poll, caller_drop};

static void call(struct caller *c, const char *key, uint64_t deadline)
{
    *c = (struct caller){.status = 99};
    flight_call_init(&c->call, &flight, key, strlen(key), deadline, &c->value);
    task_spawn(&sched, &c->task, &caller_kind);
}

static void run_until(uint64_t until)
{
    for (;;) {
        while (sched_is_runnable(&sched))
            sched_step(&sched, sched_now(&sched));
        uint64_t next = sched_next_timeout(&sched);
        if (next > until)
            break;
        sched_step(&sched, next);
    }
    sched_step(&sched, until);
}

static void start_flight(uint32_t max, bool keep_unwanted)
{
    sched_init(&sched, &(struct sched_opts){.now = START});
    memset(&tally, 0, sizeof(tally));
    memset(&plan, 0, sizeof(plan));
    plan.takes = 200 * MS;
    assert_int_equal(flight_init(&flight, &(struct flight_opts){.kind = &lookup_kind,
                                                                .arg = &tally,
                                                                .sched = &sched,
                                                                .secret = {{1, 2}},
                                                                .max = max,
                                                                .key_max = 15,
                                                                .keep_unwanted = keep_unwanted}),
                     0);
}

static void end_flight(void)
{
    assert_int_equal(flight.slots_.in_use, 0);
    flight_fini(&flight);
    sched_fini(&sched);
    assert_int_equal(tally.refs, 0);
    assert_int_equal(tally.drops, tally.starts);
}

static void thirty_callers_share_one_piece_of_work(void **state)
{
    (void)state;
    struct caller c[30];
    start_flight(4, false);
    for (unsigned i = 0; i < 30; i++)
        call(&c[i], "name", NEVER);
    run_until(START + 100 * MS);
    assert_int_equal(flight.stats.running, 1);
    assert_int_equal(flight.stats.waiting, 30);
    run_until(START + 1000 * MS);
    for (unsigned i = 0; i < 30; i++) {
        assert_int_equal(c[i].status, 0);
        assert_true(c[i].done_at == START + 200 * MS);
        assert_int_equal(c[i].value.serial, 1);
        assert_string_equal(c[i].value.key, "name");
        assert_int_equal(c[i].call.is_shared, i > 0);
    }
    assert_int_equal(flight.stats.started, 1);
    assert_int_equal(flight.stats.shared, 29);
    /* What has landed is forgotten. */
    call(&c[0], "name", NEVER);
    run_until(START + 2000 * MS);
    assert_int_equal(c[0].value.serial, 2);
    end_flight();
}

static void keys_fly_side_by_side(void **state)
{
    (void)state;
    struct caller a, b, empty;
    start_flight(4, false);
    call(&a, "a", NEVER);
    call(&b, "b", NEVER);
    call(&empty, "", NEVER);
    run_until(START + 200 * MS);
    assert_int_equal(tally.starts, 3);
    assert_string_equal(a.value.key, "a");
    assert_string_equal(b.value.key, "b");
    assert_string_equal(empty.value.key, "");
    assert_true(a.done && b.done && empty.done);
    end_flight();
}

static void failure_is_shared_too(void **state)
{
    (void)state;
    struct caller c[3];
    start_flight(4, false);
    plan.status = -EHOSTUNREACH;
    for (unsigned i = 0; i < 3; i++)
        call(&c[i], "name", NEVER);
    run_until(START + 200 * MS);
    for (unsigned i = 0; i < 3; i++)
        assert_int_equal(c[i].status, -EHOSTUNREACH);
    assert_int_equal(tally.starts, 1);
    assert_int_equal(tally.landings, 1);
    assert_int_equal(flight.stats.failed, 1);
    end_flight();
}

static void each_caller_keeps_its_own_deadline(void **state)
{
    (void)state;
    struct caller none, late, soon, past, just;
    start_flight(4, false);
    call(&none, "name", NEVER);
    call(&late, "name", START + 150 * MS);
    call(&soon, "name", START + 50 * MS + 7);
    call(&past, "name", START);
    call(&just, "name", START + 200 * MS);
    run_until(START + 1000 * MS);
    assert_int_equal(soon.status, -ETIMEDOUT);
    assert_true(soon.done_at == START + 50 * MS + 7);
    assert_int_equal(late.status, -ETIMEDOUT);
    assert_true(late.done_at == START + 150 * MS);
    assert_int_equal(past.status, -ETIMEDOUT);
    assert_true(past.done_at == START);
    assert_int_equal(none.status, 0);
    assert_true(none.done_at == START + 200 * MS);
    assert_true(just.status == 0 || just.status == -ETIMEDOUT); /* both at that very ns */
    assert_int_equal(flight.stats.timed_out, 3 + (just.status != 0));
    assert_int_equal(tally.starts, 1);
    end_flight();
}

static void past_deadline_starts_nothing(void **state)
{
    (void)state;
    struct caller c;
    start_flight(4, false);
    call(&c, "name", START - 1);
    run_until(START + 1000 * MS);
    assert_int_equal(c.status, -ETIMEDOUT);
    assert_int_equal(tally.starts, 0);
    end_flight();
}

/* The hand-over rule. */
static void who_asked_first_leaves_alone(void **state)
{
    (void)state;
    struct caller first, second;
    start_flight(4, false);
    call(&first, "name", NEVER);
    run_until(START + 50 * MS);
    call(&second, "name", NEVER);
    run_until(START + 100 * MS);
    task_abort(&first.task);
    run_until(START + 1000 * MS);
    assert_false(first.done);
    assert_int_equal(second.status, 0);
    assert_true(second.done_at == START + 200 * MS);
    assert_int_equal(tally.starts, 1);
    end_flight();
}

static void last_to_leave_ends_the_work(void **state)
{
    (void)state;
    struct caller a, b;
    start_flight(1, false);
    call(&a, "name", START + 100 * MS);
    call(&b, "name", NEVER);
    run_until(START + 150 * MS);
    assert_int_equal(tally.drops, 0);
    task_abort(&b.task);
    assert_int_equal(tally.drops, 1);
    assert_int_equal(tally.landings, 0);
    assert_int_equal(flight.stats.unwanted, 1);
    /* Its slot is free, and its key starts anew. */
    call(&a, "name", NEVER);
    run_until(START + 1000 * MS);
    assert_int_equal(a.value.serial, 2);
    assert_true(a.done_at == START + 350 * MS);
    end_flight();
}

static void unwanted_work_goes_on_where_asked(void **state)
{
    (void)state;
    struct caller a, b;
    start_flight(1, true);
    call(&a, "name", START + 100 * MS);
    run_until(START + 150 * MS);
    assert_int_equal(a.status, -ETIMEDOUT);
    assert_true(flight_is_running(&flight, "name", 4));
    call(&b, "name", NEVER);
    run_until(START + 1000 * MS);
    assert_int_equal(b.value.serial, 1);
    assert_true(b.done_at == START + 200 * MS);
    end_flight();
}

static void started_without_callers_it_is_kept(void **state)
{
    (void)state;
    struct caller c;
    start_flight(2, false);
    assert_int_equal(flight_start(&flight, "name", 4), 0);
    assert_int_equal(flight_start(&flight, "name", 4), 0);
    assert_int_equal(tally.starts, 1);
    call(&c, "name", START + 100 * MS);
    run_until(START + 150 * MS);
    assert_int_equal(c.status, -ETIMEDOUT);
    assert_int_equal(tally.landings, 0);
    run_until(START + 250 * MS);
    assert_int_equal(tally.landings, 1);
    end_flight();
}

static void full_group_refuses_and_counts(void **state)
{
    (void)state;
    struct caller a, b, c, again;
    start_flight(2, false);
    call(&a, "a", NEVER);
    call(&b, "b", NEVER);
    call(&c, "c", NEVER);
    call(&again, "a", NEVER);
    run_until(START + 100 * MS);
    assert_int_equal(c.status, -EBUSY);
    assert_int_equal(flight.stats.refused, 1);
    assert_int_equal(flight_start(&flight, "d", 1), -EBUSY);
    assert_int_equal(flight_start(&flight, "a", 1), 0);
    run_until(START + 1000 * MS);
    assert_int_equal(again.status, 0);
    assert_int_equal(tally.starts, 2);
    call(&c, "c", NEVER);
    run_until(START + 2000 * MS);
    assert_int_equal(c.status, 0);
    end_flight();
}

static void longest_key_fits_and_one_more_byte_does_not(void **state)
{
    (void)state;
    struct caller fits, too_long;
    start_flight(2, false);
    call(&fits, "123456789012345", NEVER);
    call(&too_long, "1234567890123456", NEVER);
    run_until(START + 1000 * MS);
    assert_string_equal(fits.value.key, "123456789012345");
    assert_int_equal(too_long.status, -EINVAL);
    end_flight();
}

static void forgotten_work_lands_for_those_who_wait(void **state)
{
    (void)state;
    struct caller before, after;
    start_flight(2, false);
    call(&before, "name", NEVER);
    run_until(START + 100 * MS);
    assert_true(flight_forget(&flight, "name", 4));
    assert_false(flight_forget(&flight, "name", 4));
    call(&after, "name", NEVER);
    run_until(START + 1000 * MS);
    assert_int_equal(before.value.serial, 1);
    assert_true(before.done_at == START + 200 * MS);
    assert_int_equal(after.value.serial, 2);
    assert_true(after.done_at == START + 300 * MS);
    end_flight();
}

/* The first to read the answer ends the other, who has been woken but not polled. */
static void caller_dropped_between_landing_and_reading(void **state)
{
    (void)state;
    struct caller a, b;
    start_flight(1, false);
    call(&a, "name", NEVER);
    call(&b, "name", NEVER);
    a.kills = &b.task;
    b.kills = &a.task;
    run_until(START + 1000 * MS);
    assert_int_equal(a.done + b.done, 1);
    assert_int_equal(tally.landings, 1);
    end_flight();
}

static void callers_may_go_while_it_lands(void **state)
{
    (void)state;
    struct caller a;
    start_flight(1, false);
    call(&a, "name", NEVER);
    plan.kills_at_landing = &a.task;
    run_until(START + 1000 * MS);
    assert_false(a.done);
    assert_int_equal(tally.landings, 1);
    end_flight();
}

static void all_is_given_up_at_once(void **state)
{
    (void)state;
    struct caller c[4];
    start_flight(4, true);
    for (unsigned i = 0; i < 4; i++)
        call(&c[i], i < 2 ? "a" : "b", NEVER);
    assert_int_equal(flight_start(&flight, "c", 1), 0);
    run_until(START + 100 * MS);
    flight_cancel_all(&flight);
    assert_int_equal(flight.stats.running, 0);
    run_until(START + 100 * MS);
    for (unsigned i = 0; i < 4; i++)
        assert_int_equal(c[i].status, -ECANCELED);
    assert_int_equal(tally.drops, 3);
    end_flight();
}

static void scheduler_may_end_in_mid_flight(void **state)
{
    (void)state;
    struct caller c[3];
    start_flight(4, true);
    for (unsigned i = 0; i < 3; i++)
        call(&c[i], i < 2 ? "a" : "b", START + 500 * MS);
    run_until(START + 100 * MS);
    sched_fini(&sched);
    flight_fini(&flight);
    assert_int_equal(tally.drops, tally.starts);
}

/* The work itself drops the last who wanted it. */
static void work_may_end_its_own_caller(void **state)
{
    (void)state;
    struct caller a, b;
    start_flight(2, false);
    call(&a, "name", NEVER);
    plan.kills = &a.task;
    run_until(START + 10 * MS);
    assert_false(task_is_live(&a.task));
    assert_int_equal(flight.stats.running, 0);
    call(&b, "name", NEVER);
    run_until(START + 1000 * MS);
    assert_int_equal(b.value.serial, 2);
    end_flight();
}

/* Random callers, deadlines, cancels, failures: each key is worked on once at a time, each call is
 * answered at most once and by work that was in progress while it waited, nothing leaks. */
#define CALLERS 60
#define KEYS    7

static void random_crowd(uint64_t seed)
{
    static struct caller c[CALLERS];
    static uint64_t asked_at[CALLERS];
    static unsigned key_of[CALLERS];
    struct rng rng = {seed};
    uint64_t now = START;
    memset(c, 0, sizeof(c));
    start_flight(KEYS - 1, rng_chance(&rng, 500000));
    for (unsigned n = 0; n < 3000; n++) {
        unsigned i = rng_below(&rng, CALLERS);
        plan.takes = rng_below(&rng, 20) * MS;
        plan.status = rng_chance(&rng, 300000) ? -EIO : 0;
        if (task_is_live(&c[i].task)) {
            if (rng_chance(&rng, 300000))
                task_abort(&c[i].task);
        } else {
            char key[4];
            key_of[i] = rng_below(&rng, KEYS);
            snprintf(key, sizeof(key), "k%u", key_of[i]);
            asked_at[i] = now;
            call(&c[i], key, rng_chance(&rng, 500000) ? now + rng_below(&rng, 25) * MS : NEVER);
            run_until(now); /* its key is borrowed until the first poll */
        }
        if (rng_chance(&rng, 3000))
            flight_cancel_all(&flight);
        now += rng_below(&rng, 2 * MS);
        run_until(now);
        assert_true(flight.stats.running <= KEYS - 1);
        assert_int_equal(flight.stats.started, tally.starts);
        assert_int_equal(tally.starts - tally.drops, flight.stats.running);
        unsigned waiting = 0;
        for (unsigned k = 0; k < CALLERS; k++)
            waiting += task_is_live(&c[k].task);
        assert_int_equal(flight.stats.waiting, waiting);
        for (unsigned k = 0; k < CALLERS; k++) {
            if (!c[k].done || c[k].status != 0)
                continue;
            char key[4];
            snprintf(key, sizeof(key), "k%u", key_of[k]);
            assert_string_equal(c[k].value.key, key);
            assert_true(c[k].done_at >= asked_at[k] && c[k].done_at - asked_at[k] <= 20 * MS);
        }
    }
    run_until(now + 100 * MS);
    assert_int_equal(flight.stats.running, 0);
    assert_int_equal(flight.stats.waiting, 0);
    assert_true(flight.stats.shared > 100 && flight.stats.refused > 0);
    end_flight();
}

static void random_crowds(void **state)
{
    (void)state;
    for (uint64_t seed = 1; seed <= 20; seed++) {
        print_message("# seed %u\n", (unsigned)seed);
        random_crowd(seed);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(thirty_callers_share_one_piece_of_work),
        cmocka_unit_test(keys_fly_side_by_side),
        cmocka_unit_test(failure_is_shared_too),
        cmocka_unit_test(each_caller_keeps_its_own_deadline),
        cmocka_unit_test(past_deadline_starts_nothing),
        cmocka_unit_test(who_asked_first_leaves_alone),
        cmocka_unit_test(last_to_leave_ends_the_work),
        cmocka_unit_test(unwanted_work_goes_on_where_asked),
        cmocka_unit_test(started_without_callers_it_is_kept),
        cmocka_unit_test(full_group_refuses_and_counts),
        cmocka_unit_test(longest_key_fits_and_one_more_byte_does_not),
        cmocka_unit_test(forgotten_work_lands_for_those_who_wait),
        cmocka_unit_test(caller_dropped_between_landing_and_reading),
        cmocka_unit_test(callers_may_go_while_it_lands),
        cmocka_unit_test(all_is_given_up_at_once),
        cmocka_unit_test(scheduler_may_end_in_mid_flight),
        cmocka_unit_test(work_may_end_its_own_caller),
        cmocka_unit_test(random_crowds),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
