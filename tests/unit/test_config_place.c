/* Values by their path: found, set, listed, and where in the file they stand. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "config/build.h"
#include "config/load.h"
#include "config/origins.h"
#include "config/place.h"

static const char text[] = "version: 1\n"
                           "runtime: { cores: [1] }\n"
                           "ports:\n"
                           "  - name: edge0\n"
                           "    driver: veth\n"
                           "    device: mill0\n"
                           "    addresses: [10.77.0.1/24]\n"
                           "    gateway: 10.77.0.2\n"
                           "listeners:\n"
                           "  - name: web\n"
                           "    address: 10.77.0.1:8080\n"
                           "    http:\n"
                           "      routes:\n"
                           "        - upstream: app\n"
                           "        - match: { host: \"*.b.example\", path_prefix: \"/x[1].y\" }\n"
                           "          upstream: api.v2\n"
                           "          timeouts: { request: 3s }\n"
                           "  - name: raw\n"
                           "    address: 10.77.0.1:8081\n"
                           "    tunnel: { upstream: app }\n"
                           "upstreams:\n"
                           "  - name: app\n"
                           "    endpoints: [10.77.0.2:9000]\n"
                           "  - name: api.v2\n"
                           "    timeouts:\n"
                           "      connect: 250ms\n"
                           "    endpoints: [10.77.0.2:9001, 10.77.0.2:9002]\n";

static int setup(void **state)
{
    struct config_errors errs;
    struct snapshot *s = NULL;

    config_errors_init(&errs);
    config_load_text("t.yaml", text, strlen(text), NULL, &s, &errs);
    config_check_report(stderr, &errs);
    config_errors_fini(&errs);
    *state = s;
    return s ? 0 : -1;
}

static int teardown(void **state)
{
    snapshot_free(*state);
    return 0;
}

static void values_are_found_by_their_path(void **state)
{
    static const struct {
        const char *path, *value; /* NULL: nothing there */
    } cases[] = {
        {"version", "1"},
        {"runtime.cores", "[1]"},
        {"ports[edge0].gateway", "10.77.0.2"},
        {"ports[edge0].driver_args", ""},
        {"listeners[web].address", "10.77.0.1:8080"},
        {"listeners[web].http.routes[*/].upstream", "app"},
        {"listeners[web].http.routes[*.b.example/x[1].y].upstream", "api.v2"},
        {"listeners[web].http.routes[*.b.example/x[1].y].timeouts.request", "3s"},
        {"listeners[raw].tunnel.timeouts.idle", "5m"},
        {"upstreams[api.v2].timeouts.connect", "250ms"},
        {"listeners[raw].http.via", NULL},
        {"listeners[none].address", NULL},
        {"listeners[].address", NULL},
        {"listeners.address", NULL},
        {"listeners", NULL},
        {"listeners[web]", NULL},
        {"listeners[web].limits", NULL},
        {"listeners[web].address.port", NULL},
        {"listeners[web", NULL},
        {"runtime.cores[0]", NULL},
        {"", NULL},
        {".", NULL},
    };

    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        char *got = config_place_get(*state, cases[i].path);
        if (!got != !cases[i].value || (got && strcmp(got, cases[i].value) != 0))
            fail_msg("%s: %s", cases[i].path, got ? got : "(nothing)");
        free(got);
    }
}

static void what_is_wrong_is_said(void **state)
{
    static const struct {
        const char *path, *value, *error;
        int rc;
    } cases[] = {
        {"upstreams[app].timeouts.conect", "1s",
         "there is no key \"upstreams[app].timeouts.conect\" (did you mean \"connect\"?)", -EINVAL},
        {"upstreams[nobody].timeouts.connect", "1s",
         "there is no upstreams[nobody].timeouts.connect", -ENOENT},
        {"upstreams.timeouts.connect", "1s",
         "\"upstreams.timeouts.connect\": which of the upstreams? Expected upstreams[…]", -EINVAL},
        {"upstreams[app].timeouts", "1s", "\"upstreams[app].timeouts\" is a mapping, not a value",
         -EINVAL},
        {"upstreams[app].timeouts.connect", "1",
         "upstreams[app].timeouts.connect: expected a duration such as 200ms, 1s, 2m or 1h, found "
         "\"1\" (did you mean \"1s\"?)",
         -EINVAL},
        {"runtime.cores", "[1]", "\"runtime.cores\" is a list", -EINVAL},
    };

    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        char err[256] = "";
        int rc = config_place_set(*state, cases[i].path, cases[i].value, err, sizeof(err));
        assert_int_equal(rc, cases[i].rc);
        assert_string_equal(err, cases[i].error);
    }
}

