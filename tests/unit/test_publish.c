/* Publishing configurations to cores that take them late, or never. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "control/publish.h"

#define CORES 2

struct fakes {
    uint64_t acked[CORES], released[CORES]; /* everything up to this one */
    bool ended[CORES];
    struct snapshot *published;
};

static bool on_is_running(void *ctx, unsigned core)
{
    return !((struct fakes *)ctx)->ended[core];
}

static uint64_t on_acked(void *ctx, unsigned core)
{
    return ((struct fakes *)ctx)->acked[core];
}

static bool on_has_released(void *ctx, unsigned core, uint64_t version)
{
    return ((struct fakes *)ctx)->released[core] >= version;
}

static void on_publish(void *ctx, struct snapshot *s)
{
    ((struct fakes *)ctx)->published = s;
}

static const struct cores_ops fake_ops = {.is_running = on_is_running,
                                          .acked = on_acked,
                                          .has_released = on_has_released,
                                          .publish = on_publish};

/* `connect` is live, `cores` is not. */
static const char *config(const char *cores, const char *connect)
{
    static char text[2048];

    snprintf(text, sizeof(text),
             "version: 1\n"
             "runtime: { cores: [%s] }\n"
             "ports:\n"
             "  - name: edge0\n"
             "    driver: veth\n"
             "    device: mill0\n"
             "    host_address: 10.77.0.2/24\n"
             "    addresses: [10.77.0.1/24]\n"
             "listeners:\n"
             "  - name: web\n"
             "    address: 10.77.0.1:8080\n"
             "    http:\n"
             "      routes:\n"
             "        - upstream: app\n"
             "          match: { host: \"*\", path_prefix: / }\n"
             "upstreams:\n"
             "  - name: app\n"
             "    endpoints: [10.77.0.2:9000]\n"
             "    timeouts: { connect: %s }\n",
             cores, connect);
    return text;
}

struct world {
    struct fakes f;
    struct cores cores;
    struct publish p;
};

static void reload(struct world *w, const char *text, struct publish_result *r)
{
    publish_reload(&w->p, "test.yaml", text, r);
}

static int setup(void **state)
{
    struct world *w = calloc(1, sizeof(*w));
    struct config_errors errs;
    struct snapshot *s;
    const char *text = config("0", "1s");

    config_errors_init(&errs);
    if (config_load_text("test.yaml", text, strlen(text), NULL, &s, &errs)) {
        config_check_report(stderr, &errs);
        return -1;
    }
    config_errors_fini(&errs);
    s->version = 1;
    w->cores = (struct cores){&fake_ops, &w->f, CORES};
    w->f.acked[0] = w->f.acked[1] = 1;
    publish_init(&w->p, &w->cores, s);
    *state = w;
    return 0;
}

static int teardown(void **state)
{
    struct world *w = *state;

    publish_fini(&w->p);
    free(w);
    return 0;
}

static void a_change_waits_for_every_core(void **state)
{
    struct world *w = *state;
    struct publish_result r;

    reload(w, config("0", "2s"), &r);
    assert_int_equal(r.error, 0);
    assert_true(r.changed);
    assert_int_equal(r.version, 2);
    assert_int_equal(r.diff.nchanges, 1);
    assert_ptr_equal(w->f.published, w->p.current);
    assert_int_equal(w->f.published->upstreams[0].connect_timeout, 2000000000);
    char *text = publish_diff_text(&r.diff);
    assert_string_equal(text, "upstreams[app].timeouts.connect: 1s -> 2s\n");
    free(text);
    publish_result_fini(&r);

    assert_false(publish_is_acknowledged(&w->p));
    assert_int_equal(publish_poll(&w->p), 1);
    w->f.acked[0] = w->f.acked[1] = 2;
    assert_true(publish_is_acknowledged(&w->p));
    assert_int_equal(publish_poll(&w->p), 1); /* still pinned */
    w->f.released[0] = 1;
    assert_int_equal(publish_poll(&w->p), 1);
    w->f.released[1] = 1;
    assert_int_equal(publish_poll(&w->p), 0);
}

