/* Bodies: framing comes off the same wherever the bytes are cut, bad framing is refused at its
 * first bad byte, and what is put on comes off again. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "dataplane/http/h1/body.h"
#include "tests/kit/eal.h"
#include "tests/kit/http_text.h"

struct world {
    struct rte_mempool *mbufs;
    struct rope_pool pool;
    struct rope in, out;
};

static int setup(void **state)
{
    struct world *w = calloc(1, sizeof(*w));
    kit_eal_init();
    w->mbufs = kit_pool_new(512);
    rope_pool_init(&w->pool, w->mbufs, 0);
    *state = w;
    return 0;
}

static void world_clear(struct world *w)
{
    rope_clear(&w->pool, &w->in);
    rope_clear(&w->pool, &w->out);
}

static int teardown(void **state)
{
    struct world *w = *state;
    world_clear(w);
    rope_pool_fini(&w->pool);
    kit_pool_free(w->mbufs);
    free(w);
    return 0;
}

static void check_rope(const struct rope *r, const char *text, const char *what)
{
    struct text t = {0};
    text_add(&t, "", 0);
    text_add_rope(&t, r);
    assert_true(rope_check(r));
    if (strcmp(t.buf, text))
        fail_msg("%s: \"%s\", not \"%s\"", what, t.buf, text);
    text_free(&t);
}

#define S(literal)   literal, sizeof(literal) - 1
#define F16          "ffffffffffffffff"
#define X64          "xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx"
#define X240         X64 X64 X64 "xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx"
#define TRAILER_LINE "X: " X64 X64 X64 X64 "\r\n"
#define TRAILER_4K                                                                                 \
    TRAILER_LINE TRAILER_LINE TRAILER_LINE TRAILER_LINE TRAILER_LINE TRAILER_LINE TRAILER_LINE     \
        TRAILER_LINE TRAILER_LINE TRAILER_LINE TRAILER_LINE TRAILER_LINE TRAILER_LINE TRAILER_LINE \
            TRAILER_LINE TRAILER_LINE

static const struct {
    const char *text;
    const char *payload, *trailers, *left;
} good_chunked[] = {
    {"0\r\n\r\n", "", "", ""},
    {"5\r\nhello\r\n0\r\n\r\nGET", "hello", "", "GET"},
    {"5\r\nhello\r\n6\r\n world\r\n000\r\n\r\n", "hello world", "", ""},
    {"a\r\n0123456789\r\nA\r\n\r\n\r\n\r\n\r\n\r\n\r\n0\r\n\r\n", "0123456789\r\n\r\n\r\n\r\n\r\n",
     "", ""},
    {"0000000000000001\r\nx\r\n0\r\n\r\n", "x", "", ""},
    {"1;a\r\nx\r\n0;b=c\r\n\r\n", "x", "", ""},
    {"1 ;a=\"\\\";\t\xff\" ; b\r\nx\r\n0\r\n\r\n", "x", "", ""},
    {"1;" X240 "\r\nx\r\n0\r\n\r\n", "x", "", ""},
    {"1\r\nx\r\n0\r\nA: b\r\nC:d \r\n\r\n\r\n", "x", "A: b\r\nC:d \r\n", "\r\n"},
    {"0\r\nContent-Length: 5\r\nA: b\r\nHost: x\r\nTransfer-Encoding: chunked\r\n"
     "Connection: A\r\nX-Forwarded-For: x\r\nAuthorization: x\r\n\r\n",
     "", "A: b\r\n", ""},
    {"0\r\nTrailer: x\r\n\r\nleft", "", "", "left"},
};

static void test_chunked_comes_off_wherever_it_is_cut(void **state)
{
    struct world *w = *state;
    for (size_t i = 0; i < sizeof(good_chunked) / sizeof(good_chunked[0]); i++) {
        const char *text = good_chunked[i].text;
        size_t len = strlen(text);
        /* cut == len: one by one */
        for (size_t cut = 0; cut <= len; cut++) {
            struct h1_body b;
            h1_body_init(&b, HTTP_BODY_CHUNKED, 0, UINT64_MAX);
            for (size_t at = 0; at < len;) {
                size_t n = cut == len ? 1 : at == 0 && cut ? cut : len - at;
                rope_feed(&w->pool, &w->in, text + at, n);
                at += n;
                if (b.done)
                    continue;
                ssize_t got = h1_body_decode(&b, &w->pool, &w->in, &w->out, UINT64_MAX);
                if (got < 0)
                    fail_msg("%s cut at %zu: %zd at %zu", text, cut, got, at);
            }
            assert_true(b.done);
            assert_int_equal(h1_body_eof(&b), 0);
            assert_int_equal(b.total, strlen(good_chunked[i].payload));
            check_rope(&w->out, good_chunked[i].payload, text);
            check_rope(&b.trailers, good_chunked[i].trailers, text);
            check_rope(&w->in, good_chunked[i].left, text);
            h1_body_fini(&b, &w->pool);
            world_clear(w);
        }
    }
}

