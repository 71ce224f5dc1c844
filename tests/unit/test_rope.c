#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <errno.h>

#include <cmocka.h>

#include "dataplane/stream/rope.h"
#include "runtime/rng.h"
#include "tests/kit/eal.h"

struct fixture {
    struct rte_mempool *mbufs;
    struct rope_pool pool;
};

static int setup(void **state)
{
    static struct fixture f;
    kit_eal_init();
    f.mbufs = kit_pool_new(255);
    rope_pool_init(&f.pool, f.mbufs, 0);
    *state = &f;
    return 0;
}

static int teardown(void **state)
{
    struct fixture *f = *state;
    rope_pool_fini(&f->pool);
    kit_pool_free(f->mbufs);
    return 0;
}

static void assert_rope_is(const struct rope *r, const char *text)
{
    char buf[512];
    assert_true(rope_check(r));
    assert_int_equal(r->len, strlen(text));
    rope_copy_out(r, 0, buf, strlen(text));
    assert_memory_equal(buf, text, strlen(text));
}

static void appended_bytes_share_an_mbuf(void **state)
{
    struct fixture *f = *state;
    struct rope r = {0};
    assert_int_equal(rope_append(&f->pool, &r, "hello, ", 7), 0);
    assert_int_equal(rope_printf(&f->pool, &r, "%s", "world"), 0);
    assert_rope_is(&r, "hello, world");
    assert_int_equal(r.nodes, 1);
    rope_clear(&f->pool, &r);
    assert_int_equal(kit_pool_used(f->mbufs), 0);
}

static void a_split_leaves_both_halves_readable_and_unshared_room_unused(void **state)
{
    struct fixture *f = *state;
    struct rope a = {0}, b = {0};
    rope_append(&f->pool, &a, "headbody", 8);
    assert_int_equal(rope_move(&f->pool, &b, &a, 4), 4);
    assert_rope_is(&b, "head");
    assert_rope_is(&a, "body");
    /* The mbuf is shared now: appending to either must not write behind the other's back. */
    rope_append(&f->pool, &b, "XXXX", 4);
    assert_rope_is(&b, "headXXXX");
    assert_rope_is(&a, "body");
    rope_clear(&f->pool, &a);
    rope_clear(&f->pool, &b);
    assert_int_equal(f->pool.in_use, 0);
}

static void appending_more_than_there_is_changes_nothing(void **state)
{
    struct fixture *f = *state;
    struct rope r = {0};
    static char big[1 << 20];
    rope_append(&f->pool, &r, "kept", 4);
    assert_int_equal(rope_append(&f->pool, &r, big, sizeof(big)), -ENOMEM);
    assert_rope_is(&r, "kept");
    rope_clear(&f->pool, &r);
}

static void a_reserve_is_left_in_the_pool(void **state)
{
    struct fixture *f = *state;
    struct rope r = {0};
    static char big[1 << 20];
    f->pool.reserve = 200;
    assert_int_equal(rope_append(&f->pool, &r, big, 60 * 2000), -ENOMEM);
    assert_int_equal(rope_append(&f->pool, &r, big, 20 * 2000), 0);
    rope_clear(&f->pool, &r);
}

static void the_bound_on_nodes_holds(void **state)
{
    struct fixture *f = *state;
    struct rope a = {0}, b = {0};
    f->pool.max_nodes = 1024;
    static char bytes[1400];
    rope_append(&f->pool, &a, bytes, sizeof(bytes));
    ssize_t moved = 0;
    unsigned splits = 0;
    while ((moved = rope_move(&f->pool, &b, &a, 1)) == 1 && splits < 2000)
        splits++;
    assert_int_equal(moved, -ENOMEM);
    assert_int_equal(a.len + b.len, sizeof(bytes));
    assert_true(rope_check(&a) && rope_check(&b));
    rope_clear(&f->pool, &a);
    rope_clear(&f->pool, &b);
}

