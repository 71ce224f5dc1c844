/* Objects by a key of bytes: a hash table of fixed width with chains through the objects, under a
 * keyed hash, so that keys from outside cannot be chosen to collide. Thread: single owner. */
#ifndef MILLRACE_RUNTIME_KEY_TABLE_H
#define MILLRACE_RUNTIME_KEY_TABLE_H

#include <stddef.h>
#include <stdint.h>

#include "runtime/siphash.h"

/* Embed in the object; set key and key_len, which must stay as they are while it is in. */
struct key_node {
    const void *key;
    uint16_t key_len;
    struct key_node *next_;
    uint64_t hash_;
};

struct key_table {
    struct key_node **buckets_;
    uint32_t mask_;
    uint32_t count;
    struct siphash_key secret_;
};

/* Sized for `expected` objects, allocated at once; it holds more, with longer chains. 0 or
 * -ENOMEM. */
int key_table_init(struct key_table *t, uint32_t expected, struct siphash_key secret);

/* Leaves the objects alone. */
void key_table_fini(struct key_table *t);

/* NULL when there is none. */
struct key_node *key_table_find(const struct key_table *t, const void *key, size_t len);

/* The key must not be in. */
void key_table_insert(struct key_table *t, struct key_node *n);

/* It must be in. */
void key_table_remove(struct key_table *t, struct key_node *n);

#endif
