/* Writes a template (config/duties.h) with what its variables stand for. */
#ifndef MILLRACE_DATAPLANE_ROUTE_TEMPLATE_H
#define MILLRACE_DATAPLANE_ROUTE_TEMPLATE_H

#include "config/snapshot.h"
#include "dataplane/http/h1/writer.h"
#include "dataplane/http/normalize.h"

struct template_vars {
    const char *client_ip, *listener, *request_id; /* "" where there is none */
    const struct http_head *head;     /* the request's; NULL when only the ones above are used */
    const struct http_route_key *key; /* the same; only host and path need it */
    bool https;                       /* what the client spoke to us */
    uint32_t prefix_len; /* of the route's prefix without a "/" at its end, for ${rest} */
};

void template_put(struct h1_writer *w, const struct config_template *t,
                  const struct template_vars *v);

/* The same for a Location: one that begins with a path stays on this host, whatever the request
 * says ("//other.example" would not). */
void template_put_location(struct h1_writer *w, const struct config_template *t,
                           const struct template_vars *v);

#endif
