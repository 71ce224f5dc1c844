#include "dataplane/http/h1/body.h"

#include <assert.h>
#include <errno.h>
#include <string.h>

#include "dataplane/http/chars.h"
#include "dataplane/http/h1/field.h"

enum state {
    PAYLOAD, /* LENGTH and UNTIL_CLOSE know no other */
    SIZE_FIRST,
    SIZE,
    SIZE_BLANK, /* white space before ";" (RFC 9112 §7.1.1: bad, but to be parsed) */
    EXT,
    EXT_QUOTED,
    EXT_ESCAPED,
    SIZE_LF,
    DATA_CR,
    DATA_LF,
    TRAILER_START,
    TRAILER,
    TRAILER_LF,
    END_LF,
    FILTER, /* the trailer section is whole, but not looked at yet */
    END,
    BROKEN,   /* -EBADMSG */
    TOO_LONG, /* -EFBIG */
};

#define MAX_SIZE_DIGITS 16
/* Extensions are never of use to us; many of them are an attack (CVE-2023-39326). */
#define EXT_ALLOWANCE 16384
/* A piece this small is copied where the tail has room: cheaper than a segment of its own. */
#define COPY_INTO_TAIL 1024
/* A piece this small of a larger mbuf is copied even into a new one, lest it pin the old. */
#define COPY_ALWAYS 128
/* The most that surrounds a chunk's payload. */
#define CHUNK_OVERHEAD (MAX_SIZE_DIGITS + 4)

int h1_body_init(struct h1_body *b, enum http_framing kind, uint64_t length, uint64_t limit)
{
    memset(b, 0, sizeof(*b));
    b->kind = (uint8_t)kind;
    b->limit = limit;
    b->state_ = kind == HTTP_BODY_CHUNKED ? SIZE_FIRST : PAYLOAD;
    b->left_ = kind == HTTP_BODY_LENGTH ? length : kind == HTTP_BODY_UNTIL_CLOSE ? UINT64_MAX : 0;
    b->done = kind == HTTP_BODY_NONE || (kind == HTTP_BODY_LENGTH && length == 0);
    if (b->done)
        b->state_ = END;
    if (kind != HTTP_BODY_LENGTH || length <= limit)
        return 0;
    b->state_ = TOO_LONG;
    return -EFBIG;
}

void h1_body_fini(struct h1_body *b, struct rope_pool *pool)
{
    rope_clear(pool, &b->trailers);
}

static int body_fail(struct h1_body *b, enum state how)
{
    b->state_ = (uint8_t)how;
    return how == TOO_LONG ? -EFBIG : -EBADMSG;
}

static uint32_t tail_room(const struct rope *r)
{
    const struct rope_node *t = r->tail;
    if (!t || rte_mbuf_refcnt_read(t->mbuf) != 1)
        return 0;
    return t->mbuf->buf_len - t->off - t->len;
}

static ssize_t copy_payload(struct rope_pool *pool, struct rope *in, struct rope *out, uint32_t n)
{
    uint32_t left = n;
    while (left) {
        uint32_t here = in->head->len < left ? in->head->len : left;
        if (rope_append(pool, out, rope_node_data(in->head), here) < 0)
            break;
        rope_trim_head(pool, in, here);
        left -= here;
    }
    return left == n ? -ENOMEM : (ssize_t)(n - left);
}

static ssize_t move_payload(struct rope_pool *pool, struct rope *in, struct rope *out, uint64_t n)
{
    bool is_part = n < in->head->len;
    if ((n <= COPY_INTO_TAIL && tail_room(out) >= n) || (n <= COPY_ALWAYS && is_part)) {
        ssize_t copied = copy_payload(pool, in, out, (uint32_t)n);
        if (copied > 0)
            return copied;
    }
    return rope_move(pool, out, in, n);
}

