/* Retry budget: retries as a share of requests, with a floor, so that a failing server is not
 * buried under what clients make of its failures.
 *
 * Each request adds `ratio` of a token, each retry takes a whole one when it is decided (before its
 * wait, so that retries in back-off count). When there is none, `min_per_second` retries a second
 * are still granted, for those who send few requests.
 *
 * Over cores: each core keeps its requests' tokens to itself, up to two chunks of
 * max(1, burst / (8 * cores)) tokens; a full chunk goes to a common pool (and is lost when that
 * has `burst`), a core without takes one from there. The floor is one shared meter, looked at only
 * by retries that found no token. So a request never writes to a shared line while the pool is
 * full, and one in chunk/ratio otherwise.
 *
 * What holds over all cores, for any span of time of T seconds in which R requests were counted:
 *     retries granted <= ratio * R + burst + 2 * chunk * cores + min_per_second * (T + 1)
 * and over the budget's whole life, as it starts empty:
 *     retries granted <= ratio * R + min_per_second * (T + 1).
 * (T counts from the earliest to the latest `now` that any core passed.) The other way: a core is
 * refused only when it and the pool together have less than one token, and the floor is spent; so
 * at most 2 * chunk * (cores - 1) tokens rest where others can't have them.
 *
 * Thread: a struct retry_budget_core belongs to its core; what takes a struct retry_budget may be
 * called from any thread.
 */
#ifndef MILLRACE_RUNTIME_RETRY_BUDGET_H
#define MILLRACE_RUNTIME_RETRY_BUDGET_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "runtime/counter.h"

#define RETRY_BUDGET_TOKEN     1000000ull /* one retry */
#define RETRY_BUDGET_FLOOR_MAX 10000      /* up to here rounding is exact */

struct retry_budget_opts {
    uint32_t ratio_ppm;      /* of requests: 200,000 is 20 %; at most 1,000,000 */
    uint32_t min_per_second; /* retries, at most RETRY_BUDGET_FLOOR_MAX; 0: no floor */
    uint32_t burst;          /* tokens (retries) that the pool keeps; > 0 */
    unsigned cores;          /* > 0 */
};

struct retry_budget {
    /* Read by all, written when the settings change. */
    _Alignas(64) _Atomic uint32_t ratio_ppm_;
    _Atomic uint32_t min_per_second_;
    uint64_t chunk_, pool_max_;
    /* Written once a chunk, and by a floor grant. */
    _Alignas(64) atomic_uint_fast64_t pool_;
    atomic_uint_fast64_t floor_; /* until when the floor has been spent, ns */
};

/* One a core, on lines of its own. */
struct retry_budget_core {
    _Alignas(64) struct retry_budget *budget_;
    uint64_t tokens_;
    struct counter requests, granted, refused; /* granted and refused: retries */
};

void retry_budget_init(struct retry_budget *b, const struct retry_budget_opts *o);

/* Any thread; tokens already earned stay. */
void retry_budget_set(struct retry_budget *b, uint32_t ratio_ppm, uint32_t min_per_second);

/* Whole tokens in the common pool, for metrics. */
uint32_t retry_budget_pool(const struct retry_budget *b);

void retry_budget_core_init(struct retry_budget_core *c, struct retry_budget *b);

/* Gives the core's tokens to the pool; the struct may go. */
void retry_budget_core_fini(struct retry_budget_core *c);

/* Decides one retry at `now` (ns, monotonic, never back on one core): true, and it is counted. */
bool retry_budget_take(struct retry_budget_core *c, uint64_t now);

/* Out-of-line half of the one below. */
void retry_budget_share_(struct retry_budget_core *c);

/* Counts one request (not its retries). */
static inline void retry_budget_request(struct retry_budget_core *c)
{
    const struct retry_budget *b = c->budget_;
    counter_inc(&c->requests);
    c->tokens_ += atomic_load_explicit(&b->ratio_ppm_, memory_order_relaxed);
    if (c->tokens_ >= 2 * b->chunk_)
        retry_budget_share_(c);
}

#endif
