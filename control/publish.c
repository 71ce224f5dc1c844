#include "control/publish.h"

#include <assert.h>
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "config/build.h"
#include "config/place.h"

int publish_init(struct publish *p, struct snapshot *base, const char *text, size_t len,
                 uint64_t wall_now)
{
    struct history_entry e = {.version = 1, .taken_at = wall_now, .text = (char *)text, .len = len};
    struct config_build b = {.base = base};
    char err[64];

    memset(p, 0, sizeof(*p));
    base->version = 1;
    p->base = base;
    p->changed_at = 1;
    if (config_build(&b, &p->current, NULL, err, sizeof(err)) || history_add(&p->history, &e)) {
        publish_fini(p);
        return -ENOMEM;
    }
    return 0;
}

void publish_set_cores(struct publish *p, const struct cores *cores)
{
    p->cores = *cores;
}

void publish_fini(struct publish *p)
{
    for (unsigned i = 0; i < p->nold; i++)
        snapshot_free(p->old[i]);
    snapshot_free(p->current);
    snapshot_free(p->base);
    config_overrides_fini(&p->overrides);
    history_fini(&p->history);
    free(p->is_empty);
    memset(p, 0, sizeof(*p));
}

static bool is_retired(const struct publish *p, uint64_t version)
{
    const struct cores *c = &p->cores;

    for (unsigned i = 0; i < c->n; i++)
        if (cores_is_running(c, i) &&
            (c->ops->acked(c->ctx, i) <= version || !c->ops->has_released(c->ctx, i, version)))
            return false;
    return true;
}

/* In order: a younger version may point to nothing of an older one, but "released up to" is what
 * the cores report. */
unsigned publish_poll(struct publish *p)
{
    unsigned gone = 0;

    while (gone < p->nold && is_retired(p, p->old[gone]->version))
        snapshot_free(p->old[gone++]);
    memmove(p->old, p->old + gone, (p->nold - gone) * sizeof(p->old[0]));
    p->nold -= gone;
    return p->nold;
}

bool publish_is_acknowledged(const struct publish *p)
{
    const struct cores *c = &p->cores;

    for (unsigned i = 0; i < c->n; i++)
        if (cores_is_running(c, i) && c->ops->acked(c->ctx, i) < p->current->version)
            return false;
    return true;
}

/* --- a new version -------------------------------------------------------------------------------
 */

static bool is_empty(void *ctx, const struct config_listener *l)
{
    const struct publish *p = ctx;
    uintptr_t first = (uintptr_t)p->current->draining, at = (uintptr_t)l;

    if (!p->is_empty || at < first || at >= first + p->current->ndraining * sizeof(*l))
        return false;
    return p->is_empty[(at - first) / sizeof(*l)];
}

/* What will be current, with the next version's number. Overrides that don't fit any more are
 * moved to `dropped`; NULL: they are an error, told in `err`. */
static int assemble(struct publish *p, const struct snapshot *base, struct config_overrides *o,
                    struct config_overrides *dropped, struct snapshot **ret, char *err,
                    size_t err_len)
{
    struct config_build b = {
        .base = base, .overrides = o, .running = p->current, .is_empty = is_empty, .ctx = p};
    size_t which = 0;
    int e;

    while ((e = config_build(&b, ret, &which, err, err_len)) && e != -ENOMEM && dropped) {
        struct config_override *x = &o->list[which];
        if (config_overrides_set(dropped, x->path, x->value))
            return -ENOMEM;
        config_overrides_unset(o, x->path);
    }
    if (e)
        return e;
    (*ret)->version = p->current->version + 1;
    e = p->cores.ops->prepare(p->cores.ctx, *ret, err, err_len);
    if (e) {
        snapshot_free(*ret);
        *ret = NULL;
    }
    return e;
}

/* From here on nothing fails. */
static void commit(struct publish *p, struct snapshot *next)
{
    assert(p->nold < PUBLISH_MAX_OLD);
    free(p->is_empty);
    p->is_empty = NULL;
    p->old[p->nold++] = p->current;
    p->current = next;
    p->cores.ops->publish(p->cores.ctx, next);
}

static void take_overrides(struct publish *p, struct config_overrides *o)
{
    config_overrides_fini(&p->overrides);
    p->overrides = *o;
    *o = (struct config_overrides){NULL, 0};
}

static int check_version(struct publish *p, const struct publish_opts *o, struct publish_result *r)
{
    if (!o->has_if_version ||
        (o->if_version >= p->changed_at && o->if_version <= p->current->version))
        return 0;
    snprintf(r->error_text, sizeof(r->error_text),
             "version has moved on: %" PRIu64 " was expected, %" PRIu64 " runs", o->if_version,
             p->current->version);
    return -ESTALE;
}

