/* Objects by four-tuple: an open-addressed table of (tag, pointer) words with linear probing, so a
 * look-up touches one line of the table and, when the tag fits, one object.
 *
 * The table borrows its objects; each holds its struct tuple at the same offset. Thread: single
 * owner. */
#ifndef MILLRACE_DATAPLANE_TCP_TABLE_H
#define MILLRACE_DATAPLANE_TCP_TABLE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "dataplane/tcp/tuple.h"

struct table {
    uint64_t *words_; /* 0: empty; else 16 bits of hash over 48 of address */
    uint32_t mask_;
    uint32_t max_;
    uint32_t count;
    uint32_t tuple_off_;
    struct siphash_key key_;
};

/* Room for `max` objects, allocated at once. -ENOMEM. */
int table_init(struct table *t, uint32_t max, size_t tuple_off, struct siphash_key key);
void table_fini(struct table *t);

/* The same for every table with the same key. */
static inline uint64_t table_hash(const struct table *t, const struct tuple *tuple)
{
    return tuple_hash(t->key_, tuple, TUPLE_TABLE);
}

/* NULL when there is none. `hash` is table_hash() of the tuple. */
void *table_find(const struct table *t, const struct tuple *tuple, uint64_t hash);

/* The tuple must not be there yet. -ENOSPC at the bound. */
int table_insert(struct table *t, void *object, uint64_t hash);

/* The object must be there. */
void table_remove(struct table *t, const void *object);

/* Walks all objects: start with *pos 0, NULL at the end. The table must not change meanwhile. */
void *table_next(const struct table *t, uint32_t *pos);

#endif
