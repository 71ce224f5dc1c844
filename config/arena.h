/* A bump allocator: many small objects that die together.
 *
 * config/: libc, runtime's base types and libfyaml; used by every layer through snapshot.h, and by
 * control through load.h, diff.h and reference.h.
 *
 * Memory is zeroed and aligned for any type. NULL: out of memory; the arena stays usable.
 */
#ifndef MILLRACE_CONFIG_ARENA_H
#define MILLRACE_CONFIG_ARENA_H

#include <stddef.h>

struct arena;

struct arena *arena_new(void);
void arena_free(struct arena *a); /* and everything in it; NULL is allowed */

void *arena_alloc(struct arena *a, size_t size);
void *arena_array(struct arena *a, size_t count, size_t size);
char *arena_strndup(struct arena *a, const char *text, size_t len);

#endif
