#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "runtime/clock.h"
#include "runtime/sched.h"

#define START 987654321ull

/* A task that follows orders and writes its name into the transcript each time it is polled. */
struct actor {
    struct task task;
    struct actor *wakes;  /* at each poll */
    struct actor *aborts; /* at each poll */
    struct sleep sleep;
    uint64_t sleep_until; /* at the first poll, when not 0 */
    unsigned ready_after; /* polls; 0: never */
    unsigned polls, drops, ops;
    bool yields, burns, wakes_self, aborts_self;
    bool (*spin)(struct actor *a);
    char name;
};

static char transcript[4096];
static size_t transcript_len;
static struct sched sched;

static struct sched_stats stats_of(const struct sched *s)
{
    struct sched_stats stats;
    sched_read_stats(s, &stats);
    return stats;
}

static void say(char c)
{
    assert_true(transcript_len + 1 < sizeof(transcript));
    transcript[transcript_len++] = c;
    transcript[transcript_len] = 0;
}

static void assert_said(const char *want)
{
    assert_string_equal(transcript, want);
    transcript_len = 0;
    transcript[0] = 0;
}

static enum poll actor_poll(struct task *t)
{
    struct actor *a = container_of(t, struct actor, task);
    a->polls++;
    say(a->name);
    if (a->sleep_until && a->polls == 1)
        sleep_arm(&a->sleep, t, a->sleep_until);
    if (a->wakes)
        task_wake(&a->wakes->task);
    if (a->aborts)
        task_abort(&a->aborts->task);
    if (a->wakes_self)
        task_wake(t);
    if (a->aborts_self)
        task_abort(t);
    if (a->ready_after && a->polls >= a->ready_after)
        return POLL_READY;
    while (a->burns && task_consume(t, 1))
        a->ops++;
    if (a->spin && a->spin(a))
        return POLL_PENDING;
    if (a->yields)
        task_yield(t);
    return POLL_PENDING;
}

static void actor_drop(struct task *t)
{
    struct actor *a = container_of(t, struct actor, task);
    assert_false(task_is_live(t));
    assert_int_equal(task_now(t), sched_now(&sched));
    sleep_cancel(&a->sleep);
    a->drops++;
    task_wake(t); /* no-ops on a finished task */
    task_abort(t);
}

static const struct task_kind actor_kind = {"actor", actor_poll, actor_drop};

static void actor_init(struct actor *a, char name)
{
    memset(a, 0, sizeof(*a));
    a->name = name;
}

static void spawn(struct actor *a)
{
    task_spawn(&sched, &a->task, &actor_kind);
}

static int set_up(void **state)
{
    (void)state;
    sched_init(&sched, &(struct sched_opts){.now = START});
    transcript_len = 0;
    transcript[0] = 0;
    return 0;
}

static void spawned_task_is_polled_then_dropped_once(void **state)
{
    (void)state;
    struct actor a;
    actor_init(&a, 'a');
    a.ready_after = 1;
    spawn(&a);
    assert_true(task_is_live(&a.task));
    assert_true(sched_is_runnable(&sched));
    assert_int_equal(sched.stats.live, 1);
    assert_true(sched_step(&sched, START + 1));
    assert_said("a");
    assert_int_equal(a.drops, 1);
    assert_false(task_is_live(&a.task));
    assert_int_equal(sched.stats.live, 0);
    assert_int_equal(sched.stats.finished, 1);
    assert_false(sched_step(&sched, START + 2));
    assert_int_equal(sched_next_timeout(&sched), UINT64_MAX);
    sched_fini(&sched);
    assert_int_equal(a.drops, 1);
}

static void pending_task_waits_for_a_wake(void **state)
{
    (void)state;
    struct actor a;
    actor_init(&a, 'a');
    spawn(&a);
    sched_step(&sched, START);
    assert_false(sched_is_runnable(&sched));
    assert_false(sched_step(&sched, START + 1));
    task_wake(&a.task);
    task_wake(&a.task);
    assert_int_equal(stats_of(&sched).wakes, 1);
    assert_int_equal(stats_of(&sched).run_depth, 1);
    assert_true(sched_step(&sched, START + 2));
    assert_said("aa");
    sched_fini(&sched);
    assert_int_equal(a.drops, 1);
    assert_int_equal(sched.stats.aborted, 1);
}

