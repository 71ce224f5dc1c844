/* Watching a file that is written, replaced, linked elsewhere and removed. The loop's real timers
 * run: each story waits for its event, never for a time. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "control/watch_file.h"

struct world {
    uv_loop_t loop;
    struct watch_file *watch;
    char dir[64], path[96];
    unsigned changed, gone, back;
};

static void on_event(void *ctx, enum watch_event ev)
{
    struct world *w = ctx;

    w->changed += ev == WATCH_CHANGED;
    w->gone += ev == WATCH_GONE;
    w->back += ev == WATCH_BACK;
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

static void move(const struct world *w, const char *from, const char *to)
{
    char a[160], b[160];

    snprintf(a, sizeof(a), "%s/%s", w->dir, from);
    snprintf(b, sizeof(b), "%s/%s", w->dir, to);
    assert_int_equal(rename(a, b), 0);
}

static void link_to(const struct world *w, const char *target, const char *name)
{
    char path[160];

    snprintf(path, sizeof(path), "%s/%s", w->dir, name);
    assert_int_equal(symlink(target, path), 0);
}

static void make_world(struct world *w)
{
    memset(w, 0, sizeof(*w));
    strcpy(w->dir, "/tmp/millrace-test-watch-XXXXXX");
    assert_non_null(mkdtemp(w->dir));
    snprintf(w->path, sizeof(w->path), "%s/m.yaml", w->dir);
    uv_loop_init(&w->loop);
}

static void start(struct world *w)
{
    assert_int_equal(watch_file_new(&w->loop, w->path, on_event, w, &w->watch), 0);
}

static void end(struct world *w)
{
    char cmd[128];

    watch_file_close(w->watch);
    uv_run(&w->loop, UV_RUN_DEFAULT);
    assert_int_equal(uv_loop_close(&w->loop), 0);
    snprintf(cmd, sizeof(cmd), "rm -r %s", w->dir);
    assert_int_equal(system(cmd), 0);
}

/* Until the next event. */
static void next(struct world *w)
{
    uv_run(&w->loop, UV_RUN_DEFAULT);
}

static void written_and_replaced(void **state)
{
    struct world w;

    make_world(&w);
    put(&w, "m.yaml", "one");
    start(&w);
    put(&w, "m.yaml", "one and two");
    next(&w);
    assert_int_equal(w.changed, 1);
    put(&w, "new", "three");
    move(&w, "new", "m.yaml");
    next(&w);
    assert_int_equal(w.changed, 2);
    end(&w);
}

static void gone_and_back(void **state)
{
    struct world w;

    make_world(&w);
    put(&w, "m.yaml", "one");
    start(&w);
    assert_int_equal(unlink(w.path), 0);
    next(&w);
    assert_int_equal(w.gone, 1);
    assert_int_equal(w.changed, 0);
    put(&w, "m.yaml", "two");
    while (!w.changed)
        next(&w);
    assert_int_equal(w.back, 1);
    assert_int_equal(w.changed, 1);
    end(&w);
}

/* As Kubernetes mounts it: m.yaml -> ..data/m.yaml, ..data -> a folder that is switched. */
static void a_link_in_the_path_is_switched(void **state)
{
    struct world w;
    char dir[128];

    make_world(&w);
    for (unsigned i = 0; i < 2; i++) {
        snprintf(dir, sizeof(dir), "%s/v%u", w.dir, i);
        assert_int_equal(mkdir(dir, 0755), 0);
    }
    put(&w, "v0/m.yaml", "one");
    put(&w, "v1/m.yaml", "two");
    link_to(&w, "v0", "..data");
    link_to(&w, "..data/m.yaml", "m.yaml");
    start(&w);
    link_to(&w, "v1", "..tmp");
    move(&w, "..tmp", "..data");
    next(&w);
    assert_int_equal(w.changed, 1);
    put(&w, "v1/m.yaml", "written where it really is");
    next(&w);
    assert_int_equal(w.changed, 2);
    end(&w);
}

static void what_someone_else_has_read_is_no_news(void **state)
{
    struct world w;

    make_world(&w);
    put(&w, "m.yaml", "one");
    start(&w);
    put(&w, "m.yaml", "two, by hand and reloaded by hand");
    watch_file_seen(w.watch);
    put(&w, "other", "x");
    put(&w, "m.yaml", "three");
    next(&w);
    assert_int_equal(w.changed, 1);
    end(&w);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(written_and_replaced),
        cmocka_unit_test(gone_and_back),
        cmocka_unit_test(a_link_in_the_path_is_switched),
        cmocka_unit_test(what_someone_else_has_read_is_no_news),
    };
    return cmocka_run_group_tests_name("watch", tests, NULL, NULL);
}
