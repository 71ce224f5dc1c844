/* The batcher on the virtual clock: what makes a batch due, who waits, and that nothing is lost. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <errno.h>
#include <string.h>

#include <cmocka.h>

#include "runtime/batcher.h"
#include "runtime/deadline.h"
#include "runtime/rng.h"

#define START 161803398874ull
#define MS    1000000ull
#define DELAY (10 * MS)

static struct sched sched;
static struct batcher batcher;

static void start(uint32_t max_items, uint64_t delay)
{
    sched_init(&sched, &(struct sched_opts){.now = START});
    assert_int_equal(batcher_init(&batcher, &(struct batcher_opts){.sched = &sched,
                                                                   .max_items = max_items,
                                                                   .item_size = sizeof(uint32_t),
                                                                   .max_delay_ns = delay}),
                     0);
}

static void end(void)
{
    sched_fini(&sched);
    batcher_fini(&batcher);
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

/* Flushes batch after batch until the end, each in `takes` ns. */
#define SEEN 100000

static struct flusher {
    struct task task;
    struct batch_take take;
    struct sleep sleep;
    uint64_t takes, ready_at;
    int status; /* of its flushes */
    bool holds, ended;
    unsigned batches;
    uint32_t last_count;
    enum batch_why last_why;
    uint64_t last_at;
    uint32_t seen[SEEN];
    unsigned nseen;
} flusher;

static bool next_batch(struct flusher *x, struct task *t)
{
    if (!x->take.batcher_ || future_is_done(&x->take.f))
        batch_take_init(&x->take, &batcher);
    if (future_poll(&x->take.f, t) == POLL_PENDING)
        return false;
    if (x->take.f.status < 0) {
        assert_int_equal(x->take.f.status, -EPIPE);
        x->ended = true;
        return true;
    }
    assert_true(x->take.count > 0 && x->nseen + x->take.count <= SEEN);
    memcpy(x->seen + x->nseen, x->take.items, x->take.count * sizeof(uint32_t));
    x->nseen += x->take.count;
    x->batches++;
    x->last_count = x->take.count;
    x->last_why = x->take.why;
    x->last_at = task_now(t);
    x->holds = true;
    x->ready_at = task_now(t) + x->takes;
    return true;
}

static enum poll flusher_poll(struct task *t)
{
    struct flusher *x = container_of(t, struct flusher, task);
    for (;;) {
        if (!x->holds && !next_batch(x, t))
            return POLL_PENDING;
        if (x->ended)
            return POLL_READY;
        if (task_now(t) < x->ready_at) {
            sleep_arm(&x->sleep, t, x->ready_at);
            return POLL_PENDING;
        }
        x->holds = false;
        batch_take_done(&x->take, x->status);
    }
}

static void flusher_drop(struct task *t)
{
    struct flusher *x = container_of(t, struct flusher, task);
    sleep_cancel(&x->sleep);
    future_drop(&x->take.f);
}

static void start_flusher(uint64_t takes)
{
    static const struct task_kind kind = {"flusher", flusher_poll, flusher_drop};
    memset(&flusher, 0, sizeof(flusher));
    flusher.takes = takes;
    task_spawn(&sched, &flusher.task, &kind);
}

struct adder {
    struct task task;
    struct batch_add add;
    uint32_t item;
    bool done;
    int status;
    uint64_t done_at;
};

static enum poll adder_poll(struct task *t)
{
    struct adder *a = container_of(t, struct adder, task);
    if (future_poll(&a->add.f, t) == POLL_PENDING)
        return POLL_PENDING;
    a->done = true;
    a->status = a->add.f.status;
    a->done_at = task_now(t);
    return POLL_READY;
}

static void adder_drop(struct task *t)
{
    future_drop(&container_of(t, struct adder, task)->add.f);
}

static const struct task_kind adder_kind = {"adder", adder_poll, adder_drop};

static void add(struct adder *a, uint32_t item, bool await_flush)
{
    *a = (struct adder){.item = item, .status = 99};
    batch_add_init(&a->add, &batcher, &a->item, await_flush);
    task_spawn(&sched, &a->task, &adder_kind);
}

static int try_add(uint32_t item)
{
    return batcher_try_add(&batcher, &item);
}

