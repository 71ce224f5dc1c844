#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "runtime/slab.h"

static void objects_are_apart_aligned_and_bounded(void **state)
{
    (void)state;
    enum { MAX = 5000 }; /* more than one chunk */
    static void *objects[MAX];
    struct slab s;
    slab_init(&s, 100, MAX);
    for (unsigned i = 0; i < MAX; i++) {
        objects[i] = slab_get(&s);
        assert_non_null(objects[i]);
        assert_int_equal((uintptr_t)objects[i] % 64, 0);
        memset(objects[i], (int)(i & 0xff), 100);
    }
    assert_null(slab_get(&s));
    assert_null(slab_get_zeroed(&s));
    assert_int_equal(s.in_use, MAX);
    for (unsigned i = 0; i < MAX; i++) {
        const unsigned char *bytes = objects[i];
        assert_int_equal(bytes[0], i & 0xff);
        assert_int_equal(bytes[99], i & 0xff);
        slab_put(&s, objects[i]);
    }
    assert_int_equal(s.in_use, 0);
    slab_fini(&s);
}

static void last_put_is_first_got_and_zeroed_on_demand(void **state)
{
    (void)state;
    static const unsigned char zero[48];
    struct slab s;
    slab_init(&s, sizeof(zero), 0);
    void *a = slab_get(&s), *b = slab_get(&s);
    memset(a, 0xff, sizeof(zero));
    slab_put(&s, b);
    slab_put(&s, a);
    assert_ptr_equal(slab_get_zeroed(&s), a);
    assert_memory_equal(a, zero, sizeof(zero));
    assert_ptr_equal(slab_get(&s), b);
    slab_put(&s, a);
    slab_put(&s, b);
    slab_fini(&s);
}

static void object_larger_than_a_chunk_works(void **state)
{
    (void)state;
    struct slab s;
    slab_init(&s, 1u << 20, 2);
    void *a = slab_get(&s), *b = slab_get(&s);
    assert_non_null(a);
    assert_non_null(b);
    assert_null(slab_get(&s));
    slab_put(&s, a);
    slab_put(&s, b);
    slab_fini(&s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(objects_are_apart_aligned_and_bounded),
        cmocka_unit_test(last_put_is_first_got_and_zeroed_on_demand),
        cmocka_unit_test(object_larger_than_a_chunk_works),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
