/* The table of limits per client: GCRA against a model on virtual time, connections counted to the
 * last one, and both exact while several threads do it at once. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <inttypes.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "dataplane/route/limit.h"
#include "runtime/rng.h"

#define START  1234567890123ull
#define SECOND 1000000000ull
#define SOME   4096 /* clients of a table with room */

static const uint8_t secret[16] = "not for testing";

static struct config_limit limit_of(uint32_t id, uint64_t interval, uint32_t burst)
{
    return (struct config_limit){
        .id = id, .interval = interval, .slack = (burst - 1) * interval, .burst = burst};
}

static struct client_limits new_table(uint32_t clients)
{
    struct client_limits l;
    struct limit_table *t = limit_table_new(clients, secret);
    assert_non_null(t);
    client_limits_init(&l, t, 0);
    return l;
}

static void a_burst_then_one_an_interval(void **state)
{
    struct client_limits l = new_table(SOME);
    struct config_limit ten = limit_of(1, SECOND / 10, 3);
    uint64_t wait = 0;
    for (unsigned round = 0; round < 3; round++) {
        uint64_t now = START + round * 10 * SECOND;
        for (unsigned i = 0; i < 3; i++)
            assert_true(client_limits_take(&l, &ten, 7, now, &wait));
        assert_false(client_limits_take(&l, &ten, 7, now, &wait));
        assert_int_equal(wait, SECOND / 10);
        assert_false(client_limits_take(&l, &ten, 7, now + wait - 1, &wait));
        assert_int_equal(wait, 1);
        assert_true(client_limits_take(&l, &ten, 7, now + SECOND / 10, &wait));
        assert_false(client_limits_take(&l, &ten, 7, now + SECOND / 10, &wait));
    }
    assert_int_equal(l.forgotten + l.untracked, 0);
    limit_table_free(l.table);
}

/* The same as a bucket: `burst` tokens, one more every interval, never more than `burst`. */
struct bucket {
    uint64_t full_at; /* when it will be full again, if nothing is taken */
};

static bool bucket_take(struct bucket *b, const struct config_limit *limit, uint64_t now)
{
    uint64_t missing = b->full_at > now ? b->full_at - now : 0;
    if (missing > (uint64_t)(limit->burst - 1) * limit->interval)
        return false;
    b->full_at = now + missing + limit->interval;
    return true;
}

static void clients_and_limits_are_told_apart(void **state)
{
    enum { LIMITS = 5, CLIENTS = 200 };
    static struct bucket model[LIMITS][CLIENTS];
    struct config_limit limits[LIMITS] = {
        limit_of(0, SECOND, 1), limit_of(1, 1000, 1000), limit_of(2, SECOND / 3 + 1, 7),
        limit_of(0x7fffffff, 3600 * SECOND, 1000000), limit_of(4, 10 * SECOND, 2)};
    struct client_limits l = new_table(SOME);
    struct rng rng = {42};
    uint64_t now = START, wait;
    unsigned taken = 0;
    memset(model, 0, sizeof(model));
    for (unsigned i = 0; i < 200000; i++) {
        unsigned which = rng_below(&rng, LIMITS), who = rng_below(&rng, CLIENTS);
        now += rng_chance(&rng, 300000) ? rng_below(&rng, SECOND / 100) : 0;
        bool may = bucket_take(&model[which][who], &limits[which], now);
        taken += may;
        if (client_limits_take(&l, &limits[which], who + 1, now, &wait) != may)
            fail_msg("step %u: limit %u, client %u", i, which, who);
    }
    assert_true(taken > 1000 && taken < 199000);
    assert_int_equal(l.forgotten + l.untracked, 0);
    limit_table_free(l.table);
}