static void set_values_are_built_into_a_copy(void **state)
{
    struct snapshot *base = *state, *s;
    struct config_overrides o = {NULL, 0};
    struct config_build b = {.base = base, .overrides = &o};
    char err[256];

    assert_int_equal(config_overrides_set(&o, "upstreams[app].timeouts.connect", "2s"), 0);
    assert_int_equal(config_overrides_set(&o, "upstreams[api.v2].balance", "random"), 0);
    assert_int_equal(config_build(&b, &s, NULL, err, sizeof(err)), 0);
    assert_true(snapshot_upstream(s, "app")->connect_timeout == 2000000000);
    assert_int_equal(snapshot_upstream(s, "api.v2")->balance, CONFIG_RANDOM);
    assert_true(snapshot_upstream(base, "app")->connect_timeout == 1000000000);
    snapshot_free(s);
    size_t which = 9;
    assert_int_equal(config_overrides_set(&o, "upstreams[gone].balance", "random"), 0);
    assert_int_equal(config_build(&b, &s, &which, err, sizeof(err)), -ENOENT);
    assert_int_equal(which, 2);
    config_overrides_fini(&o);
}

static void the_schema_answers_to_any_form_of_a_path(void **state)
{
    static const char *const forms[] = {
        "upstreams.timeouts.connect", "upstreams[].timeouts.connect",
        "upstreams[app].timeouts.connect", "upstreams[x.y[1]].timeouts.connect"};
    char err[256];

    for (size_t i = 0; i < 4; i++)
        assert_string_equal(config_place_key(forms[i], err, sizeof(err))->name, "connect");
    assert_string_equal(config_place_key("listeners[web]", err, sizeof(err))->name, "listeners");
    assert_null(config_place_key("upstreams.timeout", err, sizeof(err)));
    assert_string_equal(err, "there is no key \"upstreams.timeout\" (did you mean \"timeouts\"?)");
    assert_null(config_place_key("upstreams.balance.x", err, sizeof(err)));
    assert_string_equal(err, "\"upstreams.balance\" has no keys below it");
    assert_null(config_place_key("", err, sizeof(err)));
    assert_null(config_place_key("runtime[0].cores", err, sizeof(err)));
}

static void put_origin(void *ctx, const char *path, const char *value, unsigned line, unsigned col)
{
    fprintf(ctx, "%s=%s@%u:%u\n", path, value, line, col);
}

static void origins_are_lines_of_the_file(void **state)
{
    static const struct {
        const char *path, *expected;
    } cases[] = {
        {"upstreams.timeouts.connect", "upstreams[app].timeouts.connect=1s@0:0\n"
                                       "upstreams[api.v2].timeouts.connect=250ms@26:16\n"},
        {"upstreams[].balance", "upstreams[app].balance=least_request@0:0\n"
                                "upstreams[api.v2].balance=least_request@0:0\n"},
        {"listeners[web].http.routes[*.b.example/x[1].y].timeouts.request",
         "listeners[web].http.routes[*.b.example/x[1].y].timeouts.request=3s@17:32\n"},
        {"listeners.http.routes.upstream",
         "listeners[web].http.routes[*/].upstream=app@14:21\n"
         "listeners[web].http.routes[*.b.example/x[1].y].upstream=api.v2@16:21\n"},
        {"runtime.cores", "runtime.cores=[1]@2:20\n"},
        {"drain", "drain.timeout=30s@0:0\n"},
        {"upstreams[none].balance", ""},
    };

    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct config_errors errs;
        char *got;
        size_t len;
        FILE *f = open_memstream(&got, &len);

        config_errors_init(&errs);
        assert_int_equal(
            config_load_origins("t.yaml", text, strlen(text), cases[i].path, f, put_origin, &errs),
            0);
        fclose(f);
        assert_string_equal(got, cases[i].expected);
        free(got);
        config_errors_fini(&errs);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(values_are_found_by_their_path, setup, teardown),
        cmocka_unit_test_setup_teardown(what_is_wrong_is_said, setup, teardown),
        cmocka_unit_test_setup_teardown(set_values_are_built_into_a_copy, setup, teardown),
        cmocka_unit_test(the_schema_answers_to_any_form_of_a_path),
        cmocka_unit_test(origins_are_lines_of_the_file),
    };
    return cmocka_run_group_tests_name("config_place", tests, NULL, NULL);
}
