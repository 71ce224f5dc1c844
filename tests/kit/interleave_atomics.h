/* Sends the atomics of what is included after it through the checker (interleave.h). Include what
 * shall not be explored (counters, the scheduler) before it. */
#ifndef MILLRACE_TESTS_KIT_INTERLEAVE_ATOMICS_H
#define MILLRACE_TESTS_KIT_INTERLEAVE_ATOMICS_H

#include <stdatomic.h>
#include <string.h>

#include "tests/kit/interleave.h"

#undef atomic_load_explicit
#undef atomic_store_explicit
#undef atomic_exchange_explicit
#undef atomic_compare_exchange_weak_explicit
#undef atomic_compare_exchange_strong_explicit
#undef atomic_fetch_add_explicit
#undef atomic_fetch_sub_explicit
#undef atomic_fetch_and_explicit
#undef atomic_fetch_or_explicit
#undef atomic_load
#undef atomic_store
#undef atomic_exchange
#undef atomic_compare_exchange_weak
#undef atomic_compare_exchange_strong
#undef atomic_fetch_add
#undef atomic_fetch_sub
#undef atomic_fetch_and
#undef atomic_fetch_or
#undef atomic_thread_fence

/* The type of *p without its qualifiers. */
#define IL_TYPE(p) __typeof__((void)0, *(p))

/* The bits of a value of any type up to eight bytes. */
#define IL_BITS(value)                                                                             \
    __extension__({                                                                                \
        __auto_type il_value_ = (value);                                                           \
        uint64_t il_bits_ = 0;                                                                     \
        memcpy(&il_bits_, &il_value_, sizeof(il_value_));                                          \
        il_bits_;                                                                                  \
    })

#define IL_VALUE(type, bits)                                                                       \
    __extension__({                                                                                \
        uint64_t il_from_ = (bits);                                                                \
        type il_to_;                                                                               \
        memcpy(&il_to_, &il_from_, sizeof(il_to_));                                                \
        il_to_;                                                                                    \
    })

#define IL_OP(kind_, p, order_, operand_)                                                          \
    (&(struct interleave_op){                                                                      \
        .kind = INTERLEAVE_##kind_,                                                                \
        .addr = (void *)(p),                                                                       \
        .size = sizeof(*(p)),                                                                      \
        .order = (order_),                                                                         \
        .operand = (operand_),                                                                     \
        .func = __func__,                                                                          \
        .what = #p,                                                                                \
    })

#define IL_MODIFY(kind, p, v, order)                                                               \
    IL_VALUE(IL_TYPE(p), interleave_do_(IL_OP(kind, p, order, IL_BITS((IL_TYPE(p))(v))), NULL))

#define atomic_load_explicit(p, order)                                                             \
    IL_VALUE(IL_TYPE(p), interleave_do_(IL_OP(LOAD, p, order, 0), NULL))
#define atomic_store_explicit(p, v, order)                                                         \
    ((void)interleave_do_(IL_OP(STORE, p, order, IL_BITS((IL_TYPE(p))(v))), NULL))
#define atomic_exchange_explicit(p, v, order)  IL_MODIFY(EXCHANGE, p, v, order)
#define atomic_fetch_add_explicit(p, v, order) IL_MODIFY(ADD, p, v, order)
#define atomic_fetch_sub_explicit(p, v, order) IL_MODIFY(SUB, p, v, order)
#define atomic_fetch_and_explicit(p, v, order) IL_MODIFY(AND, p, v, order)
#define atomic_fetch_or_explicit(p, v, order)  IL_MODIFY(OR, p, v, order)

#define atomic_compare_exchange_strong_explicit(p, expect, v, order1, order_2)                     \
    __extension__({                                                                                \
        __auto_type il_expect_ = (expect);                                                         \
        bool il_done_;                                                                             \
        struct interleave_op il_op_ =                                                              \
            *IL_OP(COMPARE_EXCHANGE, p, order1, IL_BITS((IL_TYPE(p))(v)));                         \
        il_op_.order2 = (order_2);                                                                 \
        il_op_.expected = IL_BITS(*il_expect_);                                                    \
        uint64_t il_old_ = interleave_do_(&il_op_, &il_done_);                                     \
        if (!il_done_)                                                                             \
            *il_expect_ = IL_VALUE(IL_TYPE(p), il_old_);                                           \
        il_done_;                                                                                  \
    })
#define atomic_compare_exchange_weak_explicit(p, expect, v, order1, order_2)                       \
    atomic_compare_exchange_strong_explicit(p, expect, v, order1, order_2)

#define atomic_load(p)         atomic_load_explicit(p, memory_order_seq_cst)
#define atomic_store(p, v)     atomic_store_explicit(p, v, memory_order_seq_cst)
#define atomic_exchange(p, v)  atomic_exchange_explicit(p, v, memory_order_seq_cst)
#define atomic_fetch_add(p, v) atomic_fetch_add_explicit(p, v, memory_order_seq_cst)
#define atomic_fetch_sub(p, v) atomic_fetch_sub_explicit(p, v, memory_order_seq_cst)
#define atomic_fetch_and(p, v) atomic_fetch_and_explicit(p, v, memory_order_seq_cst)
#define atomic_fetch_or(p, v)  atomic_fetch_or_explicit(p, v, memory_order_seq_cst)
#define atomic_compare_exchange_strong(p, expect, v)                                               \
    atomic_compare_exchange_strong_explicit(p, expect, v, memory_order_seq_cst,                    \
                                            memory_order_seq_cst)
#define atomic_compare_exchange_weak(p, expect, v) atomic_compare_exchange_strong(p, expect, v)

#define atomic_thread_fence(order_)                                                                \
    ((void)interleave_do_(                                                                         \
        &(struct interleave_op){                                                                   \
            .kind = INTERLEAVE_FENCE, .order = (order_), .func = __func__, .what = "fence"},       \
        NULL))

#endif