static void queue_is_first_come_first_served(void **state)
{
    (void)state;
    struct actor actors[5];
    for (int i = 0; i < 5; i++) {
        actor_init(&actors[i], (char)('a' + i));
        spawn(&actors[i]);
    }
    sched_step(&sched, START);
    assert_said("abcde");
    task_wake(&actors[3].task);
    task_wake(&actors[1].task);
    sched_step(&sched, START);
    assert_said("db");
    sched_fini(&sched);
}

static void just_woken_task_jumps_the_queue_three_times(void **state)
{
    (void)state;
    struct actor ping, pong, other;
    actor_init(&ping, 'p');
    actor_init(&pong, 'q');
    actor_init(&other, '-');
    spawn(&ping);
    spawn(&pong);
    spawn(&other);
    sched_step(&sched, START);
    assert_said("pq-");
    ping.wakes = &pong;
    pong.wakes = &ping;
    other.wakes_self = true;
    task_wake(&ping.task);
    task_wake(&other.task);
    sched_step(&sched, START);
    transcript[24] = 0;
    assert_string_equal(transcript, "pqpq-pqpq-pqpq-pqpq-pqpq");
    ping.wakes = pong.wakes = NULL;
    other.wakes_self = false;
    sched_fini(&sched);
}

static void displaced_wake_keeps_its_turn(void **state)
{
    (void)state;
    struct actor a, b, c, waker, last;
    actor_init(&a, 'a');
    actor_init(&b, 'b');
    actor_init(&c, 'c');
    actor_init(&waker, 'w');
    actor_init(&last, '-');
    spawn(&a);
    spawn(&b);
    spawn(&c);
    spawn(&waker);
    spawn(&last);
    sched_step(&sched, START);
    assert_said("abcw-");
    /* w wakes a, a wakes b; both jump; c and - were queued before. */
    waker.wakes = &a;
    a.wakes = &b;
    task_wake(&waker.task);
    task_wake(&c.task);
    task_wake(&last.task);
    sched_step(&sched, START);
    assert_said("wabc-");
    sched_fini(&sched);
}

static void budget_ends_a_poll_after_its_operations(void **state)
{
    (void)state;
    struct actor greedy, other;
    actor_init(&greedy, 'g');
    actor_init(&other, 'o');
    greedy.burns = true;
    spawn(&greedy);
    spawn(&other);
    for (unsigned pass = 1; pass <= 3; pass++) {
        sched_step(&sched, START);
        assert_int_equal(greedy.polls, pass); /* once a pass, behind all others */
        assert_int_equal(greedy.ops, pass * SCHED_BUDGET_OPS);
        assert_int_equal(sched.stats.budget_out, pass);
        task_wake(&other.task);
    }
    assert_said("gogogo");
    assert_true(sched_is_runnable(&sched));
    sched_fini(&sched);
}

static bool consume_in_lumps(struct actor *a)
{
    assert_true(task_consume(&a->task, SCHED_BUDGET_OPS - 1));
    assert_true(task_consume(&a->task, 1000)); /* overdraws */
    assert_false(task_consume(&a->task, 1));
    assert_false(task_consume(&a->task, 1));
    return true;
}

static void last_operation_may_overdraw(void **state)
{
    (void)state;
    struct actor a;
    actor_init(&a, 'a');
    a.spin = consume_in_lumps;
    spawn(&a);
    sched_step(&sched, START);
    assert_int_equal(sched.stats.budget_out, 1);
    sched_fini(&sched);
}

