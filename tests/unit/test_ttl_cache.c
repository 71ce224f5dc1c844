/* The TTL cache on the virtual clock: stories, and random use against a list that knows it all. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "runtime/deadline.h"
#include "runtime/rng.h"
#include "runtime/ttl_cache.h"

#define START 314159265358ull
#define MS    1000000ull
#define SEC   (1000 * MS)

static struct sched sched;
static struct ttl_cache cache;

/* What a fetch does; set before it starts. */
static struct {
    uint64_t takes;
    int status;
    uint64_t ttl;         /* 0: leaves the preset */
    uint64_t failure_ttl; /* the same */
    bool keep_none;       /* sets both to 0 */
} plan;

static struct {
    unsigned fetches;
    int refs;
} tally;

struct value {
    unsigned serial;
    uint64_t made_at;
};

struct fetch {
    struct ttl_fetch base;
    struct sleep sleep;
    uint64_t ready_at;
    unsigned serial;
    int status;
};

static struct fetch *fetch_of(struct future *f)
{
    return container_of(f, struct fetch, base.work.f);
}

static enum poll fetch_poll(struct future *f, struct task *t)
{
    struct fetch *x = fetch_of(f);
    if (task_now(t) < x->ready_at) {
        sleep_arm(&x->sleep, t, x->ready_at);
        return POLL_PENDING;
    }
    f->status = x->status;
    if (x->status == 0) {
        *(struct value *)x->base.work.value = (struct value){x->serial, task_now(t)};
        tally.refs++;
    }
    return POLL_READY;
}

static void fetch_drop(struct future *f)
{
    sleep_cancel(&fetch_of(f)->sleep);
}

static void fetch_start(struct ttl_fetch *base)
{
    static const struct future_kind kind = {"fetch", fetch_poll, fetch_drop};
    struct fetch *x = container_of(base, struct fetch, base);
    assert_ptr_equal(ttl_cache_arg(base), &tally);
    future_init(&base->work.f, &kind);
    x->ready_at = sched_now(&sched) + plan.takes;
    x->status = plan.status;
    x->serial = ++tally.fetches;
    if (plan.ttl)
        base->ttl_ns = plan.ttl;
    if (plan.failure_ttl)
        base->failure_ttl_ns = plan.failure_ttl;
    if (plan.keep_none)
        base->ttl_ns = base->failure_ttl_ns = 0;
}

static void value_share(void *value)
{
    assert_true(((struct value *)value)->serial > 0);
    tally.refs++;
}

static void value_release(void *value)
{
    assert_true(((struct value *)value)->serial > 0);
    tally.refs--;
}

static const struct ttl_cache_kind fetch_kind = {
    .name = "fetch",
    .fetch_size = sizeof(struct fetch),
    .value_size = sizeof(struct value),
    .start = fetch_start,
    .share = value_share,
    .release = value_release,
};

static struct ttl_cache_opts opts(void)
{
    return (struct ttl_cache_opts){.kind = &fetch_kind,
                                   .arg = &tally,
                                   .sched = &sched,
                                   .secret = {{3, 4}},
                                   .max_values = 4,
                                   .max_failures = 3,
                                   .max_fetches = 8,
                                   .key_max = 8,
                                   .ttl_ns = 10 * SEC,
                                   .failure_ttl_ns = 2 * SEC};
}

static void start_cache(struct ttl_cache_opts o)
{
    sched_init(&sched, &(struct sched_opts){.now = START});
    memset(&tally, 0, sizeof(tally));
    memset(&plan, 0, sizeof(plan));
    assert_int_equal(ttl_cache_init(&cache, &o), 0);
}

