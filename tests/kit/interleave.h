/* An exhaustive checker of what a few threads do to each other through atomics.
 *
 * A case has parties; each runs real code whose atomics go through interleave_atomics.h. The
 * checker runs the case again and again, each time with another schedule, until it has tried every
 * order of the parties' atomic steps, and, in each, every value that a load may return under C11:
 * one not ordered after a store may still see what was there before. So an order that is too weak
 * is found on any machine, and so is a check on the wrong side of a store. It fails when a party
 * calls interleave_fail() or trips an assertion, when all that is left is asleep, or when the end
 * state is wrong; and then prints the schedule, step by step.
 *
 * Orders that differ only in steps which don't touch the same location are tried once (dynamic
 * partial order reduction with sleep sets). The memory model is that of views (each location has a
 * history, each thread and each message a view of how far it must have got), with one order of all
 * seq_cst operations. It leaves out what needs a load to see a store of its own future, stores that
 * are older in a location's order than one already there, and weak exchanges that fail for no
 * reason. What isn't atomic is taken to be free of races: TSan's part.
 *
 * A mutation weakens one operation of the code, to show that the case would find it.
 *
 * State is static: one case at a time, one thread.
 */
#ifndef MILLRACE_TESTS_KIT_INTERLEAVE_H
#define MILLRACE_TESTS_KIT_INTERLEAVE_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#define INTERLEAVE_PARTIES 4

enum interleave_op_kind {
    INTERLEAVE_LOAD,
    INTERLEAVE_STORE,
    INTERLEAVE_EXCHANGE,
    INTERLEAVE_COMPARE_EXCHANGE,
    INTERLEAVE_ADD,
    INTERLEAVE_SUB,
    INTERLEAVE_AND,
    INTERLEAVE_OR,
    INTERLEAVE_FENCE,
    INTERLEAVE_AWAIT,
};

/* Gives the operations of this kind on this expression in this function another order (both orders
 * of a compare-exchange). */
struct interleave_mutation {
    const char *func;
    enum interleave_op_kind kind;
    const char *what; /* as it stands in the source: "&mb->head_" */
    memory_order order;
};

struct interleave_case {
    const char *name;
    unsigned nparties;
    void (*party[INTERLEAVE_PARTIES])(void);
    void (*set_up)(void);     /* before each schedule; its atomics are plain */
    void (*tear_down)(void);  /* after each, also a failed or an abandoned one; may be NULL */
    const char *(*end)(void); /* when nothing moves any more: what is wrong, or NULL; may be NULL */
    const struct interleave_mutation *mutation; /* NULL: the code as it is */
    const char *hint; /* an expression whose value may be any: taken as plain; NULL: none */
    bool try_all;     /* do not ask which order of two steps matters: slower, for the same answer */
};

struct interleave_result {
    bool has_failed;
    uint64_t schedules; /* run to their end */
    uint64_t pruned;    /* given up on the way, as the same as another */
    unsigned mutated;   /* operations that the mutation met in the last schedule */
    char why[160];
};

/* Stops at the first failure and writes its schedule to `log` (NULL: nowhere). */
void interleave_explore(const struct interleave_case *c, FILE *log,
                        struct interleave_result *ret_result);

/* For parties. */

/* Sleeps until *flag isn't 0, like a system call: sees the newest value, and all before it. With
 * `may_end`: a case where all are here or done is over (this doesn't return then); without, it has
 * failed, for nobody would ever wake this party. */
#define interleave_await(flag, may_end)                                                            \
    interleave_await_((flag), sizeof(*(flag)), (may_end), __func__, #flag)

_Noreturn void interleave_fail(const char *why);

#define interleave_check(cond) ((cond) ? (void)0 : interleave_fail("not true: " #cond))

/* The hooks of interleave_atomics.h. */
struct interleave_op {
    enum interleave_op_kind kind;
    memory_order order, order2; /* order2: of a compare-exchange that fails */
    void *addr;
    size_t size;
    uint64_t operand, expected;
    const char *func, *what;
    bool may_end;
};

/* The old value; *ret_done (may be NULL) tells whether a compare-exchange did. */
uint64_t interleave_do_(const struct interleave_op *op, bool *ret_done);
void interleave_await_(void *flag, size_t size, bool may_end, const char *func, const char *what);

#endif
