/* Leased permits, every interleaving of two and three cores, on the real code: the limit is never
 * exceeded, nobody who waits is forgotten, nothing is lost. The mailbox is a flag here: it has its
 * own test (test_interleave_mailbox.c). */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/counter.h"
#include "runtime/mailbox.h"
#include "runtime/sched.h"
#include "tests/kit/interleave.h"
#include "tests/kit/interleave_atomics.h"

static void model_post(struct mailbox *mb, struct mailbox_item *item);

#define mailbox_post model_post
#include "runtime/permits.c" /* NOLINT(bugprone-suspicious-include) */

#define START 4242ull
#define CORES 3

/* A core with one task that acquires. */
struct core {
    struct sched sched;
    struct mailbox box; /* only its address is used */
    _Atomic uint8_t mail;
    struct permits_core *permits;
    struct task task;
    struct permits_acquire acquire;
    struct leased_permit permit;
    bool has_ended;
};

static struct core cores[CORES];
static struct permits *permits;
static uint32_t bound; /* permits that may be in flight */

static void model_post(struct mailbox *mb, struct mailbox_item *item)
{
    struct core *c = container_of(mb, struct core, box);
    assert(item == &c->permits->item_);
    atomic_exchange_explicit(&c->mail, 1, memory_order_acq_rel);
}

static void check_bound(void)
{
    uint64_t sum = 0;
    for (unsigned i = 0; i < CORES; i++)
        sum += counter_get(&cores[i].permits->in_use_);
    interleave_check(sum <= bound);
}

static enum poll core_poll(struct task *t)
{
    struct core *c = container_of(t, struct core, task);
    if (future_poll(&c->acquire.future, t) == POLL_PENDING)
        return POLL_PENDING;
    c->permit = leased_permit_take(&c->acquire.permit);
    c->has_ended = true;
    return POLL_READY;
}

static void core_drop(struct task *t)
{
    future_drop(&container_of(t, struct core, task)->acquire.future);
}

static const struct task_kind core_kind = {"core", core_poll, core_drop};

static void run(struct core *c)
{
    while (sched_step(&c->sched, START))
        ;
    check_bound();
}

static void begin_acquire(struct core *c)
{
    c->has_ended = false;
    c->task = (struct task){0};
    permits_acquire_init(&c->acquire, c->permits, UINT64_MAX);
    task_spawn(&c->sched, &c->task, &core_kind);
    run(c);
}

static void take_mail(struct core *c, bool may_end)
{
    interleave_await(&c->mail, may_end);
    atomic_exchange_explicit(&c->mail, 0, memory_order_acq_rel);
    c->permits->item_.deliver(&c->permits->item_);
    run(c);
}

static void finish(struct core *c)
{
    while (!c->has_ended)
        take_mail(c, false);
}

static void put(struct core *c)
{
    leased_permit_put(&c->permit);
    run(c);
}

_Noreturn static void idle(struct core *c)
{
    for (;;)
        take_mail(c, true);
}

static void finish_well(struct core *c)
{
    finish(c);
    interleave_check(c->acquire.future.status == 0);
}

static void finish_and_put(struct core *c)
{
    finish_well(c);
    put(c);
    idle(c);
}

/* Each may wait for the others' permits; all must come to their end. */
static void acquire_and_put(struct core *c)
{
    begin_acquire(c);
    finish_and_put(c);
}

/* The same for one that has begun to wait before. */
static void finish_and_put_1(void)
{
    finish_and_put(&cores[1]);
}

static void finish_and_put_2(void)
{
    finish_and_put(&cores[2]);
}

static void acquire_0(void)
{
    acquire_and_put(&cores[0]);
}

static void acquire_1(void)
{
    acquire_and_put(&cores[1]);
}

/* May be left waiting. */
static void want_1(void)
{
    begin_acquire(&cores[1]);
    idle(&cores[1]);
}

static void want_more_1(void)
{
    idle(&cores[1]);
}

static void want_2(void)
{
    begin_acquire(&cores[2]);
    idle(&cores[2]);
}

