/* Life and death of tasks, exhaustively: three tasks and every sequence of what can be done to them
 * and by them, from outside, in a poll and in a drop, against the contract of task.h.
 *
 * A run asks choose() at every turn; the runs enumerate all answers up to DEPTH questions, as an
 * odometer whose wheels are found on the way. What is asked later gets the harmless answer. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "runtime/sched.h"

#define START 271828182ull
#define TASKS 3
#define DEPTH 6 /* questions */
#define TURNS 4 /* things done from outside */

static struct {
    uint8_t answer[DEPTH], width[DEPTH];
    unsigned asked, known;
} odometer;

static unsigned choose(unsigned width)
{
    unsigned i = odometer.asked;
    if (i == DEPTH)
        return 0;
    odometer.asked++;
    if (i == odometer.known) {
        odometer.answer[i] = 0;
        odometer.width[i] = (uint8_t)width;
        odometer.known++;
    }
    assert_int_equal(odometer.width[i], width); /* a run depends on its answers alone */
    return odometer.answer[i];
}

static bool turn_odometer(void)
{
    while (odometer.known > 0) {
        unsigned last = odometer.known - 1;
        if (++odometer.answer[last] < odometer.width[last])
            return true;
        odometer.known--;
    }
    return false;
}

struct subject {
    struct task task;
    unsigned spawns, drops;
    bool is_live;
    bool is_due;         /* spawned, woken or yielded since its last poll began */
    bool is_polled;      /* now */
    bool is_ending;      /* its poll was ready or it was aborted in it: the drop comes next */
    bool is_aborted;     /* in the poll that runs now */
    unsigned not_before; /* the pass from which it may be polled again */
};

static struct sched sched;
static struct subject subjects[TASKS];
static unsigned pass, finished;
static char said[256];

static void fail_with(const char *what)
{
    char answers[4 * DEPTH + 1] = "";
    for (unsigned i = 0, at = 0; i < odometer.asked; i++)
        at += (unsigned)snprintf(answers + at, sizeof(answers) - at, " %u", odometer.answer[i]);
    fail_msg("answers%s: %s: not %s", answers, said, what);
}

#define check(cond) ((cond) ? (void)0 : fail_with(#cond))

static void say(const char *what, const struct subject *s)
{
    size_t len = strlen(said);
    snprintf(said + len, sizeof(said) - len, " %s%c", what, s ? (char)('A' + (s - subjects)) : ' ');
}

static enum poll subject_poll(struct task *t);
static void subject_drop(struct task *t);
static const struct task_kind subject_kind = {"subject", subject_poll, subject_drop};

static void check_nobody_is_ending(const struct subject *but)
{
    for (unsigned i = 0; i < TASKS; i++)
        check(!subjects[i].is_ending || &subjects[i] == but);
}

static void check_nobody_is_polled(void)
{
    for (unsigned i = 0; i < TASKS; i++)
        check(!subjects[i].is_polled);
}

static void each_other(const struct subject *s, void (*what)(struct subject *))
{
    for (unsigned i = 0; i < TASKS; i++)
        if (&subjects[i] != s)
            what(&subjects[i]);
}

static void spawn(struct subject *s)
{
    if (s->is_live)
        return;
    say("spawn", s);
    s->is_live = s->is_due = true;
    s->not_before = pass;
    s->spawns++;
    task_spawn(&sched, &s->task, &subject_kind);
}

static void wake(struct subject *s)
{
    say("wake", s);
    s->is_due |= s->is_live;
    task_wake(&s->task);
}

static void abort_it(struct subject *s)
{
    say("abort", s);
    unsigned drops = s->drops;
    if (s->is_polled) {
        s->is_aborted = true;
        task_abort(&s->task);
        check(s->drops == drops && task_is_live(&s->task));
    } else {
        bool was_live = s->is_live;
        task_abort(&s->task);
        check(was_live ? s->drops > drops : s->drops == drops);
    }
}

static enum poll subject_poll(struct task *t)
{
    struct subject *s = container_of(t, struct subject, task);
    say("poll", s);
    check_nobody_is_ending(NULL);
    check_nobody_is_polled();
    check(s->is_live && s->is_due);
    check(pass >= s->not_before);
    s->is_due = false;
    s->is_polled = true;
    s->is_aborted = false;
    unsigned what = choose(12);
    switch (what / 2) {
    case 1:
        wake(s);
        break;
    case 2:
        each_other(s, wake);
        break;
    case 3:
        abort_it(s);
        break;
    case 4:
        each_other(s, abort_it);
        break;
    case 5:
        say("yield", s);
        task_yield(t);
        s->is_due = true;
        s->not_before = pass + 1;
        break;
    default:
        break;
    }
    s->is_polled = false;
    s->is_ending = what % 2 || s->is_aborted;
    finished += what % 2;
    return what % 2 ? POLL_READY : POLL_PENDING;
}

static void subject_drop(struct task *t)
{
    struct subject *s = container_of(t, struct subject, task);
    say("drop", s);
    check(s->is_live && !s->is_polled && s->drops + 1 == s->spawns);
    check(!task_is_live(t) && task_sched(t) == &sched && task_now(t) == START);
    check_nobody_is_ending(s);
    s->drops++;
    s->is_live = s->is_due = s->is_ending = s->is_aborted = false;
    task_wake(t); /* no-ops by now */
    task_abort(t);
    switch (choose(4)) {
    case 1:
        each_other(s, wake);
        break;
    case 2:
        each_other(s, abort_it);
        break;
    case 3:
        each_other(s, spawn);
        break;
    default:
        break;
    }
}

/* After each turn: the scheduler's books agree. */
static void check_books(void)
{
    unsigned live = 0, due = 0, spawns = 0, drops = 0;
    for (unsigned i = 0; i < TASKS; i++) {
        struct subject *s = &subjects[i];
        live += s->is_live;
        due += s->is_due;
        spawns += s->spawns;
        drops += s->drops;
        check(task_is_live(&s->task) == s->is_live);
    }
    check(sched.stats.live == live && spawns == drops + live);
    struct sched_stats stats;
    sched_read_stats(&sched, &stats);
    check(stats.run_depth == due && sched_is_runnable(&sched) == (due > 0));
    check(sched.stats.spawned == spawns && sched.stats.finished == finished);
    check(sched.stats.aborted + finished == drops);
}

/* Nobody who was woken is left behind, but those who gave up their turn. */
static void step(void)
{
    say("step", NULL);
    sched_step(&sched, START);
    check_nobody_is_ending(NULL);
    for (unsigned i = 0; i < TASKS; i++)
        check(!subjects[i].is_due || subjects[i].not_before > pass);
    pass++;
}

static void run(void)
{
    memset(subjects, 0, sizeof(subjects));
    pass = finished = 0;
    said[0] = 0;
    odometer.asked = 0;
    sched_init(&sched, &(struct sched_opts){.now = START});
    each_other(NULL, spawn);
    for (unsigned turn = 0; turn < TURNS; turn++) {
        unsigned what = choose(1 + 3 * TASKS);
        struct subject *s = &subjects[what % TASKS];
        if (what == 0)
            step();
        else if (what <= TASKS)
            wake(s);
        else if (what <= 2 * TASKS)
            abort_it(s);
        else
            spawn(s);
        check_books();
    }
    sched_fini(&sched);
    check_books();
}

static void every_sequence_keeps_the_contract(void **state)
{
    (void)state;
    unsigned long runs = 0;
    do {
        run();
        runs++;
    } while (turn_odometer());
    print_message("# %lu sequences\n", runs);
    assert_true(runs > 50000);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_sequence_keeps_the_contract),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
