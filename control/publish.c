#include "control/publish.h"

#include <assert.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void publish_init(struct publish *p, const struct cores *cores, struct snapshot *first)
{
    assert(first->version > 0);
    memset(p, 0, sizeof(*p));
    p->cores = *cores;
    p->current = first;
}

void publish_fini(struct publish *p)
{
    for (unsigned i = 0; i < p->nold; i++)
        snapshot_free(p->old[i]);
    snapshot_free(p->current);
    p->current = NULL;
    p->nold = 0;
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

/* Publishes what is live of `wanted`; consumes nothing. */
static int publish_live(struct publish *p, const struct snapshot *wanted)
{
    struct snapshot *merged;
    int e = config_merge_live(p->current, wanted, &merged);

    if (e)
        return e;
    merged->version = p->current->version + 1;
    p->old[p->nold++] = p->current;
    p->current = merged;
    p->cores.ops->publish(p->cores.ctx, merged);
    return 0;
}

static int reload(struct publish *p, const char *path, const char *text, struct publish_result *r)
{
    struct snapshot *wanted = NULL;
    int e = text ? config_load_text(path, text, strlen(text), NULL, &wanted, &r->errors)
                 : config_load_file(path, &wanted, &r->errors);

    if (e)
        return e;
    e = config_diff(p->current, wanted, &r->diff);
    if (!e && publish_poll(p) == PUBLISH_MAX_OLD)
        e = -EBUSY;
    if (!e && r->diff.nchanges > r->diff.nfrozen) {
        e = publish_live(p, wanted);
        r->changed = !e;
    }
    snapshot_free(wanted);
    return e;
}

void publish_reload(struct publish *p, const char *path, const char *text,
                    struct publish_result *ret_result)
{
    memset(ret_result, 0, sizeof(*ret_result));
    config_errors_init(&ret_result->errors);
    ret_result->error = reload(p, path, text, ret_result);
    ret_result->version = p->current->version;
    if (ret_result->error)
        p->refused++;
    else if (ret_result->changed)
        p->reloads++;
    else
        p->unchanged++;
}

void publish_result_fini(struct publish_result *r)
{
    config_errors_fini(&r->errors);
    config_diff_fini(&r->diff);
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
