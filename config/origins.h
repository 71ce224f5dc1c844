/* Where in a file each value stands: for `millrace explain`. */
#ifndef MILLRACE_CONFIG_ORIGINS_H
#define MILLRACE_CONFIG_ORIGINS_H

#include "config/bind.h"
#include "config/errors.h"

/* One value: its path (place.h), as the file would write it, and its line and column; 0, 0: it is a
 * default. */
typedef void config_origin_fn(void *context, const char *path, const char *value, unsigned line,
                              unsigned col);

/* Calls `each` for what `path` leads to in a text, as config_place_each() does. Errors as
 * config_load_written(): whoever limits the size has done so. */
int config_load_origins(const char *name, const char *text, size_t len, const char *path,
                        void *context, config_origin_fn *each, struct config_errors *errs);

/* The same with what binding has left behind. 0 or -ENOMEM. */
int origins_each(const struct bind *b, const struct snapshot *s, const char *path, void *context,
                 config_origin_fn *each);

#endif
