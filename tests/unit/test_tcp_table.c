#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <errno.h>
#include <string.h>

#include <cmocka.h>

#include <stdlib.h>

#include "dataplane/tcp/isn.h"
#include "dataplane/tcp/table.h"
#include "runtime/rng.h"

struct object {
    int pad;
    struct tuple tuple;
    bool in;
};

static const struct siphash_key key = {{0x0706050403020100, 0x0f0e0d0c0b0a0908}};

/* The reference implementation's vector for 16 bytes 00..0f under key 00..0f. */
static void the_hash_is_siphash_2_4(void **state)
{
    assert_true(siphash16(key, 0x0706050403020100, 0x0f0e0d0c0b0a0908) == 0x3f2acc7f57c29bdbull);
}

static struct tuple tuple_of(struct rng *rng)
{
    /* Few addresses and ports, so that tuples differ in any one field. */
    return (struct tuple){rng_below(rng, 3), rng_below(rng, 40), (uint16_t)rng_below(rng, 3),
                          (uint16_t)rng_below(rng, 40)};
}

static struct object *model_find(struct object *objects, unsigned n, const struct tuple *t)
{
    for (unsigned i = 0; i < n; i++)
        if (objects[i].in && tuple_equal(&objects[i].tuple, t))
            return &objects[i];
    return NULL;
}

static void model_check(const struct table *t, struct object *objects, unsigned n)
{
    unsigned in = 0, walked = 0;
    for (unsigned i = 0; i < n; i++) {
        if (!objects[i].in)
            continue;
        in++;
        assert_ptr_equal(table_find(t, &objects[i].tuple, table_hash(t, &objects[i].tuple)),
                         &objects[i]);
    }
    assert_int_equal(t->count, in);
    uint32_t pos = 0;
    for (struct object *o; (o = table_next(t, &pos)); walked++)
        assert_true(o->in);
    assert_int_equal(walked, in);
}

static void a_random_life_agrees_with_a_list(void **state)
{
    enum { N = 200 };
    for (uint64_t seed = 1; seed <= 20; seed++) {
        static struct object objects[N];
        memset(objects, 0, sizeof(objects));
        struct rng rng = {seed};
        struct table t;
        assert_int_equal(table_init(&t, N / 2, offsetof(struct object, tuple), key), 0);
        for (unsigned step = 0; step < 3000; step++) {
            struct object *o = &objects[rng_below(&rng, N)];
            if (o->in) {
                table_remove(&t, o);
                o->in = false;
                continue;
            }
            struct tuple tuple = tuple_of(&rng);
            struct object *same = model_find(objects, N, &tuple);
            assert_ptr_equal(table_find(&t, &tuple, table_hash(&t, &tuple)), same);
            if (same)
                continue;
            o->tuple = tuple;
            int err = table_insert(&t, o, table_hash(&t, &tuple));
            assert_int_equal(err, t.count > N / 2 || (err && t.count == N / 2) ? -ENOSPC : 0);
            o->in = err == 0;
        }
        model_check(&t, objects, N);
        table_fini(&t);
    }
}

static void a_table_holds_its_bound(void **state)
{
    struct table t;
    struct object *objects = calloc(5000, sizeof(*objects));
    assert_int_equal(table_init(&t, 5000, offsetof(struct object, tuple), key), 0);
    for (unsigned i = 0; i < 5000; i++) {
        objects[i].tuple = (struct tuple){1, i, 2, 3};
        objects[i].in = true;
        assert_int_equal(table_insert(&t, &objects[i], table_hash(&t, &objects[i].tuple)), 0);
    }
    struct object one_more = {.tuple = {9, 9, 9, 9}};
    assert_int_equal(table_insert(&t, &one_more, table_hash(&t, &one_more.tuple)), -ENOSPC);
    model_check(&t, objects, 5000);
    table_fini(&t);
    free(objects);
}

static void sequence_numbers_grow_with_time_and_differ_by_flow(void **state)
{
    struct tuple a = {1, 2, 3, 4}, b = {1, 2, 3, 5};
    uint32_t first = isn_generate(key, &a, 1000000);
    assert_int_equal(isn_generate(key, &a, 1000000 + 4000), first + 1);
    assert_int_equal(isn_generate(key, &a, 1000000 + 4000000000ull), first + 1000000);
    assert_int_not_equal(isn_generate(key, &b, 1000000), first);
    assert_int_not_equal(isn_ts_offset(key, &a), isn_ts_offset(key, &b));
    struct siphash_key other = {{1, 2}};
    assert_int_not_equal(isn_generate(other, &a, 1000000), first);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_hash_is_siphash_2_4),
        cmocka_unit_test(a_random_life_agrees_with_a_list),
        cmocka_unit_test(a_table_holds_its_bound),
        cmocka_unit_test(sequence_numbers_grow_with_time_and_differ_by_flow),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
