#include "runtime/key_table.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

int key_table_init(struct key_table *t, uint32_t expected, struct siphash_key secret)
{
    uint32_t size = 16;
    while (size < expected && size < 1u << 31)
        size *= 2;
    *t = (struct key_table){.mask_ = size - 1, .secret_ = secret};
    t->buckets_ = calloc(size, sizeof(struct key_node *));
    return t->buckets_ ? 0 : -ENOMEM;
}

void key_table_fini(struct key_table *t)
{
    free(t->buckets_);
    *t = (struct key_table){0};
}

static struct key_node **bucket_of(const struct key_table *t, uint64_t hash)
{
    return &t->buckets_[(uint32_t)hash & t->mask_];
}

struct key_node *key_table_find(const struct key_table *t, const void *key, size_t len)
{
    if (t->count == 0)
        return NULL;
    uint64_t hash = siphash(t->secret_, key, len);
    for (struct key_node *n = *bucket_of(t, hash); n; n = n->next_) {
        if (n->hash_ == hash && n->key_len == len && (len == 0 || memcmp(n->key, key, len) == 0))
            return n;
    }
    return NULL;
}

void key_table_insert(struct key_table *t, struct key_node *n)
{
    assert(!key_table_find(t, n->key, n->key_len));
    n->hash_ = siphash(t->secret_, n->key, n->key_len);
    struct key_node **bucket = bucket_of(t, n->hash_);
    n->next_ = *bucket;
    *bucket = n;
    t->count++;
}

void key_table_remove(struct key_table *t, struct key_node *n)
{
    struct key_node **at = bucket_of(t, n->hash_);
    while (*at != n) {
        assert(*at);
        at = &(*at)->next_;
    }
    *at = n->next_;
    n->next_ = NULL;
    t->count--;
}
