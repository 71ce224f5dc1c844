#include "runtime/trap.h"

#include <assert.h>
#include <dlfcn.h>
#include <errno.h>
#include <link.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/futex.h>
#include <linux/seccomp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <ucontext.h>
#include <unistd.h>

#include "runtime/clock.h"
#include "runtime/frames.h"
#include "runtime/sched.h"

#define PROGRAM_MAX 400
#define FRAMES_MAX  32
#define SANITIZERS  4

#ifndef __x86_64__
#error "knows the registers and the calls of x86-64 only"
#endif
static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "halves of arguments are taken apart");

/* What the handler can't be told in another way. */
struct armed {
    char name[16];
    uintptr_t lock;        /* waited for, by spinning */
    uint64_t since, tried; /* ns: begun, and last tried */
};
static _Thread_local struct armed armed;

/* A sanitizer's own instructions. */
struct text_range {
    uint64_t from, to;
};
static _Thread_local struct text_range sanitizers[SANITIZERS];

static const char *const call_names[] = {
#include "runtime/syscall_names.h"
};

/* --- the report -------------------------------------------------------------------------------
 */

struct text {
    char buf[4096];
    size_t len;
};

__attribute__((format(printf, 2, 3))) static void say(struct text *t, const char *format, ...)
{
    va_list ap;
    va_start(ap, format);
    int n = vsnprintf(t->buf + t->len, sizeof(t->buf) - t->len, format, ap);
    va_end(ap);
    if (n > 0)
        t->len += (size_t)n < sizeof(t->buf) - t->len ? (size_t)n : sizeof(t->buf) - t->len - 1;
}

static void say_call(struct text *t, int call)
{
    size_t n = sizeof(call_names) / sizeof(call_names[0]);
    if (call >= 0 && (size_t)call < n && call_names[call])
        say(t, "%s()", call_names[call]);
    else
        say(t, "system call %d", call);
}

static void say_task(struct text *t)
{
    const struct sched *s = sched_of_thread();
    const struct task *task = s ? sched_current(s) : NULL;
    if (!task)
        say(t, " outside any task");
    else if (task->label)
        say(t, " in task \"%s\" (label \"%s\")", task->kind_->name, task->label);
    else
        say(t, " in task \"%s\"", task->kind_->name);
}

static void say_frame(struct text *t, unsigned i, uintptr_t at)
{
    Dl_info d;
    if (!dladdr((void *)at, &d) || !d.dli_fname)
        say(t, "  #%u %#lx\n", i, (unsigned long)at);
    else
        say(t, "  #%u %s+%#lx %s\n", i, d.dli_fname, (unsigned long)(at - (uintptr_t)d.dli_fbase),
            d.dli_sname ? d.dli_sname : "");
}

_Noreturn static void report(int call, const void *context)
{
    struct text t = {.len = 0};
    uintptr_t frames[FRAMES_MAX];
    unsigned n = frames_of_context(context, frames, FRAMES_MAX);
    say(&t, "millrace: a core must not block: ");
    say_call(&t, call);
    say_task(&t);
    say(&t, " on %s\n", armed.name);
    for (unsigned i = 0; i < n; i++)
        say_frame(&t, i, frames[i]);
    say(&t, "  (addr2line -pfe FILE OFFSET... names what has no name here)\n");
    ssize_t written = write(STDERR_FILENO, t.buf, t.len);
    (void)written;
    abort();
}

/* --- the handler ------------------------------------------------------------------------------
 */

/* Answers the trapped call in the kernel's stead. */
static void answer(ucontext_t *u, long result)
{
    u->uc_mcontext.gregs[REG_RAX] = result;
}

static uintptr_t argument(const ucontext_t *u, unsigned i)
{
    static const int registers[] = {REG_RDI, REG_RSI, REG_RDX, REG_R10, REG_R8, REG_R9};
    return (uintptr_t)u->uc_mcontext.gregs[registers[i]];
}

