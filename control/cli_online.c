#include "control/cli_online.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "config/load.h"
#include "control/status_json.h"

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

json_t *cli_request(const char *verb)
{
    return json_pack("{s:s}", "verb", verb);
}

struct client *cli_ask(const struct cli_options *o, json_t *request, bool quiet)
{
    char err[512] = "out of memory", *path = socket_path(o);
    struct client *c = NULL;

    if (!path || !request || client_connect(path, &c, err, sizeof(err)) ||
        client_send(c, request, err, sizeof(err))) {
        if (!quiet)
            fprintf(stderr, "millrace: %s\n", err);
        client_close(c);
        c = NULL;
    }
    json_decref(request);
    free(path);
    return c;
}

json_t *cli_receive(struct client *c, int timeout_ms)
{
    char err[256];
    json_t *o = NULL;

    if (client_receive(c, timeout_ms, &o, err, sizeof(err))) {
        fprintf(stderr, "millrace: %s\n", err);
        return NULL;
    }
    return o;
}

json_t *cli_answer(const struct cli_options *o, json_t *request, bool quiet)
{
    struct client *c = cli_ask(o, request, quiet);
    json_t *answer = c ? cli_receive(c, CLI_ANSWER_MS) : NULL;

    client_close(c);
    return answer;
}

bool cli_is_good(const json_t *answer)
{
    return json_is_true(json_object_get(answer, "ok"));
}

void cli_print_refusal(const json_t *answer)
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

void cli_print_json(const json_t *v)
{
    json_dumpf(v, stdout, JSON_INDENT(2) | JSON_ENCODE_ANY);
    printf("\n");
}

int cli_simple(const struct cli_options *o, json_t *request, int (*print)(const json_t *result))
{
    json_t *answer = cli_answer(o, request, false);
    const json_t *result = json_object_get(answer, "result");
    int status = 1;

    if (!answer)
        return 1;
    if (o->json) {
        cli_print_json(cli_is_good(answer) ? result : answer);
        status =
            cli_is_good(answer) && !json_is_false(json_object_get(result, "acknowledged")) ? 0 : 1;
    } else if (cli_is_good(answer)) {
        status = print(result);
    } else {
        cli_print_refusal(answer);
    }
    json_decref(answer);
    return status;
}

static int print_status(const json_t *r)
{
    status_print(r, stdout);
    return 0;
}

int cli_status(const struct cli_options *o)
{
    return cli_simple(o, cli_request("status"), print_status);
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
    struct client *c = cli_ask(o, cli_request("drain"), false);
    json_t *answer = c ? cli_receive(c, CLI_ANSWER_MS) : NULL;
    const json_t *note;

    while (answer && (note = json_object_get(answer, "note"))) {
        print_note(o, note);
        json_decref(answer);
        answer = cli_receive(c, -1);
    }
    client_close(c);
    if (!answer)
        return 1;
    const json_t *result = json_object_get(answer, "result");
    bool good = cli_is_good(answer) && json_is_true(json_object_get(result, "finished_in_time"));
    if (o->json) {
        cli_print_json(cli_is_good(answer) ? result : answer);
    } else if (!cli_is_good(answer)) {
        cli_print_refusal(answer);
    } else {
        printf(good ? "drained: everything has finished\n"
                    : "the time was over: what had not finished was cut\n");
    }
    json_decref(answer);
    return good ? 0 : 1;
}