static const struct {
    const char *what;
    const char *text;
    size_t len;
    int error;
} bad_chunked[] = {
    {"no size", S("\r\nx"), -EBADMSG},
    {"extension and no size", S(";a\r\n"), -EBADMSG},
    {"space before the size", S(" 1\r\nx\r\n"), -EBADMSG},
    {"0x", S("0x1\r\nx\r\n"), -EBADMSG},
    {"sign", S("+1\r\nx\r\n"), -EBADMSG},
    {"negative", S("-1\r\nx\r\n"), -EBADMSG},
    {"underscore", S("1_0\r\n"), -EBADMSG},
    {"no digit", S("g\r\n"), -EBADMSG},
    {"space behind the size", S("1 \r\nx\r\n"), -EBADMSG},
    {"two sizes", S("1 1\r\nx\r\n"), -EBADMSG},
    {"bare LF behind the size", S("1\nx\r\n"), -EBADMSG},
    {"CR and no LF behind the size", S("1\rx\r\n"), -EBADMSG},
    {"CR CR LF", S("1\r\r\nx\r\n"), -EBADMSG},
    {"NUL behind the size", S("1\0\r\nx\r\n"), -EBADMSG},
    {"17 digits", S("00000000000000001\r\nx\r\n"), -EBADMSG},
    {"over 63 bits", S("8000000000000000\r\n"), -EBADMSG},
    {"all ones", S(F16 "\r\n"), -EBADMSG},
    {"wraps to 1", S("1" F16 "\r\n"), -EBADMSG},
    {"bare LF in an extension", S("1;a\nx\r\n"), -EBADMSG},
    {"bare CR in an extension", S("1;a\rb\r\nx\r\n"), -EBADMSG},
    {"LF in a quoted extension", S("1;a=\"\n\"\r\nx\r\n"), -EBADMSG},
    {"CRLF in a quoted extension", S("1;a=\"\r\n\"\r\nx\r\n"), -EBADMSG},
    {"escaped CR in an extension", S("1;a=\"\\\r\n"), -EBADMSG},
    {"NUL in an extension", S("1;a\0b\r\nx\r\n"), -EBADMSG},
    {"parenthesis in an extension", S("1;(a)\r\nx\r\n"), -EBADMSG},
    {"long extension", S("1;" X240 X64 "\r\nx\r\n"), -EBADMSG},
    {"chunk longer than its size", S("1\r\nxx\r\n"), -EBADMSG},
    {"chunk shorter than its size", S("3\r\nx\r\n0\r\n\r\n"), -EBADMSG},
    {"bare LF behind a chunk", S("1\r\nx\n0\r\n\r\n"), -EBADMSG},
    {"CR and no LF behind a chunk", S("1\r\nx\r0\r\n\r\n"), -EBADMSG},
    {"bare LF as the end", S("0\r\n\n"), -EBADMSG},
    {"CR and no LF as the end", S("0\r\n\rGET"), -EBADMSG},
    {"bare LF behind a trailer", S("0\r\nA: b\n\r\n"), -EBADMSG},
    {"bare CR in a trailer", S("0\r\nA: b\rc\r\n\r\n"), -EBADMSG},
    {"NUL in a trailer", S("0\r\nA: \0\r\n\r\n"), -EBADMSG},
    {"trailer without a colon", S("0\r\nA\r\n\r\n"), -EBADMSG},
    {"trailer without a name", S("0\r\n: b\r\n\r\n"), -EBADMSG},
    {"space before a trailer's colon", S("0\r\nA : b\r\n\r\n"), -EBADMSG},
    {"folded trailer", S("0\r\nA: b\r\n c\r\n\r\n"), -EBADMSG},
    {"request in place of trailers", S("0\r\nGET / HTTP/1.1\r\n\r\n"), -EBADMSG},
    {"over 4096 bytes of trailers", S("0\r\n" TRAILER_4K "\r\n"), -EBADMSG},
    {"over the limit", S("65\r\n"), -EFBIG},
    {"over the limit, by a later chunk", S("3\r\nabc\r\n62\r\n"), -EFBIG},
    {"over the limit, by far", S("7fffffffffffffff\r\n"), -EFBIG},
};

