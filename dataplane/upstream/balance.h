/* The choice between the endpoints of an upstream that are used now.
 *
 * A balancer is one file behind struct balancer. It picks among `used` in constant time (round
 * robin with unequal weights: logarithmic) and allocates nothing; what it needs is rebuilt when the
 * used ones change: by a reload, or when control says that one is healthy or ejected. All of it is
 * one core's own.
 *
 * Thread: the owner core.
 */
#ifndef MILLRACE_DATAPLANE_UPSTREAM_BALANCE_H
#define MILLRACE_DATAPLANE_UPSTREAM_BALANCE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "config/snapshot.h"
#include "runtime/rng.h"

#define BALANCE_NOWHERE UINT16_MAX

struct endpoint;
struct balance;

struct balancer {
    const char *name;
    /* After `used` has changed; it isn't empty. NULL: nothing to do. */
    void (*rebuild)(struct balance *b, struct rng *rng);
    /* `used` has two at the least. */
    struct endpoint *(*pick)(struct balance *b, struct rng *rng, uint64_t hash);
};

/* In the file of its name each. */
extern const struct balancer balance_round_robin, balance_least_request, balance_random,
    balance_consistent_hash;

/* One place of the alias method (Vose 1991): itself with a probability of cut / 2^32, else the
 * other. */
struct balance_alias {
    uint32_t cut;
    uint16_t other;
};

/* Room for all endpoints of an upstream, made when a snapshot is adopted. */
struct balance_tables {
    struct endpoint **used; /* the start of the one block that all of them are in; spares next */
    struct endpoint **by_index; /* every configured one, by its index in the snapshot */
    struct balance_alias *alias;
    uint64_t *due;  /* round robin: when each is next, in its own time */
    uint16_t *heap; /* places by `due`, the next one first */
    uint32_t room;
};

struct balance {
    const struct balancer *kind;
    struct balance_tables t;
    uint32_t n;            /* of t.used */
    uint32_t spares;       /* behind them: ejected ones, for who has tried all others */
    uint32_t next;         /* round robin with equal weights */
    bool weighted;         /* weights differ */
    bool panic;            /* all are used, since too few are usable */
    bool backups;          /* backups are used, since no other is usable */
    const uint16_t *table; /* the snapshot's Maglev table; NULL: none */
    uint32_t table_size;
};

const struct balancer *balancer_of(enum config_balance kind);

/* 0 or -ENOMEM. */
int balance_tables_init(struct balance_tables *t, size_t nendpoints);
void balance_tables_fini(struct balance_tables *t);

/* For balancers: fills t.alias from the weights; a place at random by it. */
void balance_alias_build(struct balance *b);
struct endpoint *balance_draw(const struct balance *b, struct rng *rng);

#endif
