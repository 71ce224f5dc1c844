#include "control/certs.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "control/watch_file.h"
#include "dataplane/tls/context.h"

#define SOON (14 * 86400) /* s */

static bool check(void *ctx, const struct config_tls *tls, struct config_tls_fault *ret_fault)
{
    return tls_context_check(tls, ctx != NULL, time(NULL), ret_fault);
}

const struct config_tls_checker *certs_checker(bool at_start)
{
    static const struct config_tls_checker starting = {check, (void *)"any time"};
    static const struct config_tls_checker running = {check, NULL};

    return at_start ? &starting : &running;
}

struct process_cert *certs_list(const struct snapshot *s, size_t *ret_n)
{
    struct process_cert *list;
    size_t n = 0;

    for (size_t i = 0; i < s->nlisteners; i++)
        n += s->listeners[i].tls ? s->listeners[i].tls->ncertificates : 0;
    *ret_n = 0;
    list = n ? calloc(n, sizeof(*list)) : NULL;
    for (size_t i = 0; list && i < s->nlisteners; i++) {
        const struct config_listener *l = &s->listeners[i];
        for (size_t k = 0; l->tls && k < tls_context_certs(l->tls->context); k++) {
            struct tls_cert_info c;
            tls_context_cert(l->tls->context, k, &c);
            list[(*ret_n)++] = (struct process_cert){l->name, c.file, c.name, c.type, c.not_after};
        }
    }
    return list;
}

void certs_warn(struct log *log, const struct process_cert *list, size_t n)
{
    int64_t now = time(NULL);

    for (size_t i = 0; i < n; i++) {
        int64_t left = list[i].not_after - now;
        if (left < 0)
            log_warn(log, "listener %s: the certificate in %s has expired", list[i].listener,
                     list[i].file);
        else if (left < SOON)
            log_warn(log, "listener %s: the certificate in %s expires in %" PRId64 " h",
                     list[i].listener, list[i].file, left / 3600);
    }
}

/* --- watching ------------------------------------------------------------------------------------
 */

struct watched {
    char *path;
    bool wanted;
    struct watch_file *watch;
};

struct certs {
    uv_loop_t *loop;
    void (*changed)(void *ctx);
    void *ctx;
    struct watched *files;
    size_t n;
};

struct certs *certs_new(uv_loop_t *loop, void (*changed)(void *ctx), void *ctx)
{
    struct certs *c = calloc(1, sizeof(*c));

    if (!c)
        return NULL;
    c->loop = loop;
    c->changed = changed;
    c->ctx = ctx;
    return c;
}

/* A file that is gone is no news: what it held stays. */
static void on_file(void *ctx, enum watch_event ev)
{
    struct certs *c = ctx;

    if (ev == WATCH_CHANGED)
        c->changed(c->ctx);
}

static int add(struct certs *c, const char *path)
{
    struct watched *more = realloc(c->files, (c->n + 1) * sizeof(*more));
    struct watched w = {.path = strdup(path), .wanted = true};

    if (more)
        c->files = more;
    int e = more && w.path ? watch_file_new(c->loop, path, on_file, c, &w.watch) : UV_ENOMEM;
    if (e) {
        free(w.path);
        return e;
    }
    c->files[c->n++] = w;
    return 0;
}

static void want(struct certs *c, struct log *log, const char *path)
{
    if (!path)
        return;
    for (size_t i = 0; i < c->n; i++) {
        if (strcmp(c->files[i].path, path) != 0)
            continue;
        c->files[i].wanted = true;
        return;
    }
    int e = add(c, path);
    if (e)
        log_warn(log, "%s can't be watched (%s): a change of it needs a reload", path,
                 strerror(-e));
}

static void want_tls(struct certs *c, struct log *log, const struct config_tls *tls)
{
    for (size_t i = 0; i < tls->ncertificates; i++) {
        want(c, log, tls->certificates[i].cert);
        want(c, log, tls->certificates[i].key);
        want(c, log, tls->certificates[i].ocsp);
    }
    want(c, log, tls->ticket_keys);
    want(c, log, tls->client_ca);
    want(c, log, tls->client_crl);
}

static void drop_unwanted(struct certs *c)
{
    size_t kept = 0;

    for (size_t i = 0; i < c->n; i++) {
        if (c->files[i].wanted) {
            c->files[kept++] = c->files[i];
            continue;
        }
        watch_file_close(c->files[i].watch);
        free(c->files[i].path);
    }
    c->n = kept;
}

void certs_watch(struct certs *c, struct log *log, const struct snapshot *s)
{
    for (size_t i = 0; i < c->n; i++)
        c->files[i].wanted = false;
    for (size_t i = 0; i < s->nlisteners; i++)
        if (s->listeners[i].tls)
            want_tls(c, log, s->listeners[i].tls);
    drop_unwanted(c);
}

void certs_free(struct certs *c)
{
    if (!c)
        return;
    for (size_t i = 0; i < c->n; i++)
        c->files[i].wanted = false;
    drop_unwanted(c);
    free(c->files);
    free(c);
}
