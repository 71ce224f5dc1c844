/* A lost wake-up is impossible: every interleaving of a core that goes to sleep with threads that
 * post to it, and of remote wakes with slots that are put back, on the real code. And for each
 * order that the code relies on, that the checker finds what goes wrong without it. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <errno.h>
#include <limits.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "runtime/sched.h"
#include "tests/kit/interleave.h"
#include "tests/kit/interleave_atomics.h"

#include "runtime/mailbox.h"

/* The kernel's part: a counter that orders what goes over it. */
static _Atomic uint64_t bell;

static int model_eventfd(void)
{
    return 0;
}

static int model_eventfd_write(void)
{
    atomic_fetch_add_explicit(&bell, 1, memory_order_acq_rel);
    return 0;
}

static int model_eventfd_read(void)
{
    return atomic_exchange_explicit(&bell, 0, memory_order_acq_rel) ? 0 : -1;
}

#define eventfd(n, flags)     model_eventfd()
#define eventfd_write(fd, n)  model_eventfd_write()
#define eventfd_read(fd, ret) ((void)(ret), model_eventfd_read())
#define close(fd)             ((void)(fd))
/* Slots that are soon used again. */
#undef REMOTE_CHUNK_SLOTS
#undef REMOTE_CHUNKS
#define REMOTE_CHUNK_SLOTS 1
#define REMOTE_CHUNKS      1
#include "runtime/mailbox.c" /* NOLINT(bugprone-suspicious-include) */

static struct mailbox box;

struct letter {
    struct mailbox_item item;
    atomic_int value; /* relaxed: the mailbox must carry it */
    int seen;
};

static struct letter letters[2];

static void on_letter(struct mailbox_item *item)
{
    struct letter *l = container_of(item, struct letter, item);
    l->seen = atomic_load_explicit(&l->value, memory_order_relaxed);
}

static void set_up(void)
{
    atomic_store(&bell, 0);
    mailbox_init(&box);
    for (unsigned i = 0; i < 2; i++) {
        letters[i].item = (struct mailbox_item){.deliver = on_letter};
        letters[i].seen = 0;
        atomic_store(&letters[i].value, 0);
    }
}

static void post(struct letter *l, int value)
{
    atomic_store_explicit(&l->value, value, memory_order_relaxed);
    mailbox_post(&box, &l->item);
}

/* The idle loop of a core, until it has seen what it waits for. */
static void run_owner(bool (*is_done)(void))
{
    for (;;) {
        mailbox_drain(&box, UINT_MAX);
        if (is_done())
            return;
        if (!mailbox_prepare_sleep(&box))
            continue;
        interleave_await(&bell, false);
        mailbox_end_sleep(&box);
    }
}

static void post_one(void)
{
    post(&letters[0], 1);
}

static void post_other(void)
{
    post(&letters[1], 1);
}

static void post_twice(void)
{
    post(&letters[0], 1);
    post(&letters[0], 2);
}

static void post_both(void)
{
    post(&letters[0], 1);
    post(&letters[1], 1);
}

static bool has_one(void)
{
    return letters[0].seen == 1;
}

static bool has_two(void)
{
    return letters[0].seen == 2;
}

static bool has_both(void)
{
    return letters[0].seen == 1 && letters[1].seen == 1;
}

static void await_one(void)
{
    run_owner(has_one);
}

static void await_two(void)
{
    run_owner(has_two);
}

static void await_both(void)
{
    run_owner(has_both);
}

/* What follows on a sleep that was called off: the next one must be as safe. */
static void await_both_in_two_sleeps(void)
{
    run_owner(has_one);
    run_owner(has_both);
}

static const char *box_is_empty(void)
{
    return mailbox_is_pending(&box) ? "something is left in the box" : NULL;
}

/* A task that is woken by remote_wake(), and one that takes over its slot. */

static struct task first_task, second_task;
static struct remote_waker first, second;
static atomic_bool first_flag, second_flag;
static unsigned first_wakes;
static bool first_is_gone;
static _Atomic uint32_t second_gen;

/* Stands for the scheduler's: the slot's task must be alive. */
static void on_wake(const struct task *t)
{
    if (t == &first_task) {
        first_wakes++;
        interleave_check(!first_is_gone);
    }
}

static void slot_set_up(void)
{
    set_up();
    atomic_store(&first_flag, false);
    atomic_store(&second_flag, false);
    atomic_store(&second_gen, 0);
    first_wakes = 0;
    first_is_gone = false;
    remote_slot_take(&box, &first_task, &first);
}

static void slot_tear_down(void)
{
    for (unsigned i = 0; i < REMOTE_CHUNKS; i++)
        free(atomic_load(&box.chunks_[i]));
}

static bool has_flag(void)
{
    return atomic_load_explicit(&first_flag, memory_order_relaxed);
}

static bool has_second_flag(void)
{
    return atomic_load_explicit(&second_flag, memory_order_relaxed);
}

static void await_flag(void)
{
    run_owner(has_flag);
}

static void wake_by_flag(void)
{
    struct remote_waker w = first;
    atomic_store_explicit(&first_flag, true, memory_order_relaxed);
    remote_wake(w);
}

/* The first task goes while it is being woken; the second must not miss its own wake. */
static void put_and_take(void)
{
    remote_slot_put(&first);
    first_is_gone = true;
    remote_slot_take(&box, &second_task, &second);
    atomic_store_explicit(&second_gen, second.gen, memory_order_release);
    run_owner(has_second_flag);
}