static void put_0(void)
{
    put(&cores[0]);
    idle(&cores[0]);
}

static void put_and_acquire_0(void)
{
    put(&cores[0]);
    acquire_and_put(&cores[0]);
}

static void idle_0(void)
{
    idle(&cores[0]);
}

/* Changes its mind, whether it has been granted or not. */
static void drop_1(void)
{
    task_abort(&cores[1].task);
    run(&cores[1]);
    put(&cores[1]);
    idle(&cores[1]);
}

static void acquire_and_drop_1(void)
{
    begin_acquire(&cores[1]);
    drop_1();
}

/* The idle timer comes up. */
static void give_back_idle_0(void)
{
    struct permits_core *c = cores[0].permits;
    c->used_ = false;
    on_idle(&c->idle_, START);
    idle(&cores[0]);
}

static void leave_0(void)
{
    permits_leave(cores[0].permits);
    idle(&cores[0]);
}

static void raise_limit(void)
{
    bound = 2;
    permits_set_limit(permits, 2);
}

static void raise_to_one(void)
{
    bound = 1;
    permits_set_limit(permits, 1);
}

static _Atomic uint8_t is_lowered;

static void lower_limit(void)
{
    permits_set_limit(permits, 1);
    bound = 1;
    atomic_store_explicit(&is_lowered, 1, memory_order_release);
}

static void acquire_lowered_1(void)
{
    interleave_await(&is_lowered, false);
    acquire_and_put(&cores[1]);
}

static void close_permits(void)
{
    permits_close(permits);
}

static void acquire_closed_1(void)
{
    struct core *c = &cores[1];
    begin_acquire(c);
    finish(c);
    interleave_check(c->acquire.future.status == -ESHUTDOWN);
    idle(c);
}

/* Holds on to its permit, as an idle connection does, until someone wants it. */
static void on_wanted(struct permits_core *c)
{
    leased_permit_put(&cores[c->index_].permit);
}

static void pool_0(void)
{
    struct core *c = &cores[0];
    begin_acquire(c);
    finish(c);
    if (permits_is_wanted(c->permits))
        put(c);
    idle(c);
}

/* Setting up. */

static void set_up_limit(uint32_t limit, void (*wanted)(struct permits_core *c))
{
    struct permits_opts o = {.limit = limit, .cores = CORES, .queue = 4, .wanted = wanted};
    bound = limit;
    atomic_store(&is_lowered, 0);
    if (permits_new(&o, &permits) < 0)
        abort();
    for (unsigned i = 0; i < CORES; i++) {
        struct core *c = &cores[i];
        sched_init(&c->sched, &(struct sched_opts){.now = START});
        c->mail = 0;
        c->has_ended = false;
        c->permit = (struct leased_permit){0};
        c->task = (struct task){0};
        c->permits = permits_join(permits, i, &c->sched, &c->box);
    }
}

static void tear_down(void)
{
    free(permits);
}

static void take_first(struct core *c)
{
    if (permits_try(c->permits, &c->permit) < 0)
        abort();
}

static void none_is_free(void)
{
    set_up_limit(0, NULL);
}

static void one_is_free(void)
{
    set_up_limit(1, NULL);
}

static void one_is_held(void)
{
    one_is_free();
    take_first(&cores[0]);
}

static void one_is_held_and_will_not_be_kept(void)
{
    one_is_held();
    drop_cache(cores[0].permits);
}

/* Core 0 has the only one, and no cache; core 1 waits for it. */
static void one_is_held_and_another_waits(void)
{
    one_is_held_and_will_not_be_kept();
    begin_acquire(&cores[1]);
}

static void another_waits(void)
{
    none_is_free();
    begin_acquire(&cores[1]);
}

static void two_others_wait(void)
{
    another_waits();
    begin_acquire(&cores[2]);
}

static void one_is_cached(void)
{
    one_is_held();
    leased_permit_put(&cores[0].permit);
    assert_int_equal(cores[0].permits->cached_, 1);
}

