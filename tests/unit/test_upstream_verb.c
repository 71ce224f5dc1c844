/* `millrace upstream …`: which values the words set. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "config/load.h"
#include "control/upstream_verb.h"

static const char yaml[] = "version: 1\n"
                           "runtime: { cores: [0] }\n"
                           "ports:\n"
                           "  - name: edge0\n"
                           "    driver: veth\n"
                           "    device: mill0\n"
                           "    addresses: [10.77.0.1/24]\n"
                           "listeners:\n"
                           "  - { name: raw, address: \"*:80\", tunnel: { upstream: app } }\n"
                           "upstreams:\n"
                           "  - name: app\n"
                           "    endpoints:\n"
                           "      - 10.77.0.2:9000\n"
                           "      - { address: 10.77.0.2:9001, weight: 5 }\n"
                           "      - { address: 10.77.0.2:9002, weight: 0 }\n"
                           "  - { name: other, endpoints: [10.77.0.2:9000] }\n";

#define EP(port) "upstreams[app].endpoints[10.77.0.2:" port "]"

struct scene {
    struct snapshot *base;
    struct config_overrides overrides;
};

static int setup(void **state)
{
    struct scene *s = calloc(1, sizeof(*s));
    struct config_errors errs;

    config_errors_init(&errs);
    config_load_text("t.yaml", yaml, strlen(yaml), NULL, &s->base, &errs);
    config_check_report(stderr, &errs);
    config_errors_fini(&errs);
    *state = s;
    return s->base ? 0 : -1;
}

static int teardown(void **state)
{
    struct scene *s = *state;

    config_overrides_fini(&s->overrides);
    snapshot_free(s->base);
    free(s);
    return 0;
}

/* `request`: the arguments but the verb. The changes, a line each, or the error's line. */
static void says(struct scene *s, const char *request, const char *expected)
{
    struct config_overrides changes;
    struct admin_call call;
    char line[512], err[256] = "", *got;
    size_t len;
    FILE *f = open_memstream(&got, &len);

    snprintf(line, sizeof(line), "{\"verb\":\"upstream\",%s}", request);
    assert_int_equal(admin_parse(line, strlen(line), &call, err, sizeof(err)), 0);
    int e = upstream_verb_changes(&call, s->base, &s->overrides, &changes, err, sizeof(err));
    admin_call_fini(&call);
    if (e)
        fprintf(f, "%s\n", err);
    for (size_t i = 0; !e && i < changes.count; i++)
        fprintf(f, "%s=%s\n", changes.list[i].path,
                changes.list[i].value ? changes.list[i].value : "(gone)");
    if (!e)
        config_overrides_fini(&changes);
    fclose(f);
    assert_string_equal(got, expected);
    free(got);
}

static void a_drain_is_a_weight_of_nothing(void **state)
{
    says(*state, "\"upstream\":\"app\",\"action\":\"drain\",\"endpoint\":\"10.77.0.2:9001\"",
         EP("9001") ".weight=0\n");
    says(*state, "\"upstream\":\"app\",\"action\":\"drain\"",
         EP("9000") ".weight=0\n" EP("9001") ".weight=0\n" EP("9002") ".weight=0\n");
}

static void an_undrain_gives_back_what_a_drain_took(void **state)
{
    struct scene *s = *state;

    says(s, "\"upstream\":\"app\",\"action\":\"undrain\"", "");
    assert_int_equal(config_overrides_set(&s->overrides, EP("9000") ".weight", "0"), 0);
    assert_int_equal(config_overrides_set(&s->overrides, EP("9001") ".weight", "7"), 0);
    says(s, "\"upstream\":\"app\",\"action\":\"undrain\"", EP("9000") ".weight=(gone)\n");
    says(s, "\"upstream\":\"app\",\"action\":\"undrain\",\"endpoint\":\"10.77.0.2:9001\"", "");
    says(s, "\"upstream\":\"app\",\"action\":\"undrain\",\"endpoint\":\"10.77.0.2:9002\"",
         "the configuration gives it weight 0: give it another one by `weight`\n");
}

static void weights_and_limits_go_by_the_schema(void **state)
{
    says(*state,
         "\"upstream\":\"app\",\"action\":\"weight\",\"endpoint\":\"10.77.0.2:9000\","
         "\"value\":\"3\"",
         EP("9000") ".weight=3\n");
    says(*state, "\"upstream\":\"app\",\"action\":\"limit\",\"key\":\"idle\",\"value\":\"9\"",
         "upstreams[app].pool.idle=9\n");
    says(*state, "\"upstream\":\"app\",\"action\":\"limit\",\"key\":\"pool.max\",\"value\":\"9\"",
         "upstreams[app].pool.max=9\n");
    says(*state, "\"upstream\":\"app\",\"action\":\"limit\",\"key\":\"balance\",\"value\":\"9\"",
         "upstreams have no limit \"balance\"; `millrace explain upstreams` lists their keys\n");
    says(*state, "\"upstream\":\"app\",\"action\":\"limit\",\"key\":\"pool\",\"value\":\"9\"",
         "upstreams have no limit \"pool\"; `millrace explain upstreams` lists their keys\n");
    says(*state, "\"upstream\":\"app\",\"action\":\"limit\",\"key\":\"idle\"",
         "limit needs a key and a value\n");
    says(*state, "\"upstream\":\"app\",\"action\":\"weight\",\"value\":\"1\"",
         "weight needs an endpoint and a number\n");
}

static void a_reset_takes_all_that_is_below(void **state)
{
    struct scene *s = *state;

    config_overrides_set(&s->overrides, EP("9000") ".weight", "0");
    config_overrides_set(&s->overrides, "upstreams[app].pool.idle", "9");
    config_overrides_set(&s->overrides, "upstreams[other].pool.idle", "9");
    says(s, "\"upstream\":\"app\",\"action\":\"reset\",\"endpoint\":\"10.77.0.2:9000\"",
         EP("9000") ".weight=(gone)\n");
    says(s, "\"upstream\":\"app\",\"action\":\"reset\"",
         EP("9000") ".weight=(gone)\nupstreams[app].pool.idle=(gone)\n");
}

static void what_is_not_there_is_told(void **state)
{
    says(*state, "\"upstream\":\"ap\",\"action\":\"drain\"",
         "unknown upstream \"ap\" (did you mean \"app\"?)\n");
    says(*state, "\"upstream\":\"app\",\"action\":\"drain\",\"endpoint\":\"10.77.0.2:1\"",
         "there is no endpoint \"10.77.0.2:1\" in upstream \"app\"\n");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(a_drain_is_a_weight_of_nothing, setup, teardown),
        cmocka_unit_test_setup_teardown(an_undrain_gives_back_what_a_drain_took, setup, teardown),
        cmocka_unit_test_setup_teardown(weights_and_limits_go_by_the_schema, setup, teardown),
        cmocka_unit_test_setup_teardown(a_reset_takes_all_that_is_below, setup, teardown),
        cmocka_unit_test_setup_teardown(what_is_not_there_is_told, setup, teardown),
    };
    return cmocka_run_group_tests_name("upstream_verb", tests, NULL, NULL);
}
