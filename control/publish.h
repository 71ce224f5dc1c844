/* Configuration as a watched value: load, compare, merge what is live, publish, wait for the cores,
 * retire the old one.
 *
 * A refused file changes nothing. Version v is freed when every running core has acknowledged a
 * newer one and holds no pin of v; publish_poll() looks, nothing waits. At most PUBLISH_MAX_OLD
 * versions may be waiting for that; a further reload is refused with -EBUSY.
 *
 * Thread: control's.
 */
#ifndef MILLRACE_CONTROL_PUBLISH_H
#define MILLRACE_CONTROL_PUBLISH_H

#include "config/diff.h"
#include "config/load.h"
#include "control/cores.h"

#define PUBLISH_MAX_OLD 64

struct publish {
    struct cores cores;
    struct snapshot *current;              /* owned */
    struct snapshot *old[PUBLISH_MAX_OLD]; /* owned, oldest first */
    unsigned nold;
    uint64_t reloads, refused, unchanged;
};

/* What a reload did, for the log and for `millrace reload`. */
struct publish_result {
    int error;        /* 0; -EINVAL: errors; -EBUSY; -ENOMEM; another: unreadable */
    bool changed;     /* a new version was published */
    uint64_t version; /* that runs from now on */
    struct config_errors errors;
    struct config_diff diff; /* against what ran before */
};

/* Takes `first`, which the cores already run by; its version must be set. */
void publish_init(struct publish *p, const struct cores *cores, struct snapshot *first);

/* Frees every version; no core may run any more. */
void publish_fini(struct publish *p);

/* From a file, or from text when `text` isn't NULL (`path` is then its name). Always fills
 * ret_result, which publish_result_fini() empties. */
void publish_reload(struct publish *p, const char *path, const char *text,
                    struct publish_result *ret_result);
void publish_result_fini(struct publish_result *r);

/* All running cores work by the newest version. */
bool publish_is_acknowledged(const struct publish *p);

/* Frees what no core needs any more; how many versions still wait. */
unsigned publish_poll(struct publish *p);

/* One line a change, "key: from -> to", frozen ones marked; malloc()ed, NULL: no memory. */
char *publish_diff_text(const struct config_diff *d);

#endif
