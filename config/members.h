/* The members of a list of mappings, found by what tells them apart (a name, a route's pattern). */
#ifndef MILLRACE_CONFIG_MEMBERS_H
#define MILLRACE_CONFIG_MEMBERS_H

#include "config/schema.h"

struct member {
    const char *identity;
    const void *base;
};

struct members {
    struct member *sorted; /* NULL: out of memory */
    size_t count;
};

struct members members_make(const struct config_key *k, const void *base, struct arena *a);
const void *members_find(const struct members *m, const char *identity); /* NULL: none */

const char *member_identity(const struct config_key *k, const void *member, struct arena *a);

#endif
