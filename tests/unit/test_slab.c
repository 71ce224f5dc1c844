#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "runtime/slab.h"

static void objects_are_aligned_distinct_and_reused(void **state)
{
    struct slab s;
    void *a[100];
    slab_init(&s, 100, 0);
    for (int i = 0; i < 100; i++) {
        a[i] = slab_get_zeroed(&s);
        assert_non_null(a[i]);
        assert_int_equal((uintptr_t)a[i] % 64, 0);
        memset(a[i], i, 100);
    }
    for (int i = 0; i < 100; i++)
        assert_int_equal(((unsigned char *)a[i])[99], i);
    assert_int_equal(s.in_use, 100);
    slab_put(&s, a[7]);
    assert_ptr_equal(slab_get(&s), a[7]);
    for (int i = 0; i < 100; i++)
        slab_put(&s, a[i]);
    slab_fini(&s);
}

static void the_bound_is_exact_even_across_chunks(void **state)
{
    struct slab s;
    void *a[3001];
    slab_init(&s, 1000, 3000);
    for (int i = 0; i < 3000; i++)
        assert_non_null(a[i] = slab_get(&s));
    assert_null(slab_get(&s));
    slab_put(&s, a[0]);
    assert_non_null(a[0] = slab_get(&s));
    assert_null(slab_get(&s));
    for (int i = 0; i < 3000; i++)
        slab_put(&s, a[i]);
    slab_fini(&s);
}

static void an_object_larger_than_a_chunk_has_one_of_its_own(void **state)
{
    struct slab s;
    slab_init(&s, 1u << 20, 2);
    void *a = slab_get_zeroed(&s), *b = slab_get_zeroed(&s);
    assert_true(a && b && a != b);
    assert_null(slab_get(&s));
    slab_put(&s, a);
    slab_put(&s, b);
    slab_fini(&s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(objects_are_aligned_distinct_and_reused),
        cmocka_unit_test(the_bound_is_exact_even_across_chunks),
        cmocka_unit_test(an_object_larger_than_a_chunk_has_one_of_its_own),
    };
    return cmocka_run_group_tests_name("slab", tests, NULL, NULL);
}
