/* Heads: what is understood of good ones, and the reason for which each bad one is refused. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "dataplane/http/chars.h"
#include "dataplane/http/h1/parse.h"
#include "tests/kit/http_text.h"

#define MAX_FIELDS 16

static const struct h1_limits limits = {.head_size = 1024, .target_size = 200};

/* Bytes that end where their allocation ends, so that ASan sees a read too far. */
static char *exact(const char *text, size_t len)
{
    char *copy = malloc(len);
    memcpy(copy, text, len);
    return copy;
}

#define S(literal) literal, sizeof(literal) - 1
#define H          "Host: a\r\n"
#define GET        "GET / HTTP/1.1\r\n" H
#define POST       "POST / HTTP/1.1\r\n" H
#define E          "\r\n"

struct bad_case {
    const char *what;
    const char *text;
    size_t len;
    enum http_error error;
};

static const struct bad_case bad_requests[] = {
    /* line ends and control characters */
    {"bare LF behind the start line", S("GET / HTTP/1.1\n" H E), HTTP_ERR_BAD_LINE_END},
    {"bare LF behind a field", S("GET / HTTP/1.1\r\nHost: a\n\r\n"), HTTP_ERR_BAD_LINE_END},
    {"bare LF as the empty line", S(GET "\n"), HTTP_ERR_BAD_LINE_END},
    {"bare CR in a value", S(GET "X: a\rb\r\n" E), HTTP_ERR_BAD_LINE_END},
    {"bare CR before a field", S(GET "\rX: a\r\n" E), HTTP_ERR_BAD_NAME},
    {"CR CR LF", S(GET "X: a\r\r\n" E), HTTP_ERR_BAD_LINE_END},
    {"bare CR behind the version", S("GET / HTTP/1.1\rHost: a\r\n" E), HTTP_ERR_BAD_REQUEST_LINE},
    {"bare CR in the target", S("GET /\rx HTTP/1.1\r\n" H E), HTTP_ERR_BAD_REQUEST_LINE},
    {"NUL in a value", S(GET "X: a\0b\r\n" E), HTTP_ERR_BAD_VALUE},
    {"NUL in a name", S(GET "X\0: a\r\n" E), HTTP_ERR_BAD_NAME},
    {"NUL in the target", S("GET /\0 HTTP/1.1\r\n" H E), HTTP_ERR_BAD_TARGET},
    {"NUL in the method", S("G\0T / HTTP/1.1\r\n" H E), HTTP_ERR_BAD_METHOD},
    {"DEL in a value", S(GET "X: a\x7f\r\n" E), HTTP_ERR_BAD_VALUE},
    {"vertical tab in a value", S(GET "X: a\vb\r\n" E), HTTP_ERR_BAD_VALUE},
    {"escape at the 17th byte of a value", S(GET "X: 0123456789abcdef\x1b\r\n" E),
     HTTP_ERR_BAD_VALUE},
    {"three empty lines first", S("\r\n\r\n\r\n" GET E), HTTP_ERR_BAD_METHOD},
    {"bare LF first", S("\n" GET E), HTTP_ERR_BAD_LINE_END},
    {"CR and no LF first", S("\rGET / HTTP/1.1\r\n" H E), HTTP_ERR_BAD_LINE_END},
    /* request line */
    {"no method", S(" / HTTP/1.1\r\n" H E), HTTP_ERR_BAD_METHOD},
    {"white space before the method", S("\tGET / HTTP/1.1\r\n" H E), HTTP_ERR_BAD_METHOD},
    {"no token as method", S("GE(T / HTTP/1.1\r\n" H E), HTTP_ERR_BAD_METHOD},
    {"TLS", S("\x16\x03\x01\x02\x00\x01\x00\x01"), HTTP_ERR_BAD_METHOD},
    {"method of 33 characters", S("ABCDEFGHIJKLMNOPQRSTUVWXYZABCDEFG / HTTP/1.1\r\n" H E),
     HTTP_ERR_LONG_METHOD},
    {"HTTP/0.9", S("GET /\r\n\r\n"), HTTP_ERR_BAD_REQUEST_LINE},
    {"method alone", S("GET\r\n\r\n"), HTTP_ERR_BAD_REQUEST_LINE},
    {"two spaces before the target", S("GET  / HTTP/1.1\r\n" H E), HTTP_ERR_BAD_REQUEST_LINE},
    {"two spaces before the version", S("GET /  HTTP/1.1\r\n" H E), HTTP_ERR_BAD_VERSION},
    {"tab before the version", S("GET /\tHTTP/1.1\r\n" H E), HTTP_ERR_BAD_TARGET},
    {"space behind the version", S("GET / HTTP/1.1 \r\n" H E), HTTP_ERR_BAD_REQUEST_LINE},
    {"space in the target", S("GET /a b HTTP/1.1\r\n" H E), HTTP_ERR_BAD_VERSION},
    {"no target", S("GET HTTP/1.1\r\n" H E), HTTP_ERR_BAD_REQUEST_LINE},
    {"lower-case version", S("GET / http/1.1\r\n" H E), HTTP_ERR_BAD_VERSION},
    {"version without a dot", S("GET / HTTP/11\r\n" H E), HTTP_ERR_BAD_VERSION},
    {"version of many digits", S("GET / HTTP/1.10\r\n" H E), HTTP_ERR_BAD_REQUEST_LINE},
    {"version with a leading zero", S("GET / HTTP/01.1\r\n" H E), HTTP_ERR_BAD_VERSION},
    {"HTTP/1.2", S("GET / HTTP/1.2\r\n" H E), HTTP_ERR_VERSION},
    {"HTTP/2.0", S("GET / HTTP/2.0\r\n" H E), HTTP_ERR_VERSION},
    {"HTTP/2's preface", S("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"), HTTP_ERR_VERSION},
    {"HTTP/0.9 said aloud", S("GET / HTTP/0.9\r\n" H E), HTTP_ERR_VERSION},
    /* targets */
    {"fragment", S("GET /a#b HTTP/1.1\r\n" H E), HTTP_ERR_BAD_TARGET},
    {"obs-text in the target", S("GET /\xc3\xa9 HTTP/1.1\r\n" H E), HTTP_ERR_BAD_TARGET},
    {"no leading slash", S("GET a HTTP/1.1\r\n" H E), HTTP_ERR_BAD_TARGET},
    {"asterisk for GET", S("GET * HTTP/1.1\r\n" H E), HTTP_ERR_BAD_TARGET},
    {"asterisk and more", S("OPTIONS *a HTTP/1.1\r\n" H E), HTTP_ERR_BAD_TARGET},
    {"query alone", S("GET ?a HTTP/1.1\r\n" H E), HTTP_ERR_BAD_TARGET},
    {"other scheme", S("GET ftp://a/ HTTP/1.1\r\n" H E), HTTP_ERR_BAD_TARGET},
    {"scheme and no authority", S("GET http:///a HTTP/1.1\r\n" H E), HTTP_ERR_BAD_TARGET},
    {"scheme alone", S("GET http:// HTTP/1.1\r\n" H E), HTTP_ERR_BAD_TARGET},
    {"authority form for GET", S("GET a:80 HTTP/1.1\r\n" H E), HTTP_ERR_BAD_TARGET},
    {"CONNECT", S("CONNECT a:80 HTTP/1.1\r\n" H E), HTTP_ERR_METHOD},
    {"CONNECT with a path", S("CONNECT / HTTP/1.1\r\n" H E), HTTP_ERR_METHOD},
    {"TRACE", S("TRACE / HTTP/1.1\r\n" H E), HTTP_ERR_METHOD},
    /* field lines */
    {"space before the colon", S(GET "X : a\r\n" E), HTTP_ERR_BAD_NAME},
    {"tab before the colon", S(POST "Content-Length\t: 5\r\n" E), HTTP_ERR_BAD_NAME},
    {"vertical tab before the colon", S(POST "Transfer-Encoding\v: chunked\r\n" E),
     HTTP_ERR_BAD_NAME},
    {"no name", S(GET ": a\r\n" E), HTTP_ERR_BAD_NAME},
    {"no colon", S(GET "X\r\n" E), HTTP_ERR_BAD_NAME},
    {"space in a name", S(GET "X Y: a\r\n" E), HTTP_ERR_BAD_NAME},
    {"obs-text in a name", S(GET "X\xe9: a\r\n" E), HTTP_ERR_BAD_NAME},
    {"parenthesis in a name", S(GET "(X): a\r\n" E), HTTP_ERR_BAD_NAME},
    {"obs-fold", S(GET "X: a\r\n b\r\n" E), HTTP_ERR_FOLDED},
    {"obs-fold by tab", S(GET "X: a\r\n\tb\r\n" E), HTTP_ERR_FOLDED},
    {"white space before the first field", S("GET / HTTP/1.1\r\n Host: a\r\n" E), HTTP_ERR_FOLDED},
    {"folded Transfer-Encoding", S(POST "Transfer-Encoding:\r\n chunked\r\n" E),
     HTTP_ERR_BAD_CODING},
    {"folded coding", S(POST "Transfer-Encoding: chunked\r\n , identity\r\n" E), HTTP_ERR_FOLDED},
    /* Host */
    {"no Host", S("GET / HTTP/1.1\r\n" E), HTTP_ERR_NO_HOST},
    {"absolute target, no Host", S("GET http://a/ HTTP/1.1\r\n" E), HTTP_ERR_NO_HOST},
    {"two Hosts", S(GET "Host: b\r\n" E), HTTP_ERR_MANY_HOSTS},
    {"two equal Hosts", S(GET "host: a\r\n" E), HTTP_ERR_MANY_HOSTS},
    {"two Hosts in HTTP/1.0", S("GET / HTTP/1.0\r\n" H H E), HTTP_ERR_MANY_HOSTS},
    {"two Hosts, absolute target", S("GET http://a/ HTTP/1.1\r\n" H H E), HTTP_ERR_MANY_HOSTS},
    /* Content-Length */
    {"signed length", S(POST "Content-Length: +5\r\n" E), HTTP_ERR_BAD_LENGTH},
    {"negative length", S(POST "Content-Length: -5\r\n" E), HTTP_ERR_BAD_LENGTH},
    {"no length", S(POST "Content-Length:\r\n" E), HTTP_ERR_BAD_LENGTH},
    {"hexadecimal length", S(POST "Content-Length: 0x5\r\n" E), HTTP_ERR_BAD_LENGTH},
    {"length with a unit", S(POST "Content-Length: 5b\r\n" E), HTTP_ERR_BAD_LENGTH},
    {"fraction", S(POST "Content-Length: 5.0\r\n" E), HTTP_ERR_BAD_LENGTH},
    {"space within the length", S(POST "Content-Length: 5 5\r\n" E), HTTP_ERR_BAD_LENGTH},
    {"list of equal lengths", S(POST "Content-Length: 5, 5\r\n" E), HTTP_ERR_BAD_LENGTH},
    {"list of lengths", S(POST "Content-Length: 5,6\r\n" E), HTTP_ERR_BAD_LENGTH},
    {"empty list element", S(POST "Content-Length: 5,\r\n" E), HTTP_ERR_BAD_LENGTH},
    {"quoted length", S(POST "Content-Length: \"5\"\r\n" E), HTTP_ERR_BAD_LENGTH},
    {"length with a parameter", S(POST "Content-Length: 5;a=b\r\n" E), HTTP_ERR_BAD_LENGTH},
    {"length over 64 bits", S(POST "Content-Length: 18446744073709551621\r\n" E),
     HTTP_ERR_BAD_LENGTH},
    {"length over 63 bits", S(POST "Content-Length: 9223372036854775808\r\n" E),
     HTTP_ERR_BAD_LENGTH},
    {"obs-text digit", S(POST "Content-Length: \xb5\r\n" E), HTTP_ERR_BAD_LENGTH},
    {"two lengths", S(POST "Content-Length: 5\r\nContent-Length: 6\r\n" E), HTTP_ERR_MANY_LENGTHS},
    {"two equal lengths", S(POST "Content-Length: 5\r\ncontent-length: 5\r\n" E),
     HTTP_ERR_MANY_LENGTHS},
    {"two lengths, the first 0", S(POST "Content-Length: 0\r\nContent-Length: 5\r\n" E),
     HTTP_ERR_MANY_LENGTHS},
    /* Transfer-Encoding */
    {"CL.TE", S(POST "Content-Length: 5\r\nTransfer-Encoding: chunked\r\n" E),
     HTTP_ERR_BOTH_LENGTHS},
    {"TE.CL", S(POST "Transfer-Encoding: chunked\r\nContent-Length: 5\r\n" E),
     HTTP_ERR_BOTH_LENGTHS},
    {"TE and a length of 0", S(POST "Transfer-Encoding: chunked\r\nContent-Length: 0\r\n" E),
     HTTP_ERR_BOTH_LENGTHS},
    {"TE.TE", S(POST "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n" E),
     HTTP_ERR_BAD_CODING},
    {"TE.TE, identity", S(POST "Transfer-Encoding: chunked\r\nTransfer-Encoding: identity\r\n" E),
     HTTP_ERR_BAD_CODING},
    {"TE.TE, nonsense", S(POST "Transfer-Encoding: chunked\r\nTransfer-encoding: x\r\n" E),
     HTTP_ERR_BAD_CODING},
    {"TE.TE, gzip in a line of its own",
     S(POST "Transfer-Encoding: gzip\r\nTransfer-Encoding: chunked\r\n" E), HTTP_ERR_BAD_CODING},
    {"chunked, identity", S(POST "Transfer-Encoding: chunked, identity\r\n" E),
     HTTP_ERR_BAD_CODING},
    {"chunked twice", S(POST "Transfer-Encoding: chunked, chunked\r\n" E), HTTP_ERR_BAD_CODING},
    {"identity", S(POST "Transfer-Encoding: identity\r\n" E), HTTP_ERR_BAD_CODING},
    {"xchunked", S(POST "Transfer-Encoding: xchunked\r\n" E), HTTP_ERR_BAD_CODING},
    {"chunked with a parameter", S(POST "Transfer-Encoding: chunked;q=1\r\n" E),
     HTTP_ERR_BAD_CODING},
    {"quoted chunked", S(POST "Transfer-Encoding: \"chunked\"\r\n" E), HTTP_ERR_BAD_CODING},
    {"single-quoted chunked", S(POST "Transfer-Encoding: 'chunked'\r\n" E), HTTP_ERR_BAD_CODING},
    {"chunked and a space", S(POST "Transfer-Encoding: chunked x\r\n" E), HTTP_ERR_BAD_CODING},
    {"vertical tab before chunked", S(POST "Transfer-Encoding: \vchunked\r\n" E),
     HTTP_ERR_BAD_VALUE},
    {"form feed behind chunked", S(POST "Transfer-Encoding: chunked\f\r\n" E), HTTP_ERR_BAD_VALUE},
    {"obs-text before chunked",
     S(POST "Transfer-Encoding: \xa0"
            "chunked\r\n" E),
     HTTP_ERR_BAD_CODING},
    {"no coding", S(POST "Transfer-Encoding:\r\n" E), HTTP_ERR_BAD_CODING},
    {"empty element", S(POST "Transfer-Encoding: ,chunked\r\n" E), HTTP_ERR_CODING},
    {"gzip, chunked", S(POST "Transfer-Encoding: gzip, chunked\r\n" E), HTTP_ERR_CODING},
    {"gzip alone", S(POST "Transfer-Encoding: gzip\r\n" E), HTTP_ERR_BAD_CODING},
    {"TE in HTTP/1.0", S("POST / HTTP/1.0\r\nTransfer-Encoding: chunked\r\n" E),
     HTTP_ERR_CODING_IN_10},
    {"TE and CL in HTTP/1.0",
     S("POST / HTTP/1.0\r\nTransfer-Encoding: chunked\r\nContent-Length: 5\r\n" E),
     HTTP_ERR_CODING_IN_10},
    /* the rest */
    {"no token in Connection", S(GET "Connection: a b\r\n" E), HTTP_ERR_BAD_CONNECTION},
    {"quoted Connection", S(GET "Connection: \"close\"\r\n" E), HTTP_ERR_BAD_CONNECTION},
    {"33 options",
     S(GET "Connection: a,a,a,a,a,a,a,a,a,a,a,a,a,a,a,a,a,a,a,a,a,a,a,a,a,a,a,a,a,a,a,a,a\r\n" E),
     HTTP_ERR_BAD_CONNECTION},
    {"unknown expectation", S(POST "Expect: 200-ok\r\n" E), HTTP_ERR_EXPECTATION},
    {"expectation with more", S(POST "Expect: 100-continue, x\r\n" E), HTTP_ERR_EXPECTATION},
    {"17 fields",
     S(GET "a:\r\na:\r\na:\r\na:\r\na:\r\na:\r\na:\r\na:\r\na:\r\na:\r\na:\r\na:\r\na:\r\na:\r\n"
           "a:\r\na:\r\n" E),
     HTTP_ERR_MANY_HEADERS},
};

