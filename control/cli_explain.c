/* `millrace explain KEY`: what the schema says, what runs, and where that is from. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "config/load.h"
#include "config/origins.h"
#include "config/place.h"
#include "config/reference.h"
#include "control/cli_online.h"

static const char *text(const json_t *o, const char *key)
{
    return json_string_value(json_object_get(o, key));
}

/* --- the schema ----------------------------------------------------------------------------------
 */

static json_t *type_of(const struct config_key *k)
{
    char *words = NULL;
    size_t len;
    FILE *f = open_memstream(&words, &len);
    json_t *t;

    if (!f)
        return NULL;
    config_docs_type(k, "", f);
    t = fclose(f) ? NULL : json_string(words);
    free(words);
    return t;
}

static json_t *key_to_json(const char *name, const struct config_key *k)
{
    json_t *o = json_pack("{s:s, s:o*, s:b, s:s}", "key", name, "type", type_of(k), "required",
                          k->required, "doc", k->doc);

    if (k->initial)
        json_object_set_new(o, "default", json_string(k->initial));
    if (config_docs_change(k))
        json_object_set_new(o, "change", json_string(config_docs_change(k)));
    if (k->example)
        json_object_set_new(o, "example", json_string(k->example));
    return o;
}

static json_t *explain(const char *path, const struct config_key *k)
{
    json_t *o = key_to_json(path, k), *below = json_array();

    for (const struct config_key *x = k->group ? k->group->keys : NULL; x && x->name; x++)
        json_array_append_new(below, key_to_json(x->name, x));
    json_object_set_new(o, "keys", below);
    json_object_set_new(o, "values", json_array());
    return o;
}

/* --- values --------------------------------------------------------------------------------------
 */

struct values {
    json_t *list; /* of the answer */
    const char *source;
    const json_t *overrides;
};

static void add_value(void *ctx, const char *path, const char *value, unsigned line, unsigned col)
{
    struct values *v = ctx;
    json_t *o = json_pack("{s:s, s:s}", "key", path, "value", value);

    if (line)
        json_object_set_new(o, "from", json_sprintf("%s:%u:%u", v->source, line, col));
    else
        json_object_set_new(o, "from", json_string("default"));
    json_array_append_new(v->list, o);
}

static json_t *find_value(json_t *list, const char *path)
{
    json_t *o;
    size_t i;

    json_array_foreach(list, i, o)
    {
        if (strcmp(text(o, "key"), path) == 0)
            return o;
    }
    return NULL;
}

static const char *override_of(const struct values *v, const char *path)
{
    const json_t *o;
    size_t i;

    json_array_foreach(v->overrides, i, o)
    {
        if (strcmp(text(o, "key"), path) == 0)
            return text(o, "value");
    }
    return NULL;
}

/* What runs, over what the source says: they differ by overrides, and by what waits for a restart.
 */
static void add_running(void *ctx, const char *path, const char *value, unsigned line, unsigned col)
{
    struct values *v = ctx;
    json_t *o = find_value(v->list, path);

    if (!o) {
        o = json_pack("{s:s, s:s, s:s}", "key", path, "value", value, "from", "before");
        json_array_append_new(v->list, o);
        return;
    }
    json_object_set_new(o, "runs", json_true());
    if (strcmp(text(o, "value"), value) == 0)
        return;
    json_object_set(o, "configured", json_object_get(o, "value"));
    json_object_set(o, "configured_at", json_object_get(o, "from"));
    json_object_set_new(o, "value", json_string(value));
    json_object_set_new(o, "from", json_string(override_of(v, path) ? "override" : "before"));
}

/* Not even in what runs: it waits for a restart. */
static void mark_waiting(json_t *list)
{
    json_t *o;
    size_t i;

    json_array_foreach(list, i, o)
    {
        if (!json_is_true(json_object_get(o, "runs")) && strcmp(text(o, "from"), "before") != 0)
            json_object_set_new(o, "waits", json_true());
        json_object_del(o, "runs");
    }
}

static int add_values(const char *path, const char *name, const char *bytes, struct values *v,
                      config_origin_fn *each)
{
    struct config_errors errs;

    config_errors_init(&errs);
    int e = config_load_origins(name, bytes, strlen(bytes), path, v, each, &errs);
    if (e)
        config_check_report(stderr, &errs);
    config_errors_fini(&errs);
    return e ? 1 : 0;
}

