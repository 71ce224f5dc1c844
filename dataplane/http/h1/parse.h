/* The strict HTTP/1 head parser (RFC 9112), in two steps: find the end of the head as bytes arrive,
 * then parse it once, whole.
 *
 * Requests are refused, never repaired: every form that two implementations may read differently is
 * an error. Responses are refused too, but where RFC 9112 tells a proxy to repair: white space
 * before a colon (§5.1) and a missing reason phrase (§4) are accepted. A bare LF is never a line
 * end.
 *
 * Connection options: "close", "keep-alive", "upgrade", "te" are understood; any other nominates a
 * field, which is then flagged HTTP_HF_NOMINATED. A nomination of a field that is meant for every
 * recipient, frames or routes the message (HTTP_HF_KEEP in header.def) is ignored: a client can't
 * strip Host, Content-Length, Authorization or X-Forwarded-For on the way to the origin. More than
 * H1_MAX_OPTIONS options in a message are refused.
 */
#ifndef MILLRACE_DATAPLANE_HTTP_H1_PARSE_H
#define MILLRACE_DATAPLANE_HTTP_H1_PARSE_H

#include "dataplane/http/message.h"

#define H1_MAX_METHOD  32
#define H1_MAX_OPTIONS 32
#define H1_MAX_LEADING 2 /* empty lines before a request */

struct h1_limits {
    uint32_t head_size;   /* bytes from the first of the start line through the empty line */
    uint32_t target_size; /* bytes of a request's target; 0: as head_size */
    /* the number of fields is http_head.cap */
};

struct h1_scan {
    uint32_t start;      /* offset of the start line: leading empty lines are skipped */
    uint32_t pos_;       /* looked at so far */
    uint32_t line_;      /* first byte of the line that pos_ is in */
    uint8_t leading_;    /* empty lines that may still come before the start line */
    bool has_start_line; /* a whole start line was seen: then 431 rather than 414, and 408 makes
                            sense */
    uint8_t error;       /* enum http_error, after a failure */
};

/* For a request: up to H1_MAX_LEADING empty lines are skipped (RFC 9112 §2.2). All zero is the
 * same. */
static inline void h1_scan_init(struct h1_scan *s)
{
    *s = (struct h1_scan){0};
}

/* For a response: nothing may stand before it. */
static inline void h1_scan_init_response(struct h1_scan *s)
{
    *s = (struct h1_scan){.leading_ = H1_MAX_LEADING};
}

/* Looks for the end of the head in buf[0..len), which has grown at its end since the last call (the
 * bytes may have moved). Each byte is looked at once.
 * Returns the offset behind the head (> 0); 0 for "not yet"; -400 on a bare LF; -414 or -431 when
 * the head is over limits->head_size. The head itself is buf[s->start .. ret). */
int h1_scan_head(struct h1_scan *s, const char *buf, size_t len, const struct h1_limits *limits);

/* buf[0..len) is exactly one head: what h1_scan_head found. `head` has been http_head_init()ed.
 * 0, or -(status for the client) with head->error set; then only `error`, and as far as they were
 * reached `method`, `method_text`, `target` and `version_minor`, are defined (zero otherwise).
 * After a failure the connection can't be used further. */
int h1_parse_request(const char *buf, size_t len, const struct h1_limits *limits,
                     struct http_head *head);

/* `head_request`: it answers a HEAD. 0, or -502 with head->error set. Interim (1xx) responses are
 * returned like any other. */
int h1_parse_response(const char *buf, size_t len, bool head_request, struct http_head *head);

#endif
