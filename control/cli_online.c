#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "config/load.h"
#include "control/cli.h"
#include "control/client.h"
#include "control/status_json.h"

#define ANSWER_MS 10000

/* --socket, else what the configuration says, else the default. A configuration that is wrong (one
 * may be about to reload it) is no hindrance. The result is malloc()ed. */
static char *socket_path(const struct cli_options *o)
{
    struct config_errors errs;
    struct snapshot *s = NULL;
    char *path = NULL;

    if (o->socket)
        return strdup(o->socket);
    config_errors_init(&errs);
    if (config_load_file(o->config, &s, &errs) == 0 && s->admin.socket)
        path = strdup(s->admin.socket);
    snapshot_free(s);
    config_errors_fini(&errs);
    return path ? path : strdup(CLI_DEFAULT_SOCKET);
}

/* Connects and sends. NULL after a line on stderr. */
static struct client *ask(const struct cli_options *o, const char *verb)
{
    char err[512], *path = socket_path(o);
    struct client *c = NULL;

    if (!path || client_connect(path, &c, err, sizeof(err)) ||
        client_send_verb(c, verb, err, sizeof(err))) {
        fprintf(stderr, "millrace: %s\n", path ? err : "out of memory");
        client_close(c);
        c = NULL;
    }
    free(path);
    return c;
}

static json_t *receive(struct client *c, int timeout_ms)
{
    char err[256];
    json_t *o = NULL;

    if (client_receive(c, timeout_ms, &o, err, sizeof(err))) {
        fprintf(stderr, "millrace: %s\n", err);
        return NULL;
    }
    return o;
}

static bool is_good(const json_t *answer)
{
    return json_is_true(json_object_get(answer, "ok"));
}

static void print_refusal(const json_t *answer)
{
    const char *error = json_string_value(json_object_get(answer, "error"));
    const json_t *e;
    size_t i;

    json_array_foreach(json_object_get(answer, "errors"), i, e)
    {
        fprintf(stderr, "%s\n", json_string_value(e));
    }
    fprintf(stderr, "millrace: refused: %s\n", error ? error : "no reason given");
}

/* One question, one answer: prints it as JSON, or leaves it to `print`. */
static int simple(const struct cli_options *o, const char *verb, void (*print)(const json_t *r))
{
    struct client *c = ask(o, verb);
    json_t *answer = c ? receive(c, ANSWER_MS) : NULL;
    bool good = is_good(answer);

    client_close(c);
    if (!answer)
        return 1;
    if (o->json) {
        json_dumpf(good ? json_object_get(answer, "result") : answer, stdout, JSON_INDENT(2));
        printf("\n");
    } else if (good) {
        print(json_object_get(answer, "result"));
    } else {
        print_refusal(answer);
    }
    json_decref(answer);
    return good ? 0 : 1;
}

static void print_status(const json_t *r)
{
    status_print(r, stdout);
}

int cli_status(const struct cli_options *o)
{
    return simple(o, "status", print_status);
}

static void print_changes(const json_t *r, bool live)
{
    const json_t *c;
    size_t i;

    json_array_foreach(json_object_get(r, "changes"), i, c)
    {
        if (json_is_true(json_object_get(c, "live")) == live)
            printf("  %s: %s -> %s\n", json_string_value(json_object_get(c, "key")),
                   json_string_value(json_object_get(c, "from")),
                   json_string_value(json_object_get(c, "to")));
    }
}

static void print_reload(const json_t *r)
{
    long long version = json_integer_value(json_object_get(r, "version"));

    if (json_is_true(json_object_get(r, "changed")))
        printf("version %lld is published%s\n", version,
               json_is_true(json_object_get(r, "acknowledged"))
                   ? ""
                   : "; not every core has taken it yet");
    else
        printf("nothing to change at once; version %lld goes on\n", version);
    print_changes(r, true);
    if (json_integer_value(json_object_get(r, "needs_restart"))) {
        printf("needs a restart, the old value stays until then:\n");
        print_changes(r, false);
    }
}

int cli_reload(const struct cli_options *o)
{
    return simple(o, "reload", print_reload);
}

static void print_note(const struct cli_options *o, const json_t *note)
{
    if (!o->json) {
        printf("draining for at most %.1f s\n",
               (double)json_integer_value(json_object_get(note, "timeout_ms")) / 1000);
        fflush(stdout);
    }
}

int cli_drain(const struct cli_options *o)
{
    struct client *c = ask(o, "drain");
    json_t *answer = c ? receive(c, ANSWER_MS) : NULL;
    const json_t *note;

    while (answer && (note = json_object_get(answer, "note"))) {
        print_note(o, note);
        json_decref(answer);
        answer = receive(c, -1);
    }
    client_close(c);
    if (!answer)
        return 1;
    const json_t *result = json_object_get(answer, "result");
    bool good = is_good(answer) && json_is_true(json_object_get(result, "finished_in_time"));
    if (o->json) {
        json_dumpf(is_good(answer) ? result : answer, stdout, JSON_INDENT(2));
        printf("\n");
    } else if (!is_good(answer)) {
        print_refusal(answer);
    } else {
        printf(good ? "drained: everything has finished\n"
                    : "the time was over: what had not finished was cut\n");
    }
    json_decref(answer);
    return good ? 0 : 1;
}
