#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "config/load.h"
#include "control/source.h"
#include "control/watch_file.h"

struct source_file {
    struct config_source source; /* first */
    char *path;
    struct watch_file *watch; /* NULL: nobody watches */
    void (*fn)(void *ctx, enum source_event ev);
    void *ctx;
};

static struct source_file *file_of(struct config_source *s)
{
    return (struct source_file *)s;
}

/* What is written while we read, or right after it, is a change again. */
static int load(struct config_source *s, char **ret_text, size_t *ret_len,
                struct config_errors *errs)
{
    struct source_file *f = file_of(s);

    if (f->watch)
        watch_file_seen(f->watch);
    return config_read_file(f->path, ret_text, ret_len, errs);
}

static void on_event(void *ctx, enum watch_event ev)
{
    static const enum source_event events[] = {
        [WATCH_CHANGED] = SOURCE_CHANGED, [WATCH_GONE] = SOURCE_GONE, [WATCH_BACK] = SOURCE_BACK};
    struct source_file *f = ctx;

    f->fn(f->ctx, events[ev]);
}

static int watch(struct config_source *s, uv_loop_t *loop,
                 void (*fn)(void *ctx, enum source_event ev), void *ctx)
{
    struct source_file *f = file_of(s);

    f->fn = fn;
    f->ctx = ctx;
    return watch_file_new(loop, f->path, on_event, f, &f->watch);
}

static void close_source(struct config_source *s)
{
    struct source_file *f = file_of(s);

    watch_file_close(f->watch);
    free(f->path);
    free(f);
}

static const struct config_source_ops file_ops = {"file", load, watch, close_source};

int source_file_new(const char *path, struct config_source **ret_source)
{
    struct source_file *f = calloc(1, sizeof(*f));

    if (!f || !(f->path = strdup(path))) {
        free(f);
        return -ENOMEM;
    }
    f->source = (struct config_source){&file_ops, f->path};
    *ret_source = &f->source;
    return 0;
}
