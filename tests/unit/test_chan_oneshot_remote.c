#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <errno.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "runtime/chan_oneshot_remote.h"
#include "runtime/rng.h"
#include "tests/kit/core_rig.h"
#include "tests/kit/future_task.h"

enum { HERE, THERE, CORES }; /* the receiver's core, the sender's */

static struct core_rig cores[CORES];
static struct oneshot_remote shot;
static unsigned releases;
static void *lost; /* what release found */
static int answer = 42;

static void release(struct oneshot_remote *o)
{
    releases++;
    lost = o->value;
    memset(o, 0xee, sizeof(*o)); /* as good as freed */
}

static int set_up(void **state)
{
    (void)state;
    return core_rig_init(&cores[HERE]) || core_rig_init(&cores[THERE]);
}

static int tear_down(void **state)
{
    (void)state;
    for (unsigned i = 0; i < CORES; i++)
        core_rig_stop(&cores[i]);
    core_rigs_settle(cores, CORES);
    for (unsigned i = 0; i < CORES; i++)
        core_rig_fini(&cores[i]);
    return 0;
}

struct receiver {
    struct future_task task;
    struct oneshot_remote_recv recv;
};

static void start(struct receiver *r, bool sender_has_mailbox)
{
    releases = 0;
    lost = NULL;
    oneshot_remote_init(&shot, &cores[HERE].mailbox,
                        sender_has_mailbox ? &cores[THERE].mailbox : NULL, release);
    oneshot_remote_recv_init(&r->recv, &shot);
    future_task_spawn(&cores[HERE].sched, &r->task, &r->recv.future);
    core_rig_step(&cores[HERE]);
    assert_false(r->task.ready);
}

static void value_crosses_to_the_receiver(void **state)
{
    (void)state;
    struct receiver r;
    start(&r, false);
    assert_int_equal(oneshot_remote_send(&shot, &answer), 0);
    assert_int_equal(releases, 0);
    core_rigs_settle(cores, CORES);
    assert_int_equal(r.recv.future.status, 0);
    assert_ptr_equal(r.recv.value, &answer);
    assert_int_equal(r.task.polls, 2);
    assert_int_equal(releases, 1);
    assert_null(lost); /* taken */
}

static void receiver_is_told_that_the_sender_was_dropped(void **state)
{
    (void)state;
    struct receiver r;
    start(&r, true);
    oneshot_remote_tx_drop(&shot);
    core_rigs_settle(cores, CORES);
    assert_int_equal(r.recv.future.status, -EPIPE);
    assert_int_equal(releases, 1);
}

static void sender_may_wait_for_the_receiver_to_go(void **state)
{
    (void)state;
    struct receiver r;
    struct oneshot_remote_closed closed;
    struct future_task task;
    start(&r, true);
    oneshot_remote_closed_init(&closed, &shot);
    future_task_spawn(&cores[THERE].sched, &task, &closed.future);
    core_rigs_settle(cores, CORES);
    assert_false(task.ready);
    task_abort(&r.task.task);
    assert_true(oneshot_remote_is_closed(&shot));
    core_rigs_settle(cores, CORES);
    assert_true(task.ready);
    assert_int_equal(task.polls, 2);
    assert_int_equal(oneshot_remote_send(&shot, &answer), -EPIPE);
    assert_int_equal(releases, 1);
    assert_null(lost); /* it stayed the sender's */
}

/* Every order of what the two ends do and what the mailboxes deliver. */
enum step { SEND, DROP_TX, ABORT_RX, STEP_HERE, STEP_THERE, STEPS };

static void play(const enum step *steps, unsigned n, bool sender_has_mailbox)
{
    struct receiver r;
    int sent = 1; /* not tried */
    bool tx_done = false, rx_aborted = false;
    start(&r, sender_has_mailbox);
    for (unsigned i = 0; i < n; i++) {
        if (steps[i] == SEND && !tx_done)
            sent = oneshot_remote_send(&shot, &answer);
        if (steps[i] == DROP_TX && !tx_done)
            oneshot_remote_tx_drop(&shot);
        tx_done |= steps[i] == SEND || steps[i] == DROP_TX;
        if (steps[i] == ABORT_RX && !r.task.dropped) {
            task_abort(&r.task.task);
            rx_aborted = true;
        }
        if (steps[i] == STEP_HERE)
            core_rig_step(&cores[HERE]);
        if (steps[i] == STEP_THERE)
            core_rig_step(&cores[THERE]);
    }
    core_rigs_settle(cores, CORES);
    if (!tx_done)
        oneshot_remote_tx_drop(&shot);
    core_rigs_settle(cores, CORES);
    assert_int_equal(releases, 1);
    assert_true(r.task.dropped);
    assert_int_equal(r.task.ready, !rx_aborted);
    if (r.task.ready)
        assert_int_equal(r.recv.future.status, sent == 0 ? 0 : -EPIPE);
    if (rx_aborted)
        assert_ptr_equal(lost, sent == 0 ? &answer : NULL); /* sent for nothing: release's */
    else
        assert_null(lost);
}

static void every_order_of_events_ends_in_one_release(void **state)
{
    enum { LENGTH = 6 };
    (void)state;
    unsigned total = 1;
    for (unsigned i = 0; i < LENGTH; i++)
        total *= STEPS;
    for (unsigned code = 0; code < 2 * total; code++) {
        enum step steps[LENGTH];
        unsigned rest = code / 2;
        for (unsigned i = 0; i < LENGTH; i++) {
            steps[i] = (enum step)(rest % STEPS);
            rest /= STEPS;
        }
        play(steps, LENGTH, code & 1);
    }
}

