#include "dataplane/route/match.h"

#include <string.h>

static bool host_matches(const struct config_route *r, const char *host, size_t len)
{
    switch (r->host_kind) {
    case CONFIG_HOST_ANY:
        return true;
    case CONFIG_HOST_EXACT:
        return len == r->host_len && memcmp(host, r->host, len) == 0;
    case CONFIG_HOST_SUFFIX: /* ".example.com": at least one label in front of it */
        return len > r->host_len && memcmp(host + len - r->host_len, r->host, r->host_len) == 0;
    }
    return false;
}

static bool path_matches(const struct config_route *r, const char *path, size_t len)
{
    size_t n = r->path_prefix_len;
    if (len < n || memcmp(path, r->path_prefix, n) != 0)
        return false;
    return len == n || r->path_prefix[n - 1] == '/' || path[n] == '/';
}

static bool same_host(const struct config_route *a, const struct config_route *b)
{
    return a->host_kind == b->host_kind && a->host_len == b->host_len &&
           (a->host_kind == CONFIG_HOST_ANY || memcmp(a->host, b->host, a->host_len) == 0);
}

/* Once a host pattern serves the request's host, less specific patterns are not tried, as in every
 * peer. */
enum route_result route_match(const struct config_http *http, const char *host, size_t host_len,
                              const char *path, size_t path_len,
                              const struct config_route **ret_route)
{
    const struct config_route *served = NULL;
    for (size_t i = 0; i < http->nroutes; i++) {
        const struct config_route *r = &http->routes[i];
        if (served ? !same_host(served, r) : !host_matches(r, host, host_len))
            continue;
        served = r;
        if (path_matches(r, path, path_len)) {
            *ret_route = r;
            return ROUTE_OK;
        }
    }
    return served ? ROUTE_NO_PATH : ROUTE_NO_HOST;
}