/* Finds and parses: what a connection does. The bytes come all at once. */
static int read_request(const char *bytes, size_t len, struct http_head *head, uint8_t *ret_error)
{
    struct h1_scan scan;
    h1_scan_init(&scan);
    int end = h1_scan_head(&scan, bytes, len, &limits);
    if (end < 0)
        *ret_error = scan.error;
    if (end <= 0)
        return end;
    int ret = h1_parse_request(bytes + scan.start, (size_t)end - scan.start, &limits, head);
    *ret_error = head->error;
    return ret < 0 ? ret : end;
}

static void test_bad_requests_are_refused_for_their_reason(void **state)
{
    for (size_t i = 0; i < sizeof(bad_requests) / sizeof(bad_requests[0]); i++) {
        const struct bad_case *c = &bad_requests[i];
        struct http_header fields[MAX_FIELDS];
        struct http_head head;
        uint8_t error = HTTP_ERR_NONE;
        http_head_init(&head, fields, MAX_FIELDS);
        char *bytes = exact(c->text, c->len);
        int ret = read_request(bytes, c->len, &head, &error);
        if (error != c->error || ret != -http_error_status(c->error))
            fail_msg("%s: %d (%s), not %s", c->what, ret, http_error_text(error),
                     http_error_text(c->error));
        free(bytes);
    }
}

