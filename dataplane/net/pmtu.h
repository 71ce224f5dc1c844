/* Learned path MTUs (RFC 1191): a small set-associative cache that forgets after ten minutes, so
 * that a path that has become wider is found again. Full sets replace the entry nearest to its end.
 *
 * Private to net/.
 */
#ifndef MILLRACE_DATAPLANE_NET_PMTU_H
#define MILLRACE_DATAPLANE_NET_PMTU_H

#include <stdbool.h>
#include <stdint.h>

#define PMTU_SETS 256
#define PMTU_WAYS 4

struct pmtu_entry {
    uint64_t expires_at;
    uint32_t dst; /* network order */
    uint16_t mtu; /* 0: free */
};

struct pmtu_cache {
    uint64_t key;
    uint64_t next_expiry; /* of any entry, or earlier; UINT64_MAX when empty */
    struct pmtu_entry sets[PMTU_SETS][PMTU_WAYS];
};

void pmtu_init(struct pmtu_cache *c, uint64_t key);

/* 0 when nothing is known. */
uint16_t pmtu_get(const struct pmtu_cache *c, uint32_t dst, uint64_t now);

/* True when it is news. */
bool pmtu_set(struct pmtu_cache *c, uint32_t dst, uint16_t mtu, uint64_t now);

/* Forgets what has expired; true if anything did. */
bool pmtu_expire(struct pmtu_cache *c, uint64_t now);

#endif
