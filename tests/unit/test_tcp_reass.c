#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <errno.h>
#include <string.h>

#include <cmocka.h>

#include <stdio.h>

#include "dataplane/tcp/reass.h"
#include "dataplane/tcp/seq.h"
#include "runtime/rng.h"
#include "tests/kit/eal.h"

struct rig {
    struct rte_mempool *mbufs;
    struct rope_pool ropes;
    struct reass_pools pools;
    struct reass r;
};

static int setup(void **state)
{
    static struct rig rig;
    kit_eal_init();
    memset(&rig, 0, sizeof(rig));
    rig.mbufs = kit_pool_new(2047);
    rope_pool_init(&rig.ropes, rig.mbufs, 0);
    slab_init(&rig.pools.blocks, sizeof(struct reass_block), 0);
    rig.pools.ropes = &rig.ropes;
    *state = &rig;
    return 0;
}

static int teardown(void **state)
{
    struct rig *rig = *state;
    reass_clear(&rig->r, &rig->pools);
    slab_fini(&rig->pools.blocks);
    rope_pool_fini(&rig->ropes);
    kit_pool_free(rig->mbufs);
    return 0;
}

static struct rte_mbuf *payload(struct rig *rig, const void *bytes, uint32_t len)
{
    struct rte_mbuf *m = rte_pktmbuf_alloc(rig->mbufs);
    assert_non_null(m);
    memcpy(rte_pktmbuf_append(m, (uint16_t)len), bytes, len);
    return m;
}

static int put(struct rig *rig, uint32_t seq, const char *text)
{
    uint32_t len = (uint32_t)strlen(text);
    struct rte_mbuf *m = payload(rig, text, len);
    return reass_insert(&rig->r, &rig->pools, seq, m, m->data_off, len, 1000);
}

static void expect_blocks(struct rig *rig, unsigned max, const char *want)
{
    uint32_t b[8][2];
    char got[200] = "";
    unsigned n = reass_sack(&rig->r, b, max);
    for (unsigned i = 0; i < n; i++)
        snprintf(got + strlen(got), sizeof(got) - strlen(got), "%s%u-%u", i ? " " : "", b[i][0],
                 b[i][1]);
    assert_string_equal(got, want);
    assert_true(reass_check(&rig->r, 0));
}

static void pull(struct rig *rig, uint32_t rcv_nxt, const char *want)
{
    struct rope out = {0};
    char got[2000];
    uint32_t n = reass_pull(&rig->r, &rig->pools, rcv_nxt, &out);
    assert_int_equal(n, strlen(want));
    assert_int_equal(out.len, n);
    rope_copy_out(&out, 0, got, n);
    assert_memory_equal(got, want, n);
    rope_clear(&rig->ropes, &out);
}

static void what_came_first_wins(void **state)
{
    struct rig *rig = *state;
    assert_int_equal(put(rig, 10, "abcde"), 5);
    assert_int_equal(put(rig, 8, "XXXXXXXXX"), 4); /* 8..17: two before, two behind */
    assert_int_equal(put(rig, 9, "YYY"), 0);
    assert_int_equal(put(rig, 12, "ZZZZZZZZ"), 3);
    pull(rig, 8, "XXabcdeXXZZZ");
    assert_true(reass_is_empty(&rig->r));
}

static void one_segment_fills_several_holes(void **state)
{
    struct rig *rig = *state;
    put(rig, 10, "aa");
    put(rig, 14, "bb");
    put(rig, 18, "cc");
    expect_blocks(rig, 4, "18-20 14-16 10-12");
    assert_int_equal(put(rig, 8, "................"), 16 - 6);
    expect_blocks(rig, 4, "8-24");
    pull(rig, 8, "..aa..bb..cc....");
}

/* RFC 2018 §4: the block of the latest segment first, then by how recently each was touched. */
static void sack_blocks_are_most_recent_first(void **state)
{
    struct rig *rig = *state;
    put(rig, 100, "a");
    put(rig, 200, "b");
    put(rig, 300, "c");
    put(rig, 400, "d");
    put(rig, 500, "e");
    expect_blocks(rig, 3, "500-501 400-401 300-301");
    put(rig, 201, "bb");
    expect_blocks(rig, 3, "200-203 500-501 400-401");
    put(rig, 100, "A"); /* a duplicate tells of its block too */
    expect_blocks(rig, 4, "100-101 200-203 500-501 400-401");
    put(rig, 99, "z");
    expect_blocks(rig, 1, "99-101");
    expect_blocks(rig, 0, "");
}

static void nothing_in_order_pulls_nothing(void **state)
{
    struct rig *rig = *state;
    pull(rig, 5, "");
    put(rig, 10, "abc");
    pull(rig, 9, "");
    pull(rig, 11, "");
    pull(rig, 10, "abc");
}