static const struct {
    const char *text;
    const char *start;  /* text_add_start() */
    const char *fields; /* text_add_fields(); NULL: not looked at */
} good_requests[] = {
    {"GET / HTTP/1.1\r\nHost: a\r\n\r\n",
     " method=GET target=/ authority=a path=/ 1.1 body=none keep-alive\n", "Host=a (6)\n"},
    {"\r\n\r\nGET /x?y?z HTTP/1.1\r\nhOST:a:80 \t \r\n\r\n",
     " method=GET target=/x?y?z authority=a:80 path=/x query=y?z 1.1 body=none keep-alive\n",
     "hOST=a:80 (6)\n"},
    {"GET / HTTP/1.0\r\n\r\n", " method=GET target=/ authority= path=/ 1.0 body=none\n", ""},
    {"GET / HTTP/1.0\r\nConnection: Keep-Alive\r\n\r\n",
     " method=GET target=/ authority= path=/ 1.0 body=none keep-alive\n", NULL},
    {"GET / HTTP/1.1\r\nHost: a\r\nConnection: keep-alive, close\r\n\r\n",
     " method=GET target=/ authority=a path=/ 1.1 body=none\n", NULL},
    {"GET / HTTP/1.1\r\nHost: a\r\nConnection: ,, CLOSE ,\r\n\r\n",
     " method=GET target=/ authority=a path=/ 1.1 body=none\n", NULL},
    {"PROPFIND /? HTTP/1.1\r\nHost: a\r\n\r\n",
     " method=PROPFIND target=/? authority=a path=/ query= 1.1 body=none keep-alive\n", NULL},
    {"OPTIONS * HTTP/1.1\r\nHost: a\r\n\r\n",
     " method=OPTIONS target=* authority=a path= 1.1 body=none keep-alive\n", NULL},
    {"GET HtTp://b:8080/p?q HTTP/1.1\r\nHost: a\r\n\r\n",
     " method=GET target=HtTp://b:8080/p?q authority=b:8080 path=/p query=q 1.1 body=none "
     "keep-alive\n",
     NULL},
    {"GET https://b?q HTTP/1.1\r\nHost: a\r\n\r\n",
     " method=GET target=https://b?q authority=b path= query=q 1.1 body=none keep-alive https\n",
     NULL},
    {"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 5 \r\n\r\n",
     " method=POST target=/ authority=a path=/ 1.1 body=length length=5 keep-alive\n", NULL},
    {"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 000\r\n\r\n",
     " method=POST target=/ authority=a path=/ 1.1 body=none length=0 keep-alive\n", NULL},
    {"PUT / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: Chunked\t\r\nExpect: 100-Continue\r\n\r\n",
     " method=PUT target=/ authority=a path=/ 1.1 body=chunked keep-alive expect\n", NULL},
    {"PUT / HTTP/1.0\r\nContent-Length: 1\r\nExpect: whatever\r\n\r\n",
     " method=PUT target=/ authority= path=/ 1.0 body=length length=1\n", NULL},
    {"GET / HTTP/1.1\r\nHost: a\r\nTE: deflate;q=0.5, trailers\r\nConnection: TE\r\n\r\n",
     " method=GET target=/ authority=a path=/ 1.1 body=none keep-alive te-trailers\n", NULL},
    {"GET / HTTP/1.1\r\nHost: a\r\nTE: trailers\r\n\r\n",
     " method=GET target=/ authority=a path=/ 1.1 body=none keep-alive\n", NULL},
    {"GET / HTTP/1.1\r\nHost: a\r\nUpgrade: websocket\r\nConnection: keep-alive, Upgrade\r\n\r\n",
     " method=GET target=/ authority=a path=/ 1.1 body=none keep-alive upgrade\n", NULL},
    {"GET / HTTP/1.1\r\nX-a: 1\r\nconnection: x-A, X-b, host, Content-Length, Authorization\r\n"
     "Host: a\r\nauthorization: b\r\nX-B:\r\nX-C: \xff\t!\r\n\r\n",
     " method=GET target=/ authority=a path=/ 1.1 body=none keep-alive\n",
     "X-a=1 (0 nominated)\nconnection=x-A, X-b, host, Content-Length, Authorization (17)\n"
     "Host=a (6)\nauthorization=b (24)\nX-B= (0 nominated)\nX-C=\xff\t! (0)\n"},
};

