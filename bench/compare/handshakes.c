/* A closed-loop TLS client that makes handshakes and nothing else.
 *
 *     handshakes ADDRESS PORT NAME CONNECTIONS SECONDS [OPTION...]
 *
 *       1.2, 1.3       the version (default 1.3)
 *       resume         each connection takes up the session of the one before
 *       break PERCENT  so many are broken off, at a random point before their end
 *       count N        ends after N handshakes if that comes before SECONDS
 *       seed N         of what is random
 *
 * CONNECTIONS are under way at any time: each one connects, shakes hands, resets, and begins anew.
 * With 1.3 a handshake ends with the server's first ticket, since only that shows that the server
 * has come to its end; time counts from the SYN. A reset leaves no TIME_WAIT on this side, which
 * would run out of ports. Nothing is verified but what the handshake itself does. Prints one JSON
 * object.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/tcp.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include <openssl/err.h>
#include <openssl/ssl.h>

#define MAX_CONNECTIONS 8192
#define MAX_SAMPLES     (1u << 22)
#define NS              1000000000ull
#define BREAK_BYTES     2500 /* a handshake's bytes, both ways, about */

struct connection {
    struct run *run;
    int fd;
    SSL *ssl;
    SSL_SESSION *session;
    bool has_ticket; /* of this handshake */
    uint64_t started;
    uint64_t break_at; /* bytes; 0: goes on to its end */
};

struct run {
    struct sockaddr_in address;
    const char *name;
    SSL_CTX *ctx;
    bool is_resuming, is_13;
    unsigned break_percent;
    uint64_t most; /* handshakes */
    unsigned nconns;
    struct connection *conns;
    int epoll;
    unsigned short seed[3];
    uint64_t full, resumed, broken, errors;
    uint64_t *latencies;
    uint64_t nlatencies;
    char cipher[64];
};

static uint64_t now_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * NS + (uint64_t)t.tv_nsec;
}

static void die(const char *what)
{
    if (errno)
        perror(what);
    else
        fprintf(stderr, "handshakes: %s\n", what);
    ERR_print_errors_fp(stderr);
    exit(1);
}

static void watch(struct run *r, struct connection *c, int op, uint32_t events)
{
    struct epoll_event e = {.events = events, .data.ptr = c};
    if (epoll_ctl(r->epoll, op, c->fd, &e) != 0)
        die("epoll_ctl");
}

static void conn_begin(struct connection *c)
{
    struct run *r = c->run;
    int one = 1;
    c->fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0);
    if (c->fd < 0)
        die("socket");
    setsockopt(c->fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
    setsockopt(c->fd, SOL_SOCKET, SO_LINGER, &(struct linger){.l_onoff = 1}, sizeof(struct linger));
    c->started = now_ns();
    c->has_ticket = false;
    c->break_at = 0;
    if (r->break_percent && erand48(r->seed) * 100 < r->break_percent)
        c->break_at = 1 + (uint64_t)(erand48(r->seed) * BREAK_BYTES);
    if (connect(c->fd, (struct sockaddr *)&r->address, sizeof(r->address)) != 0 &&
        errno != EINPROGRESS)
        die("connect");
    c->ssl = SSL_new(r->ctx);
    if (!c->ssl || !SSL_set_fd(c->ssl, c->fd) || !SSL_set_tlsext_host_name(c->ssl, r->name))
        die("SSL_new");
    SSL_set_app_data(c->ssl, c);
    if (r->is_resuming && c->session)
        SSL_set_session(c->ssl, c->session);
    SSL_set_connect_state(c->ssl);
    watch(r, c, EPOLL_CTL_ADD, EPOLLIN | EPOLLOUT);
}

/* Without a word: what is under test has to see that for itself. */
static void conn_end(struct connection *c)
{
    SSL_set_quiet_shutdown(c->ssl, 1);
    SSL_shutdown(c->ssl); /* or the session would count as bad */
    SSL_free(c->ssl);
    close(c->fd);
    ERR_clear_error();
    errno = 0;
}

static int on_session(SSL *ssl, SSL_SESSION *session)
{
    struct connection *c = SSL_get_app_data(ssl);
    c->has_ticket = true;
    if (!c->run->is_resuming)
        return 0;
    SSL_SESSION_free(c->session);
    c->session = session;
    return 1;
}

static void conn_done(struct connection *c)
{
    struct run *r = c->run;
    if (SSL_session_reused(c->ssl))
        r->resumed++;
    else
        r->full++;
    if (r->nlatencies < MAX_SAMPLES)
        r->latencies[r->nlatencies++] = now_ns() - c->started;
    if (!r->cipher[0])
        snprintf(r->cipher, sizeof(r->cipher), "%s %s", SSL_get_version(c->ssl),
                 SSL_get_cipher(c->ssl));
}

static bool is_to_break(const struct connection *c)
{
    uint64_t moved =
        BIO_number_read(SSL_get_rbio(c->ssl)) + BIO_number_written(SSL_get_wbio(c->ssl));
    return c->break_at && moved >= c->break_at;
}

enum outcome { GOES_ON, DONE, BROKEN, FAILED };

