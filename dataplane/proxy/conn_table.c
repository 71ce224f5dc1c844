#include "dataplane/proxy/conn_table.h"

#include <assert.h>
#include <stdlib.h>

/* A slot holds a connection's address, or the number of the next free slot marked by its lowest
 * bit, which no address has. */
static uintptr_t *slot(const struct conn_table *t, uint32_t number)
{
    assert(number >= 1 && number <= t->made_);
    return &t->chunks_[(number - 1) / CONN_CHUNK][(number - 1) % CONN_CHUNK];
}

static void give_back(struct conn_table *t, uint32_t number)
{
    *slot(t, number) = (uintptr_t)t->free_ << 1 | 1;
    t->free_ = number;
}

static void grow(struct conn_table *t)
{
    uint32_t chunk = t->made_ / CONN_CHUNK;
    if (chunk == CONN_CHUNKS)
        return;
    t->chunks_[chunk] = malloc(CONN_CHUNK * sizeof(uintptr_t));
    if (!t->chunks_[chunk])
        return;
    t->made_ += CONN_CHUNK;
    for (uint32_t i = 0; i < CONN_CHUNK; i++)
        give_back(t, t->made_ - i);
}

uint32_t conn_table_put(struct conn_table *t, struct conn *c)
{
    if (!t->free_)
        grow(t);
    uint32_t number = t->free_;
    if (!number)
        return 0;
    uintptr_t *s = slot(t, number);
    t->free_ = (uint32_t)(*s >> 1);
    *s = (uintptr_t)c;
    return number;
}

void conn_table_take(struct conn_table *t, uint32_t number)
{
    if (number)
        give_back(t, number);
}

struct conn *conn_table_at(const struct conn_table *t, uint32_t number)
{
    uintptr_t s = *slot(t, number);
    return s & 1 ? NULL : (struct conn *)s;
}

void conn_table_fini(struct conn_table *t)
{
    for (uint32_t i = 0; i < t->made_ / CONN_CHUNK; i++)
        free(t->chunks_[i]);
    t->made_ = t->free_ = 0;
}
