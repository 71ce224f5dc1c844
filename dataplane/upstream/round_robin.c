/* In turn. With unequal weights each endpoint comes round at an even distance of its own, 1 /
 * weight in a time that only picks move: a heap has the one that is due next. Where the turn starts
 * is random, so that cores and processes don't go in step. */
#include "dataplane/upstream/upstream.h"

#define ROUND (1ull << 32) /* the distance of weight 1 */

/* Times wrap around; no two are further apart than a round. */
static bool is_earlier(const struct balance *b, uint16_t x, uint16_t y)
{
    int64_t d = (int64_t)(b->t.due[x] - b->t.due[y]);
    return d < 0 || (d == 0 && x < y);
}

static void sift_down(struct balance *b, uint32_t at)
{
    uint16_t *heap = b->t.heap, place = heap[at];
    for (uint32_t child; (child = 2 * at + 1) < b->n; at = child) {
        if (child + 1 < b->n && is_earlier(b, heap[child + 1], heap[child]))
            child++;
        if (is_earlier(b, place, heap[child]))
            break;
        heap[at] = heap[child];
    }
    heap[at] = place;
}

static void rebuild(struct balance *b, struct rng *rng)
{
    b->next = rng_below(rng, b->n);
    if (!b->weighted)
        return;
    for (uint32_t i = 0; i < b->n; i++) {
        b->t.due[i] = rng_next(rng) % (ROUND / b->t.used[i]->weight);
        b->t.heap[i] = (uint16_t)i;
    }
    for (uint32_t i = b->n / 2; i-- > 0;)
        sift_down(b, i);
}

static struct endpoint *pick(struct balance *b, struct rng *rng, uint64_t hash)
{
    if (!b->weighted) {
        b->next = b->next + 1 < b->n ? b->next + 1 : 0;
        return b->t.used[b->next];
    }
    struct endpoint *ep = b->t.used[b->t.heap[0]];
    b->t.due[b->t.heap[0]] += ROUND / ep->weight;
    sift_down(b, 0);
    return ep;
}

const struct balancer balance_round_robin = {"round_robin", rebuild, pick};