static enum outcome conn_step(struct connection *c)
{
    char byte;
    int n = SSL_is_init_finished(c->ssl) ? SSL_read(c->ssl, &byte, 1) : SSL_do_handshake(c->ssl);
    if (is_to_break(c))
        return BROKEN;
    bool is_over = SSL_is_init_finished(c->ssl) && (c->has_ticket || !c->run->is_13);
    if (is_over)
        return DONE;
    int why = SSL_get_error(c->ssl, n);
    if (n > 0 && SSL_is_init_finished(c->ssl))
        return conn_step(c); /* for the ticket, which may be here already */
    if (why == SSL_ERROR_WANT_READ)
        watch(c->run, c, EPOLL_CTL_MOD, EPOLLIN);
    else if (why == SSL_ERROR_WANT_WRITE)
        watch(c->run, c, EPOLL_CTL_MOD, EPOLLOUT);
    else
        return FAILED;
    return GOES_ON;
}

static void on_event(struct connection *c)
{
    struct run *r = c->run;
    switch (conn_step(c)) {
    case GOES_ON:
        return;
    case DONE:
        conn_done(c);
        break;
    case BROKEN:
        r->broken++;
        break;
    case FAILED:
        if (r->errors++ == 0)
            ERR_print_errors_fp(stderr);
        break;
    }
    conn_end(c);
    conn_begin(c);
}

static void loop(struct run *r, uint64_t end)
{
    struct epoll_event events[256];
    while (now_ns() < end && r->full + r->resumed + r->broken < r->most) {
        int n = epoll_wait(r->epoll, events, 256, 100);
        for (int i = 0; i < n; i++)
            on_event(events[i].data.ptr);
    }
}

static int compare(const void *a, const void *b)
{
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return x < y ? -1 : x > y;
}

static double quantile_us(const struct run *r, double q)
{
    if (r->nlatencies == 0)
        return 0;
    return (double)r->latencies[(uint64_t)(q * (double)(r->nlatencies - 1))] / 1e3;
}

static void report(struct run *r, double seconds)
{
    uint64_t good = r->full + r->resumed;
    qsort(r->latencies, r->nlatencies, sizeof(*r->latencies), compare);
    printf("{\"full\": %lu, \"resumed\": %lu, \"broken\": %lu, \"errors\": %lu, "
           "\"per_second\": %.1f, \"p50_us\": %.1f, \"p99_us\": %.1f, \"cipher\": \"%s\"}\n",
           r->full, r->resumed, r->broken, r->errors, (double)good / seconds, quantile_us(r, 0.5),
           quantile_us(r, 0.99), r->cipher);
}

static int usage(void)
{
    fprintf(stderr, "usage: handshakes ADDRESS PORT NAME CONNECTIONS SECONDS [1.2|1.3] [resume] "
                    "[break PERCENT] [count N] [seed N]\n");
    return 2;
}

static bool parse_options(struct run *r, int argc, char **argv)
{
    r->is_13 = true;
    r->most = UINT64_MAX;
    for (int i = 6; i < argc; i++) {
        bool has_value = i + 1 < argc;
        if (strcmp(argv[i], "1.2") == 0 || strcmp(argv[i], "1.3") == 0)
            r->is_13 = argv[i][2] == '3';
        else if (strcmp(argv[i], "resume") == 0)
            r->is_resuming = true;
        else if (strcmp(argv[i], "break") == 0 && has_value)
            r->break_percent = (unsigned)atoi(argv[++i]);
        else if (strcmp(argv[i], "count") == 0 && has_value)
            r->most = strtoull(argv[++i], NULL, 10);
        else if (strcmp(argv[i], "seed") == 0 && has_value)
            r->seed[0] = (unsigned short)atoi(argv[++i]);
        else
            return false;
    }
    return true;
}

static void set_up(struct run *r)
{
    int version = r->is_13 ? TLS1_3_VERSION : TLS1_2_VERSION;
    r->ctx = SSL_CTX_new(TLS_client_method());
    if (!r->ctx || !SSL_CTX_set_min_proto_version(r->ctx, version) ||
        !SSL_CTX_set_max_proto_version(r->ctx, version))
        die("SSL_CTX_new");
    SSL_CTX_set_session_cache_mode(r->ctx, SSL_SESS_CACHE_CLIENT | SSL_SESS_CACHE_NO_INTERNAL);
    SSL_CTX_sess_set_new_cb(r->ctx, on_session);
    r->latencies = calloc(MAX_SAMPLES, sizeof(*r->latencies));
    r->conns = calloc(r->nconns, sizeof(*r->conns));
    r->epoll = epoll_create1(0);
    if (!r->conns || !r->latencies || r->epoll < 0)
        die("set-up");
}

int main(int argc, char **argv)
{
    static struct run r;
    if (argc < 6 || !parse_options(&r, argc, argv))
        return usage();
    r.address.sin_family = AF_INET;
    r.address.sin_port = htons((uint16_t)atoi(argv[2]));
    r.name = argv[3];
    r.nconns = (unsigned)atoi(argv[4]);
    double seconds = atof(argv[5]);
    if (inet_pton(AF_INET, argv[1], &r.address.sin_addr) != 1 || r.nconns == 0 ||
        r.nconns > MAX_CONNECTIONS || seconds <= 0)
        return usage();
    set_up(&r);
    uint64_t start = now_ns();
    for (unsigned i = 0; i < r.nconns; i++) {
        r.conns[i].run = &r;
        conn_begin(&r.conns[i]);
    }
    loop(&r, start + (uint64_t)(seconds * (double)NS));
    report(&r, (double)(now_ns() - start) / (double)NS);
    return 0;
}