static int add_online(const char *path, const json_t *config, json_t *answer)
{
    struct values v = {json_object_get(answer, "values"), text(config, "path"),
                       json_object_get(config, "overrides")};

    json_object_set(answer, "version", json_object_get(config, "version"));
    int e = add_values(path, v.source, text(config, "text"), &v, add_value);
    if (!e)
        e = add_values(path, "(running)", text(config, "running"), &v, add_running);
    mark_waiting(v.list);
    return e;
}

static int add_offline(const struct cli_options *o, const char *path, json_t *answer)
{
    struct values v = {json_object_get(answer, "values"), o->config, NULL};
    struct config_errors errs;
    char *bytes = NULL;
    size_t len;

    config_errors_init(&errs);
    int e = config_read_file(o->config, &bytes, &len, &errs);
    if (!e)
        e = config_load_origins(o->config, bytes, len, path, &v, add_value, &errs);
    if (e)
        config_check_report(stderr, &errs);
    config_errors_fini(&errs);
    free(bytes);
    return e ? 1 : 0;
}

/* --- for people ----------------------------------------------------------------------------------
 */

static void print_key(const json_t *k, const char *indent)
{
    printf("%s%s: %s", indent, text(k, "key"), text(k, "type"));
    if (json_is_true(json_object_get(k, "required")))
        printf("; required");
    if (text(k, "default"))
        printf("; default %s", text(k, "default"));
    if (text(k, "change"))
        printf("; %s", text(k, "change"));
    printf("\n%s  %s\n", indent, text(k, "doc"));
}

static void print_value(const json_t *x)
{
    const char *from = text(x, "from"), *value = text(x, "value");

    printf("  %s: %s", text(x, "key"), *value ? value : "(none)");
    if (strcmp(from, "override") == 0)
        printf("  (set by hand; %s says %s)\n", text(x, "configured_at"), text(x, "configured"));
    else if (strcmp(from, "before") == 0 && text(x, "configured"))
        printf("  (until a restart; %s says %s)\n", text(x, "configured_at"),
               text(x, "configured"));
    else if (strcmp(from, "before") == 0)
        printf("  (until a restart; gone from the file)\n");
    else if (json_is_true(json_object_get(x, "waits")))
        printf("  (%s; waits for a restart)\n", from);
    else
        printf("  (%s)\n", from);
}

static void print_answer(const json_t *a, const char *title)
{
    const json_t *x, *values = json_object_get(a, "values");
    size_t i;

    print_key(a, "");
    if (text(a, "example"))
        printf("  Example: %s\n", text(a, "example"));
    if (json_array_size(json_object_get(a, "keys")))
        printf("\nkeys:\n");
    json_array_foreach(json_object_get(a, "keys"), i, x) print_key(x, "  ");
    if (json_array_size(values))
        printf("\n%s:\n", title);
    json_array_foreach(values, i, x) print_value(x);
}

/* The running instance's, if there is one; else the file's, if one was named. */
static int add_what_there_is(const struct cli_options *o, const char *path, json_t *answer,
                             const char **ret_title)
{
    json_t *online = cli_answer(o, cli_request("config"), !o->socket);
    const json_t *config = json_object_get(online, "result");
    int status = 0;

    if (config) {
        *ret_title = "running";
        status = add_online(path, config, answer);
    } else if (online) {
        cli_print_refusal(online);
        status = 1;
    } else if (o->socket) {
        status = 1;
    } else if (o->config_given) {
        *ret_title = "in the file (nothing runs)";
        status = add_offline(o, path, answer);
    }
    json_decref(online);
    return status;
}

int cli_explain(const struct cli_options *o)
{
    const char *path = o->nwords ? o->words[0] : NULL, *title = "";
    const struct config_key *k;
    char err[256];

    if (!path)
        return cli_misused("explain", "KEY, such as upstreams[app].timeouts.connect");
    k = config_place_key(path, err, sizeof(err));
    if (!k) {
        fprintf(stderr, "millrace: %s\n", err);
        return 1;
    }
    json_t *answer = explain(path, k);
    int status = add_what_there_is(o, path, answer, &title);
    if (o->json)
        cli_print_json(answer);
    else
        print_answer(answer, title);
    json_decref(answer);
    return status;
}
