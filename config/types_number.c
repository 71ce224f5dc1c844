/* Numbers, with and without units, booleans and choices. */
#include <errno.h>
#include <string.h>
#include "config/schema.h"
#include "config/snapshot.h"
#include "config/suggest.h"
#include "config/units.h"

/* What people write instead of a unit, so that the message can name the right one. */
struct unit_alias {
    const char *wrong, *right;
};

static const struct unit_alias duration_aliases[] = {
    {"", "s"},      {"sec", "s"},    {"secs", "s"},    {"second", "s"}, {"seconds", "s"},
    {"msec", "ms"}, {"msecs", "ms"}, {"millis", "ms"}, {"usec", "us"},  {"min", "m"},
    {"mins", "m"},  {"minute", "m"}, {"minutes", "m"}, {"hr", "h"},     {"hour", "h"},
    {"hours", "h"}, {"S", "s"},      {"M", "m"},       {"H", "h"},      {"MS", "ms"},
    {NULL, NULL},
};
static const struct unit_alias size_aliases[] = {
    {"", "B"},     {"b", "B"},    {"bytes", "B"}, {"k", "KiB"},  {"K", "KiB"}, {"kb", "KiB"},
    {"kB", "KiB"}, {"KB", "KiB"}, {"kib", "KiB"}, {"Ki", "KiB"}, {"m", "MiB"}, {"M", "MiB"},
    {"mb", "MiB"}, {"MB", "MiB"}, {"mib", "MiB"}, {"Mi", "MiB"}, {"g", "GiB"}, {"G", "GiB"},
    {"gb", "GiB"}, {"GB", "GiB"}, {"gib", "GiB"}, {"Gi", "GiB"}, {NULL, NULL},
};

static const struct unit_alias percent_aliases[] = {
    {"", "%"},
    {"percent", "%"},
    {"pct", "%"},
    {NULL, NULL},
};

struct number_form {
    int (*parse)(const char *text, size_t len, uint64_t *ret);
    void (*format)(uint64_t value, char text[UNITS_TEXT_MAX]);
    const struct unit_alias *aliases;
};

static const char *guess_unit(const struct number_form *form, const struct yaml_node *n,
                              struct arena *a)
{
    size_t digits = strspn(n->text, "0123456789");
    size_t spaces = strspn(n->text + digits, " ");
    const char *unit = n->text + digits + spaces;
    uint64_t value;

    if (!digits || digits > 20 || !form->aliases)
        return "";
    for (const struct unit_alias *u = form->aliases; u->wrong; u++)
        if (!strcmp(unit, u->wrong))
            unit = u->right;
    const char *guess = config_say(a, "%.*s%s", (int)digits, n->text, unit);
    if (form->parse(guess, strlen(guess), &value) || !strcmp(guess, n->text))
        return "";
    return config_say(a, " (did you mean \"%s\"?)", guess);
}

static const char *or_word(const struct config_key *k, struct arena *a)
{
    return k->word ? config_say(a, " or %s", k->word) : "";
}

static const char *parse_number(const struct config_key *k, const struct number_form *form,
                                const struct yaml_node *n, struct arena *a, void *field)
{
    char lo[UNITS_TEXT_MAX], hi[UNITS_TEXT_MAX];
    uint64_t value;
    int rc;

    if (k->word && !strcmp(n->text, k->word)) {
        config_store(field, k->width, k->word_value);
        return NULL;
    }
    rc = form->parse(n->text, n->len, &value);
    if (rc == -EINVAL)
        return config_say(a, "expected %s%s, found %s%s", k->type->expected, or_word(k, a),
                          yaml_quote(a, n->text, n->len), guess_unit(form, n, a));
    if (rc || value < k->min || value > k->max) {
        form->format(k->min, lo);
        form->format(k->max, hi);
        if (k->min == k->max)
            return config_say(a, "expected %s, found %s", lo, n->text);
        return config_say(a, "expected %s to %s%s, found %s", lo, hi, or_word(k, a),
                          yaml_quote(a, n->text, n->len));
    }
    config_store(field, k->width, value);
    return NULL;
}

static void format_number(const struct config_key *k, const struct number_form *form,
                          const void *field, FILE *f)
{
    char text[UNITS_TEXT_MAX];
    uint64_t value = config_fetch(field, k->width);

    if (k->word && value == k->word_value) {
        fputs(k->word, f);
        return;
    }
    form->format(value, text);
    fputs(text, f);
}

static const struct number_form integer_form = {units_parse_integer, units_format_integer, NULL};
static const struct number_form duration_form = {units_parse_duration, units_format_duration,
                                                 duration_aliases};
static const struct number_form size_form = {units_parse_size, units_format_size, size_aliases};
static const struct number_form percent_form = {units_parse_percent, units_format_percent,
                                                percent_aliases};

