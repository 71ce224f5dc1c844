/* The command line: verbs, options, exit status (0 good, 1 the thing failed, 2 wrong usage). */
#ifndef MILLRACE_CONTROL_CLI_H
#define MILLRACE_CONTROL_CLI_H

#include <stdbool.h>

#define CLI_DEFAULT_CONFIG "/etc/millrace/millrace.yaml"
#define CLI_DEFAULT_SOCKET "/run/millrace/admin.sock"

struct cli_options {
    const char *config; /* never NULL */
    const char *socket; /* NULL: not given */
    bool config_given, json, budget;
};

int cli_main(int argc, char **argv);

/* cli_online.c: the verbs that talk to a running instance. */
int cli_status(const struct cli_options *o);
int cli_reload(const struct cli_options *o);
int cli_drain(const struct cli_options *o);

/* The candidate that `word` may have been meant to be; NULL: none is near. */
const char *cli_nearest(const char *word, const char *const *candidates, unsigned n);

#endif
