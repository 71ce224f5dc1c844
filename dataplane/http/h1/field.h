/* One field line, for heads and trailer sections. Internal to h1/. */
#ifndef MILLRACE_DATAPLANE_HTTP_H1_FIELD_H
#define MILLRACE_DATAPLANE_HTTP_H1_FIELD_H

#include "dataplane/http/message.h"

/* Parses the line at `p`; `end` is behind a CRLF, which may be this line's own or a later one.
 * `loose`: white space before the colon is accepted. Returns the next line and fills *f but for the
 * flag HTTP_HF_NOMINATED, or NULL and sets *ret_error. */
const char *h1_field_parse(const char *base, const char *p, const char *end, bool loose,
                           struct http_header *f, enum http_error *ret_error);

/* The first byte of [p, end) that is a control character other than HTAB, or end. */
const char *h1_field_find_ctl(const char *p, const char *end);

#endif
