/* A connection's way through HTTP/1 without the connection: bytes in pieces of any size in, a
 * transcript of the messages in them out. How the bytes were cut must not show in the transcript.
 */
#ifndef MILLRACE_TESTS_KIT_HTTP_READER_H
#define MILLRACE_TESTS_KIT_HTTP_READER_H

#include "dataplane/http/h1/body.h"
#include "dataplane/http/h1/parse.h"
#include "tests/kit/http_text.h"

#define READER_MAX_FIELDS 64

static const struct h1_limits reader_limits = {.head_size = 4096, .target_size = 1024};

struct reader {
    struct rope_pool *pool;
    bool is_response, head_request;
    /* Called for each good head, and each whole payload; may be NULL. */
    void (*on_head)(struct reader *r, const struct http_head *head);
    void (*on_payload)(struct reader *r, const struct rope *payload, const struct rope *trailers);

    struct text transcript;
    struct text head_bytes; /* not parsed yet */
    struct h1_scan scan;
    struct h1_body body;
    struct rope in, payload;
    struct http_header fields[READER_MAX_FIELDS];
    struct http_head head;
    bool in_body, failed;
};

static inline void reader_next_message(struct reader *r)
{
    r->in_body = false;
    if (r->is_response)
        h1_scan_init_response(&r->scan);
    else
        h1_scan_init(&r->scan);
}

static inline void reader_init(struct reader *r, struct rope_pool *pool, bool is_response)
{
    memset(r, 0, sizeof(*r));
    r->pool = pool;
    r->is_response = is_response;
    text_add(&r->transcript, "", 0);
    reader_next_message(r);
}

static inline void reader_fail(struct reader *r, int ret, unsigned error)
{
    text_addf(&r->transcript, "! %d %s\n", ret, error ? http_error_text(error) : "body");
    r->failed = true;
}

static inline void reader_end_message(struct reader *r)
{
    text_addf(&r->transcript, "payload %llu: ", (unsigned long long)r->body.total);
    text_add_rope(&r->transcript, &r->payload);
    text_addf(&r->transcript, "\ntrailers: ");
    if (r->body.done)
        text_add_rope(&r->transcript, &r->body.trailers);
    text_addf(&r->transcript, "\n");
    assert(rope_check(&r->payload) && rope_check(&r->body.trailers) && rope_check(&r->in));
    if (r->on_payload && r->body.done)
        r->on_payload(r, &r->payload, &r->body.trailers);
    rope_clear(r->pool, &r->payload);
    h1_body_fini(&r->body, r->pool);
}

static inline bool reader_read_head(struct reader *r)
{
    struct text *t = &r->head_bytes;
    int end = h1_scan_head(&r->scan, t->buf, t->len, &reader_limits);
    if (end < 0)
        reader_fail(r, end, r->scan.error);
    if (end <= 0)
        return false;
    /* A head of its own, so that ASan sees a read behind it. */
    size_t len = (size_t)end - r->scan.start;
    char *bytes = malloc(len);
    memcpy(bytes, t->buf + r->scan.start, len);
    http_head_init(&r->head, r->fields, READER_MAX_FIELDS);
    int ret = r->is_response ? h1_parse_response(bytes, len, r->head_request, &r->head)
                             : h1_parse_request(bytes, len, &reader_limits, &r->head);
    if (ret < 0) {
        reader_fail(r, ret, r->head.error);
    } else {
        text_add_start(&r->transcript, &r->head);
        text_add_fields(&r->transcript, &r->head);
        if (r->on_head)
            r->on_head(r, &r->head);
        h1_body_init(&r->body, r->head.framing, r->head.content_length, UINT64_MAX);
        rope_feed(r->pool, &r->in, t->buf + end, t->len - (size_t)end);
        t->len = 0;
        r->in_body = true;
    }
    free(bytes);
    return ret == 0;
}

static inline bool reader_read_body(struct reader *r)
{
    ssize_t n = h1_body_decode(&r->body, r->pool, &r->in, &r->payload, UINT64_MAX);
    if (n < 0)
        reader_fail(r, (int)n, 0);
    if (n >= 0 && !r->body.done)
        return n > 0;
    reader_end_message(r);
    if (r->failed)
        return false;
    text_add_rope(&r->head_bytes, &r->in);
    rope_clear(r->pool, &r->in);
    reader_next_message(r);
    return r->head_bytes.len > 0;
}

static inline void reader_feed(struct reader *r, const char *data, size_t len)
{
    if (r->failed)
        return;
    if (r->in_body)
        rope_feed(r->pool, &r->in, data, len);
    else
        text_add(&r->head_bytes, data, len);
    while (r->in_body ? reader_read_body(r) : reader_read_head(r))
        ;
}

/* The peer's FIN. */
static inline void reader_eof(struct reader *r)
{
    if (r->failed)
        return;
    if (r->in_body) {
        text_addf(&r->transcript, "eof %d\n", h1_body_eof(&r->body));
        reader_end_message(r);
    } else {
        text_addf(&r->transcript, "eof, %zu left\n", r->head_bytes.len);
    }
}

static inline void reader_fini(struct reader *r)
{
    rope_clear(r->pool, &r->in);
    rope_clear(r->pool, &r->payload);
    h1_body_fini(&r->body, r->pool);
    text_free(&r->transcript);
    text_free(&r->head_bytes);
}

#endif
