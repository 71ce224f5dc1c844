/* The verbs that change what runs. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "control/cli_online.h"

static long long integer(const json_t *o, const char *key)
{
    return (long long)json_integer_value(json_object_get(o, key));
}

static const char *text(const json_t *o, const char *key)
{
    const char *s = json_string_value(json_object_get(o, key));

    return s ? s : "";
}

static void print_changes(const json_t *r, bool live)
{
    const json_t *c;
    size_t i;

    json_array_foreach(json_object_get(r, "changes"), i, c)
    {
        if (json_is_true(json_object_get(c, "live")) == live)
            printf("  %s: %s -> %s\n", text(c, "key"), text(c, "from"), text(c, "to"));
    }
}

static void print_overrides(const json_t *r)
{
    const json_t *dropped = json_object_get(r, "overrides_dropped"), *x;
    size_t i;

    if (integer(r, "overrides"))
        printf("overrides in force: %lld (`millrace status` lists them)\n",
               integer(r, "overrides"));
    if (json_array_size(dropped))
        printf("overrides dropped:\n");
    json_array_foreach(dropped, i, x)
    {
        printf("  %s: %s\n", text(x, "key"), text(x, "value"));
    }
}

static int print_acknowledged(const json_t *r)
{
    const json_t *cores = json_object_get(r, "waiting_cores"), *core;
    size_t i;

    if (!json_is_false(json_object_get(r, "acknowledged")))
        return 0;
    fflush(stdout);
    fprintf(stderr, "millrace: not every core has taken it yet; still waiting:");
    json_array_foreach(cores, i, core)
    {
        fprintf(stderr, " core %lld", (long long)json_integer_value(core));
    }
    fprintf(stderr, "\n");
    return 1;
}

static int print_change(const json_t *r)
{
    long long version = integer(r, "version");

    if (json_is_true(json_object_get(r, "changed")))
        printf("version %lld is published\n", version);
    else
        printf("nothing to change at once; version %lld goes on\n", version);
    print_changes(r, true);
    if (integer(r, "needs_restart")) {
        printf("needs a restart, the old value stays until then:\n");
        print_changes(r, false);
    }
    print_overrides(r);
    return print_acknowledged(r);
}

static json_t *change(const struct cli_options *o, const char *verb)
{
    json_t *request = cli_request(verb);

    if (o->has_if_version)
        json_object_set_new(request, "if_version", json_integer((json_int_t)o->if_version));
    if (o->keep_overrides || o->drop_overrides)
        json_object_set_new(request, "overrides", json_string(o->drop_overrides ? "drop" : "keep"));
    return request;
}

int cli_reload(const struct cli_options *o)
{
    return cli_simple(o, change(o, "reload"), print_change);
}

/* --- rollback ------------------------------------------------------------------------------------
 */

static int print_rollback(const json_t *r)
{
    int status;

    if (json_object_get(r, "repeats"))
        printf("back to the configuration of version %lld; ", integer(r, "repeats"));
    status = print_change(r);
    printf("the file is as it was: its next reload brings back what it says\n");
    return status;
}

static void print_version(const json_t *e, bool is_last)
{
    time_t at = (time_t)(integer(e, "taken_at_ms") / 1000);
    char when[64] = "?";
    struct tm tm;

    if (localtime_r(&at, &tm))
        strftime(when, sizeof(when), "%Y-%m-%d %H:%M:%S", &tm);
    printf("%8lld  %s", integer(e, "version"), when);
    if (json_object_get(e, "repeats"))
        printf("  as version %lld", integer(e, "repeats"));
    printf("%s\n", is_last ? "  (in force)" : "");
}

static int list_versions(const struct cli_options *o)
{
    json_t *answer = cli_answer(o, cli_request("config"), false);
    const json_t *list = json_object_get(json_object_get(answer, "result"), "history"), *e;
    bool good = cli_is_good(answer);
    size_t i;

    if (!answer)
        return 1;
    if (!good)
        cli_print_refusal(answer);
    else if (o->json)
        cli_print_json(list);
    else
        json_array_foreach(list, i, e) print_version(e, i + 1 == json_array_size(list));
    json_decref(answer);
    return good ? 0 : 1;
}

int cli_rollback(const struct cli_options *o)
{
    json_t *request;
    char *end = NULL;

    if (o->list)
        return list_versions(o);
    request = change(o, "rollback");
    if (o->nwords) {
        unsigned long long version = strtoull(o->words[0], &end, 10);
        if (*end || !version || o->words[0][0] == '-') {
            json_decref(request);
            return cli_misused("rollback", "[VERSION]: a number, see --list");
        }
        json_object_set_new(request, "version", json_integer((json_int_t)version));
    }
    return cli_simple(o, request, print_rollback);
}

/* --- upstream ------------------------------------------------------------------------------------
 */

struct action {
    const char *name;
    const char *args[2]; /* as the request calls them */
    unsigned required;
};

static const struct action actions[] = {
    {"drain", {"endpoint"}, 0},           {"undrain", {"endpoint"}, 0},
    {"weight", {"endpoint", "value"}, 2}, {"limit", {"key", "value"}, 2},
    {"reset", {"endpoint"}, 0},
};

static const struct action *find_action(const char *name)
{
    for (size_t i = 0; i < sizeof(actions) / sizeof(actions[0]); i++)
        if (strcmp(actions[i].name, name) == 0)
            return &actions[i];
    return NULL;
}

int cli_upstream(const struct cli_options *o)
{
    const struct action *a = o->nwords >= 2 ? find_action(o->words[1]) : NULL;
    unsigned most = a ? 1 + (a->args[1] != NULL) : 0;

    if (!a || o->nwords - 2 < a->required || o->nwords - 2 > most)
        return cli_misused("upstream", "NAME drain|undrain|reset [ENDPOINT], NAME weight ENDPOINT "
                                       "N, NAME limit KEY VALUE");
    json_t *request = change(o, "upstream");
    json_object_set_new(request, "upstream", json_string(o->words[0]));
    json_object_set_new(request, "action", json_string(a->name));
    for (unsigned i = 2; i < o->nwords; i++)
        json_object_set_new(request, a->args[i - 2], json_string(o->words[i]));
    return cli_simple(o, request, print_change);
}
