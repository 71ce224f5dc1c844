#include "control/cli.h"

#include <assert.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <uv.h>

#include "config/reference.h"
#include "config/units.h"
#include "control/supervisor.h"
#include "control/version.h"
#include "dataplane/engine.h"

struct verb {
    const char *name;
    int (*run)(const struct cli_options *o);
    const char *options; /* those it takes beside --config */
    unsigned max_words;  /* beside options */
    const char *words, *help;
};

static int cli_help(const struct cli_options *o);

static int cli_run(const struct cli_options *o)
{
    struct supervisor_opts so = {.config = o->config, .socket = o->socket};

    return supervisor_run(&so);
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
    {"run", cli_run, "socket", 0, "", "serve, in the foreground, until a signal or `drain`"},
    {"check", cli_check, "budget json", 0, "",
     "say what is wrong with the configuration; with --budget what it costs"},
    {"schema", cli_schema, "json", 0, "", "print the configuration's JSON Schema"},
    {"explain", cli_explain, "socket json", 1, "KEY",
     "what a key means, its value in a running instance, and where that is from"},
    {"status", cli_status, "socket json", 0, "", "how a running instance is"},
    {"config", cli_config, "socket json", 0, "", "print the configuration that runs"},
    {"diff", cli_diff, "socket json", 2, "[OLD NEW]",
     "what a reload of the file would change; or what one file changes against another"},
    {"reload", cli_reload, "socket json if-version overrides", 0, "",
     "have it read its configuration again, on all cores or not at all; prints what changed"},
    {"rollback", cli_rollback, "socket json if-version overrides list", 1, "[VERSION]",
     "go back to an earlier configuration, by default the one before; --list shows them"},
    {"upstream", cli_upstream, "socket json if-version", 4, "NAME ACTION …",
     "drain|undrain [ENDPOINT], weight ENDPOINT N, limit KEY VALUE, reset [ENDPOINT]"},
    {"drain", cli_drain, "socket json", 0, "",
     "have it finish what it has begun and end; waits for that"},
    {"top", cli_top, "socket json once interval", 0, "",
     "how it is, live: rates between two looks; q ends it"},
    {"conns", cli_conns, "socket json filters", 0, "",
     "its clients' connections: who, since when, doing what"},
    {"stalls", cli_stalls, "socket json", 0, "", "what has held a core up, and where in the code"},
    {"version", cli_version, "json", 0, "", "print versions"},
    {"help", cli_help, "", 0, "", "this text"},
};
#define VERBS (sizeof(verbs) / sizeof(verbs[0]))