/* A wait that went on until now, in one go. */
static bool is_lock_wait_over(uintptr_t lock)
{
    uint64_t now = clock_now_ns();
    if (armed.lock != lock || now - armed.tried > TRAP_LOCK_NS / 10) {
        armed.lock = lock;
        armed.since = now;
    }
    armed.tried = now;
    return now - armed.since > TRAP_LOCK_NS;
}

/* Mutexes wait by the one, read-write locks by the other. */
static bool is_lock_wait(const ucontext_t *u)
{
    uintptr_t op = argument(u, 1) & FUTEX_CMD_MASK;
    return op == FUTEX_WAIT || (op == FUTEX_WAIT_BITSET && argument(u, 3) == 0);
}

/* The value has changed, the waiter is told: it looks again, and so spins. */
static bool spin_for_lock(const siginfo_t *info, ucontext_t *u)
{
    if (info->si_syscall != SYS_futex || !is_lock_wait(u) || is_lock_wait_over(argument(u, 0)))
        return false;
    answer(u, -EAGAIN);
    return true;
}

static bool is_sanitizer(uintptr_t at)
{
    for (unsigned i = 0; i < SANITIZERS; i++)
        if (at >= sanitizers[i].from && at < sanitizers[i].to)
            return true;
    return false;
}

/* A sanitizer that reports a fault calls libc too, to ask for the terminal or to read symbols: it
 * is refused, and does without. A task that comes through an interceptor is one frame of it only.
 */
static bool is_sanitizers_report(const void *context)
{
    uintptr_t frames[FRAMES_MAX];
    unsigned n = frames_of_context(context, frames, FRAMES_MAX), first = 0;
    while (first < n && !is_sanitizer(frames[first]))
        first++;
    return first + 1 < n && is_sanitizer(frames[first + 1]);
}

static void on_trap(int number, siginfo_t *info, void *context)
{
    (void)number;
    int saved = errno;
    if (is_sanitizers_report(context))
        answer(context, -EPERM);
    else if (!spin_for_lock(info, context))
        report(info->si_syscall, context);
    errno = saved;
}

/* --- the filter -------------------------------------------------------------------------------
 */

struct program {
    struct sock_filter code[PROGRAM_MAX];
    unsigned short len;
};

static void emit(struct program *p, struct sock_filter instruction)
{
    assert(p->len < PROGRAM_MAX);
    p->code[p->len++] = instruction;
}

static void emit_load(struct program *p, size_t offset)
{
    emit(p, (struct sock_filter)BPF_STMT(BPF_LD | BPF_W | BPF_ABS, (uint32_t)offset));
}

/* Skips `otherwise` instructions unless the comparison holds. */
static void emit_unless(struct program *p, uint16_t compare, uint32_t k, uint8_t otherwise)
{
    emit(p, (struct sock_filter)BPF_JUMP(BPF_JMP | compare | BPF_K, k, 0, otherwise));
}

static void emit_return(struct program *p, uint32_t action)
{
    emit(p, (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, action));
}

static size_t low_half(unsigned arg)
{
    return offsetof(struct seccomp_data, args) + arg * sizeof(uint64_t);
}

static void allow(struct program *p, int call)
{
    emit_load(p, offsetof(struct seccomp_data, nr));
    emit_unless(p, BPF_JEQ, (uint32_t)call, 1);
    emit_return(p, SECCOMP_RET_ALLOW);
}

static void allow_if(struct program *p, int call, unsigned arg, uint32_t mask, uint32_t value)
{
    emit_load(p, offsetof(struct seccomp_data, nr));
    emit_unless(p, BPF_JEQ, (uint32_t)call, 4);
    emit_load(p, low_half(arg));
    emit(p, (struct sock_filter)BPF_STMT(BPF_ALU | BPF_AND | BPF_K, mask));
    emit_unless(p, BPF_JEQ, value, 1);
    emit_return(p, SECCOMP_RET_ALLOW);
}

