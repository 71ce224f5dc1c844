#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "dataplane/upstream/limiter.h"
#include "runtime/rng.h"
#include "runtime/sched.h"

#define MS    1000000ull
#define S     (1000 * MS)
#define CORES 2
#define START 987654321ull

/* Cores that share one upstream, in one thread and on virtual time. */
struct world {
    struct sched scheds[CORES];
    struct mailbox mailboxes[CORES];
    struct limiter limiters[CORES];
    struct upstream_registry *registry;
    struct snapshot snapshot;
    struct config_upstream upstream;
    struct config_endpoint endpoint;
    struct config_limits limits;
    uint64_t now, acked;
};

/* A request: waits for a permit, holds it for a while. */
struct request {
    struct task task;
    struct world *w;
    struct admission admission;
    struct leased_permit permit;
    struct sleep sleep;
    uint64_t hold, deadline, ended;
    enum config_priority priority;
    unsigned core;
    int status; /* 1: not ended */
    bool begun, gone;
    unsigned order; /* of being admitted */
};

static unsigned in_flight, most_in_flight, admitted;

static int ask(struct request *r, struct task *t)
{
    struct limiter *l = &r->w->limiters[r->core];
    if (r->begun)
        return admission_poll(&r->admission, t, &r->permit);
    r->begun = true;
    return admission_begin(&r->admission, l, l->side.requests, r->priority, t, task_now(t),
                           r->deadline, &r->permit);
}

static enum poll request_poll(struct task *t)
{
    struct request *r = container_of(t, struct request, task);
    if (!leased_permit_is_held(&r->permit)) {
        int err = ask(r, t);
        if (err == -EAGAIN)
            return POLL_PENDING;
        if (err) {
            r->status = err;
            return POLL_READY;
        }
        r->order = ++admitted;
        in_flight++;
        most_in_flight = in_flight > most_in_flight ? in_flight : most_in_flight;
        r->ended = task_now(t) + r->hold;
    }
    if (task_now(t) >= r->ended) {
        r->status = 0;
        return POLL_READY;
    }
    sleep_arm(&r->sleep, t, r->ended);
    return POLL_PENDING;
}

static void request_drop(struct task *t)
{
    struct request *r = container_of(t, struct request, task);
    r->ended = task_now(t);
    in_flight -= leased_permit_is_held(&r->permit);
    leased_permit_put(&r->permit);
    admission_cancel(&r->admission);
    sleep_cancel(&r->sleep);
    r->gone = true;
}

static const struct task_kind request_kind = {
    .name = "request", .poll = request_poll, .drop = request_drop};

static uint64_t acked(void *ctx)
{
    return ((struct world *)ctx)->acked;
}

static struct mailbox *mailbox_of(void *ctx, unsigned core)
{
    return &((struct world *)ctx)->mailboxes[core];
}

static void publish(struct world *w)
{
    w->upstream.limits = w->limits;
    w->snapshot.version++;
    assert_int_equal(upstream_registry_prepare(w->registry, &w->snapshot), 0);
    upstream_registry_commit(w->registry, &w->snapshot);
    for (unsigned i = 0; i < CORES; i++)
        limiter_apply(&w->limiters[i], &w->limits);
}

static struct world *world_new(const struct config_limits *limits)
{
    struct world *w = calloc(1, sizeof(*w));
    struct registry_cores rc = {.ctx = w, .n = CORES, .acked = acked, .mailbox = mailbox_of};
    assert_non_null(w);
    in_flight = most_in_flight = admitted = 0;
    w->now = START;
    w->limits = *limits;
    w->upstream.name = "app";
    w->upstream.endpoints = &w->endpoint;
    w->upstream.nendpoints = 1;
    w->endpoint.address = (struct config_addr){.addr = 1, .port = 80};
    w->snapshot.upstreams = &w->upstream;
    w->snapshot.nupstreams = 1;
    w->registry = upstream_registry_new(&rc);
    assert_non_null(w->registry);
    w->upstream.limits = *limits;
    w->snapshot.version = 1;
    assert_int_equal(upstream_registry_prepare(w->registry, &w->snapshot), 0);
    upstream_registry_commit(w->registry, &w->snapshot);
    for (unsigned i = 0; i < CORES; i++) {
        struct sched_opts so = {.now = w->now};
        sched_init(&w->scheds[i], &so);
        assert_int_equal(mailbox_init(&w->mailboxes[i]), 0);
        limiter_init(&w->limiters[i], w->upstream.shared, i, &w->scheds[i], &w->mailboxes[i]);
        limiter_apply(&w->limiters[i], limits);
    }
    return w;
}

