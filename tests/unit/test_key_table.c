#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "runtime/key_table.h"
#include "runtime/list.h"
#include "runtime/rng.h"

static const struct siphash_key key = {{0x0706050403020100, 0x0f0e0d0c0b0a0908}};

/* The reference implementation's vectors: input 00 01 02 ... under key 00..0f. */
static void the_hash_is_siphash_2_4(void **state)
{
    (void)state;
    static const struct {
        unsigned len;
        uint64_t hash;
    } vectors[] = {
        {0, 0x726fdb47dd0e0e31}, {1, 0x74f839c593dc67fd},  {2, 0x0d6c8009d9a94f5a},
        {3, 0x85676696d7fb7e2d}, {4, 0xcf2794e0277187b7},  {5, 0x18765564cd99a68d},
        {6, 0xcbc9466e58fee3ce}, {7, 0xab0200f58b01d137},  {8, 0x93f5f5799a932462},
        {9, 0x9e0082df0ba9e4b0}, {15, 0xa129ca6149be45e5}, {16, 0x3f2acc7f57c29bdb},
    };
    unsigned char in[17];
    for (unsigned i = 0; i < sizeof(in); i++)
        in[i] = (unsigned char)i;
    for (unsigned i = 0; i < sizeof(vectors) / sizeof(vectors[0]); i++)
        assert_true(siphash(key, in, vectors[i].len) == vectors[i].hash);
    /* And it does not care where the bytes lie. */
    unsigned char moved[17];
    memcpy(moved + 1, in, 16);
    assert_true(siphash(key, moved + 1, 15) == 0xa129ca6149be45e5);
    assert_true(siphash16(key, 0x0706050403020100, 0x0f0e0d0c0b0a0908) == 0x3f2acc7f57c29bdb);
}

struct object {
    struct key_node node;
    char key[12];
    bool in;
};

static void name_object(struct object *o, unsigned n)
{
    int len = snprintf(o->key, sizeof(o->key), "k%u", n);
    o->node = (struct key_node){.key = o->key, .key_len = (uint16_t)len};
}

static void keys_are_told_apart_by_every_byte_and_the_length(void **state)
{
    (void)state;
    struct key_table t;
    struct key_node a = {.key = "ab", .key_len = 2}, b = {.key = "ab", .key_len = 1};
    struct key_node empty = {.key = NULL, .key_len = 0};
    assert_int_equal(key_table_init(&t, 4, key), 0);
    assert_null(key_table_find(&t, "ab", 2));
    key_table_insert(&t, &a);
    key_table_insert(&t, &b);
    key_table_insert(&t, &empty);
    assert_ptr_equal(key_table_find(&t, "ab", 2), &a);
    assert_ptr_equal(key_table_find(&t, "a", 1), &b);
    assert_ptr_equal(key_table_find(&t, "", 0), &empty);
    assert_null(key_table_find(&t, "ac", 2));
    assert_null(key_table_find(&t, "abc", 3));
    key_table_remove(&t, &a);
    assert_null(key_table_find(&t, "ab", 2));
    assert_int_equal(t.count, 2);
    key_table_fini(&t);
}

/* Far more than it was sized for, in and out at random. */
static void random_use_agrees_with_a_flag_per_object(void **state)
{
    (void)state;
    static struct object objects[500];
    for (uint64_t seed = 1; seed <= 10; seed++) {
        struct rng rng = {seed};
        struct key_table t;
        unsigned in = 0;
        print_message("# seed %u\n", (unsigned)seed);
        assert_int_equal(key_table_init(&t, 20, (struct siphash_key){{seed, ~seed}}), 0);
        memset(objects, 0, sizeof(objects));
        for (unsigned i = 0; i < 500; i++)
            name_object(&objects[i], i);
        for (unsigned n = 0; n < 20000; n++) {
            struct object *o = &objects[rng_below(&rng, 500)];
            struct key_node *found = key_table_find(&t, o->key, o->node.key_len);
            assert_ptr_equal(found, o->in ? &o->node : NULL);
            if (o->in)
                key_table_remove(&t, &o->node);
            else
                key_table_insert(&t, &o->node);
            o->in = !o->in;
            in += o->in ? 1 : -1u;
            assert_int_equal(t.count, in);
        }
        key_table_fini(&t);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_hash_is_siphash_2_4),
        cmocka_unit_test(keys_are_told_apart_by_every_byte_and_the_length),
        cmocka_unit_test(random_use_agrees_with_a_flag_per_object),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
