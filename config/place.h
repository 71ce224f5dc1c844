/* Values by their path: "upstreams[app].timeouts.connect". Members of lists go by what tells them
 * apart: a name, an address, a route's host and path. */
#ifndef MILLRACE_CONFIG_PLACE_H
#define MILLRACE_CONFIG_PLACE_H

#include "config/schema.h"
#include "config/snapshot.h"

struct config_place {
    const struct config_key *key;
    void *base; /* the struct with its field */
};

/* A scalar or a list of scalars. 0; -ENOENT (the path leads to nothing in `s`) or -EINVAL (no such
 * key, or not one of these) with a line in err; -ENOMEM. */
int config_place_find(const struct snapshot *s, const char *path, struct config_place *ret,
                      char *err, size_t err_len);

/* As the file would write it, malloc()ed; "" for no value. NULL: out of memory, or no such path. */
char *config_place_get(const struct snapshot *s, const char *path);

/* Parses `text` into a scalar of `s`, which nobody else may know yet. Errors as above, -EINVAL for
 * a wrong value too. */
int config_place_set(struct snapshot *s, const char *path, const char *text, char *err,
                     size_t err_len);

/* What the schema says of a path, with or without the lists' members ("upstreams.timeouts",
 * "upstreams[].timeouts", "upstreams[app].timeouts"). NULL with a line in err: no such key. */
const struct config_key *config_place_key(const char *path, char *err, size_t err_len);

/* Calls `each` for every scalar and list of scalars that the path leads to: of every member where
 * it names none, and of everything below a mapping. 0 or -ENOMEM. */
int config_place_each(const struct snapshot *s, const char *path, void *context,
                      void (*each)(void *context, const char *path, const struct config_key *k,
                                   const void *base));

/* As the file would write it; nothing if there is no value. */
void config_write_value(const struct config_key *k, const void *base, FILE *f);

#endif