static void full_batch_goes_at_once(void **state)
{
    (void)state;
    start(3, DELAY);
    start_flusher(0);
    run_until(START + MS);
    assert_int_equal(try_add(1), 0);
    assert_int_equal(try_add(2), 0);
    run_until(START + MS);
    assert_int_equal(flusher.batches, 0);
    assert_int_equal(try_add(3), 0);
    run_until(START + MS);
    assert_int_equal(flusher.batches, 1);
    assert_int_equal(flusher.last_count, 3);
    assert_int_equal(flusher.last_why, BATCH_SIZE);
    assert_int_equal(flusher.seen[0], 1);
    assert_int_equal(flusher.seen[2], 3);
    run_until(START + 100 * MS);
    assert_int_equal(flusher.batches, 1);
    end();
}

static void first_item_waits_its_delay_to_the_ns(void **state)
{
    (void)state;
    start(100, DELAY);
    start_flusher(0);
    run_until(START + 5);
    assert_int_equal(try_add(1), 0);
    run_until(START + 6 * MS);
    assert_int_equal(try_add(2), 0);
    run_until(START + 5 + DELAY - 1);
    assert_int_equal(flusher.batches, 0);
    run_until(START + 5 + DELAY);
    assert_int_equal(flusher.batches, 1);
    assert_int_equal(flusher.last_count, 2);
    assert_int_equal(flusher.last_why, BATCH_DELAY);
    /* The next batch has a delay of its own. */
    assert_int_equal(try_add(3), 0);
    run_until(START + 100 * MS);
    assert_true(flusher.last_at == START + 5 + 2 * DELAY);
    assert_int_equal(timer_wheel_count(&sched.wheel), 0);
    end();
}

static void delays_of_nought_and_never(void **state)
{
    (void)state;
    start(100, 0);
    start_flusher(0);
    run_until(START);
    assert_int_equal(try_add(1), 0);
    run_until(START);
    assert_int_equal(flusher.last_why, BATCH_DELAY);
    assert_int_equal(flusher.batches, 1);
    end();
    start(2, DEADLINE_NONE);
    start_flusher(0);
    assert_int_equal(try_add(1), 0);
    run_until(START + 1000000 * MS);
    assert_int_equal(flusher.batches, 0);
    assert_int_equal(try_add(2), 0);
    run_until(START + 1000000 * MS);
    assert_int_equal(flusher.batches, 1);
    end();
}

static void asked_for_it_goes_at_once(void **state)
{
    (void)state;
    start(100, DELAY);
    start_flusher(0);
    batcher_flush(&batcher);
    run_until(START);
    assert_int_equal(try_add(1), 0);
    run_until(START + MS);
    assert_int_equal(flusher.batches, 0);
    batcher_flush(&batcher);
    run_until(START + MS);
    assert_int_equal(flusher.last_why, BATCH_ASKED);
    assert_int_equal(flusher.batches, 1);
    /* It was for that one only. */
    assert_int_equal(try_add(2), 0);
    run_until(START + 2 * MS);
    assert_int_equal(flusher.batches, 1);
    end();
}

static void close_flushes_what_is_in_then_ends(void **state)
{
    (void)state;
    struct adder late, waiting;
    start(2, DELAY);
    assert_int_equal(try_add(1), 0);
    assert_int_equal(try_add(2), 0);
    add(&waiting, 3, false);
    run_until(START + MS);
    assert_false(waiting.done);
    batcher_close(&batcher);
    batcher_close(&batcher);
    start_flusher(MS);
    add(&late, 4, true);
    run_until(START + 100 * MS);
    assert_int_equal(waiting.status, -EPIPE);
    assert_false(waiting.add.is_in);
    assert_int_equal(late.status, -EPIPE);
    assert_int_equal(try_add(5), -EPIPE);
    assert_int_equal(flusher.nseen, 2);
    assert_true(flusher.ended);
    end();
    /* And with less than a batch. */
    start(10, DELAY);
    start_flusher(0);
    assert_int_equal(try_add(1), 0);
    batcher_close(&batcher);
    run_until(START);
    assert_int_equal(flusher.last_why, BATCH_CLOSED);
    assert_int_equal(flusher.nseen, 1);
    assert_true(flusher.ended);
    end();
}

