/* Words that the schema's tables are written in. For config/schema*.c only. */
#ifndef MILLRACE_CONFIG_SCHEMA_TERMS_H
#define MILLRACE_CONFIG_SCHEMA_TERMS_H

#include <stddef.h>

#define US  1000ull
#define MS  (1000 * US)
#define SEC (1000 * MS)
#define MIN (60 * SEC)
#define HR  (60 * MIN)
#define KIB 1024ull
#define MIB (1024 * KIB)
#define GIB (1024 * MIB)

#define FIELD(s, m) .offset = offsetof(struct s, m), .width = sizeof(((struct s *)0)->m)
#define ELEMENTS(s, m, n)                                                                          \
    .offset = offsetof(struct s, m), .width = sizeof(*((struct s *)0)->m),                         \
    .count_offset = offsetof(struct s, n), .count_width = sizeof(((struct s *)0)->n)
#define RANGE(lo, hi) .min = (lo), .max = (hi)
#define END                                                                                        \
    {                                                                                              \
        .name = NULL                                                                               \
    }

#endif
