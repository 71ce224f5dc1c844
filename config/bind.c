#include <assert.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include "config/bind.h"
#include "config/suggest.h"

void bind_fault(struct bind *b, const struct yaml_node *n, const char *format, ...)
{
    char text[512];
    va_list args;

    va_start(args, format);
    vsnprintf(text, sizeof(text), format, args);
    va_end(args);
    if (!n)
        config_errors_add(b->errs, b->file, 1, 1, NULL, "%s", text);
    else if (config_errors_full(b->errs)) /* counted only: don't spend time on its path */
        config_errors_add(b->errs, b->file, n->line, n->col, NULL, "%s", text);
    else
        config_errors_add(b->errs, b->file, n->line, n->col, yaml_path(b->scratch, n, NULL), "%s",
                          text);
}

const char *bind_guess(struct bind *b, const char *best)
{
    return best ? config_say(b->scratch, " (did you mean \"%s\"?)", best) : "";
}

static int by_field(const void *a, const void *b)
{
    const struct mark *x = a, *y = b;

    if (x->field != y->field)
        return x->field < y->field ? -1 : 1;
    return strcmp(x->name, y->name);
}

const struct yaml_node *bind_where(const struct bind *b, const void *field, const char *name)
{
    struct mark key = {field, name, NULL};
    const struct mark *m = bsearch(&key, b->marks, b->nmarks, sizeof(key), by_field);

    return m ? m->node : NULL;
}

static void mark(struct bind *b, const void *field, const char *name, const struct yaml_node *n)
{
    if (!n)
        return;
    assert(b->nmarks < b->room);
    b->marks[b->nmarks++] = (struct mark){field, name, n};
}

static const char *kind_found(struct bind *b, const struct yaml_node *n)
{
    if (n->kind == YAML_MAP)
        return "a mapping";
    if (n->kind == YAML_LIST)
        return "a list";
    return yaml_is_null(n) ? "nothing" : yaml_quote(b->scratch, n->text, n->len);
}

static void set_initial(struct bind *b, const struct config_key *k, void *field)
{
    const struct yaml_node n = {
        .kind = YAML_SCALAR, .plain = true, .text = k->initial, .len = strlen(k->initial)};

    if (k->type->parse(k, &n, b->arena, field))
        b->out_of_memory = true; /* the schema's own values are right: unit test */
}

static bool bind_scalar(struct bind *b, const struct config_key *k, const struct yaml_node *n,
                        void *field)
{
    const char *wrong = NULL;

    if (n->kind == YAML_REFUSED)
        return false;
    if (n->kind != YAML_SCALAR || yaml_is_null(n)) {
        const char *expected = k->type == &config_choice ? k->choices[0] : k->type->expected;

        bind_fault(b, n, "expected %s%s, found %s",
                   k->type == &config_choice ? "a word such as " : "", expected, kind_found(b, n));
        return false;
    }
    if (strlen(n->text) != n->len)
        wrong = "expected text without NUL characters";
    else if (k->type->plain && !n->plain)
        wrong = config_say(b->scratch, "expected %s without quotes", k->type->expected);
    else
        wrong = k->type->parse(k, n, b->arena, field);
    if (wrong)
        bind_fault(b, n, "%s", wrong);
    return !wrong;
}

static void bind_group(struct bind *b, const struct config_group *g, void *base,
                       const struct yaml_node *n);

/* An error: a list was expected, or one of another length. */
static bool check_list(struct bind *b, const struct config_key *k, const struct yaml_node *n)
{
    if (n->kind == YAML_REFUSED)
        return false;
    if (n->kind != YAML_LIST)
        bind_fault(b, n, "expected a list, found %s", kind_found(b, n));
    else if (n->count < k->min || n->count > k->max)
        bind_fault(b, n, "expected %ju to %ju entries, found %u", (uintmax_t)k->min,
                   (uintmax_t)k->max, n->count);
    else
        return true;
    return false;
}

static void bind_list(struct bind *b, const struct config_key *k, void *base,
                      const struct yaml_node *n)
{
    if (!check_list(b, k, n))
        return;
    if (!config_list_make(k, base, n->count, b->arena)) {
        b->out_of_memory = true;
        return;
    }
    for (const struct yaml_node *c = n->first; c; c = c->next) {
        void *field = config_list_at(k, base, c->index);

        if (k->kind == CONFIG_LIST)
            bind_group(b, k->group, field, c);
        else
            mark(b, field, bind_scalar(b, k, c, field) ? "[]" : BIND_FAULTY, c);
    }
}

static void bind_optional(struct bind *b, const struct config_key *k, void *base,
                          const struct yaml_node *n)
{
    void *child = arena_alloc(b->arena, k->group->size);

    if (!child) {
        b->out_of_memory = true;
        return;
    }
    memcpy(config_field(k, base), &child, sizeof(child));
    bind_group(b, k->group, child, n);
}