static void test_good_requests_are_understood(void **state)
{
    for (size_t i = 0; i < sizeof(good_requests) / sizeof(good_requests[0]); i++) {
        struct http_header fields[MAX_FIELDS];
        struct http_head head;
        uint8_t error = HTTP_ERR_NONE;
        http_head_init(&head, fields, MAX_FIELDS);
        size_t len = strlen(good_requests[i].text);
        char *bytes = exact(good_requests[i].text, len);
        if (read_request(bytes, len, &head, &error) != (int)len)
            fail_msg("refused: %s\n%s", http_error_text(error), good_requests[i].text);
        struct text start = {0}, all = {0};
        text_add_start(&start, &head);
        text_add(&all, "", 0);
        text_add_fields(&all, &head);
        assert_string_equal(start.buf, good_requests[i].start);
        if (good_requests[i].fields)
            assert_string_equal(all.buf, good_requests[i].fields);
        text_free(&start);
        text_free(&all);
        free(bytes);
    }
}

struct response_case {
    const char *text;
    bool head_request;
    const char *start; /* NULL: refused */
    enum http_error error;
};

static const struct response_case responses[] = {
    {"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n", false,
     " status=200 reason=OK 1.1 body=length length=5 keep-alive\n"},
    {"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n", false,
     " status=200 reason=OK 1.1 body=length length=0 keep-alive\n"},
    {"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n", true,
     " status=200 reason=OK 1.1 body=none length=5 keep-alive\n"},
    {"HTTP/1.1 200 \r\ntransfer-encoding: CHUNKED\r\n\r\n", false,
     " status=200 reason= 1.1 body=chunked keep-alive\n"},
    {"HTTP/1.1 200\r\n\r\n", false, " status=200 reason= 1.1 body=until-close\n"},
    {"HTTP/1.0 200 a  b\xff\r\nConnection: keep-alive\r\nContent-Length: 1\r\n\r\n", false,
     " status=200 reason=a  b\xff 1.0 body=length length=1 keep-alive\n"},
    {"HTTP/1.0 200 OK\r\nConnection: keep-alive\r\n\r\n", false,
     " status=200 reason=OK 1.0 body=until-close\n"},
    {"HTTP/1.1 204 No Content\r\n\r\n", false,
     " status=204 reason=No Content 1.1 body=none keep-alive\n"},
    {"HTTP/1.1 304 Not Modified\r\nContent-Length: 7\r\n\r\n", false,
     " status=304 reason=Not Modified 1.1 body=none length=7 keep-alive\n"},
    {"HTTP/1.1 100 Continue\r\n\r\n", false,
     " status=100 reason=Continue 1.1 body=none keep-alive\n"},
    {"HTTP/1.1 200 OK\r\nContent-Length : 5\r\n\r\n", false,
     " status=200 reason=OK 1.1 body=length length=5 keep-alive\n"},
    {"HTTP/1.1 200 OK\r\nContent-Length: 5\r\nContent-Length: 5\r\n\r\n", false, NULL,
     HTTP_ERR_MANY_LENGTHS},
    {"HTTP/1.1 200 OK\r\nContent-Length: 5, 5\r\n\r\n", false, NULL, HTTP_ERR_BAD_LENGTH},
    {"HTTP/1.1 200 OK\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n", false, NULL,
     HTTP_ERR_BOTH_LENGTHS},
    {"HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip, chunked\r\n\r\n", false, NULL, HTTP_ERR_CODING},
    {"HTTP/1.1 200 OK\r\nTransfer-Encoding: identity\r\n\r\n", false, NULL, HTTP_ERR_BAD_CODING},
    {"HTTP/1.0 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n", false, NULL, HTTP_ERR_CODING_IN_10},
    {"HTTP/1.1 200 OK\r\nX: a\r\n b\r\n\r\n", false, NULL, HTTP_ERR_FOLDED},
    {"HTTP/1.1 200 OK\r\n: a\r\n\r\n", false, NULL, HTTP_ERR_BAD_NAME},
    {"HTTP/1.1 200 O\x01K\r\n\r\n", false, NULL, HTTP_ERR_BAD_STATUS_LINE},
    {"HTTP/1.1 20 OK\r\n\r\n", false, NULL, HTTP_ERR_BAD_STATUS_LINE},
    {"HTTP/1.1 2000 OK\r\n\r\n", false, NULL, HTTP_ERR_BAD_STATUS_LINE},
    {"HTTP/1.1 099 OK\r\n\r\n", false, NULL, HTTP_ERR_BAD_STATUS_LINE},
    {"HTTP/1.1 600 OK\r\n\r\n", false, NULL, HTTP_ERR_BAD_STATUS_LINE},
    {"HTTP/1.1  200 OK\r\n\r\n", false, NULL, HTTP_ERR_BAD_STATUS_LINE},
    {"HTTP/1.1 200\tOK\r\n\r\n", false, NULL, HTTP_ERR_BAD_STATUS_LINE},
    {"HTTP/2.0 200 OK\r\n\r\n", false, NULL, HTTP_ERR_VERSION},
    {"HTTP/1.1\r\n\r\n", false, NULL, HTTP_ERR_BAD_STATUS_LINE},
    {"ICY 200 OK\r\n\r\n", false, NULL, HTTP_ERR_BAD_VERSION},
    {"H\r\n\r\n", false, NULL, HTTP_ERR_BAD_VERSION},
};

