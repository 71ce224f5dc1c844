/* The schema table as JSON Schema 2020-12, which editors complete and check YAML with. */
#include <errno.h>
#include <string.h>
#include "config/reference.h"
#include "config/schema.h"

static void put_string(FILE *f, const char *text)
{
    fputc('"', f);
    for (; *text; text++) {
        if (*text == '"' || *text == '\\')
            fputc('\\', f);
        fputc(*text, f);
    }
    fputc('"', f);
}

static void put_indent(FILE *f, unsigned depth)
{
    fprintf(f, "\n%*s", 2 * depth, "");
}

/* ,"name": with the comma for all but the first member. */
static void put_member(FILE *f, unsigned depth, bool *first, const char *name)
{
    fputs(*first ? "" : ",", f);
    *first = false;
    put_indent(f, depth);
    put_string(f, name);
    fputs(": ", f);
}

static void put_number_type(FILE *f, const struct config_key *k)
{
    bool is_list = k->kind == CONFIG_VALUES; /* then the range is that of the list's length */

    fprintf(f, "\"type\": \"integer\", \"minimum\": %ju", is_list ? 0 : (uintmax_t)k->min);
    if (!is_list)
        fprintf(f, ", \"maximum\": %ju", (uintmax_t)k->max);
}

static void put_words(FILE *f, const char *const *words, const char *one)
{
    fputs("\"enum\": [", f);
    for (unsigned i = 0; words && words[i]; i++) {
        fputs(i ? ", " : "", f);
        put_string(f, words[i]);
    }
    if (one) {
        fputs(words && words[0] ? ", " : "", f);
        put_string(f, one);
    }
    fputc(']', f);
}

/* What one scalar may be, without its braces. */
static void put_scalar_type(FILE *f, const struct config_key *k)
{
    const struct config_type *t = k->type;

    if (t == &config_boolean) {
        fputs("\"type\": \"boolean\"", f);
    } else if (t == &config_choice) {
        put_words(f, k->choices, NULL);
    } else if (t->plain) {
        put_number_type(f, k);
    } else {
        fputs("\"type\": \"string\"", f);
        if (t->pattern) {
            fputs(", \"pattern\": ", f);
            put_string(f, t->pattern);
        }
    }
}

static void put_scalar(FILE *f, const struct config_key *k, unsigned depth, bool *first)
{
    bool has_words = k->type != &config_choice && (k->word || k->choices);

    if (!has_words) {
        fputs(*first ? "" : ",", f);
        *first = false;
        put_indent(f, depth);
        put_scalar_type(f, k);
        return;
    }
    put_member(f, depth, first, "anyOf");
    fputs("[{", f);
    put_scalar_type(f, k);
    fputs("}, {", f);
    put_words(f, k->choices, k->word);
    fputs("}]", f);
}

static void put_default(FILE *f, const struct config_key *k, unsigned depth, bool *first)
{
    bool is_bare = k->type->plain && (!k->word || strcmp(k->initial, k->word));

    put_member(f, depth, first, "default");
    if (is_bare)
        fputs(k->initial, f);
    else
        put_string(f, k->initial);
}

static void put_group(FILE *f, const struct config_group *g, unsigned depth, bool *first);

static void put_items(FILE *f, const struct config_key *k, unsigned depth, bool *first)
{
    bool first_inner = true;

    put_member(f, depth, first, "type");
    fputs("\"array\"", f);
    put_member(f, depth, first, "minItems");
    fprintf(f, "%ju", (uintmax_t)k->min);
    put_member(f, depth, first, "maxItems");
    fprintf(f, "%ju", (uintmax_t)k->max);
    put_member(f, depth, first, "items");
    fputc('{', f);
    if (k->kind == CONFIG_LIST)
        put_group(f, k->group, depth + 1, &first_inner);
    else
        put_scalar(f, k, depth + 1, &first_inner);
    put_indent(f, depth);
    fputc('}', f);
}

static void put_key(FILE *f, const struct config_key *k, unsigned depth)
{
    bool first = true;

    fputc('{', f);
    put_member(f, depth + 1, &first, "description");
    put_string(f, k->doc);
    switch (k->kind) {
    case CONFIG_VALUE:
        put_scalar(f, k, depth + 1, &first);
        if (k->initial)
            put_default(f, k, depth + 1, &first);
        break;
    case CONFIG_GROUP:
    case CONFIG_OPTIONAL:
        put_group(f, k->group, depth + 1, &first);
        break;
    case CONFIG_VALUES:
    case CONFIG_LIST:
        put_items(f, k, depth + 1, &first);
        break;
    }
    put_indent(f, depth);
    fputc('}', f);
}

static void put_required(FILE *f, const struct config_group *g, unsigned depth, bool *first)
{
    bool any = false;

    for (const struct config_key *k = g->keys; k->name; k++) {
        if (!k->required)
            continue;
        if (!any) {
            put_member(f, depth, first, "required");
            fputc('[', f);
        }
        fputs(any ? ", " : "", f);
        put_string(f, k->name);
        any = true;
    }
    if (any)
        fputc(']', f);
}

static void put_exactly_one(FILE *f, const struct config_group *g, unsigned depth, bool *first)
{
    if (!g->exactly_one)
        return;
    put_member(f, depth, first, "oneOf");
    fputc('[', f);
    for (unsigned i = 0; g->exactly_one[i]; i++) {
        fputs(i ? ", {\"required\": [" : "{\"required\": [", f);
        put_string(f, g->exactly_one[i]);
        fputs("]}", f);
    }
    fputc(']', f);
}

static void put_mapping(FILE *f, const struct config_group *g, unsigned depth, bool *first)
{
    bool first_key = true;

    put_member(f, depth, first, "type");
    fputs("\"object\"", f);
    put_member(f, depth, first, "additionalProperties");
    fputs("false", f);
    put_required(f, g, depth, first);
    put_exactly_one(f, g, depth, first);
    put_member(f, depth, first, "properties");
    fputc('{', f);
    for (const struct config_key *k = g->keys; k->name; k++) {
        put_member(f, depth + 1, &first_key, k->name);
        put_key(f, k, depth + 1);
    }
    put_indent(f, depth);
    fputc('}', f);
}

/* A mapping, or the scalar that stands for it. */
static void put_group(FILE *f, const struct config_group *g, unsigned depth, bool *first)
{
    bool first_inner = true;

    if (!g->shorthand) {
        put_mapping(f, g, depth, first);
        return;
    }
    put_member(f, depth, first, "anyOf");
    fputs("[{", f);
    put_scalar(f, config_key_find(g, g->shorthand, strlen(g->shorthand)), depth, &first_inner);
    put_indent(f, depth);
    fputs("}, {", f);
    first_inner = true;
    put_mapping(f, g, depth + 1, &first_inner);
    put_indent(f, depth);
    fputs("}]", f);
}

int config_schema_json(FILE *f)
{
    bool first = true;

    fputc('{', f);
    put_member(f, 1, &first, "$schema");
    put_string(f, "https://json-schema.org/draft/2020-12/schema");
    put_member(f, 1, &first, "title");
    put_string(f, "Millrace configuration");
    put_group(f, &config_root, 1, &first);
    fputs("\n}\n", f);
    return fflush(f) ? -errno : 0;
}
