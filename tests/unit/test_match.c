#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "dataplane/route/match.h"

#define ROUTE(kind, h, p)                                                                          \
    {                                                                                              \
        .host_kind = kind, .host = h, .host_len = sizeof(h) - 1, .path_prefix = p,                 \
        .path_prefix_len = sizeof(p) - 1                                                           \
    }

/* In the order that config/ freezes them: most specific first. */
static struct config_route routes[] = {
    ROUTE(CONFIG_HOST_EXACT, "a.example", "/api/v2"),
    ROUTE(CONFIG_HOST_EXACT, "a.example", "/api"),
    ROUTE(CONFIG_HOST_SUFFIX, ".deep.example", "/"),
    ROUTE(CONFIG_HOST_SUFFIX, ".example", "/static/"),
    ROUTE(CONFIG_HOST_ANY, "", "/any"),
};

static void the_most_specific_route_wins(void **state)
{
    static const struct {
        const char *host, *path;
        enum route_result result;
        int route;
    } cases[] = {
        {"a.example", "/api", ROUTE_OK, 1},
        {"a.example", "/api/", ROUTE_OK, 1},
        {"a.example", "/api/v1", ROUTE_OK, 1},
        {"a.example", "/api/v2", ROUTE_OK, 0},
        {"a.example", "/api/v2/x", ROUTE_OK, 0},
        {"a.example", "/api/v22", ROUTE_OK, 1},
        {"a.example", "/apis", ROUTE_NO_PATH, -1},
        /* A host that has routes of its own doesn't fall back to wider patterns. */
        {"a.example", "/static/x", ROUTE_NO_PATH, -1},
        {"a.example", "/any", ROUTE_NO_PATH, -1},
        {"b.example", "/static/x", ROUTE_OK, 3},
        {"b.example", "/static", ROUTE_NO_PATH, -1},
        {"x.deep.example", "/static/x", ROUTE_OK, 2},
        {"deep.example", "/static/x", ROUTE_OK, 3},
        {"example", "/any/x", ROUTE_OK, 4},
        {"example", "/", ROUTE_NO_PATH, -1},
        {"", "/any", ROUTE_OK, 4},
    };
    struct config_http http = {.routes = routes, .nroutes = 5};
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        const struct config_route *r = NULL;
        enum route_result got = route_match(&http, cases[i].host, strlen(cases[i].host),
                                            cases[i].path, strlen(cases[i].path), &r);
        int at = r ? (int)(r - routes) : -1;
        if (got != cases[i].result || at != cases[i].route)
            fail_msg("%s%s: result %d route %d, not %d %d", cases[i].host, cases[i].path, got, at,
                     cases[i].result, cases[i].route);
    }
}

static void without_a_pattern_for_it_a_host_is_not_served(void **state)
{
    struct config_http http = {.routes = routes, .nroutes = 4};
    const struct config_route *r = NULL;
    assert_int_equal(route_match(&http, "other.org", 9, "/", 1, &r), ROUTE_NO_HOST);
    assert_int_equal(route_match(&http, "example", 7, "/", 1, &r), ROUTE_NO_HOST);
    assert_null(r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_most_specific_route_wins),
        cmocka_unit_test(without_a_pattern_for_it_a_host_is_not_served),
    };
    return cmocka_run_group_tests_name("match", tests, NULL, NULL);
}
