/* Between the files of upstream/; users see upstream.h. */
#ifndef MILLRACE_DATAPLANE_UPSTREAM_POOL_H
#define MILLRACE_DATAPLANE_UPSTREAM_POOL_H

#include "dataplane/upstream/upstream.h"

enum upconn_state {
    UPCONN_WARMING, /* opened ahead, in its handshake */
    UPCONN_IDLE,
    UPCONN_USED,
};

void pool_endpoint_init(struct endpoint *ep);

/* Closes the endpoint's idle connections. */
void pool_close_idle(struct endpoint *ep);

/* Those who wait go ahead, as far as pool.max allows. */
void pool_grant(struct endpoint *ep);

/* Who waits for a connection of the endpoint chooses anew. */
void pool_send_away(struct endpoint *ep);

/* Sees to it that the endpoint has pool.min connections, if it is used. */
void pool_keep_warm(struct endpoint *ep);

void pool_warmer_init(struct upstreams *u);
void pool_warmer_fini(struct upstreams *u);
/* warm.c: a connection opened ahead has come to nothing, or a connection has gone. */
void pool_warm_failed(struct endpoint *ep);

/* A connection with a task of its own, not yet in anyone's hands; in state WARMING. Takes over
 * the permits, both of which are held. */
int upconn_open(struct endpoint *ep, struct task *t, struct conn_permits *permits,
                struct upconn **ret_conn);

/* owner.c */
void owner_add(struct pool_owner *o, struct upconn *c);
/* An idle one to the endpoint; `o` may be NULL. */
struct upconn *owner_find_idle(const struct pool_owner *o, const struct endpoint *ep);

/* limiter_side.close_idle, of an endpoint and of an upstream. */
void pool_close_for_others(void *ctx, uint32_t n);
void upstream_close_for_others(void *ctx, uint32_t n);

/* Frees what has been removed and has no user left. */
void endpoint_maybe_free(struct endpoint *ep);
void upstream_maybe_free(struct upstream *up);

#endif
