/* The generator of ids: ChaCha20's own vector, no number twice, nothing left behind. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "runtime/csprng.h"

/* RFC 8439 §2.3.2. */
static void test_block_is_as_in_the_rfc(void **state)
{
    static const uint8_t expected[64] = {
        0x10, 0xf1, 0xe7, 0xe4, 0xd1, 0x3b, 0x59, 0x15, 0x50, 0x0f, 0xdd, 0x1f, 0xa3,
        0x20, 0x71, 0xc4, 0xc7, 0xd1, 0xf4, 0xc7, 0x33, 0xc0, 0x68, 0x03, 0x04, 0x22,
        0xaa, 0x9a, 0xc3, 0xd4, 0x6c, 0x4e, 0xd2, 0x82, 0x64, 0x46, 0x07, 0x9f, 0xaa,
        0x09, 0x14, 0xc2, 0xd7, 0x05, 0xd9, 0x8b, 0x02, 0xa2, 0xb5, 0x12, 0x9c, 0xd1,
        0xde, 0x16, 0x4e, 0xb9, 0xcb, 0xd0, 0x83, 0xe8, 0xa2, 0x50, 0x3c, 0x4e};
    static const uint32_t nonce[3] = {0x09000000, 0x4a000000, 0};
    uint8_t bytes[CSPRNG_KEY], block[64];
    uint32_t key[CSPRNG_KEY / 4];
    for (unsigned i = 0; i < sizeof(bytes); i++)
        bytes[i] = (uint8_t)i;
    memcpy(key, bytes, sizeof(key));
    chacha20_block(key, 1, nonce, block);
    assert_memory_equal(block, expected, sizeof(expected));
}

static void test_same_key_same_numbers(void **state)
{
    static const uint8_t one[CSPRNG_KEY] = {1}, other[CSPRNG_KEY] = {2};
    struct csprng a, b, c;
    csprng_init(&a, one);
    csprng_init(&b, one);
    csprng_init(&c, other);
    for (unsigned i = 0; i < 1000; i++) {
        uint8_t x[16], y[16], z[16];
        csprng_get(&a, x, sizeof(x));
        csprng_get(&b, y, sizeof(y));
        csprng_get(&c, z, sizeof(z));
        assert_memory_equal(x, y, sizeof(x));
        assert_memory_not_equal(x, z, sizeof(x));
    }
}

/* Whatever the sizes, no run of bytes is given out twice, across refills. */
static void test_no_number_comes_twice(void **state)
{
    static const uint8_t key[CSPRNG_KEY] = {7};
    static uint64_t seen[4096];
    struct csprng r;
    csprng_init(&r, key);
    for (unsigned i = 0; i < 4096; i++) {
        uint8_t skipped[64];
        csprng_get(&r, &seen[i], sizeof(seen[i]));
        csprng_get(&r, skipped, i % 65);
        for (unsigned k = 0; k < i; k++)
            assert_true(seen[k] != seen[i]);
    }
}

static void test_what_was_given_is_wiped(void **state)
{
    static const uint8_t key[CSPRNG_KEY] = {9};
    struct csprng r;
    uint8_t x[64];
    csprng_init(&r, key);
    for (unsigned i = 0; i < 100; i++) {
        csprng_get(&r, x, sizeof(x));
        for (size_t at = 0; at + sizeof(x) <= sizeof(r); at++)
            assert_memory_not_equal((const uint8_t *)&r + at, x, sizeof(x));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_block_is_as_in_the_rfc),
        cmocka_unit_test(test_same_key_same_numbers),
        cmocka_unit_test(test_no_number_comes_twice),
        cmocka_unit_test(test_what_was_given_is_wiped),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
