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

struct h1_writer; /* h1/writer.h */

/* An answer of the proxy's own. `via` is not written: the proxy is its origin. */
struct http_answer {
    int status;
    bool keep_alive;
    bool head_request;                                 /* no body, but its Content-Length */
    uint32_t retry_after;                              /* s; 0: none is named */
    const char *date;                                  /* as in h1_response_edit */
    const char *body;                                  /* in UTF-8; NULL: "404 Not Found\n" */
    void (*put)(struct h1_writer *w, const void *ctx); /* writes further lines; NULL: none */
    const void *ctx;
};

/* The whole of it at the end of `out`, as text/plain; 405 carries Allow. -ENOMEM: `out` is as it
 * was. */
int http_answer_write(struct rope_pool *pool, struct rope *out, const struct http_answer *a);

#endif
