/* The Maglev table: fair shares, little disruption, the same everywhere. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdlib.h>
#include <string.h>

#include "config/arena.h"
#include "config/maglev.h"
#include "runtime/hash.h"

#define MAX 64

struct table {
    struct config_upstream u;
    struct config_endpoint endpoints[MAX];
    struct arena *arena;
    const uint16_t *places;
};

static void table_init(struct table *t, uint32_t size, unsigned n)
{
    memset(t, 0, sizeof(*t));
    t->u.endpoints = t->endpoints;
    t->u.nendpoints = n;
    t->u.hash.size = size;
    for (unsigned i = 0; i < n; i++) {
        t->endpoints[i].address = (struct config_addr){.addr = 0x0200000a + (i << 24), .port = 80};
        t->endpoints[i].weight = 1;
    }
}

static void build(struct table *t)
{
    t->arena = arena_new();
    assert_true(maglev_build(&t->u, t->arena, t->arena, &t->places));
}

static unsigned count(const struct table *t, unsigned endpoint)
{
    unsigned n = 0;

    for (uint32_t i = 0; i < t->u.hash.size; i++)
        n += t->places[i] == endpoint;
    return n;
}

static void table_fini(struct table *t)
{
    arena_free(t->arena);
}

static void shares_are_even(void **state)
{
    struct table t;

    table_init(&t, 65537, 10);
    build(&t);
    for (unsigned i = 0; i < 10; i++)
        assert_in_range(count(&t, i), 6553, 6554);
    table_fini(&t);
}

static void shares_follow_the_weights(void **state)
{
    struct table t;

    table_init(&t, 65537, 4);
    t.endpoints[0].weight = 7;
    t.endpoints[1].weight = 2;
    t.endpoints[3].weight = 0;
    build(&t);
    assert_in_range(count(&t, 0), 45874, 45878);
    assert_in_range(count(&t, 1), 13105, 13109);
    assert_in_range(count(&t, 2), 6551, 6555);
    assert_int_equal(count(&t, 3), 0);
    table_fini(&t);
}

/* The order in the file and what else stands there don't matter: a place has the same address. */
static void the_order_does_not_matter(void **state)
{
    struct table a, b;

    table_init(&a, 997, 20);
    table_init(&b, 997, 20);
    for (unsigned i = 0; i < 20; i++)
        b.endpoints[i] = a.endpoints[19 - i];
    build(&a);
    build(&b);
    for (uint32_t i = 0; i < 997; i++)
        assert_int_equal(a.places[i], 19 - b.places[i]);
    table_fini(&a);
    table_fini(&b);
}

/* What of the table changes when one of n goes, apart from what it had: little. */
static unsigned disruption(unsigned n, unsigned gone)
{
    struct table a, b;
    unsigned moved = 0;

    table_init(&a, 65537, n);
    table_init(&b, 65537, n);
    b.endpoints[gone].weight = 0;
    build(&a);
    build(&b);
    for (uint32_t i = 0; i < 65537; i++)
        moved += a.places[i] != gone && a.places[i] != b.places[i];
    table_fini(&a);
    table_fini(&b);
    return moved;
}

static void one_that_goes_moves_little_else(void **state)
{
    for (unsigned gone = 0; gone < 10; gone++)
        assert_in_range(disruption(10, gone), 0, 65537 / 20);
}

/* Another process, another build, another host: the same table. A change of the hash would send
 * every client of a mixed fleet elsewhere. */
static void the_table_is_the_same_everywhere(void **state)
{
    struct table t;

    table_init(&t, 65537, 12);
    for (unsigned i = 0; i < 12; i++)
        t.endpoints[i].weight = (uint16_t)(1 + i % 3);
    build(&t);
    assert_int_equal(hash_bytes(t.places, 65537 * sizeof(t.places[0]), 0), 0xae0365f83b4ffcd4);
    table_fini(&t);
}

static void backups_have_no_place(void **state)
{
    struct table t;

    table_init(&t, 251, 2);
    t.endpoints[1].backup = true;
    build(&t);
    assert_int_equal(count(&t, 0), 251);
    table_fini(&t);
    t.endpoints[0].weight = 0;
    build(&t);
    assert_null(t.places);
    table_fini(&t);
}

static void primes(void **state)
{
    static const uint32_t some[] = {2, 3, 251, 65537, 1048573};

    for (unsigned i = 0; i < sizeof(some) / sizeof(some[0]); i++)
        assert_true(maglev_is_prime(some[i]));
    for (uint32_t n = 0; n < 2; n++)
        assert_false(maglev_is_prime(n));
    assert_false(maglev_is_prime(65536));
    assert_false(maglev_is_prime(1009 * 1013));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(shares_are_even),
        cmocka_unit_test(shares_follow_the_weights),
        cmocka_unit_test(the_order_does_not_matter),
        cmocka_unit_test(one_that_goes_moves_little_else),
        cmocka_unit_test(the_table_is_the_same_everywhere),
        cmocka_unit_test(backups_have_no_place),
        cmocka_unit_test(primes),
    };

    return cmocka_run_group_tests_name("config_maglev", tests, NULL, NULL);
}
