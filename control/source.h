/* Where a configuration comes from: a file now, others later behind the same functions.
 *
 * A source gives text; what it means is config/'s business. Loading never waits for a network: a
 * source that is far away gives what its watch has received last.
 *
 * Thread: control's loop.
 */
#ifndef MILLRACE_CONTROL_SOURCE_H
#define MILLRACE_CONTROL_SOURCE_H

#include <stddef.h>
#include <uv.h>

#include "config/errors.h"

enum source_event {
    SOURCE_CHANGED, /* there is something new to load */
    SOURCE_GONE,    /* there is nothing to load any more; what runs goes on */
    SOURCE_BACK,
};

struct config_source;

struct config_source_ops {
    const char *kind; /* "file", for messages */
    /* The text as it is now, malloc()ed, with a NUL behind it; it counts as known to the watch. 0,
     * or -errno with at least one error added. */
    int (*load)(struct config_source *s, char **ret_text, size_t *ret_len,
                struct config_errors *errs);
    /* Calls `fn` from the loop until close(). 0 or -errno. */
    int (*watch)(struct config_source *s, uv_loop_t *loop,
                 void (*fn)(void *ctx, enum source_event ev), void *ctx);
    /* Ends the watch; the memory goes when the loop has closed its handles. */
    void (*close)(struct config_source *s);
};

struct config_source {
    const struct config_source_ops *ops;
    const char *name; /* for errors: the file's path. Valid until close() */
};

/* A file, watched through renames and symbolic links (watch_file.h). 0 or -ENOMEM. */
int source_file_new(const char *path, struct config_source **ret_source);

/* NULL is fine. */
void source_close(struct config_source *s);

#endif
