#include <errno.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include "config/members.h"
#include "config/place.h"
#include "config/suggest.h"

static size_t word_len(const char *path)
{
    return strcspn(path, ".[");
}

/* Past "[…]": what stands in it may have brackets and dots of its own. NULL: it has no end. */
static const char *after_brackets(const char *path)
{
    for (const char *p = path; (p = strchr(p, ']')); p++)
        if (!p[1] || p[1] == '.')
            return p + 1;
    return NULL;
}

static int say(char *err, size_t err_len, int rc, const char *format, ...)
    __attribute__((format(printf, 4, 5)));

static int say(char *err, size_t err_len, int rc, const char *format, ...)
{
    va_list args;

    va_start(args, format);
    vsnprintf(err, err_len, format, args);
    va_end(args);
    return rc;
}

static int no_key(const struct config_group *g, const char *path, const char *word, size_t len,
                  char *err, size_t err_len)
{
    int before = (int)(word - path);
    struct suggest s;

    suggest_init(&s, word, len);
    for (const struct config_key *k = g->keys; k->name; k++)
        suggest_offer(&s, k->name);
    return say(err, err_len, -EINVAL, "there is no key \"%.*s%.*s\"%s%s%s", before, path, (int)len,
               word, s.best ? " (did you mean \"" : "", s.best ? s.best : "", s.best ? "\"?)" : "");
}

/* --- the schema's side ---------------------------------------------------------------------------
 */

const struct config_key *config_place_key(const char *path, char *err, size_t err_len)
{
    const struct config_group *g = &config_root;
    const struct config_key *k = NULL;

    for (const char *p = path;; p++) {
        size_t len = word_len(p);

        k = g ? config_key_find(g, p, len) : NULL;
        if (!k) {
            if (g)
                no_key(g, path, p, len, err, err_len);
            else
                say(err, err_len, 0, "\"%.*s\" has no keys below it", (int)(p - path - 1), path);
            return NULL;
        }
        p += len;
        if (*p == '[' && k->kind == CONFIG_LIST && after_brackets(p))
            p = after_brackets(p);
        if (!*p)
            return k;
        if (*p != '.') {
            say(err, err_len, 0, "\"%s\" is no list of mappings", path);
            return NULL;
        }
        g = k->group;
    }
}

/* --- the snapshot's side -------------------------------------------------------------------------
 */

/* The member that the brackets at `path` name; they must be whole. */
static int find_member(const struct config_key *k, const void *base, const char *path,
                       const char **ret_rest, void **ret)
{
    struct arena *a = arena_new();
    size_t n = config_list_count(k, base);
    int rc = a ? -ENOENT : -ENOMEM;

    for (size_t i = 0; a && rc == -ENOENT && i < n; i++) {
        void *member = config_list_at(k, base, i);
        const char *identity = member_identity(k, member, a);
        size_t len = identity ? strlen(identity) : 0;

        if (!identity) {
            rc = -ENOMEM;
        } else if (!strncmp(path + 1, identity, len) && path[1 + len] == ']' &&
                   (!path[2 + len] || path[2 + len] == '.')) {
            *ret = member;
            *ret_rest = path + 2 + len;
            rc = 0;
        }
    }
    arena_free(a);
    return rc;
}

/* One step down. 0 with the rest of the path. */
static int step(const struct config_key *k, void **base, const char *path, const char **p,
                char *err, size_t err_len)
{
    if (k->kind == CONFIG_LIST) {
        int rc = **p == '[' ? find_member(k, *base, *p, p, base) : -EINVAL;

        if (rc == -EINVAL)
            return say(err, err_len, rc, "\"%s\": which of the %s? Expected %.*s[…]", path, k->name,
                       (int)(*p - path), path);
        if (rc)
            return say(err, err_len, rc, rc == -ENOMEM ? "out of memory" : "there is no %s", path);
    } else {
        *base = config_child(k, *base);
        if (!*base)
            return say(err, err_len, -ENOENT, "there is no %s", path);
    }
    if (**p != '.')
        return say(err, err_len, -EINVAL, "\"%s\" is a mapping, not a value", path);
    (*p)++;
    return 0;
}

int config_place_find(const struct snapshot *s, const char *path, struct config_place *ret,
                      char *err, size_t err_len)
{
    const struct config_group *g = &config_root;
    void *base = (void *)s;
    const char *p = path;

    for (;;) {
        size_t len = word_len(p);
        const struct config_key *k = config_key_find(g, p, len);

        if (!k) {
            no_key(g, path, p, len, err, err_len);
            return -EINVAL;
        }
        p += len;
        if (k->kind == CONFIG_VALUE || k->kind == CONFIG_VALUES) {
            if (*p) {
                say(err, err_len, 0, "\"%.*s\" has no keys below it", (int)(p - path), path);
                return -EINVAL;
            }
            *ret = (struct config_place){k, base};
            return 0;
        }
        int rc = step(k, &base, path, &p, err, err_len);
        if (rc)
            return rc;
        g = k->group;
    }
}