/* `n`: the value, NULL if absent. `map`: where it should be; NULL: that is absent too. */
static void bind_key(struct bind *b, const struct config_key *k, void *base,
                     const struct yaml_node *n, const struct yaml_node *map)
{
    void *field = config_field(k, base);
    bool given;

    if (!n && k->required && map)
        config_errors_add(b->errs, b->file, map->line, map->col,
                          yaml_path(b->scratch, map, k->name), "required, but not given");
    switch (k->kind) {
    case CONFIG_VALUE:
        given = n && bind_scalar(b, k, n, field);
        mark(b, field, given ? k->name : BIND_FAULTY, n);
        if (!given && k->initial)
            set_initial(b, k, field);
        break;
    case CONFIG_GROUP:
        bind_group(b, k->group, field, n);
        break;
    case CONFIG_OPTIONAL:
        if (n)
            bind_optional(b, k, base, n);
        break;
    case CONFIG_VALUES:
    case CONFIG_LIST:
        if (n)
            bind_list(b, k, base, n);
        break;
    }
}

static const char *known_keys(struct bind *b, const struct config_group *g)
{
    const char *text = g->keys[0].name;

    for (const struct config_key *k = g->keys + 1; k->name; k++)
        text = config_say(b->scratch, "%s, %s", text, k->name);
    return text;
}

static void fault_unknown(struct bind *b, const struct config_group *g, const struct yaml_node *n)
{
    struct yaml_node at = *n; /* the value's path, the key's position */
    struct suggest s;

    at.line = n->key->line;
    at.col = n->key->col;
    if (config_errors_full(b->errs)) {
        bind_fault(b, &at, "unknown key");
        return;
    }
    suggest_init(&s, n->key->text, n->key->len);
    for (const struct config_key *k = g->keys; k->name; k++)
        suggest_offer(&s, k->name);
    if (s.best)
        bind_fault(b, &at, "unknown key%s", bind_guess(b, s.best));
    else
        bind_fault(b, &at, "unknown key, expected one of %s", known_keys(b, g));
}

/* Sorts a mapping's values to the group's keys. */
static void find_values(struct bind *b, const struct config_group *g, const struct yaml_node *map,
                        const struct yaml_node *found[CONFIG_KEYS_MAX])
{
    for (const struct yaml_node *n = map->first; n; n = n->next) {
        const struct config_key *k;

        if (n->key->kind == YAML_REFUSED)
            continue;
        k = config_key_find(g, n->key->text, n->key->len);
        if (!k) {
            fault_unknown(b, g, n);
            continue;
        }
        const struct yaml_node **place = &found[k - g->keys];
        if (*place) {
            struct yaml_node at = *n;

            at.line = n->key->line;
            at.col = n->key->col;
            bind_fault(b, &at, "given twice, first in line %u", (*place)->key->line);
        } else {
            *place = n;
        }
    }
}

static void check_exactly_one(struct bind *b, const struct config_group *g,
                              const struct yaml_node *map,
                              const struct yaml_node *found[CONFIG_KEYS_MAX])
{
    const struct yaml_node *first = NULL;

    for (unsigned i = 0; g->exactly_one[i]; i++) {
        const char *name = g->exactly_one[i];
        const struct yaml_node *n = found[config_key_find(g, name, strlen(name)) - g->keys];

        if (n && first)
            bind_fault(b, n, "expected either %s or %s, found both", g->exactly_one[0],
                       g->exactly_one[1]);
        if (n && !first)
            first = n;
    }
    if (!first)
        bind_fault(b, map, "expected either %s or %s, found neither", g->exactly_one[0],
                   g->exactly_one[1]);
}

static void bind_group(struct bind *b, const struct config_group *g, void *base,
                       const struct yaml_node *n)
{
    const struct yaml_node *found[CONFIG_KEYS_MAX] = {NULL};

    if (n && g->shorthand && n->kind == YAML_SCALAR && !yaml_is_null(n)) {
        const struct config_key *k = config_key_find(g, g->shorthand, strlen(g->shorthand));

        found[k - g->keys] = n;
        n = NULL;
    }
    if (n && n->kind != YAML_MAP) {
        if (n->kind != YAML_REFUSED)
            bind_fault(b, n, "expected a mapping, found %s", kind_found(b, n));
        n = NULL;
    }
    mark(b, base, g->name, n);
    if (n)
        find_values(b, g, n, found);
    for (unsigned i = 0; g->keys[i].name; i++)
        bind_key(b, &g->keys[i], base, found[i], n);
    if (n && g->exactly_one)
        check_exactly_one(b, g, n, found);
}

static size_t count_nodes(const struct yaml_node *n)
{
    size_t count = 1;

    for (const struct yaml_node *c = n->first; c; c = c->next)
        count += count_nodes(c);
    return count;
}

void bind_snapshot(struct bind *b, const struct yaml_node *root, struct snapshot *s)
{
    b->room = count_nodes(root);
    b->marks = arena_array(b->scratch, b->room, sizeof(b->marks[0]));
    if (!b->marks) {
        b->out_of_memory = true;
        return;
    }
    bind_group(b, &config_root, s, root);
    qsort(b->marks, b->nmarks, sizeof(b->marks[0]), by_field);
}
