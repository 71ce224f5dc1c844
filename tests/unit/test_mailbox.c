#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>

#include <cmocka.h>

#include "runtime/mailbox.h"
#include "runtime/rng.h"
#include "runtime/sched.h"

#define START       31337ull
#define PATIENCE_MS 30000 /* a wake-up that takes longer is lost */

static struct mailbox box;

struct letter {
    struct mailbox_item item;
    unsigned delivered;
    unsigned repost; /* times */
    char name;
};

static char transcript[64];
static size_t transcript_len;

static void on_letter(struct mailbox_item *item)
{
    struct letter *l = container_of(item, struct letter, item);
    l->delivered++;
    transcript[transcript_len++] = l->name;
    transcript[transcript_len] = 0;
    if (l->repost) {
        l->repost--;
        mailbox_post(&box, item);
    }
}

static struct letter letter(char name)
{
    return (struct letter){.item.deliver = on_letter, .name = name};
}

static int set_up(void **state)
{
    (void)state;
    transcript_len = 0;
    transcript[0] = 0;
    return mailbox_init(&box);
}

static int tear_down(void **state)
{
    (void)state;
    mailbox_fini(&box);
    return 0;
}

static bool is_rung(void)
{
    struct pollfd pfd = {.fd = mailbox_fd(&box), .events = POLLIN};
    return poll(&pfd, 1, 0) == 1;
}

static void items_come_in_order_and_once(void **state)
{
    (void)state;
    struct letter a = letter('a'), b = letter('b'), c = letter('c');
    assert_false(mailbox_is_pending(&box));
    mailbox_post(&box, &a.item);
    mailbox_post(&box, &b.item);
    mailbox_post(&box, &a.item); /* still queued */
    mailbox_post(&box, &c.item);
    assert_true(mailbox_is_pending(&box));
    assert_int_equal(mailbox_drain(&box, 100), 3);
    assert_string_equal(transcript, "abc");
    mailbox_post(&box, &a.item);
    assert_int_equal(mailbox_drain(&box, 100), 1);
    assert_int_equal(a.delivered, 2);
}

static void drain_is_bounded_and_keeps_the_rest(void **state)
{
    (void)state;
    struct letter l[5] = {letter('a'), letter('b'), letter('c'), letter('d'), letter('e')};
    for (int i = 0; i < 4; i++)
        mailbox_post(&box, &l[i].item);
    assert_int_equal(mailbox_drain(&box, 3), 3);
    mailbox_post(&box, &l[4].item);
    assert_true(mailbox_is_pending(&box));
    assert_false(mailbox_prepare_sleep(&box));
    while (mailbox_drain(&box, 3))
        ;
    assert_string_equal(transcript, "abcde");
}

static void reposting_from_delivery_waits_for_the_next_drain(void **state)
{
    (void)state;
    struct letter a = letter('a');
    a.repost = 2;
    mailbox_post(&box, &a.item);
    assert_int_equal(mailbox_drain(&box, 100), 1);
    assert_int_equal(mailbox_drain(&box, 100), 1);
    assert_int_equal(mailbox_drain(&box, 100), 1);
    assert_int_equal(mailbox_drain(&box, 100), 0);
    assert_int_equal(box.delivered, 3);
}

static void bell_rings_only_for_a_sleeper(void **state)
{
    (void)state;
    struct letter a = letter('a'), b = letter('b');
    mailbox_post(&box, &a.item);
    assert_false(is_rung());
    assert_false(mailbox_prepare_sleep(&box));
    mailbox_drain(&box, 100);
    assert_true(mailbox_prepare_sleep(&box));
    assert_false(is_rung());
    mailbox_post(&box, &a.item);
    assert_true(is_rung());
    mailbox_end_sleep(&box);
    assert_false(is_rung());
    mailbox_post(&box, &b.item);
    assert_false(is_rung());
    assert_int_equal(mailbox_drain(&box, 100), 2);
}

static void items_left_at_the_end_are_delivered(void **state)
{
    (void)state;
    struct mailbox mb;
    struct letter a = letter('a');
    assert_int_equal(mailbox_init(&mb), 0);
    mailbox_post(&mb, &a.item);
    mailbox_fini(&mb);
    assert_int_equal(a.delivered, 1);
}

