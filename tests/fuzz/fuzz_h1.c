/* HTTP/1, request and response, from any bytes. The first byte picks the direction, the next two
 * seed the cuts. What has to hold:
 *   - no bytes crash, leak or read behind their buffer;
 *   - how they are cut changes nothing;
 *   - a head that was accepted, written and parsed again is the same message, and written again it
 *     is the same bytes;
 *   - a payload, chunked and decoded again, is the same payload;
 *   - a normalized path is its own normal form. */
#include <stdint.h>

#include "dataplane/http/h1/serialize.h"
#include "dataplane/http/normalize.h"
#include "tests/kit/eal.h"
#include "tests/kit/http_reader.h"

int LLVMFuzzerInitialize(int *argc, char ***argv);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define CHECK(cond)                                                                                \
    do {                                                                                           \
        if (!(cond)) {                                                                             \
            fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, #cond);                             \
            abort();                                                                               \
        }                                                                                          \
    } while (0)

static struct rte_mempool *mbufs;
static struct rope_pool pool;

int LLVMFuzzerInitialize(int *argc, char ***argv)
{
    kit_eal_init();
    mbufs = kit_pool_new(8192);
    rope_pool_init(&pool, mbufs, 0);
    return 0;
}

/* Written as it goes on; parsed from there into *ret_again, whose bytes are in *ret_bytes. */
static void write_and_parse(struct reader *r, const struct http_head *head, struct text *ret_bytes,
                            struct http_head *ret_again)
{
    static const struct h1_limits roomy = {.head_size = 65536};
    struct rope out = {0};
    int ret;
    if (head->is_request) {
        struct h1_request_edit edit = {.forwarded = CONFIG_FORWARDED_OFF};
        h1_request_framing(head, &edit);
        ret = h1_write_request(&pool, &out, head, &edit);
    } else {
        struct h1_response_edit edit = {.client_minor = 1, .keep_alive = true};
        h1_response_framing(head, &edit);
        ret = h1_write_response(&pool, &out, head, &edit);
    }
    CHECK(ret == 0 && rope_check(&out));
    text_add_rope(ret_bytes, &out);
    rope_clear(&pool, &out);
    ret = head->is_request
              ? h1_parse_request(ret_bytes->buf, ret_bytes->len, &roomy, ret_again)
              : h1_parse_response(ret_bytes->buf, ret_bytes->len, r->head_request, ret_again);
    CHECK(ret == 0);
    struct h1_scan scan;
    h1_scan_init_response(&scan);
    CHECK(h1_scan_head(&scan, ret_bytes->buf, ret_bytes->len, &roomy) == (int)ret_bytes->len);
}

static bool is_same(const struct http_head *a, struct http_span sa, const struct http_head *b,
                    struct http_span sb)
{
    return sa.len == sb.len && memcmp(http_head_at(a, sa), http_head_at(b, sb), sa.len) == 0;
}

static void check_same_message(const struct http_head *a, const struct http_head *b)
{
    CHECK(b->version_minor == 1);
    CHECK(!http_head_has(b, HTTP_H_KEEP_ALIVE) && !http_head_has(b, HTTP_H_UPGRADE));
    CHECK(!http_head_has(b, HTTP_H_PROXY_CONNECTION));
    for (unsigned i = 0; i < b->nheaders; i++)
        CHECK(!(b->headers[i].flags & (HTTP_HF_NOMINATED | HTTP_HF_LOOSE)));
    if (a->is_request) {
        CHECK(is_same(a, a->method_text, b, b->method_text));
        CHECK(is_same(a, a->authority, b, b->authority));
        CHECK(is_same(a, a->query, b, b->query) && a->has_query == b->has_query);
        CHECK(a->path.len == 0 || is_same(a, a->path, b, b->path));
        CHECK(b->target_form != HTTP_TARGET_ABSOLUTE);
        CHECK(a->te_trailers == b->te_trailers && a->expect_continue == b->expect_continue);
        CHECK(a->framing == b->framing && a->content_length == b->content_length);
        return;
    }
    CHECK(a->status == b->status && is_same(a, a->reason, b, b->reason));
    if (a->framing == HTTP_BODY_UNTIL_CLOSE)
        CHECK(b->framing == HTTP_BODY_CHUNKED);
    else
        CHECK(a->framing == b->framing);
    if (a->framing == HTTP_BODY_LENGTH)
        CHECK(a->content_length == b->content_length);
}

