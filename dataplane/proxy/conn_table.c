#include "dataplane/proxy/conn_table.h"

#include <assert.h>
#include <stdlib.h>

static struct conn_slot *slot(const struct conn_table *t, uint32_t number)
{
    assert(number >= 1 && number <= t->made_);
    return &t->chunks_[(number - 1) / CONN_CHUNK][(number - 1) % CONN_CHUNK];
}

static void give_back(struct conn_table *t, uint32_t number)
{
    *slot(t, number) = (struct conn_slot){NULL, t->free_};
    t->free_ = number;
}

static void grow(struct conn_table *t)
{
    uint32_t chunk = t->made_ / CONN_CHUNK;
    if (chunk == CONN_CHUNKS)
        return;
    t->chunks_[chunk] = malloc(CONN_CHUNK * sizeof(struct conn_slot));
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
    struct conn_slot *s = slot(t, number);
    t->free_ = s->next;
    s->conn = c;
    return number;
}

void conn_table_take(struct conn_table *t, uint32_t number)
{
    if (number)
        give_back(t, number);
}

struct conn *conn_table_at(const struct conn_table *t, uint32_t number)
{
    return slot(t, number)->conn;
}

void conn_table_fini(struct conn_table *t)
{
    for (uint32_t i = 0; i < t->made_ / CONN_CHUNK; i++)
        free(t->chunks_[i]);
    t->made_ = t->free_ = 0;
}
