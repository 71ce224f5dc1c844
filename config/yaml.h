/* A YAML document as a tree with positions: the part of YAML that a configuration may use.
 *
 * libfyaml's events are read, never its documents: nothing is resolved, so no input can blow up.
 * Anchors, aliases, merge keys, tags, directives and further documents are errors. The first
 * syntax error ends the reading; the other errors don't.
 *
 * Everything lives in the caller's arena.
 */
#ifndef MILLRACE_CONFIG_YAML_H
#define MILLRACE_CONFIG_YAML_H

#include <stdbool.h>
#include <stddef.h>
#include "config/arena.h"
#include "config/errors.h"

#define YAML_DEPTH_MAX 32

enum yaml_kind {
    YAML_SCALAR,
    YAML_MAP,
    YAML_LIST,
    YAML_REFUSED, /* an error has been reported: say nothing more about it */
};

struct yaml_node {
    enum yaml_kind kind;
    bool plain;         /* scalar without quotes */
    unsigned line, col; /* from 1; a container's are those of its key where it has one */
    const char *text;   /* scalars: NUL-terminated, may hold further NULs */
    size_t len;
    struct yaml_node *key; /* in a mapping */
    unsigned index;        /* in a list */
    struct yaml_node *parent, *first, *last, *next;
    unsigned count;
};

/* 0, -EINVAL (reported in `errs`) or -ENOMEM. *ret may be given although `errs` has errors that
 * aren't about syntax: what else is wrong can then be told too. */
int yaml_read(struct arena *a, const char *file, const char *text, size_t len,
              struct yaml_node **ret, struct config_errors *errs);

/* A scalar that says nothing: "", "~" or "null", unquoted. */
bool yaml_is_null(const struct yaml_node *n);

/* "listeners[0].http"; "" for the root. `child`: a key below `n`, or NULL. */
const char *yaml_path(struct arena *a, const struct yaml_node *n, const char *child);

/* `text` in quotes, fit for one line of a message: bounded, control characters escaped. */
const char *yaml_quote(struct arena *a, const char *text, size_t len);

#endif
