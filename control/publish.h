/* Configuration as a watched value: parse, validate, compare, merge what is live, publish, wait for
 * the cores, retire the old one.
 *
 * What runs is made of three: the base (what the source says, with the keys that need a restart as
 * they were at the start), the overrides (what was set by hand), and the listeners that are gone
 * but still have connections. Each change of any of them is a new version; versions only grow.
 *
 * A refused change changes nothing. Version v is freed when every running core has acknowledged a
 * newer one; publish_poll() looks, nothing waits. At most PUBLISH_MAX_OLD versions may be waiting
 * for that; a further change is refused with -EBUSY.
 *
 * Thread: control's.
 */
#ifndef MILLRACE_CONTROL_PUBLISH_H
#define MILLRACE_CONTROL_PUBLISH_H

#include "config/diff.h"
#include "config/load.h"
#include "config/overrides.h"
#include "control/cores.h"
#include "control/history.h"

#define PUBLISH_MAX_OLD 64

struct publish {
    struct cores cores;
    const struct config_host
        *host;                /* what configurations are checked against; NULL: by themselves */
    struct snapshot *base;    /* owned */
    struct snapshot *current; /* owned: what the cores run by */
    struct snapshot *old[PUBLISH_MAX_OLD]; /* owned, oldest first */
    unsigned nold;
    struct config_overrides overrides;
    struct history history;
    uint64_t changed_at; /* the version that a user or the source made last */
    bool *is_empty;      /* of current->draining: no core has a connection of it any more */
    uint64_t reloads, refused, unchanged;
};

/* What a change did, for the log and for whoever asked for it. */
struct publish_result {
    /* 0; -EINVAL: `errors`, or one line in `error_text`; -ESTALE: version has moved on; -ENOENT: a
     * rollback to what is forgotten; -EBUSY; -ENOMEM; another: the source is unreadable */
    int error;
    char error_text[256];
    bool changed;     /* a new version was published */
    uint64_t version; /* that runs from now on */
    uint64_t repeats; /* a rollback: the version whose configuration this is */
    struct config_errors errors;
    struct config_diff diff;         /* of the configuration, or of what runs (publish_set()) */
    struct config_overrides dropped; /* that were in force before */
    size_t overrides;                /* in force now */
};

/* Who asks for a change may say what it must find. */
struct publish_opts {
    bool has_if_version;
    uint64_t if_version; /* refused if anything was changed after that version */
    bool drop_overrides;
    uint64_t wall_now; /* ns */
};

/* Makes the first version, 1, of a base that it takes over, which `text` has been. 0 or -ENOMEM:
 * the base is freed too. No core knows of it yet: p->current is for the cores to start with. */
int publish_init(struct publish *p, struct snapshot *base, const char *text, size_t len,
                 uint64_t wall_now);
void publish_set_cores(struct publish *p, const struct cores *cores);

/* Frees every version; no core may run any more. */
void publish_fini(struct publish *p);

/* These fill ret_result always, and publish_result_fini() empties it. */

/* A configuration as text; `name` is its source's. */
void publish_text(struct publish *p, const char *name, const char *text, size_t len,
                  const struct publish_opts *o, struct publish_result *ret_result);

/* The source could not be read: `error` as its load() said, with the errors. Takes over `errs`. */
void publish_unreadable(struct publish *p, int error, const struct config_errors *errs,
                        struct publish_result *ret_result);

/* To an earlier configuration; version 0: to the one before the present one. */
void publish_rollback(struct publish *p, uint64_t version, const struct publish_opts *o,
                      struct publish_result *ret_result);

/* Sets or (value NULL) unsets overrides, all or none. One that says the same as the configuration
 * is none. */
void publish_set(struct publish *p, const struct config_override *changes, size_t n,
                 const struct publish_opts *o, struct publish_result *ret_result);

void publish_result_fini(struct publish_result *r);

/* All running cores work by the newest version. */
bool publish_is_acknowledged(const struct publish *p);

/* Nobody is connected any more to current->draining[i]. */
void publish_set_empty(struct publish *p, size_t i);

/* Publishes without what has become empty, if there is any and the cores are up to date: the next
 * version, which changes nothing that a user would see. */
void publish_clean(struct publish *p);

/* Publishes the same once more, with what its files hold now; nothing if memory is short or a core
 * is behind by many versions. */
void publish_refresh(struct publish *p);

/* Frees what no core needs any more; how many versions still wait. */
unsigned publish_poll(struct publish *p);

/* One line a change, "key: from -> to", frozen ones marked; malloc()ed, NULL: no memory. */
char *publish_diff_text(const struct config_diff *d);

#endif
