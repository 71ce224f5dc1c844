#include "runtime/frames.h"

#include <execinfo.h>
#include <ucontext.h>

#define HANDLER_FRAMES 8 /* of the handler and the kernel's trampoline, at the most */
#define FRAMES_MOST    64

void frames_prepare(void)
{
    void *frame;
    backtrace(&frame, 1);
}

static uintptr_t interrupted_at(const void *context)
{
    const ucontext_t *u = context;
#if defined(__x86_64__)
    return (uintptr_t)u->uc_mcontext.gregs[REG_RIP];
#elif defined(__aarch64__)
    return (uintptr_t)u->uc_mcontext.pc;
#else
#error "how does this machine tell where it was interrupted?"
#endif
}

unsigned frames_of_context(const void *context, uintptr_t *ret_frames, unsigned max)
{
    void *all[FRAMES_MOST];
    uintptr_t at = interrupted_at(context);
    int n = backtrace(all, FRAMES_MOST), first = 0;
    unsigned count = 0;
    while (first < n && first < HANDLER_FRAMES && (uintptr_t)all[first] != at)
        first++;
    if (first == n || (uintptr_t)all[first] != at) {
        if (max > 0)
            ret_frames[count++] = at; /* the tables don't reach through: at least where */
        return count;
    }
    for (int i = first; i < n && count < max; i++)
        ret_frames[count++] = (uintptr_t)all[i];
    return count;
}
