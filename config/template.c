#include "config/template.h"

#include <string.h>
#include "config/schema.h"
#include "config/suggest.h"

static const struct {
    const char *name, *doc;
    enum template_where where;
} variables[CONFIG_VARIABLES] = {
#define REQUEST                     TEMPLATE_REQUEST
#define RESPONSE                    TEMPLATE_RESPONSE
#define LOCATION                    TEMPLATE_LOCATION
#define VARIABLE(name, where_, doc) [CONFIG_VAR_##name] = {#name, doc, where_},
#include "config/variable.def"
#undef VARIABLE
#undef REQUEST
#undef RESPONSE
#undef LOCATION
};

const char *template_variable_name(enum config_variable v)
{
    return variables[v].name;
}

const char *template_variable_doc(enum config_variable v)
{
    return variables[v].doc;
}

enum template_where template_variable_where(enum config_variable v)
{
    return variables[v].where;
}

const char *template_variables(enum template_where where, struct arena *a)
{
    const char *text = "";

    for (unsigned v = 1; v < CONFIG_VARIABLES; v++)
        if (variables[v].where & where)
            text = config_say(a, "%s%s${%s}", text, *text ? ", " : "", variables[v].name);
    return text;
}

static const char *unknown(const char *name, size_t len, enum template_where where, struct arena *a)
{
    struct suggest s;

    suggest_init(&s, name, len);
    for (unsigned v = 1; v < CONFIG_VARIABLES; v++)
        if (variables[v].where & where)
            suggest_offer(&s, variables[v].name);
    if (s.best)
        return config_say(a, "unknown variable %s (did you mean \"%s\"?)", yaml_quote(a, name, len),
                          s.best);
    return config_say(a, "unknown variable %s, expected one of %s", yaml_quote(a, name, len),
                      template_variables(where, a));
}

/* The variable that begins behind "${"; *ret_end behind its "}". */
static const char *find_variable(const char *name, const char *end, enum template_where where,
                                 struct arena *a, uint8_t *ret, const char **ret_end)
{
    const char *close = memchr(name, '}', (size_t)(end - name));
    size_t len = close ? (size_t)(close - name) : 0;

    if (!close)
        return "\"${\" has no \"}\"; write \"$$\" for a dollar sign";
    for (unsigned v = 1; v < CONFIG_VARIABLES; v++) {
        if (strlen(variables[v].name) != len || memcmp(variables[v].name, name, len))
            continue;
        if (!(variables[v].where & where))
            return config_say(a, "${%s} is not known here, expected one of %s", variables[v].name,
                              template_variables(where, a));
        *ret = (uint8_t)v;
        *ret_end = close + 1;
        return NULL;
    }
    return unknown(name, len, where, a);
}

/* Parts end with a variable; so there is one more at the most, of text alone. */
struct build {
    struct config_part parts[TEMPLATE_VARIABLES_MAX + 1];
    uint32_t n, variables;
    char *text; /* the literal ones, one after the other */
    char *at, *from;
};

static void end_part(struct build *b, uint8_t variable)
{
    b->parts[b->n++] = (struct config_part){b->from, (uint32_t)(b->at - b->from), variable};
    b->variables |= variable ? 1u << variable : 0;
    b->from = b->at;
}

static const char *split(struct build *b, const char *p, const char *end, enum template_where where,
                         struct arena *a)
{
    const char *fault;
    uint8_t v = CONFIG_VAR_none;

    while (p < end) {
        if (*p != '$' || p + 1 == end || (p[1] != '$' && p[1] != '{')) {
            *b->at++ = *p++;
            continue;
        }
        if (p[1] == '$') {
            *b->at++ = '$';
            p += 2;
            continue;
        }
        fault = find_variable(p + 2, end, where, a, &v, &p);
        if (fault)
            return fault;
        if (b->n == TEMPLATE_VARIABLES_MAX)
            return config_say(a, "expected at most %u variables", TEMPLATE_VARIABLES_MAX);
        end_part(b, v);
    }
    if (b->at > b->from)
        end_part(b, CONFIG_VAR_none);
    return NULL;
}

const char *template_parse(const char *text, size_t len, enum template_where where, struct arena *a,
                           struct config_template *ret)
{
    struct build b = {.text = arena_alloc(a, len + 1)};
    struct config_template t = {.text = arena_strndup(a, text, len)};
    const char *fault;

    if (!b.text || !t.text)
        return "out of memory";
    b.at = b.from = b.text;
    fault = split(&b, text, text + len, where, a);
    if (fault)
        return fault;
    t.parts = arena_array(a, b.n, sizeof(t.parts[0]));
    if (!t.parts)
        return "out of memory";
    if (b.n)
        memcpy(t.parts, b.parts, b.n * sizeof(t.parts[0]));
    t.nparts = b.n;
    t.variables = b.variables;
    *ret = t;
    return NULL;
}
