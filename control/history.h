/* The last configurations that were taken, as text, for `millrace rollback` and `explain`.
 *
 * Thread: control's.
 */
#ifndef MILLRACE_CONTROL_HISTORY_H
#define MILLRACE_CONTROL_HISTORY_H

#include <stddef.h>
#include <stdint.h>

#define HISTORY_MAX 16

struct history_entry {
    uint64_t version;  /* that it was published as */
    uint64_t of;       /* a rollback: the version that it repeats; else 0 */
    uint64_t taken_at; /* wall clock, ns */
    char *text;        /* owned, with a NUL behind it */
    size_t len;
};

struct history {
    struct history_entry entries[HISTORY_MAX]; /* oldest first */
    unsigned count;
};

/* Copies the text; the oldest entry goes if there are HISTORY_MAX. -ENOMEM changes nothing. */
int history_add(struct history *h, const struct history_entry *e);

/* The newest entry's text is another one now that means the same. -ENOMEM changes nothing. */
int history_retext(struct history *h, const char *text, size_t len);

/* What was in force as `version`: the newest entry that isn't younger. NULL: it is forgotten. */
const struct history_entry *history_find(const struct history *h, uint64_t version);
const struct history_entry *history_newest(const struct history *h); /* NULL: none */

/* The newest entry whose text isn't that of the present one. NULL: none. */
const struct history_entry *history_previous(const struct history *h);

void history_fini(struct history *h);

#endif