/* Two leased: core 0 uses one, core 1 has one in its cache. */
static void one_is_held_and_one_cached(void)
{
    set_up_limit(2, NULL);
    take_first(&cores[0]);
    take_first(&cores[1]);
    leased_permit_put(&cores[1].permit);
}

static void one_for_those_who_want_it(void)
{
    set_up_limit(1, on_wanted);
}

/* At the end: every waiter had its turn (or its party would sleep on), and what the word says is
 * leased is in caches or in use. */
static const char *books_balance(void)
{
    uint64_t sum = 0;
    for (unsigned i = 0; i < CORES; i++) {
        const struct permits_core *c = cores[i].permits;
        sum += c->cached_ + counter_get(&c->in_use_);
        if (c->nqueue_ > 0)
            return "someone waits";
        if (c->cached_ > 0 && !(holders_load(permits) & bit_of(c)))
            return "a cache that nobody knows of";
    }
    if (sum != permits_leased(permits))
        return "what is leased is nowhere";
    return waiting_load(permits) ? "a core without a queue says that it waits" : NULL;
}

static const char *one_of_two_has_it(void)
{
    if (cores[1].has_ended + cores[2].has_ended != 1)
        return "not one of the two has it";
    return permits_leased(permits) != 1 ? "what is leased is not what one holds" : NULL;
}

static const char *the_third_has_it(void)
{
    return cores[2].has_ended ? books_balance() : "the third didn't get it";
}

static const char *all_is_given_back(void)
{
    const char *wrong = books_balance();
    return wrong ? wrong : permits_leased(permits) > 1 ? "more is kept than the limit" : NULL;
}

enum {
    RELEASE,
    RELEASE_TO_WORD,
    AGAIN,
    ACQUIRE_TWO,
    IDLE_CACHE,
    BUSY_CACHE,
    IDLE_LEASE,
    LEAVE,
    GO,
    RAISE,
    LOWER,
    CLOSE,
    WANTED,
    TWO_BEGIN,
    THREE,
    THREE_GO,
    RAISE_THREE,
    RAISE_BEGIN,
    NCASES
};

static const struct interleave_case cases[NCASES] = {
    [RELEASE] = {.name = "release against wait",
                 .set_up = one_is_held,
                 .party = {put_0, acquire_1}},
    [RELEASE_TO_WORD] = {.name = "release to the word against wait",
                         .set_up = one_is_held_and_will_not_be_kept,
                         .party = {put_0, acquire_1}},
    [AGAIN] = {.name = "release and acquire again against wait",
               .set_up = one_is_held,
               .party = {put_and_acquire_0, acquire_1}},
    [ACQUIRE_TWO] = {.name = "two acquire the only one",
                     .set_up = one_is_free,
                     .party = {acquire_0, acquire_1}},
    [IDLE_CACHE] = {.name = "cache of an idle core",
                    .set_up = one_is_cached,
                    .party = {idle_0, acquire_1}},
    [BUSY_CACHE] = {.name = "cache of a busy core",
                    .set_up = one_is_cached,
                    .party = {acquire_0, acquire_1}},
    [IDLE_LEASE] = {.name = "idle lease given back against wait",
                    .set_up = one_is_cached,
                    .party = {give_back_idle_0, acquire_1}},
    [LEAVE] = {.name = "core leaves against wait",
               .set_up = one_is_cached,
               .party = {leave_0, acquire_1}},
    [GO] = {.name = "waiter goes against release",
            .set_up = one_is_held,
            .party = {put_0, acquire_and_drop_1}},
    [RAISE] = {.name = "limit raised against wait",
               .set_up = none_is_free,
               .party = {raise_limit, acquire_1}},
    [LOWER] = {.name = "limit lowered against a cache",
               .set_up = one_is_held_and_one_cached,
               .party = {put_0, acquire_lowered_1, lower_limit},
               .end = all_is_given_back},
    [CLOSE] = {.name = "closed against wait",
               .set_up = none_is_free,
               .party = {close_permits, acquire_closed_1}},
    [WANTED] = {.name = "idle connection against wait",
                .set_up = one_for_those_who_want_it,
                .party = {pool_0, acquire_1}},
    [TWO_BEGIN] = {.name = "two begin to wait for a release",
                   .set_up = one_is_held_and_will_not_be_kept,
                   .party = {put_0, want_1, want_2},
                   .end = one_of_two_has_it},
    [THREE] = {.name = "two wait for a release",
               .set_up = one_is_held_and_another_waits,
               .party = {put_0, finish_and_put_1, want_2},
               .end = the_third_has_it},
    [THREE_GO] = {.name = "one of two waiters goes",
                  .set_up = one_is_held_and_another_waits,
                  .party = {put_0, drop_1, want_2},
                  .end = the_third_has_it},
    [RAISE_THREE] = {.name = "limit raised for two",
                     .set_up = two_others_wait,
                     .party = {raise_limit, finish_and_put_1, finish_and_put_2}},
    [RAISE_BEGIN] = {.name = "limit raised for one who waits and one who begins",
                     .set_up = another_waits,
                     .party = {raise_to_one, want_more_1, want_2},
                     .end = one_of_two_has_it},
};

