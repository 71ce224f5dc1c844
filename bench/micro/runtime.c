/* What the runtime's own moves cost.
 *
 *     micro_runtime [--list | --raw] [--cpus A,B] [NAME...]
 *
 * A table of the best and the median sample. --raw, for bench/compare/bench_runtime.py: a line of
 * name, text and samples a measure, with tabs between; --list: the same without samples. */
#include <sched.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bench/micro/measure.h"

static const struct measure *const groups[] = {measures_tasks, measures_timers, measures_sync,
                                               measures_permits, measures_cores};

#define GROUPS (sizeof(groups) / sizeof(groups[0]))

void measure_pin(int cpu)
{
    cpu_set_t set;
    CPU_ZERO(&set);
    CPU_SET(cpu, &set);
    if (sched_setaffinity(0, sizeof(set), &set) < 0)
        fail("cannot run on this CPU");
}

void fail(const char *what)
{
    fprintf(stderr, "micro_runtime: %s\n", what);
    exit(1);
}

static int compare_double(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static void tell(const struct measure *m, struct samples *s, bool raw)
{
    double *told = s->each + 1;
    if (raw) {
        printf("%s\t%s\t", m->name, m->text);
        for (unsigned i = 0; i < SAMPLES - 1; i++)
            printf("%.2f ", told[i]);
        printf("\n");
    } else {
        qsort(told, SAMPLES - 1, sizeof(told[0]), compare_double);
        printf("%-52s %10.1f %10.1f\n", m->text, told[0], told[(SAMPLES - 1) / 2]);
    }
    fflush(stdout);
}

static const struct measure *find(const char *name)
{
    for (unsigned g = 0; g < GROUPS; g++) {
        for (const struct measure *m = groups[g]; m->name; m++) {
            if (strcmp(m->name, name) == 0)
                return m;
        }
    }
    return NULL;
}

enum mode { TABLE, RAW, LIST };

struct args {
    struct cpus cpus;
    enum mode mode;
    char **names; /* up to NULL; none: all */
};

static bool parse(char **argv, struct args *ret_args)
{
    struct args a = {.cpus = {1, 0}, .mode = TABLE};
    for (argv++; *argv && **argv == '-'; argv++) {
        if (strcmp(*argv, "--raw") == 0)
            a.mode = RAW;
        else if (strcmp(*argv, "--list") == 0)
            a.mode = LIST;
        else if (strcmp(*argv, "--cpus") == 0 && argv[1] &&
                 sscanf(argv[1], "%d,%d", &a.cpus.own, &a.cpus.other) == 2)
            argv++;
        else
            return false;
    }
    a.names = argv;
    for (; *argv; argv++) {
        if (!find(*argv))
            return false;
    }
    *ret_args = a;
    return true;
}

static bool is_wanted(const struct measure *m, char **names)
{
    if (!*names)
        return true;
    for (; *names; names++) {
        if (strcmp(*names, m->name) == 0)
            return true;
    }
    return false;
}

static void run_one(const struct measure *m, const struct args *a)
{
    struct samples s;
    if (a->mode == LIST) {
        printf("%s\t%s\n", m->name, m->text);
        return;
    }
    m->run(&s, &a->cpus);
    tell(m, &s, a->mode == RAW);
}

int main(int argc, char **argv)
{
    struct args a;
    (void)argc;
    if (!parse(argv, &a)) {
        fprintf(stderr, "Usage: micro_runtime [--list | --raw] [--cpus A,B] [NAME...]\n");
        return 2;
    }
    measure_pin(a.cpus.own);
    if (a.mode == TABLE)
        printf("%-52s %10s %10s\n", "ns each", "best", "median");
    for (unsigned g = 0; g < GROUPS; g++) {
        for (const struct measure *m = groups[g]; m->name; m++) {
            if (is_wanted(m, a.names))
                run_one(m, &a);
        }
    }
    return 0;
}
