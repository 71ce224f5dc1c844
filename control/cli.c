#include "control/cli.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <uv.h>

#include "config/load.h"
#include "config/reference.h"
#include "control/budgets.h"
#include "control/supervisor.h"
#include "control/version.h"
#include "dataplane/engine.h"

struct verb {
    const char *name;
    int (*run)(const struct cli_options *o);
    const char *options; /* the flags it takes beside --config */
    const char *help;
};

static int cli_help(const struct cli_options *o);

static int cli_run(const struct cli_options *o)
{
    struct supervisor_opts so = {.config = o->config, .socket = o->socket};

    return supervisor_run(&so);
}

static int cli_check(const struct cli_options *o)
{
    struct config_errors errs;
    struct snapshot *s = NULL;

    config_errors_init(&errs);
    int e = config_load_file(o->config, &s, &errs);
    if (e)
        config_check_report(stderr, &errs);
    config_errors_fini(&errs);
    if (e)
        return 1;
    printf("%s: good: %zu port%s, %zu listener%s, %zu upstream%s\n", o->config, s->nports,
           s->nports == 1 ? "" : "s", s->nlisteners, s->nlisteners == 1 ? "" : "s", s->nupstreams,
           s->nupstreams == 1 ? "" : "s");
    if (o->budget)
        budgets_print(s, stdout);
    snapshot_free(s);
    return 0;
}

static int cli_schema(const struct cli_options *o)
{
    return config_schema_json(stdout) ? 1 : 0;
}

static int cli_version(const struct cli_options *o)
{
    if (o->json)
        printf("{\"version\": \"%s\", \"build\": \"%s\", \"dpdk\": \"%s\", \"libuv\": \"%s\"}\n",
               MILLRACE_VERSION, MILLRACE_BUILD, engine_dpdk_version(), uv_version_string());
    else
        printf("millrace %s (%s), DPDK %s, libuv %s\n", MILLRACE_VERSION, MILLRACE_BUILD,
               engine_dpdk_version(), uv_version_string());
    return 0;
}

static const struct verb verbs[] = {
    {"run", cli_run, "socket", "serve, in the foreground, until a signal or `drain`"},
    {"check", cli_check, "budget",
     "say what is wrong with the configuration; with --budget what it costs"},
    {"schema", cli_schema, "", "print the configuration's JSON Schema"},
    {"status", cli_status, "socket json", "how a running instance is"},
    {"reload", cli_reload, "socket json",
     "have it read its configuration again; prints what changed"},
    {"drain", cli_drain, "socket json", "have it finish what it has begun and end; waits for that"},
    {"version", cli_version, "json", "print versions"},
    {"help", cli_help, "", "this text"},
};
#define VERBS (sizeof(verbs) / sizeof(verbs[0]))

static void usage(FILE *f)
{
    fprintf(f, "Usage: millrace VERB [OPTIONS]\n\n");
    for (size_t i = 0; i < VERBS; i++)
        fprintf(f, "  %-9s %s\n", verbs[i].name, verbs[i].help);
    fprintf(f, "\n"
               "  --config FILE   the configuration (default " CLI_DEFAULT_CONFIG ")\n"
               "  --socket PATH   the admin socket (default: as the configuration says)\n"
               "  --json          for programs\n"
               "  --budget        with check: memory by setting\n"
               "\n"
               "Signals to a running instance: HUP reload, TERM drain, INT stop, USR1 reopen the "
               "access log.\n"
               "Exit status: 0 good, 1 failed, 2 wrong usage.\n");
}

static int cli_help(const struct cli_options *o)
{
    usage(stdout);
    return 0;
}

/* Edit distance, words of at most 31 letters. */
static unsigned distance(const char *a, const char *b)
{
    unsigned row[32];
    size_t n = strlen(b);

    if (n > 31 || strlen(a) > 31)
        return 99;
    for (unsigned j = 0; j <= n; j++)
        row[j] = j;
    for (unsigned i = 1; a[i - 1]; i++) {
        unsigned diagonal = row[0];
        row[0] = i;
        for (unsigned j = 1; j <= n; j++) {
            unsigned change = diagonal + (a[i - 1] != b[j - 1]);
            diagonal = row[j];
            unsigned shift = (row[j] < row[j - 1] ? row[j] : row[j - 1]) + 1;
            row[j] = change < shift ? change : shift;
        }
    }
    return row[n];
}

