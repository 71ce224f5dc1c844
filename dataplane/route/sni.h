/* Where a TLS connection goes that is passed on as it is.
 *
 * May use: config/snapshot.h, stream. Used by: proxy. Thread: any.
 */
#ifndef MILLRACE_DATAPLANE_ROUTE_SNI_H
#define MILLRACE_DATAPLANE_ROUTE_SNI_H

#include "config/snapshot.h"
#include "dataplane/stream/client_hello.h"

/* The first entry whose pattern has the name, and one of whose protocols is offered if it has any;
 * else the tunnel's own upstream. A hello without a name is "*"'s only. NULL: none takes it. */
const struct config_upstream *sni_match(const struct config_tunnel *t,
                                        const struct client_hello *h);

#endif
