/* How much of the heap is in use, under a sanitizer too. */
#ifndef MILLRACE_TESTS_KIT_HEAP_H
#define MILLRACE_TESTS_KIT_HEAP_H

#include <malloc.h>
#include <stddef.h>

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
/* Of the sanitizers' run-time; gcc has no header for it. */
size_t __sanitizer_get_current_allocated_bytes(void);

static inline size_t heap_in_use(void)
{
    return __sanitizer_get_current_allocated_bytes();
}
#else
static inline size_t heap_in_use(void)
{
    return mallinfo2().uordblks;
}
#endif

#endif
