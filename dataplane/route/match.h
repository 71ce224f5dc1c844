/* Which route serves a request: host pattern first, then the longest path prefix.
 *
 * May use: config/snapshot.h. Used by: proxy. Thread: any; the table is immutable.
 */
#ifndef MILLRACE_DATAPLANE_ROUTE_MATCH_H
#define MILLRACE_DATAPLANE_ROUTE_MATCH_H

#include <stddef.h>

#include "config/snapshot.h"

enum route_result {
    ROUTE_OK,
    ROUTE_NO_PATH, /* the host is served here, the path is not: 404 */
    ROUTE_NO_HOST, /* the host is not served here: 421 (RFC 9110 §15.5.20) */
};

/* `host` is lower case without port, `path` normalized; both may hold any bytes. ret_route is set
 * on ROUTE_OK only. A path prefix matches whole segments: "/api" matches "/api" and "/api/x", not
 * "/apix"; a prefix that ends in "/" matches everything below it. */
enum route_result route_match(const struct config_http *http, const char *host, size_t host_len,
                              const char *path, size_t path_len,
                              const struct config_route **ret_route);

#endif
