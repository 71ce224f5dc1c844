/* The proxy of one core: listeners, client connections, exchanges and tunnels.
 *
 * May use: everything from net to upstream. Used by: core.
 * Thread: the owner core.
 */
#ifndef MILLRACE_DATAPLANE_PROXY_PROXY_H
#define MILLRACE_DATAPLANE_PROXY_PROXY_H

#include <stdbool.h>
#include <stdint.h>

#include "config/snapshot.h"
#include "dataplane/proxy/access_log.h"
#include "dataplane/proxy/conn_info.h"
#include "dataplane/stream/rope.h"
#include "dataplane/tcp/tcp.h"
#include "runtime/csprng.h"
#include "runtime/sched.h"

struct proxy;
struct limit_table; /* route/limit.h */
struct tls;         /* tls/tls.h */

struct proxy_opts {
    struct sched *sched;
    struct tcp *tcp;
    struct rope_pool *ropes;
    struct access_ring *log;
    struct mailbox *mailbox;    /* the core's */
    struct tls *tls;            /* the core's; NULL: none of its listeners has TLS */
    struct limit_table *limits; /* shared by the cores; NULL: no limit per client holds */
    uint8_t key[CSPRNG_KEY];    /* of the ids that requests get; different on each core */
    uint64_t seed;
    unsigned core, cores; /* a listener's connection limit is shared out over the cores */
    /* See struct upstreams_opts. */
    void (*receive)(void *ctx);
    void (*on_report)(void *ctx);
    void *ctx;
};

struct proxy *proxy_new(const struct proxy_opts *o); /* NULL: no memory */
/* Every connection is dropped without a word. */
void proxy_free(struct proxy *p);

/* Works by `s` from now on, all of it or nothing: opens and closes listeners, takes over routes,
 * timeouts, limits and upstreams. Connections stay, by the name, address and kind of their
 * listener: those of one that `s` lists as draining finish what they are at and then end; those of
 * one that it doesn't list at all are cut. `s` must live until the next successful apply. -ENOMEM:
 * the old snapshot stays in force. */
int proxy_apply(struct proxy *p, const struct snapshot *s);

/* CLOCK_REALTIME - CLOCK_MONOTONIC in ns, for dates and logs. */
void proxy_set_wall(struct proxy *p, int64_t offset);

/* Stops listening and closes idle connections; exchanges and tunnels may go on until `deadline`,
 * then they are aborted. */
void proxy_drain(struct proxy *p, uint64_t deadline);

/* True when draining and no client is left. */
bool proxy_is_drained(const struct proxy *p);

/* Ends everything at once. */
void proxy_abort_all(struct proxy *p);

struct proxy_counters {
    uint32_t clients, exchanges, tunnels; /* live */
    uint64_t limits_forgotten, limits_untracked;
};
void proxy_counters(const struct proxy *p, struct proxy_counters *ret_counters);

/* Fills the page and says where the next one begins (conn_info.h). */
void proxy_list_conns(struct proxy *p, struct conns_page *page);

/* What control says of an endpoint, and what there is to tell control: see upstream.h. */
struct endpoint_update;
struct endpoint_report;
bool proxy_set_endpoint(struct proxy *p, const struct endpoint_update *update);
unsigned proxy_take_reports(struct proxy *p, bool all, struct endpoint_report *ret, unsigned max);

/* Counters by name, for core_status; `visit` is called once for each. */
struct listener;
struct upstream;
void proxy_each_listener(struct proxy *p, void (*visit)(void *ctx, const struct listener *l),
                         void *ctx);
void proxy_each_upstream(struct proxy *p, void (*visit)(void *ctx, const struct upstream *u),
                         void *ctx);

#endif
