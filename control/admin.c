#include "control/admin.h"

#include <assert.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "runtime/list.h"

#define LAST_WRITE_MS 1000

struct admin_request; /* a client: it has at most one request under way */

struct admin {
    struct admin_opts o;
    uv_loop_t *loop;
    uv_pipe_t server;
    struct list_node clients;
    unsigned nclients;
    bool closing, server_closed;
};

struct admin_request {
    struct list_node node;
    struct admin *owner;
    uv_pipe_t pipe;
    uv_timer_t timer;
    unsigned handles;
    unsigned writes; /* under way */
    bool pending;    /* a request waits for its reply */
    bool closing;
    bool last;      /* close when written */
    bool eof;       /* no more will come; what came is still answered */
    uint64_t since; /* we began to wait for this client, in the loop's ms */
    size_t len;
    char buf[ADMIN_MAX_REQUEST + 1]; /* one more than allowed tells a request that is too long */
};

struct write {
    uv_write_t req;
    char *text;
};

static void serve(struct admin_request *c);

static void admin_maybe_free(struct admin *a)
{
    if (a->closing && a->server_closed && a->nclients == 0)
        free(a);
}

static void client_maybe_free(struct admin_request *c)
{
    struct admin *a = c->owner;

    if (c->handles > 0 || c->pending)
        return;
    list_remove(&c->node);
    a->nclients--;
    free(c);
    admin_maybe_free(a);
}

static void on_client_closed(uv_handle_t *h)
{
    struct admin_request *c = h->data;

    c->handles--;
    client_maybe_free(c);
}

static void client_close(struct admin_request *c)
{
    if (c->closing)
        return;
    c->closing = true;
    uv_close((uv_handle_t *)&c->pipe, on_client_closed);
    uv_close((uv_handle_t *)&c->timer, on_client_closed);
}

static void on_idle(uv_timer_t *h)
{
    client_close(h->data);
}

/* A client is idle while we wait for it: for a request, or to take what was written. */
static void client_touch(struct admin_request *c)
{
    if (c->closing)
        return;
    c->since = uv_now(c->owner->loop);
    if (c->pending && c->writes == 0)
        uv_timer_stop(&c->timer);
    else
        uv_timer_start(&c->timer, on_idle, c->last ? LAST_WRITE_MS : c->owner->o.idle_ms, 0);
}

static void on_written(uv_write_t *w, int status)
{
    struct write *wr = (struct write *)w;
    struct admin_request *c = w->data;

    free(wr->text);
    free(wr);
    c->writes--;
    if (c->closing)
        return;
    if (status < 0 || (c->last && c->writes == 0 && !c->pending)) {
        client_close(c);
        return;
    }
    client_touch(c);
    serve(c);
}

/* Consumes the reference. */
static void client_send(struct admin_request *c, json_t *o)
{
    struct write *wr;

    if (c->closing) {
        json_decref(o);
        return;
    }
    wr = malloc(sizeof(*wr));
    char *text = o ? json_dumps(o, JSON_COMPACT) : NULL;
    json_decref(o);
    if (!wr || !text) {
        free(wr);
        free(text);
        client_close(c);
        return;
    }
    size_t len = strlen(text);
    text[len] = '\n'; /* in place of the NUL */
    wr->text = text;
    wr->req.data = c;
    uv_buf_t b = uv_buf_init(text, (unsigned)(len + 1));
    c->writes++;
    if (uv_write(&wr->req, (uv_stream_t *)&c->pipe, &b, 1, on_written)) {
        c->writes--;
        free(text);
        free(wr);
        client_close(c);
        return;
    }
    client_touch(c);
}

static void client_error(struct admin_request *c, const char *error)
{
    client_send(c, json_pack("{s:b, s:s}", "ok", 0, "error", error));
}

static void client_last_error(struct admin_request *c, const char *error)
{
    c->last = true;
    if (!c->closing)
        uv_read_stop((uv_stream_t *)&c->pipe);
    client_error(c, error);
}

static void handle_line(struct admin_request *c, const char *line, size_t len)
{
    struct admin_call call;
    char err[256];

    if (admin_parse(line, len, &call, err, sizeof(err))) {
        client_error(c, err);
        return;
    }
    c->pending = true;
    client_touch(c);
    c->owner->o.on_request(c->owner->o.ctx, &call, c);
    admin_call_fini(&call);
}

/* Takes requests out of the buffer while none is under way and the answers are being taken. */
static void serve(struct admin_request *c)
{
    char *end;

    while (!c->closing && !c->pending && !c->last && c->writes == 0 &&
           (end = memchr(c->buf, '\n', c->len))) {
        size_t len = (size_t)(end - c->buf), used = len + 1;
        char *line = malloc(len + 1);
        if (!line) {
            client_close(c);
            return;
        }
        memcpy(line, c->buf, len);
        c->len -= used;
        memmove(c->buf, c->buf + used, c->len);
        if (len > 0 && line[len - 1] == '\r')
            len--;
        if (len > 0)
            handle_line(c, line, len);
        free(line);
    }
    if (c->closing || c->last || c->pending || c->writes > 0)
        return;
    if (c->eof)
        client_close(c);
    else if (c->len > ADMIN_MAX_REQUEST)
        client_last_error(c, "request too long");
}

