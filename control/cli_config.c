/* The verbs that look at configurations: of files, and of what runs. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "config/diff.h"
#include "config/load.h"
#include "control/budgets.h"
#include "control/certs.h"
#include "control/cli_online.h"
#include "control/publish.h"

static json_t *errors_to_json(const struct config_errors *errs)
{
    json_t *a = json_array();

    for (unsigned i = 0; i < errs->count; i++)
        json_array_append_new(a, json_string(errs->list[i].text));
    return a;
}

/* 0, or 1 with all errors told. */
static int load_file(const struct cli_options *o, const char *path, struct snapshot **ret)
{
    struct config_host host = {.tls = certs_checker(false)};
    struct config_errors errs;

    config_errors_init(&errs);
    int e = config_load_file_for(path, &host, ret, &errs);
    if (e && o->json) {
        json_t *answer =
            json_pack("{s:b, s:s, s:o, s:I}", "ok", 0, "error", "the configuration is wrong",
                      "errors", errors_to_json(&errs), "more_errors", (json_int_t)errs.more);
        cli_print_json(answer);
        json_decref(answer);
    } else if (e) {
        config_check_report(stderr, &errs);
    }
    config_errors_fini(&errs);
    return e ? 1 : 0;
}

static void print_check(const struct cli_options *o, const struct snapshot *s)
{
    if (o->json) {
        json_t *answer =
            json_pack("{s:b, s:I, s:I, s:I}", "ok", 1, "ports", (json_int_t)s->nports, "listeners",
                      (json_int_t)s->nlisteners, "upstreams", (json_int_t)s->nupstreams);
        cli_print_json(answer);
        json_decref(answer);
        return;
    }
    printf("%s: good: %zu port%s, %zu listener%s, %zu upstream%s\n", o->config, s->nports,
           s->nports == 1 ? "" : "s", s->nlisteners, s->nlisteners == 1 ? "" : "s", s->nupstreams,
           s->nupstreams == 1 ? "" : "s");
    if (o->budget)
        budgets_print(s, stdout);
}

int cli_check(const struct cli_options *o)
{
    struct snapshot *s = NULL;

    if (load_file(o, o->config, &s))
        return 1;
    print_check(o, s);
    snapshot_free(s);
    return 0;
}

static int print_config(const json_t *r)
{
    fputs(json_string_value(json_object_get(r, "running")), stdout);
    return 0;
}

int cli_config(const struct cli_options *o)
{
    return cli_simple(o, cli_request("config"), print_config);
}

/* --- diff ----------------------------------------------------------------------------------------
 */

static void print_diff_json(const struct config_diff *d)
{
    json_t *changes = json_array();

    for (size_t i = 0; i < d->nchanges; i++) {
        const struct config_change *c = &d->changes[i];
        json_array_append_new(changes, json_pack("{s:s, s:s, s:s, s:b}", "key", c->key, "from",
                                                 c->from, "to", c->to, "live", c->live));
    }
    json_t *o =
        json_pack("{s:o, s:I}", "changes", changes, "needs_restart", (json_int_t)d->nfrozen);
    cli_print_json(o);
    json_decref(o);
}

static int print_diff(const struct cli_options *o, const struct snapshot *before,
                      const struct snapshot *after)
{
    struct config_diff d;
    char *text;

    if (config_diff(before, after, &d)) {
        fprintf(stderr, "millrace: out of memory\n");
        return 1;
    }
    text = publish_diff_text(&d);
    if (o->json)
        print_diff_json(&d);
    else if (text)
        fputs(*text ? text : "no difference\n", stdout);
    free(text);
    config_diff_fini(&d);
    return 0;
}

/* What the file would change is told against what runs without the overrides. */
static struct snapshot *load_running(const struct cli_options *o)
{
    json_t *answer = cli_answer(o, cli_request("config"), false);
    const char *base =
        json_string_value(json_object_get(json_object_get(answer, "result"), "base"));
    struct config_errors errs;
    struct snapshot *s = NULL;

    if (answer && !base)
        cli_print_refusal(answer);
    config_errors_init(&errs);
    if (base && config_load_written("(running)", base, strlen(base), &s, &errs)) {
        config_check_report(stderr, &errs);
        fprintf(stderr, "millrace: what runs is no configuration to this command: is it of "
                        "another version?\n");
    }
    config_errors_fini(&errs);
    json_decref(answer);
    return s;
}

int cli_diff(const struct cli_options *o)
{
    struct snapshot *before = NULL, *after = NULL;
    int status = 1;

    if (o->nwords == 1)
        return cli_misused("diff", "[OLD NEW]");
    if (load_file(o, o->nwords ? o->words[1] : o->config, &after))
        return 1;
    if (o->nwords)
        load_file(o, o->words[0], &before);
    else
        before = load_running(o);
    if (before)
        status = print_diff(o, before, after);
    snapshot_free(before);
    snapshot_free(after);
    return status;
}
