#include <errno.h>
#include <stdio.h>
#include <string.h>
#include "config/arena.h"
#include "config/build.h"
#include "config/own.h"
#include "config/place.h"
#include "config/resolve.h"

static bool is_open_in(const struct snapshot *s, const struct config_listener *l)
{
    const struct config_listener *open = snapshot_listener(s, l->name);

    return open && config_listener_is_same(open, l);
}

static void add_draining(const struct config_build *b, const struct config_listener *list, size_t n,
                         struct snapshot *to)
{
    for (size_t i = 0; i < n; i++)
        if (!is_open_in(b->base, &list[i]) && !(b->is_empty && b->is_empty(b->ctx, &list[i])))
            to->draining[to->ndraining++] = list[i];
}

struct wanted {
    struct upstream_index index; /* of those that are there */
    const struct config_upstream **list;
    size_t count;
};

static void want(void *context, const struct config_upstream **ref)
{
    struct wanted *w = context;

    if (upstream_index_find(&w->index, (*ref)->name))
        return;
    for (size_t i = 0; i < w->count; i++)
        if (!strcmp(w->list[i]->name, (*ref)->name))
            return;
    w->list[w->count++] = *ref;
}

/* What drains may need upstreams that are gone from the configuration. */
static bool add_upstreams(struct snapshot *s, size_t most, struct arena *a)
{
    struct wanted w = {upstream_index_make(s, a), arena_array(a, most, sizeof(w.list[0])), 0};
    struct config_upstream *all;

    if (!w.index.sorted || !w.list)
        return false;
    config_each_reference(s, &w, want);
    all = arena_array(a, s->nupstreams + w.count, sizeof(*all));
    if (!all)
        return false;
    memcpy(all, s->upstreams, s->nupstreams * sizeof(*all));
    for (size_t i = 0; i < w.count; i++)
        all[s->nupstreams + i] = *w.list[i];
    s->upstreams = all;
    s->nupstreams += w.count;
    return true;
}

/* Still sharing memory with all sides. */
static bool assemble(const struct config_build *b, struct snapshot *to, struct arena *a)
{
    const struct snapshot *run = b->running;

    *to = *b->base;
    to->draining = NULL;
    to->ndraining = 0;
    if (!run)
        return true;
    to->draining = arena_array(a, run->nlisteners + run->ndraining, sizeof(to->draining[0]));
    if (!to->draining)
        return false;
    add_draining(b, run->listeners, run->nlisteners, to);
    add_draining(b, run->draining, run->ndraining, to);
    return to->ndraining == 0 || add_upstreams(to, run->nupstreams, a);
}

static int apply(const struct config_overrides *o, struct snapshot *s, size_t *ret_override,
                 char *err, size_t err_len)
{
    for (size_t i = 0; o && i < o->count; i++) {
        int rc = config_place_set(s, o->list[i].path, o->list[i].value, err, err_len);

        if (!rc)
            continue;
        if (ret_override)
            *ret_override = i;
        return rc;
    }
    return 0;
}

int config_build(const struct config_build *b, struct snapshot **ret, size_t *ret_override,
                 char *err, size_t err_len)
{
    struct arena *scratch = arena_new();
    struct snapshot shared, *s = NULL;
    int rc;

    if (scratch && assemble(b, &shared, scratch))
        s = config_own(&shared);
    arena_free(scratch);
    if (!s) {
        snprintf(err, err_len, "out of memory");
        return -ENOMEM;
    }
    rc = apply(b->overrides, s, ret_override, err, err_len);
    if (rc) {
        snapshot_free(s);
        return rc;
    }
    if (!config_finish(s)) {
        snapshot_free(s);
        snprintf(err, err_len, "out of memory");
        return -ENOMEM;
    }
    *ret = s;
    return 0;
}