/* Moves payload while there is some: > 0 bytes, 0 when none may go now, or the error. */
static ssize_t take_payload(struct h1_body *b, struct rope_pool *pool, struct rope *in,
                            struct rope *out, uint64_t max)
{
    uint64_t n = in->len < max ? in->len : max;
    if (n > b->left_)
        n = b->left_;
    if (n == 0)
        return 0;
    if (n > b->limit - b->total)
        return body_fail(b, TOO_LONG);
    ssize_t moved = move_payload(pool, in, out, n);
    if (moved <= 0)
        return moved;
    b->total += (uint64_t)moved;
    if (b->kind == HTTP_BODY_UNTIL_CLOSE)
        return moved;
    b->left_ -= (uint64_t)moved;
    if (b->left_ == 0)
        b->state_ = b->kind == HTTP_BODY_CHUNKED ? DATA_CR : END;
    return moved;
}

/* The chunk line is over. */
static enum state on_chunk_size(struct h1_body *b)
{
    b->line_ = 0;
    if (b->left_ == 0)
        return TRAILER_START;
    return b->left_ > b->limit - b->total ? TOO_LONG : PAYLOAD;
}

static enum state on_size_digit(struct h1_body *b, char c)
{
    /* `line_` counts digits here; 16 of them fit, and a sum over INT64_MAX is nobody's. */
    if (b->line_ >= MAX_SIZE_DIGITS)
        return BROKEN;
    b->left_ = b->left_ << 4 | http_hex_value(c);
    return b->left_ > INT64_MAX ? BROKEN : SIZE;
}

static enum state on_ext(char c)
{
    if (c == '\r')
        return SIZE_LF;
    if (c == '"')
        return EXT_QUOTED;
    bool ok = c == ';' || c == '=' || c == ' ' || c == '\t' || http_char_is(c, HTTP_C_TOKEN);
    return ok ? EXT : BROKEN;
}

static enum state on_ext_quoted(char c)
{
    if (c == '"')
        return EXT;
    if (c == '\\')
        return EXT_ESCAPED;
    return http_char_is(c, HTTP_C_FIELD) ? EXT_QUOTED : BROKEN;
}

static enum state on_size(struct h1_body *b, char c)
{
    if (http_char_is(c, HTTP_C_HEX))
        return on_size_digit(b, c);
    if (c == '\r')
        return SIZE_LF;
    if (c == ';')
        return EXT;
    return c == ' ' || c == '\t' ? SIZE_BLANK : BROKEN;
}

/* One byte of a chunk line (RFC 9112 §7.1). */
static enum state on_line_byte(struct h1_body *b, char c)
{
    switch ((enum state)b->state_) {
    case SIZE_FIRST:
        b->left_ = 0;
        b->line_ = 0;
        return http_char_is(c, HTTP_C_HEX) ? on_size_digit(b, c) : BROKEN;
    case SIZE:
        return on_size(b, c);
    case SIZE_BLANK:
        return c == ';' ? EXT : c == ' ' || c == '\t' ? SIZE_BLANK : BROKEN;
    case EXT:
        return on_ext(c);
    case EXT_QUOTED:
        return on_ext_quoted(c);
    case EXT_ESCAPED:
        return http_char_is(c, HTTP_C_FIELD) ? EXT_QUOTED : BROKEN;
    case SIZE_LF:
        return c == '\n' ? on_chunk_size(b) : BROKEN;
    case DATA_CR:
        return c == '\r' ? DATA_LF : BROKEN;
    case DATA_LF:
        return c == '\n' ? SIZE_FIRST : BROKEN;
    default:
        return BROKEN;
    }
}

static bool is_in_ext(unsigned state)
{
    return state >= SIZE_BLANK && state <= EXT_ESCAPED;
}

/* Chunk lines, and the line ends behind chunks. 0, or the error. */
static int take_line(struct h1_body *b, struct rope_pool *pool, struct rope *in)
{
    const char *data = rope_node_data(in->head);
    uint32_t n = 0;
    while (n < in->head->len && b->state_ != PAYLOAD && b->state_ < TRAILER_START) {
        enum state next = on_line_byte(b, data[n++]);
        b->line_++;
        b->chunk_ext_ += is_in_ext(next);
        if (b->line_ > H1_MAX_CHUNK_LINE || b->chunk_ext_ > EXT_ALLOWANCE + b->total)
            next = BROKEN;
        if (next >= BROKEN)
            return body_fail(b, next);
        if (next == PAYLOAD || next == TRAILER_START || next == SIZE_FIRST)
            b->line_ = 0;
        b->state_ = (uint8_t)next;
    }
    rope_trim_head(pool, in, n);
    return 0;
}

