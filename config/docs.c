/* docs/config.md: the schema table for people. */
#include <errno.h>
#include <string.h>
#include "config/reference.h"
#include "config/schema.h"
#include "config/template.h"
#include "config/units.h"

static const char intro[] =
    "<!-- Generated from config/schema.c by `config_reference docs`; don't edit. -->\n"
    "# Configuration\n"
    "\n"
    "One YAML file. [examples/millrace.yaml](examples/millrace.yaml) is a whole one with "
    "comments.\n"
    "`millrace check --config FILE` tells everything that is wrong with a file; `millrace schema`\n"
    "prints a JSON Schema for editors, which is also in [config.schema.json](config.schema.json).\n"
    "\n"
    "## The language\n"
    "\n"
    "- Units are part of a value: `200ms`, `64KiB`. Whole numbers only: `1500ms`, not `1.5s`.\n"
    "- Unknown keys are errors, and so is a key that stands twice.\n"
    "- YAML without its traps: one document in UTF-8, at most 1 MiB, indented with spaces; no\n"
    "  anchors, aliases, merge keys, tags or directives. Quotes are never needed but where YAML\n"
    "  needs them (`\"*\"`, `\"*:8080\"`), and numbers and booleans have none.\n"
    "- All errors are told at once, a line each: `file:line:column: key: what was expected`.\n"
    "\n"
    "| value | form |\n"
    "|---|---|\n"
    "| duration | a whole number and `ns`, `us`, `ms`, `s`, `m` or `h`: `200ms`, `1s`, `2m` |\n"
    "| size | a whole number and `B`, `KiB`, `MiB` or `GiB`: `512B`, `64KiB`, `2GiB` |\n"
    "| percentage | a whole number and `%`: `20%` |\n"
    "| rate | a whole number and `/s`, `/m` or `/h`: `100/s`, `30/m` |\n"
    "| name | a letter, then letters, digits, `.`, `_`, `-`; at most 63 |\n"
    "| address | IPv4: `10.77.0.1/24`, `10.77.0.1:8080`, `*:8080`; no IPv6 and no host names yet "
    "|\n"
    "| network | `10.0.0.0/8`, `0.0.0.0/0`, or one address: `10.1.2.3` |\n"
    "\n"
    "## Changes while it runs\n"
    "\n"
    "The file is read again when it changes, on SIGHUP and by `millrace reload`. A file with an\n"
    "error changes nothing. Keys marked **live** take effect at once, on all cores or on none, "
    "and\n"
    "touch no connection. The others keep their old value until a restart, and the reload names\n"
    "them. Ports come and go with a restart only; listeners, routes and upstreams do so live: the\n"
    "connections of a listener that goes finish what they are at. A listener on an address that "
    "no\n"
    "running port has waits for a restart. How to reload, compare and go back: see\n"
    "[deploy.md](deploy.md#changing-the-configuration).\n";

static const char variables_intro[] =
    "\n"
    "## Variables\n"
    "\n"
    "Values of header fields and redirects are templates: `${name}` stands for what the table "
    "says.\n"
    "`$$` is a dollar sign. A template has at most 8 of them.\n"
    "\n"
    "| variable | stands for | in requests | in answers | in redirects |\n"
    "|---|---|---|---|---|\n";

static void put_variables(FILE *f)
{
    fputs(variables_intro, f);
    for (unsigned v = 1; v < CONFIG_VARIABLES; v++) {
        enum template_where where = template_variable_where(v);

        fprintf(f, "| `${%s}` | %s |", template_variable_name(v), template_variable_doc(v));
        fputs(where & TEMPLATE_REQUEST ? " yes |" : " |", f);
        fputs(where & TEMPLATE_RESPONSE ? " yes |" : " |", f);
        fputs(where & TEMPLATE_LOCATION ? " yes |\n" : " |\n", f);
    }
}

/* In a table's cell. */
static void put_cell(FILE *f, const char *text)
{
    for (; *text; text++)
        fprintf(f, *text == '|' ? "\\|" : "%c", *text);
}

