#include "dataplane/tcp/table.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define ADDRESS_BITS 48
#define ADDRESS_MASK ((1ull << ADDRESS_BITS) - 1)

int table_init(struct table *t, uint32_t max, size_t tuple_off, struct siphash_key key)
{
    uint32_t size = 16;
    while (size < max + max / 2)
        size *= 2;
    *t = (struct table){
        .mask_ = size - 1, .max_ = max, .tuple_off_ = (uint32_t)tuple_off, .key_ = key};
    t->words_ = calloc(size, sizeof(*t->words_));
    return t->words_ ? 0 : -ENOMEM;
}

void table_fini(struct table *t)
{
    free(t->words_);
    t->words_ = NULL;
}

static void *word_object(uint64_t word)
{
    uint64_t address = word & ADDRESS_MASK;
    void *object;
    static_assert(sizeof(object) == sizeof(address),
                  "a word holds a 64-bit machine's user address");
    memcpy(&object, &address, sizeof(object));
    return object;
}

static const struct tuple *object_tuple(const struct table *t, const void *object)
{
    return (const struct tuple *)((const char *)object + t->tuple_off_);
}

void *table_find(const struct table *t, const struct tuple *tuple, uint64_t hash)
{
    if (t->count == 0)
        return NULL;
    uint64_t tag = hash >> ADDRESS_BITS;
    for (uint32_t i = (uint32_t)hash & t->mask_; t->words_[i]; i = (i + 1) & t->mask_) {
        if (t->words_[i] >> ADDRESS_BITS != tag)
            continue;
        void *object = word_object(t->words_[i]);
        if (tuple_equal(object_tuple(t, object), tuple))
            return object;
    }
    return NULL;
}

int table_insert(struct table *t, void *object, uint64_t hash)
{
    assert(((uintptr_t)object & ~ADDRESS_MASK) == 0);
    assert(!table_find(t, object_tuple(t, object), hash));
    if (t->count >= t->max_)
        return -ENOSPC;
    uint32_t i = (uint32_t)hash & t->mask_;
    while (t->words_[i])
        i = (i + 1) & t->mask_;
    t->words_[i] = hash >> ADDRESS_BITS << ADDRESS_BITS | (uintptr_t)object;
    t->count++;
    return 0;
}

static uint32_t home_of(const struct table *t, uint64_t word)
{
    return (uint32_t)table_hash(t, object_tuple(t, word_object(word))) & t->mask_;
}

/* Closes the gap at `hole`: what probing pushed past it moves back, so no tombstones are needed. */
static void shift_back(struct table *t, uint32_t hole)
{
    for (uint32_t i = (hole + 1) & t->mask_; t->words_[i]; i = (i + 1) & t->mask_) {
        uint32_t home = home_of(t, t->words_[i]);
        if (((i - home) & t->mask_) < ((i - hole) & t->mask_))
            continue;
        t->words_[hole] = t->words_[i];
        hole = i;
    }
    t->words_[hole] = 0;
}

void table_remove(struct table *t, const void *object)
{
    uint32_t i = (uint32_t)table_hash(t, object_tuple(t, object)) & t->mask_;
    while (word_object(t->words_[i]) != object) {
        assert(t->words_[i]);
        i = (i + 1) & t->mask_;
    }
    shift_back(t, i);
    t->count--;
}

void *table_next(const struct table *t, uint32_t *pos)
{
    while (*pos <= t->mask_) {
        uint64_t word = t->words_[(*pos)++];
        if (word)
            return word_object(word);
    }
    return NULL;
}
