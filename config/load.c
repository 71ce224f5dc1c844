#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include "config/bind.h"
#include "config/load.h"
#include "config/origins.h"
#include "config/reference.h"
#include "config/resolve.h"
#include "config/validate.h"

static int fail(struct config_errors *errs, const char *file, int rc, const char *what)
{
    config_errors_add(errs, file, 0, 0, NULL, "%s", what);
    return rc;
}

/* Syntax first; then everything about keys and values; then what they mean together. */
static int build(const char *name, const char *text, size_t len, const struct config_host *host,
                 struct snapshot *s, struct bind *b)
{
    struct yaml_node *root = NULL;
    int rc = yaml_read(b->scratch, name, text, len, &root, b->errs);

    if (rc)
        return rc;
    bind_snapshot(b, root, s);
    if (b->out_of_memory)
        return -ENOMEM;
    config_validate(b, s, host);
    s->path = arena_strndup(b->arena, name, strlen(name));
    if (b->out_of_memory || !s->path)
        return -ENOMEM;
    return config_errors_any(b->errs) ? -EINVAL : 0;
}

static int load(const char *name, const char *text, size_t len, const struct config_host *host,
                struct bind *b, struct snapshot **ret)
{
    struct snapshot *s = b->arena && b->scratch ? arena_alloc(b->arena, sizeof(*s)) : NULL;
    int rc = -ENOMEM;

    if (s)
        rc = build(name, text, len, host, s, b);
    if (rc == -ENOMEM)
        fail(b->errs, name, rc, "out of memory");
    config_errors_sort(b->errs);
    if (rc) {
        arena_free(b->arena);
        return rc;
    }
    s->arena_ = b->arena;
    *ret = s;
    return 0;
}

static int load_any(const char *name, const char *text, size_t len, const struct config_host *host,
                    bool by_hand, struct snapshot **ret, struct config_errors *errs)
{
    struct bind b = {.file = name,
                     .arena = arena_new(),
                     .scratch = arena_new(),
                     .errs = errs,
                     .by_hand = by_hand};
    struct snapshot *s;
    int rc = load(name, text, len, host, &b, &s);

    arena_free(b.scratch);
    if (rc)
        return rc;
    if (!config_finish(s)) {
        snapshot_free(s);
        return fail(errs, name, -ENOMEM, "out of memory");
    }
    *ret = s;
    return 0;
}

int config_load_text(const char *name, const char *text, size_t len, const struct config_host *host,
                     struct snapshot **ret, struct config_errors *errs)
{
    if (len > CONFIG_FILE_MAX)
        return fail(errs, name, -EINVAL, "a configuration has at most 1MiB");
    return load_any(name, text, len, host, false, ret, errs);
}

int config_load_written(const char *name, const char *text, size_t len, struct snapshot **ret,
                        struct config_errors *errs)
{
    return load_any(name, text, len, NULL, true, ret, errs);
}

int config_check(const struct snapshot *s, const char *name, struct config_errors *errs)
{
    struct snapshot *again;
    char *text = NULL;
    size_t len;
    FILE *f = open_memstream(&text, &len);
    int rc = f ? config_write_yaml(s, f) : -ENOMEM;

    if (f && fclose(f))
        rc = -ENOMEM;
    rc = rc ? fail(errs, name, rc, "out of memory")
            : load_any(name, text, len, NULL, true, &again, errs);
    free(text);
    if (!rc)
        snapshot_free(again);
    return rc;
}

/* Before config_finish(), which moves what the marks point at. */
int config_load_origins(const char *name, const char *text, size_t len, const char *path,
                        void *context, config_origin_fn *each, struct config_errors *errs)
{
    struct bind b = {
        .file = name, .arena = arena_new(), .scratch = arena_new(), .errs = errs, .by_hand = true};
    struct snapshot *s;
    int rc = load(name, text, len, NULL, &b, &s);

    if (!rc) {
        rc = origins_each(&b, s, path, context, each);
        snapshot_free(s);
    }
    arena_free(b.scratch);
    return rc;
}

/* At most CONFIG_FILE_MAX + 1 bytes, so that "too large" shows. */
static ssize_t read_all(int fd, char *text)
{
    size_t len = 0;

    while (len <= CONFIG_FILE_MAX) {
        ssize_t n = read(fd, text + len, CONFIG_FILE_MAX + 1 - len);

        if (n < 0 && errno != EINTR)
            return -errno;
        if (!n)
            break;
        len += n > 0 ? n : 0;
    }
    return len;
}

static bool is_same(const struct stat *a, const struct stat *b)
{
    return a->st_size == b->st_size && a->st_mtim.tv_sec == b->st_mtim.tv_sec &&
           a->st_mtim.tv_nsec == b->st_mtim.tv_nsec;
}

static int read_file(int fd, const char *path, char *text, size_t *ret_len,
                     struct config_errors *errs)
{
    struct stat st, after;
    ssize_t len;

    if (fstat(fd, &st))
        return fail(errs, path, -errno, strerror(errno));
    if (S_ISDIR(st.st_mode))
        return fail(errs, path, -EISDIR, "expected a file, this is a directory");
    if (!S_ISREG(st.st_mode))
        return fail(errs, path, -EINVAL, "expected a regular file");
    len = read_all(fd, text);
    if (len < 0)
        return fail(errs, path, len, strerror(-len));
    if (fstat(fd, &after) || !is_same(&st, &after))
        return fail(errs, path, -EAGAIN, "is being written right now; try again");
    *ret_len = len;
    return 0;
}

int config_read_file(const char *path, char **ret_text, size_t *ret_len, struct config_errors *errs)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK); /* a pipe must not hold us up */
    char *text;
    size_t len = 0;
    int rc;

    if (fd < 0) {
        rc = -errno;
        config_errors_add(errs, path, 0, 0, NULL, "can't be read: %s", strerror(-rc));
        return rc;
    }
    text = malloc(CONFIG_FILE_MAX + 2);
    rc = text ? read_file(fd, path, text, &len, errs) : fail(errs, path, -ENOMEM, "out of memory");
    close(fd);
    if (rc) {
        free(text);
        return rc;
    }
    text[len] = '\0';
    *ret_text = text;
    *ret_len = len;
    return 0;
}

int config_load_file_for(const char *path, const struct config_host *host, struct snapshot **ret,
                         struct config_errors *errs)
{
    char *text = NULL;
    size_t len = 0;
    int rc = config_read_file(path, &text, &len, errs);

    if (!rc)
        rc = config_load_text(path, text, len, host, ret, errs);
    free(text);
    return rc;
}

int config_load_file(const char *path, struct snapshot **ret, struct config_errors *errs)
{
    return config_load_file_for(path, NULL, ret, errs);
}
