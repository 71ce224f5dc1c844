/* Whole connections, cut at every place into two, into bytes, and into small pieces: the messages
 * in them stay the same. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "tests/kit/eal.h"
#include "tests/kit/http_reader.h"

struct stream_case {
    bool is_response;
    const char *bytes;
    const char *ends_with; /* of the transcript */
};

static const struct stream_case cases[] = {
    {false,
     "\r\nGET /a HTTP/1.1\r\nHost: a\r\n\r\nPOST /b HTTP/1.1\r\nHost: b\r\nContent-Length: "
     "5\r\n\r\n"
     "helloGET /c HTTP/1.0\r\n\r\n",
     "eof, 0 left\n"},
    {false,
     "PUT / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\nConnection: x\r\nX: y\r\n\r\n"
     "5;a=\"b\"\r\nhello\r\n00a\r\n0123456789\r\n0\r\nA: b\r\nHost: c\r\n\r\n"
     "\r\nDELETE /0123456789abcdef/0123456789abcdef HTTP/1.1\r\nHost: a\r\n\r\nGE",
     "eof, 2 left\n"},
    {false, "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\nhell",
     "eof -32\npayload 4: hell\ntrailers: \n"},
    {false, "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nabc\r\n",
     "! -74 body\npayload 2: ab\ntrailers: \n"},
    {false, "GET / HTTP/1.1\r\nHost: a\r\n\r\n\r\n\r\n\r\nGET",
     "! -400 invalid character in the method\n"},
    {false, "GET / HTTP/1.1\r\nHost: a\nX: y\r\n\r\n", "! -400 bare CR or LF\n"},
    {true,
     "HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
     "1\r\nx\r\n0\r\nA: b\r\n\r\nHTTP/1.1 204 No Content\r\n\r\nHTTP/1.0 200 OK\r\n\r\nto the end",
     "eof 0\npayload 10: to the end\ntrailers: \n"},
    {true, "HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\nxHTTP/1.1 200 OK\r\n x\r\n\r\n",
     "! -502 folded field line\n"},
};

static void run(struct rope_pool *pool, const struct stream_case *c, size_t first, size_t piece,
                struct text *ret_transcript)
{
    struct reader r;
    size_t len = strlen(c->bytes);
    reader_init(&r, pool, c->is_response);
    for (size_t at = 0; at < len;) {
        size_t n = at == 0 && first ? first : piece;
        if (n > len - at)
            n = len - at;
        reader_feed(&r, c->bytes + at, n);
        at += n;
    }
    reader_eof(&r);
    text_add(ret_transcript, r.transcript.buf, r.transcript.len);
    reader_fini(&r);
}

static void check_same(struct rope_pool *pool, const struct stream_case *c, const char *whole,
                       size_t first, size_t piece)
{
    struct text t = {0};
    run(pool, c, first, piece, &t);
    if (strcmp(t.buf, whole))
        fail_msg("first %zu, then %zu each:\n%s\nnot\n%s", first, piece, t.buf, whole);
    text_free(&t);
}

static void test_cuts_do_not_show(void **state)
{
    struct rope_pool pool;
    kit_eal_init();
    struct rte_mempool *mbufs = kit_pool_new(1024);
    rope_pool_init(&pool, mbufs, 0);
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        const struct stream_case *c = &cases[i];
        size_t len = strlen(c->bytes), tail = strlen(c->ends_with);
        struct text whole = {0};
        run(&pool, c, 0, len, &whole);
        if (whole.len < tail || strcmp(whole.buf + whole.len - tail, c->ends_with))
            fail_msg("ends otherwise:\n%s", whole.buf);
        for (size_t first = 1; first < len; first++)
            check_same(&pool, c, whole.buf, first, len);
        for (size_t piece = 1; piece < 40; piece++)
            check_same(&pool, c, whole.buf, 0, piece);
        text_free(&whole);
    }
    rope_pool_fini(&pool);
    kit_pool_free(mbufs);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_cuts_do_not_show)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
