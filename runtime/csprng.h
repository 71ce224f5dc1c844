/* Random numbers that nobody outside can foretell, without a system call: ChaCha20 (RFC 8439) as a
 * generator that forgets. Each refill's first bytes become the next key, so what is read from
 * memory later tells nothing about numbers already given out.
 *
 * The same key gives the same numbers: a key belongs to one generator. Thread: single owner.
 */
#ifndef MILLRACE_RUNTIME_CSPRNG_H
#define MILLRACE_RUNTIME_CSPRNG_H

#include <stddef.h>
#include <stdint.h>

#define CSPRNG_KEY 32

struct csprng {
    uint32_t key_[CSPRNG_KEY / 4];
    uint8_t bytes_[4 * 64]; /* those before `used_` are given out, and wiped */
    uint32_t used_;
};

void csprng_init(struct csprng *r, const uint8_t key[CSPRNG_KEY]);

/* n <= 64. */
void csprng_get(struct csprng *r, void *to, size_t n);

/* The block function (RFC 8439 §2.3). */
void chacha20_block(const uint32_t key[CSPRNG_KEY / 4], uint32_t counter, const uint32_t nonce[3],
                    uint8_t ret_block[64]);

#endif
