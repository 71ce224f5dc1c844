#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include "config/arena.h"
#include "config/diff.h"
#include "config/held.h"
#include "config/members.h"
#include "config/schema.h"

struct compare {
    struct arena *arena;   /* of the result */
    struct arena *scratch; /* of texts and paths */
    struct config_held held;
    struct config_change *list;
    size_t count, frozen, room;
    bool out_of_memory;
};

static const char *const absent = "(none)", *const present = "(present)";

static char *keep(struct compare *c, const char *text)
{
    char *copy = arena_strndup(c->arena, text, strlen(text));

    if (!copy)
        c->out_of_memory = true;
    return copy;
}

static void add(struct compare *c, const char *path, const char *from, const char *to, bool live)
{
    if (c->count == c->room) {
        size_t room = c->room ? 2 * c->room : 16;
        struct config_change *list = arena_array(c->arena, room, sizeof(*list));

        if (!list) {
            c->out_of_memory = true;
            return;
        }
        if (c->count)
            memcpy(list, c->list, c->count * sizeof(*list));
        c->list = list;
        c->room = room;
    }
    c->list[c->count++] = (struct config_change){keep(c, path), keep(c, from), keep(c, to), live};
    c->frozen += !live;
}

static bool is_live(const struct compare *c, const struct config_key *k, const void *after)
{
    return !k->frozen && !(k->may_wait && config_held_has(&c->held, after));
}

static void write_values(const struct config_key *k, const void *base, FILE *f)
{
    size_t n = config_list_count(k, base);

    fputc('[', f);
    for (size_t i = 0; i < n; i++) {
        fputs(i ? ", " : "", f);
        k->type->format(k, config_list_at(k, base, i), f);
    }
    fputc(']', f);
}

/* As the file would write it. */
static const char *value_text(struct compare *c, const struct config_key *k, const void *base)
{
    char *text = NULL;
    const char *copy = NULL;
    size_t size;
    FILE *f = open_memstream(&text, &size);

    if (f) {
        if (k->kind == CONFIG_VALUES)
            write_values(k, base, f);
        else
            k->type->format(k, config_field(k, base), f);
        if (!fclose(f))
            copy = size ? arena_strndup(c->scratch, text, size) : absent;
        free(text);
    }
    if (!copy)
        c->out_of_memory = true;
    return copy ? copy : "";
}

static const char *below(struct compare *c, const char *path, const char *name)
{
    return config_say(c->scratch, "%s%s%s", path, *path ? "." : "", name);
}

static void compare_group(struct compare *c, const struct config_group *g, const char *path,
                          const void *before, const void *after);

static void compare_optional(struct compare *c, const struct config_key *k, const char *path,
                             const void *before, const void *after)
{
    const void *old = config_child(k, before), *new = config_child(k, after);

    if (old && new)
        compare_group(c, k->group, path, old, new);
    else if (old || new)
        add(c, path, old ? present : absent, new ? present : absent, !k->frozen);
}

static void compare_list(struct compare *c, const struct config_key *k, const char *path,
                         const void *before, const void *after)
{
    struct members old = members_make(k, before, c->scratch);
    struct members new = members_make(k, after, c->scratch);

    if (!old.sorted || !new.sorted) {
        c->out_of_memory = true;
        return;
    }
    for (size_t i = 0; i < old.count; i++) {
        const struct member *m = &old.sorted[i];
        const char *member_path = config_say(c->scratch, "%s[%s]", path, m->identity);
        const void *match = members_find(&new, m->identity);

        if (match)
            compare_group(c, k->group, member_path, m->base, match);
        else
            add(c, member_path, present, absent, !k->frozen);
    }
    for (size_t i = 0; i < new.count; i++)
        if (!members_find(&old, new.sorted[i].identity))
            add(c, config_say(c->scratch, "%s[%s]", path, new.sorted[i].identity), absent, present,
                is_live(c, k, new.sorted[i].base));
}

static void compare_group(struct compare *c, const struct config_group *g, const char *path,
                          const void *before, const void *after)
{
    for (const struct config_key *k = g->keys; k->name; k++) {
        const char *key = below(c, path, k->name), *from, *to;

        switch (k->kind) {
        case CONFIG_VALUE:
        case CONFIG_VALUES:
            from = value_text(c, k, before);
            to = value_text(c, k, after);
            if (strcmp(from, to))
                add(c, key, from, to, is_live(c, k, after));
            break;
        case CONFIG_GROUP:
            compare_group(c, k->group, key, config_child(k, before), config_child(k, after));
            break;
        case CONFIG_OPTIONAL:
            compare_optional(c, k, key, before, after);
            break;
        case CONFIG_LIST:
            compare_list(c, k, key, before, after);
            break;
        }
    }
}

int config_diff(const struct snapshot *before, const struct snapshot *after,
                struct config_diff *ret)
{
    struct compare c = {.arena = arena_new(), .scratch = arena_new()};

    if (c.arena && c.scratch && config_held_find(before, after, c.scratch, &c.held) == 0)
        compare_group(&c, &config_root, "", before, after);
    if (!c.held.list || c.out_of_memory) {
        arena_free(c.arena);
        arena_free(c.scratch);
        return -ENOMEM;
    }
    arena_free(c.scratch);
    *ret = (struct config_diff){c.list, c.count, c.frozen, c.arena};
    return 0;
}

void config_diff_fini(struct config_diff *d)
{
    arena_free(d->arena_);
    *d = (struct config_diff){NULL};
}
