#include <stdalign.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include "config/arena.h"

#define CHUNK_SIZE 16384

struct chunk {
    struct chunk *next;
    alignas(max_align_t) unsigned char bytes[];
};

struct arena {
    struct chunk *chunks;
    unsigned char *free_;
    size_t left;
};

struct arena *arena_new(void)
{
    return calloc(1, sizeof(struct arena));
}

void arena_free(struct arena *a)
{
    if (!a)
        return;
    for (struct chunk *c = a->chunks, *next; c; c = next) {
        next = c->next;
        free(c);
    }
    free(a);
}

static void *chunk_add(struct arena *a, size_t size)
{
    struct chunk *c = calloc(1, sizeof(*c) + size);

    if (!c)
        return NULL;
    c->next = a->chunks;
    a->chunks = c;
    return c->bytes;
}

void *arena_alloc(struct arena *a, size_t size)
{
    const size_t unit = alignof(max_align_t);

    if (size > SIZE_MAX / 2)
        return NULL;
    size = size ? (size + unit - 1) / unit * unit : unit;
    if (size > CHUNK_SIZE / 4)
        return chunk_add(a, size); /* its own: the rest of the current chunk stays in use */
    if (size > a->left) {
        void *bytes = chunk_add(a, CHUNK_SIZE);

        if (!bytes)
            return NULL;
        a->free_ = bytes;
        a->left = CHUNK_SIZE;
    }
    void *p = a->free_;
    a->free_ += size;
    a->left -= size;
    return p;
}

void *arena_array(struct arena *a, size_t count, size_t size)
{
    size_t total;

    if (__builtin_mul_overflow(count, size, &total))
        return NULL;
    return arena_alloc(a, total);
}

char *arena_strndup(struct arena *a, const char *text, size_t len)
{
    char *copy = arena_alloc(a, len + 1);

    if (copy)
        memcpy(copy, text, len);
    return copy;
}
