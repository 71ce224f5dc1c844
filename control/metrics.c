#include "control/metrics.h"

#include <arpa/inet.h>
#include <errno.h>
#include <microhttpd.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "control/metrics_text.h"
#include "runtime/list.h"

struct metrics_request {
    struct list_node node;
    struct metrics *owner;
    struct MHD_Connection *conn;
    struct MHD_Response *answer;
    bool asked;
};

struct metrics {
    struct metrics_opts o;
    struct MHD_Daemon *daemon;
    struct list_node waiting;
    unsigned handles;
    bool in_run; /* MHD_run() is on the stack */
    bool again;  /* a connection was resumed meanwhile: only another run notices */
    uv_poll_t poll;
    uv_timer_t timer;
};

static void run(struct metrics *m);

static enum MHD_Result answer_text(struct MHD_Connection *c, unsigned code, const char *text)
{
    struct MHD_Response *r =
        MHD_create_response_from_buffer(strlen(text), (void *)text, MHD_RESPMEM_PERSISTENT);

    if (!r)
        return MHD_NO;
    MHD_add_response_header(r, "Content-Type", "text/plain; charset=utf-8");
    if (code == MHD_HTTP_METHOD_NOT_ALLOWED)
        MHD_add_response_header(r, "Allow", "GET, HEAD");
    enum MHD_Result e = MHD_queue_response(c, code, r);
    MHD_destroy_response(r);
    return e;
}

static enum MHD_Result answer_metrics(struct metrics *m, struct metrics_request *r)
{
    if (!r->asked) {
        r->asked = true;
        list_push_tail(&m->waiting, &r->node);
        MHD_suspend_connection(r->conn);
        m->o.ask(m->o.ctx, r);
        return MHD_YES;
    }
    if (!r->answer)
        return answer_text(r->conn, MHD_HTTP_SERVICE_UNAVAILABLE, "no answer from the cores\n");
    return MHD_queue_response(r->conn, MHD_HTTP_OK, r->answer);
}

static enum MHD_Result on_request(void *ctx, struct MHD_Connection *c, const char *url,
                                  const char *method, const char *version, const char *upload,
                                  size_t *upload_size, void **req)
{
    struct metrics *m = ctx;
    struct metrics_request *r = *req;

    if (!r) {
        r = calloc(1, sizeof(*r));
        if (!r)
            return MHD_NO;
        r->owner = m;
        r->conn = c;
        *req = r;
        return MHD_YES;
    }
    if (*upload_size) { /* a body is read past and thrown away */
        *upload_size = 0;
        return MHD_YES;
    }
    if (strcmp(method, MHD_HTTP_METHOD_GET) != 0 && strcmp(method, MHD_HTTP_METHOD_HEAD) != 0)
        return answer_text(c, MHD_HTTP_METHOD_NOT_ALLOWED, "GET or HEAD\n");
    if (strcmp(url, "/metrics") == 0)
        return answer_metrics(m, r);
    if (strcmp(url, "/healthz") == 0)
        return m->o.is_healthy(m->o.ctx)
                   ? answer_text(c, MHD_HTTP_OK, "ok\n")
                   : answer_text(c, MHD_HTTP_SERVICE_UNAVAILABLE, "draining\n");
    if (strcmp(url, "/") == 0)
        return answer_text(c, MHD_HTTP_OK, "millrace: see /metrics and /healthz\n");
    return answer_text(c, MHD_HTTP_NOT_FOUND, "not found: see /metrics and /healthz\n");
}

static void on_completed(void *ctx, struct MHD_Connection *c, void **req,
                         enum MHD_RequestTerminationCode how)
{
    struct metrics_request *r = *req;

    if (!r)
        return;
    list_remove(&r->node);
    if (r->answer)
        MHD_destroy_response(r->answer);
    free(r);
    *req = NULL;
}

void metrics_reply(struct metrics_request *r, char *text, size_t len)
{
    if (text) {
        r->answer = MHD_create_response_from_buffer(len, text, MHD_RESPMEM_MUST_FREE);
        if (r->answer)
            MHD_add_response_header(r->answer, "Content-Type", METRICS_CONTENT_TYPE);
        else
            free(text);
    }
    list_remove(&r->node);
    MHD_resume_connection(r->conn);
    run(r->owner);
}

