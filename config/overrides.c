#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include "config/overrides.h"

static struct config_override *find(const struct config_overrides *o, const char *path)
{
    for (size_t i = 0; i < o->count; i++)
        if (!strcmp(o->list[i].path, path))
            return &o->list[i];
    return NULL;
}

static int add(struct config_overrides *o, char *path, char *value)
{
    struct config_override *list;

    if (o->count == CONFIG_OVERRIDES_MAX)
        return -ENOSPC;
    list = path && value ? realloc(o->list, (o->count + 1) * sizeof(*list)) : NULL;
    if (!list)
        return -ENOMEM;
    o->list = list;
    list[o->count++] = (struct config_override){path, value};
    return 0;
}

int config_overrides_set(struct config_overrides *o, const char *path, const char *value)
{
    struct config_override *there = find(o, path);
    char *copy = strdup(value), *name = there ? NULL : strdup(path);
    int rc;

    if (there && copy) {
        free(there->value);
        there->value = copy;
        return 0;
    }
    rc = there ? -ENOMEM : add(o, name, copy);
    if (rc) {
        free(copy);
        free(name);
    }
    return rc;
}

bool config_overrides_unset(struct config_overrides *o, const char *path)
{
    struct config_override *there = find(o, path);

    if (!there)
        return false;
    free(there->path);
    free(there->value);
    o->count--;
    memmove(there, there + 1, (size_t)(o->list + o->count - there) * sizeof(*there));
    return true;
}

const char *config_overrides_get(const struct config_overrides *o, const char *path)
{
    const struct config_override *there = find(o, path);

    return there ? there->value : NULL;
}

int config_overrides_copy(const struct config_overrides *from, struct config_overrides *ret)
{
    struct config_overrides o = {NULL, 0};

    for (size_t i = 0; i < from->count; i++) {
        int rc = config_overrides_set(&o, from->list[i].path, from->list[i].value);

        if (rc) {
            config_overrides_fini(&o);
            return rc;
        }
    }
    *ret = o;
    return 0;
}

void config_overrides_fini(struct config_overrides *o)
{
    for (size_t i = 0; i < o->count; i++) {
        free(o->list[i].path);
        free(o->list[i].value);
    }
    free(o->list);
    *o = (struct config_overrides){NULL, 0};
}
