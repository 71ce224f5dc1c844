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

static int on_prepare(void *ctx, struct snapshot *s, char *err, size_t err_len)
{
    return 0;
}

static void on_publish(void *ctx, struct snapshot *s)
{
    ((struct fakes *)ctx)->published = s;
}

static const struct cores_ops fake_ops = {.is_running = on_is_running,
                                          .acked = on_acked,
                                          .has_released = on_has_released,
                                          .prepare = on_prepare,
                                          .publish = on_publish};

/* `connect` and what `more` adds to the listeners are live, `cores` is not. */
static const char *config_with(const char *cores, const char *connect, const char *more)
{
    static char text[4096];

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
             "%s"
             "upstreams:\n"
             "  - name: app\n"
             "    endpoints: [10.77.0.2:9000]\n"
             "    timeouts: { connect: %s }\n",
             cores, more, connect);
    return text;
}

static const char *config(const char *cores, const char *connect)
{
    return config_with(cores, connect, "");
}

#define CONNECT "upstreams[app].timeouts.connect"

struct world {
    struct fakes f;
    struct cores cores;
    struct publish p;
};

static const struct publish_opts plain = {.wall_now = 5};

static void reload(struct world *w, const char *text, struct publish_result *r)
{
    publish_text(&w->p, "test.yaml", text, strlen(text), &plain, r);
}

/* One that must go well, and changes something. */
static void must_reload(struct world *w, const char *text)
{
    struct publish_result r;

    reload(w, text, &r);
    assert_int_equal(r.error, 0);
    assert_true(r.changed);
    publish_result_fini(&r);
}

static void set(struct world *w, const char *path, const char *value, int error)
{
    struct config_override x = {(char *)(uintptr_t)path, (char *)(uintptr_t)value};
    struct publish_result r;

    publish_set(&w->p, &x, 1, &plain, &r);
    assert_int_equal(r.error, error);
    assert_true(!error || r.error_text[0]);
    publish_result_fini(&r);
}