static void on_timer(uv_timer_t *h)
{
    run(h->data);
}

static void run(struct metrics *m)
{
    MHD_UNSIGNED_LONG_LONG ms;

    m->again = true;
    if (m->in_run)
        return;
    m->in_run = true;
    while (m->again) {
        m->again = false;
        MHD_run(m->daemon);
    }
    m->in_run = false;
    if (MHD_get_timeout(m->daemon, &ms) == MHD_YES)
        uv_timer_start(&m->timer, on_timer, ms, 0);
    else
        uv_timer_stop(&m->timer);
}

static void on_ready(uv_poll_t *h, int status, int events)
{
    run(h->data);
}

static int listen_on(const struct config_addr *a, char *err, size_t err_len)
{
    struct sockaddr_in sa = {
        .sin_family = AF_INET, .sin_port = htons(a->port), .sin_addr.s_addr = a->addr};
    char ip[INET_ADDRSTRLEN];
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0), one = 1;

    if (fd >= 0 && setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof(one)) == 0 &&
        bind(fd, (struct sockaddr *)&sa, sizeof(sa)) == 0 && listen(fd, 64) == 0)
        return fd;
    int e = errno;
    inet_ntop(AF_INET, &a->addr, ip, sizeof(ip));
    snprintf(err, err_len, "admin.metrics: can't listen on %s:%u: %s%s", ip, a->port, strerror(e),
             e == EADDRINUSE      ? "; stop what listens there or choose another port"
             : e == EADDRNOTAVAIL ? "; it must be an address of the kernel on this host"
                                  : "");
    if (fd >= 0)
        close(fd);
    return -e;
}

int metrics_new(uv_loop_t *loop, const struct metrics_opts *o, struct metrics **ret_metrics,
                char *err, size_t err_len)
{
    struct metrics *m = calloc(1, sizeof(*m));
    int fd;

    if (!m) {
        snprintf(err, err_len, "admin.metrics: out of memory");
        return -ENOMEM;
    }
    m->o = *o;
    list_init(&m->waiting);
    fd = listen_on(&o->address, err, err_len);
    if (fd < 0) {
        free(m);
        return fd;
    }
    m->daemon =
        MHD_start_daemon(MHD_USE_EPOLL | MHD_ALLOW_SUSPEND_RESUME, 0, NULL, NULL, on_request, m,
                         MHD_OPTION_LISTEN_SOCKET, fd, MHD_OPTION_NOTIFY_COMPLETED, on_completed, m,
                         MHD_OPTION_CONNECTION_LIMIT, (unsigned)METRICS_MAX_CLIENTS,
                         MHD_OPTION_CONNECTION_TIMEOUT, (unsigned)METRICS_TIMEOUT_S,
                         MHD_OPTION_CONNECTION_MEMORY_LIMIT, (size_t)32768, MHD_OPTION_END);
    if (!m->daemon) {
        snprintf(err, err_len, "admin.metrics: can't start the HTTP server: %s", strerror(errno));
        close(fd);
        free(m);
        return -EIO;
    }
    int epoll_fd = MHD_get_daemon_info(m->daemon, MHD_DAEMON_INFO_EPOLL_FD)->epoll_fd;
    uv_timer_init(loop, &m->timer);
    uv_poll_init(loop, &m->poll, epoll_fd);
    m->timer.data = m->poll.data = m;
    m->handles = 2;
    uv_poll_start(&m->poll, UV_READABLE, on_ready);
    *ret_metrics = m;
    return 0;
}

static void on_closed(uv_handle_t *h)
{
    struct metrics *m = h->data;

    if (--m->handles == 0)
        free(m);
}

void metrics_close(struct metrics *m)
{
    struct list_node *n;

    if (!m)
        return;
    uv_poll_stop(&m->poll);
    uv_timer_stop(&m->timer);
    /* A suspended connection would keep the server from stopping. */
    m->in_run = true;
    while ((n = list_pop_head(&m->waiting)))
        MHD_resume_connection(container_of(n, struct metrics_request, node)->conn);
    MHD_run(m->daemon);
    MHD_stop_daemon(m->daemon);
    uv_close((uv_handle_t *)&m->poll, on_closed);
    uv_close((uv_handle_t *)&m->timer, on_closed);
}
