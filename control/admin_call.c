#include "control/admin_call.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#define ARGS_MAX 8

enum arg_kind { ARG_END, ARG_TEXT, ARG_NUMBER, ARG_CHOICE };

struct arg {
    const char *name;
    enum arg_kind kind;
    const char *const *choices;
    bool required;
};

struct verb {
    const char *name;
    struct arg args[ARGS_MAX];
};

static const char *const status_details[] = {"buckets", NULL};
static const char *const overrides_choices[] = {"keep", "drop", NULL};
static const char *const upstream_actions[] = {"drain", "undrain", "weight",
                                               "limit", "reset",   NULL};

#ifdef MILLRACE_DEBUG_VERBS
static const char *const misbehave_choices[] = {"compute", "sleep", NULL};
#endif

static const struct verb verbs[ADMIN_VERBS] = {
    [ADMIN_STATUS] = {"status", {{"detail", ARG_CHOICE, status_details, false}}},
    [ADMIN_RELOAD] = {"reload",
                      {{"if_version", ARG_NUMBER, NULL, false},
                       {"overrides", ARG_CHOICE, overrides_choices, false}}},
    [ADMIN_ROLLBACK] = {"rollback",
                        {{"version", ARG_NUMBER, NULL, false},
                         {"if_version", ARG_NUMBER, NULL, false},
                         {"overrides", ARG_CHOICE, overrides_choices, false}}},
    [ADMIN_UPSTREAM] = {"upstream",
                        {{"upstream", ARG_TEXT, NULL, true},
                         {"action", ARG_CHOICE, upstream_actions, true},
                         {"endpoint", ARG_TEXT, NULL, false},
                         {"key", ARG_TEXT, NULL, false},
                         {"value", ARG_TEXT, NULL, false},
                         {"if_version", ARG_NUMBER, NULL, false}}},
    [ADMIN_CONFIG] = {"config", {{NULL}}},
    [ADMIN_DRAIN] = {"drain", {{NULL}}},
    [ADMIN_STALLS] = {"stalls", {{NULL}}},
    [ADMIN_CONNS] = {"conns",
                     {{"listener", ARG_TEXT, NULL, false},
                      {"client", ARG_TEXT, NULL, false},
                      {"state", ARG_TEXT, NULL, false},
                      {"limit", ARG_NUMBER, NULL, false}}},
    [ADMIN_PING] = {"ping", {{NULL}}},
#ifdef MILLRACE_DEBUG_VERBS
    [ADMIN_MISBEHAVE] = {"misbehave",
                         {{"how", ARG_CHOICE, misbehave_choices, true},
                          {"core", ARG_NUMBER, NULL, true},
                          {"ms", ARG_NUMBER, NULL, true}}},
#endif
};

static const struct verb *find_verb(const char *name)
{
    for (int i = 0; i < ADMIN_VERBS; i++)
        if (strcmp(name, verbs[i].name) == 0)
            return &verbs[i];
    return NULL;
}

static const struct arg *find_arg(const struct verb *v, const char *name)
{
    for (const struct arg *a = v->args; a->name; a++)
        if (strcmp(name, a->name) == 0)
            return a;
    return NULL;
}

static bool is_choice(const struct arg *a, const char *text)
{
    for (const char *const *c = a->choices; text && *c; c++)
        if (strcmp(text, *c) == 0)
            return true;
    return false;
}

static const char *expected(const struct arg *a, const json_t *value)
{
    switch (a->kind) {
    case ARG_TEXT:
        return json_is_string(value) ? NULL : "a string";
    case ARG_NUMBER:
        return json_is_integer(value) && json_integer_value(value) >= 0 ? NULL : "a whole number";
    case ARG_CHOICE:
        return is_choice(a, json_string_value(value)) ? NULL : "one of its words";
    default:
        return NULL;
    }
}

static int wrong(char *err, size_t err_len, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

static int wrong(char *err, size_t err_len, const char *format, ...)
{
    va_list args;

    va_start(args, format);
    vsnprintf(err, err_len, format, args);
    va_end(args);
    return -EINVAL;
}

static int check_args(const struct verb *v, json_t *o, char *err, size_t err_len)
{
    const char *name;
    json_t *value;

    json_object_foreach(o, name, value)
    {
        const struct arg *a = find_arg(v, name);
        if (strcmp(name, "verb") == 0)
            continue;
        if (!a)
            return wrong(err, err_len, "verb \"%s\" takes no \"%.40s\"", v->name, name);
        const char *what = expected(a, value);
        if (what)
            return wrong(err, err_len, "verb \"%s\": \"%s\" must be %s", v->name, name, what);
    }
    for (const struct arg *a = v->args; a->name; a++)
        if (a->required && !json_object_get(o, a->name))
            return wrong(err, err_len, "verb \"%s\" needs \"%s\"", v->name, a->name);
    return 0;
}

static int check(json_t *o, struct admin_call *ret, char *err, size_t err_len)
{
    const char *name = json_string_value(json_object_get(o, "verb"));
    const struct verb *v = name ? find_verb(name) : NULL;

    if (!name)
        return wrong(err, err_len, "expected an object with a string \"verb\"");
    if (!v)
        return wrong(err, err_len, "unknown verb \"%.40s\"", name);
    int e = check_args(v, o, err, err_len);
    if (!e)
        *ret = (struct admin_call){(enum admin_verb)(v - verbs), o};
    return e;
}

int admin_parse(const char *line, size_t len, struct admin_call *ret, char *err, size_t err_len)
{
    json_error_t je;
    json_t *o = json_loadb(line, len, JSON_REJECT_DUPLICATES, &je);
    int e;

    if (!o)
        return wrong(err, err_len, "not a JSON object: %.120s", je.text);
    e = check(o, ret, err, err_len);
    if (e)
        json_decref(o);
    return e;
}

void admin_call_fini(struct admin_call *c)
{
    json_decref(c->args);
    c->args = NULL;
}

const char *admin_text(const struct admin_call *c, const char *name)
{
    return json_string_value(json_object_get(c->args, name));
}

bool admin_number(const struct admin_call *c, const char *name, uint64_t *ret)
{
    const json_t *v = json_object_get(c->args, name);

    if (!v)
        return false;
    *ret = (uint64_t)json_integer_value(v);
    return true;
}
