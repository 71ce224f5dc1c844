/* A hash of bytes that is the same on every core, in every process and on every host: what has to
 * find the same place again uses it. It has no key, so a table that strangers fill needs another.
 */
#ifndef MILLRACE_RUNTIME_HASH_H
#define MILLRACE_RUNTIME_HASH_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

/* A bijection in which every bit of x counts for every bit of the result (splitmix64's end). */
static inline uint64_t hash_mix(uint64_t x)
{
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ull;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebull;
    return x ^ (x >> 31);
}

static inline uint64_t hash_bytes(const void *bytes, size_t len, uint64_t seed)
{
    const unsigned char *p = bytes;
    uint64_t h = seed ^ (len * 0x9e3779b97f4a7c15ull), word;

    for (; len >= 8; p += 8, len -= 8) {
        memcpy(&word, p, 8);
        h = hash_mix(h ^ word);
    }
    word = 0;
    memcpy(&word, p, len);
    return hash_mix(h ^ word);
}

#endif
