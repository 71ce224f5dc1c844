/* Between cluster.c and pool.c; users see upstream.h. */
#ifndef MILLRACE_DATAPLANE_UPSTREAM_POOL_H
#define MILLRACE_DATAPLANE_UPSTREAM_POOL_H

#include "dataplane/upstream/upstream.h"

/* Closes the endpoint's idle connections. */
void pool_close_idle(struct endpoint *ep);

/* Frees what has been removed and has no user left. */
void endpoint_maybe_free(struct endpoint *ep);
void upstream_maybe_free(struct upstream *up);

#endif
