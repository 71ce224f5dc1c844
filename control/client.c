#include "control/client.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#define ANSWER_MAX (64u << 20)

struct client {
    int fd;
    char *buf;
    size_t len, size;
};

static const char *advice(int e)
{
    switch (e) {
    case ENOENT:
    case ECONNREFUSED:
        return "; is millrace running? (--socket or --config says where)";
    case EACCES:
        return "; are you in its group, or root?";
    default:
        return "";
    }
}

int client_connect(const char *path, struct client **ret_client, char *err, size_t err_len)
{
    struct sockaddr_un sa = {.sun_family = AF_UNIX};
    struct client *c = calloc(1, sizeof(*c));
    int e = !c ? ENOMEM : strlen(path) >= sizeof(sa.sun_path) ? ENAMETOOLONG : 0;

    if (!e) {
        memcpy(sa.sun_path, path, strlen(path) + 1);
        c->fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
        if (c->fd < 0 || connect(c->fd, (struct sockaddr *)&sa, sizeof(sa)))
            e = errno;
    }
    if (e) {
        snprintf(err, err_len, "can't reach the admin socket %s: %s%s", path, strerror(e),
                 advice(e));
        if (c && c->fd > 0)
            close(c->fd);
        free(c);
        return -e;
    }
    *ret_client = c;
    return 0;
}

int client_send(struct client *c, const json_t *request, char *err, size_t err_len)
{
    char *text = json_dumps(request, JSON_COMPACT);
    size_t len = text ? strlen(text) : 0;
    int e = text ? 0 : -ENOMEM;

    if (text)
        text[len] = '\n'; /* in place of the NUL */
    if (!e && send(c->fd, text, len + 1, MSG_NOSIGNAL) != (ssize_t)(len + 1))
        e = -EPIPE;
    if (e)
        snprintf(err, err_len, "can't send to the admin socket: %s", strerror(errno));
    free(text);
    return e;
}

static int fill(struct client *c, int timeout_ms, char *err, size_t err_len)
{
    struct pollfd p = {.fd = c->fd, .events = POLLIN};

    if (c->len == c->size) {
        size_t size = c->size ? 2 * c->size : 65536;
        char *buf = size <= ANSWER_MAX ? realloc(c->buf, size) : NULL;
        if (!buf) {
            snprintf(err, err_len, "the answer is too large");
            return -ENOMEM;
        }
        c->buf = buf;
        c->size = size;
    }
    int r = poll(&p, 1, timeout_ms);
    if (r == 0) {
        snprintf(err, err_len, "millrace did not answer within %d s", timeout_ms / 1000);
        return -ETIMEDOUT;
    }
    ssize_t n = r < 0 ? -1 : read(c->fd, c->buf + c->len, c->size - c->len);
    if (n < 0 && errno == EINTR)
        return 0;
    if (n <= 0) {
        snprintf(err, err_len, "millrace has hung up");
        return -ECONNRESET;
    }
    c->len += (size_t)n;
    return 0;
}

int client_receive(struct client *c, int timeout_ms, json_t **ret_answer, char *err, size_t err_len)
{
    char *end;
    json_error_t je;

    while (!(end = c->len ? memchr(c->buf, '\n', c->len) : NULL)) {
        int e = fill(c, timeout_ms, err, err_len);
        if (e)
            return e;
    }
    size_t len = (size_t)(end - c->buf);
    json_t *o = json_loadb(c->buf, len, 0, &je);
    c->len -= len + 1;
    memmove(c->buf, end + 1, c->len);
    if (!json_is_object(o)) {
        snprintf(err, err_len, "millrace's answer makes no sense: %.80s", je.text);
        json_decref(o);
        return -EPROTO;
    }
    *ret_answer = o;
    return 0;
}

int client_fd(const struct client *c)
{
    return c->fd;
}

void client_close(struct client *c)
{
    if (!c)
        return;
    close(c->fd);
    free(c->buf);
    free(c);
}