const char *cli_nearest(const char *word, const char *const *candidates, unsigned n)
{
    const char *best = NULL;
    unsigned best_distance = 3;

    for (unsigned i = 0; i < n; i++) {
        unsigned d = distance(word, candidates[i]);
        if (d < best_distance && d < strlen(candidates[i])) {
            best = candidates[i];
            best_distance = d;
        }
    }
    return best;
}

static int wrong(const char *what, const char *word, const char *const *candidates, unsigned n)
{
    const char *near = cli_nearest(word, candidates, n);

    fprintf(stderr, "millrace: %s \"%s\"", what, word);
    if (near)
        fprintf(stderr, " (did you mean \"%s\"?)", near);
    fprintf(stderr, "; `millrace help` lists them\n");
    return 2;
}

static const struct verb *find_verb(const char *name)
{
    for (size_t i = 0; i < VERBS; i++)
        if (strcmp(verbs[i].name, name) == 0)
            return &verbs[i];
    return NULL;
}

/* The value of --NAME VALUE or --NAME=VALUE; NULL: it is another option. *i moves past it. */
static const char *option_value(const char *name, int argc, char **argv, int *i)
{
    const char *arg = argv[*i] + 2;
    size_t len = strlen(name);

    if (strncmp(arg, name, len) != 0)
        return NULL;
    if (arg[len] == '=')
        return arg + len + 1;
    if (arg[len] != '\0')
        return NULL;
    return *i + 1 < argc ? argv[++*i] : "";
}

static int wrong_option(const char *arg)
{
    static const char *const options[] = {"--config", "--socket", "--json", "--budget", "--help"};

    return wrong("unknown option", arg, options, sizeof(options) / sizeof(options[0]));
}

static int not_for(const struct verb *v, const char *arg)
{
    fprintf(stderr, "millrace: `millrace %s` takes no %s\n", v->name, arg);
    return 2;
}

static int parse_option(const struct verb *v, struct cli_options *o, int argc, char **argv, int *i)
{
    const char *arg = argv[*i], *value;

    if (arg[0] != '-') {
        fprintf(stderr, "millrace: `millrace %s` takes no \"%s\"\n", v->name, arg);
        return 2;
    }
    if (strncmp(arg, "--", 2) != 0)
        return wrong_option(arg);
    if ((value = option_value("config", argc, argv, i))) {
        o->config = value;
        o->config_given = true;
    } else if ((value = option_value("socket", argc, argv, i))) {
        if (!strstr(v->options, "socket"))
            return not_for(v, "--socket");
        o->socket = value;
    } else if (strcmp(arg, "--json") == 0) {
        o->json = true;
        return strstr(v->options, "json") ? 0 : not_for(v, arg);
    } else if (strcmp(arg, "--budget") == 0) {
        o->budget = true;
        return strstr(v->options, "budget") ? 0 : not_for(v, arg);
    } else {
        return wrong_option(arg);
    }
    if (!*value) {
        fprintf(stderr, "millrace: %s needs a value\n", arg);
        return 2;
    }
    return 0;
}

int cli_main(int argc, char **argv)
{
    struct cli_options o = {.config = CLI_DEFAULT_CONFIG};
    const char *names[VERBS];
    const struct verb *v;

    for (size_t i = 0; i < VERBS; i++)
        names[i] = verbs[i].name;
    if (argc < 2) {
        usage(stderr);
        return 2;
    }
    if (strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "-h") == 0)
        return cli_help(&o);
    if (strcmp(argv[1], "--version") == 0)
        return cli_version(&o);
    v = find_verb(argv[1]);
    if (!v)
        return wrong("unknown verb", argv[1], names, VERBS);
    for (int i = 2; i < argc; i++) {
        if (strcmp(argv[i], "--help") == 0 || strcmp(argv[i], "-h") == 0)
            return cli_help(&o);
        int e = parse_option(v, &o, argc, argv, &i);
        if (e)
            return e;
    }
    int status = v->run(&o);
    if (fflush(stdout) || ferror(stdout)) {
        fprintf(stderr, "millrace: can't write the output: %s\n", strerror(errno));
        return 1;
    }
    return status;
}
