#include "control/watch_file.h"

#include <errno.h>
#include <libgen.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

/* What tells one content from the next without reading it. */
struct signature {
    bool exists;
    dev_t dev;
    ino_t ino;
    off_t size;
    struct timespec mtime, ctime;
};

struct watch_file {
    char path[PATH_MAX];
    void (*fn)(void *ctx, enum watch_event ev);
    void *ctx;
    struct signature known, last; /* told; seen at the last look */
    bool gone;
    unsigned handles;
    uv_loop_t *loop;
    uv_timer_t still, look;
    uv_fs_event_t dirs[2]; /* where the path stands, and where it really is */
    char watched[2][PATH_MAX];
    ino_t watched_ino[2];
};

static struct signature signature_of(const char *path)
{
    struct signature s;
    struct stat st;

    memset(&s, 0, sizeof(s));
    if (stat(path, &st) == 0) {
        s.exists = true;
        s.dev = st.st_dev;
        s.ino = st.st_ino;
        s.size = st.st_size;
        s.mtime = st.st_mtim;
        s.ctime = st.st_ctim;
    }
    return s;
}

static bool time_is_same(struct timespec a, struct timespec b)
{
    return a.tv_sec == b.tv_sec && a.tv_nsec == b.tv_nsec;
}

static bool is_same(const struct signature *a, const struct signature *b)
{
    return a->exists == b->exists && a->dev == b->dev && a->ino == b->ino && a->size == b->size &&
           time_is_same(a->mtime, b->mtime) && time_is_same(a->ctime, b->ctime);
}

static ino_t inode_of(const char *path)
{
    struct stat st;

    return stat(path, &st) == 0 ? st.st_ino : 0;
}

static void on_dir(uv_fs_event_t *h, const char *name, int events, int status);

/* Directories come, go and move: each look makes sure that the right ones are watched. */
static void watch_dir(struct watch_file *w, unsigned i, const char *file)
{
    char copy[PATH_MAX], *dir;

    snprintf(copy, sizeof(copy), "%s", file);
    dir = dirname(copy);
    if (strcmp(dir, w->watched[i]) == 0)
        return;
    uv_fs_event_stop(&w->dirs[i]);
    w->watched[i][0] = '\0';
    if (uv_fs_event_start(&w->dirs[i], on_dir, dir, 0) == 0) {
        snprintf(w->watched[i], sizeof(w->watched[i]), "%s", dir);
        w->watched_ino[i] = inode_of(dir);
    }
}

static void watch_dirs(struct watch_file *w)
{
    char real[PATH_MAX];

    watch_dir(w, 0, w->path);
    if (realpath(w->path, real))
        watch_dir(w, 1, real);
}

static void tell(struct watch_file *w, enum watch_event ev)
{
    w->fn(w->ctx, ev);
}

static void on_still(uv_timer_t *h)
{
    struct watch_file *w = h->data;
    struct signature now = signature_of(w->path);

    if (!is_same(&now, &w->last)) {
        w->last = now;
        uv_timer_start(&w->still, on_still, WATCH_STILL_MS, 0);
        return;
    }
    watch_dirs(w);
    if (!now.exists) {
        if (!w->gone) {
            w->gone = true;
            tell(w, WATCH_GONE);
        }
        return;
    }
    if (w->gone) {
        w->gone = false;
        tell(w, WATCH_BACK);
    }
    if (is_same(&now, &w->known))
        return;
    w->known = now;
    tell(w, WATCH_CHANGED);
}

static void look(struct watch_file *w)
{
    struct signature now = signature_of(w->path);

    if (is_same(&now, &w->last) && is_same(&now, &w->known))
        return;
    if (uv_is_active((uv_handle_t *)&w->still))
        return;
    w->last = now;
    uv_timer_start(&w->still, on_still, WATCH_STILL_MS, 0);
}

static void on_dir(uv_fs_event_t *h, const char *name, int events, int status)
{
    look(h->data);
}

static void on_look(uv_timer_t *h)
{
    struct watch_file *w = h->data;

    for (unsigned i = 0; i < 2; i++) {
        /* A directory that was removed and made anew has another inode: watch it afresh. */
        if (w->watched[i][0] && inode_of(w->watched[i]) != w->watched_ino[i])
            w->watched[i][0] = '\0';
    }
    watch_dirs(w);
    look(w);
}

int watch_file_new(uv_loop_t *loop, const char *path, void (*fn)(void *ctx, enum watch_event ev),
                   void *ctx, struct watch_file **ret_watch)
{
    struct watch_file *w = calloc(1, sizeof(*w));
    size_t len = strlen(path);

    if (!w)
        return -ENOMEM;
    if (len >= sizeof(w->path)) {
        free(w);
        return -ENAMETOOLONG;
    }
    memcpy(w->path, path, len + 1);
    w->fn = fn;
    w->ctx = ctx;
    w->loop = loop;
    uv_timer_init(loop, &w->still);
    uv_timer_init(loop, &w->look);
    uv_fs_event_init(loop, &w->dirs[0]);
    uv_fs_event_init(loop, &w->dirs[1]);
    w->still.data = w->look.data = w->dirs[0].data = w->dirs[1].data = w;
    w->handles = 4;
    watch_file_seen(w);
    watch_dirs(w);
    uv_timer_start(&w->look, on_look, WATCH_LOOK_MS, WATCH_LOOK_MS);
    *ret_watch = w;
    return 0;
}

void watch_file_seen(struct watch_file *w)
{
    w->known = w->last = signature_of(w->path);
}

static void on_closed(uv_handle_t *h)
{
    struct watch_file *w = h->data;

    if (--w->handles == 0)
        free(w);
}

void watch_file_close(struct watch_file *w)
{
    if (!w)
        return;
    uv_close((uv_handle_t *)&w->still, on_closed);
    uv_close((uv_handle_t *)&w->look, on_closed);
    uv_close((uv_handle_t *)&w->dirs[0], on_closed);
    uv_close((uv_handle_t *)&w->dirs[1], on_closed);
}
