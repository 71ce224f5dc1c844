/* The never-block trap of debug builds (meson option trap_blocking): a seccomp filter on a core's
 * thread that lets through what cores do need (trap_calls.def, with reasons) and nothing else. Any
 * other system call ends the process with its name, the task's kind and label, and the call chain.
 *
 * It sees what the audit of symbols (tests/lint) can't: what libraries and drivers do inside. A
 * lock that is taken with FUTEX_WAIT (malloc's, a mutex) is waited for by spinning; held for longer
 * than TRAP_LOCK_NS it is a block like any other.
 *
 * A filter can't be taken off: it is the thread's until its end. Where the option is off, all of
 * this is nothing.
 */
#ifndef MILLRACE_RUNTIME_TRAP_H
#define MILLRACE_RUNTIME_TRAP_H

#include <stdbool.h>

struct pollfd;

#define TRAP_LOCK_NS 100000000ull

struct trap_opts {
    const char *name;          /* of the thread, for the report; cut to 15 letters */
    int wake_fd;               /* the non-blocking eventfd that may be read; -1: none */
    const struct pollfd *idle; /* ppoll() may sleep on this very set; NULL: never */
    bool tun;                  /* readv and writev too, for DPDK's TAP driver */
};

#ifdef MILLRACE_TRAP_BLOCKING

/* On the core's own thread, bound to its scheduler (sched_bind_thread), once its set-up is done. 0,
 * or -errno: no filter is in force then. */
int trap_arm(const struct trap_opts *o);

#else

static inline int trap_arm(const struct trap_opts *o)
{
    (void)o;
    return 0;
}

#endif
#endif