static enum state on_trailer_byte(enum state s, char c)
{
    switch (s) {
    case TRAILER_START:
        return c == '\r' ? END_LF : c == '\n' ? BROKEN : TRAILER;
    case TRAILER:
        return c == '\r' ? TRAILER_LF : c == '\n' ? BROKEN : TRAILER;
    case TRAILER_LF:
        return c == '\n' ? TRAILER_START : BROKEN;
    case END_LF:
        return c == '\n' ? FILTER : BROKEN;
    default:
        return BROKEN;
    }
}

/* Trailer bytes: kept as they come, the final CRLF included once there is something before it. */
static int take_trailers(struct h1_body *b, struct rope_pool *pool, struct rope *in)
{
    const char *data = rope_node_data(in->head);
    enum state s = b->state_;
    uint32_t n = 0;
    while (n < in->head->len && s != FILTER) {
        s = on_trailer_byte(s, data[n++]);
        if (s == BROKEN)
            return body_fail(b, BROKEN);
    }
    if (b->trailer_len_ + n > H1_MAX_TRAILERS)
        return body_fail(b, BROKEN);
    /* A section that starts with CR can only be the final CRLF. */
    bool is_empty = b->trailer_len_ + n <= 2 && (s == FILTER || s == END_LF);
    if (!is_empty && rope_append(pool, &b->trailers, data, n) < 0)
        return -ENOMEM;
    b->trailer_len_ += n;
    b->state_ = (uint8_t)s;
    /* The last byte stays until the section has been found good. */
    rope_trim_head(pool, in, s == FILTER ? n - 1 : n);
    return 0;
}

/* The lines of text[0..len) that may go on, put together at its front; -1 on a malformed one. */
static ssize_t filter_lines(char *text, size_t len)
{
    const char *p = text, *end = text + len;
    char *to = text;
    for (unsigned fields = 0; p < end; fields++) {
        struct http_header f;
        enum http_error unused;
        const char *next = h1_field_parse(text, p, end, false, &f, &unused);
        if (!next || fields == H1_MAX_TRAILER_FIELDS)
            return -1;
        size_t n = (size_t)(next - p);
        if (!(f.flags & (HTTP_HF_NOTRAILER | HTTP_HF_HOP))) {
            memmove(to, p, n);
            to += n;
        }
        p = next;
    }
    return to - text;
}

static int filter_trailers(struct h1_body *b, struct rope_pool *pool, struct rope *in)
{
    char text[H1_MAX_TRAILERS];
    size_t len = b->trailers.len;
    if (len) {
        len -= 2; /* the final CRLF */
        rope_copy_out(&b->trailers, 0, text, len);
        ssize_t kept = filter_lines(text, len);
        if (kept < 0)
            return body_fail(b, BROKEN);
        struct rope lines = {0};
        if (kept && rope_append(pool, &lines, text, (size_t)kept) < 0)
            return -ENOMEM;
        rope_clear(pool, &b->trailers);
        b->trailers = lines;
    }
    rope_trim_head(pool, in, 1);
    b->state_ = END;
    return 0;
}

static int take_framing(struct h1_body *b, struct rope_pool *pool, struct rope *in)
{
    if (b->state_ == FILTER)
        return filter_trailers(b, pool, in);
    if (rope_is_empty(in))
        return -EAGAIN;
    return b->state_ < TRAILER_START ? take_line(b, pool, in) : take_trailers(b, pool, in);
}

/* One step: > 0 payload bytes, 0 some framing, or -errno; -EAGAIN when nothing can be done now. */
static ssize_t step(struct h1_body *b, struct rope_pool *pool, struct rope *in, struct rope *out,
                    uint64_t max)
{
    if (b->state_ != PAYLOAD)
        return take_framing(b, pool, in);
    ssize_t n = take_payload(b, pool, in, out, max);
    return n == 0 ? -EAGAIN : n;
}

