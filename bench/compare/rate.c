/* An open-loop HTTP client: requests leave at a fixed rate whatever the answers do.
 *
 *     rate ADDRESS PORT PATH CONNECTIONS RATE SECONDS [tls NAME]
 *
 * Request i is due at start + i / RATE and goes to the next connection in turn; a connection that
 * still waits for an answer queues it. Latency counts from when a request was due, so that a slow
 * answer isn't hidden by the requests it kept from being sent. With `tls` the connections shake
 * hands before the first request is due; nothing is verified. Prints one JSON object.
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
#include <sys/prctl.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include <openssl/err.h>
#include <openssl/ssl.h>

#define MAX_CONNECTIONS 4096
#define MAX_QUEUED      4096
#define NS              1000000000ull
#define GRACE_NS        (2 * NS) /* for the last answers */

struct connection {
    int fd;
    SSL *ssl;                 /* NULL: plain */
    bool shaking;             /* hands: it can't send yet */
    bool waiting;             /* a request is out */
    uint64_t due[MAX_QUEUED]; /* ring of the requests this connection owes */
    uint32_t head, tail;
    char buf[8192];
    size_t have;
    size_t body_left;
    bool in_body;
};

struct run {
    struct sockaddr_in address;
    char request[512];
    size_t request_len;
    unsigned nconns;
    uint64_t interval_ns_num, interval_ns_den; /* request i is due at i * num / den */
    uint64_t start, end;
    uint64_t sent, answered, errors, scheduled;
    uint64_t *latencies; /* of `answered` requests, as they came */
    uint64_t max;        /* requests of the whole run */
    struct connection *conns;
    int epoll;
    SSL_CTX *ctx; /* NULL: plain */
    const char *name;
    unsigned shaking;
};

static uint64_t now_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * NS + (uint64_t)t.tv_nsec;
}

static void die(const char *what)
{
    perror(what);
    exit(1);
}

