/* The metrics address, spoken to over loopback. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <arpa/inet.h>
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "control/metrics.h"

struct world {
    uv_loop_t loop;
    struct metrics *metrics;
    uint16_t port;
    bool hold, healthy;
    struct metrics_request *held;
};

static void on_ask(void *ctx, struct metrics_request *r)
{
    struct world *w = ctx;

    if (w->hold)
        w->held = r;
    else
        metrics_reply(r, strdup("millrace_x 1\n"), 13);
}

static bool on_is_healthy(void *ctx)
{
    return ((struct world *)ctx)->healthy;
}

/* A port that was free a moment ago. */
static uint16_t free_port(int *ret_fd)
{
    struct sockaddr_in sa = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t len = sizeof(sa);
    int fd = socket(AF_INET, SOCK_STREAM, 0);

    assert_int_equal(bind(fd, (struct sockaddr *)&sa, sizeof(sa)), 0);
    assert_int_equal(getsockname(fd, (struct sockaddr *)&sa, &len), 0);
    *ret_fd = fd;
    return ntohs(sa.sin_port);
}

static struct metrics_opts opts(struct world *w)
{
    return (struct metrics_opts){.address = {.addr = htonl(INADDR_LOOPBACK), .port = w->port},
                                 .ask = on_ask,
                                 .is_healthy = on_is_healthy,
                                 .ctx = w};
}

static int setup(void **state)
{
    struct world *w = calloc(1, sizeof(*w));
    char err[256];
    int fd;

    uv_loop_init(&w->loop);
    w->healthy = true;
    w->port = free_port(&fd);
    close(fd);
    struct metrics_opts o = opts(w);
    assert_int_equal(metrics_new(&w->loop, &o, &w->metrics, err, sizeof(err)), 0);
    *state = w;
    return 0;
}

static int teardown(void **state)
{
    struct world *w = *state;

    metrics_close(w->metrics);
    uv_run(&w->loop, UV_RUN_DEFAULT);
    assert_int_equal(uv_loop_close(&w->loop), 0);
    free(w);
    return 0;
}

static int dial(struct world *w)
{
    struct sockaddr_in sa = {.sin_family = AF_INET,
                             .sin_port = htons(w->port),
                             .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

    assert_int_equal(connect(fd, (struct sockaddr *)&sa, sizeof(sa)), 0);
    return fd;
}

/* Sends a request that ends the connection, and reads until it ends. */
static const char *ask(struct world *w, const char *request)
{
    static char buf[65536];
    size_t len = 0;
    ssize_t n;
    int fd = dial(w);

    assert_int_equal(send(fd, request, strlen(request), MSG_NOSIGNAL), strlen(request));
    for (;;) {
        uv_run(&w->loop, UV_RUN_NOWAIT);
        n = recv(fd, buf + len, sizeof(buf) - 1 - len, MSG_DONTWAIT);
        if (n < 0 && errno == EAGAIN)
            continue;
        if (n <= 0)
            break;
        len += (size_t)n;
    }
    close(fd);
    buf[len] = '\0';
    return buf;
}

#define GET(path) "GET " path " HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"

static void paths_are_answered(void **state)
{
    struct world *w = *state;
    const char *a = ask(w, GET("/metrics"));

    assert_non_null(strstr(a, "200 OK"));
    assert_non_null(strstr(a, "text/plain; version=0.0.4"));
    assert_non_null(strstr(a, "\r\n\r\nmillrace_x 1\n"));
    assert_non_null(strstr(ask(w, GET("/healthz")), "200 OK"));
    w->healthy = false;
    assert_non_null(strstr(ask(w, GET("/healthz")), "503 "));
    assert_non_null(strstr(ask(w, GET("/other")), "404 "));
    a = ask(w, "POST /metrics HTTP/1.1\r\nHost: x\r\nContent-Length: 3\r\nConnection: "
               "close\r\n\r\nabc");
    assert_non_null(strstr(a, "405 "));
    assert_non_null(strstr(a, "Allow: GET, HEAD"));
    assert_null(strstr(ask(w, "nonsense\r\n\r\n"), " 200 "));
}

static void an_address_in_use_is_one_clear_line(void **state)
{
    struct world *w = *state;
    struct metrics_opts o = opts(w);
    struct metrics *m;
    char err[256];

    assert_int_equal(metrics_new(&w->loop, &o, &m, err, sizeof(err)), -EADDRINUSE);
    assert_non_null(strstr(err, "Address already in use; stop what listens there"));
    o.address.addr = inet_addr("192.0.2.1");
    assert_int_equal(metrics_new(&w->loop, &o, &m, err, sizeof(err)), -EADDRNOTAVAIL);
}

/* The end comes while someone waits for numbers, and someone else says nothing. */
static void it_closes_under_waiting_clients(void **state)
{
    struct world *w = *state;
    int silent = dial(w), waiting = dial(w);

    w->hold = true;
    assert_true(send(waiting, GET("/metrics"), strlen(GET("/metrics")), 0) > 0);
    while (!w->held)
        uv_run(&w->loop, UV_RUN_NOWAIT);
    metrics_reply(w->held, NULL, 0);
    close(waiting);
    close(silent);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(paths_are_answered, setup, teardown),
        cmocka_unit_test_setup_teardown(an_address_in_use_is_one_clear_line, setup, teardown),
        cmocka_unit_test_setup_teardown(it_closes_under_waiting_clients, setup, teardown),
    };
    signal(SIGPIPE, SIG_IGN);
    return cmocka_run_group_tests_name("metrics", tests, NULL, NULL);
}