/* A body that broke before. */
static int stuck(const struct h1_body *b)
{
    return b->state_ == BROKEN ? -EBADMSG : b->state_ == TOO_LONG ? -EFBIG : 0;
}

ssize_t h1_body_decode(struct h1_body *b, struct rope_pool *pool, struct rope *in, struct rope *out,
                       uint64_t max)
{
    uint64_t moved = 0;
    ssize_t n = stuck(b);
    while (n >= 0 && b->state_ < END) {
        n = step(b, pool, in, out, max - moved);
        if (n > 0)
            moved += (uint64_t)n;
    }
    b->done = b->state_ == END;
    return moved || n >= 0 || n == -EAGAIN ? (ssize_t)moved : n;
}

int h1_body_eof(struct h1_body *b)
{
    if (b->kind == HTTP_BODY_UNTIL_CLOSE && b->state_ == PAYLOAD) {
        b->state_ = END;
        b->done = true;
    }
    return b->done ? 0 : -EPIPE;
}

static int append_chunk_line(struct rope_pool *pool, struct rope *out, uint64_t len)
{
    static const char digits[] = "0123456789abcdef";
    char text[MAX_SIZE_DIGITS + 2], *p = text + MAX_SIZE_DIGITS;
    memcpy(p, "\r\n", 2);
    do
        *--p = digits[len & 15];
    while (len >>= 4);
    return rope_append(pool, out, p, (size_t)(text + sizeof(text) - p));
}

static int append_copy(struct rope_pool *pool, struct rope *out, const struct rope *payload)
{
    for (const struct rope_node *n = payload->head; n; n = n->next)
        if (rope_append(pool, out, rope_node_data(n), n->len) < 0)
            return -ENOMEM;
    return 0;
}

/* Small: line, payload and CRLF side by side in one mbuf. Can't fail where the tail has room. */
static int encode_copied(struct rope_pool *pool, struct rope *chunk, struct rope *payload)
{
    int ret = append_chunk_line(pool, chunk, payload->len);
    if (ret == 0)
        ret = append_copy(pool, chunk, payload);
    if (ret == 0)
        ret = rope_append(pool, chunk, "\r\n", 2);
    if (ret == 0)
        rope_clear(pool, payload);
    return ret;
}

static int encode_spliced(struct rope_pool *pool, struct rope *chunk, struct rope *payload)
{
    struct rope end = {0};
    int ret = append_chunk_line(pool, chunk, payload->len);
    if (ret == 0)
        ret = rope_append(pool, &end, "\r\n", 2);
    if (ret < 0)
        return ret;
    rope_splice(chunk, payload);
    rope_splice(chunk, &end);
    return 0;
}

int h1_body_encode_chunk(struct rope_pool *pool, struct rope *out, struct rope *payload)
{
    assert(!rope_is_empty(payload));
    bool is_small = payload->len <= COPY_INTO_TAIL;
    if (is_small && tail_room(out) >= payload->len + CHUNK_OVERHEAD)
        return encode_copied(pool, out, payload);
    struct rope chunk = {0};
    int ret =
        is_small ? encode_copied(pool, &chunk, payload) : encode_spliced(pool, &chunk, payload);
    if (ret < 0)
        rope_clear(pool, &chunk);
    else
        rope_splice(out, &chunk);
    return ret;
}

int h1_body_encode_last(struct rope_pool *pool, struct rope *out, struct rope *trailers)
{
    if (!trailers || rope_is_empty(trailers))
        return rope_append(pool, out, "0\r\n\r\n", 5);
    struct rope last = {0}, end = {0};
    int ret = rope_append(pool, &last, "0\r\n", 3);
    if (ret == 0)
        ret = rope_append(pool, &end, "\r\n", 2);
    if (ret < 0) {
        rope_clear(pool, &last);
        return ret;
    }
    rope_splice(&last, trailers);
    rope_splice(&last, &end);
    rope_splice(out, &last);
    return 0;
}
