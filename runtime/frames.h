/* The call chain of a thread that a signal has interrupted.
 *
 * By libgcc's unwinder, not by frame pointers: ours are kept, but libc and the drivers have none,
 * and a core that stalls mostly stands in one of them. The unwinder reads tables instead. With
 * glibc from 2.35 it finds them without a lock (_dl_find_object), so it may run in a handler once
 * it has been loaded; frames_prepare() does that.
 */
#ifndef MILLRACE_RUNTIME_FRAMES_H
#define MILLRACE_RUNTIME_FRAMES_H

#include <stdint.h>

/* Loads the unwinder, which allocates: before the first handler may run. Any thread; idempotent. */
void frames_prepare(void);

/* In a handler installed with SA_SIGINFO, `context` being its third argument: return addresses from
 * the interrupted instruction outwards, at most `max`; returns how many. Async-signal-safe. */
unsigned frames_of_context(const void *context, uintptr_t *ret_frames, unsigned max);

#endif
