/* From a file to a validated, immutable snapshot.
 *
 * Everything that is wrong is reported, not only the first; a syntax error is the exception: it is
 * reported alone, since what follows it can't be told.
 *
 * The language is YAML without its traps: one document, spaces, no anchors, aliases, merge keys or
 * tags; a key may stand once; at most CONFIG_FILE_MAX bytes of UTF-8.
 *
 * Reads the file with blocking calls: control's thread, never a core.
 */
#ifndef MILLRACE_CONFIG_LOAD_H
#define MILLRACE_CONFIG_LOAD_H

#include <stddef.h>
#include "config/errors.h"
#include "config/snapshot.h"

#define CONFIG_FILE_MAX (1u << 20)

/* What the machine has. A file may be checked for another machine: then pass NULL. */
struct config_host {
    unsigned cpus;                        /* CPU numbers are 0 … cpus-1; 0: not checked */
    const struct config_tls_checker *tls; /* NULL: certificates and the like aren't looked at */
};

/* 0: *ret is the caller's, freed by snapshot_free(). -EINVAL: the content is wrong; another -errno:
 * the file couldn't be read or memory ran out. On failure `errs` (initialised by the caller) has at
 * least one error. */
int config_load_file(const char *path, struct snapshot **ret, struct config_errors *errs);
int config_load_file_for(const char *path, const struct config_host *host, struct snapshot **ret,
                         struct config_errors *errs);

/* The file's text alone, malloc()ed, with a NUL behind it; errors as above. One that changes while
 * it is read is an error (-EAGAIN): half of it must not be taken for the whole. */
int config_read_file(const char *path, char **ret_text, size_t *ret_len,
                     struct config_errors *errs);

/* The same from memory. `name` stands for the file's name in errors and in the snapshot. */
int config_load_text(const char *name, const char *text, size_t len, const struct config_host *host,
                     struct snapshot **ret, struct config_errors *errs);

/* What config_write_yaml() has made: every key with its value may be more than CONFIG_FILE_MAX. */
int config_load_written(const char *name, const char *text, size_t len, struct snapshot **ret,
                        struct config_errors *errs);

/* Whether a snapshot that was changed by its values' paths (place.h) obeys the rules that look at
 * several values at once: as if it had been written. Draining listeners don't count. `name` stands
 * for a file's in errors. 0, -EINVAL or -ENOMEM. */
int config_check(const struct snapshot *s, const char *name, struct config_errors *errs);

#endif