static void put_range(FILE *f, const struct config_key *k)
{
    char lo[UNITS_TEXT_MAX], hi[UNITS_TEXT_MAX];
    void (*format)(uint64_t, char *) = k->type == &config_duration  ? units_format_duration
                                       : k->type == &config_size    ? units_format_size
                                       : k->type == &config_percent ? units_format_percent
                                                                    : units_format_integer;

    format(k->min, lo);
    format(k->max, hi);
    if (k->min == k->max)
        fprintf(f, ", %s", lo);
    else
        fprintf(f, ", %s to %s", lo, hi);
}

void config_docs_type(const struct config_key *k, const char *quote, FILE *f)
{
    if (k->kind == CONFIG_GROUP || k->kind == CONFIG_OPTIONAL) {
        fputs("mapping", f);
    } else if (k->kind == CONFIG_LIST) {
        fprintf(f, "list of mappings, %ju to %ju", (uintmax_t)k->min, (uintmax_t)k->max);
    } else if (k->kind == CONFIG_VALUES) {
        fprintf(f, "list of %s, %ju to %ju", k->type->plural, (uintmax_t)k->min, (uintmax_t)k->max);
    } else if (k->type == &config_choice) {
        for (unsigned i = 0; k->choices[i]; i++)
            fprintf(f, "%s%s%s%s", i ? ", " : "", quote, k->choices[i], quote);
    } else {
        fputs(k->type->name, f);
        if (k->max)
            put_range(f, k);
        for (unsigned i = 0; k->choices && k->choices[i]; i++)
            fprintf(f, ", %s%s%s", quote, k->choices[i], quote);
        if (k->word)
            fprintf(f, ", %s%s%s", quote, k->word, quote);
    }
}

const char *config_docs_change(const struct config_key *k)
{
    if (k->kind == CONFIG_OPTIONAL)
        return k->frozen ? "come and go: restart" : NULL;
    if (k->kind == CONFIG_GROUP)
        return NULL;
    return k->frozen ? "restart" : k->may_wait ? "live, or restart" : "live";
}

static void put_change(FILE *f, const struct config_key *k)
{
    const char *change = config_docs_change(k);

    if (change && !strncmp(change, "live", 4))
        fprintf(f, "**live**%s", change + 4);
    else if (change)
        fputs(change, f);
}

static void put_key(FILE *f, const struct config_key *k)
{
    fprintf(f, "| `%s` | ", k->name);
    config_docs_type(k, "`", f);
    fputs(" | ", f);
    if (k->required)
        fputs("required", f);
    else if (k->initial && k->kind == CONFIG_VALUE)
        fprintf(f, "`%s`", k->initial);
    fputs(" | ", f);
    put_change(f, k);
    fputs(" | ", f);
    put_cell(f, k->doc);
    if (k->example && k->required)
        fprintf(f, " Example: `%s`.", k->example);
    fputs(" |\n", f);
}

static void put_group(FILE *f, const struct config_group *g, const char *path)
{
    char below[256];

    if (*path)
        fprintf(f, "\n## `%s`\n\n%s\n", path, g->doc);
    else
        fputs("\n## The whole file\n", f);
    if (g->exactly_one)
        fprintf(f, "\nExactly one of `%s` and `%s`.\n", g->exactly_one[0], g->exactly_one[1]);
    if (g->shorthand)
        fprintf(f, "\nA plain value instead of the mapping is its `%s`.\n", g->shorthand);
    fputs("\n| key | value | default | change | meaning |\n|---|---|---|---|---|\n", f);
    for (const struct config_key *k = g->keys; k->name; k++)
        put_key(f, k);
    for (const struct config_key *k = g->keys; k->name; k++) {
        if (!k->group)
            continue;
        snprintf(below, sizeof(below), "%s%s%s%s", path, *path ? "." : "", k->name,
                 k->kind == CONFIG_LIST ? "[]" : "");
        put_group(f, k->group, below);
    }
}

int config_docs_markdown(FILE *f)
{
    fputs(intro, f);
    put_variables(f);
    put_group(f, &config_root, "");
    return fflush(f) ? -errno : 0;
}