#define NUMBER(type)                                                                               \
    static const char *parse_##type(const struct config_key *k, const struct yaml_node *n,         \
                                    struct arena *a, void *field)                                  \
    {                                                                                              \
        return parse_number(k, &type##_form, n, a, field);                                         \
    }                                                                                              \
    static void format_##type(const struct config_key *k, const void *field, FILE *f)              \
    {                                                                                              \
        format_number(k, &type##_form, field, f);                                                  \
    }
NUMBER(integer)
NUMBER(duration)
NUMBER(size)
NUMBER(percent)
#undef NUMBER

const struct config_type config_integer = {.name = "number",
                                           .expected = "a whole number",
                                           .plain = true,
                                           .parse = parse_integer,
                                           .format = format_integer};

const struct config_type config_duration = {.name = "duration",
                                            .expected = "a duration such as 200ms, 1s, 2m or 1h",
                                            .pattern = "^(0|[1-9][0-9]*)(ns|us|ms|s|m|h)$",
                                            .parse = parse_duration,
                                            .format = format_duration};

const struct config_type config_size = {.name = "size",
                                        .expected = "a size such as 512B, 64KiB, 1MiB or 2GiB",
                                        .pattern = "^(0|[1-9][0-9]*)(B|KiB|MiB|GiB)$",
                                        .parse = parse_size,
                                        .format = format_size};

const struct config_type config_percent = {.name = "percentage",
                                           .expected = "a percentage such as 20%",
                                           .pattern = "^(0|[1-9][0-9]*)%$",
                                           .parse = parse_percent,
                                           .format = format_percent};

/* Members of a list, so the key's range is that of the list's length. */
static const char *parse_cpu(const struct config_key *k, const struct yaml_node *n, struct arena *a,
                             void *field)
{
    uint64_t value;

    if (units_parse_integer(n->text, n->len, &value) || value > 1023)
        return config_say(a, "expected %s, found %s", k->type->expected,
                          yaml_quote(a, n->text, n->len));
    config_store(field, k->width, value);
    return NULL;
}

static void format_cpu(const struct config_key *k, const void *field, FILE *f)
{
    fprintf(f, "%ju", (uintmax_t)config_fetch(field, k->width));
}

const struct config_type config_cpu = {.name = "CPU number",
                                       .plural = "CPU numbers",
                                       .expected = "a CPU number, 0 to 1023",
                                       .plain = true,
                                       .parse = parse_cpu,
                                       .format = format_cpu};

/* "200" or "200-299". */
static const char *parse_status_range(const struct config_key *k, const struct yaml_node *n,
                                      struct arena *a, void *field)
{
    struct config_statuses *range = field;
    const char *dash = memchr(n->text, '-', n->len);
    size_t len = dash ? (size_t)(dash - n->text) : n->len;
    uint64_t lo, hi;

    if (units_parse_integer(n->text, len, &lo) || lo < 100 || lo > 599)
        goto wrong;
    hi = lo;
    if (dash && (units_parse_integer(dash + 1, n->len - len - 1, &hi) || hi < lo || hi > 599))
        goto wrong;
    range->lo = lo;
    range->hi = hi;
    return NULL;
wrong:
    return config_say(a, "expected %s, found %s", k->type->expected,
                      yaml_quote(a, n->text, n->len));
}

static void format_status_range(const struct config_key *k, const void *field, FILE *f)
{
    const struct config_statuses *range = field;

    fprintf(f, "%u", range->lo);
    if (range->hi != range->lo)
        fprintf(f, "-%u", range->hi);
}

const struct config_type config_status_range = {
    .name = "status",
    .plural = "statuses or ranges of them",
    .expected = "a status or a range of them such as 200 or 200-299, from 100 to 599",
    .pattern = "^[1-5][0-9]{2}(-[1-5][0-9]{2})?$",
    .parse = parse_status_range,
    .format = format_status_range};

static const char *parse_boolean(const struct config_key *k, const struct yaml_node *n,
                                 struct arena *a, void *field)
{
    bool value = !strcmp(n->text, "true");
    const char *guess = "";

    if (!value && strcmp(n->text, "false")) {
        if (!strcmp(n->text, "yes") || !strcmp(n->text, "on"))
            guess = " (did you mean \"true\"?)";
        else if (!strcmp(n->text, "no") || !strcmp(n->text, "off"))
            guess = " (did you mean \"false\"?)";
        return config_say(a, "expected true or false, found %s%s", yaml_quote(a, n->text, n->len),
                          guess);
    }
    config_store(field, k->width, value);
    return NULL;
}

static void format_boolean(const struct config_key *k, const void *field, FILE *f)
{
    fputs(config_fetch(field, k->width) ? "true" : "false", f);
}

const struct config_type config_boolean = {.name = "boolean",
                                           .expected = "true or false",
                                           .plain = true,
                                           .parse = parse_boolean,
                                           .format = format_boolean};

static const char *list_choices(const struct config_key *k, struct arena *a)
{
    const char *text = k->choices[0];

    for (unsigned i = 1; k->choices[i]; i++)
        text = config_say(a, "%s%s%s", text, k->choices[i + 1] ? ", " : " or ", k->choices[i]);
    return text;
}

static const char *parse_choice(const struct config_key *k, const struct yaml_node *n,
                                struct arena *a, void *field)
{
    struct suggest s;

    suggest_init(&s, n->text, n->len);
    for (unsigned i = 0; k->choices[i]; i++) {
        if (!strcmp(n->text, k->choices[i])) {
            config_store(field, k->width, i);
            return NULL;
        }
        suggest_offer(&s, k->choices[i]);
    }
    return config_say(a, "expected %s, found %s%s", list_choices(k, a),
                      yaml_quote(a, n->text, n->len),
                      s.best ? config_say(a, " (did you mean \"%s\"?)", s.best) : "");
}

static void format_choice(const struct config_key *k, const void *field, FILE *f)
{
    fputs(k->choices[config_fetch(field, k->width)], f);
}

const struct config_type config_choice = {
    .name = "choice", .expected = "a word", .parse = parse_choice, .format = format_choice};
