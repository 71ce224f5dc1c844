/* traceparent: a request's place in a distributed trace (W3C Trace Context, level 1). */
#ifndef MILLRACE_DATAPLANE_HTTP_TRACE_H
#define MILLRACE_DATAPLANE_HTTP_TRACE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define HTTP_TRACE_LEN     55
#define HTTP_TRACE_ID      16
#define HTTP_TRACE_PARENT  8
#define HTTP_TRACE_SAMPLED 1u

struct http_trace {
    uint8_t id[HTTP_TRACE_ID];
    uint8_t parent[HTTP_TRACE_PARENT];
    uint8_t flags;
};

/* Of a later version (but ff), what version 00 knows of it. False: it is none. */
bool http_trace_parse(const char *text, size_t len, struct http_trace *ret_trace);

/* As version 00, which has one flag. */
void http_trace_format(const struct http_trace *t, char to[HTTP_TRACE_LEN]);

/* Two digits a byte, lower case. */
void http_hex(char *to, const uint8_t *bytes, size_t n);

#endif
