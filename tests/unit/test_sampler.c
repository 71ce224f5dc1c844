/* Catching a core that has been in one place for too long. The looks' times are given; that a
 * signal comes is real. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <string.h>

#include "runtime/clock.h"
#include "runtime/sampler.h"
#include "runtime/sched.h"

#define MS 1000000ull

struct slow {
    struct task task;
    unsigned polls;
    void (*during)(struct slow *l);
};

static struct sched sched;
static struct sampler *sampler;
static uint64_t look_at;

static enum poll slow_poll(struct task *t)
{
    struct slow *l = container_of(t, struct slow, task);
    l->polls++;
    if (l->during)
        l->during(l);
    return POLL_PENDING;
}

static void slow_drop(struct task *t)
{
    (void)t;
}

static const struct task_kind slow_kind = {"slow", slow_poll, slow_drop, sizeof(struct slow)};

static unsigned look_after(uint64_t ns)
{
    look_at += ns;
    return sampler_look(sampler, look_at);
}

static int set_up(void **state)
{
    (void)state;
    look_at = 123456789;
    sched_init(&sched, &(struct sched_opts){.now = clock_now_ns(), .account = true});
    sched_bind_thread(&sched);
    assert_int_equal(sampler_new(&sampler), 0);
    assert_int_equal(sampler_attach(sampler, &sched), 0);
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    sched_fini(&sched);
    sampler_detach(sampler, &sched);
    sampler_free(sampler);
    sched_bind_thread(NULL);
    return 0;
}

static void pass(void)
{
    uint64_t now = clock_now_ns();
    sched_latch(&sched, now);
    sched_step(&sched, now);
    sched_pass_end(&sched);
}

/* ThreadSanitizer runs handlers later, from where the chain isn't the interrupted one any more:
 * what is left is the place. */
#ifdef __SANITIZE_THREAD__
#define CHAIN 1
#else
#define CHAIN 3
#endif

static bool is_in(const struct stall_record *r, const void *function)
{
    if (CHAIN == 1)
        return r->nframes == 1;
    for (unsigned i = 0; i < r->nframes; i++)
        if (r->frames[i] - (uintptr_t)function < 1024)
            return true;
    return false;
}

static void be_looked_at(struct slow *l)
{
    struct stall_record r;
    (void)l;
    assert_int_equal(look_after(0), 0); /* the first look at this poll */
    assert_int_equal(look_after(SAMPLER_LIMIT_NS - 1), 0);
    assert_int_equal(stall_count(&sched.stalls), 0);
    assert_int_equal(look_after(1), 1);
    assert_int_equal(stall_read(&sched.stalls, &r, 1), 1);
    assert_true(r.running);
    assert_string_equal(r.kind, "slow");
    assert_string_equal(r.label, "web");
    assert_true(r.nframes >= CHAIN);
    assert_true(is_in(&r, (const void *)slow_poll));
    assert_int_equal(look_after(SAMPLER_LIMIT_NS), 0); /* once is enough */
    assert_int_equal(stall_count(&sched.stalls), 1);
}

static void a_long_poll_is_caught_while_it_runs_and_settled_at_its_end(void **state)
{
    static struct slow l = {.during = be_looked_at, .task.label = "web"};
    struct stall_record r;
    (void)state;
    task_spawn(&sched, &l.task, &slow_kind);
    pass();
    assert_int_equal(l.polls, 1);
    assert_int_equal(stall_read(&sched.stalls, &r, 1), 1);
    assert_false(r.running);
    assert_true(r.nframes >= CHAIN);
    assert_int_equal(stall_count(&sched.stalls), 1);
    assert_int_equal(sched.stats.stalls, 1);
    assert_int_equal(sched.kinds[0].stalls, 1);
}

static void be_looked_at_again(struct slow *l)
{
    if (l->polls == 1)
        look_after(0);
    else
        assert_int_equal(look_after(l->polls == 2 ? SAMPLER_LIMIT_NS : 0), 0);
    task_wake(&l->task);
}

static void many_short_polls_are_no_long_one(void **state)
{
    static struct slow l = {.during = be_looked_at_again};
    (void)state;
    task_spawn(&sched, &l.task, &slow_kind);
    for (unsigned i = 0; i < 5; i++)
        pass();
    assert_true(l.polls >= 5);
    assert_int_equal(sched.stats.stalls, stall_count(&sched.stalls));
}

static void a_pass_that_hangs_outside_any_task_is_caught_too(void **state)
{
    struct stall_record r;
    (void)state;
    sched_latch(&sched, clock_now_ns());
    look_after(0);
    assert_int_equal(look_after(SAMPLER_LIMIT_NS), 1);
    assert_int_equal(stall_read(&sched.stalls, &r, 1), 1);
    assert_string_equal(r.kind, "pass");
    assert_string_equal(r.label, "");
    assert_true(r.running);
    sched_step(&sched, sched_now(&sched));
    sched_pass_end(&sched);
    assert_int_equal(stall_read(&sched.stalls, &r, 1), 1);
    assert_false(r.running);
    assert_int_equal(stall_count(&sched.stalls), 1);
    sched_latch(&sched, clock_now_ns()); /* and so is the next */
    look_after(0);
    assert_int_equal(look_after(SAMPLER_LIMIT_NS), 1);
    sched_pass_end(&sched);
    assert_int_equal(stall_count(&sched.stalls), 2);
}

static void a_core_that_sleeps_is_left_alone(void **state)
{
    (void)state;
    pass();
    look_after(0);
    assert_int_equal(look_after(100 * SAMPLER_LIMIT_NS), 0);
    assert_int_equal(stall_count(&sched.stalls), 0);
}

static void until_caught(struct slow *l)
{
    (void)l;
    for (uint64_t from = clock_now_ns(); clock_now_ns() - from < 10000 * MS;)
        if (stall_count(&sched.stalls))
            return;
    fail_msg("not caught within ten seconds");
}

static void the_thread_does_it_by_itself(void **state)
{
    static struct slow l = {.during = until_caught};
    struct stall_record r;
    (void)state;
    assert_int_equal(sampler_start(sampler), 0);
    task_spawn(&sched, &l.task, &slow_kind);
    pass();
    assert_int_equal(stall_read(&sched.stalls, &r, 1), 1);
    assert_true(r.ns >= SAMPLER_LIMIT_NS);
    assert_true(is_in(&r, (const void *)until_caught));
}

#define story(f) cmocka_unit_test_setup_teardown(f, set_up, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        story(a_long_poll_is_caught_while_it_runs_and_settled_at_its_end),
        story(many_short_polls_are_no_long_one),
        story(a_pass_that_hangs_outside_any_task_is_caught_too),
        story(a_core_that_sleeps_is_left_alone),
        story(the_thread_does_it_by_itself),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