static void test_bad_chunks_are_refused_and_stay_so(void **state)
{
    struct world *w = *state;
    for (size_t i = 0; i < sizeof(bad_chunked) / sizeof(bad_chunked[0]); i++) {
        for (int by_byte = 0; by_byte < 2; by_byte++) {
            struct h1_body b;
            ssize_t got = 0;
            h1_body_init(&b, HTTP_BODY_CHUNKED, 0, 100);
            for (size_t at = 0; at < bad_chunked[i].len && got >= 0;) {
                size_t n = by_byte ? 1 : bad_chunked[i].len;
                rope_feed(&w->pool, &w->in, bad_chunked[i].text + at, n);
                at += n;
                do {
                    got = h1_body_decode(&b, &w->pool, &w->in, &w->out, UINT64_MAX);
                } while (got > 0);
            }
            if (got != bad_chunked[i].error)
                fail_msg("%s: %zd", bad_chunked[i].what, got);
            assert_int_equal(h1_body_decode(&b, &w->pool, &w->in, &w->out, UINT64_MAX), got);
            assert_int_equal(h1_body_eof(&b), -EPIPE);
            assert_false(b.done);
            h1_body_fini(&b, &w->pool);
            world_clear(w);
        }
    }
}

/* Extensions that outweigh what they come with: 1 byte of payload for 200 of noise, on and on. */
static void test_a_flood_of_extensions_is_cut(void **state)
{
    struct world *w = *state;
    struct h1_body b;
    h1_body_init(&b, HTTP_BODY_CHUNKED, 0, UINT64_MAX);
    ssize_t got = 0;
    unsigned chunks = 0;
    while (got >= 0 && chunks < 1000) {
        rope_feed(&w->pool, &w->in, S("1;" X64 X64 X64 "\r\nx\r\n"));
        got = h1_body_decode(&b, &w->pool, &w->in, &w->out, UINT64_MAX);
        chunks++;
    }
    assert_int_equal(got, -EBADMSG);
    assert_in_range(chunks, 80, 90);
    world_clear(w);
}

/* The bytes before bad framing are handed out first, and `in` still shows that there is more to
 * say. */
static void test_an_error_comes_after_what_was_moved(void **state)
{
    static const char *const texts[] = {"3\r\nabc\r\nx", "3\r\nabc\r\n0\r\nA\r\n\r\n"};
    struct world *w = *state;
    for (size_t i = 0; i < 2; i++) {
        struct h1_body b;
        h1_body_init(&b, HTTP_BODY_CHUNKED, 0, UINT64_MAX);
        rope_feed(&w->pool, &w->in, texts[i], strlen(texts[i]));
        assert_int_equal(h1_body_decode(&b, &w->pool, &w->in, &w->out, UINT64_MAX), 3);
        assert_false(b.done || rope_is_empty(&w->in));
        check_rope(&w->out, "abc", texts[i]);
        rope_clear(&w->pool, &w->out);
        assert_int_equal(h1_body_decode(&b, &w->pool, &w->in, &w->out, UINT64_MAX), -EBADMSG);
        assert_true(rope_is_empty(&w->out));
        h1_body_fini(&b, &w->pool);
        world_clear(w);
    }
}

static void test_a_length_ends_where_it_says(void **state)
{
    struct world *w = *state;
    struct h1_body b;
    assert_int_equal(h1_body_init(&b, HTTP_BODY_LENGTH, 5, 5), 0);
    rope_feed(&w->pool, &w->in, S("hel"));
    assert_int_equal(h1_body_decode(&b, &w->pool, &w->in, &w->out, UINT64_MAX), 3);
    assert_int_equal(h1_body_left(&b), 2);
    assert_int_equal(h1_body_eof(&b), -EPIPE);
    rope_feed(&w->pool, &w->in, S("loGET /"));
    assert_int_equal(h1_body_decode(&b, &w->pool, &w->in, &w->out, UINT64_MAX), 2);
    assert_true(b.done);
    assert_int_equal(h1_body_decode(&b, &w->pool, &w->in, &w->out, UINT64_MAX), 0);
    check_rope(&w->out, "hello", "length");
    check_rope(&w->in, "GET /", "left over");
    world_clear(w);
}