static void test_responses(void **state)
{
    for (size_t i = 0; i < sizeof(responses) / sizeof(responses[0]); i++) {
        const struct response_case *c = &responses[i];
        struct http_header fields[MAX_FIELDS];
        struct http_head head;
        struct h1_scan scan;
        size_t len = strlen(c->text);
        char *bytes = exact(c->text, len);
        h1_scan_init_response(&scan);
        assert_int_equal(h1_scan_head(&scan, bytes, len, &limits), len);
        http_head_init(&head, fields, MAX_FIELDS);
        int ret = h1_parse_response(bytes, len, c->head_request, &head);
        if (ret != (c->start ? 0 : -502) || head.error != c->error)
            fail_msg("%d (%s), not %s:\n%s", ret, http_error_text(head.error),
                     http_error_text(c->error), c->text);
        if (c->start) {
            struct text start = {0};
            text_add_start(&start, &head);
            assert_string_equal(start.buf, c->start);
            text_free(&start);
        }
        free(bytes);
    }
}

static void test_nothing_may_stand_before_a_response(void **state)
{
    struct h1_scan scan;
    h1_scan_init_response(&scan);
    assert_int_equal(h1_scan_head(&scan, S("\r\nHTTP/1.1 200 OK\r\n\r\n"), &limits), -400);
}