void config_write_value(const struct config_key *k, const void *base, FILE *f)
{
    if (k->kind == CONFIG_VALUE) {
        if (!k->width && k->type == &config_integer) /* a constant: the language's version */
            fprintf(f, "%ju", (uintmax_t)k->min);
        else
            k->type->format(k, config_field(k, base), f);
        return;
    }
    fputc('[', f);
    for (size_t i = 0; i < config_list_count(k, base); i++) {
        fputs(i ? ", " : "", f);
        k->type->format(k, config_list_at(k, base, i), f);
    }
    fputc(']', f);
}

char *config_place_get(const struct snapshot *s, const char *path)
{
    struct config_place place;
    char err[256], *text = NULL;
    size_t len;

    if (config_place_find(s, path, &place, err, sizeof(err)))
        return NULL;
    FILE *f = open_memstream(&text, &len);
    if (!f)
        return NULL;
    config_write_value(place.key, place.base, f);
    if (fclose(f)) {
        free(text);
        return NULL;
    }
    return text;
}

int config_place_set(struct snapshot *s, const char *path, const char *text, char *err,
                     size_t err_len)
{
    struct yaml_node n = {.kind = YAML_SCALAR, .plain = true, .text = text, .len = strlen(text)};
    struct config_place place;
    int rc = config_place_find(s, path, &place, err, err_len);

    if (rc)
        return rc;
    if (place.key->kind != CONFIG_VALUE)
        return say(err, err_len, -EINVAL, "\"%s\" is a list", path);
    const char *wrong =
        place.key->type->parse(place.key, &n, s->arena_, config_field(place.key, place.base));
    return wrong ? say(err, err_len, -EINVAL, "%s: %s", path, wrong) : 0;
}

/* --- many values ---------------------------------------------------------------------------------
 */

struct walk {
    struct arena *arena;
    void *context;
    void (*each)(void *context, const char *path, const struct config_key *k, const void *base);
    bool out_of_memory;
};

static void walk_group(struct walk *w, const struct config_group *g, const void *base,
                       const char *path, const char *wanted);

/* `rest` is "" or starts with "." or "[". */
static void walk_list(struct walk *w, const struct config_key *k, const void *base,
                      const char *path, const char *rest)
{
    bool any = rest[0] != '[' || rest[1] == ']';

    if (any && rest[0] == '[')
        rest += 2;
    for (size_t i = 0; i < config_list_count(k, base); i++) {
        const void *member = config_list_at(k, base, i);
        const char *identity = member_identity(k, member, w->arena), *below = rest;
        size_t len = identity ? strlen(identity) : 0;

        if (!identity) {
            w->out_of_memory = true;
            return;
        }
        if (!any) {
            if (strncmp(rest + 1, identity, len) != 0 || rest[1 + len] != ']')
                continue;
            below = rest + 2 + len;
        }
        walk_group(w, k->group, member, config_say(w->arena, "%s[%s]", path, identity),
                   *below == '.' ? below + 1 : below);
    }
}

static void walk_key(struct walk *w, const struct config_key *k, const void *base, const char *path,
                     const char *rest)
{
    const char *own = config_say(w->arena, "%s%s%s", path, *path ? "." : "", k->name);
    const char *below = *rest == '.' ? rest + 1 : rest;

    switch (k->kind) {
    case CONFIG_VALUE:
    case CONFIG_VALUES:
        w->each(w->context, own, k, base);
        break;
    case CONFIG_GROUP:
    case CONFIG_OPTIONAL:
        if (config_child(k, base))
            walk_group(w, k->group, config_child(k, base), own, below);
        break;
    case CONFIG_LIST:
        walk_list(w, k, base, own, rest);
        break;
    }
}

/* `wanted`: the path below; "" for everything. */
static void walk_group(struct walk *w, const struct config_group *g, const void *base,
                       const char *path, const char *wanted)
{
    size_t len = word_len(wanted);

    for (const struct config_key *k = g->keys; k->name && !w->out_of_memory; k++)
        if (!*wanted || (strlen(k->name) == len && !memcmp(k->name, wanted, len)))
            walk_key(w, k, base, path, wanted + len);
}

int config_place_each(const struct snapshot *s, const char *path, void *context,
                      void (*each)(void *context, const char *path, const struct config_key *k,
                                   const void *base))
{
    struct walk w = {.arena = arena_new(), .context = context, .each = each};

    if (w.arena)
        walk_group(&w, &config_root, s, "", path);
    bool good = w.arena && !w.out_of_memory;
    arena_free(w.arena);
    return good ? 0 : -ENOMEM;
}
