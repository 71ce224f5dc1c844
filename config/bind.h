/* From the tree of a file to the structs of a snapshot, by the schema, with all errors; and where
 * in the file each value came from, for the rules that look at several values at once. */
#ifndef MILLRACE_CONFIG_BIND_H
#define MILLRACE_CONFIG_BIND_H

#include "config/schema.h"
#include "config/snapshot.h"

struct mark {
    const void *field;
    const char *name;
    const struct yaml_node *node;
};

struct bind {
    const char *file;
    struct arena *arena;   /* of the snapshot */
    struct arena *scratch; /* of messages and marks */
    struct config_errors *errs;
    struct mark *marks;
    size_t nmarks, room;
    bool by_hand; /* parts were set while it ran: rules against slips do not hold */
    bool out_of_memory;
};

/* Fills `s` (zeroed). What is wrong is reported and left at its default or zero. */
void bind_snapshot(struct bind *b, const struct yaml_node *root, struct snapshot *s);

/* Was the key "name" given, and right? `field` is the key's place in the struct; for a member of a
 * list of scalars the member's, with "[]"; for a mapping its struct's, with its group's name.
 * BIND_FAULTY: was it given, but wrong? NULL: no. */
#define BIND_FAULTY "!"
const struct yaml_node *bind_where(const struct bind *b, const void *field, const char *name);

/* Reports at a node; NULL is the file's start. */
void bind_fault(struct bind *b, const struct yaml_node *n, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* " (did you mean …)" or "". */
const char *bind_guess(struct bind *b, const char *best);

#endif