static void yield_runs_in_the_next_pass(void **state)
{
    (void)state;
    struct actor a, b;
    actor_init(&a, 'a');
    actor_init(&b, 'b');
    a.yields = true;
    b.wakes = &a; /* a wake of a yielded task adds nothing */
    spawn(&a);
    spawn(&b);
    assert_true(sched_step(&sched, START));
    assert_said("ab");
    assert_true(sched_step(&sched, START));
    assert_said("a");
    assert_int_equal(sched.stats.yields, 2);
    sched_fini(&sched);
}

static void pass_is_bounded_by_polls(void **state)
{
    (void)state;
    struct actor a;
    actor_init(&a, 'a');
    a.wakes_self = true;
    spawn(&a);
    sched_step(&sched, START);
    assert_int_equal(a.polls, SCHED_PASS_POLLS);
    assert_true(sched_is_runnable(&sched));
    sched_fini(&sched);
}

static void abort_drops_at_once_and_once(void **state)
{
    (void)state;
    struct actor a, b, never = {0};
    actor_init(&a, 'a');
    actor_init(&b, 'b');
    spawn(&a);
    spawn(&b);
    task_abort(&b.task);
    task_abort(&b.task);
    assert_int_equal(b.drops, 1);
    sched_step(&sched, START);
    assert_said("a");
    a.aborts_self = true;
    task_wake(&a.task);
    sched_step(&sched, START);
    assert_int_equal(a.drops, 1);
    assert_int_equal(sched.stats.aborted, 2);
    task_wake(&never.task);
    task_abort(&never.task);
    sched_fini(&sched);
    assert_int_equal(a.drops + b.drops, 2);
}

static void running_task_that_aborts_itself_and_finishes_is_finished(void **state)
{
    (void)state;
    struct actor a;
    actor_init(&a, 'a');
    a.aborts_self = a.wakes_self = a.yields = true;
    a.ready_after = 1;
    spawn(&a);
    sched_step(&sched, START);
    assert_int_equal(a.drops, 1);
    assert_int_equal(sched.stats.finished, 1);
    assert_int_equal(sched.stats.aborted, 0);
    assert_int_equal(stats_of(&sched).run_depth, 0);
    sched_fini(&sched);
}

static void one_task_may_abort_another_wherever_it_is(void **state)
{
    (void)state;
    struct actor killer, queued, slot;
    actor_init(&killer, 'k');
    actor_init(&queued, 'q');
    spawn(&killer);
    spawn(&queued);
    killer.aborts = &queued; /* still in the queue */
    sched_step(&sched, START);
    assert_said("k");
    assert_int_equal(queued.drops, 1);

    actor_init(&slot, 's');
    killer.aborts = NULL;
    spawn(&slot);
    sched_step(&sched, START);
    killer.wakes = killer.aborts = &slot; /* in the wake-next slot */
    task_wake(&killer.task);
    sched_step(&sched, START);
    assert_said("sk");
    assert_int_equal(slot.drops, 1);
    assert_int_equal(stats_of(&sched).run_depth, 0);
    killer.wakes = killer.aborts = NULL;
    sched_fini(&sched);
}

static void sleep_wakes_its_task_exactly_on_time(void **state)
{
    (void)state;
    struct actor a;
    actor_init(&a, 'a');
    a.sleep_until = START + 123456789;
    spawn(&a);
    sched_step(&sched, START);
    assert_int_equal(sched_next_timeout(&sched), a.sleep_until);
    assert_false(sched_step(&sched, a.sleep_until - 1));
    assert_int_equal(a.polls, 1);
    assert_true(sched_step(&sched, a.sleep_until));
    assert_int_equal(a.polls, 2);
    assert_false(sleep_is_armed(&a.sleep));
    sched_fini(&sched);
}

static void dropping_a_task_takes_its_timer_along(void **state)
{
    (void)state;
    struct actor a;
    actor_init(&a, 'a');
    a.sleep_until = START + 1000;
    spawn(&a);
    sched_step(&sched, START);
    task_abort(&a.task);
    assert_int_equal(timer_wheel_count(&sched.wheel), 0);
    assert_false(sched_step(&sched, START + 1000));
    sched_fini(&sched);
}

