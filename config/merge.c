/* Merging picks what to take, key by key, into new structs that still share strings and arrays with
 * both sides; config_own() then copies all that into an arena of its own. */
#include <assert.h>
#include <errno.h>
#include <string.h>
#include "config/arena.h"
#include "config/diff.h"
#include "config/held.h"
#include "config/members.h"
#include "config/own.h"
#include "config/resolve.h"
#include "config/schema.h"

struct merge {
    struct arena *arena; /* thrown away */
    struct config_held held;
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
    if (most)
        memcpy(base, most, g->size);
    if (before && after)
        pick_group(m, g, base, before, after);
}

static void pick_value(struct merge *m, const struct config_key *k, void *base, const void *before,
                       const void *after)
{
    bool keep = k->frozen || (k->may_wait && config_held_has(&m->held, after));

    memcpy(config_field(k, base), config_field(k, keep ? before : after), k->width);
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

    if (k->frozen ? old : new) {
        child = allocate(m, 1, k->group->size);
        if (child)
            pick_member(m, k->group, child, old, new);
    }
    memcpy(config_field(k, base), &child, sizeof(child));
}

/* A frozen list has the members of `before`; another one those of `after`, but for new ones that
 * must wait. */
static void pick_list(struct merge *m, const struct config_key *k, void *base, const void *before,
                      const void *after)
{
    const void *kept = k->frozen ? before : after;
    size_t n = config_list_count(k, kept), taken = 0;
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
        if (!other && k->may_wait && config_held_has(&m->held, one))
            continue;
        pick_member(m, k->group, config_list_at(k, base, taken++), k->frozen ? one : other,
                    k->frozen ? other : one);
    }
    config_store((char *)base + k->count_offset, k->count_width, taken);
}

static void pick_group(struct merge *m, const struct config_group *g, void *base,
                       const void *before, const void *after)
{
    for (const struct config_key *k = g->keys; k->name; k++) {
        switch (k->kind) {
        case CONFIG_VALUE:
            pick_value(m, k, base, before, after);
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

int config_merge_live(const struct snapshot *before, const struct snapshot *after,
                      struct snapshot **ret)
{
    struct merge m = {.arena = arena_new()};
    struct snapshot picked, *s = NULL;

    if (m.arena && config_held_find(before, after, m.arena, &m.held) == 0) {
        pick_member(&m, &config_root, &picked, before, after);
        picked.draining = NULL;
        picked.ndraining = 0;
        if (!m.out_of_memory)
            s = config_own(&picked);
    }
    arena_free(m.arena);
    if (!s)
        return -ENOMEM;
    if (!config_finish(s)) {
        snapshot_free(s);
        return -ENOMEM;
    }
    *ret = s;
    return 0;
}
