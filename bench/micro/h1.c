/* Nanoseconds (of this thread) for a head: find its end, parse it, normalize it, write it on. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <rte_eal.h>

#include "dataplane/http/h1/parse.h"
#include "dataplane/http/h1/serialize.h"
#include "dataplane/http/normalize.h"

#define ROUNDS     300000
#define MAX_FIELDS 64

static const char wrk[] = "GET /index.html HTTP/1.1\r\nHost: 10.0.0.1:8080\r\n\r\n";

static const char browser[] =
    "GET /wp-content/uploads/2010/03/hello-kitty-darth-vader-pink.jpg?size=large HTTP/1.1\r\n"
    "Host: www.kittyhell.com\r\n"
    "User-Agent: Mozilla/5.0 (X11; Linux x86_64) AppleWebKit/537.36 (KHTML, like Gecko) "
    "Chrome/120.0.0.0 Safari/537.36\r\n"
    "Accept: text/html,application/xhtml+xml,application/xml;q=0.9,image/avif,image/webp,*/*;q=0.8"
    "\r\n"
    "Accept-Language: en-US,en;q=0.9,de;q=0.8\r\n"
    "Accept-Encoding: gzip, deflate, br\r\n"
    "Connection: keep-alive\r\n"
    "Referer: http://www.kittyhell.com/\r\n"
    "Cookie: wp_ozh_wsa_visits=2; wp_ozh_wsa_visit_lasttime=xxxxxxxxxx; "
    "__utma=xxxxxxxxx.xxxxxxxxxx.xxxxxxxxxx.xxxxxxxxxx.xxxxxxxxxx.x; "
    "__utmz=xxxxxxxxx.xxxxxxxxxx.x.x.utmccn=(referral)|utmcsr=reader.livedoor.com\r\n"
    "Upgrade-Insecure-Requests: 1\r\n"
    "Sec-Fetch-Dest: document\r\n"
    "Sec-Fetch-Mode: navigate\r\n"
    "Cache-Control: max-age=0\r\n\r\n";

static const char answer[] =
    "HTTP/1.1 200 OK\r\nServer: nginx/1.22.1\r\n"
    "Date: Sun, 06 Nov 1994 08:49:37 GMT\r\nContent-Type: text/html\r\n"
    "Content-Length: 615\r\nLast-Modified: Tue, 04 Jul 2023 17:38:34 GMT\r\n"
    "Connection: keep-alive\r\nETag: \"64a45aea-267\"\r\n"
    "Accept-Ranges: bytes\r\n\r\n";

static const struct h1_limits limits = {.head_size = 65536};

struct bench {
    struct rope_pool pool;
    struct http_header fields[MAX_FIELDS];
    struct http_head head;
    const char *text;
    size_t len;
};

static void must(bool ok)
{
    if (!ok) {
        fprintf(stderr, "micro_h1: a step failed\n");
        exit(1);
    }
}

static void scan(struct bench *b)
{
    struct h1_scan s;
    h1_scan_init(&s);
    must(h1_scan_head(&s, b->text, b->len, &limits) == (int)b->len);
}

static void parse(struct bench *b)
{
    http_head_init(&b->head, b->fields, MAX_FIELDS);
    must(h1_parse_request(b->text, b->len, &limits, &b->head) == 0);
}

static void parse_answer(struct bench *b)
{
    http_head_init(&b->head, b->fields, MAX_FIELDS);
    must(h1_parse_response(b->text, b->len, false, &b->head) == 0);
}

static void normalize(struct bench *b)
{
    char buf[2048];
    struct http_route_key key;
    must(http_normalize_request(&b->head, false, buf, sizeof(buf), &key) == 0);
}

static void write_on(struct bench *b)
{
    struct rope out = {0};
    struct h1_request_edit edit = {
        .forwarded = CONFIG_FORWARDED_X, .client_addr = "192.0.2.100", .via = "millrace"};
    h1_request_framing(&b->head, &edit);
    must(h1_write_request(&b->pool, &out, &b->head, &edit) == 0);
    rope_clear(&b->pool, &out);
}

static void write_answer_on(struct bench *b)
{
    struct rope out = {0};
    struct h1_response_edit edit = {.client_minor = 1, .keep_alive = true, .via = "millrace"};
    h1_response_framing(&b->head, &edit);
    must(h1_write_response(&b->pool, &out, &b->head, &edit) == 0);
    rope_clear(&b->pool, &out);
}

static double cpu_ns(void)
{
    struct timespec ts;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &ts);
    return (double)ts.tv_sec * 1e9 + (double)ts.tv_nsec;
}

/* The best of five: caches and clocks settle. */
static void measure(struct bench *b, const char *what, const char *step, void (*fn)(struct bench *))
{
    double best = 1e18;
    for (int i = 0; i < 5; i++) {
        double from = cpu_ns();
        for (int j = 0; j < ROUNDS; j++)
            fn(b);
        double ns = (cpu_ns() - from) / ROUNDS;
        best = ns < best ? ns : best;
    }
    printf("%-8s %4zu bytes  %-9s %7.1f ns\n", what, b->len, step, best);
}

static void measure_request(struct bench *b, const char *what, const char *text)
{
    b->text = text;
    b->len = strlen(text);
    measure(b, what, "scan", scan);
    measure(b, what, "parse", parse);
    measure(b, what, "normalize", normalize);
    measure(b, what, "write", write_on);
}

int main(void)
{
    char *argv[] = {(char *)"micro_h1", (char *)"--no-huge",      (char *)"--no-shconf",
                    (char *)"--no-pci", (char *)"--no-telemetry", (char *)"-m",
                    (char *)"64",       (char *)"--log-level=3",  NULL};
    must(rte_eal_init(8, argv) >= 0);
    struct bench *b = calloc(1, sizeof(*b));
    must(b != NULL);
    struct rte_mempool *mbufs =
        rte_pktmbuf_pool_create("h1", 1023, 256, 0, RTE_MBUF_DEFAULT_BUF_SIZE, SOCKET_ID_ANY);
    must(mbufs != NULL);
    rope_pool_init(&b->pool, mbufs, 0);
    measure_request(b, "wrk", wrk);
    measure_request(b, "browser", browser);
    b->text = answer;
    b->len = strlen(answer);
    measure(b, "answer", "scan", scan);
    measure(b, "answer", "parse", parse_answer);
    measure(b, "answer", "write", write_answer_on);
    rope_pool_fini(&b->pool);
    free(b);
    return 0;
}
