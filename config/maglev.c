#include <stdlib.h>
#include <string.h>
#include "config/maglev.h"
#include "runtime/hash.h"

#define FREE UINT16_MAX

/* One endpoint's walk over the places: a permutation of them, since the size is prime. */
struct walk {
    uint32_t at, skip;
    uint32_t weight, credit;
    uint16_t index;
    struct config_addr address;
};

bool maglev_is_prime(uint32_t n)
{
    for (uint32_t i = 2; i <= n / i; i++)
        if (n % i == 0)
            return false;
    return n > 1;
}

static uint64_t address_hash(const struct config_addr *a, uint64_t seed)
{
    return hash_mix(seed ^ ((uint64_t)a->addr << 16 | a->port));
}

static int by_address(const void *a, const void *b)
{
    const struct walk *x = a, *y = b;

    if (x->address.addr != y->address.addr)
        return x->address.addr < y->address.addr ? -1 : 1;
    return (x->address.port > y->address.port) - (x->address.port < y->address.port);
}

static size_t walks_make(const struct config_upstream *u, struct walk *walks)
{
    size_t n = 0;

    for (size_t i = 0; i < u->nendpoints; i++) {
        const struct config_endpoint *e = &u->endpoints[i];

        if (e->backup || !e->weight)
            continue;
        walks[n++] = (struct walk){
            .at = address_hash(&e->address, 0x6d61676c6576) % u->hash.size,
            .skip = address_hash(&e->address, 0x736b6970) % (u->hash.size - 1) + 1,
            .weight = e->weight,
            .index = i,
            .address = e->address,
        };
    }
    qsort(walks, n, sizeof(*walks), by_address);
    return n;
}

static void take_place(struct walk *w, uint16_t *table, uint32_t size)
{
    while (table[w->at] != FREE)
        w->at = w->at + w->skip < size ? w->at + w->skip : w->at + w->skip - size;
    table[w->at] = w->index;
}

/* The heaviest takes a place in every round, the others in as many rounds as their weight says. */
static void fill(struct walk *walks, size_t n, uint16_t *table, uint32_t size)
{
    uint32_t heaviest = 0;

    for (size_t i = 0; i < n; i++)
        heaviest = walks[i].weight > heaviest ? walks[i].weight : heaviest;
    memset(table, 0xff, size * sizeof(*table));
    for (uint32_t filled = 0; filled < size;) {
        for (size_t i = 0; i < n && filled < size; i++) {
            walks[i].credit += walks[i].weight;
            if (walks[i].credit < heaviest)
                continue;
            walks[i].credit -= heaviest;
            take_place(&walks[i], table, size);
            filled++;
        }
    }
}

bool maglev_build(const struct config_upstream *u, struct arena *a, struct arena *scratch,
                  const uint16_t **ret_table)
{
    struct walk *walks = arena_array(scratch, u->nendpoints, sizeof(*walks));
    uint16_t *table = NULL;
    size_t n;

    if (!walks)
        return false;
    n = walks_make(u, walks);
    if (n) {
        table = arena_array(a, u->hash.size, sizeof(*table));
        if (!table)
            return false;
        fill(walks, n, table, u->hash.size);
    }
    *ret_table = table;
    return true;
}