static void a_core_that_has_ended_holds_nothing_up(void **state)
{
    struct world *w = *state;
    struct publish_result r;

    w->f.ended[1] = true;
    reload(w, config("0", "2s"), &r);
    publish_result_fini(&r);
    w->f.acked[0] = 2;
    w->f.released[0] = 1;
    assert_true(publish_is_acknowledged(&w->p));
    assert_int_equal(publish_poll(&w->p), 0);
}

static void what_is_wrong_changes_nothing(void **state)
{
    static const char *const bad[] = {"", "version: 1\n", "version: 1\nnonsense: 3\n", "{[",
                                      "\xff"};
    struct world *w = *state;
    struct publish_result r;

    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        reload(w, bad[i], &r);
        assert_int_equal(r.error, -EINVAL);
        assert_false(r.changed);
        assert_int_equal(r.version, 1);
        assert_true(r.errors.count > 0);
        publish_result_fini(&r);
    }
    publish_reload(&w->p, "/nowhere/millrace.yaml", NULL, &r);
    assert_int_equal(r.error, -ENOENT);
    assert_non_null(strstr(r.errors.list[0].text, "/nowhere/millrace.yaml"));
    publish_result_fini(&r);
    assert_null(w->f.published);
    assert_int_equal(w->p.refused, 6);
}

static void the_same_again_is_no_new_version(void **state)
{
    struct world *w = *state;
    struct publish_result r;

    reload(w, config("0", "1000ms"), &r);
    assert_int_equal(r.error, 0);
    assert_false(r.changed);
    assert_int_equal(r.version, 1);
    assert_int_equal(r.diff.nchanges, 0);
    assert_null(w->f.published);
    publish_result_fini(&r);
}

/* What needs a restart is told each time and keeps its old value; the rest is taken. */
static void frozen_keys_keep_their_value(void **state)
{
    struct world *w = *state;
    struct publish_result r;

    reload(w, config("1", "1s"), &r);
    assert_int_equal(r.error, 0);
    assert_false(r.changed);
    assert_int_equal(r.diff.nfrozen, 1);
    char *text = publish_diff_text(&r.diff);
    assert_non_null(strstr(text, "runtime.cores"));
    assert_non_null(strstr(text, "needs a restart"));
    free(text);
    publish_result_fini(&r);

    reload(w, config("1", "3s"), &r);
    assert_true(r.changed);
    assert_int_equal(r.version, 2);
    assert_int_equal(r.diff.nfrozen, 1);
    assert_int_equal(w->p.current->runtime.cores[0], 0);
    assert_int_equal(w->p.current->upstreams[0].connect_timeout, 3000000000);
    publish_result_fini(&r);
}

/* A core that never acknowledges can't make us hoard versions without end. */
static void versions_waiting_are_bounded(void **state)
{
    struct world *w = *state;
    struct publish_result r;
    char connect[16];

    for (unsigned i = 0; i < PUBLISH_MAX_OLD + 1; i++) {
        snprintf(connect, sizeof(connect), "%ums", 100 + i);
        reload(w, config("0", connect), &r);
        assert_int_equal(r.error, i < PUBLISH_MAX_OLD ? 0 : -EBUSY);
        publish_result_fini(&r);
    }
    assert_int_equal(w->p.current->version, PUBLISH_MAX_OLD + 1);
    for (unsigned i = 0; i < CORES; i++) {
        w->f.acked[i] = PUBLISH_MAX_OLD + 1;
        w->f.released[i] = 40;
    }
    assert_int_equal(publish_poll(&w->p), PUBLISH_MAX_OLD - 40);
    reload(w, config("0", "9s"), &r);
    assert_int_equal(r.error, 0);
    publish_result_fini(&r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(a_change_waits_for_every_core, setup, teardown),
        cmocka_unit_test_setup_teardown(a_core_that_has_ended_holds_nothing_up, setup, teardown),
        cmocka_unit_test_setup_teardown(what_is_wrong_changes_nothing, setup, teardown),
        cmocka_unit_test_setup_teardown(the_same_again_is_no_new_version, setup, teardown),
        cmocka_unit_test_setup_teardown(frozen_keys_keep_their_value, setup, teardown),
        cmocka_unit_test_setup_teardown(versions_waiting_are_bounded, setup, teardown),
    };
    return cmocka_run_group_tests_name("publish", tests, NULL, NULL);
}
