/* A file as a source: what is there, what isn't a configuration, and what changes under the eyes of
 * the reader. The loop's real timers run: each story waits for its event, never for a time. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "config/load.h"
#include "control/source.h"

struct world {
    uv_loop_t loop;
    struct config_source *source;
    char dir[64], path[96];
    unsigned changed, gone, back;
};

static void on_event(void *ctx, enum source_event ev)
{
    struct world *w = ctx;

    w->changed += ev == SOURCE_CHANGED;
    w->gone += ev == SOURCE_GONE;
    w->back += ev == SOURCE_BACK;
    uv_stop(&w->loop);
}

static void put(const struct world *w, const char *name, const char *text)
{
    char path[160];

    snprintf(path, sizeof(path), "%s/%s", w->dir, name);
    FILE *f = fopen(path, "w");
    assert_non_null(f);
    fputs(text, f);
    fclose(f);
}

static void sh(const struct world *w, const char *command)
{
    char line[512];

    snprintf(line, sizeof(line), "cd %s && %s", w->dir, command);
    assert_int_equal(system(line), 0);
}

static int setup(void **state)
{
    struct world *w = calloc(1, sizeof(*w));

    strcpy(w->dir, "/tmp/millrace-test-source-XXXXXX");
    assert_non_null(mkdtemp(w->dir));
    snprintf(w->path, sizeof(w->path), "%s/m.yaml", w->dir);
    uv_loop_init(&w->loop);
    assert_int_equal(source_file_new(w->path, &w->source), 0);
    assert_string_equal(w->source->name, w->path);
    *state = w;
    return 0;
}

static int teardown(void **state)
{
    struct world *w = *state;
    char cmd[128];

    source_close(w->source);
    uv_run(&w->loop, UV_RUN_DEFAULT);
    assert_int_equal(uv_loop_close(&w->loop), 0);
    snprintf(cmd, sizeof(cmd), "rm -r %s", w->dir);
    assert_int_equal(system(cmd), 0);
    free(w);
    return 0;
}

static void watch(struct world *w)
{
    assert_int_equal(w->source->ops->watch(w->source, &w->loop, on_event, w), 0);
}

/* The error's text without the path; "" for none. */
static const char *load(struct world *w, int expected, const char *content)
{
    static char error[512];
    struct config_errors errs;
    char *text = NULL;
    size_t len = 0;

    config_errors_init(&errs);
    int e = w->source->ops->load(w->source, &text, &len, &errs);
    assert_int_equal(e, expected);
    assert_int_equal(e != 0, config_errors_any(&errs));
    snprintf(error, sizeof(error), "%s", e ? errs.list[0].text + strlen(w->path) : "");
    if (!e) {
        assert_string_equal(text, content);
        assert_int_equal(len, strlen(content));
    }
    config_errors_fini(&errs);
    free(text);
    return error;
}

static void what_is_no_file_is_told(void **state)
{
    struct world *w = *state;

    assert_string_equal(load(w, -ENOENT, ""), ": can't be read: No such file or directory");
    sh(w, "mkdir m.yaml");
    assert_string_equal(load(w, -EISDIR, ""), ": expected a file, this is a directory");
    sh(w, "rmdir m.yaml && mkfifo m.yaml");
    assert_string_equal(load(w, -EINVAL, ""), ": expected a regular file");
    sh(w, "rm m.yaml && ln -s m.yaml m.yaml");
    assert_string_equal(load(w, -ELOOP, ""), ": can't be read: Too many levels of symbolic links");
    sh(w, "rm m.yaml");
    put(w, "m.yaml", "");
    load(w, 0, "");
    put(w, "m.yaml", "version: 1\n");
    load(w, 0, "version: 1\n");
}

/* Ten MiB are read up to the limit only, and refused by what reads them. */
static void a_large_file_is_not_read_to_its_end(void **state)
{
    struct world *w = *state;
    struct config_errors errs;
    struct snapshot *s = NULL;
    char *text = NULL;
    size_t len;

    sh(w, "head -c 10485760 /dev/zero | tr '\\0' '#' > m.yaml");
    config_errors_init(&errs);
    assert_int_equal(w->source->ops->load(w->source, &text, &len, &errs), 0);
    assert_int_equal(len, CONFIG_FILE_MAX + 1);
    assert_int_equal(config_load_text(w->path, text, len, NULL, &s, &errs), -EINVAL);
    assert_string_equal(errs.list[0].text + strlen(w->path), ": a configuration has at most 1MiB");
    config_errors_fini(&errs);
    free(text);
}

/* As Kubernetes mounts a ConfigMap: m.yaml -> ..data/m.yaml, ..data -> ..one, then -> ..two. */
static void a_switched_link_is_a_change(void **state)
{
    struct world *w = *state;

    sh(w, "mkdir ..one ..two && echo one > ..one/m.yaml && echo two > ..two/m.yaml");
    sh(w, "ln -s ..one ..data && ln -s ..data/m.yaml m.yaml");
    watch(w);
    load(w, 0, "one\n");
    sh(w, "ln -s ..two ..new && mv -T ..new ..data && rm -r ..one");
    uv_run(&w->loop, UV_RUN_DEFAULT);
    assert_int_equal(w->changed, 1);
    load(w, 0, "two\n");
}

static void a_directory_in_its_place_is_a_change_that_fails(void **state)
{
    struct world *w = *state;

    put(w, "m.yaml", "one");
    watch(w);
    sh(w, "rm m.yaml && mkdir m.yaml");
    uv_run(&w->loop, UV_RUN_DEFAULT);
    assert_int_equal(w->changed, 1);
    load(w, -EISDIR, "");
    sh(w, "rmdir m.yaml && echo two > m.yaml");
    uv_run(&w->loop, UV_RUN_DEFAULT);
    assert_int_equal(w->changed, 2);
    load(w, 0, "two\n");
}

/* What has been loaded is known: no event for it. What comes after it is news. */
static void only_what_was_not_loaded_is_news(void **state)
{
    struct world *w = *state;

    put(w, "m.yaml", "one");
    watch(w);
    put(w, "m.yaml", "two, longer");
    load(w, 0, "two, longer");
    put(w, "m.yaml", "three");
    uv_run(&w->loop, UV_RUN_DEFAULT);
    assert_int_equal(w->changed, 1);
    load(w, 0, "three");
    sh(w, "rm m.yaml");
    uv_run(&w->loop, UV_RUN_DEFAULT);
    assert_int_equal(w->gone, 1);
    assert_int_equal(w->changed, 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(what_is_no_file_is_told, setup, teardown),
        cmocka_unit_test_setup_teardown(a_large_file_is_not_read_to_its_end, setup, teardown),
        cmocka_unit_test_setup_teardown(a_switched_link_is_a_change, setup, teardown),
        cmocka_unit_test_setup_teardown(a_directory_in_its_place_is_a_change_that_fails, setup,
                                        teardown),
        cmocka_unit_test_setup_teardown(only_what_was_not_loaded_is_news, setup, teardown),
    };
    return cmocka_run_group_tests_name("source", tests, NULL, NULL);
}