static void flush_in_progress_holds_back_in_order(void **state)
{
    (void)state;
    struct adder a[10];
    start(2, DELAY);
    start_flusher(5 * MS);
    for (unsigned i = 0; i < 10; i++)
        add(&a[i], i, false);
    run_until(START);
    /* Two are being flushed, two are in the other buffer, six wait; none may get in before them. */
    assert_int_equal(flusher.batches, 1);
    assert_int_equal(batcher_pending(&batcher), 2);
    assert_int_equal(try_add(99), -EBUSY);
    assert_true(a[3].done && !a[4].done);
    run_until(START + 5 * MS);
    assert_true(a[5].done && !a[6].done);
    assert_int_equal(try_add(99), -EBUSY);
    run_until(START + 100 * MS);
    assert_int_equal(flusher.nseen, 10);
    for (unsigned i = 0; i < 10; i++)
        assert_int_equal(flusher.seen[i], i);
    assert_int_equal(batcher.stats.batches[BATCH_SIZE], 5);
    assert_int_equal(batcher.stats.refused, 2);
    end();
}

static void awaiting_the_flush_gives_its_outcome(void **state)
{
    (void)state;
    struct adder a[3];
    start(2, DELAY);
    start_flusher(5 * MS);
    add(&a[0], 1, true);
    add(&a[1], 2, true);
    add(&a[2], 3, false);
    run_until(START + MS);
    assert_true(a[0].add.is_in && !a[0].done);
    assert_true(a[2].done);
    flusher.status = -EIO;
    run_until(START + 5 * MS);
    assert_int_equal(a[0].status, -EIO);
    assert_int_equal(a[1].status, -EIO);
    assert_true(a[1].done_at == START + 5 * MS);
    assert_int_equal(a[2].status, 0);
    flusher.status = 0;
    run_until(START + 100 * MS);
    assert_int_equal(batcher.stats.failed, 2);
    assert_int_equal(batcher.stats.flushed, 1);
    end();
}

static void dropped_add_is_in_or_is_not(void **state)
{
    (void)state;
    struct adder in, waiting, behind;
    start(1, DELAY);
    add(&in, 1, true);
    add(&waiting, 2, false);
    add(&behind, 3, false);
    run_until(START);
    assert_true(in.add.is_in);
    task_abort(&in.task); /* its item stays */
    task_abort(&waiting.task);
    start_flusher(0);
    run_until(START + 100 * MS);
    assert_int_equal(flusher.nseen, 2);
    assert_int_equal(flusher.seen[0], 1);
    assert_int_equal(flusher.seen[1], 3);
    assert_false(waiting.add.is_in);
    end();
}

static void dropped_flush_fails_and_the_next_goes_on(void **state)
{
    (void)state;
    struct adder a, b;
    start(1, DELAY);
    start_flusher(5 * MS);
    add(&a, 1, true);
    run_until(START + MS);
    add(&b, 2, true);
    run_until(START + MS);
    task_abort(&flusher.task);
    run_until(START + MS);
    assert_int_equal(a.status, -ECANCELED);
    assert_false(b.done);
    start_flusher(5 * MS);
    run_until(START + 100 * MS);
    assert_int_equal(b.status, 0);
    assert_int_equal(flusher.seen[0], 2);
    end();
}

static void taker_may_give_up_waiting(void **state)
{
    (void)state;
    start(2, DELAY);
    start_flusher(0);
    run_until(START);
    assert_int_equal(try_add(1), 0);
    assert_int_equal(try_add(2), 0); /* wakes it */
    task_abort(&flusher.task);       /* before it could take */
    start_flusher(0);
    run_until(START);
    assert_int_equal(flusher.nseen, 2);
    end();
}