static void test_limits_name_what_was_too_long(void **state)
{
    static const char start[] = "GET /%0*d HTTP/1.1\r\nHost: a\r\nX: %0*d\r\n\r\n";
    static const struct {
        int path, value, ret;
    } cases[] = {
        {199, 1, 0}, {200, 1, -414}, {1030, 1, -414}, {1, 991, 0}, {1, 992, -431}, {1, 4000, -431},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        char text[8192];
        int len = snprintf(text, sizeof(text), start, cases[i].path, 0, cases[i].value, 0);
        struct http_header fields[MAX_FIELDS];
        struct http_head head;
        uint8_t error = HTTP_ERR_NONE;
        http_head_init(&head, fields, MAX_FIELDS);
        int ret = read_request(text, (size_t)len, &head, &error);
        assert_int_equal(ret, cases[i].ret ? cases[i].ret : len);
    }
}

static void test_a_full_buffer_without_an_end_is_an_error_not_a_wait(void **state)
{
    char text[1024];
    struct h1_scan scan;
    h1_scan_init(&scan);
    memset(text, 'a', sizeof(text));
    assert_int_equal(h1_scan_head(&scan, text, sizeof(text) - 1, &limits), 0);
    assert_int_equal(h1_scan_head(&scan, text, sizeof(text), &limits), -414);
}