/* 16 cells in all. */
static void a_full_set_forgets_who_has_least_to_wait(void **state)
{
    struct client_limits l = new_table(4);
    struct config_limit minute = limit_of(1, 60 * SECOND, 10);
    uint64_t wait;
    for (uint32_t who = 1; who <= 16; who++)
        for (uint32_t n = 0; n < (who == 9 ? 1 : 5); n++)
            assert_true(client_limits_take(&l, &minute, who, START, &wait));
    assert_int_equal(l.forgotten, 0);
    assert_true(client_limits_take(&l, &minute, 17, START, &wait));
    assert_int_equal(l.forgotten, 1); /* number 9 */
    for (uint32_t n = 0; n < 5; n++)
        assert_true(client_limits_take(&l, &minute, 1, START, &wait));
    assert_false(client_limits_take(&l, &minute, 1, START, &wait));
    assert_int_equal(l.forgotten, 1);
    /* A cell whose time has come is free, and that is no loss. */
    for (uint32_t who = 100; who < 116; who++)
        assert_true(client_limits_take(&l, &minute, who, START + 3600 * SECOND, &wait));
    assert_int_equal(l.forgotten, 1);
    limit_table_free(l.table);
}

static void connections_are_never_forgotten(void **state)
{
    struct client_limits l = new_table(4);
    struct config_limit second = limit_of(1, SECOND, 1);
    uint64_t wait;
    for (uint32_t who = 1; who <= 8; who++)
        assert_true(client_limits_take(&l, &second, who, START, &wait));
    for (uint32_t who = 1; who <= 16; who++)
        assert_true(client_limits_enter(&l, 9, who, 2, START));
    assert_int_equal(l.forgotten, 8);
    assert_false(client_limits_enter(&l, 9, 17, 2, START)); /* no room to count it */
    assert_int_equal(l.untracked, 1);
    assert_true(client_limits_take(&l, &second, 17, START, &wait)); /* nor this: it passes */
    assert_true(client_limits_take(&l, &second, 17, START, &wait));
    assert_int_equal(l.untracked, 3);
    for (uint32_t who = 1; who <= 16; who++) {
        assert_true(client_limits_enter(&l, 9, who, 2, START));
        assert_false(client_limits_enter(&l, 9, who, 2, START));
        assert_int_equal(client_limits_count(&l, 9, who), 2);
    }
    client_limits_leave(&l, 9, 5);
    assert_true(client_limits_enter(&l, 9, 5, 2, START));
    for (uint32_t who = 1; who <= 16; who++) {
        client_limits_leave(&l, 9, who);
        client_limits_leave(&l, 9, who);
        assert_int_equal(client_limits_count(&l, 9, who), 0);
    }
    for (uint32_t who = 20; who < 36; who++)
        assert_true(client_limits_enter(&l, 9, who, 1, START));
    limit_table_free(l.table);
}

/* A table no fuller than it is meant for hardly ever has a full set. */
static void a_table_holds_what_it_is_meant_for(void **state)
{
    enum { CLIENTS = 100000 };
    struct client_limits l = new_table(CLIENTS);
    unsigned refused = 0;
    for (uint32_t who = 1; who <= CLIENTS; who++)
        refused += !client_limits_enter(&l, 1, who * 2654435761u, 1, START);
    assert_true(refused <= 1);
    limit_table_free(l.table);
}

/* Several cores ------------------------------------------------------------------------------ */

enum { THREADS = 4, ROUNDS = 60000, KEYS = 40 };

struct crowd {
    struct limit_table *table;
    _Atomic uint64_t now;
    _Atomic uint32_t taken[KEYS + 1];
    _Atomic int32_t inside[KEYS + 1];
    _Atomic uint32_t too_many;
    struct config_limit limit;
    uint32_t max;
};

struct member {
    struct crowd *crowd;
    unsigned index;
    pthread_t thread;
    struct client_limits l;
};

/* Few sets, so that threads meet in them, also as newcomers: each key is seen, runs dry and is
 * forgotten again and again. */
