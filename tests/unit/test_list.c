#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "runtime/list.h"

struct item {
    int value;
    struct list_node node;
};

static void assert_values(const struct list_node *head, const char *want)
{
    char got[64], *p = got;
    list_for_each(n, head)
    {
        *p++ = (char)('0' + container_of(n, struct item, node)->value);
    }
    *p = 0;
    assert_string_equal(got, want);
}

static void zeroed_node_is_unlinked(void **state)
{
    (void)state;
    struct item a = {0};
    assert_false(list_is_linked(&a.node));
    list_remove(&a.node);
    assert_false(list_is_linked(&a.node));
}

static void keeps_order_from_both_ends(void **state)
{
    (void)state;
    struct list_node head;
    struct item items[4] = {{1, {0}}, {2, {0}}, {3, {0}}, {4, {0}}};
    list_init(&head);
    assert_true(list_is_empty(&head));
    assert_null(list_first(&head));
    assert_null(list_last(&head));
    assert_null(list_pop_head(&head));
    list_push_tail(&head, &items[1].node);
    list_push_tail(&head, &items[2].node);
    list_push_head(&head, &items[0].node);
    list_insert_after(&items[2].node, &items[3].node);
    assert_values(&head, "1234");
    assert_ptr_equal(list_last(&head), &items[3].node);
    list_remove(&items[1].node);
    list_remove(&items[1].node);
    assert_values(&head, "134");
    assert_ptr_equal(list_pop_head(&head), &items[0].node);
    assert_false(list_is_linked(&items[0].node));
    assert_values(&head, "34");
}

static void splice_moves_all_and_empties_the_source(void **state)
{
    (void)state;
    struct list_node a, b;
    struct item items[4] = {{1, {0}}, {2, {0}}, {3, {0}}, {4, {0}}};
    list_init(&a);
    list_init(&b);
    list_splice_tail(&a, &b);
    assert_true(list_is_empty(&a));
    for (int i = 0; i < 4; i++)
        list_push_tail(i < 2 ? &a : &b, &items[i].node);
    list_splice_tail(&a, &b);
    assert_values(&a, "1234");
    assert_true(list_is_empty(&b));
    list_splice_tail(&b, &a);
    assert_values(&b, "1234");
}

static void current_may_be_removed_while_walking(void **state)
{
    (void)state;
    struct list_node head;
    struct item items[5] = {{1, {0}}, {2, {0}}, {3, {0}}, {4, {0}}, {5, {0}}};
    list_init(&head);
    for (int i = 0; i < 5; i++)
        list_push_tail(&head, &items[i].node);
    list_for_each_safe(n, next, &head)
    {
        if (container_of(n, struct item, node)->value % 2)
            list_remove(n);
    }
    assert_values(&head, "24");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(zeroed_node_is_unlinked),
        cmocka_unit_test(keeps_order_from_both_ends),
        cmocka_unit_test(splice_moves_all_and_empties_the_source),
        cmocka_unit_test(current_may_be_removed_while_walking),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