/* Remote wakers, one thread. */

struct sleeper {
    struct task task;
    struct remote_waker waker;
    unsigned polls;
};

static struct sched sched;

static enum poll sleeper_poll(struct task *t)
{
    container_of(t, struct sleeper, task)->polls++;
    return POLL_PENDING;
}

static void sleeper_drop(struct task *t)
{
    remote_slot_put(&container_of(t, struct sleeper, task)->waker);
}

static const struct task_kind sleeper_kind = {"sleeper", sleeper_poll, sleeper_drop};

static void sleeper_start(struct sleeper *s)
{
    *s = (struct sleeper){0};
    task_spawn(&sched, &s->task, &sleeper_kind);
    assert_int_equal(remote_slot_take(&box, &s->task, &s->waker), 0);
}

static void stale_waker_does_nothing(void **state)
{
    (void)state;
    struct sleeper s;
    sched_init(&sched, &(struct sched_opts){.now = START});
    sleeper_start(&s);
    sched_step(&sched, START);
    struct remote_waker copy = s.waker;
    remote_wake(copy);
    remote_wake(copy);
    assert_int_equal(mailbox_drain(&box, 10), 1);
    sched_step(&sched, START);
    assert_int_equal(s.polls, 2);

    remote_wake(copy); /* on its way when the task goes */
    task_abort(&s.task);
    assert_int_equal(remote_slots_taken(&box), 0);
    assert_int_equal(mailbox_drain(&box, 10), 1);
    remote_wake(copy);
    remote_wake(s.waker); /* zeroed by the put */
    remote_wake((struct remote_waker){0});
    assert_false(mailbox_is_pending(&box));
    assert_false(sched_step(&sched, START));
    sched_fini(&sched);
}

static void reused_slot_has_a_new_generation(void **state)
{
    (void)state;
    struct task task = {0};
    struct remote_waker first, w;
    assert_int_equal(remote_slot_take(&box, &task, &first), 0);
    w = first;
    remote_slot_put(&w);
    for (unsigned i = 0; i < REMOTE_CHUNK_SLOTS; i++) {
        assert_int_equal(remote_slot_take(&box, &task, &w), 0);
        assert_true(w.slot != first.slot || w.gen != first.gen);
    }
    assert_int_equal(w.slot, first.slot); /* the longest rested comes last */
    remote_wake(first);
    assert_false(mailbox_is_pending(&box));
}

static void table_grows_to_its_bound(void **state)
{
    (void)state;
    enum { ALL = REMOTE_CHUNKS * REMOTE_CHUNK_SLOTS };
    struct task task = {0};
    struct remote_waker *w = calloc(ALL + 1, sizeof(*w));
    for (unsigned i = 0; i < ALL; i++)
        assert_int_equal(remote_slot_take(&box, &task, &w[i]), 0);
    assert_int_equal(remote_slot_take(&box, &task, &w[ALL]), -ENOSPC);
    assert_null(w[ALL].mb);
    assert_int_equal(remote_slots_taken(&box), ALL);
    remote_slot_put(&w[77]);
    assert_int_equal(remote_slot_take(&box, &task, &w[ALL]), 0);
    assert_int_equal(w[ALL].slot, 77);
    free(w);
}

/* Many threads. */

#define PRODUCERS 3
#define ITEMS     8
#define POSTS     20000

struct parcel {
    struct mailbox_item item;
    atomic_uint sent; /* by one producer */
    unsigned seen;    /* owner's */
};

struct producer {
    pthread_t thread;
    uint64_t seed;
    struct parcel parcels[ITEMS];
};

static struct producer producers[PRODUCERS];
static atomic_uint producers_left;
static struct letter farewell;

static void on_parcel(struct mailbox_item *item)
{
    struct parcel *p = container_of(item, struct parcel, item);
    unsigned sent = atomic_load_explicit(&p->sent, memory_order_relaxed);
    assert_true(sent >= p->seen);
    p->seen = sent;
}

