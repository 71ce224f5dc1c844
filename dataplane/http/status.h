/* Answers that the proxy makes itself, and the Date field. */
#ifndef MILLRACE_DATAPLANE_HTTP_STATUS_H
#define MILLRACE_DATAPLANE_HTTP_STATUS_H

#include "dataplane/http/message.h"
#include "dataplane/stream/rope.h"

#define HTTP_DATE_LEN 29

/* The text of one second, kept until the second changes. One owner. */
struct http_date {
    uint64_t second_;
    char text[HTTP_DATE_LEN + 1];
};

/* IMF-fixdate (RFC 9110 §5.6.7) of `unix_seconds` (up to the year 9999), valid until the next call.
 */
const char *http_date_get(struct http_date *d, uint64_t unix_seconds);

/* "Not Found"; "" for a status without one. */
const char *http_status_reason(int status);

/* A whole small answer at the end of `out`: text/plain "404 Not Found\n". Without a body (but with
 * its Content-Length) for HEAD. 405 carries Allow, 503 Retry-After. `date` as in h1_response_edit;
 * `via` is not written: the proxy is the origin of this answer. -ENOMEM: `out` is as it was. */
int http_error_response(struct rope_pool *pool, struct rope *out, int status, bool keep_alive,
                        bool head_request, const char *date);

#endif