static bool pass(struct world *w)
{
    bool any = false;
    for (unsigned i = 0; i < CORES; i++) {
        any |= mailbox_drain(&w->mailboxes[i], 64) > 0;
        any |= sched_step(&w->scheds[i], w->now);
    }
    return any;
}

static void run_until(struct world *w, uint64_t until)
{
    for (;;) {
        while (pass(w))
            ;
        uint64_t next = until;
        for (unsigned i = 0; i < CORES; i++) {
            uint64_t t = sched_next_timeout(&w->scheds[i]);
            next = t < next ? t : next;
        }
        if (w->now >= until)
            return;
        w->now = next > w->now ? next : w->now + 1;
    }
}

static void world_free(struct world *w)
{
    run_until(w, w->now + 20 * S);
    assert_int_equal(in_flight, 0);
    assert_int_equal(atomic_load(&w->upstream.shared->queued), 0);
    for (unsigned i = 0; i < CORES; i++)
        limiter_fini(&w->limiters[i]);
    run_until(w, w->now + S);
    assert_int_equal(permits_leased(w->upstream.shared->limits.requests), 0);
    for (unsigned i = 0; i < CORES; i++) {
        sched_fini(&w->scheds[i]);
        mailbox_fini(&w->mailboxes[i]);
    }
    upstream_registry_free(w->registry);
    free(w);
}

static void start(struct world *w, struct request *r, unsigned core, uint64_t hold)
{
    *r = (struct request){.w = w,
                          .core = core,
                          .hold = hold,
                          .deadline = r->deadline ? r->deadline : UINT64_MAX,
                          .priority = r->priority,
                          .status = 1};
    task_spawn(&w->scheds[core], &r->task, &request_kind);
}

static const struct config_limits seven = {
    .requests = 7,
    .connections = UINT32_MAX,
    .endpoint_requests = UINT32_MAX,
    .endpoint_connections = UINT32_MAX,
    .queue = 10,
    .queue_timeout = 200 * MS,
    .queue_target = 20 * MS,
};

static unsigned count(const struct request *r, unsigned n, int status)
{
    unsigned found = 0;
    for (unsigned i = 0; i < n; i++)
        found += r[i].status == status;
    return found;
}

static void the_limit_the_queue_and_its_timeout_are_exact(void **state)
{
    struct world *w = world_new(&seven);
    struct request r[64] = {0};
    for (unsigned i = 0; i < 64; i++)
        start(w, &r[i], i % CORES, S);
    run_until(w, START + 100 * MS);
    assert_int_equal(in_flight, 7);
    assert_int_equal(count(r, 64, -EBUSY), 64 - 7 - 10);
    assert_int_equal(atomic_load(&w->upstream.shared->queued), 10);
    run_until(w, START + 200 * MS - 1);
    assert_int_equal(count(r, 64, -ETIMEDOUT), 0);
    run_until(w, START + 200 * MS);
    assert_int_equal(count(r, 64, -ETIMEDOUT), 10);
    run_until(w, START + S);
    assert_int_equal(count(r, 64, 0), 7);
    assert_int_equal(most_in_flight, 7);
    world_free(w);
}

static void the_queue_is_served_in_order_and_by_priority(void **state)
{
    struct config_limits one = seven;
    struct request r[6] = {0};
    one.requests = 1;
    one.queue_timeout = 10 * S;
    struct world *w = world_new(&one);
    r[1].priority = r[2].priority = CONFIG_PRIORITY_LOW;
    r[3].priority = r[5].priority = CONFIG_PRIORITY_NORMAL;
    r[4].priority = CONFIG_PRIORITY_HIGH;
    for (unsigned i = 0; i < 6; i++) {
        start(w, &r[i], 0, 10 * MS);
        run_until(w, w->now + MS);
    }
    run_until(w, START + S);
    static const unsigned order[] = {1, 5, 6, 3, 2, 4};
    for (unsigned i = 0; i < 6; i++)
        assert_int_equal(r[i].order, order[i]);
    world_free(w);
}