static enum poll spawner_poll(struct task *t);
static void heap_drop(struct task *t)
{
    free(container_of(t, struct actor, task));
}
static const struct task_kind heap_kind = {"heap", spawner_poll, heap_drop};

/* Each task spawns two of the next generation and ends; drop frees. */
static enum poll spawner_poll(struct task *t)
{
    struct actor *a = container_of(t, struct actor, task);
    for (unsigned i = 0; a->ops > 0 && i < 2; i++) {
        struct actor *child = calloc(1, sizeof(*child));
        child->ops = a->ops - 1;
        task_spawn(task_sched(t), &child->task, &heap_kind);
    }
    return POLL_READY;
}

static void task_memory_may_go_in_its_drop(void **state)
{
    (void)state;
    struct actor *root = calloc(1, sizeof(*root));
    root->ops = 9;
    task_spawn(&sched, &root->task, &heap_kind);
    while (sched_step(&sched, START))
        ;
    assert_int_equal(sched.stats.spawned, 1023);
    assert_int_equal(sched.stats.finished, 1023);
    assert_int_equal(sched.stats.live, 0);
    sched_fini(&sched);
}

static bool spin_past_a_stall(struct actor *a)
{
    (void)a;
    for (uint64_t start = clock_now_ns(); clock_now_ns() - start < 2 * SCHED_STALL_NS;)
        ;
    return true;
}

static bool spin_past_the_time_budget(struct actor *a)
{
    for (uint64_t start = clock_now_ns(); clock_now_ns() - start < 2 * SCHED_BUDGET_NS;)
        ;
    while (task_consume(&a->task, 1))
        a->ops++;
    assert_true(a->ops < 8);
    return true;
}

static void accounted_polls_are_timed_and_stalls_kept(void **state)
{
    (void)state;
    struct actor slow, quick;
    struct stall_record rec[4];
    sched_fini(&sched);
    sched_init(&sched, &(struct sched_opts){.now = START, .account = true});
    actor_init(&slow, 's');
    actor_init(&quick, 'q');
    slow.spin = spin_past_a_stall;
    slow.task.label = "route /a-label-that-is-much-longer-than-the-record-keeps";
    spawn(&slow);
    spawn(&quick);
    sched_step(&sched, START + 5);
    assert_int_equal(slow.polls, 1);
    assert_int_equal(quick.polls, 0); /* the pass was used up */
    sched_step(&sched, START + 5);
    assert_int_equal(quick.polls, 1);
    struct hist poll_ns;
    sched_poll_hist(&sched, &poll_ns);
    assert_int_equal(poll_ns.count, 2);
    assert_true(poll_ns.max >= 2 * SCHED_STALL_NS);
    assert_true(sched.stats.stalls >= 1);
    unsigned n = stall_read(&sched.stalls, rec, 4);
    assert_true(n >= 1);
    assert_int_equal(rec[n - 1].at, START + 5);
    assert_true(rec[n - 1].ns >= 2 * SCHED_STALL_NS);
    assert_string_equal(rec[n - 1].kind, "actor");
    assert_string_equal(rec[n - 1].label, "route /a-label-that-is-much-lon");
    slow.spin = spin_past_the_time_budget;
    task_wake(&slow.task);
    sched_step(&sched, START + 6);
    assert_int_equal(sched.stats.budget_out, 1);
    sched_fini(&sched);
}

static void nobody_drops(struct task *t)
{
    (void)t;
}

static enum poll burn_poll(struct task *t)
{
    task_consume(t, 1);
    return POLL_PENDING;
}

static enum poll idle_poll(struct task *t)
{
    (void)t;
    return POLL_PENDING;
}

