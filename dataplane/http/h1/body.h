/* HTTP/1 bodies: taking the framing off (decode) and putting it on (encode), over ropes.
 *
 * Decode moves payload from `in` to `out` without copying it (but for small pieces, where a copy
 * costs less than a node), and consumes the framing; what follows the body (a pipelined message)
 * stays in `in`. Chunk extensions are checked, bounded and dropped (RFC 9112 §7.1.1). Trailers are
 * kept as text; fields that frame, route or authenticate (HTTP_HF_NOTRAILER), hop-by-hop ones
 * included, are dropped.
 */
#ifndef MILLRACE_DATAPLANE_HTTP_H1_BODY_H
#define MILLRACE_DATAPLANE_HTTP_H1_BODY_H

#include "dataplane/http/message.h"
#include "dataplane/stream/rope.h"

#define H1_MAX_CHUNK_LINE     256  /* size and extensions of one chunk */
#define H1_MAX_TRAILERS       4096 /* bytes of a trailer section */
#define H1_MAX_TRAILER_FIELDS 64

struct h1_body {
    uint8_t kind; /* enum http_framing */
    uint8_t state_;
    bool done;      /* the whole body has been taken from `in` */
    uint16_t line_; /* bytes of the present chunk line or digits */
    uint32_t trailer_len_;
    uint64_t left_;       /* of the length, or of the chunk */
    uint64_t total;       /* payload bytes moved to `out` */
    uint64_t limit;       /* payload bytes allowed */
    uint64_t chunk_ext_;  /* bytes of framing that carried nothing, so that it can be bounded */
    struct rope trailers; /* "name: value\r\n" each, without the empty line; complete once done */
};

/* `limit` UINT64_MAX: none. -EFBIG when `length` is over it (b is usable: fini is optional). */
int h1_body_init(struct h1_body *b, enum http_framing kind, uint64_t length, uint64_t limit);

/* Gives the trailers back; idempotent. */
void h1_body_fini(struct h1_body *b, struct rope_pool *pool);

/* Moves up to `max` payload bytes. Returns how many (0: needs more input, or b->done); b->done
 * tells the end, which may come with the last bytes or after them. What was moved before an error
 * is returned first: the error comes with the next call, and `in` is not empty until then. -EBADMSG
 * malformed framing or trailers   -EFBIG  over the limit: these two stick -ENOMEM   no node or
 * mbuf: nothing is lost, may be called again */
ssize_t h1_body_decode(struct h1_body *b, struct rope_pool *pool, struct rope *in, struct rope *out,
                       uint64_t max);

/* The peer has sent FIN and `in` is empty: 0 when the body is whole (UNTIL_CLOSE becomes done), or
 * -EPIPE when it was cut. */
int h1_body_eof(struct h1_body *b);

/* Payload that is sure to come: the rest of a LENGTH body; 0 for others. */
static inline uint64_t h1_body_left(const struct h1_body *b)
{
    return b->kind == HTTP_BODY_LENGTH ? b->left_ : 0;
}

/* Frames all of `payload` (not empty) as one chunk at the end of `out`. 0 and payload empty, or
 * -ENOMEM and both as they were. */
int h1_body_encode_chunk(struct rope_pool *pool, struct rope *out, struct rope *payload);

/* The last chunk, the trailers (moved; may be NULL or empty) and the final empty line. */
int h1_body_encode_last(struct rope_pool *pool, struct rope *out, struct rope *trailers);

#endif