static void in_overload_the_newest_goes_first_and_the_oldest_are_refused(void **state)
{
    struct config_limits one = seven;
    static struct request r[200];
    memset(r, 0, sizeof(r));
    one.requests = 1;
    one.queue = 1000;
    one.queue_timeout = 10 * S;
    one.queue_order = CONFIG_QUEUE_ADAPTIVE;
    struct world *w = world_new(&one);
    /* Twice as many as can be served. */
    for (unsigned i = 0; i < 200; i++) {
        start(w, &r[i], 0, 10 * MS);
        run_until(w, w->now + 5 * MS);
    }
    uint64_t longest = 0;
    unsigned served = 0;
    for (unsigned i = 60; i < 200; i++) {
        if (r[i].status != 0)
            continue;
        served++;
        longest = r[i].ended - (START + i * 5 * MS) > longest ? r[i].ended - (START + i * 5 * MS)
                                                              : longest;
    }
    /* Half of them, and those at once; without the order each would have waited for ever longer. */
    assert_in_range(served, 60, 75);
    assert_in_range(longest, 10 * MS, LIMITER_INTERVAL_NS + 20 * MS);
    assert_true(count(r, 200, -ECANCELED) > 50);
    assert_int_equal(w->limiters[0].count.shed, count(r, 200, -ECANCELED));
    world_free(w);
}

static void a_queue_that_empties_in_time_is_no_overload(void **state)
{
    struct config_limits one = seven;
    struct request r[5] = {0};
    one.requests = 1;
    one.queue_timeout = 10 * S;
    one.queue_order = CONFIG_QUEUE_ADAPTIVE;
    struct world *w = world_new(&one);
    for (unsigned round = 0; round < 10; round++) {
        for (unsigned i = 0; i < 5; i++)
            start(w, &r[i], 0, 15 * MS);
        run_until(w, w->now + 90 * MS);
        for (unsigned i = 0; i < 5; i++)
            assert_int_equal(r[i].order, round * 5 + i + 1);
    }
    assert_int_equal(w->limiters[0].count.shed, 0);
    world_free(w);
}

static void what_cannot_be_answered_in_time_is_not_begun(void **state)
{
    struct config_limits one = seven;
    struct request r[3] = {0};
    one.requests = 1;
    one.queue_timeout = 10 * S;
    struct world *w = world_new(&one);
    limiter_answered(&w->limiters[0], w->now, 50 * MS);
    start(w, &r[0], 0, 60 * MS);
    run_until(w, w->now + MS);
    r[1].deadline = START + 40 * MS;  /* too late already */
    r[2].deadline = START + 100 * MS; /* too late when its turn comes, though not over */
    start(w, &r[1], 0, MS);
    start(w, &r[2], 0, MS);
    run_until(w, w->now + MS);
    assert_int_equal(r[1].status, -ETIME);
    assert_int_equal(r[2].status, 1);
    run_until(w, START + 60 * MS);
    assert_int_equal(r[2].status, -ETIME);
    assert_int_equal(w->limiters[0].count.too_late, 2);
    /* A measure that is too old keeps nobody out. */
    run_until(w, START + 3 * LIMITER_WINDOW_NS);
    r[0].deadline = UINT64_MAX;
    start(w, &r[0], 0, 10 * MS);
    run_until(w, w->now + MS);
    r[1].deadline = w->now + 20 * MS;
    start(w, &r[1], 0, MS);
    run_until(w, w->now + 15 * MS);
    assert_int_equal(r[1].status, 0);
    world_free(w);
}

static void a_lowered_limit_grants_nothing_until_it_is_under_it(void **state)
{
    struct world *w = world_new(&seven);
    struct request r[10] = {0};
    for (unsigned i = 0; i < 7; i++)
        start(w, &r[i], i % CORES, (i + 1) * 10 * MS);
    run_until(w, w->now + MS);
    w->limits.requests = 3;
    publish(w);
    start(w, &r[7], 1, MS);
    run_until(w, START + 49 * MS);
    assert_int_equal(r[7].status, 1);
    run_until(w, START + 50 * MS);
    assert_true(r[7].order > 0);
    assert_int_equal(in_flight, 3);
    world_free(w);
}