static void check_normal_form(struct http_head *head)
{
    char buf[4096], again[4096];
    struct http_route_key key;
    if (http_normalize_request(head, head->is_https, buf, sizeof(buf), &key) < 0)
        return;
    const char *path;
    uint32_t len;
    enum http_error e;
    CHECK(key.path_len > 0 && key.path[0] == '/');
    CHECK(http_path_normalize(key.path, key.path_len, again, sizeof(again), &path, &len, &e) == 0);
    CHECK(len == key.path_len && memcmp(path, key.path, len) == 0);
    CHECK(!memmem(key.path, len, "//", 2) && !memmem(key.path, len, "/../", 4));
    struct http_host host;
    if (key.host.len) {
        CHECK(http_host_normalize(key.host.name, key.host.len, &host) == 0);
        CHECK(strcmp(host.name, key.host.name) == 0);
    }
}

static void on_head(struct reader *r, const struct http_head *head)
{
    struct text once = {0}, twice = {0};
    struct http_header fields[2][READER_MAX_FIELDS + 8];
    struct http_head first, second;
    http_head_init(&first, fields[0], READER_MAX_FIELDS + 8);
    http_head_init(&second, fields[1], READER_MAX_FIELDS + 8);
    write_and_parse(r, head, &once, &first);
    check_same_message(head, &first);
    write_and_parse(r, &first, &twice, &second);
    CHECK(once.len == twice.len && memcmp(once.buf, twice.buf, once.len) == 0);
    if (head->is_request) {
        struct http_head copy = *head;
        check_normal_form(&copy);
    }
    text_free(&once);
    text_free(&twice);
}

static void on_payload(struct reader *r, const struct rope *payload, const struct rope *trailers)
{
    struct rope wire = {0}, copy = {0}, out = {0}, last = {0};
    struct text bytes = {0}, got = {0};
    struct h1_body b;
    text_add(&bytes, "", 0);
    text_add(&got, "", 0);
    text_add_rope(&bytes, payload);
    rope_feed(&pool, &copy, bytes.buf, bytes.len);
    if (copy.len)
        CHECK(h1_body_encode_chunk(&pool, &wire, &copy) == 0);
    text_add_rope(&bytes, trailers);
    rope_feed(&pool, &last, bytes.buf + payload->len, bytes.len - payload->len);
    CHECK(h1_body_encode_last(&pool, &wire, &last) == 0);
    h1_body_init(&b, HTTP_BODY_CHUNKED, 0, UINT64_MAX);
    CHECK(h1_body_decode(&b, &pool, &wire, &out, UINT64_MAX) == (ssize_t)payload->len);
    CHECK(b.done && rope_is_empty(&wire));
    text_add_rope(&got, &out);
    text_add_rope(&got, &b.trailers);
    CHECK(got.len == bytes.len && memcmp(got.buf, bytes.buf, got.len) == 0);
    h1_body_fini(&b, &pool);
    rope_clear(&pool, &out);
    text_free(&bytes);
    text_free(&got);
}

/* seed 0: whole. */
static void run(const char *bytes, size_t len, unsigned flags, uint32_t seed, struct text *ret)
{
    struct reader r;
    reader_init(&r, &pool, flags & 1);
    r.head_request = flags & 2;
    if (seed == 0) {
        r.on_head = on_head;
        r.on_payload = on_payload;
    }
    unsigned most = 1 + seed % 61;
    for (size_t at = 0; at < len;) {
        seed = seed * 1664525u + 1013904223u;
        size_t n = most > 1 && seed ? 1 + (seed >> 16) % most : 1;
        if (ret->cap == 0) /* the first run */
            n = len;
        if (n > len - at)
            n = len - at;
        reader_feed(&r, bytes + at, n);
        at += n;
    }
    reader_eof(&r);
    text_add(ret, r.transcript.buf, r.transcript.len);
    reader_fini(&r);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size < 3 || size > 8192)
        return 0;
    struct text whole = {0}, cut = {0};
    const char *bytes = (const char *)data + 3;
    run(bytes, size - 3, data[0], 0, &whole);
    text_add(&cut, "", 0);
    run(bytes, size - 3, data[0], 1 + (data[1] | (uint32_t)data[2] << 8), &cut);
    if (whole.len != cut.len || memcmp(whole.buf, cut.buf, cut.len)) {
        fprintf(stderr, "whole:\n%s\ncut:\n%s\n", whole.buf, cut.buf);
        abort();
    }
    text_free(&whole);
    text_free(&cut);
    CHECK(pool.in_use == 0 && kit_pool_used(mbufs) == 0);
    return 0;
}
