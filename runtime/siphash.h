/* SipHash-2-4: a keyed hash, for tables whose keys come from outside. Who does not know the key can
 * neither aim for collisions nor foresee a hash. */
#ifndef MILLRACE_RUNTIME_SIPHASH_H
#define MILLRACE_RUNTIME_SIPHASH_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

struct siphash_key {
    uint64_t k[2];
};

static inline struct siphash_key siphash_key_from(const uint8_t secret[16])
{
    struct siphash_key key;
    memcpy(&key, secret, sizeof(key));
    return key;
}

static inline uint64_t sip_rotl(uint64_t x, unsigned b)
{
    return x << b | x >> (64 - b);
}

static inline void sip_round(uint64_t v[4])
{
    v[0] += v[1];
    v[1] = sip_rotl(v[1], 13) ^ v[0];
    v[0] = sip_rotl(v[0], 32);
    v[2] += v[3];
    v[3] = sip_rotl(v[3], 16) ^ v[2];
    v[0] += v[3];
    v[3] = sip_rotl(v[3], 21) ^ v[0];
    v[2] += v[1];
    v[1] = sip_rotl(v[1], 17) ^ v[2];
    v[2] = sip_rotl(v[2], 32);
}

static inline void sip_begin(uint64_t v[4], struct siphash_key key)
{
    v[0] = key.k[0] ^ 0x736f6d6570736575;
    v[1] = key.k[1] ^ 0x646f72616e646f6d;
    v[2] = key.k[0] ^ 0x6c7967656e657261;
    v[3] = key.k[1] ^ 0x7465646279746573;
}

static inline void sip_absorb(uint64_t v[4], uint64_t word)
{
    v[3] ^= word;
    sip_round(v);
    sip_round(v);
    v[0] ^= word;
}

static inline uint64_t sip_end(uint64_t v[4])
{
    v[2] ^= 0xff;
    for (unsigned i = 0; i < 4; i++)
        sip_round(v);
    return v[0] ^ v[1] ^ v[2] ^ v[3];
}

/* Of the 16 bytes a, b (little-endian words). */
static inline uint64_t siphash16(struct siphash_key key, uint64_t a, uint64_t b)
{
    uint64_t v[4];
    sip_begin(v, key);
    sip_absorb(v, a);
    sip_absorb(v, b);
    sip_absorb(v, 16ull << 56);
    return sip_end(v);
}

/* Of any bytes; the same as siphash16() for 16 of them. */
static inline uint64_t siphash(struct siphash_key key, const void *data, size_t len)
{
    const unsigned char *at = data;
    uint64_t v[4], word, last = (uint64_t)len << 56;
    sip_begin(v, key);
    for (size_t words = len / 8; words > 0; words--, at += 8) {
        memcpy(&word, at, 8);
        sip_absorb(v, word);
    }
    for (size_t i = 0; i < len % 8; i++)
        last |= (uint64_t)at[i] << (8 * i);
    sip_absorb(v, last);
    return sip_end(v);
}

#endif