static void conn_open(struct run *r, struct connection *c)
{
    int one = 1;
    struct epoll_event e = {.events = EPOLLIN, .data.ptr = c};

    c->fd = socket(AF_INET, SOCK_STREAM, 0);
    if (c->fd < 0 || connect(c->fd, (struct sockaddr *)&r->address, sizeof(r->address)) != 0)
        die("connect");
    setsockopt(c->fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
    fcntl(c->fd, F_SETFL, O_NONBLOCK);
    c->waiting = c->in_body = false;
    c->have = 0;
    if (epoll_ctl(r->epoll, EPOLL_CTL_ADD, c->fd, &e) != 0)
        die("epoll_ctl");
    if (!r->ctx)
        return;
    c->ssl = SSL_new(r->ctx);
    if (!c->ssl || !SSL_set_fd(c->ssl, c->fd) || !SSL_set_tlsext_host_name(c->ssl, r->name))
        die("SSL_new");
    SSL_set_connect_state(c->ssl);
    SSL_do_handshake(c->ssl);
    c->shaking = true;
    r->shaking++;
}

/* What fits into the socket's buffer always fits: a request is small. */
static bool send_all(struct connection *c, const char *text, size_t len)
{
    if (c->ssl)
        return SSL_write(c->ssl, text, (int)len) == (int)len;
    return send(c->fd, text, len, MSG_NOSIGNAL) == (ssize_t)len;
}

/* As recv(); -1 with EAGAIN: nothing yet. */
static ssize_t receive(struct connection *c, char *to, size_t size)
{
    if (!c->ssl)
        return recv(c->fd, to, size, 0);
    int n = SSL_read(c->ssl, to, (int)size);
    if (n > 0)
        return n;
    errno = SSL_get_error(c->ssl, n) == SSL_ERROR_WANT_READ ? EAGAIN : EPROTO;
    ERR_clear_error();
    return -1;
}

/* A request that got no whole answer is an error; the connection starts anew. */
static void conn_fail(struct run *r, struct connection *c)
{
    if (c->waiting) {
        r->errors++;
        c->head++;
    }
    if (c->shaking)
        r->shaking--;
    c->shaking = false;
    SSL_free(c->ssl);
    c->ssl = NULL;
    ERR_clear_error();
    close(c->fd);
    conn_open(r, c);
}

static void conn_send(struct run *r, struct connection *c)
{
    if (c->waiting || c->shaking || c->head == c->tail)
        return;
    c->waiting = true;
    r->sent++;
    if (!send_all(c, r->request, r->request_len))
        conn_fail(r, c);
}

static void conn_answered(struct run *r, struct connection *c)
{
    uint64_t due = c->due[c->head++ % MAX_QUEUED];

    if (r->answered < r->max)
        r->latencies[r->answered++] = now_ns() - due;
    c->waiting = c->in_body = false;
    conn_send(r, c);
}

/* A whole head in the buffer: its length, with the body's; 0: not yet; -1: not a good answer. */
static ssize_t parse_head(struct connection *c)
{
    char *end = memmem(c->buf, c->have, "\r\n\r\n", 4);
    char *length;

    if (!end)
        return c->have == sizeof(c->buf) ? -1 : 0;
    if (c->have < 12 || memcmp(c->buf, "HTTP/1.1 2", 10) != 0)
        return -1;
    *end = '\0';
    length = strcasestr(c->buf, "\r\ncontent-length:");
    if (!length)
        return -1;
    c->body_left = strtoul(length + 17, NULL, 10);
    return end + 4 - c->buf;
}

static void conn_shake(struct run *r, struct connection *c)
{
    int n = SSL_do_handshake(c->ssl);
    if (n == 1) {
        c->shaking = false;
        r->shaking--;
        conn_send(r, c);
    } else if (SSL_get_error(c->ssl, n) != SSL_ERROR_WANT_READ) {
        r->errors++;
        conn_fail(r, c);
    }
}

/* False: there is no more for now. */
static bool conn_read_some(struct run *r, struct connection *c)
{
    ssize_t n = receive(c, c->buf + c->have, sizeof(c->buf) - c->have);

    if (n < 0 && errno == EAGAIN)
        return false;
    if (n <= 0) {
        conn_fail(r, c);
        return false;
    }
    c->have += (size_t)n;
    if (!c->in_body) {
        ssize_t head = parse_head(c);
        if (head < 0)
            conn_fail(r, c);
        if (head <= 0)
            return head == 0;
        c->in_body = true;
        c->have -= (size_t)head;
        memmove(c->buf, c->buf + head, c->have);
    }
    if (c->have > c->body_left) {
        conn_fail(r, c);
        return false;
    }
    c->body_left -= c->have;
    c->have = 0;
    if (c->body_left == 0)
        conn_answered(r, c);
    return true;
}

/* OpenSSL may hold bytes that the socket no longer tells of: to the end. */
static void conn_read(struct run *r, struct connection *c)
{
    if (c->shaking)
        conn_shake(r, c);
    else
        while (conn_read_some(r, c) && c->ssl)
            ;
}

static uint64_t due_at(const struct run *r, uint64_t i)
{
    return r->start + i * r->interval_ns_num / r->interval_ns_den;
}

/* Hands every request that is due to its connection. */
static void schedule(struct run *r, uint64_t now)
{
    for (uint64_t due = due_at(r, r->scheduled); due <= now && due < r->end;
         due = due_at(r, r->scheduled)) {
        struct connection *c = &r->conns[r->scheduled % r->nconns];
        r->scheduled++;
        if (c->tail - c->head == MAX_QUEUED) {
            r->errors++;
            continue;
        }
        c->due[c->tail++ % MAX_QUEUED] = due;
        conn_send(r, c);
    }
}

static void loop(struct run *r)
{
    struct epoll_event events[256];

    for (;;) {
        uint64_t now = now_ns();
        uint64_t next = due_at(r, r->scheduled);
        if (next >= r->end)
            next = r->end + GRACE_NS;
        if (now >= r->end + GRACE_NS || (now >= r->end && r->answered + r->errors >= r->scheduled))
            return;
        uint64_t wait = next > now ? next - now : 0;
        struct timespec t = {(time_t)(wait / NS), (long)(wait % NS)};
        int n = epoll_pwait2(r->epoll, events, 256, &t, NULL);
        for (int i = 0; i < n; i++)
            conn_read(r, events[i].data.ptr);
        schedule(r, now_ns());
    }
}

/* Before the first request is due. */
static void wait_for_hands(struct run *r)
{
    struct epoll_event events[256];
    uint64_t end = now_ns() + 60 * NS;

    while (r->shaking) {
        int n = epoll_wait(r->epoll, events, 256, 1000);
        for (int i = 0; i < n; i++)
            conn_read(r, events[i].data.ptr);
        if (now_ns() > end) {
            fprintf(stderr, "rate: %u connections don't get through their handshake\n", r->shaking);
            exit(1);
        }
    }
    r->errors = 0;
}

static int compare(const void *a, const void *b)
{
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return x < y ? -1 : x > y;
}

/* In microseconds; the latencies are sorted. */
static double quantile(const struct run *r, double q)
{
    if (r->answered == 0)
        return 0;
    return (double)r->latencies[(uint64_t)(q * (double)(r->answered - 1))] / 1e3;
}

static void report(const struct run *r, double seconds)
{
    printf("{\"scheduled\": %lu, \"answered\": %lu, \"errors\": %lu, \"rps\": %.1f, "
           "\"p50_us\": %.1f, \"p90_us\": %.1f, \"p99_us\": %.1f, \"p999_us\": %.1f}\n",
           r->scheduled, r->answered, r->scheduled - r->answered, (double)r->answered / seconds,
           quantile(r, 0.5), quantile(r, 0.9), quantile(r, 0.99), quantile(r, 0.999));
}

int main(int argc, char **argv)
{
    static struct run r;

    if (argc != 7 && !(argc == 9 && strcmp(argv[7], "tls") == 0)) {
        fprintf(stderr, "usage: rate ADDRESS PORT PATH CONNECTIONS RATE SECONDS [tls NAME]\n");
        return 2;
    }
    if (argc == 9) {
        r.ctx = SSL_CTX_new(TLS_client_method());
        r.name = argv[8];
        if (!r.ctx)
            die("SSL_CTX_new");
    }
    r.address.sin_family = AF_INET;
    r.address.sin_port = htons((uint16_t)atoi(argv[2]));
    if (inet_pton(AF_INET, argv[1], &r.address.sin_addr) != 1)
        die("address");
    r.request_len =
        (size_t)snprintf(r.request, sizeof(r.request), "GET %s HTTP/1.1\r\nHost: %s:%s\r\n\r\n",
                         argv[3], argv[1], argv[2]);
    r.nconns = (unsigned)atoi(argv[4]);
    r.interval_ns_num = NS;
    r.interval_ns_den = strtoul(argv[5], NULL, 10);
    double seconds = atof(argv[6]);
    if (r.request_len >= sizeof(r.request) || r.nconns == 0 || r.nconns > MAX_CONNECTIONS ||
        r.interval_ns_den == 0 || seconds <= 0) {
        fprintf(stderr, "rate: a number is out of its range\n");
        return 2;
    }
    r.max = (uint64_t)(seconds * (double)r.interval_ns_den) + 1;
    r.latencies = calloc(r.max, sizeof(*r.latencies));
    r.conns = calloc(r.nconns, sizeof(*r.conns));
    r.epoll = epoll_create1(0);
    if (!r.conns || !r.latencies || r.epoll < 0)
        die("set-up");
    for (unsigned i = 0; i < r.nconns; i++)
        conn_open(&r, &r.conns[i]);
    prctl(PR_SET_TIMERSLACK, 1);
    wait_for_hands(&r);
    r.start = now_ns() + NS / 100;
    r.end = r.start + (uint64_t)(seconds * (double)NS);
    loop(&r);
    qsort(r.latencies, r.answered, sizeof(*r.latencies), compare);
    report(&r, seconds);
    return 0;
}
