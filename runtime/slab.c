#include "runtime/slab.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

/* Under ASan a free object is poisoned but for its link, so that use after put shows. */
#ifdef __SANITIZE_ADDRESS__
#include <sanitizer/asan_interface.h>
#else
#define ASAN_POISON_MEMORY_REGION(at, size)   ((void)(at), (void)(size))
#define ASAN_UNPOISON_MEMORY_REGION(at, size) ((void)(at), (void)(size))
#endif

#define SLAB_ALIGN       64
#define SLAB_CHUNK_BYTES (256u << 10)
/* Our head, malloc's, and what aligning costs it: so a chunk fills its pages and no more. */
#define SLAB_CHUNK_SPARE 192

struct slab_chunk {
    struct slab_chunk *next;
    char pad[SLAB_ALIGN - sizeof(struct slab_chunk *)];
};

struct slab_free {
    struct slab_free *next;
};

static void push_free(struct slab *s, void *object)
{
    struct slab_free *f = object;
    f->next = s->free_;
    s->free_ = f;
    ASAN_POISON_MEMORY_REGION(f + 1, s->size_ - sizeof(*f));
}

void slab_init(struct slab *s, size_t object_size, uint32_t max)
{
    memset(s, 0, sizeof(*s));
    s->size_ = (object_size + SLAB_ALIGN - 1) & ~(size_t)(SLAB_ALIGN - 1);
    s->per_chunk_ = (uint32_t)((SLAB_CHUNK_BYTES - SLAB_CHUNK_SPARE) / s->size_);
    if (s->per_chunk_ == 0)
        s->per_chunk_ = 1;
    s->max_ = max;
}

void slab_fini(struct slab *s)
{
    assert(s->in_use == 0);
    for (struct slab_chunk *c = s->chunks_; c;) {
        struct slab_chunk *next = c->next;
        free(c);
        c = next;
    }
    memset(s, 0, sizeof(*s));
}

static void slab_grow(struct slab *s)
{
    uint32_t n = s->per_chunk_;
    if (s->max_ && s->max_ - s->made_ < n)
        n = s->max_ - s->made_;
    if (n == 0)
        return;
    struct slab_chunk *c = aligned_alloc(SLAB_ALIGN, sizeof(*c) + n * s->size_);
    if (!c)
        return;
    c->next = s->chunks_;
    s->chunks_ = c;
    char *objects = (char *)(c + 1);
    for (uint32_t i = n; i-- > 0;)
        push_free(s, objects + i * s->size_);
    s->made_ += n;
    s->bytes += sizeof(*c) + n * s->size_;
}

void *slab_get(struct slab *s)
{
    if (!s->free_)
        slab_grow(s);
    struct slab_free *f = s->free_;
    if (!f)
        return NULL;
    s->free_ = f->next;
    s->in_use++;
    ASAN_UNPOISON_MEMORY_REGION(f, s->size_);
    return f;
}

void *slab_get_zeroed(struct slab *s)
{
    void *object = slab_get(s);
    if (object)
        memset(object, 0, s->size_);
    return object;
}

void slab_put(struct slab *s, void *object)
{
    assert(s->in_use > 0);
#ifndef NDEBUG
    memset(object, 0xdd, s->size_);
#endif
    push_free(s, object);
    s->in_use--;
}
