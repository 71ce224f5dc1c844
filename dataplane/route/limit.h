/* What limits per client know of each client: one table for all cores, so that a limit holds over
 * all of them, exactly.
 *
 * A cell is 16 bytes, a key (which limit, which address) and a value, and changes by one 128-bit
 * compare-and-swap; nothing waits. Rates are GCRA: the value is the time at which the client will
 * have nothing ahead of its rate, and a cell whose time has come says as much as none at all, so it
 * is free to be taken. Connections are counted; a cell is free at 0.
 *
 * A key is in one set of 16 cells, found by a keyed hash. A newcomer takes a free cell of its set.
 * If there is none, the rate that would be free first is forgotten (counted): that client's burst
 * is whole again. Where all 16 count connections, a rate is not looked after and a connection is
 * refused (both counted); with a table no fuller than it is meant for, that happens to about one in
 * a million.
 *
 * Memory: LIMIT_CLIENT_BYTES for each client the table is meant for, from the start. No allocation
 * after that.
 *
 * May use: runtime, config/snapshot.h. Used by: proxy, core.
 */
#ifndef MILLRACE_DATAPLANE_ROUTE_LIMIT_H
#define MILLRACE_DATAPLANE_ROUTE_LIMIT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "config/snapshot.h"

#define LIMIT_CLIENT_BYTES 64

struct limit_table;

/* For `clients` at once. NULL: no memory. `secret` keys the hash. */
struct limit_table *limit_table_new(uint32_t clients, const uint8_t secret[16]);
void limit_table_free(struct limit_table *t);

/* A core's way to the table. Thread: single owner. */
struct client_limits {
    struct limit_table *table;
    uint64_t ticket_; /* names this core's latest attempt to take a cell: the core, then a number */
    uint64_t forgotten; /* rates that had to give way */
    uint64_t untracked; /* rates not looked after, connections refused, since the set was full */
};

/* `core`: below 2^16, different for each user of a table. */
void client_limits_init(struct client_limits *l, struct limit_table *table, unsigned core);

/* Takes one of what `limit` (with an interval) allows the address. False: over it, and *ret_wait ns
 * from `now` there will be one. `now`: ns, the same clock on all cores. */
bool client_limits_take(struct client_limits *l, const struct config_limit *limit, uint32_t addr,
                        uint64_t now, uint64_t *ret_wait);

/* Counts a connection, if the address has fewer than `max`. To be given back by
 * client_limits_leave(), with the same id. */
bool client_limits_enter(struct client_limits *l, uint32_t id, uint32_t addr, uint32_t max,
                         uint64_t now);
void client_limits_leave(struct client_limits *l, uint32_t id, uint32_t addr);

/* What stands for a client of IPv6: its /64, as an address in 240.0.0.0/4, where nobody is. By
 * chance (2^-28) two of them share one; which ones, no outsider can know. The same on every core.
 */
uint32_t client_limits_ip6(const struct client_limits *l, const uint8_t ip6[16]);

/* Connections counted; for tests. */
uint32_t client_limits_count(const struct client_limits *l, uint32_t id, uint32_t addr);

#endif
