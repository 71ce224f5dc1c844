/* Merging is two steps. The first picks what to take, key by key, into new structs that still share
 * strings and arrays with both sides; the second copies all that into an arena of its own. */
#include <assert.h>
#include <errno.h>
#include <string.h>
#include "config/arena.h"
#include "config/diff.h"
#include "config/members.h"
#include "config/resolve.h"
#include "config/schema.h"

struct merge {
    struct arena *arena; /* of the first step: thrown away; of the second: the snapshot's */
    bool out_of_memory;
};

static void *allocate(struct merge *m, size_t count, size_t size)
{
    void *p = arena_array(m->arena, count, size);

    if (!p)
        m->out_of_memory = true;
    return p;
}

static void pick_group(struct merge *m, const struct config_group *g, void *base,
                       const void *before, const void *after);

/* A struct with the keys of both, or of the one that there is. */
static void pick_member(struct merge *m, const struct config_group *g, void *base,
                        const void *before, const void *after)
{
    const void *most = after ? after : before;

    assert(most);
    memcpy(base, most, g->size);
    if (before && after)
        pick_group(m, g, base, before, after);
}

static void pick_value(const struct config_key *k, void *base, const void *from)
{
    memcpy(config_field(k, base), config_field(k, from), k->width);
}

static void pick_values(const struct config_key *k, void *base, const void *from)
{
    size_t size = k->in_place ? k->width * k->max : sizeof(void *);

    memcpy(config_field(k, base), config_field(k, from), size);
    config_store((char *)base + k->count_offset, k->count_width, config_list_count(k, from));
}

static void pick_optional(struct merge *m, const struct config_key *k, void *base,
                          const void *before, const void *after)
{
    const void *old = config_child(k, before), *new = config_child(k, after);
    void *child = NULL;

    assert(k->frozen); /* one whose presence is live would need no more than another condition */
    if (old) {
        child = allocate(m, 1, k->group->size);
        if (child)
            pick_member(m, k->group, child, old, new);
    }
    memcpy(config_field(k, base), &child, sizeof(child));
}

static void pick_list(struct merge *m, const struct config_key *k, void *base, const void *before,
                      const void *after)
{
    const void *kept = k->frozen ? before : after;
    size_t n = config_list_count(k, kept);
    struct members others = members_make(k, k->frozen ? after : before, m->arena);

    if (!others.sorted || !config_list_make(k, base, n, m->arena)) {
        m->out_of_memory = true;
        return;
    }
    for (size_t i = 0; i < n; i++) {
        const void *one = config_list_at(k, kept, i), *other = NULL;
        const char *identity = member_identity(k, one, m->arena);

        if (identity)
            other = members_find(&others, identity);
        else
            m->out_of_memory = true;
        pick_member(m, k->group, config_list_at(k, base, i), k->frozen ? one : other,
                    k->frozen ? other : one);
    }
}

static void pick_group(struct merge *m, const struct config_group *g, void *base,
                       const void *before, const void *after)
{
    for (const struct config_key *k = g->keys; k->name; k++) {
        switch (k->kind) {
        case CONFIG_VALUE:
            pick_value(k, base, k->frozen ? before : after);
            break;
        case CONFIG_VALUES:
            pick_values(k, base, k->frozen ? before : after);
            break;
        case CONFIG_GROUP:
            pick_group(m, k->group, config_child(k, base), config_child(k, before),
                       config_child(k, after));
            break;
        case CONFIG_OPTIONAL:
            pick_optional(m, k, base, before, after);
            break;
        case CONFIG_LIST:
            pick_list(m, k, base, before, after);
            break;
        }
    }
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
        if (w->list[i] == *ref)
            return;
    w->list[w->count++] = *ref;
}