static void end_cache(void)
{
    ttl_cache_fini(&cache);
    sched_fini(&sched);
    assert_int_equal(tally.refs, 0);
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

struct getter {
    struct task task;
    struct ttl_get get;
    struct value value;
    bool done;
    int status;
    uint64_t done_at;
};

static enum poll getter_poll(struct task *t)
{
    struct getter *g = container_of(t, struct getter, task);
    if (future_poll(&g->get.f, t) == POLL_PENDING)
        return POLL_PENDING;
    g->done = true;
    g->status = g->get.f.status;
    g->done_at = task_now(t);
    if (g->status == 0)
        tally.refs--;
    return POLL_READY;
}

static void getter_drop(struct task *t)
{
    future_drop(&container_of(t, struct getter, task)->get.f);
}

static const struct task_kind getter_kind = {"getter", getter_poll, getter_drop};

static void get(struct getter *g, const char *key)
{
    *g = (struct getter){.status = 99};
    ttl_get_init(&g->get, &cache, key, strlen(key), DEADLINE_NONE, &g->value);
    task_spawn(&sched, &g->task, &getter_kind);
}

/* Gets at `at` and waits for the answer: the serial of the fetch that it comes from, or -errno. */
static int got_at(uint64_t at, const char *key)
{
    struct getter g;
    run_until(at);
    get(&g, key);
    run_until(at);
    while (!g.done)
        run_until(sched_next_timeout(&sched));
    return g.status < 0 ? g.status : (int)g.value.serial;
}

static enum ttl_found find(const char *key)
{
    const void *value = NULL;
    int status = 0;
    enum ttl_found found = ttl_cache_find(&cache, key, strlen(key), &value, &status);
    assert_int_equal(value != NULL, found == TTL_FRESH || found == TTL_STALE);
    assert_int_equal(status < 0, found == TTL_FAILURE);
    return found;
}

static void value_is_good_up_to_its_last_ns(void **state)
{
    (void)state;
    start_cache(opts());
    assert_int_equal(got_at(START, "a"), 1);
    assert_int_equal(got_at(START + 10 * SEC - 1, "a"), 1);
    assert_int_equal(got_at(START + 10 * SEC, "a"), 2);
    assert_int_equal(cache.stats.fresh, 1);
    assert_int_equal(cache.stats.misses, 2);
    assert_int_equal(cache.stats.nvalues, 1);
    end_cache();
}

static void fetch_sets_the_time_of_its_own_answer(void **state)
{
    (void)state;
    start_cache(opts());
    plan.ttl = 3 * SEC;
    assert_int_equal(got_at(START, "a"), 1);
    plan.ttl = UINT64_MAX;
    assert_int_equal(got_at(START + 3 * SEC, "a"), 2);
    assert_int_equal(got_at(START + 1000000 * SEC, "a"), 2);
    plan.keep_none = true;
    assert_int_equal(got_at(START + 1000000 * SEC, "b"), 3);
    assert_int_equal(got_at(START + 1000000 * SEC, "b"), 4);
    assert_int_equal(cache.stats.nvalues, 1);
    end_cache();
}

static void all_who_ask_meanwhile_share_one_fetch(void **state)
{
    (void)state;
    struct getter g[20];
    start_cache(opts());
    plan.takes = 200 * MS;
    for (unsigned i = 0; i < 20; i++)
        get(&g[i], "a");
    run_until(START + SEC);
    for (unsigned i = 0; i < 20; i++) {
        assert_int_equal(g[i].status, 0);
        assert_int_equal(g[i].get.found, TTL_MISS);
        assert_true(g[i].done_at == START + 200 * MS);
    }
    assert_int_equal(tally.fetches, 1);
    assert_int_equal(ttl_cache_flight_stats(&cache)->shared, 19);
    get(&g[0], "a");
    run_until(START + SEC);
    assert_int_equal(g[0].get.found, TTL_FRESH);
    end_cache();
}

static void failure_is_kept_for_its_own_time(void **state)
{
    (void)state;
    start_cache(opts());
    plan.status = -ENOENT;
    assert_int_equal(got_at(START, "a"), -ENOENT);
    plan.status = 0;
    assert_int_equal(got_at(START + 2 * SEC - 1, "a"), -ENOENT);
    assert_int_equal(find("a"), TTL_FAILURE);
    assert_int_equal(tally.fetches, 1);
    assert_int_equal(got_at(START + 2 * SEC, "a"), 2);
    assert_int_equal(cache.stats.nfailures, 0);
    assert_int_equal(cache.stats.nvalues, 1);
    /* One of our own making is not. */
    plan.status = -ENOMEM;
    plan.keep_none = true;
    assert_int_equal(got_at(START + 3 * SEC, "b"), -ENOMEM);
    assert_int_equal(find("b"), TTL_MISS);
    end_cache();
}

static void failures_are_not_kept_without_room_for_them(void **state)
{
    (void)state;
    struct ttl_cache_opts o = opts();
    o.max_failures = 0;
    start_cache(o);
    plan.status = -ENOENT;
    assert_int_equal(got_at(START, "a"), -ENOENT);
    assert_int_equal(got_at(START, "a"), -ENOENT);
    assert_int_equal(tally.fetches, 2);
    end_cache();
}

static void least_recently_used_goes_first(void **state)
{
    (void)state;
    start_cache(opts());
    for (unsigned i = 0; i < 4; i++)
        got_at(START, (const char *[]){"a", "b", "c", "d"}[i]);
    assert_int_equal(find("a"), TTL_FRESH); /* a use: now b is the oldest */
    got_at(START, "e");
    assert_int_equal(find("b"), TTL_MISS);
    assert_int_equal(find("a"), TTL_FRESH);
    assert_int_equal(find("e"), TTL_FRESH);
    assert_int_equal(cache.stats.evicted, 1);
    assert_int_equal(cache.stats.nvalues, 4);
    end_cache();
}

static void flood_of_failures_leaves_the_values(void **state)
{
    (void)state;
    start_cache(opts());
    assert_int_equal(got_at(START, "a"), 1);
    plan.status = -ENOENT;
    for (unsigned i = 0; i < 1000; i++) {
        char key[8];
        snprintf(key, sizeof(key), "x%u", i);
        assert_int_equal(got_at(START + i, key), -ENOENT);
    }
    assert_int_equal(cache.stats.nfailures, 3);
    assert_int_equal(find("x999"), TTL_FAILURE);
    assert_int_equal(find("x997"), TTL_FAILURE);
    assert_int_equal(find("x996"), TTL_MISS);
    assert_int_equal(find("a"), TTL_FRESH);
    assert_int_equal(cache.entries_.in_use, 4);
    end_cache();
}

static void stale_value_serves_while_one_refresh_runs(void **state)
{
    (void)state;
    struct ttl_cache_opts o = opts();
    o.stale_ns = 5 * SEC;
    start_cache(o);
    assert_int_equal(got_at(START, "a"), 1);
    plan.takes = 200 * MS;
    for (unsigned i = 0; i < 10; i++)
        assert_int_equal(got_at(START + 10 * SEC + i * 10 * MS, "a"), 1);
    assert_int_equal(tally.fetches, 2);
    assert_int_equal(cache.stats.refreshes, 1);
    assert_int_equal(cache.stats.stale, 10);
    assert_int_equal(got_at(START + 10 * SEC + 200 * MS, "a"), 2);
    /* Past the stale time one waits. */
    struct getter g;
    run_until(START + 10 * SEC + 200 * MS + 15 * SEC);
    get(&g, "a");
    run_until(START + 100 * SEC);
    assert_int_equal(g.value.serial, 3);
    assert_true(g.done_at == START + 10 * SEC + 200 * MS + 15 * SEC + 200 * MS);
    end_cache();
}

static void failed_refresh_leaves_the_value_and_backs_off(void **state)
{
    (void)state;
    struct ttl_cache_opts o = opts();
    o.stale_ns = 5 * SEC;
    start_cache(o);
    assert_int_equal(got_at(START, "a"), 1);
    plan.status = -EHOSTUNREACH;
    assert_int_equal(got_at(START + 10 * SEC, "a"), 1);
    assert_int_equal(got_at(START + 12 * SEC - 1, "a"), 1);
    assert_int_equal(tally.fetches, 2);
    assert_int_equal(cache.stats.refresh_failed, 1);
    assert_int_equal(got_at(START + 12 * SEC, "a"), 1);
    run_until(START + 12 * SEC);
    assert_int_equal(tally.fetches, 3);
    assert_int_equal(cache.stats.nfailures, 0);
    /* Its last time is over: now the failure counts. */
    assert_int_equal(got_at(START + 15 * SEC, "a"), -EHOSTUNREACH);
    assert_int_equal(cache.stats.nfailures, 1);
    assert_int_equal(cache.stats.nvalues, 0);
    end_cache();
}

static void full_flight_leaves_the_stale_value(void **state)
{
    (void)state;
    struct ttl_cache_opts o = opts();
    struct getter other;
    o.stale_ns = 5 * SEC;
    o.max_fetches = 1;
    start_cache(o);
    assert_int_equal(got_at(START, "a"), 1);
    run_until(START + 10 * SEC);
    plan.takes = SEC;
    get(&other, "b");
    assert_int_equal(got_at(START + 10 * SEC, "a"), 1);
    assert_int_equal(cache.stats.refreshes, 0);
    assert_int_equal(got_at(START + 10 * SEC, "c"), -EBUSY);
    run_until(START + 11 * SEC);
    assert_int_equal(other.status, 0);
    end_cache();
}

static void what_was_removed_in_flight_is_not_kept(void **state)
{
    (void)state;
    struct getter before, after;
    start_cache(opts());
    plan.takes = 200 * MS;
    get(&before, "a");
    run_until(START + 100 * MS);
    assert_false(ttl_cache_remove(&cache, "a", 1)); /* nothing there yet */
    get(&after, "a");
    run_until(START + 250 * MS);
    assert_int_equal(before.value.serial, 1);
    assert_int_equal(find("a"), TTL_MISS);
    run_until(START + SEC);
    assert_int_equal(after.value.serial, 2);
    assert_int_equal(find("a"), TTL_FRESH);
    assert_true(ttl_cache_remove(&cache, "a", 1));
    assert_int_equal(find("a"), TTL_MISS);
    end_cache();
}

static void put_wins_over_a_fetch_in_flight(void **state)
{
    (void)state;
    struct getter before;
    struct value mine = {77, START};
    start_cache(opts());
    plan.takes = 200 * MS;
    get(&before, "a");
    run_until(START + 100 * MS);
    assert_int_equal(ttl_cache_put(&cache, "a", 1, &mine, 20 * SEC), 0);
    run_until(START + SEC);
    assert_int_equal(before.value.serial, 1);
    assert_int_equal(got_at(START + 15 * SEC, "a"), 77);
    assert_int_equal(ttl_cache_put(&cache, "a", 1, &mine, 0), 0);
    assert_int_equal(find("a"), TTL_MISS);
    assert_int_equal(ttl_cache_put(&cache, "too long.", 9, &mine, SEC), -EINVAL);
    end_cache();
}

static void deserted_fetch_fills_the_cache_where_asked(void **state)
{
    (void)state;
    for (unsigned keep = 0; keep < 2; keep++) {
        struct ttl_cache_opts o = opts();
        struct getter g;
        o.keep_unwanted = keep;
        start_cache(o);
        plan.takes = 200 * MS;
        get(&g, "a");
        run_until(START + 100 * MS);
        task_abort(&g.task);
        run_until(START + SEC);
        assert_int_equal(find("a"), keep ? TTL_FRESH : TTL_MISS);
        end_cache();
    }
}

/* Random use. `truth` knows, by key, when the last fetch ended and how; whatever the cache says
 * from memory must agree with that, and be no older than it may. */
#define GETTERS 40
#define KEYS    12

static struct truth {
    int status;
    unsigned serial;
    uint64_t at;
} truth[KEYS];

static unsigned key_index(const struct ttl_fetch *base)
{
    return (unsigned)(((const char *)base->work.key)[0] - 'a');
}

static enum poll recorded_poll(struct future *f, struct task *t)
{
    enum poll p = fetch_poll(f, t);
    struct fetch *x = fetch_of(f);
    if (p == POLL_READY && flight_is_current(&x->base.work))
        truth[key_index(&x->base)] = (struct truth){f->status, x->serial, task_now(t)};
    return p;
}

static void recorded_start(struct ttl_fetch *base)
{
    static const struct future_kind kind = {"recorded", recorded_poll, fetch_drop};
    fetch_start(base);
    base->work.f.kind = &kind;
}

static const struct ttl_cache_kind recorded_kind = {
    .name = "recorded",
    .fetch_size = sizeof(struct fetch),
    .value_size = sizeof(struct value),
    .start = recorded_start,
    .share = value_share,
    .release = value_release,
};

static void check_answer(const struct getter *g, const struct ttl_cache_opts *o, unsigned key)
{
    const struct truth *known = &truth[key];
    if (g->status == -EBUSY)
        return;
    if (g->get.found == TTL_FAILURE) {
        assert_int_equal(g->status, known->status);
        assert_true(g->done_at - known->at < o->failure_ttl_ns);
    } else if (g->get.found != TTL_MISS) {
        uint64_t age = g->done_at - g->value.made_at;
        assert_int_equal(g->status, 0);
        assert_true(g->value.serial == known->serial || known->status < 0);
        assert_int_equal(g->get.found, age < o->ttl_ns ? TTL_FRESH : TTL_STALE);
        assert_true(age < o->ttl_ns + o->stale_ns);
    }
}

static void random_use(uint64_t seed)
{
    static struct getter getters[GETTERS];
    static unsigned key_of[GETTERS];
    struct rng rng = {seed};
    struct ttl_cache_opts o = opts();
    uint64_t now = START;
    o.kind = &recorded_kind;
    o.max_values = 1 + rng_below(&rng, 10);
    o.max_failures = rng_below(&rng, 4);
    o.max_fetches = 2 + rng_below(&rng, 8);
    o.ttl_ns = 30 * MS;
    o.failure_ttl_ns = 7 * MS;
    o.stale_ns = rng_below(&rng, 3) * 10 * MS;
    o.keep_unwanted = rng_chance(&rng, 500000);
    start_cache(o);
    memset(getters, 0, sizeof(getters));
    memset(truth, 0, sizeof(truth));
    for (unsigned n = 0; n < 4000; n++) {
        unsigned i = rng_below(&rng, GETTERS);
        char key[2] = {0};
        plan.takes = rng_below(&rng, 8) * MS;
        plan.status = rng_chance(&rng, 300000) ? -EIO : 0;
        if (task_is_live(&getters[i].task)) {
            if (rng_chance(&rng, 200000))
                task_abort(&getters[i].task);
        } else {
            key_of[i] = rng_below(&rng, KEYS);
            key[0] = (char)('a' + key_of[i]);
            get(&getters[i], key);
            sched_step(&sched, now); /* the key lives on our stack: see that it is answered or */
            if (!getters[i].done)    /* waits for a fetch, which has its own copy */
                assert_true(getters[i].get.is_fetching_);
        }
        if (rng_chance(&rng, 20000)) {
            key[0] = (char)('a' + rng_below(&rng, KEYS));
            ttl_cache_remove(&cache, key, 1);
        }
        now += rng_below(&rng, MS);
        run_until(now);
        for (unsigned k = 0; k < GETTERS; k++) {
            if (getters[k].done && getters[k].done_at == now)
                check_answer(&getters[k], &o, key_of[k]);
        }
        assert_true(cache.stats.nvalues <= o.max_values);
        assert_true(cache.stats.nfailures <= o.max_failures);
        assert_int_equal(cache.table_.count, cache.stats.nvalues + cache.stats.nfailures);
    }
    run_until(now + 100 * MS);
    assert_true(cache.stats.fresh > 100 && cache.stats.misses > 100);
    end_cache();
}

static void random_uses(void **state)
{
    (void)state;
    for (uint64_t seed = 1; seed <= 20; seed++) {
        print_message("# seed %u\n", (unsigned)seed);
        random_use(seed);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(value_is_good_up_to_its_last_ns),
        cmocka_unit_test(fetch_sets_the_time_of_its_own_answer),
        cmocka_unit_test(all_who_ask_meanwhile_share_one_fetch),
        cmocka_unit_test(failure_is_kept_for_its_own_time),
        cmocka_unit_test(failures_are_not_kept_without_room_for_them),
        cmocka_unit_test(least_recently_used_goes_first),
        cmocka_unit_test(flood_of_failures_leaves_the_values),
        cmocka_unit_test(stale_value_serves_while_one_refresh_runs),
        cmocka_unit_test(failed_refresh_leaves_the_value_and_backs_off),
        cmocka_unit_test(full_flight_leaves_the_stale_value),
        cmocka_unit_test(what_was_removed_in_flight_is_not_kept),
        cmocka_unit_test(put_wins_over_a_fetch_in_flight),
        cmocka_unit_test(deserted_fetch_fills_the_cache_where_asked),
        cmocka_unit_test(random_uses),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