static void wake_stale(void)
{
    remote_wake((struct remote_waker){.mb = &box, .slot = 0, .gen = 1});
}

static void wake_second(void)
{
    interleave_await(&second_gen, false);
    atomic_store_explicit(&second_flag, true, memory_order_relaxed);
    remote_wake((struct remote_waker){
        .mb = &box, .slot = 0, .gen = atomic_load_explicit(&second_gen, memory_order_acquire)});
}

/* Takes the place of the one in runtime/sched.c. */
void task_wake(struct task *t)
{
    on_wake(t);
}

enum { ONE, TWICE, BOTH, TWO_POSTERS, TWO_SLEEPS, WAKE, REUSE, NCASES };

static struct interleave_case cases[NCASES] = {
    [ONE] = {.name = "post against sleep", .nparties = 2, .party = {await_one, post_one}},
    [TWICE] = {.name = "post again while it is delivered",
               .nparties = 2,
               .party = {await_two, post_twice}},
    [BOTH] = {.name = "two items of one poster", .nparties = 2, .party = {await_both, post_both}},
    [TWO_POSTERS] = {.name = "two posters",
                     .nparties = 3,
                     .party = {await_both, post_one, post_other}},
    [TWO_SLEEPS] = {.name = "two sleeps",
                    .nparties = 3,
                    .party = {await_both_in_two_sleeps, post_one, post_other}},
    [WAKE] = {.name = "remote wake", .nparties = 2, .party = {await_flag, wake_by_flag}},
    [REUSE] = {.name = "remote wake against put and take",
               .nparties = 3,
               .party = {put_and_take, wake_stale, wake_second}},
};

static int complete_cases(void **state)
{
    (void)state;
    for (unsigned i = 0; i < NCASES; i++) {
        bool has_slots = i == WAKE || i == REUSE;
        cases[i].set_up = has_slots ? slot_set_up : set_up;
        cases[i].tear_down = has_slots ? slot_tear_down : NULL;
        /* The others may see all they wait for before the last item has come. */
        cases[i].end = i == ONE || i == BOTH ? box_is_empty : NULL;
    }
    return 0;
}

static void no_wake_up_is_ever_lost(void **state)
{
    (void)state;
    for (unsigned i = 0; i < NCASES; i++) {
        struct interleave_result r;
        interleave_explore(&cases[i], stdout, &r);
        print_message("# %s: %lu schedules, %lu pruned\n", cases[i].name,
                      (unsigned long)r.schedules, (unsigned long)r.pruned);
        if (r.has_failed)
            fail_msg("%s: %s", cases[i].name, r.why);
        assert_true(r.schedules > 10);
    }
}

/* The orders that the comment in mailbox.c claims to need, but for that of taking head_, which is
 * for what isn't atomic: the links between items. */
static const struct {
    unsigned in; /* the case that shows it */
    struct interleave_mutation m;
} mutations[] = {
    {ONE, {"mailbox_prepare_sleep", INTERLEAVE_STORE, "&mb->sleeping_", memory_order_release}},
    {ONE, {"mailbox_prepare_sleep", INTERLEAVE_LOAD, "&mb->head_", memory_order_acquire}},
    {ONE, {"mailbox_post", INTERLEAVE_COMPARE_EXCHANGE, "&mb->head_", memory_order_release}},
    {ONE, {"ring_bell", INTERLEAVE_LOAD, "&mb->sleeping_", memory_order_acquire}},
    {TWICE, {"mailbox_post", INTERLEAVE_EXCHANGE, "&item->queued", memory_order_relaxed}},
    {TWICE, {"mailbox_drain", INTERLEAVE_EXCHANGE, "&item->queued", memory_order_relaxed}},
};

static void every_order_is_needed(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof(mutations) / sizeof(mutations[0]); i++) {
        struct interleave_case c = cases[mutations[i].in];
        struct interleave_result r;
        c.mutation = &mutations[i].m;
        interleave_explore(&c, NULL, &r);
        if (!r.has_failed)
            fail_msg("%s of %s may be weaker: nothing fails in %lu schedules", c.mutation->func,
                     c.mutation->what, (unsigned long)r.schedules);
        assert_true(r.mutated > 0);
    }
}

/* The same with the check moved before the store. */
static bool hasty_prepare_sleep(struct mailbox *mb)
{
    if (mb->inbox_ || atomic_load_explicit(&mb->head_, memory_order_seq_cst))
        return false;
    atomic_store_explicit(&mb->sleeping_, true, memory_order_seq_cst);
    return true;
}

static void hasty_owner(void)
{
    for (;;) {
        mailbox_drain(&box, UINT_MAX);
        if (has_one())
            return;
        if (!hasty_prepare_sleep(&box))
            continue;
        interleave_await(&bell, false);
        mailbox_end_sleep(&box);
    }
}

static void a_check_before_the_store_loses_a_wake_up(void **state)
{
    (void)state;
    struct interleave_case c = cases[ONE];
    struct interleave_result r;
    c.party[0] = hasty_owner;
    interleave_explore(&c, NULL, &r);
    assert_true(r.has_failed);
    assert_string_equal(r.why, "party 0 sleeps for ever on &bell");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(no_wake_up_is_ever_lost),
        cmocka_unit_test(every_order_is_needed),
        cmocka_unit_test(a_check_before_the_store_loses_a_wake_up),
    };
    return cmocka_run_group_tests(tests, complete_cases, NULL);
}
