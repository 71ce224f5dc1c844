#include "dataplane/route/limit.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include <rte_byteorder.h>
#include <rte_pause.h>

#include "runtime/siphash.h"

#define WAYS      16u
#define ATTEMPTS  1000u        /* a set that others change all the time */
#define COUNTS    (1ull << 63) /* of a key: the value counts connections */
#define TENTATIVE (1ull << 63) /* of a value: somebody is about to take the cell; then a ticket */

/* key 0: never used. */
struct cell {
    _Alignas(16) uint64_t key;
    uint64_t value;
};
_Static_assert(sizeof(struct cell) * WAYS / 4 == LIMIT_CLIENT_BYTES, "a quarter full at the most");

__extension__ typedef unsigned __int128 pair;

struct limit_table {
    struct siphash_key secret;
    uint64_t sets;
    struct cell *cells;
};

/* A key's cells, in the order in which it looks at them. */
struct set {
    struct cell *cells;
    unsigned first;
};

struct limit_table *limit_table_new(uint32_t clients, const uint8_t secret[16])
{
    struct limit_table *t = malloc(sizeof(*t));
    if (!t)
        return NULL;
    t->secret = siphash_key_from(secret);
    t->sets = (clients + WAYS / 4 - 1) / (WAYS / 4);
    size_t size = t->sets * WAYS * sizeof(struct cell);
    t->cells = aligned_alloc(64, size);
    if (!t->cells) {
        free(t);
        return NULL;
    }
    memset(t->cells, 0, size);
    return t;
}

void limit_table_free(struct limit_table *t)
{
    if (!t)
        return;
    free(t->cells);
    free(t);
}

void client_limits_init(struct client_limits *l, struct limit_table *table, unsigned core)
{
    *l = (struct client_limits){.table = table, .ticket_ = (uint64_t)core << 47};
}

/* The loads pair with cell_swap(): its success is a full barrier and publishes both halves. What
 * was loaded is confirmed by the swap, so that halves of two different contents do no harm. */
static struct cell cell_load(const struct cell *c)
{
    return (struct cell){.key = __atomic_load_n(&c->key, __ATOMIC_SEQ_CST),
                         .value = __atomic_load_n(&c->value, __ATOMIC_SEQ_CST)};
}

static pair as_pair(const struct cell *c)
{
    return (pair)c->value << 64 | c->key;
}

static bool cell_swap(struct cell *c, struct cell from, struct cell to)
{
    return __sync_bool_compare_and_swap((pair *)c, as_pair(&from), as_pair(&to));
}

static struct cell make(uint64_t key, uint64_t value)
{
    return (struct cell){.key = key, .value = value};
}

static struct set set_of(const struct limit_table *t, uint64_t key)
{
    uint64_t h = siphash16(t->secret, key, 0);
    uint64_t set = ((h >> 32) * t->sets) >> 32;
    return (struct set){t->cells + set * WAYS, (unsigned)h % WAYS};
}

static struct cell *way(const struct set *s, unsigned i)
{
    return s->cells + (s->first + i) % WAYS;
}

static bool still_has(const struct cell *c, uint64_t key)
{
    return __atomic_load_n(&c->key, __ATOMIC_SEQ_CST) == key;
}

/* The value is the key's own, even if it isn't followed by a swap. */
static struct cell *find(const struct set *s, uint64_t key, struct cell *ret_seen)
{
    for (unsigned i = 0; i < WAYS; i++) {
        struct cell *c = way(s, i);
        *ret_seen = cell_load(c);
        if (ret_seen->key == key && !(ret_seen->value & TENTATIVE) && still_has(c, key))
            return c;
    }
    return NULL;
}

static bool is_free(const struct cell *c, uint64_t now)
{
    return c->key == 0 || (c->key & COUNTS ? c->value == 0 : c->value <= now);
}

static bool may_give_way(const struct cell *c)
{
    return !(c->key & COUNTS) && !(c->value & TENTATIVE);
}

/* A cell for a newcomer: a free one, else the rate that has least to say. */
static struct cell *choose(const struct set *s, uint64_t now, struct cell *ret_seen)
{
    struct cell *best = NULL;
    for (unsigned i = 0; i < WAYS; i++) {
        struct cell *c = way(s, i), seen = cell_load(c);
        if (is_free(&seen, now)) {
            *ret_seen = seen;
            return c;
        }
        if (may_give_way(&seen) && (!best || seen.value < ret_seen->value)) {
            best = c;
            *ret_seen = seen;
        }
    }
    return best;
}

