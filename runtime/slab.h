/* Fixed-size objects of one core: O(1) get and put from a free list that grows in chunks up to a
 * bound. Objects come back uninitialised. Thread: single owner. */
#ifndef MILLRACE_RUNTIME_SLAB_H
#define MILLRACE_RUNTIME_SLAB_H

#include <stddef.h>
#include <stdint.h>

struct slab {
    size_t size_;
    uint32_t per_chunk_;
    uint32_t max_; /* objects */
    uint32_t made_;
    uint32_t in_use;
    size_t bytes; /* asked of the system so far */
    void *free_;
    void *chunks_;
};

/* Objects are aligned to 64 bytes. max 0: no bound. Allocates nothing yet. */
void slab_init(struct slab *s, size_t object_size, uint32_t max);

/* Every object must be back. */
void slab_fini(struct slab *s);

/* NULL: at the bound, or no memory. */
void *slab_get(struct slab *s);
void *slab_get_zeroed(struct slab *s);
void slab_put(struct slab *s, void *object);

#endif
