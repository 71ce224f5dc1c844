/* Fibers for tests: stacks that take turns within one thread, switched by a few instructions (no
 * system call: a checker switches millions of times). One thread at a time may use them. */
#ifndef MILLRACE_TESTS_KIT_FIBER_H
#define MILLRACE_TESTS_KIT_FIBER_H

#include <stdbool.h>
#include <stddef.h>

struct fiber {
    void *sp_;
    void *stack_;
    void *fake_stack_; /* the address sanitizer's */
    void (*run_)(void *arg);
    void *arg_;
    bool has_ended;
};

/* 0 or -ENOMEM. */
int fiber_init(struct fiber *f);
void fiber_fini(struct fiber *f);

/* Makes it begin anew with run(arg) at the next fiber_enter(), wherever it was. */
void fiber_restart(struct fiber *f, void (*run)(void *arg), void *arg);

/* Runs it until it yields or ends. Not from within a fiber. */
void fiber_enter(struct fiber *f);

/* Back to who entered the running fiber. */
void fiber_yield(void);

#endif