/* Ten times the producers that the flusher can serve, for five seconds. */
static void burst_is_shed_exactly_and_memory_is_flat(void **state)
{
    (void)state;
    unsigned accepted = 0, refused = 0, n = 0;
    start(50, DELAY);
    start_flusher(10 * MS); /* 5,000 items a second */
    for (uint64_t at = START; at < START + 5000 * MS; at += MS) {
        run_until(at);
        for (unsigned i = 0; i < 50; i++) { /* 50,000 items a second */
            int rc = try_add(n++);
            accepted += rc == 0;
            refused += rc == -EBUSY;
        }
        assert_true(batcher_pending(&batcher) <= 50);
    }
    batcher_close(&batcher);
    run_until(START + 6000 * MS);
    assert_int_equal(accepted + refused, n);
    assert_int_equal(batcher.stats.refused, refused);
    assert_int_equal(batcher.stats.added, accepted);
    assert_int_equal(flusher.nseen, accepted);
    assert_true(accepted >= 24900 && accepted <= 25200);
    for (unsigned i = 1; i < flusher.nseen; i++)
        assert_true(flusher.seen[i] > flusher.seen[i - 1]);
    end();
}

/* N producers and random delays: never more than a batch, nothing lost or doubled, each producer's
 * items in order, and with an idle flusher none waits past the delay. */
#define ADDERS 30

static void random_producers(uint64_t seed)
{
    static struct adder a[ADDERS];
    static uint32_t sent[ADDERS], in[ADDERS], next_seen[ADDERS];
    struct rng rng = {seed};
    uint32_t max = 1 + rng_below(&rng, 8);
    uint64_t now = START;
    unsigned total = 0;
    memset(a, 0, sizeof(a));
    memset(sent, 0, sizeof(sent));
    memset(in, 0, sizeof(in));
    memset(next_seen, 0, sizeof(next_seen));
    start(max, rng_below(&rng, 10) * MS);
    start_flusher(0);
    for (unsigned n = 0; n < 5000; n++) {
        unsigned i = rng_below(&rng, ADDERS);
        flusher.takes = rng_below(&rng, 3 * MS);
        flusher.status = rng_chance(&rng, 200000) ? -EIO : 0;
        if (!task_is_live(&a[i].task)) {
            in[i] += a[i].add.is_in;
            /* The last one wasn't accepted: its number goes out again. */
            sent[i] = in[i];
            add(&a[i], i << 16 | sent[i], rng_chance(&rng, 500000));
        } else if (rng_chance(&rng, 300000)) {
            task_abort(&a[i].task);
        }
        if (rng_chance(&rng, 10000))
            batcher_flush(&batcher);
        now += rng_below(&rng, MS);
        run_until(now);
        assert_true(batcher_pending(&batcher) <= max);
        assert_true(flusher.last_count <= max);
    }
    batcher_close(&batcher);
    run_until(now + 1000 * MS);
    assert_true(flusher.ended);
    for (unsigned i = 0; i < ADDERS; i++) {
        in[i] += a[i].add.is_in;
        total += in[i];
    }
    assert_int_equal(flusher.nseen, total);
    assert_int_equal(batcher.stats.added, total);
    assert_int_equal(batcher.stats.flushed + batcher.stats.failed, total);
    for (unsigned k = 0; k < flusher.nseen; k++) {
        unsigned i = flusher.seen[k] >> 16;
        assert_int_equal(flusher.seen[k] & 0xffff, next_seen[i]++);
    }
    assert_true(batcher.stats.waited > 0);
    end();
}

static void random_producers_lose_nothing(void **state)
{
    (void)state;
    for (uint64_t seed = 1; seed <= 20; seed++) {
        print_message("# seed %u\n", (unsigned)seed);
        random_producers(seed);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(full_batch_goes_at_once),
        cmocka_unit_test(first_item_waits_its_delay_to_the_ns),
        cmocka_unit_test(delays_of_nought_and_never),
        cmocka_unit_test(asked_for_it_goes_at_once),
        cmocka_unit_test(close_flushes_what_is_in_then_ends),
        cmocka_unit_test(flush_in_progress_holds_back_in_order),
        cmocka_unit_test(awaiting_the_flush_gives_its_outcome),
        cmocka_unit_test(dropped_add_is_in_or_is_not),
        cmocka_unit_test(dropped_flush_fails_and_the_next_goes_on),
        cmocka_unit_test(taker_may_give_up_waiting),
        cmocka_unit_test(burst_is_shed_exactly_and_memory_is_flat),
        cmocka_unit_test(random_producers_lose_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