static uint64_t connect_timeout(const struct world *w)
{
    return w->p.current->upstreams[0].connect_timeout / 1000000;
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
    w->cores = (struct cores){&fake_ops, &w->f, CORES};
    w->f.acked[0] = w->f.acked[1] = 1;
    if (publish_init(&w->p, s, text, strlen(text), 1))
        return -1;
    publish_set_cores(&w->p, &w->cores);
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
    assert_null(w->f.published);
    assert_int_equal(w->p.refused, 5);
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

/* Taking part in a change that was made for another one's state is refused. */
static void a_change_may_say_what_it_must_find(void **state)
{
    struct publish_opts o = {.has_if_version = true, .if_version = 1};
    struct world *w = *state;
    struct publish_result r;
    const char *text = config("0", "2s");

    publish_text(&w->p, "test.yaml", text, strlen(text), &o, &r);
    assert_int_equal(r.error, 0);
    assert_int_equal(r.version, 2);
    publish_result_fini(&r);
    text = config("0", "3s");
    publish_text(&w->p, "test.yaml", text, strlen(text), &o, &r);
    assert_int_equal(r.error, -ESTALE);
    assert_string_equal(r.error_text, "version has moved on: 1 was expected, 2 runs");
    publish_result_fini(&r);
    o.if_version = 3;
    publish_text(&w->p, "test.yaml", text, strlen(text), &o, &r);
    assert_int_equal(r.error, -ESTALE);
    publish_result_fini(&r);
    assert_int_equal(connect_timeout(w), 2000);
}

static void what_is_set_by_hand_outlives_reloads(void **state)
{
    struct publish_opts drop = {.drop_overrides = true};
    struct world *w = *state;
    struct publish_result r;

    set(w, CONNECT, "700ms", 0);
    assert_int_equal(w->p.current->version, 2);
    assert_int_equal(connect_timeout(w), 700);
    must_reload(w, config("0", "2s")); /* a new version, though nothing of it shows */
    assert_int_equal(connect_timeout(w), 700);
    assert_int_equal(w->p.overrides.count, 1);

    const char *text = config("0", "2s");
    publish_text(&w->p, "test.yaml", text, strlen(text), &drop, &r);
    assert_true(r.changed); /* although the file is the same */
    assert_int_equal(r.dropped.count, 1);
    assert_string_equal(r.dropped.list[0].path, CONNECT);
    assert_int_equal(r.overrides, 0);
    publish_result_fini(&r);
    assert_int_equal(connect_timeout(w), 2000);
}

static void an_override_that_says_the_same_is_none(void **state)
{
    struct world *w = *state;

    set(w, CONNECT, "1000ms", 0);
    assert_int_equal(w->p.overrides.count, 0);
    assert_int_equal(w->p.current->version, 1);
    set(w, CONNECT, "1500ms", 0);
    set(w, CONNECT, "1500ms", 0);
    assert_int_equal(w->p.overrides.count, 1);
    assert_int_equal(w->p.current->version, 2);
    set(w, CONNECT, NULL, 0);
    assert_int_equal(w->p.overrides.count, 0);
    assert_int_equal(connect_timeout(w), 1000);
    assert_int_equal(w->p.current->version, 3);
}

static void wrong_overrides_change_nothing(void **state)
{
    struct world *w = *state;

    set(w, CONNECT, "soon", -EINVAL);
    set(w, CONNECT, "9h", -EINVAL);
    set(w, "upstreams[app].timeouts.conect", "1s", -EINVAL);
    set(w, "upstreams[apps].timeouts.connect", "1s", -EINVAL);
    set(w, "upstreams.timeouts.connect", "1s", -EINVAL);
    assert_int_equal(w->p.overrides.count, 0);
    assert_int_equal(w->p.current->version, 1);
    assert_null(w->f.published);
}

/* Each value may be right, and all of them together wrong. */
static void overrides_obey_the_rules_over_several_values(void **state)
{
    static const char header_size[] = "listeners[web].http.limits.header_size";
    struct world *w = *state;
    struct publish_result r;

    set(w, header_size, "1MiB", -EINVAL); /* more than runtime.receive_buffer */
    assert_int_equal(w->p.current->version, 1);
    set(w, header_size, "32KiB", 0);
    reload(w, config("0", "5s"), &r);
    assert_int_equal(r.error, 0);
    publish_result_fini(&r);
    assert_int_equal(w->p.current->listeners[0].http->header_size, 32768);
}

/* The upstream that an override is about may go with a reload: then it goes too, and is told. */
static void an_override_without_its_object_is_dropped(void **state)
{
    static const char two[] = "  - { name: other, endpoints: [10.77.0.2:9001] }\n";
    struct world *w = *state;
    struct publish_result r;
    char text[8192];

    snprintf(text, sizeof(text), "%s%s", config("0", "1s"), two);
    must_reload(w, text);
    set(w, "upstreams[other].timeouts.connect", "3s", 0);
    set(w, CONNECT, "4s", 0);
    reload(w, config("0", "1s"), &r);
    assert_int_equal(r.error, 0);
    assert_int_equal(r.dropped.count, 1);
    assert_string_equal(r.dropped.list[0].path, "upstreams[other].timeouts.connect");
    assert_int_equal(r.overrides, 1);
    publish_result_fini(&r);
    assert_int_equal(connect_timeout(w), 4000);
}

static void rollback(struct world *w, uint64_t version, int error, struct publish_result *r)
{
    publish_rollback(&w->p, version, &plain, r);
    assert_int_equal(r->error, error);
    publish_result_fini(r);
}

static void a_rollback_goes_to_the_one_before_and_back(void **state)
{
    struct world *w = *state;
    struct publish_result r;

    rollback(w, 0, -ENOENT, &r);
    must_reload(w, config("0", "2s"));
    must_reload(w, config("0", "3s"));
    rollback(w, 0, 0, &r);
    assert_int_equal(r.version, 4);
    assert_int_equal(r.repeats, 2);
    assert_int_equal(connect_timeout(w), 2000);
    rollback(w, 0, 0, &r);
    assert_int_equal(connect_timeout(w), 3000);
    rollback(w, 1, 0, &r);
    assert_int_equal(connect_timeout(w), 1000);
    assert_int_equal(r.version, 6);
    rollback(w, 99, -ENOENT, &r);
    assert_int_equal(w->p.current->version, 6);
}

/* By hand and by file: a version that an override made stands for the file that ran then. */
static void versions_are_remembered_up_to_a_bound(void **state)
{
    struct world *w = *state;
    struct publish_result r;
    char connect[16];

    set(w, CONNECT, "10ms", 0);
    for (unsigned i = 0; i < 2 * HISTORY_MAX; i++) {
        snprintf(connect, sizeof(connect), "%ums", 100 + i);
        must_reload(w, config("0", connect));
        w->f.acked[0] = w->f.acked[1] = w->p.current->version;
        w->f.released[0] = w->f.released[1] = w->p.current->version - 1;
    }
    assert_int_equal(w->p.history.count, HISTORY_MAX);
    rollback(w, 2, -ENOENT, &r);
    rollback(w, w->p.history.entries[0].version, 0, &r);
    assert_int_equal(connect_timeout(w), 10); /* by hand, still */
    assert_string_equal(history_newest(&w->p.history)->text, config("0", "116ms"));
}

/* A listener that goes stays until its last connection has gone, through further versions. */
static void a_listener_drains_until_it_is_empty(void **state)
{
    static const char raw[] =
        "  - { name: raw, address: 10.77.0.1:90, tunnel: { upstream: app } }\n";
    struct world *w = *state;
    struct publish_opts o = {.has_if_version = true, .if_version = 3};
    struct publish_result r;

    must_reload(w, config_with("0", "1s", raw));
    must_reload(w, config("0", "1s"));
    assert_int_equal(w->p.current->nlisteners, 1);
    assert_int_equal(w->p.current->ndraining, 1);
    assert_string_equal(w->p.current->draining[0].name, "raw");
    assert_ptr_equal(w->p.current->draining[0].tunnel->upstream, w->p.current->upstreams);
    publish_clean(&w->p);
    assert_int_equal(w->p.current->version, 3);
    publish_set_empty(&w->p, 0);
    publish_clean(&w->p); /* the cores are behind: not yet */
    assert_int_equal(w->p.current->version, 3);
    w->f.acked[0] = w->f.acked[1] = 3;
    w->f.released[0] = w->f.released[1] = 2;
    publish_clean(&w->p);
    assert_int_equal(w->p.current->version, 4);
    assert_int_equal(w->p.current->ndraining, 0);
    /* Which is nobody's change. */
    const char *text = config("0", "2s");
    publish_text(&w->p, "test.yaml", text, strlen(text), &o, &r);
    assert_int_equal(r.error, 0);
    assert_int_equal(r.version, 5);
    publish_result_fini(&r);
}

/* What only a listener that drains needs stays with it. */
static void its_upstreams_stay_with_a_listener_that_drains(void **state)
{
    struct world *w = *state;
    char text[8192];

    snprintf(
        text, sizeof(text), "%s  - { name: other, endpoints: [10.77.0.2:9001] }\n",
        config_with("0", "1s",
                    "  - { name: raw, address: 10.77.0.1:90, tunnel: { upstream: other } }\n"));
    must_reload(w, text);
    must_reload(w, config("0", "1s"));
    assert_int_equal(w->p.base->nupstreams, 1);
    assert_int_equal(w->p.current->nupstreams, 2);
    assert_string_equal(w->p.current->draining[0].tunnel->upstream->name, "other");
    must_reload(w, config("0", "2s"));
    assert_int_equal(w->p.current->nupstreams, 2);
    publish_set_empty(&w->p, 0);
    must_reload(w, config("0", "3s"));
    assert_int_equal(w->p.current->nupstreams, 1);
    assert_int_equal(w->p.current->ndraining, 0);
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
        cmocka_unit_test_setup_teardown(a_change_may_say_what_it_must_find, setup, teardown),
        cmocka_unit_test_setup_teardown(what_is_set_by_hand_outlives_reloads, setup, teardown),
        cmocka_unit_test_setup_teardown(an_override_that_says_the_same_is_none, setup, teardown),
        cmocka_unit_test_setup_teardown(wrong_overrides_change_nothing, setup, teardown),
        cmocka_unit_test_setup_teardown(overrides_obey_the_rules_over_several_values, setup,
                                        teardown),
        cmocka_unit_test_setup_teardown(an_override_without_its_object_is_dropped, setup, teardown),
        cmocka_unit_test_setup_teardown(a_rollback_goes_to_the_one_before_and_back, setup,
                                        teardown),
        cmocka_unit_test_setup_teardown(versions_are_remembered_up_to_a_bound, setup, teardown),
        cmocka_unit_test_setup_teardown(a_listener_drains_until_it_is_empty, setup, teardown),
        cmocka_unit_test_setup_teardown(its_upstreams_stay_with_a_listener_that_drains, setup,
                                        teardown),
    };
    return cmocka_run_group_tests_name("publish", tests, NULL, NULL);
}
