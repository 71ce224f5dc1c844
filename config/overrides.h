/* Values set by hand while it runs ("millrace upstream … weight"), on top of what the file says.
 *
 * A list of (path, value), both text; the order is that in which they were set. Heap-owned by the
 * list. Thread: control's.
 */
#ifndef MILLRACE_CONFIG_OVERRIDES_H
#define MILLRACE_CONFIG_OVERRIDES_H

#include <stdbool.h>
#include <stddef.h>

#define CONFIG_OVERRIDES_MAX 4096

struct config_override {
    char *path; /* place.h */
    char *value;
};

struct config_overrides {
    struct config_override *list;
    size_t count;
};

/* Replaces the value of a path that is there already. 0, -ENOMEM or -ENOSPC. */
int config_overrides_set(struct config_overrides *o, const char *path, const char *value);

/* False: there is none. */
bool config_overrides_unset(struct config_overrides *o, const char *path);

const char *config_overrides_get(const struct config_overrides *o, const char *path); /* or NULL */

int config_overrides_copy(const struct config_overrides *from, struct config_overrides *ret);
void config_overrides_fini(struct config_overrides *o);

#endif
