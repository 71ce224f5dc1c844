#include "tests/kit/fiber.h"

#include <assert.h>
#include <errno.h>
#include <stdint.h>
#include <stdlib.h>

#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/asan_interface.h>
#include <sanitizer/common_interface_defs.h>
#endif

#define STACK_SIZE ((size_t)128 * 1024)

void fiber_switch_(void **ret_sp, void *sp);

#if defined(__x86_64__)
/* Saves what a callee must save on the stack that is left, and takes it from the one entered. */
__asm__(".text\n"
        ".globl fiber_switch_\n"
        ".type fiber_switch_, @function\n"
        "fiber_switch_:\n"
        "    pushq %rbp\n"
        "    pushq %rbx\n"
        "    pushq %r12\n"
        "    pushq %r13\n"
        "    pushq %r14\n"
        "    pushq %r15\n"
        "    movq %rsp, (%rdi)\n"
        "    movq %rsi, %rsp\n"
        "    popq %r15\n"
        "    popq %r14\n"
        "    popq %r13\n"
        "    popq %r12\n"
        "    popq %rbx\n"
        "    popq %rbp\n"
        "    ret\n"
        ".size fiber_switch_, . - fiber_switch_\n");
#define SAVED_REGISTERS 6
#else
#error "the fibers of the tests know x86-64 only"
#endif

static struct fiber *running;
static void *home_sp;

#if defined(__SANITIZE_ADDRESS__)
static void *home_fake;
static const void *home_stack;
static size_t home_size;

static void leave_home(const struct fiber *f)
{
    __sanitizer_start_switch_fiber(&home_fake, f->stack_, STACK_SIZE);
}

static void arrive_home(void)
{
    __sanitizer_finish_switch_fiber(home_fake, NULL, NULL);
}

static void leave_fiber(struct fiber *f)
{
    __sanitizer_start_switch_fiber(f->has_ended ? NULL : &f->fake_stack_, home_stack, home_size);
}

static void arrive_in_fiber(struct fiber *f)
{
    __sanitizer_finish_switch_fiber(f->fake_stack_, &home_stack, &home_size);
}

static void clean_stack(const struct fiber *f)
{
    __asan_unpoison_memory_region(f->stack_, STACK_SIZE);
}
#else
static void leave_home(const struct fiber *f)
{
    (void)f;
}

static void arrive_home(void)
{
}

static void leave_fiber(struct fiber *f)
{
    (void)f;
}

static void arrive_in_fiber(struct fiber *f)
{
    (void)f;
}

static void clean_stack(const struct fiber *f)
{
    (void)f;
}
#endif

int fiber_init(struct fiber *f)
{
    *f = (struct fiber){.stack_ = aligned_alloc(64, STACK_SIZE)};
    return f->stack_ ? 0 : -ENOMEM;
}

void fiber_fini(struct fiber *f)
{
    assert(running != f);
    clean_stack(f);
    free(f->stack_);
    f->stack_ = NULL;
}

static void begin(void)
{
    struct fiber *f = running;
    arrive_in_fiber(f);
    f->run_(f->arg_);
    f->has_ended = true;
    fiber_yield();
    abort();
}

void fiber_restart(struct fiber *f, void (*run)(void *arg), void *arg)
{
    assert(!running);
    /* What an abandoned run left behind on this stack is no one's any more. */
    clean_stack(f);
    f->run_ = run;
    f->arg_ = arg;
    f->has_ended = false;
    f->fake_stack_ = NULL;
    /* As if begin() had been called, with a stack aligned as after a call. */
    uintptr_t *top = (uintptr_t *)((char *)f->stack_ + STACK_SIZE);
    *--top = 0;
    *--top = (uintptr_t)begin;
    for (unsigned i = 0; i < SAVED_REGISTERS; i++)
        *--top = 0;
    f->sp_ = top;
}

void fiber_enter(struct fiber *f)
{
    assert(!running && !f->has_ended);
    running = f;
    leave_home(f);
    fiber_switch_(&home_sp, f->sp_);
    arrive_home();
    running = NULL;
}

void fiber_yield(void)
{
    struct fiber *f = running;
    assert(f);
    leave_fiber(f);
    fiber_switch_(&f->sp_, home_sp);
    arrive_in_fiber(f);
}