static void producer_leaves(void)
{
    if (atomic_fetch_sub(&producers_left, 1) == 1)
        mailbox_post(&box, &farewell.item);
}

static void *post_parcels(void *arg)
{
    struct producer *self = arg;
    struct rng rng = {self->seed};
    for (unsigned i = 0; i < POSTS; i++) {
        struct parcel *p = &self->parcels[rng_below(&rng, ITEMS)];
        atomic_fetch_add_explicit(&p->sent, 1, memory_order_relaxed);
        mailbox_post(&box, &p->item);
        if (rng_chance(&rng, 20000))
            sched_yield();
    }
    producer_leaves();
    return NULL;
}

/* The idle loop of a core: fails when it is left asleep with something in the box. */
static void idle_until_farewell(bool (*work)(void))
{
    while (!farewell.delivered) {
        unsigned n = mailbox_drain(&box, 16);
        if (work && work())
            continue;
        if (n > 0 || !mailbox_prepare_sleep(&box))
            continue;
        struct pollfd pfd = {.fd = mailbox_fd(&box), .events = POLLIN};
        int rc = poll(&pfd, 1, PATIENCE_MS);
        mailbox_end_sleep(&box);
        if (rc == 0)
            fail_msg("slept for %d ms although something was posted", PATIENCE_MS);
    }
}

static void start_producers(void *(*run)(void *))
{
    farewell = letter('.');
    atomic_store(&producers_left, PRODUCERS);
    for (unsigned i = 0; i < PRODUCERS; i++) {
        producers[i].seed = i + 1;
        assert_int_equal(pthread_create(&producers[i].thread, NULL, run, &producers[i]), 0);
    }
}

static void join_producers(void)
{
    for (unsigned i = 0; i < PRODUCERS; i++)
        pthread_join(producers[i].thread, NULL);
}

static void nothing_is_lost_between_threads(void **state)
{
    (void)state;
    for (unsigned i = 0; i < PRODUCERS; i++)
        for (unsigned j = 0; j < ITEMS; j++)
            producers[i].parcels[j] = (struct parcel){.item.deliver = on_parcel};
    start_producers(post_parcels);
    idle_until_farewell(NULL);
    join_producers();
    mailbox_drain(&box, 1000);
    for (unsigned i = 0; i < PRODUCERS; i++)
        for (unsigned j = 0; j < ITEMS; j++)
            assert_int_equal(producers[i].parcels[j].seen, producers[i].parcels[j].sent);
}

#define CONSUMERS 40

/* Takes the tokens that producers leave for it, and is put to sleep when there is none. */
struct consumer {
    struct task task;
    struct remote_waker waker;
    unsigned taken;
};

static struct consumer consumers[CONSUMERS];
static atomic_uint tokens[CONSUMERS];
static struct remote_waker wakers[CONSUMERS];

static enum poll consumer_poll(struct task *t)
{
    struct consumer *c = container_of(t, struct consumer, task);
    c->taken += atomic_exchange(&tokens[c - consumers], 0);
    return POLL_PENDING;
}

static void consumer_drop(struct task *t)
{
    remote_slot_put(&container_of(t, struct consumer, task)->waker);
}

static const struct task_kind consumer_kind = {"consumer", consumer_poll, consumer_drop};

static void *leave_tokens(void *arg)
{
    struct producer *self = arg;
    struct rng rng = {self->seed};
    for (unsigned i = 0; i < POSTS; i++) {
        unsigned n = rng_below(&rng, CONSUMERS);
        atomic_fetch_add(&tokens[n], 1);
        remote_wake(wakers[n]);
    }
    producer_leaves();
    return NULL;
}

static uint64_t virtual_now;

static bool step_tasks(void)
{
    return sched_step(&sched, ++virtual_now);
}

