#include "runtime/csprng.h"

#include <assert.h>
#include <endian.h>
#include <string.h>

static uint32_t rotl(uint32_t x, unsigned n)
{
    return x << n | x >> (32 - n);
}

static void quarter(uint32_t *a, uint32_t *b, uint32_t *c, uint32_t *d)
{
    *a += *b;
    *d = rotl(*d ^ *a, 16);
    *c += *d;
    *b = rotl(*b ^ *c, 12);
    *a += *b;
    *d = rotl(*d ^ *a, 8);
    *c += *d;
    *b = rotl(*b ^ *c, 7);
}

static void double_round(uint32_t x[16])
{
    for (unsigned i = 0; i < 4; i++)
        quarter(&x[i], &x[4 + i], &x[8 + i], &x[12 + i]);
    for (unsigned i = 0; i < 4; i++)
        quarter(&x[i], &x[4 + (i + 1) % 4], &x[8 + (i + 2) % 4], &x[12 + (i + 3) % 4]);
}

void chacha20_block(const uint32_t key[CSPRNG_KEY / 4], uint32_t counter, const uint32_t nonce[3],
                    uint8_t ret_block[64])
{
    uint32_t start[16] = {0x61707865, 0x3320646e, 0x79622d32, 0x6b206574}, x[16];
    memcpy(start + 4, key, CSPRNG_KEY);
    start[12] = counter;
    memcpy(start + 13, nonce, 12);
    memcpy(x, start, sizeof(x));
    for (unsigned i = 0; i < 10; i++)
        double_round(x);
    for (unsigned i = 0; i < 16; i++) {
        uint32_t word = htole32(x[i] + start[i]);
        memcpy(ret_block + i * sizeof(word), &word, sizeof(word));
    }
}

static void refill(struct csprng *r)
{
    static const uint32_t nonce[3];
    for (uint32_t i = 0; i < sizeof(r->bytes_) / 64; i++)
        chacha20_block(r->key_, i, nonce, r->bytes_ + i * 64);
    memcpy(r->key_, r->bytes_, sizeof(r->key_));
    memset(r->bytes_, 0, sizeof(r->key_));
    r->used_ = sizeof(r->key_);
}

void csprng_init(struct csprng *r, const uint8_t key[CSPRNG_KEY])
{
    memcpy(r->key_, key, sizeof(r->key_));
    refill(r);
}

void csprng_get(struct csprng *r, void *to, size_t n)
{
    assert(n <= 64);
    if (r->used_ + n > sizeof(r->bytes_))
        refill(r);
    memcpy(to, r->bytes_ + r->used_, n);
    memset(r->bytes_ + r->used_, 0, n);
    r->used_ += (uint32_t)n;
}
