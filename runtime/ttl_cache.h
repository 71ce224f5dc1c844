/* A bounded memory with an age limit per value, on top of single flight: get, or fetch once for all
 * who ask.
 *
 * Values and failures are kept apart, each up to a bound of their own and the least recently used
 * goes first: a flood of names that don't exist cannot push out what does. An entry past its time
 * is not seen; its room is reused when it is asked for again or is the least recently used.
 *
 * Stale while revalidate (RFC 5861): for opts.stale_ns past its time a value is still given at
 * once, and the first to ask starts a refresh in the background. A refresh that fails leaves the
 * value as it is and is tried again after the failure's own time.
 *
 * Nothing is allocated per request: entries come from a slab with a bound. Thread: single owner.
 */
#ifndef MILLRACE_RUNTIME_TTL_CACHE_H
#define MILLRACE_RUNTIME_TTL_CACHE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "runtime/flight.h"
#include "runtime/key_table.h"
#include "runtime/list.h"
#include "runtime/slab.h"

struct ttl_cache;

/* First member of the fetch's own struct (flight.h: the future sets work.value, then is ready). */
struct ttl_fetch {
    struct flight_work work;
    /* How long the answer is good; the fetch may change them until it is ready. 0: not kept. */
    uint64_t ttl_ns;         /* preset to opts.ttl_ns */
    uint64_t failure_ttl_ns; /* preset to opts.failure_ttl_ns; 0 for a failure of our own making */
};

/* Static. As in struct flight_kind; what `share` makes is also what the cache keeps. */
struct ttl_cache_kind {
    const char *name;
    size_t fetch_size;
    size_t value_size;
    void (*start)(struct ttl_fetch *f);
    void (*share)(void *value);
    void (*release)(void *value);
};

struct ttl_cache_opts {
    const struct ttl_cache_kind *kind;
    void *arg; /* ttl_cache_arg() */
    struct sched *sched;
    struct siphash_key secret;
    uint32_t max_values;     /* > 0 */
    uint32_t max_failures;   /* 0: failures are shared while in flight, but not kept */
    uint32_t max_fetches;    /* in flight; > 0 */
    uint16_t key_max;        /* bytes */
    bool keep_unwanted;      /* a fetch whose callers have all left goes on and fills the cache */
    uint64_t ttl_ns;         /* of a value, unless its fetch says otherwise */
    uint64_t failure_ttl_ns; /* of a failure */
    uint64_t stale_ns;       /* how long past its time a value may still be given; 0: not at all */
};

struct ttl_cache_stats {
    uint64_t fresh, stale, failures, misses; /* answers of ttl_cache_find() */
    uint64_t evicted;                        /* still good, pushed out by the bound */
    uint64_t refreshes;                      /* started in the background */
    uint64_t refresh_failed;                 /* and the old value was left in place */
    uint32_t nvalues, nfailures;             /* entries now, those past their time too */
};

struct ttl_cache {
    struct ttl_cache_opts o_;
    struct flight_kind flight_kind_;
    struct flight flight_;
    struct key_table table_;
    struct slab entries_;
    struct list_node values_, failures_; /* most recently used first */
    uint32_t value_at_, key_at_;         /* in an entry */
    struct ttl_cache_stats stats;
};

enum ttl_found {
    TTL_MISS,
    TTL_FRESH,
    TTL_STALE, /* past its time, still to be given */
    TTL_FAILURE,
};

/* A get in progress. Zeroed memory needs no drop. */
struct ttl_get {
    struct future f; /* kind is "ttl_get" */
    struct ttl_cache *cache_;
    const void *key_;
    size_t key_len_;
    void *value_;
    uint64_t deadline_;
    struct flight_call call_;
    bool is_fetching_;
    enum ttl_found found; /* once ready: where the answer came from; TTL_MISS: a fetch */
};

/* 0 or -ENOMEM. */
int ttl_cache_init(struct ttl_cache *c, const struct ttl_cache_opts *o);

/* Gives up fetches and releases all values. No get may be left (as flight_fini()). */
void ttl_cache_fini(struct ttl_cache *c);

/* Gets from memory or by a fetch that is shared with all who ask meanwhile. `key` is borrowed until
 * the first poll; `deadline` is absolute ns or DEADLINE_NONE. Ready with 0 and the caller's own
 * copy of the value, or the fetch's failure (kept or new), or what flight_call_init() lists. Cancel
 * safe. */
void ttl_get_init(struct ttl_get *g, struct ttl_cache *c, const void *key, size_t key_len,
                  uint64_t deadline, void *ret_value);

/* A look that neither waits nor fetches, and counts as a use. For TTL_FRESH and TTL_STALE
 * `*ret_value` points to the value (until the next call on the cache or the end of the poll), for
 * TTL_FAILURE `*ret_status` is the failure. */
enum ttl_found ttl_cache_find(struct ttl_cache *c, const void *key, size_t key_len,
                              const void **ret_value, int *ret_status);

/* Puts a value (not one that lies in the cache) or replaces one; ttl 0 only removes. The cache
 * shares it, the caller keeps his own. A fetch in flight for the key lands for those who wait and
 * is not kept. 0; -EINVAL: the key is too long; -ENOMEM. */
int ttl_cache_put(struct ttl_cache *c, const void *key, size_t key_len, const void *value,
                  uint64_t ttl_ns);

/* Forgets the key; a fetch in flight for it lands for those who wait and is not kept. True when
 * there was an entry. */
bool ttl_cache_remove(struct ttl_cache *c, const void *key, size_t key_len);

static inline void *ttl_cache_arg(const struct ttl_fetch *f)
{
    return ((const struct ttl_cache *)flight_arg(&f->work))->o_.arg;
}

/* Of its fetches. */
static inline const struct flight_stats *ttl_cache_flight_stats(const struct ttl_cache *c)
{
    return &c->flight_.stats;
}

#endif