static void every_remote_wake_reaches_its_task(void **state)
{
    (void)state;
    virtual_now = START;
    sched_init(&sched, &(struct sched_opts){.now = START});
    for (unsigned i = 0; i < CONSUMERS; i++) {
        consumers[i] = (struct consumer){0};
        atomic_store(&tokens[i], 0);
        task_spawn(&sched, &consumers[i].task, &consumer_kind);
        assert_int_equal(remote_slot_take(&box, &consumers[i].task, &consumers[i].waker), 0);
        wakers[i] = consumers[i].waker;
    }
    start_producers(leave_tokens);
    idle_until_farewell(step_tasks);
    join_producers();
    while (mailbox_drain(&box, 1000) || step_tasks())
        ;
    unsigned taken = 0;
    for (unsigned i = 0; i < CONSUMERS; i++)
        taken += consumers[i].taken;
    assert_int_equal(taken, PRODUCERS * POSTS);
    sched_fini(&sched);
    assert_int_equal(remote_slots_taken(&box), 0);
}

/* Wakes whatever stands in wakers[], mostly stale by then. */
static _Atomic uint64_t published; /* slot << 32 | gen */

static void *wake_published(void *arg)
{
    (void)arg;
    for (unsigned i = 0; i < POSTS; i++) {
        uint64_t w = atomic_load(&published);
        remote_wake((struct remote_waker){&box, (uint32_t)(w >> 32), (uint32_t)w});
    }
    producer_leaves();
    return NULL;
}

static bool churn_slots(void)
{
    struct sleeper s;
    sleeper_start(&s);
    atomic_store(&published, (uint64_t)s.waker.slot << 32 | s.waker.gen);
    sched_step(&sched, ++virtual_now);
    mailbox_drain(&box, 2);
    task_abort(&s.task);
    return false;
}

static void stale_wakes_race_with_reuse_harmlessly(void **state)
{
    (void)state;
    virtual_now = START;
    sched_init(&sched, &(struct sched_opts){.now = START});
    churn_slots();
    start_producers(wake_published);
    while (!farewell.delivered) {
        churn_slots();
        mailbox_drain(&box, 2);
    }
    join_producers();
    while (mailbox_drain(&box, 100))
        ;
    assert_int_equal(remote_slots_taken(&box), 0);
    sched_fini(&sched);
}

static struct stall_ring ring;
static atomic_bool ring_done;

static void *read_stalls(void *arg)
{
    (void)arg;
    struct stall_record rec[STALL_RING_SIZE];
    while (!atomic_load(&ring_done)) {
        unsigned n = stall_read(&ring, rec, STALL_RING_SIZE);
        for (unsigned i = 0; i < n; i++) {
            if (rec[i].ns != (rec[i].running ? 0 : 3 * rec[i].at) || rec[i].kind[0] != 'k' ||
                rec[i].label[0] != (char)('a' + rec[i].at % 26) || rec[i].nframes != 2 ||
                rec[i].frames[1] != rec[i].at)
                abort();
        }
    }
    return NULL;
}

static void stalls_are_read_whole_while_written(void **state)
{
    (void)state;
    pthread_t reader;
    assert_int_equal(pthread_create(&reader, NULL, read_stalls, NULL), 0);
    for (uint64_t i = 1; i <= 50000; i++) {
        char label[2] = {(char)('a' + i % 26), 0};
        uintptr_t frames[2] = {1, i};
        struct stall_event e = {.at = i,
                                .running = true,
                                .kind = "kind",
                                .label = label,
                                .frames = frames,
                                .nframes = 2};
        stall_settle(&ring, stall_push(&ring, &e), 3 * i);
    }
    atomic_store(&ring_done, true);
    pthread_join(reader, NULL);
}

#define story(f) cmocka_unit_test_setup_teardown(f, set_up, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        story(items_come_in_order_and_once),
        story(drain_is_bounded_and_keeps_the_rest),
        story(reposting_from_delivery_waits_for_the_next_drain),
        story(bell_rings_only_for_a_sleeper),
        story(items_left_at_the_end_are_delivered),
        story(stale_waker_does_nothing),
        story(reused_slot_has_a_new_generation),
        story(table_grows_to_its_bound),
        story(nothing_is_lost_between_threads),
        story(every_remote_wake_reaches_its_task),
        story(stale_wakes_race_with_reuse_harmlessly),
        story(stalls_are_read_whole_while_written),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
