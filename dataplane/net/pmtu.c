#include "dataplane/net/pmtu.h"

#include <string.h>

#include "dataplane/net/net_priv.h"

#define PMTU_AGE_NS (600 * NET_NS_PER_SEC) /* RFC 1191 §6.3 */

static struct pmtu_entry *set_of(const struct pmtu_cache *c, uint32_t dst)
{
    struct rng h = {c->key ^ dst};
    return (struct pmtu_entry *)c->sets[rng_next(&h) % PMTU_SETS];
}

void pmtu_init(struct pmtu_cache *c, uint64_t key)
{
    memset(c, 0, sizeof *c);
    c->key = key;
    c->next_expiry = UINT64_MAX;
}

uint16_t pmtu_get(const struct pmtu_cache *c, uint32_t dst, uint64_t now)
{
    if (c->next_expiry == UINT64_MAX)
        return 0;
    const struct pmtu_entry *set = set_of(c, dst);
    for (unsigned i = 0; i < PMTU_WAYS; i++)
        if (set[i].mtu && set[i].dst == dst && set[i].expires_at > now)
            return set[i].mtu;
    return 0;
}

bool pmtu_set(struct pmtu_cache *c, uint32_t dst, uint16_t mtu, uint64_t now)
{
    struct pmtu_entry *set = set_of(c, dst), *e = &set[0];
    for (unsigned i = 0; i < PMTU_WAYS; i++) {
        if (set[i].mtu && set[i].dst == dst) {
            e = &set[i];
            if (mtu >= e->mtu && e->expires_at > now)
                return false;
            break;
        }
        if (!set[i].mtu || (e->mtu && set[i].expires_at < e->expires_at))
            e = &set[i];
    }
    *e = (struct pmtu_entry){.dst = dst, .mtu = mtu, .expires_at = now + PMTU_AGE_NS};
    if (e->expires_at < c->next_expiry)
        c->next_expiry = e->expires_at;
    return true;
}

bool pmtu_expire(struct pmtu_cache *c, uint64_t now)
{
    bool any = false;
    uint64_t next = UINT64_MAX;
    for (unsigned i = 0; i < PMTU_SETS * PMTU_WAYS; i++) {
        struct pmtu_entry *e = &c->sets[i / PMTU_WAYS][i % PMTU_WAYS];
        if (!e->mtu)
            continue;
        if (e->expires_at <= now) {
            e->mtu = 0;
            any = true;
        } else if (e->expires_at < next) {
            next = e->expires_at;
        }
    }
    c->next_expiry = next;
    return any;
}