static void *take_all_the_time(void *arg)
{
    struct member *m = arg;
    struct crowd *c = m->crowd;
    struct rng rng = {m->index};
    for (unsigned i = 0; i < ROUNDS; i++) {
        uint32_t who = 1 + rng_below(&rng, KEYS);
        uint64_t wait, now = atomic_fetch_add(&c->now, 1000);
        if (client_limits_take(&m->l, &c->limit, who, now, &wait))
            atomic_fetch_add(&c->taken[who], 1);
    }
    return NULL;
}

static void run(struct crowd *c, uint32_t clients, void *(*body)(void *), struct member *members)
{
    c->table = limit_table_new(clients, secret);
    atomic_store(&c->now, START);
    for (unsigned i = 0; i < THREADS; i++) {
        members[i] = (struct member){.crowd = c, .index = i};
        client_limits_init(&members[i].l, c->table, i);
        assert_int_equal(pthread_create(&members[i].thread, NULL, body, &members[i]), 0);
    }
    for (unsigned i = 0; i < THREADS; i++)
        pthread_join(members[i].thread, NULL);
}

static void a_rate_holds_over_all_threads(void **state)
{
    static struct crowd c;
    struct member members[THREADS];
    memset(&c, 0, sizeof(c));
    c.limit = limit_of(3, 700000, 5);
    run(&c, 256, take_all_the_time, members);
    uint64_t time = atomic_load(&c.now) - START;
    uint64_t most = 5 + time / c.limit.interval + 1;
    for (unsigned i = 0; i < THREADS; i++)
        assert_int_equal(members[i].l.forgotten + members[i].l.untracked, 0);
    for (unsigned who = 1; who <= KEYS; who++) {
        uint32_t taken = atomic_load(&c.taken[who]);
        if (taken > most || taken < most * 9 / 10)
            fail_msg("client %u: %u taken, %" PRIu64 " is the most", who, taken, most);
    }
    limit_table_free(c.table);
}

static void *come_and_go(void *arg)
{
    struct member *m = arg;
    struct crowd *c = m->crowd;
    struct rng rng = {m->index + 100};
    uint32_t mine[8];
    unsigned n = 0;
    for (unsigned i = 0; i < ROUNDS; i++) {
        if (n == 8 || (n && rng_chance(&rng, 500000))) {
            uint32_t who = mine[--n];
            atomic_fetch_sub(&c->inside[who], 1);
            client_limits_leave(&m->l, 5, who);
            continue;
        }
        uint32_t who = 1 + rng_below(&rng, 6);
        if (!client_limits_enter(&m->l, 5, who, c->max, START))
            continue;
        if (atomic_fetch_add(&c->inside[who], 1) >= (int32_t)c->max)
            atomic_fetch_add(&c->too_many, 1);
        mine[n++] = who;
    }
    while (n) {
        atomic_fetch_sub(&c->inside[mine[n - 1]], 1);
        client_limits_leave(&m->l, 5, mine[--n]);
    }
    return NULL;
}

static void connections_are_counted_over_all_threads(void **state)
{
    static struct crowd c;
    struct member members[THREADS];
    for (uint32_t max = 1; max <= 3; max++) {
        memset(&c, 0, sizeof(c));
        c.max = max;
        run(&c, 4, come_and_go, members); /* a single set: newcomers all the time */
        assert_int_equal(atomic_load(&c.too_many), 0);
        for (unsigned i = 0; i < THREADS; i++)
            assert_int_equal(members[i].l.untracked, 0);
        for (uint32_t who = 1; who <= 6; who++)
            assert_int_equal(client_limits_count(&members[0].l, 5, who), 0);
        limit_table_free(c.table);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_burst_then_one_an_interval),
        cmocka_unit_test(clients_and_limits_are_told_apart),
        cmocka_unit_test(a_full_set_forgets_who_has_least_to_wait),
        cmocka_unit_test(connections_are_never_forgotten),
        cmocka_unit_test(a_table_holds_what_it_is_meant_for),
        cmocka_unit_test(a_rate_holds_over_all_threads),
        cmocka_unit_test(connections_are_counted_over_all_threads),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
