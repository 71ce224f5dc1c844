/* A flow's four-tuple as its local end sees it, and the keyed hashes of it. Every hash is
 * SipHash-2-4 with the instance's secret, so that nobody outside can aim for collisions, guess
 * initial sequence numbers or steer flows to one core. */
#ifndef MILLRACE_DATAPLANE_TCP_TUPLE_H
#define MILLRACE_DATAPLANE_TCP_TUPLE_H

#include <stdbool.h>
#include <stdint.h>
#include <string.h>

/* All in network order. */
struct tuple {
    uint32_t local_addr, peer_addr;
    uint16_t local_port, peer_port;
};

enum tuple_use { /* keeps the hashes of one secret apart */
                 TUPLE_TABLE,
                 TUPLE_ISN,
                 TUPLE_TIMESTAMP,
                 TUPLE_OWNER,
};

struct tuple_key {
    uint64_t k[2];
};

static inline struct tuple_key tuple_key_from(const uint8_t secret[16])
{
    struct tuple_key key;
    memcpy(&key, secret, sizeof(key));
    return key;
}

static inline bool tuple_equal(const struct tuple *a, const struct tuple *b)
{
    return a->local_addr == b->local_addr && a->peer_addr == b->peer_addr &&
           a->local_port == b->local_port && a->peer_port == b->peer_port;
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

static inline void sip_absorb(uint64_t v[4], uint64_t word)
{
    v[3] ^= word;
    sip_round(v);
    sip_round(v);
    v[0] ^= word;
}

/* SipHash-2-4 of the 16 bytes a, b (little-endian words). */
static inline uint64_t siphash16(struct tuple_key key, uint64_t a, uint64_t b)
{
    uint64_t v[4] = {key.k[0] ^ 0x736f6d6570736575, key.k[1] ^ 0x646f72616e646f6d,
                     key.k[0] ^ 0x6c7967656e657261, key.k[1] ^ 0x7465646279746573};
    sip_absorb(v, a);
    sip_absorb(v, b);
    sip_absorb(v, 16ull << 56);
    v[2] ^= 0xff;
    for (unsigned i = 0; i < 4; i++)
        sip_round(v);
    return v[0] ^ v[1] ^ v[2] ^ v[3];
}

static inline uint64_t tuple_hash(struct tuple_key key, const struct tuple *t, enum tuple_use use)
{
    uint64_t addrs = (uint64_t)t->local_addr << 32 | t->peer_addr;
    uint64_t ports = (uint64_t)use << 32 | (uint32_t)t->local_port << 16 | t->peer_port;
    return siphash16(key, addrs, ports);
}

#endif
