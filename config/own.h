/* A deep copy of a snapshot, walked by the schema. */
#ifndef MILLRACE_CONFIG_OWN_H
#define MILLRACE_CONFIG_OWN_H

#include "config/snapshot.h"

/* A snapshot of its own with the values of `shared`, which may hold pointers into any number of
 * others; references to upstreams go by name and must all be among its upstreams. config_finish()
 * is still to be called. NULL: out of memory. */
struct snapshot *config_own(const struct snapshot *shared);

#endif
