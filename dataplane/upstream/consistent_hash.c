/* By a hash of something that the request has: the same thing goes to the same endpoint, on every
 * core and every host.
 *
 * The Maglev table is the snapshot's and knows all endpoints that aren't backups, whatever their
 * health. What would go to one that isn't used now is hashed again; everything else stays where it
 * was, and comes back to where it was afterwards. */
#include <math.h>

#include "dataplane/upstream/upstream.h"
#include "runtime/hash.h"

#define PROBES 8 /* with half of the endpoints unused, one request in 256 needs more */

static struct endpoint *look_up(const struct balance *b, uint64_t hash)
{
    uint32_t at = (uint32_t)((hash >> 32) * b->table_size >> 32);
    return b->t.by_index[b->table[at]];
}

/* Weighted rendezvous over those used: for backups, and when nearly all others are gone. */
static struct endpoint *rendezvous(const struct balance *b, uint64_t hash)
{
    struct endpoint *best = b->t.used[0];
    double least = INFINITY;
    for (uint32_t i = 0; i < b->n; i++) {
        struct endpoint *ep = b->t.used[i];
        uint64_t h = hash_mix(hash ^ hash_mix((uint64_t)ep->addr << 16 | ep->port));
        double lot = -log(((double)(h >> 12) + 0.5) / 0x1p52) / ep->weight;
        if (lot < least) {
            least = lot;
            best = ep;
        }
    }
    return best;
}

static struct endpoint *pick(struct balance *b, struct rng *rng, uint64_t hash)
{
    for (unsigned i = 0; b->table && !b->backups && i < PROBES; i++) {
        struct endpoint *ep = look_up(b, hash);
        if (ep->place_ != BALANCE_NOWHERE)
            return ep;
        hash = hash_mix(hash + 1);
    }
    return rendezvous(b, hash);
}

const struct balancer balance_consistent_hash = {"consistent_hash", NULL, pick};