static void on_alloc(uv_handle_t *h, size_t suggested, uv_buf_t *ret)
{
    struct admin_request *c = h->data;

    *ret = uv_buf_init(c->buf + c->len, (unsigned)(sizeof(c->buf) - c->len));
}

static void on_read(uv_stream_t *s, ssize_t n, const uv_buf_t *b)
{
    struct admin_request *c = s->data;

    if (n == 0)
        return;
    if (n == UV_ENOBUFS && (c->pending || c->writes > 0)) {
        /* Requests are piling up behind one that is being served: flooding. */
        client_close(c);
        return;
    }
    if (n == UV_EOF) {
        uv_read_stop(s);
        c->eof = true;
        serve(c);
        return;
    }
    if (n < 0) {
        client_close(c);
        return;
    }
    c->len += (size_t)n;
    serve(c);
}

/* The client that has kept us waiting longest goes, if that was long. False: none has. */
static bool make_room(struct admin *a)
{
    struct admin_request *longest = NULL;

    list_for_each(n, &a->clients)
    {
        struct admin_request *c = container_of(n, struct admin_request, node);
        if (!c->closing && !c->last && !c->pending && (!longest || c->since < longest->since))
            longest = c;
    }
    if (!longest || uv_now(a->loop) - longest->since < a->o.spare_ms)
        return false;
    client_close(longest);
    return true;
}

static void on_connection(uv_stream_t *server, int status)
{
    struct admin *a = server->data;
    struct admin_request *c;

    if (status < 0 || !(c = calloc(1, sizeof(*c))))
        return;
    c->owner = a;
    list_push_tail(&a->clients, &c->node);
    a->nclients++;
    uv_pipe_init(a->loop, &c->pipe, 0);
    uv_timer_init(a->loop, &c->timer);
    c->pipe.data = c->timer.data = c;
    c->handles = 2;
    c->since = uv_now(a->loop);
    if (uv_accept(server, (uv_stream_t *)&c->pipe)) {
        client_close(c);
        return;
    }
    if (a->nclients > ADMIN_MAX_CLIENTS && !make_room(a)) {
        client_last_error(c, "too many admin clients");
        return;
    }
    client_touch(c);
    uv_read_start((uv_stream_t *)&c->pipe, on_alloc, on_read);
}

void admin_note(struct admin_request *r, json_t *note)
{
    assert(r->pending);
    client_send(r, note ? json_pack("{s:b, s:o}", "ok", 1, "note", note) : NULL);
}

static void finish(struct admin_request *r, json_t *o)
{
    assert(r->pending);
    r->pending = false;
    client_send(r, o);
    if (r->closing)
        client_maybe_free(r);
}

void admin_reply(struct admin_request *r, json_t *result)
{
    finish(r, result ? json_pack("{s:b, s:o}", "ok", 1, "result", result)
                     : json_pack("{s:b, s:s}", "ok", 0, "error", "out of memory"));
}

void admin_refuse(struct admin_request *r, const char *error, json_t *errors)
{
    json_t *o = json_pack("{s:b, s:s}", "ok", 0, "error", error);

    if (errors)
        json_object_set_new(o, "errors", errors);
    finish(r, o);
}

static void on_server_closed(uv_handle_t *h)
{
    struct admin *a = h->data;

    a->server_closed = true;
    admin_maybe_free(a);
}

int admin_new(uv_loop_t *loop, const struct admin_opts *o, struct admin **ret_admin, char *err,
              size_t err_len)
{
    struct admin *a = calloc(1, sizeof(*a));
    int e;

    if (!a) {
        snprintf(err, err_len, "admin.socket: out of memory");
        return -ENOMEM;
    }
    a->o = *o;
    a->o.idle_ms = o->idle_ms ? o->idle_ms : ADMIN_IDLE_MS;
    a->o.spare_ms = o->spare_ms ? o->spare_ms : ADMIN_SPARE_MS;
    a->loop = loop;
    list_init(&a->clients);
    uv_pipe_init(loop, &a->server, 0);
    a->server.data = a;
    mode_t mask = umask(0117); /* from the first moment on nobody else may connect */
    e = uv_pipe_bind(&a->server, o->path);
    umask(mask);
    if (!e)
        e = uv_listen((uv_stream_t *)&a->server, ADMIN_MAX_CLIENTS, on_connection);
    if (e) {
        snprintf(err, err_len, "admin.socket: can't listen on %s: %s", o->path, strerror(-e));
        a->closing = true;
        uv_close((uv_handle_t *)&a->server, on_server_closed);
        return e;
    }
    *ret_admin = a;
    return 0;
}

void admin_close(struct admin *a)
{
    if (!a)
        return;
    a->closing = true;
    uv_close((uv_handle_t *)&a->server, on_server_closed);
    list_for_each_safe(n, tmp, &a->clients)
    {
        struct admin_request *c = container_of(n, struct admin_request, node);
        assert(!c->pending);
        if (c->writes == 0) {
            client_close(c);
            continue;
        }
        c->last = true;
        client_touch(c);
    }
}