static void usage(FILE *f)
{
    fprintf(f, "Usage: millrace VERB [OPTIONS]\n\n");
    for (size_t i = 0; i < VERBS; i++)
        fprintf(f, "  %s %-*s %s\n", verbs[i].name, (int)(23 - strlen(verbs[i].name)),
                verbs[i].words, verbs[i].help);
    fprintf(f,
            "\n"
            "  --config FILE      the configuration (default " CLI_DEFAULT_CONFIG ")\n"
            "  --socket PATH      the admin socket (default: as the configuration says)\n"
            "  --json             for programs\n"
            "  --budget           with check: memory by setting\n"
            "  --if-version N     with what changes something: only if nobody else has since N\n"
            "  --keep-overrides   with reload, rollback: what `upstream` has set stays (default)\n"
            "  --drop-overrides   with reload, rollback: it goes\n"
            "  --list             with rollback: the versions that are kept\n"
            "  --once             with top: one frame, of one interval\n"
            "  --interval TIME    with top: between two looks (default 1s)\n"
            "  --listener NAME, --client ADDRESS[/BITS], --state STATE, --limit N\n"
            "                     with conns: only those, at most N of them (default 1000)\n"
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
    static const char *const names[] = {
        "--config",         "--socket",         "--json",  "--budget", "--if-version",
        "--keep-overrides", "--drop-overrides", "--list",  "--once",   "--interval",
        "--listener",       "--client",         "--state", "--limit",  "--help"};

    return wrong("unknown option", arg, names, sizeof(names) / sizeof(names[0]));
}

int cli_misused(const char *verb, const char *usage_line)
{
    fprintf(stderr, "millrace: usage: millrace %s %s\n", verb, usage_line);
    return 2;
}

static int not_for(const struct verb *v, const char *arg)
{
    fprintf(stderr, "millrace: `millrace %s` takes no %s\n", v->name, arg);
    return 2;
}

/* The flag's place; NULL: no such flag. */
static bool *flag_of(struct cli_options *o, const char *arg, const char **ret_option)
{
    const struct {
        const char *name, *option;
        bool *flag;
    } flags[] = {
        {"--json", "json", &o->json},
        {"--budget", "budget", &o->budget},
        {"--list", "list", &o->list},
        {"--once", "once", &o->once},
        {"--keep-overrides", "overrides", &o->keep_overrides},
        {"--drop-overrides", "overrides", &o->drop_overrides},
    };

    for (size_t i = 0; i < sizeof(flags) / sizeof(flags[0]); i++) {
        if (strcmp(arg, flags[i].name) != 0)
            continue;
        *ret_option = flags[i].option;
        return flags[i].flag;
    }
    return NULL;
}

enum value_kind { VALUE_TEXT, VALUE_NUMBER, VALUE_DURATION };

struct valued {
    const char *name, *option; /* the verb's word for it; NULL: every verb takes it */
    enum value_kind kind;
    const char **text; /* where a text goes, */
    uint64_t *number;  /* or else a number */
    bool *given;       /* set, unless NULL */
};

static int parse_value(const struct valued *d, const char *value)
{
    int e = 0;

    if (d->given)
        *d->given = true;
    if (!*value) {
        fprintf(stderr, "millrace: --%s needs a value\n", d->name);
        return 2;
    }
    assert(d->kind != VALUE_TEXT || d->text);
    if (d->kind == VALUE_TEXT)
        *d->text = value;
    else if (d->kind == VALUE_NUMBER)
        e = units_parse_integer(value, strlen(value), d->number);
    else
        e = units_parse_duration(value, strlen(value), d->number);
    if (!e)
        return 0;
    fprintf(stderr, "millrace: --%s needs a %s, not \"%s\"\n", d->name,
            d->kind == VALUE_NUMBER ? "number" : "duration like 500ms", value);
    return 2;
}

/* --NAME VALUE. -1: it is none of these. */
static int parse_valued(const struct verb *v, struct cli_options *o, int argc, char **argv, int *i)
{
    const struct valued all[] = {
        {"config", NULL, VALUE_TEXT, &o->config, NULL, &o->config_given},
        {"socket", "socket", VALUE_TEXT, &o->socket, NULL, NULL},
        {"if-version", "if-version", VALUE_NUMBER, NULL, &o->if_version, &o->has_if_version},
        {"listener", "filters", VALUE_TEXT, &o->listener, NULL, NULL},
        {"client", "filters", VALUE_TEXT, &o->client, NULL, NULL},
        {"state", "filters", VALUE_TEXT, &o->state, NULL, NULL},
        {"limit", "filters", VALUE_NUMBER, NULL, &o->limit, &o->has_limit},
        {"interval", "interval", VALUE_DURATION, NULL, &o->interval, NULL},
    };

    for (size_t k = 0; k < sizeof(all) / sizeof(all[0]); k++) {
        const char *arg = argv[*i], *value = option_value(all[k].name, argc, argv, i);
        if (!value)
            continue;
        if (all[k].option && !strstr(v->options, all[k].option))
            return not_for(v, arg);
        return parse_value(&all[k], value);
    }
    return -1;
}

static int parse_word(const struct verb *v, struct cli_options *o, const char *word)
{
    if (o->nwords == v->max_words) {
        fprintf(stderr, "millrace: `millrace %s` takes no \"%s\"\n", v->name, word);
        return 2;
    }
    o->words[o->nwords++] = word;
    return 0;
}

static int parse_option(const struct verb *v, struct cli_options *o, int argc, char **argv, int *i)
{
    const char *arg = argv[*i], *option;

    if (arg[0] != '-')
        return parse_word(v, o, arg);
    if (strncmp(arg, "--", 2) != 0)
        return wrong_option(arg);
    bool *flag = flag_of(o, arg, &option);
    if (flag) {
        *flag = true;
        return strstr(v->options, option) ? 0 : not_for(v, arg);
    }
    int e = parse_valued(v, o, argc, argv, i);
    return e < 0 ? wrong_option(arg) : e;
}

static int check_options(const struct cli_options *o)
{
    if (!o->keep_overrides || !o->drop_overrides)
        return 0;
    fprintf(stderr, "millrace: either --keep-overrides or --drop-overrides\n");
    return 2;
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
    if (check_options(&o))
        return 2;
    int status = v->run(&o);
    if (fflush(stdout) || ferror(stdout)) {
        fprintf(stderr, "millrace: can't write the output: %s\n", strerror(errno));
        return 1;
    }
    return status;
}