/* Together with what was set by hand it must be a configuration, too. */
static int check_overrides(const struct snapshot *base, const struct config_overrides *o,
                           struct publish_result *r)
{
    struct config_build b = {.base = base, .overrides = o};
    struct snapshot *s;
    int e = o->count ? config_build(&b, &s, NULL, r->error_text, sizeof(r->error_text)) : 0;

    if (e || !o->count)
        return e;
    e = config_check(s, "(with overrides)", &r->errors);
    if (e == -EINVAL)
        snprintf(r->error_text, sizeof(r->error_text),
                 "it is wrong with the overrides that are in force");
    snapshot_free(s);
    return e;
}

static int check_room(struct publish *p)
{
    return publish_poll(p) == PUBLISH_MAX_OLD ? -EBUSY : 0;
}

/* --- a configuration as text ---------------------------------------------------------------------
 */

struct text_change {
    const char *text;
    size_t len;
    struct snapshot *base, *next;
    struct config_overrides overrides;
    bool drops_overrides;
};

static int remember(struct publish *p, const struct text_change *c, const struct publish_opts *o,
                    const struct publish_result *r)
{
    struct history_entry e = {.version = c->next->version,
                              .of = r->repeats,
                              .taken_at = o->wall_now,
                              .text = (char *)c->text,
                              .len = c->len};

    return history_add(&p->history, &e);
}

static int publish_change(struct publish *p, struct text_change *c, const struct publish_opts *o,
                          struct publish_result *r)
{
    int e = o->drop_overrides ? 0 : config_overrides_copy(&p->overrides, &c->overrides);

    if (!e && o->drop_overrides)
        e = config_overrides_copy(&p->overrides, &r->dropped);
    if (!e)
        e = assemble(p, c->base, &c->overrides, &r->dropped, &c->next, r->error_text,
                     sizeof(r->error_text));
    if (!e)
        e = check_overrides(c->base, &c->overrides, r);
    if (!e)
        e = remember(p, c, o, r);
    if (e)
        return e;
    commit(p, c->next);
    c->next = NULL;
    snapshot_free(p->base);
    p->base = c->base;
    c->base = NULL;
    take_overrides(p, &c->overrides);
    p->changed_at = p->current->version;
    r->changed = true;
    return 0;
}

/* Nothing that is live changes; comments and what waits for a restart may. */
static int keep_running(struct publish *p, const struct text_change *c)
{
    const struct history_entry *now = history_newest(&p->history);

    if (now->len == c->len && memcmp(now->text, c->text, c->len) == 0)
        return 0;
    return history_retext(&p->history, c->text, c->len);
}

static int change_text(struct publish *p, const struct snapshot *wanted, struct text_change *c,
                       const struct publish_opts *o, struct publish_result *r)
{
    int e = config_diff(p->base, wanted, &r->diff);

    if (!e)
        e = check_room(p);
    if (e)
        return e;
    if (r->diff.nchanges == r->diff.nfrozen && !(o->drop_overrides && p->overrides.count))
        return keep_running(p, c);
    e = config_merge_live(p->base, wanted, &c->base);
    return e ? e : publish_change(p, c, o, r);
}

static void finish(struct publish *p, int error, struct publish_result *r)
{
    r->error = error;
    r->version = p->current->version;
    r->overrides = p->overrides.count;
    if (error) {
        p->refused++;
        config_overrides_fini(&r->dropped);
    } else if (r->changed) {
        p->reloads++;
    } else {
        p->unchanged++;
    }
}

static void begin(struct publish_result *r)
{
    memset(r, 0, sizeof(*r));
    config_errors_init(&r->errors);
}

static int load_text(struct publish *p, const char *name, struct text_change *c,
                     const struct publish_opts *o, struct publish_result *r)
{
    struct snapshot *wanted = NULL;
    int e = check_version(p, o, r);

    if (!e)
        e = config_load_text(name, c->text, c->len, p->host, &wanted, &r->errors);
    if (!e)
        e = change_text(p, wanted, c, o, r);
    snapshot_free(wanted);
    snapshot_free(c->base);
    snapshot_free(c->next);
    config_overrides_fini(&c->overrides);
    return e;
}

void publish_text(struct publish *p, const char *name, const char *text, size_t len,
                  const struct publish_opts *o, struct publish_result *ret_result)
{
    struct text_change c = {.text = text, .len = len};

    begin(ret_result);
    finish(p, load_text(p, name, &c, o, ret_result), ret_result);
}

void publish_unreadable(struct publish *p, int error, const struct config_errors *errs,
                        struct publish_result *ret_result)
{
    begin(ret_result);
    ret_result->errors = *errs;
    finish(p, error, ret_result);
}

static int rollback(struct publish *p, uint64_t version, const struct publish_opts *o,
                    struct publish_result *r)
{
    const struct history_entry *e =
        version ? history_find(&p->history, version) : history_previous(&p->history);