static void wake_ups_for_nothing_are_counted_by_kind(void **state)
{
    static const struct task_kind burn = {"burn", burn_poll, nobody_drops, 300};
    static const struct task_kind idle = {"idle", idle_poll, nobody_drops, 200};
    struct task tasks[3] = {0};
    (void)state;
    task_spawn(&sched, &tasks[0], &burn);
    task_spawn(&sched, &tasks[1], &idle);
    task_spawn(&sched, &tasks[2], &idle);
    for (unsigned i = 0; i < 4; i++) {
        sched_step(&sched, START + i);
        for (unsigned k = 0; k < 3; k++)
            task_wake(&tasks[k]);
    }
    /* The first poll is no wake-up. */
    assert_int_equal(stats_of(&sched).fruitless, 6);
    assert_int_equal(sched.nkinds, 2);
    assert_ptr_equal(sched.kinds[0].kind, &burn);
    assert_int_equal(sched.kinds[0].fruitless, 0);
    assert_int_equal(sched.kinds[0].polls, 4);
    assert_int_equal(sched.kinds[1].fruitless, 6);
    assert_int_equal(sched.kinds[1].live, 2);
    task_abort(&tasks[2]);
    assert_int_equal(sched.kinds[1].live, 1);
    assert_int_equal(sched.stats.run_depth_max, 3);
    sched_fini(&sched);
}

static void kinds_beyond_the_table_are_counted_together(void **state)
{
    static struct task_kind kinds[SCHED_KINDS + 3];
    struct task tasks[SCHED_KINDS + 3] = {0};
    (void)state;
    for (unsigned i = 0; i < SCHED_KINDS + 3; i++) {
        kinds[i] = (struct task_kind){"some", idle_poll, nobody_drops, 8};
        task_spawn(&sched, &tasks[i], &kinds[i]);
    }
    assert_int_equal(sched.nkinds, SCHED_KINDS);
    assert_string_equal(sched.kinds[SCHED_KINDS - 1].kind->name, "other");
    assert_int_equal(sched.kinds[SCHED_KINDS - 1].live, 4);
    assert_int_equal(sched.kinds[SCHED_KINDS - 2].live, 1);
    sched_fini(&sched);
}

static void stall_ring_keeps_the_newest(void **state)
{
    (void)state;
    static struct stall_ring ring;
    struct stall_record rec[STALL_RING_SIZE + 1];
    assert_int_equal(stall_read(&ring, rec, 4), 0);
    for (uint64_t i = 1; i <= STALL_RING_SIZE + 5; i++)
        stall_push(&ring,
                   &(struct stall_event){
                       .at = i, .ns = 10 * i, .kind = "kind", .label = i % 2 ? NULL : "label"});
    assert_int_equal(stall_count(&ring), STALL_RING_SIZE + 5);
    assert_int_equal(stall_read(&ring, rec, STALL_RING_SIZE + 1), STALL_RING_SIZE);
    for (unsigned i = 0; i < STALL_RING_SIZE; i++) {
        assert_int_equal(rec[i].at, STALL_RING_SIZE + 5 - i);
        assert_int_equal(rec[i].ns, 10 * rec[i].at);
        assert_string_equal(rec[i].label, rec[i].at % 2 ? "" : "label");
    }
    assert_int_equal(stall_read(&ring, rec, 3), 3);
}

#define story(f) cmocka_unit_test_setup(f, set_up)

int main(void)
{
    const struct CMUnitTest tests[] = {
        story(spawned_task_is_polled_then_dropped_once),
        story(pending_task_waits_for_a_wake),
        story(queue_is_first_come_first_served),
        story(just_woken_task_jumps_the_queue_three_times),
        story(displaced_wake_keeps_its_turn),
        story(budget_ends_a_poll_after_its_operations),
        story(last_operation_may_overdraw),
        story(yield_runs_in_the_next_pass),
        story(pass_is_bounded_by_polls),
        story(abort_drops_at_once_and_once),
        story(running_task_that_aborts_itself_and_finishes_is_finished),
        story(one_task_may_abort_another_wherever_it_is),
        story(sleep_wakes_its_task_exactly_on_time),
        story(dropping_a_task_takes_its_timer_along),
        story(task_memory_may_go_in_its_drop),
        story(accounted_polls_are_timed_and_stalls_kept),
        story(wake_ups_for_nothing_are_counted_by_kind),
        story(kinds_beyond_the_table_are_counted_together),
        story(stall_ring_keeps_the_newest),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