static void allow_pointer(struct program *p, int call, unsigned arg, const void *pointer)
{
    uint64_t value = (uintptr_t)pointer;
    emit_load(p, offsetof(struct seccomp_data, nr));
    emit_unless(p, BPF_JEQ, (uint32_t)call, 5);
    emit_load(p, low_half(arg));
    emit_unless(p, BPF_JEQ, (uint32_t)value, 3);
    emit_load(p, low_half(arg) + 4);
    emit_unless(p, BPF_JEQ, (uint32_t)(value >> 32), 1);
    emit_return(p, SECCOMP_RET_ALLOW);
}

/* Calls that the instructions of [from, to) make themselves. */
static void allow_text(struct program *p, uint64_t from, uint64_t to)
{
    size_t ip = offsetof(struct seccomp_data, instruction_pointer);
    if (from >> 32 != (to - 1) >> 32)
        return;
    emit_load(p, ip + 4);
    emit_unless(p, BPF_JEQ, (uint32_t)(from >> 32), 4);
    emit_load(p, ip);
    emit_unless(p, BPF_JGE, (uint32_t)from, 2);
    emit(p, (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JGT | BPF_K, (uint32_t)(to - 1), 1, 0));
    emit_return(p, SECCOMP_RET_ALLOW);
}

/* A sanitizer calls the kernel by its own instructions, for itself; what a program calls through
 * its interceptors goes on to libc and is seen. */
static int allow_sanitizer(struct dl_phdr_info *info, size_t size, void *ctx)
{
    struct text_range *r = sanitizers;
    (void)size;
    if (!strstr(info->dlpi_name, "/libasan.so") && !strstr(info->dlpi_name, "/libubsan.so") &&
        !strstr(info->dlpi_name, "/libtsan.so"))
        return 0;
    for (unsigned i = 0; i < info->dlpi_phnum; i++) {
        const ElfW(Phdr) *h = &info->dlpi_phdr[i];
        while (r < sanitizers + SANITIZERS && r->to)
            r++;
        if (h->p_type != PT_LOAD || !(h->p_flags & PF_X) || r == sanitizers + SANITIZERS)
            continue;
        r->from = info->dlpi_addr + h->p_vaddr;
        r->to = r->from + h->p_memsz;
        allow_text(ctx, r->from, r->to);
    }
    return 0;
}

static void build(struct program *p, const struct trap_opts *o)
{
    emit_load(p, offsetof(struct seccomp_data, arch));
    emit(p, (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, AUDIT_ARCH_X86_64, 1, 0));
    emit_return(p, SECCOMP_RET_TRAP);
#define CALL(name)                      allow(p, SYS_##name);
#define CALL_IF(name, arg, mask, value) allow_if(p, SYS_##name, arg, mask, value);
#include "runtime/trap_calls.def"
#undef CALL
#undef CALL_IF
    memset(sanitizers, 0, sizeof(sanitizers));
    if (o->wake_fd >= 0)
        allow_if(p, SYS_read, 0, ~0u, (uint32_t)o->wake_fd);
    if (o->idle)
        allow_pointer(p, SYS_ppoll, 0, o->idle);
    if (o->tun) {
        allow(p, SYS_readv);
        allow(p, SYS_writev);
    }
    dl_iterate_phdr(allow_sanitizer, p);
    emit_return(p, SECCOMP_RET_TRAP);
}

static int take_over_signal(void)
{
    struct sigaction sa = {.sa_sigaction = on_trap, .sa_flags = SA_SIGINFO};
    sigset_t set;
    sigemptyset(&sa.sa_mask);
    if (sigaction(SIGSYS, &sa, NULL))
        return -errno;
    sigemptyset(&set);
    sigaddset(&set, SIGSYS);
    return -pthread_sigmask(SIG_UNBLOCK, &set, NULL);
}

int trap_arm(const struct trap_opts *o)
{
    struct program p = {.len = 0};
    build(&p, o);
    struct sock_fprog filter = {.len = p.len, .filter = p.code};
    frames_prepare();
    int rc = take_over_signal();
    if (rc)
        return rc;
    armed = (struct armed){0};
    snprintf(armed.name, sizeof(armed.name), "%s", o->name);
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) ||
        prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &filter))
        return -errno;
    return 0;
}
