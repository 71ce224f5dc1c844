#include "control/upstream_verb.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "config/place.h"
#include "config/suggest.h"

#define PATH_MAX_LEN 512

struct job {
    const struct snapshot *base;
    const struct config_overrides *overrides;
    const char *upstream, *endpoint, *key, *value; /* NULL: not given */
    struct config_overrides changes;
    char *err;
    size_t err_len;
    int rc; /* of what is called for each value */
};

static int say(struct job *j, const char *format, ...) __attribute__((format(printf, 2, 3)));

static int say(struct job *j, const char *format, ...)
{
    va_list args;

    va_start(args, format);
    vsnprintf(j->err, j->err_len, format, args);
    va_end(args);
    return -EINVAL;
}

/* `value` NULL: the override is to go. */
static int change(struct job *j, const char *path, const char *value)
{
    struct config_overrides *c = &j->changes;
    struct config_override *list = realloc(c->list, (c->count + 1) * sizeof(*list));
    struct config_override x = {strdup(path), value ? strdup(value) : NULL};

    if (list)
        c->list = list;
    if (!list || !x.path || (value && !x.value)) {
        free(x.path);
        free(x.value);
        return -ENOMEM;
    }
    list[c->count++] = x;
    return 0;
}

static int check_upstream(struct job *j)
{
    struct suggest s;

    if (snapshot_upstream(j->base, j->upstream))
        return 0;
    suggest_init(&s, j->upstream, strlen(j->upstream));
    for (size_t i = 0; i < j->base->nupstreams; i++)
        suggest_offer(&s, j->base->upstreams[i].name);
    return say(j, "unknown upstream \"%.63s\"%s%s%s", j->upstream,
               s.best ? " (did you mean \"" : "", s.best ? s.best : "", s.best ? "\"?)" : "");
}

/* --- weights -------------------------------------------------------------------------------------
 */

static int each_weight(struct job *j, void (*each)(void *ctx, const char *path,
                                                   const struct config_key *k, const void *base))
{
    char path[PATH_MAX_LEN];

    snprintf(path, sizeof(path), "upstreams[%s].endpoints[%s].weight", j->upstream,
             j->endpoint ? j->endpoint : "");
    j->rc = -ENOENT;
    int e = config_place_each(j->base, path, j, each);
    if (!e && j->rc == -ENOENT)
        return say(j, "there is no endpoint \"%.63s\" in upstream \"%s\"",
                   j->endpoint ? j->endpoint : "", j->upstream);
    return e ? e : j->rc;
}

static void drain_one(void *ctx, const char *path, const struct config_key *k, const void *base)
{
    struct job *j = ctx;

    if (j->rc == 0 || j->rc == -ENOENT)
        j->rc = change(j, path, "0");
}

static void undrain_one(void *ctx, const char *path, const struct config_key *k, const void *base)
{
    struct job *j = ctx;
    const char *now = config_overrides_get(j->overrides, path);

    if (j->rc && j->rc != -ENOENT)
        return;
    j->rc = 0;
    if (now && strcmp(now, "0") == 0)
        j->rc = change(j, path, NULL);
    else if (!now && j->endpoint && config_fetch(config_field(k, base), k->width) == 0)
        j->rc = say(j, "the configuration gives it weight 0: give it another one by `weight`");
}

static int set_weight(struct job *j)
{
    char path[PATH_MAX_LEN];

    if (!j->endpoint || !j->value)
        return say(j, "weight needs an endpoint and a number");
    snprintf(path, sizeof(path), "upstreams[%s].endpoints[%s].weight", j->upstream, j->endpoint);
    return change(j, path, j->value);
}

/* --- limits --------------------------------------------------------------------------------------
 */

/* "connections" is limits.connections; what bounds a pool goes by its own name. */
static int set_limit(struct job *j)
{
    static const char *const below[] = {"limits.", "pool.", ""};
    char path[PATH_MAX_LEN], err[256];

    if (!j->key || !j->value)
        return say(j, "limit needs a key and a value");
    for (unsigned i = 0; i < sizeof(below) / sizeof(below[0]); i++) {
        if (!*below[i] && strncmp(j->key, "limits", 6) != 0 && strncmp(j->key, "pool", 4) != 0)
            break;
        snprintf(path, sizeof(path), "upstreams[%s].%s%.200s", j->upstream, below[i], j->key);
        const struct config_key *k = config_place_key(path, err, sizeof(err));
        if (k && k->kind == CONFIG_VALUE)
            return change(j, path, j->value);
    }
    return say(j,
               "upstreams have no limit \"%.63s\"; `millrace explain upstreams` lists their keys",
               j->key);
}

/* --- reset ---------------------------------------------------------------------------------------
 */

static int reset(struct job *j)
{
    char prefix[PATH_MAX_LEN];
    int e = 0;

    if (j->endpoint)
        snprintf(prefix, sizeof(prefix), "upstreams[%s].endpoints[%s].", j->upstream, j->endpoint);
    else
        snprintf(prefix, sizeof(prefix), "upstreams[%s].", j->upstream);
    for (size_t i = 0; i < j->overrides->count && !e; i++)
        if (strncmp(j->overrides->list[i].path, prefix, strlen(prefix)) == 0)
            e = change(j, j->overrides->list[i].path, NULL);
    return e;
}

static int run(struct job *j, const char *action)
{
    int e = check_upstream(j);

    if (e)
        return e;
    if (strcmp(action, "drain") == 0)
        return each_weight(j, drain_one);
    if (strcmp(action, "undrain") == 0)
        return each_weight(j, undrain_one);
    if (strcmp(action, "weight") == 0)
        return set_weight(j);
    if (strcmp(action, "limit") == 0)
        return set_limit(j);
    return reset(j);
}

int upstream_verb_changes(const struct admin_call *call, const struct snapshot *base,
                          const struct config_overrides *overrides,
                          struct config_overrides *ret_changes, char *err, size_t err_len)
{
    struct job j = {.base = base,
                    .overrides = overrides,
                    .upstream = admin_text(call, "upstream"),
                    .endpoint = admin_text(call, "endpoint"),
                    .key = admin_text(call, "key"),
                    .value = admin_text(call, "value"),
                    .err = err,
                    .err_len = err_len};

    snprintf(err, err_len, "out of memory");
    int e = run(&j, admin_text(call, "action"));
    if (e) {
        config_overrides_fini(&j.changes);
        return e;
    }
    *ret_changes = j.changes;
    return 0;
}