/* With `mine` marked as about to be taken: nobody else has the key, or is about to take a cell for
 * it. Those who are lose it, and try again; so of two that come at once at most one sees nobody
 * else after its own mark. */
static bool is_alone(const struct set *s, const struct cell *mine, uint64_t key)
{
    for (unsigned i = 0; i < WAYS; i++) {
        struct cell *c = way(s, i), seen = cell_load(c);
        if (c == mine)
            continue;
        while (seen.key == key) {
            if (!(seen.value & TENTATIVE))
                return false;
            if (cell_swap(c, seen, make(0, 0)))
                break;
            seen = cell_load(c);
        }
    }
    return true;
}

enum insertion { INSERTED, AGAIN, FULL };

/* Puts the key in with `value`, unless somebody is faster. */
static enum insertion insert(struct client_limits *l, const struct set *s, uint64_t key,
                             uint64_t value, uint64_t now)
{
    struct cell seen, *mine = choose(s, now, &seen);
    if (!mine)
        return FULL;
    l->ticket_ = (l->ticket_ & 0xffffull << 47) | ((l->ticket_ + 1) & ((1ull << 47) - 1));
    struct cell mark = make(key, TENTATIVE | l->ticket_);
    bool gives_way = !is_free(&seen, now);
    if (!cell_swap(mine, seen, mark))
        return AGAIN;
    l->forgotten += gives_way;
    if (!is_alone(s, mine, key)) {
        cell_swap(mine, mark, make(0, 0)); /* if it still is mine */
        return AGAIN;
    }
    return cell_swap(mine, mark, make(key, value)) ? INSERTED : AGAIN;
}

bool client_limits_take(struct client_limits *l, const struct config_limit *limit, uint32_t addr,
                        uint64_t now, uint64_t *ret_wait)
{
    uint64_t key = (uint64_t)limit->id << 32 | addr;
    struct set s = set_of(l->table, key);
    for (unsigned i = 0; i < ATTEMPTS; i++) {
        struct cell seen, *c = find(&s, key, &seen);
        if (!c) {
            enum insertion r = insert(l, &s, key, now + limit->interval, now);
            if (r == INSERTED)
                return true;
            if (r == FULL)
                break;
        } else if (seen.value > now + limit->slack) {
            *ret_wait = seen.value - limit->slack - now;
            return false;
        } else {
            uint64_t from = seen.value > now ? seen.value : now;
            if (cell_swap(c, seen, make(key, from + limit->interval)))
                return true;
        }
        rte_pause();
    }
    l->untracked++;
    return true;
}

bool client_limits_enter(struct client_limits *l, uint32_t id, uint32_t addr, uint32_t max,
                         uint64_t now)
{
    uint64_t key = COUNTS | (uint64_t)id << 32 | addr;
    struct set s = set_of(l->table, key);
    for (unsigned i = 0; i < ATTEMPTS; i++) {
        struct cell seen, *c = find(&s, key, &seen);
        if (!c) {
            enum insertion r = insert(l, &s, key, 1, now);
            if (r == INSERTED)
                return true;
            if (r == FULL)
                break;
        } else if (seen.value >= max) {
            return false;
        } else if (cell_swap(c, seen, make(key, seen.value + 1))) {
            return true;
        }
        rte_pause();
    }
    l->untracked++;
    return false;
}

/* A cell that counts is nobody else's until it is at 0. */
void client_limits_leave(struct client_limits *l, uint32_t id, uint32_t addr)
{
    uint64_t key = COUNTS | (uint64_t)id << 32 | addr;
    struct set s = set_of(l->table, key);
    struct cell seen, *c = find(&s, key, &seen);
    assert(c && seen.value > 0);
    while (!cell_swap(c, seen, make(key, seen.value - 1)))
        seen = cell_load(c);
}

uint32_t client_limits_count(const struct client_limits *l, uint32_t id, uint32_t addr)
{
    uint64_t key = COUNTS | (uint64_t)id << 32 | addr;
    struct set s = set_of(l->table, key);
    struct cell seen;
    return find(&s, key, &seen) ? (uint32_t)seen.value : 0;
}

uint32_t client_limits_ip6(const struct client_limits *l, const uint8_t ip6[16])
{
    uint64_t net;
    memcpy(&net, ip6, sizeof(net));
    uint32_t h = (uint32_t)siphash16(l->table->secret, net, 6);
    return rte_cpu_to_be_32(0xf0000000u | h >> 4);
}