static void compacting_frees_the_mbufs_of_tiny_nodes(void **state)
{
    struct fixture *f = *state;
    struct rope r = {0};
    char text[201] = {0};
    for (int i = 0; i < 200; i++) {
        struct rte_mbuf *m = rte_pktmbuf_alloc(f->mbufs);
        text[i] = (char)('a' + i % 26);
        *rte_pktmbuf_mtod(m, char *) = text[i];
        assert_int_equal(rope_push_mbuf(&f->pool, &r, m, m->data_off, 1), 0);
    }
    rope_compact(&f->pool, &r);
    assert_rope_is(&r, text);
    assert_in_range(r.nodes, 1, 2);
    assert_int_equal(kit_pool_used(f->mbufs), r.nodes);
    rope_clear(&f->pool, &r);
}

/* Random moves, trims and appends between three ropes against plain strings. */
static void random_edits_match_a_plain_buffer(void **state)
{
    struct fixture *f = *state;
    for (uint64_t seed = 1; seed <= 200; seed++) {
        struct rng g = {seed};
        struct rope ropes[2] = {0};
        char model[2][4096];
        size_t len[2] = {0};
        for (int step = 0; step < 60; step++) {
            unsigned from = rng_below(&g, 2), to = !from;
            uint32_t n = rng_below(&g, 120);
            char piece[128];
            for (uint32_t i = 0; i < n; i++)
                piece[i] = (char)rng_next(&g);
            switch (rng_below(&g, 4)) {
            case 0:
            case 1:
                if (len[from] + n > sizeof(model[0]))
                    break;
                assert_int_equal(rope_append(&f->pool, &ropes[from], piece, n), 0);
                memcpy(model[from] + len[from], piece, n);
                len[from] += n;
                break;
            case 2: {
                if (len[to] + n > sizeof(model[0]))
                    break;
                ssize_t m = rope_move(&f->pool, &ropes[to], &ropes[from], n);
                assert_int_equal(m, n < len[from] ? n : len[from]);
                memcpy(model[to] + len[to], model[from], (size_t)m);
                memmove(model[from], model[from] + m, len[from] - (size_t)m);
                len[to] += (size_t)m;
                len[from] -= (size_t)m;
                break;
            }
            case 3:
                n = n < len[from] ? n : (uint32_t)len[from];
                rope_trim_head(&f->pool, &ropes[from], n);
                memmove(model[from], model[from] + n, len[from] - n);
                len[from] -= n;
                rope_compact(&f->pool, &ropes[to]);
                break;
            }
            for (unsigned k = 0; k < 2; k++) {
                char got[4096];
                assert_true(rope_check(&ropes[k]));
                assert_int_equal(ropes[k].len, len[k]);
                rope_copy_out(&ropes[k], 0, got, len[k]);
                if (memcmp(got, model[k], len[k]) != 0)
                    fail_msg("seed %lu step %d: bytes differ", (unsigned long)seed, step);
            }
        }
        rope_clear(&f->pool, &ropes[0]);
        rope_clear(&f->pool, &ropes[1]);
        assert_int_equal(kit_pool_used(f->mbufs), 0);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(appended_bytes_share_an_mbuf, setup, teardown),
        cmocka_unit_test_setup_teardown(
            a_split_leaves_both_halves_readable_and_unshared_room_unused, setup, teardown),
        cmocka_unit_test_setup_teardown(appending_more_than_there_is_changes_nothing, setup,
                                        teardown),
        cmocka_unit_test_setup_teardown(a_reserve_is_left_in_the_pool, setup, teardown),
        cmocka_unit_test_setup_teardown(the_bound_on_nodes_holds, setup, teardown),
        cmocka_unit_test_setup_teardown(compacting_frees_the_mbufs_of_tiny_nodes, setup, teardown),
        cmocka_unit_test_setup_teardown(random_edits_match_a_plain_buffer, setup, teardown),
    };
    return cmocka_run_group_tests_name("rope", tests, NULL, NULL);
}