/* Two threads, many shots, each end dropped or used at random. */

#define SHOTS 30000
#define AHEAD 64 /* in flight */

struct round {
    struct oneshot_remote shot;
    struct oneshot_remote_recv recv;
    unsigned n;
    unsigned patience; /* polls before it is dropped; 0: it isn't */
};

static atomic_uint released, unread, refused, thrown_away;
static _Atomic(struct round *) handed_over[AHEAD];

static void release_round(struct oneshot_remote *o)
{
    struct round *r = container_of(o, struct round, shot);
    if (o->value) {
        if (o->value != r)
            abort();
        atomic_fetch_add(&unread, 1);
    }
    atomic_fetch_add(&released, 1);
}

struct asker {
    struct task task;
    struct rng rng;
    unsigned made, answered, aborted, dropped;
    struct round *open[AHEAD];
};

static struct round rounds[SHOTS];

/* Makes shots as long as there is a free place, and asks after those that are open. */
static enum poll asker_poll(struct task *t)
{
    struct asker *a = container_of(t, struct asker, task);
    unsigned open = 0;
    for (unsigned i = 0; i < AHEAD; i++) {
        struct round *r = a->open[i];
        if (r && r->patience > 0 && --r->patience == 0) {
            oneshot_remote_recv_drop(&r->recv);
            a->aborted++;
            a->open[i] = NULL;
        } else if (r && oneshot_remote_recv_poll(&r->recv, t) == POLL_READY) {
            a->answered += r->recv.future.status == 0 && r->recv.value == r;
            a->dropped += r->recv.future.status == -EPIPE;
            a->open[i] = NULL;
        }
        if (!a->open[i] && a->made < SHOTS && !atomic_load(&handed_over[i])) {
            r = a->open[i] = &rounds[a->made];
            r->n = a->made++;
            r->patience = rng_chance(&a->rng, 250000) ? 1 + rng_below(&a->rng, 4) : 0;
            oneshot_remote_init(&r->shot, &cores[HERE].mailbox,
                                r->n % 2 ? &cores[THERE].mailbox : NULL, release_round);
            oneshot_remote_recv_init(&r->recv, &r->shot);
            atomic_store(&handed_over[i], r);
        }
        open += a->open[i] != NULL;
    }
    if (a->made == SHOTS && open == 0)
        return POLL_READY;
    task_yield(t);
    return POLL_PENDING;
}

static void no_drop(struct task *t)
{
    (void)t;
}

static const struct task_kind asker_kind = {"asker", asker_poll, no_drop};

struct answerer {
    struct task task;
    struct rng rng;
    unsigned done;
};

static enum poll answerer_poll(struct task *t)
{
    struct answerer *a = container_of(t, struct answerer, task);
    for (unsigned i = 0; i < AHEAD; i++) {
        struct round *r = atomic_load(&handed_over[i]);
        if (!r || rng_chance(&a->rng, 300000))
            continue;
        a->done++;
        if (rng_chance(&a->rng, 200000)) {
            oneshot_remote_tx_drop(&r->shot);
            atomic_fetch_add(&thrown_away, 1);
        } else if (oneshot_remote_send(&r->shot, r) == -EPIPE) {
            atomic_fetch_add(&refused, 1);
        }
        atomic_store(&handed_over[i], NULL);
    }
    if (a->done == SHOTS)
        return POLL_READY;
    task_yield(t);
    return POLL_PENDING;
}

static const struct task_kind answerer_kind = {"answerer", answerer_poll, no_drop};

static void *run_there(void *arg)
{
    (void)arg;
    core_rig_run(&cores[THERE]);
    return NULL;
}

static void every_shot_of_two_threads_is_released_once(void **state)
{
    (void)state;
    struct asker asker = {.rng = {1}};
    struct answerer answerer = {.rng = {2}};
    pthread_t thread;
    task_spawn(&cores[HERE].sched, &asker.task, &asker_kind);
    task_spawn(&cores[THERE].sched, &answerer.task, &answerer_kind);
    assert_int_equal(pthread_create(&thread, NULL, run_there, NULL), 0);
    core_rig_run(&cores[HERE]);
    pthread_join(thread, NULL);
    core_rigs_settle(cores, CORES);
    assert_int_equal(atomic_load(&released), SHOTS);
    assert_int_equal(asker.answered + asker.dropped + asker.aborted, SHOTS);
    /* Who was answered, and what was sent to who had left. */
    unsigned sent = SHOTS - atomic_load(&refused) - atomic_load(&thrown_away);
    assert_int_equal(asker.answered + atomic_load(&unread), sent);
    assert_true(asker.answered > SHOTS / 4 && asker.aborted > 100 && asker.dropped > 100);
}

#define story(f) cmocka_unit_test_setup_teardown(f, set_up, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        story(value_crosses_to_the_receiver),
        story(receiver_is_told_that_the_sender_was_dropped),
        story(sender_may_wait_for_the_receiver_to_go),
        story(every_order_of_events_ends_in_one_release),
        story(every_shot_of_two_threads_is_released_once),
    };
    return cmocka_run_group_tests_name("chan_oneshot_remote", tests, NULL, NULL);
}
