/* What a request is routed by. The one place for host and path rules.
 *
 * A request is forwarded with the path it came with (an absolute target is turned into a path), and
 * routed by the normalized path. So that both always mean the same place:
 *
 *   refused, 400   a bad escape (%, %1, %zz); an encoded control character (%00 to %1F, %7F);
 *                  an encoded slash or backslash (%2F, %5C), and a bare backslash; a segment that
 *                  is "." or "..", written in any mixture of "." and "%2E", with or without
 *                  parameters ("..;x")
 *   decoded        escapes of unreserved characters (RFC 3986 §6.2.2.2): %61 is a
 *   upper-cased    the hex digits of the escapes that stay
 *   merged         runs of "/" become one: an origin that merges them gets the route it means, one
 *                  that doesn't gets an unknown path inside that same route
 *   left           the query: nothing is routed by it
 *
 * Host: letters, digits, "-", "_" and "." (and an IPv6 literal in brackets); lower-cased; one final
 * dot dropped; empty labels refused; at the most 253 bytes; an optional port 1 to 65535. User
 * information, escapes and anything else are refused.
 */
#ifndef MILLRACE_DATAPLANE_HTTP_NORMALIZE_H
#define MILLRACE_DATAPLANE_HTTP_NORMALIZE_H

#include "dataplane/http/message.h"

#define HTTP_HOST_MAX 264 /* bytes for a host; a name has 253 at the most */

struct http_host {
    char name[HTTP_HOST_MAX]; /* NUL-terminated; an IPv6 literal keeps its brackets */
    uint16_t len;             /* 0: no host (HTTP/1.0 without one) */
    uint16_t port;            /* 0: none given */
};

struct http_route_key {
    struct http_host host;
    const char *path; /* into the head's bytes or into the caller's buffer; "/" for OPTIONS * */
    uint32_t path_len;
};

/* 0, or -400 and *ret_host undefined. */
int http_host_normalize(const char *text, size_t len, struct http_host *ret_host);

/* Writes at most `len` bytes to `buf` (needs cap >= len), or nothing when the path is normal
 * already. Returns 0, or -status with *ret_error set. */
int http_path_normalize(const char *path, size_t len, char *buf, size_t cap, const char **ret_path,
                        uint32_t *ret_len, enum http_error *ret_error);

/* Both of a parsed request. `https`: what the listener speaks; an absolute target of the other
 * scheme is 421. Returns 0, or -status with head->error set. */
int http_normalize_request(struct http_head *head, bool https, char *buf, size_t cap,
                           struct http_route_key *ret_key);

#endif
