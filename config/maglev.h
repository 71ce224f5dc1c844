/* Maglev hashing (Eisenbud and others, NSDI 2016, section 3.4): a table in which every endpoint has
 * its share of the places, and which changes little when an endpoint comes or goes.
 *
 * The result depends on the endpoints' addresses and weights alone, not on their order in the file,
 * so that every process of every host sends a hash to the same endpoint. Building takes
 * milliseconds (docs/tuning.md): it is done where a snapshot is made, never on a core.
 */
#ifndef MILLRACE_CONFIG_MAGLEV_H
#define MILLRACE_CONFIG_MAGLEV_H

#include "config/arena.h"
#include "config/snapshot.h"

/* A table of u->hash.size places in `a`, with indices of u->endpoints: those with a weight that are
 * no backups. *ret_table is NULL when there are none. False: out of memory. */
bool maglev_build(const struct config_upstream *u, struct arena *a, struct arena *scratch,
                  const uint16_t **ret_table);

bool maglev_is_prime(uint32_t n);

#endif