static struct interleave_case complete(unsigned i)
{
    struct interleave_case c = cases[i];
    while (c.nparties < INTERLEAVE_PARTIES && c.party[c.nparties])
        c.nparties++;
    c.tear_down = tear_down;
    c.hint = "&p->last_"; /* whose turn it is may be any core's */
    if (!c.end)
        c.end = books_balance;
    return c;
}

static void permits_are_exact_and_no_waiter_is_forgotten(void **state)
{
    (void)state;
    for (unsigned i = 0; i < NCASES; i++) {
        struct interleave_case c = complete(i);
        struct interleave_result r;
        interleave_explore(&c, stdout, &r);
        print_message("# %s: %lu schedules, %lu pruned\n", c.name, (unsigned long)r.schedules,
                      (unsigned long)r.pruned);
        if (r.has_failed)
            fail_msg("%s: %s", c.name, r.why);
    }
}

/* One weakened operation each: what permits.c says of its orders is so. (The mark of who begins to
 * wait is missing: it reads its own mark in settle(), which orders it as well.) */
static const struct {
    unsigned in; /* the case that shows it */
    struct interleave_mutation m;
} mutations[] = {
    {RELEASE_TO_WORD, {"give_back", INTERLEAVE_SUB, "&p->word_", memory_order_acq_rel}},
    {RELEASE_TO_WORD, {"waiting_load", INTERLEAVE_LOAD, "&p->waiting_", memory_order_acquire}},
    {RELEASE_TO_WORD, {"word_load", INTERLEAVE_LOAD, "&p->word_", memory_order_acquire}},
    {ACQUIRE_TWO, {"begin_keeping", INTERLEAVE_OR, "&p->holders_", memory_order_acq_rel}},
    {ACQUIRE_TWO, {"holders_load", INTERLEAVE_LOAD, "&p->holders_", memory_order_acquire}},
    {CLOSE, {"permits_close", INTERLEAVE_OR, "&p->epoch_", memory_order_acq_rel}},
    {CLOSE, {"epoch_load", INTERLEAVE_LOAD, "&p->epoch_", memory_order_acquire}},
    {RAISE, {"replace_limit", INTERLEAVE_COMPARE_EXCHANGE, "&p->word_", memory_order_acq_rel}},
};

static void every_order_is_needed(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof(mutations) / sizeof(mutations[0]); i++) {
        struct interleave_case c = complete(mutations[i].in);
        struct interleave_result r;
        c.mutation = &mutations[i].m;
        interleave_explore(&c, NULL, &r);
        if (!r.has_failed)
            fail_msg("%s of %s may be weaker: nothing fails in %lu schedules of %s",
                     c.mutation->func, c.mutation->what, (unsigned long)r.schedules, c.name);
        print_message("# %s of %s: %s\n", c.mutation->func, c.mutation->what, r.why);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(permits_are_exact_and_no_waiter_is_forgotten),
        cmocka_unit_test(every_order_is_needed),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
