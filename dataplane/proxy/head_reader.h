/* Gathers the head of a message: in place while it stands in one mbuf, else in a buffer that grows
 * up to the limit. Private to proxy/. */
#ifndef MILLRACE_DATAPLANE_PROXY_HEAD_READER_H
#define MILLRACE_DATAPLANE_PROXY_HEAD_READER_H

#include "dataplane/http/h1/parse.h"
#include "dataplane/stream/rope.h"

struct head_reader {
    struct h1_scan scan;
    char *buf; /* NULL while the head is read in place */
    uint32_t len, cap;
};

/* Looks on in what has come into `in`. > 0: the head and its leading empty lines end there, and
 * *ret_base is their first byte, valid until `in` is trimmed or head_reader_reset(). 0: not yet.
 * -status: refused (see h1_scan_head), -500 without memory. */
int head_reader_scan(struct head_reader *h, const struct rope *in, const struct h1_limits *limits,
                     const char **ret_base);

/* Frees the buffer and starts anew, for a request. */
void head_reader_reset(struct head_reader *h);

/* The same, for a response: nothing may stand before it. */
void head_reader_reset_response(struct head_reader *h);

/* The buffer becomes the caller's to free(); NULL when the head was read in place. */
char *head_reader_steal(struct head_reader *h);

#endif