    if (!e || version > p->current->version) {
        if (version)
            snprintf(r->error_text, sizeof(r->error_text),
                     "version %" PRIu64 " isn't kept; there are %" PRIu64 " to %" PRIu64, version,
                     p->history.entries[0].version, p->current->version);
        else
            snprintf(r->error_text, sizeof(r->error_text), "there is no earlier configuration");
        return -ENOENT;
    }
    /* The entry's text moves when another one is added. */
    struct text_change c = {.text = strndup(e->text, e->len), .len = e->len};
    r->repeats = e->version;
    int rc = c.text ? load_text(p, p->base->path, &c, o, r) : -ENOMEM;
    free((char *)c.text);
    return rc;
}

void publish_rollback(struct publish *p, uint64_t version, const struct publish_opts *o,
                      struct publish_result *ret_result)
{
    begin(ret_result);
    finish(p, rollback(p, version, o, ret_result), ret_result);
}

/* --- by hand -------------------------------------------------------------------------------------
 */

static int apply_changes(const struct config_override *changes, size_t n,
                         struct config_overrides *to)
{
    int e = 0;

    for (size_t i = 0; i < n && !e; i++) {
        if (changes[i].value)
            e = config_overrides_set(to, changes[i].path, changes[i].value);
        else
            config_overrides_unset(to, changes[i].path);
    }
    return e;
}

/* As the file would write them, and only those that differ from what it says. */
static int tidy_overrides(const struct publish *p, const struct snapshot *next,
                          struct config_overrides *o)
{
    for (size_t i = o->count; i > 0; i--) {
        char *says = config_place_get(p->base, o->list[i - 1].path);
        char *is = config_place_get(next, o->list[i - 1].path);
        int e = says && is ? 0 : -ENOMEM;

        if (!e && strcmp(says, is) == 0)
            config_overrides_unset(o, o->list[i - 1].path);
        else if (!e)
            e = config_overrides_set(o, o->list[i - 1].path, is);
        free(says);
        free(is);
        if (e)
            return e;
    }
    return 0;
}

static int set(struct publish *p, const struct config_override *changes, size_t n,
               const struct publish_opts *o, struct publish_result *r)
{
    struct config_overrides wanted = {NULL, 0};
    struct snapshot *next = NULL;
    int e = check_version(p, o, r);

    if (!e)
        e = check_room(p);
    if (!e)
        e = config_overrides_copy(&p->overrides, &wanted);
    if (!e)
        e = apply_changes(changes, n, &wanted);
    if (!e)
        e = assemble(p, p->base, &wanted, NULL, &next, r->error_text, sizeof(r->error_text));
    if (!e)
        e = check_overrides(p->base, &wanted, r);
    if (!e)
        e = config_diff(p->current, next, &r->diff);
    if (!e)
        e = tidy_overrides(p, next, &wanted);
    if (!e && r->diff.nchanges) {
        commit(p, next);
        next = NULL;
        p->changed_at = p->current->version;
        r->changed = true;
    }
    if (!e)
        take_overrides(p, &wanted);
    snapshot_free(next);
    config_overrides_fini(&wanted);
    return e == -ENOENT ? -EINVAL : e;
}

void publish_set(struct publish *p, const struct config_override *changes, size_t n,
                 const struct publish_opts *o, struct publish_result *ret_result)
{
    begin(ret_result);
    finish(p, set(p, changes, n, o, ret_result), ret_result);
}

void publish_result_fini(struct publish_result *r)
{
    config_errors_fini(&r->errors);
    config_diff_fini(&r->diff);
    config_overrides_fini(&r->dropped);
}

/* --- listeners that have drained -----------------------------------------------------------------
 */

void publish_set_empty(struct publish *p, size_t i)
{
    assert(i < p->current->ndraining);
    if (!p->is_empty)
        p->is_empty = calloc(p->current->ndraining, sizeof(p->is_empty[0]));
    if (p->is_empty)
        p->is_empty[i] = true;
}

void publish_clean(struct publish *p)
{
    struct snapshot *next;
    char err[256];

    if (!p->is_empty || publish_poll(p) > 0)
        return;
    if (assemble(p, p->base, &p->overrides, NULL, &next, err, sizeof(err)) == 0)
        commit(p, next);
}

void publish_refresh(struct publish *p)
{
    struct snapshot *next;
    char err[256];

    if (check_room(p) == 0 &&
        assemble(p, p->base, &p->overrides, NULL, &next, err, sizeof(err)) == 0)
        commit(p, next);
}

char *publish_diff_text(const struct config_diff *d)
{
    char *text = NULL;
    size_t len = 0;
    FILE *f = open_memstream(&text, &len);

    if (!f)
        return NULL;
    for (size_t i = 0; i < d->nchanges; i++) {
        const struct config_change *c = &d->changes[i];
        fprintf(f, "%s: %s -> %s%s\n", c->key, c->from, c->to,
                c->live ? "" : " (needs a restart, the old value stays)");
    }
    if (fclose(f)) {
        free(text);
        return NULL;
    }
    return text;
}
