/* What is wrong with a configuration: all of it, in the order of the file.
 *
 * One line an error: `file:line:col: key.path: what was expected (did you mean "…"?)`. Lines and
 * columns count from 1; columns are characters. The part before "key.path" is only the file's name
 * where no position makes sense (an unreadable file), and the key is left out at the top.
 *
 * Bounded: the first CONFIG_ERRORS_MAX errors that were found are kept, the others are counted.
 */
#ifndef MILLRACE_CONFIG_ERRORS_H
#define MILLRACE_CONFIG_ERRORS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>

#define CONFIG_ERRORS_MAX 100

struct config_error {
    unsigned line, col; /* 0: none */
    unsigned order_;
    char *text; /* the whole line, without a newline */
};

struct config_errors {
    struct config_error list[CONFIG_ERRORS_MAX];
    unsigned count;
    size_t more; /* found, but not kept */
};

void config_errors_init(struct config_errors *e);
void config_errors_fini(struct config_errors *e);

bool config_errors_any(const struct config_errors *e);
bool config_errors_full(const struct config_errors *e); /* a further one is counted only */

/* Adds an error. `line` 0: no position; `key` NULL or "": no key. A line that can't be allocated is
 * counted in `more`. */
void config_errors_add(struct config_errors *e, const char *file, unsigned line, unsigned col,
                       const char *key, const char *format, ...)
    __attribute__((format(printf, 6, 7)));

/* Puts them into the order of the file. config_load_*() has done it. */
void config_errors_sort(struct config_errors *e);

/* Every error on a line of its own, then "… and N more" if some weren't kept. */
void config_check_report(FILE *f, const struct config_errors *e);

#endif