static void test_bodies_that_end_at_once(void **state)
{
    struct h1_body b;
    assert_int_equal(h1_body_init(&b, HTTP_BODY_NONE, 0, 0), 0);
    assert_true(b.done);
    assert_int_equal(h1_body_init(&b, HTTP_BODY_LENGTH, 0, 0), 0);
    assert_true(b.done);
    assert_int_equal(h1_body_init(&b, HTTP_BODY_LENGTH, 6, 5), -EFBIG);
}

static void test_until_close_is_whole_at_eof_only(void **state)
{
    struct world *w = *state;
    struct h1_body b;
    h1_body_init(&b, HTTP_BODY_UNTIL_CLOSE, 0, 5);
    rope_feed(&w->pool, &w->in, S("hello"));
    assert_int_equal(h1_body_decode(&b, &w->pool, &w->in, &w->out, UINT64_MAX), 5);
    assert_false(b.done);
    assert_int_equal(h1_body_eof(&b), 0);
    assert_true(b.done);
    h1_body_init(&b, HTTP_BODY_UNTIL_CLOSE, 0, 5);
    rope_feed(&w->pool, &w->in, S("hello!"));
    assert_int_equal(h1_body_decode(&b, &w->pool, &w->in, &w->out, UINT64_MAX), -EFBIG);
    world_clear(w);
}

static void test_no_more_is_moved_than_asked_for(void **state)
{
    struct world *w = *state;
    struct h1_body b;
    h1_body_init(&b, HTTP_BODY_CHUNKED, 0, UINT64_MAX);
    rope_feed(&w->pool, &w->in, S("4\r\nabcd\r\n4\r\nefgh\r\n0\r\n\r\n"));
    assert_int_equal(h1_body_decode(&b, &w->pool, &w->in, &w->out, 0), 0);
    assert_int_equal(h1_body_decode(&b, &w->pool, &w->in, &w->out, 3), 3);
    assert_int_equal(h1_body_decode(&b, &w->pool, &w->in, &w->out, 4), 4);
    assert_false(b.done);
    assert_int_equal(h1_body_decode(&b, &w->pool, &w->in, &w->out, 1), 1);
    assert_true(b.done);
    check_rope(&w->out, "abcdefgh", "in three");
    world_clear(w);
}

/* A large chunk moves without a copy: the mbufs of `out` are those that came in. */
static void test_large_payload_is_not_copied(void **state)
{
    struct world *w = *state;
    struct h1_body b;
    char big[1800];
    memset(big, 'x', sizeof(big));
    h1_body_init(&b, HTTP_BODY_CHUNKED, 0, UINT64_MAX);
    rope_feed(&w->pool, &w->in, S("708\r\n"));
    rope_feed(&w->pool, &w->in, big, sizeof(big));
    struct rte_mbuf *m = w->in.tail->mbuf;
    assert_int_equal(h1_body_decode(&b, &w->pool, &w->in, &w->out, UINT64_MAX), sizeof(big));
    assert_ptr_equal(w->out.head->mbuf, m);
    assert_int_equal(w->out.nodes, 1);
    world_clear(w);
}

/* Thousands of one-byte chunks hold few buffers. */
static void test_tiny_chunks_are_packed(void **state)
{
    struct world *w = *state;
    struct h1_body b;
    h1_body_init(&b, HTTP_BODY_CHUNKED, 0, UINT64_MAX);
    for (unsigned i = 0; i < 4000; i++) {
        rope_feed(&w->pool, &w->in, S("1\r\nx\r\n"));
        assert_int_equal(h1_body_decode(&b, &w->pool, &w->in, &w->out, UINT64_MAX), 1);
    }
    assert_int_equal(w->out.len, 4000);
    assert_true(w->out.nodes <= 3);
    world_clear(w);
}

static void take_all_but(struct world *w, struct rope *hoard, unsigned keep)
{
    while (rte_mempool_avail_count(w->mbufs) > keep)
        rope_feed(&w->pool, hoard, "x", 1);
}

