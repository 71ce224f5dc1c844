/* Every good/NAME.yaml must load, and read back the same from what config_write_yaml() makes of it;
 * every bad/NAME.yaml must be refused with exactly the lines of
 * bad/NAME.expected. TAP, one line a file. With --write the expected files are written instead. */
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "config/diff.h"
#include "config/load.h"
#include "config/reference.h"

/* In every build, unlike assert(). */
static void must(bool is_good, const char *what)
{
    if (is_good)
        return;
    fprintf(stderr, "config_cases: %s\n", what);
    abort();
}

static unsigned tests, failures;

static char *read_text(const char *path, size_t *ret_len)
{
    FILE *f = fopen(path, "r");
    char *text = malloc(CONFIG_FILE_MAX + 2);

    must(text, "not read");
    *ret_len = f ? fread(text, 1, CONFIG_FILE_MAX + 1, f) : 0;
    text[*ret_len] = 0;
    if (f)
        fclose(f);
    return text;
}

/* Written and read again it is the same; else what isn't is added to the report. */
static void check_written(const struct snapshot *s, FILE *report)
{
    struct config_errors errs;
    struct config_diff d = {NULL};
    struct snapshot *again = NULL;
    char *text;
    size_t size;
    FILE *f = open_memstream(&text, &size);

    must(f && !config_write_yaml(s, f), "no YAML");
    fclose(f);
    config_errors_init(&errs);
    if (config_load_text("written", text, size, NULL, &again, &errs)) {
        config_check_report(report, &errs);
        fputs(text, report);
    } else {
        must(!config_diff(s, again, &d), "no diff");
    }
    for (size_t i = 0; i < d.nchanges; i++)
        fprintf(report, "%s: %s -> %s\n", d.changes[i].key, d.changes[i].from, d.changes[i].to);
    config_diff_fini(&d);
    config_errors_fini(&errs);
    snapshot_free(again);
    free(text);
}

/* The report, "" if the file loads. Files go by their base name. */
static char *load(const char *folder, const char *name)
{
    char path[4096], *report = NULL;
    struct config_errors errs;
    struct snapshot *s = NULL;
    size_t len, size;
    FILE *f = open_memstream(&report, &size);

    must(f, "no memory");
    snprintf(path, sizeof(path), "%s/%s", folder, name);
    char *text = read_text(path, &len);
    config_errors_init(&errs);
    /* A machine of its own, so that the result is the same everywhere. */
    config_load_text(name, text, len, &(struct config_host){.cpus = 8}, &s, &errs);
    config_check_report(f, &errs);
    config_errors_fini(&errs);
    if (s)
        check_written(s, f);
    snapshot_free(s);
    free(text);
    fclose(f);
    return report;
}

static void write_expected(const char *path, const char *report)
{
    FILE *f = fopen(path, "w");

    must(f, "no memory");
    fputs(report, f);
    fclose(f);
}

static void check(const char *folder, const char *name, bool writes)
{
    char path[4096], *expected, *report = load(folder, name);
    size_t len;
    int stem = strlen(name) - strlen(".yaml");

    snprintf(path, sizeof(path), "%s/%.*s.expected", folder, stem, name);
    if (writes && *report)
        write_expected(path, report);
    expected = read_text(path, &len);
    bool good = !strcmp(report, expected) && (strstr(folder, "/bad") ? *report : !*report);
    printf("%sok %u - %s\n", good ? "" : "not ", ++tests, name);
    if (!good) {
        failures++;
        fprintf(stderr, "# %s/%s: expected\n%s# found\n%s", folder, name, expected, report);
    }
    free(report);
    free(expected);
}

static int is_yaml(const struct dirent *d)
{
    const char *dot = strrchr(d->d_name, '.');

    return dot && !strcmp(dot, ".yaml");
}

int main(int argc, char **argv)
{
    bool writes = argc > 1 && !strcmp(argv[1], "--write");

    for (int i = 1 + writes; i < argc; i++) {
        struct dirent **names;
        int n = scandir(argv[i], &names, is_yaml, alphasort);

        for (int j = 0; j < n; j++) {
            check(argv[i], names[j]->d_name, writes);
            free(names[j]);
        }
        if (n >= 0)
            free(names);
        if (n <= 0)
            failures++;
    }
    printf("1..%u\n", tests);
    return failures != 0;
}
