/* The command line: verbs, options, exit status (0 good, 1 the thing failed, 2 wrong usage). */
#ifndef MILLRACE_CONTROL_CLI_H
#define MILLRACE_CONTROL_CLI_H

#include <stdbool.h>
#include <stdint.h>

#define CLI_DEFAULT_CONFIG "/etc/millrace/millrace.yaml"
#define CLI_DEFAULT_SOCKET "/run/millrace/admin.sock"
#define CLI_MAX_WORDS      4

struct cli_options {
    const char *config; /* never NULL */
    const char *socket; /* NULL: not given */
    bool config_given, json, budget, list, once;
    bool keep_overrides, drop_overrides, has_if_version, has_limit;
    uint64_t if_version;
    const char *listener, *client, *state; /* NULL: any */
    uint64_t limit, interval;              /* connections; ns, 0: not given */
    const char *words[CLI_MAX_WORDS];      /* what stands beside the options */
    unsigned nwords;
};

int cli_main(int argc, char **argv);

/* Says that the verb was used wrongly; 2. */
int cli_misused(const char *verb, const char *usage);

/* cli_online.c: the verbs that talk to a running instance. */
int cli_status(const struct cli_options *o);
int cli_drain(const struct cli_options *o);
int cli_stalls(const struct cli_options *o); /* cli_stalls.c */
int cli_conns(const struct cli_options *o);  /* cli_conns.c */
int cli_top(const struct cli_options *o);    /* cli_top.c */

/* cli_change.c: those that change its configuration. */
int cli_reload(const struct cli_options *o);
int cli_rollback(const struct cli_options *o);
int cli_upstream(const struct cli_options *o);

/* cli_config.c: those that look at configurations; cli_explain.c. */
int cli_check(const struct cli_options *o);
int cli_config(const struct cli_options *o);
int cli_diff(const struct cli_options *o);
int cli_explain(const struct cli_options *o);

/* The candidate that `word` may have been meant to be; NULL: none is near. */
const char *cli_nearest(const char *word, const char *const *candidates, unsigned n);

#endif