/* A listener that waits for a restart to go may need upstreams that are gone from the file. */
static void keep_upstreams(struct merge *m, struct snapshot *s, const struct snapshot *before)
{
    struct wanted w = {upstream_index_make(s, m->arena),
                       allocate(m, before->nupstreams, sizeof(w.list[0])), 0};
    struct config_upstream *all;

    if (!w.index.sorted || !w.list) {
        m->out_of_memory = true;
        return;
    }
    config_each_reference(s, &w, want);
    all = allocate(m, s->nupstreams + w.count, sizeof(*all));
    if (!all)
        return;
    memcpy(all, s->upstreams, s->nupstreams * sizeof(*all));
    for (size_t i = 0; i < w.count; i++)
        all[s->nupstreams + i] = *w.list[i];
    s->upstreams = all;
    s->nupstreams += w.count;
}

static void own_group(struct merge *m, const struct config_group *g, void *base);

static void own_array(struct merge *m, const struct config_key *k, void *base)
{
    size_t n = config_list_count(k, base);
    const void *shared = config_list_at(k, base, 0);
    void *array = allocate(m, n, k->width);

    if (!array)
        return;
    if (n)
        memcpy(array, shared, n * k->width);
    memcpy(config_field(k, base), &array, sizeof(array));
}

static void own_value(struct merge *m, const struct config_key *k, void *field)
{
    if (k->type->copy && !k->type->copy(field, m->arena))
        m->out_of_memory = true;
}

static void own_list(struct merge *m, const struct config_key *k, void *base)
{
    if (!k->in_place)
        own_array(m, k, base);
    for (size_t i = 0; !m->out_of_memory && i < config_list_count(k, base); i++) {
        void *member = config_list_at(k, base, i);

        if (k->kind == CONFIG_LIST)
            own_group(m, k->group, member);
        else
            own_value(m, k, member);
    }
}

static void own_optional(struct merge *m, const struct config_key *k, void *base)
{
    const void *shared = config_child(k, base);
    void *child = shared ? allocate(m, 1, k->group->size) : NULL;

    if (!child)
        return;
    memcpy(child, shared, k->group->size);
    memcpy(config_field(k, base), &child, sizeof(child));
    own_group(m, k->group, child);
}

/* Replaces every pointer below a struct by one to a copy. */
static void own_group(struct merge *m, const struct config_group *g, void *base)
{
    for (const struct config_key *k = g->keys; k->name && !m->out_of_memory; k++) {
        switch (k->kind) {
        case CONFIG_VALUE:
            own_value(m, k, config_field(k, base));
            break;
        case CONFIG_VALUES:
        case CONFIG_LIST:
            own_list(m, k, base);
            break;
        case CONFIG_GROUP:
            own_group(m, k->group, config_child(k, base));
            break;
        case CONFIG_OPTIONAL:
            own_optional(m, k, base);
            break;
        }
    }
}

static void point(void *context, const struct config_upstream **ref)
{
    *ref = upstream_index_find(context, (*ref)->name);
    assert(*ref); /* keep_upstreams() */
}

/* A deep copy of `shared`, which is complete. */
static struct snapshot *own(struct arena *a, const struct snapshot *shared, struct arena *scratch)
{
    struct merge m = {.arena = a};
    struct snapshot *s = arena_alloc(a, sizeof(*s));
    struct upstream_index index;

    if (!s)
        return NULL;
    *s = *shared;
    own_group(&m, &config_root, s);
    if (m.out_of_memory)
        return NULL;
    s->path = arena_strndup(a, shared->path, strlen(shared->path));
    index = upstream_index_make(s, scratch);
    if (!s->path || !index.sorted)
        return NULL;
    config_each_reference(s, &index, point);
    config_finish(s);
    s->arena_ = a;
    return s;
}

int config_merge_live(const struct snapshot *before, const struct snapshot *after,
                      struct snapshot **ret)
{
    struct merge m = {.arena = arena_new()};
    struct arena *a = arena_new();
    struct snapshot picked, *s = NULL;

    if (m.arena && a) {
        pick_member(&m, &config_root, &picked, before, after);
        if (!m.out_of_memory)
            keep_upstreams(&m, &picked, before);
        if (!m.out_of_memory)
            s = own(a, &picked, m.arena);
    }
    arena_free(m.arena);
    if (!s) {
        arena_free(a);
        return -ENOMEM;
    }
    *ret = s;
    return 0;
}