static void test_without_mbufs_nothing_is_lost(void **state)
{
    struct world *w = *state;
    struct rope hoard = {0}, payload = {0}, trailers = {0};
    struct h1_body b;
    h1_body_init(&b, HTTP_BODY_CHUNKED, 0, UINT64_MAX);
    rope_feed(&w->pool, &w->in, S("2\r\nab\r\n0\r\nA: b\r\n\r\n"));
    rope_feed(&w->pool, &payload, S("hello"));
    rope_feed(&w->pool, &trailers, S("A: b\r\n"));
    take_all_but(w, &hoard, 0);
    /* Payload moves even then; trailers need an mbuf. */
    assert_int_equal(h1_body_decode(&b, &w->pool, &w->in, &w->out, UINT64_MAX), 2);
    check_rope(&w->out, "ab", "payload");
    rope_clear(&w->pool, &w->out);
    assert_int_equal(h1_body_decode(&b, &w->pool, &w->in, &w->out, UINT64_MAX), -ENOMEM);
    assert_int_equal(h1_body_encode_chunk(&w->pool, &w->out, &payload), -ENOMEM);
    assert_int_equal(h1_body_encode_last(&w->pool, &w->out, &trailers), -ENOMEM);
    assert_true(rope_is_empty(&w->out));
    rope_clear(&w->pool, &hoard);
    assert_int_equal(h1_body_decode(&b, &w->pool, &w->in, &w->out, UINT64_MAX), 0);
    assert_true(b.done);
    check_rope(&b.trailers, "A: b\r\n", "trailers");
    rope_clear(&w->pool, &w->out);
    assert_int_equal(h1_body_encode_chunk(&w->pool, &w->out, &payload), 0);
    assert_int_equal(h1_body_encode_last(&w->pool, &w->out, &trailers), 0);
    check_rope(&w->out, "5\r\nhello\r\n0\r\nA: b\r\n\r\n", "encoded");
    h1_body_fini(&b, &w->pool);
    world_clear(w);
}

static void test_what_is_encoded_decodes(void **state)
{
    static const size_t sizes[] = {1, 15, 16, 255, 256, 1000, 1024, 1025, 4096, 5000, 70000};
    struct world *w = *state;
    struct text sent = {0}, got = {0};
    struct h1_body b;
    h1_body_init(&b, HTTP_BODY_CHUNKED, 0, UINT64_MAX);
    for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
        struct rope payload = {0};
        char *data = malloc(sizes[i]);
        for (size_t j = 0; j < sizes[i]; j++)
            data[j] = (char)(j * 7 + i);
        rope_feed(&w->pool, &payload, data, sizes[i]);
        text_add(&sent, data, sizes[i]);
        free(data);
        assert_int_equal(h1_body_encode_chunk(&w->pool, &w->in, &payload), 0);
        assert_true(rope_is_empty(&payload));
        assert_true(rope_check(&w->in));
    }
    assert_int_equal(h1_body_encode_last(&w->pool, &w->in, NULL), 0);
    assert_int_equal(h1_body_decode(&b, &w->pool, &w->in, &w->out, UINT64_MAX), sent.len);
    assert_true(b.done && rope_is_empty(&w->in));
    text_add_rope(&got, &w->out);
    assert_int_equal(got.len, sent.len);
    assert_memory_equal(got.buf, sent.buf, sent.len);
    text_free(&sent);
    text_free(&got);
    world_clear(w);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_chunked_comes_off_wherever_it_is_cut),
        cmocka_unit_test(test_bad_chunks_are_refused_and_stay_so),
        cmocka_unit_test(test_a_flood_of_extensions_is_cut),
        cmocka_unit_test(test_an_error_comes_after_what_was_moved),
        cmocka_unit_test(test_a_length_ends_where_it_says),
        cmocka_unit_test(test_bodies_that_end_at_once),
        cmocka_unit_test(test_until_close_is_whole_at_eof_only),
        cmocka_unit_test(test_no_more_is_moved_than_asked_for),
        cmocka_unit_test(test_large_payload_is_not_copied),
        cmocka_unit_test(test_tiny_chunks_are_packed),
        cmocka_unit_test(test_without_mbufs_nothing_is_lost),
        cmocka_unit_test(test_what_is_encoded_decodes),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
