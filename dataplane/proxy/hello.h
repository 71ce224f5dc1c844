/* The beginning of a tunnel that goes where the ClientHello asks for: reading it, and the choice.
 *
 * Private to proxy/.
 */
#ifndef MILLRACE_DATAPLANE_PROXY_HELLO_H
#define MILLRACE_DATAPLANE_PROXY_HELLO_H

#include "dataplane/proxy/conn.h"
#include "dataplane/stream/client_hello.h"

/* Of proxy.hellos, for as long as the tunnel lives. */
struct tunnel_hello {
    struct hello_reader reader;
    char name[CLIENT_HELLO_NAME]; /* empty: not known, or none */
};

/* Looks at what has arrived, which stays as it is. True: it is decided; *ret_upstream NULL: that
 * the connection is turned away, by *ret_why. False: more is needed. */
bool hello_route(struct tunnel_hello *h, struct listener *l, const struct rope *in,
                 const struct config_upstream **ret_upstream, enum turned_away *ret_why);

#endif