static void test_known_fields_are_found_in_any_case_and_no_others(void **state)
{
    for (unsigned id = HTTP_H_OTHER + 1; id < HTTP_H_COUNT; id++) {
        char name[32];
        const char *text = http_header_text(id);
        size_t len = strlen(text);
        for (size_t i = 0; i < len; i++)
            name[i] = i % 2 && text[i] != '-' ? (char)(text[i] & ~0x20) : text[i];
        assert_int_equal(http_header_find_id(name, len), id);
        name[len / 2] = name[len / 2] == 'q' ? 'z' : 'q';
        assert_int_equal(http_header_find_id(name, len), HTTP_H_OTHER);
    }
    assert_int_equal(http_header_find_id(S("x")), HTTP_H_OTHER);
    assert_int_equal(http_header_find_id(S("hosts")), HTTP_H_OTHER);
    assert_int_equal(http_header_find_id(S("Content_Length")), HTTP_H_OTHER);
}

static void test_both_forms_of_a_class_agree(void **state)
{
    for (unsigned c = 0; c < 256; c++) {
        char bytes[32];
        memset(bytes, 'a', sizeof(bytes));
        bytes[3] = (char)c;
        bytes[20] = (char)c;
        /* 32 bytes go 16 at a time, 15 one by one. */
        bool token = http_char_is((char)c, HTTP_C_TOKEN);
        bool target = http_char_is((char)c, HTTP_C_TARGET);
        assert_ptr_equal(HTTP_SKIP_TOKEN(bytes, bytes + 32), bytes + (token ? 32 : 3));
        assert_ptr_equal(HTTP_SKIP_TOKEN(bytes, bytes + 15), bytes + (token ? 15 : 3));
        assert_ptr_equal(HTTP_SKIP_TARGET(bytes, bytes + 32), bytes + (target ? 32 : 3));
        assert_ptr_equal(HTTP_SKIP_TARGET(bytes, bytes + 15), bytes + (target ? 15 : 3));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_bad_requests_are_refused_for_their_reason),
        cmocka_unit_test(test_good_requests_are_understood),
        cmocka_unit_test(test_responses),
        cmocka_unit_test(test_nothing_may_stand_before_a_response),
        cmocka_unit_test(test_limits_name_what_was_too_long),
        cmocka_unit_test(test_a_full_buffer_without_an_end_is_an_error_not_a_wait),
        cmocka_unit_test(test_both_forms_of_a_class_agree),
        cmocka_unit_test(test_known_fields_are_found_in_any_case_and_no_others),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