/* Requests of random length on two cores, aborted at random, with limits that change. */
static void nothing_is_lost_whatever_is_cancelled(void **state)
{
    static struct request r[128];
    for (uint64_t seed = 1; seed <= 30; seed++) {
        struct rng rng = {seed};
        struct config_limits l = seven;
        l.queue_order = seed % 2 ? CONFIG_QUEUE_ADAPTIVE : CONFIG_QUEUE_FIFO;
        struct world *w = world_new(&l);
        memset(r, 0, sizeof(r));
        for (unsigned i = 0; i < 128; i++)
            r[i].gone = true;
        for (unsigned step = 0; step < 2000; step++) {
            struct request *x = &r[rng_below(&rng, 128)];
            if (!x->gone) {
                if (rng_chance(&rng, 300000))
                    task_abort(&x->task);
            } else {
                x->deadline =
                    rng_chance(&rng, 500000) ? UINT64_MAX : w->now + rng_below(&rng, 300) * MS;
                x->priority = rng_below(&rng, 3);
                start(w, x, rng_below(&rng, CORES), rng_below(&rng, 100) * MS);
            }
            if (rng_chance(&rng, 10000)) {
                w->limits.requests = 1 + rng_below(&rng, 12);
                w->limits.queue = rng_below(&rng, 20);
                publish(w);
            }
            run_until(w, w->now + rng_below(&rng, 4 * MS));
            if (in_flight > 12 ||
                permits_in_use(w->upstream.shared->limits.requests) != in_flight) {
                fprintf(stderr, "seed %llu step %u: %u in flight\n", (unsigned long long)seed, step,
                        in_flight);
                fail();
            }
        }
        world_free(w);
    }
}

static void the_registry_keeps_objects_while_cores_may_use_them(void **state)
{
    struct world *w = world_new(&seven);
    struct upstream_shared *before = w->upstream.shared;
    publish(w);
    assert_ptr_equal(w->upstream.shared, before);
    assert_int_equal(upstream_registry_count(w->registry), 2);
    struct snapshot empty = {.version = ++w->snapshot.version};
    w->acked = 2;
    assert_int_equal(upstream_registry_prepare(w->registry, &empty), 0);
    upstream_registry_commit(w->registry, &empty);
    empty.version = ++w->snapshot.version;
    assert_int_equal(upstream_registry_prepare(w->registry, &empty), 0);
    upstream_registry_commit(w->registry, &empty);
    assert_int_equal(upstream_registry_count(w->registry), 2); /* not acknowledged */
    w->acked = empty.version;
    empty.version = ++w->snapshot.version;
    assert_int_equal(upstream_registry_prepare(w->registry, &empty), 0);
    upstream_registry_commit(w->registry, &empty);
    assert_int_equal(upstream_registry_count(w->registry), 2); /* a fence is on its way */
    run_until(w, w->now + MS);
    assert_int_equal(upstream_registry_prepare(w->registry, &empty), 0);
    upstream_registry_commit(w->registry, &empty);
    assert_int_equal(upstream_registry_count(w->registry), 1); /* the cores hold the upstream */
    for (unsigned i = 0; i < CORES; i++)
        limiter_fini(&w->limiters[i]);
    assert_int_equal(upstream_registry_prepare(w->registry, &empty), 0);
    upstream_registry_commit(w->registry, &empty);
    assert_int_equal(upstream_registry_count(w->registry), 1); /* the fence is on its way */
    run_until(w, w->now + MS);
    assert_int_equal(upstream_registry_prepare(w->registry, &empty), 0);
    upstream_registry_commit(w->registry, &empty);
    assert_int_equal(upstream_registry_count(w->registry), 0);
    /* The name comes back as another upstream. */
    publish(w);
    assert_int_equal(upstream_registry_count(w->registry), 2);
    for (unsigned i = 0; i < CORES; i++)
        limiter_init(&w->limiters[i], w->upstream.shared, i, &w->scheds[i], &w->mailboxes[i]);
    world_free(w);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_limit_the_queue_and_its_timeout_are_exact),
        cmocka_unit_test(the_queue_is_served_in_order_and_by_priority),
        cmocka_unit_test(in_overload_the_newest_goes_first_and_the_oldest_are_refused),
        cmocka_unit_test(a_queue_that_empties_in_time_is_no_overload),
        cmocka_unit_test(what_cannot_be_answered_in_time_is_not_begun),
        cmocka_unit_test(a_lowered_limit_grants_nothing_until_it_is_under_it),
        cmocka_unit_test(nothing_is_lost_whatever_is_cancelled),
        cmocka_unit_test(the_registry_keeps_objects_while_cores_may_use_them),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
