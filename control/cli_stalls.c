#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "control/cli_online.h"
#include "control/symbols.h"

#define MODULES_MOST 64

static int64_t num(const json_t *o, const char *key)
{
    return json_integer_value(json_object_get(o, key));
}

static const char *str(const json_t *o, const char *key)
{
    const char *s = json_string_value(json_object_get(o, key));

    return s ? s : "";
}

/* The file that the process has mapped: where it says, where that is for the process, or, when it
 * has been replaced, what it still runs. */
static struct symbols *open_module(const json_t *m, int64_t pid)
{
    const char *path = str(m, "path"), *build_id = str(m, "build_id");
    struct symbols *s;
    char other[4200];

    if (symbols_open(path, build_id, &s) == 0)
        return s;
    snprintf(other, sizeof(other), "/proc/%" PRId64 "/root%s", pid, path);
    if (symbols_open(other, build_id, &s) == 0)
        return s;
    snprintf(other, sizeof(other), "/proc/%" PRId64 "/exe", pid);
    return build_id[0] && symbols_open(other, build_id, &s) == 0 ? s : NULL;
}

/* A return address belongs to the call before it, which may have been a function's last word. */
static void name_frame(json_t *frame, bool innermost, struct symbols *const *modules)
{
    const json_t *module = json_object_get(frame, "module");
    uint64_t offset = (uint64_t)num(frame, "offset"), into;

    if (!json_is_integer(module) || json_integer_value(module) >= MODULES_MOST ||
        !modules[json_integer_value(module)])
        return;
    const char *name =
        symbols_find(modules[json_integer_value(module)], innermost ? offset : offset - 1, &into);
    if (name)
        json_object_set_new(frame, "function", json_string(name));
}

static void name_frames(json_t *result, struct symbols *const *modules)
{
    json_t *core, *stall, *frame;
    size_t i, k, f;

    json_array_foreach(json_object_get(result, "cores"), i, core)
    {
        json_array_foreach(json_object_get(core, "stalls"), k, stall)
        {
            json_array_foreach(json_object_get(stall, "frames"), f, frame)
            {
                name_frame(frame, f == 0, modules);
            }
        }
    }
}

static void find_names(json_t *result)
{
    struct symbols *modules[MODULES_MOST] = {NULL};
    const json_t *m;
    size_t i;

    json_array_foreach(json_object_get(result, "modules"), i, m)
    {
        if (i < MODULES_MOST)
            modules[i] = open_module(m, num(result, "pid"));
    }
    name_frames(result, modules);
    for (i = 0; i < MODULES_MOST; i++)
        symbols_close(modules[i]);
}

static void print_frame(const json_t *result, const json_t *frame)
{
    const json_t *module = json_object_get(frame, "module");
    const char *function = str(frame, "function"), *path = "?", *slash;

    if (json_is_integer(module))
        path = str(
            json_array_get(json_object_get(result, "modules"), (size_t)json_integer_value(module)),
            "path");
    slash = strrchr(path, '/');
    printf("        %-32s %s+0x%" PRIx64 "\n", *function ? function : "?", slash ? slash + 1 : path,
           (uint64_t)num(frame, "offset"));
}

static void print_stall(const json_t *result, int64_t core, const json_t *s)
{
    int64_t unix_ns = num(s, "unix_ns");
    time_t when = (time_t)(unix_ns / 1000000000);
    struct tm tm;
    char clock[32] = "?";
    const json_t *frame;
    size_t i;

    if (localtime_r(&when, &tm))
        strftime(clock, sizeof(clock), "%F %T", &tm);
    printf("%-4" PRId64 "  %s.%03d  %8.1f s  %9.1f ms%s  %-16s %s\n", core, clock,
           (int)(unix_ns / 1000000 % 1000), (double)num(s, "ago_ns") / 1e9,
           (double)num(s, "took_ns") / 1e6, json_is_true(json_object_get(s, "running")) ? "+" : " ",
           str(s, "kind"), str(s, "label"));
    json_array_foreach(json_object_get(s, "frames"), i, frame)
    {
        print_frame(result, frame);
    }
}

static void print_stalls(const json_t *result)
{
    const json_t *core, *stall;
    size_t i, k, shown = 0;
    int64_t recorded = 0;

    printf("CORE  %-23s  %10s  %12s   %-16s LABEL\n", "BEGAN", "AGO", "TOOK", "KIND");
    json_array_foreach(json_object_get(result, "cores"), i, core)
    {
        recorded += num(core, "recorded");
        json_array_foreach(json_object_get(core, "stalls"), k, stall)
        {
            print_stall(result, num(core, "core"), stall);
            shown++;
        }
    }
    printf("%zu shown of %" PRId64 " recorded; + means that it still runs\n", shown, recorded);
}

int cli_stalls(const struct cli_options *o)
{
    json_t *answer = cli_answer(o, cli_request("stalls"), false);
    json_t *result = json_object_get(answer, "result");
    int status = cli_is_good(answer) ? 0 : 1;

    if (answer && status)
        cli_print_refusal(answer);
    if (status == 0) {
        find_names(result);
        if (o->json)
            cli_print_json(result);
        else
            print_stalls(result);
    }
    json_decref(answer);
    return status;
}
