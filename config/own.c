#include <assert.h>
#include <string.h>
#include "config/own.h"
#include "config/resolve.h"
#include "config/schema.h"

struct own {
    struct arena *arena;
    bool out_of_memory;
};

static void *allocate(struct own *o, size_t count, size_t size)
{
    void *p = arena_array(o->arena, count, size);

    if (!p)
        o->out_of_memory = true;
    return p;
}

static void own_group(struct own *o, const struct config_group *g, void *base);

static void *own_bytes(struct own *o, const void *shared, size_t count, size_t size)
{
    void *array = allocate(o, count, size);

    if (array && count)
        memcpy(array, shared, count * size);
    return array;
}

static void own_array(struct own *o, const struct config_key *k, void *base)
{
    void *array = own_bytes(o, config_list_at(k, base, 0), config_list_count(k, base), k->width);

    if (array)
        memcpy(config_field(k, base), &array, sizeof(array));
}

static void own_value(struct own *o, const struct config_key *k, void *field)
{
    if (k->type->copy && !k->type->copy(field, o->arena))
        o->out_of_memory = true;
}

static void own_list(struct own *o, const struct config_key *k, void *base)
{
    if (!k->in_place)
        own_array(o, k, base);
    for (size_t i = 0; !o->out_of_memory && i < config_list_count(k, base); i++) {
        void *member = config_list_at(k, base, i);

        if (k->kind == CONFIG_LIST)
            own_group(o, k->group, member);
        else
            own_value(o, k, member);
    }
}

static void own_optional(struct own *o, const struct config_key *k, void *base)
{
    const void *shared = config_child(k, base);
    void *child = shared ? own_bytes(o, shared, 1, k->group->size) : NULL;

    if (!child)
        return;
    memcpy(config_field(k, base), &child, sizeof(child));
    own_group(o, k->group, child);
}

/* Replaces every pointer below a struct by one to a copy. */
static void own_group(struct own *o, const struct config_group *g, void *base)
{
    for (const struct config_key *k = g->keys; k->name && !o->out_of_memory; k++) {
        switch (k->kind) {
        case CONFIG_VALUE:
            own_value(o, k, config_field(k, base));
            break;
        case CONFIG_VALUES:
        case CONFIG_LIST:
            own_list(o, k, base);
            break;
        case CONFIG_GROUP:
            own_group(o, k->group, config_child(k, base));
            break;
        case CONFIG_OPTIONAL:
            own_optional(o, k, base);
            break;
        }
    }
}

static void own_draining(struct own *o, struct snapshot *s)
{
    s->draining = own_bytes(o, s->draining, s->ndraining, sizeof(s->draining[0]));
    for (size_t i = 0; !o->out_of_memory && i < s->ndraining; i++)
        own_group(o, &config_listener_group, &s->draining[i]);
}

static void point(void *context, const struct config_upstream **ref)
{
    *ref = upstream_index_find(context, (*ref)->name);
    assert(*ref);
}

static struct snapshot *own(struct own *o, const struct snapshot *shared, struct arena *scratch)
{
    struct snapshot *s = arena_alloc(o->arena, sizeof(*s));
    struct upstream_index index;

    if (!s)
        return NULL;
    *s = *shared;
    own_group(o, &config_root, s);
    own_draining(o, s);
    if (o->out_of_memory)
        return NULL;
    s->path = arena_strndup(o->arena, shared->path, strlen(shared->path));
    index = upstream_index_make(s, scratch);
    if (!s->path || !index.sorted)
        return NULL;
    config_each_reference(s, &index, point);
    s->arena_ = o->arena;
    return s;
}

struct snapshot *config_own(const struct snapshot *shared)
{
    struct own o = {.arena = arena_new()};
    struct arena *scratch = arena_new();
    struct snapshot *s = o.arena && scratch ? own(&o, shared, scratch) : NULL;

    arena_free(scratch);
    if (!s)
        arena_free(o.arena);
    return s;
}