static void blocks_are_bounded(void **state)
{
    struct rig *rig = *state;
    for (uint32_t i = 0; i < REASS_MAX_BLOCKS; i++)
        assert_int_equal(put(rig, 10 + 2 * i, "x"), 1);
    assert_int_equal(put(rig, 10 + 2 * REASS_MAX_BLOCKS, "x"), -ENOSPC);
    assert_int_equal(put(rig, 9, "y"), 1); /* joins a block: no new one */
    assert_int_equal(rig->r.blocks, REASS_MAX_BLOCKS);
    assert_true(reass_check(&rig->r, 0));
}

static void nodes_are_bounded(void **state)
{
    struct rig *rig = *state;
    static char big[1400];
    int err = 0;
    unsigned n = 0;
    for (uint32_t seq = 1000; n < 100 && err >= 0; n++, seq += sizeof(big)) {
        struct rte_mbuf *m = payload(rig, big, sizeof(big));
        err = reass_insert(&rig->r, &rig->pools, seq, m, m->data_off, sizeof(big), 20);
    }
    assert_int_equal(err, -ENOSPC);
    assert_int_equal(rig->r.nodes, 20);
    assert_int_equal(kit_pool_used(rig->mbufs), 20);
}

/* Thousands of tiny segments share buffers: true size stays near the bytes held. */
static void tiny_segments_are_joined(void **state)
{
    struct rig *rig = *state;
    for (uint32_t i = 0; i < 20000; i++)
        assert_int_equal(put(rig, 10 + i, "x"), 1);
    assert_true(kit_pool_used(rig->mbufs) <= 12);
    assert_int_equal(rig->r.bytes, 20000);
}

/* Random segments over a small space, against an array in which the first byte wins. */
static void random_segments_agree_with_an_array(void **state)
{
    enum { SPACE = 400 };
    struct rig *rig = *state;
    for (uint64_t seed = 1; seed <= 300; seed++) {
        struct rng rng = {seed};
        char model[SPACE + 1] = {0};
        uint32_t base = 0xffffffffu - SPACE / 2, next = 0;
        for (unsigned step = 0; step < 200; step++) {
            char bytes[60];
            uint32_t at = next + 1 + rng_below(&rng, 120), len = 1 + rng_below(&rng, sizeof(bytes));
            if (at + len > SPACE)
                break;
            memset(bytes, 'a' + (int)rng_below(&rng, 26), len);
            int fresh = 0;
            for (uint32_t i = 0; i < len; i++)
                if (!model[at + i]) {
                    model[at + i] = bytes[i];
                    fresh++;
                }
            struct rte_mbuf *m = payload(rig, bytes, len);
            int held = reass_insert(&rig->r, &rig->pools, base + at, m, m->data_off, len, 10000);
            if (held != fresh || !reass_check(&rig->r, base + next))
                fail_msg("seed %llu step %u: held %d, not %d", (unsigned long long)seed, step, held,
                         fresh);
            if (rng_below(&rng, 4) == 0) { /* the byte that was missing arrives */
                if (!model[next])
                    model[next] = '#';
                m = payload(rig, &model[next], 1);
                reass_insert(&rig->r, &rig->pools, base + next, m, m->data_off, 1, 10000);
                struct rope out = {0};
                char got[SPACE + 1];
                uint32_t n = reass_pull(&rig->r, &rig->pools, base + next, &out);
                rope_copy_out(&out, 0, got, n);
                rope_clear(&rig->ropes, &out);
                assert_memory_equal(got, model + next, n);
                next += n;
                assert_int_equal(model[next], 0);
            }
        }
        reass_clear(&rig->r, &rig->pools);
        assert_int_equal(kit_pool_used(rig->mbufs), 0);
    }
}

static void without_mbuf_nodes_nothing_leaks(void **state)
{
    struct rig *rig = *state;
    slab_fini(&rig->pools.blocks);
    slab_init(&rig->pools.blocks, sizeof(struct reass_block), 2);
    assert_int_equal(put(rig, 10, "a"), 1);
    assert_int_equal(put(rig, 20, "b"), 1);
    assert_int_equal(put(rig, 30, "c"), -ENOMEM);
    assert_int_equal(put(rig, 15, "dddddddddddddddddddd"), -ENOMEM);
    assert_true(reass_check(&rig->r, 0));
}

int main(void)
{
#define T(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
    const struct CMUnitTest tests[] = {
        T(what_came_first_wins),
        T(one_segment_fills_several_holes),
        T(sack_blocks_are_most_recent_first),
        T(nothing_in_order_pulls_nothing),
        T(blocks_are_bounded),
        T(nodes_are_bounded),
        T(tiny_segments_are_joined),
        T(random_segments_agree_with_an_array),
        T(without_mbuf_nodes_nothing_leaks),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
