#include "tests/examples/virtual.h"

#include <string.h>

#include "runtime/sampler.h"
#include "runtime/stall.h"

static struct sched sched;

static void no_drop(struct task *t)
{
    (void)t;
}

/* doc: budget */
/* Adds up a list of any length that a peer has sent. */
struct summer {
    struct task task;
    const unsigned *numbers;
    size_t n, done;
    uint64_t sum;
    unsigned polls;
};

static enum poll summer_poll(struct task *t)
{
    struct summer *s = container_of(t, struct summer, task);
    s->polls++;
    while (s->done < s->n) {
        if (!task_consume(t, 1))
            return POLL_PENDING; /* we are at the back of the queue already */
        s->sum += s->numbers[s->done++];
    }
    return POLL_READY;
}
/* doc end */

static const struct task_kind summer_kind = {"summer", summer_poll, no_drop};

static void long_work_is_done_in_turns(void **state)
{
    static unsigned numbers[1000];
    struct summer s = {.numbers = numbers, .n = 1000};
    for (unsigned i = 0; i < 1000; i++)
        numbers[i] = i;
    sched_init(&sched, &(struct sched_opts){.now = START});
    task_spawn(&sched, &s.task, &summer_kind);
    sched_step(&sched, START);
    assert_int_equal(s.done, SCHED_BUDGET_OPS);
    virtual_run(&sched);
    assert_int_equal(s.sum, 499500);
    assert_int_equal(s.polls, 1000 / SCHED_BUDGET_OPS + 1);
    assert_int_equal(sched.stats.budget_out, 1000 / SCHED_BUDGET_OPS);
    sched_fini(&sched);
}

/* Something that takes some thousand cycles. */
static enum poll hog_poll(struct task *t)
{
    for (volatile unsigned i = 0; i < 5000; i++)
        ;
    return POLL_READY;
}

static const struct task_kind hog_kind = {"hog", hog_poll, no_drop};

static void a_stall_is_told_with_kind_and_label(void **state)
{
    struct task hog = {.label = "app/10.77.0.2:9000"};
    /* A clock of 1 MHz makes 5 ms of 5,000 cycles. */
    sched_init(&sched, &(struct sched_opts){.now = START, .account = true, .tsc_hz = 1000000});
    task_spawn(&sched, &hog, &hog_kind);
    sched_step(&sched, START);
    /* doc: read */
    struct stall_record records[8]; /* the newest first; from any thread */
    unsigned n = stall_read(&sched.stalls, records, 8);
    /* doc end */
    assert_int_equal(n, 1);
    assert_string_equal(records[0].kind, "hog");
    assert_string_equal(records[0].label, "app/10.77.0.2:9000");
    assert_true(records[0].ns > SCHED_STALL_NS);
    sched_fini(&sched);
}

static void a_watched_core_says_when_its_passes_begin_and_end(void **state)
{
    static unsigned numbers[10];
    struct summer s = {.numbers = numbers, .n = 10};
    struct sampler *sampler;
    sched_init(&sched, &(struct sched_opts){.now = START, .account = true, .tsc_hz = 1000000000});
    task_spawn(&sched, &s.task, &summer_kind);
    /* doc: sampler */
    if (sampler_new(&sampler) < 0) /* control's, and then sampler_start() */
        return;
    sched_bind_thread(&sched); /* on the core's own thread */
    sampler_attach(sampler, &sched);
    for (uint64_t now = START; task_is_live(&s.task); now += 1 * US) {
        sched_latch(&sched, now); /* the pass begins */
        sched_step(&sched, now);
        sched_pass_end(&sched); /* and is over: the core may sleep */
    }
    sampler_detach(sampler, &sched);
    /* doc end */
    assert_int_equal(sampler_look(sampler, START + 1 * S), 0);
    sampler_free(sampler);
    sched_bind_thread(NULL);
    sched_fini(&sched);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(long_work_is_done_in_turns),
        cmocka_unit_test(a_stall_is_told_with_kind_and_label),
        cmocka_unit_test(a_watched_core_says_when_its_passes_begin_and_end),
    };
    return cmocka_run_group_tests_name("stalls", tests, NULL, NULL);
}
