/* What the verbs share that talk to a running instance. For control/cli_*.c only. */
#ifndef MILLRACE_CONTROL_CLI_ONLINE_H
#define MILLRACE_CONTROL_CLI_ONLINE_H

#include <jansson.h>

#include "control/cli.h"
#include "control/client.h"

#define CLI_ANSWER_MS 10000

/* {"verb": …}, for more arguments to be added; NULL: no memory, which cli_ask() tells. */
json_t *cli_request(const char *verb);

/* Connects and sends; takes over the request. NULL after a line on stderr, but for `quiet` ones
 * that nobody answers. */
struct client *cli_ask(const struct cli_options *o, json_t *request, bool quiet);
json_t *cli_receive(struct client *c, int timeout_ms); /* NULL after a line on stderr */

/* One question, one answer; NULL: none came, which has been told unless `quiet`. */
json_t *cli_answer(const struct cli_options *o, json_t *request, bool quiet);

bool cli_is_good(const json_t *answer);
void cli_print_refusal(const json_t *answer);
void cli_print_json(const json_t *v);

/* One question whose answer is printed: as JSON, or by `print` (whose result is the exit status).
 */
int cli_simple(const struct cli_options *o, json_t *request, int (*print)(const json_t *result));

#endif
