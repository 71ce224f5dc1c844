/* What a route changes in messages: fields against a model, with heads and values of any length, so
 * that the ends of mbufs fall everywhere; paths; templates. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "config/load.h"
#include "config/template.h"
#include "dataplane/http/h1/parse.h"
#include "dataplane/route/edit.h"
#include "runtime/rng.h"
#include "tests/kit/eal.h"
#include "tests/kit/http_text.h"

#define MAX_FIELDS 256

struct world {
    struct rte_mempool *mbufs;
    struct rope_pool pool;
};

static int setup(void **state)
{
    struct world *w = calloc(1, sizeof(*w));
    kit_eal_init();
    w->mbufs = kit_pool_new(256);
    rope_pool_init(&w->pool, w->mbufs, 0);
    *state = w;
    return 0;
}

static int teardown(void **state)
{
    struct world *w = *state;
    rope_pool_fini(&w->pool);
    kit_pool_free(w->mbufs);
    free(w);
    return 0;
}

static struct snapshot *load(const char *text)
{
    struct config_errors errs;
    struct snapshot *s = NULL;
    config_errors_init(&errs);
    if (config_load_text("test.yaml", text, strlen(text), NULL, &s, &errs))
        config_check_report(stderr, &errs);
    config_errors_fini(&errs);
    assert_non_null(s);
    return s;
}

/* A list of fields, as a model does it: plainly. */
struct field {
    char name[16], value[700];
};

struct list {
    struct field at[MAX_FIELDS];
    unsigned n;
};

static void list_add(struct list *l, const char *name, const char *value)
{
    assert_true(l->n < MAX_FIELDS);
    struct field *f = &l->at[l->n++];
    snprintf(f->name, sizeof(f->name), "%s", name);
    snprintf(f->value, sizeof(f->value), "%s", value);
}

static void list_remove_name(struct list *l, const char *name)
{
    unsigned n = 0;
    for (unsigned i = 0; i < l->n; i++)
        if (strcasecmp(l->at[i].name, name) != 0)
            l->at[n++] = l->at[i];
    l->n = n;
}

static void list_edit(struct list *l, const struct config_header_edit *e)
{
    for (size_t i = 0; i < e->nremove; i++)
        list_remove_name(l, e->remove[i]);
    for (size_t i = 0; i < e->nset; i++)
        list_remove_name(l, e->set[i].name);
    for (size_t i = 0; i < e->nset; i++)
        list_add(l, e->set[i].name, e->set[i].value.text);
    for (size_t i = 0; i < e->nadd; i++)
        list_add(l, e->add[i].name, e->add[i].value.text);
}

static const char *const names[] = {"X-A",    "x-a",  "X-Bc",   "Server", "COOKIE",
                                    "Cookie", "ETag", "X-Bcd",  "etag",   "Set-Cookie",
                                    "Vary",   "X",    "Accept", "server", "X-aa"};
#define NAMES (sizeof(names) / sizeof(names[0]))

static const char *any_name(struct rng *rng)
{
    return names[rng_below(rng, NAMES)];
}

static void any_value(struct rng *rng, char *to, unsigned most)
{
    unsigned n = 1 + rng_below(rng, most - 1);
    for (unsigned i = 0; i < n; i++)
        to[i] = (char)('a' + rng_below(rng, 26));
    to[n] = 0;
}

static void put_edit(struct text *t, struct rng *rng, const char *indent, const char *side)
{
    char value[200];
    unsigned used = 0;
    text_addf(t, "%s%s:\n", indent, side);
    unsigned n = 1 + rng_below(rng, 3);
    text_addf(t, "%s  remove: [", indent);
    for (unsigned i = 0; i < n; i++)
        text_addf(t, "%s%s", i ? ", " : "", any_name(rng));
    text_addf(t, "]\n%s  set:\n", indent);
    for (unsigned i = 0; i < 3; i++) {
        /* Distinct whatever their case: one of each five, all different words. */
        static const unsigned different[] = {0, 2, 3, 4, 6, 7, 9, 10, 11, 12};
        unsigned k = rng_below(rng, 10);
        if (used & 1u << k)
            continue;
        used |= 1u << k;
        any_value(rng, value, 200);
        text_addf(t, "%s    - { name: %s, value: \"%s\" }\n", indent, names[different[k]], value);
    }
    text_addf(t, "%s  add:\n", indent);
    n = 1 + rng_below(rng, 3);
    for (unsigned i = 0; i < n; i++) {
        any_value(rng, value, 200);
        text_addf(t, "%s    - { name: %s, value: \"%s\" }\n", indent, any_name(rng), value);
    }
}

static struct snapshot *any_config(struct rng *rng)
{
    struct text t = {0};
    text_addf(&t, "%s",
              "version: 1\nruntime: { cores: [1] }\n"
              "ports: [{ name: p, driver: veth, device: m, addresses: [10.77.0.1/24] }]\n"
              "upstreams: [{ name: app, endpoints: [10.77.0.2:9000] }]\n"
              "listeners:\n  - name: web\n    address: 10.77.0.1:80\n    http:\n"
              "      via: off\n      forwarded: off\n");
    bool both = rng_below(rng, 3) > 0;
    if (both || rng_below(rng, 2)) {
        text_addf(&t, "      headers:\n");
        put_edit(&t, rng, "        ", "request");
        put_edit(&t, rng, "        ", "response");
    }
    text_addf(&t, "      routes:\n        - upstream: app\n          headers:\n");
    put_edit(&t, rng, "            ", "request");
    put_edit(&t, rng, "            ", "response");
    struct snapshot *s = load(t.buf);
    text_free(&t);
    return s;
}

struct work {
    const struct edit_side *side;
    struct template_vars vars;
};

static void put(struct h1_writer *w, const void *ctx)
{
    const struct work *work = ctx;
    edit_side_put(w, work->side, &work->vars);
}

static void write_head(struct world *w, struct rope *out, const struct http_head *head,
                       const struct h1_changes *changes)
{
    struct h1_request_edit request = {.forwarded = CONFIG_FORWARDED_OFF, .changes = changes};
    struct h1_response_edit response = {.client_minor = 1, .keep_alive = true, .changes = changes};
    if (head->is_request)
        assert_int_equal(h1_write_request(&w->pool, out, head, &request), 0);
    else
        assert_int_equal(h1_write_response(&w->pool, out, head, &response), 0);
}

static void read_back(struct text *t, bool is_request, struct list *ret)
{
    struct http_header fields[MAX_FIELDS];
    struct http_head head = {0};
    struct h1_limits limits = {.head_size = 1 << 20};
    http_head_init(&head, fields, MAX_FIELDS);
    int err = is_request ? h1_parse_request(t->buf, t->len, &limits, &head)
                         : h1_parse_response(t->buf, t->len, false, &head);
    assert_int_equal(err, 0);
    ret->n = 0;
    for (unsigned i = 0; i < head.nheaders; i++) {
        char name[16], value[700];
        const struct http_header *f = &head.headers[i];
        snprintf(name, sizeof(name), "%.*s", (int)f->name_len, head.base + f->name_off);
        snprintf(value, sizeof(value), "%.*s", (int)f->value_len, head.base + f->value_off);
        list_add(ret, name, value);
    }
}

static void one_message(struct world *w, struct rng *rng, const struct snapshot *s,
                        const struct route_edit *e, bool is_request)
{
    static struct list model, seen;
    struct http_header fields[MAX_FIELDS];
    struct http_head head = {0};
    struct h1_limits limits = {.head_size = 1 << 20};
    const struct config_http *http = s->listeners[0].http;
    struct text in = {0}, out = {0};
    struct rope rope = {0};
    char value[600];
    model.n = 0;
    text_addf(&in, is_request ? "GET / HTTP/1.1\r\n" : "HTTP/1.1 200 OK\r\n");
    list_add(&model, is_request ? "Host" : "Age", "1");
    for (unsigned i = rng_below(rng, 20); i > 0; i--) {
        any_value(rng, value, 600);
        list_add(&model, any_name(rng), value);
    }
    if (!is_request)
        list_add(&model, "Content-Length", "0");
    for (unsigned i = 0; i < model.n; i++) {
        text_addf(&in, "%s: ", model.at[i].name);
        text_add(&in, model.at[i].value, strlen(model.at[i].value));
        text_add(&in, "\r\n", 2);
    }
    text_add(&in, "\r\n", 2);
    http_head_init(&head, fields, MAX_FIELDS);
    int err = is_request ? h1_parse_request(in.buf, in.len, &limits, &head)
                         : h1_parse_response(in.buf, in.len, false, &head);
    assert_int_equal(err, 0);
    head.is_request = is_request;
    head.base = in.buf;

    const struct edit_side *side = is_request ? &e->request : &e->response;
    struct work work = {.side = side};
    struct h1_changes changes = {
        .drop = side->drop, .names = side->names, .nnames = side->nnames, .put = put, .ctx = &work};
    write_head(w, &rope, &head, &changes);
    text_add_rope(&out, &rope);
    read_back(&out, is_request, &seen);
    const struct config_headers *levels[2] = {http->headers, http->routes[0].headers};
    for (unsigned i = 0; i < 2; i++)
        if (levels[i])
            list_edit(&model, is_request ? &levels[i]->request : &levels[i]->response);
    assert_int_equal(seen.n, model.n);
    for (unsigned i = 0; i < model.n; i++) {
        assert_string_equal(seen.at[i].name, model.at[i].name);
        assert_string_equal(seen.at[i].value, model.at[i].value);
    }
    rope_clear(&w->pool, &rope);
    text_free(&in);
    text_free(&out);
}

static void test_fields_are_as_the_model_has_them(void **state)
{
    struct world *w = *state;
    struct rng rng = {20261130};
    for (unsigned round = 0; round < 300; round++) {
        struct snapshot *s = any_config(&rng);
        const struct config_listener *l = &s->listeners[0];
        struct route_edit *e = route_edit_new(l, &l->http->routes[0]);
        assert_non_null(e);
        for (unsigned i = 0; i < 20; i++)
            one_message(w, &rng, s, e, i % 2);
        route_edit_put(e);
        snapshot_free(s);
    }
}

static void test_prefixes_are_replaced(void **state)
{
    static const struct {
        const char *prefix, *new_prefix, *path, *expected;
    } cases[] = {
        {"/api", "/v2", "/api", "/v2"},       {"/api", "/v2", "/api/", "/v2/"},
        {"/api", "/v2", "/api/x", "/v2/x"},   {"/api", "/v2/", "/api", "/v2/"},
        {"/api", "/v2/", "/api/x", "/v2/x"},  {"/api", "/", "/api", "/"},
        {"/api", "/", "/api/", "/"},          {"/api", "/", "/api/x/y", "/x/y"},
        {"/api/", "/v2", "/api/", "/v2/"},    {"/api/", "/v2", "/api/x", "/v2/x"},
        {"/api/", "/v2/", "/api/x", "/v2/x"}, {"/api/", "/", "/api/", "/"},
        {"/api/", "/", "/api/x", "/x"},       {"/", "/v2", "/", "/v2/"},
        {"/", "/v2", "/x", "/v2/x"},          {"/", "/", "/x", "/x"},
        {"/a/b", "/c", "/a/b/c", "/c/c"},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        char text[1024];
        snprintf(text, sizeof(text),
                 "version: 1\nruntime: { cores: [1] }\n"
                 "ports: [{ name: p, driver: veth, device: m, addresses: [10.77.0.1/24] }]\n"
                 "upstreams: [{ name: app, endpoints: [10.77.0.2:9000] }]\n"
                 "listeners: [{ name: web, address: 10.77.0.1:80, http: { routes: [{ upstream: "
                 "app, match: { path_prefix: %s }, rewrite: { prefix: %s } }] } }]\n",
                 cases[i].prefix, cases[i].new_prefix);
        struct snapshot *s = load(text);
        struct route_edit *e = route_edit_new(&s->listeners[0], &s->listeners[0].http->routes[0]);
        snapshot_free(s); /* it outlives that */
        struct h1_path p;
        assert_true(e->needs_key);
        route_edit_path(e, cases[i].path, (uint32_t)strlen(cases[i].path), &p);
        snprintf(text, sizeof(text), "%.*s%.*s", (int)p.len[0], p.piece[0], (int)p.len[1],
                 p.piece[1]);
        assert_string_equal(text, cases[i].expected);
        route_edit_put(e);
    }
}

/* The path that a request with this target has, and what a template makes of it. */
static void check_template(struct world *w, const char *target, const char *template,
                           bool is_location, const char *expected)
{
    struct arena *a = arena_new();
    struct config_template t;
    struct http_header fields[8];
    struct http_head head = {0};
    struct http_route_key key;
    struct h1_limits limits = {.head_size = 8192};
    char in[1024], scratch[1024];
    struct h1_writer writer;
    struct rope rope = {0};
    struct text out = {0};
    assert_null(template_parse(template, strlen(template), TEMPLATE_ANYWHERE, a, &t));
    snprintf(in, sizeof(in), "GET %s HTTP/1.1\r\nHost: Host.Example:81\r\n\r\n", target);
    http_head_init(&head, fields, 8);
    assert_int_equal(h1_parse_request(in, strlen(in), &limits, &head), 0);
    assert_int_equal(http_normalize_request(&head, false, scratch, sizeof(scratch), &key), 0);
    struct template_vars v = {.client_ip = "192.0.2.1",
                              .listener = "web",
                              .request_id = "id",
                              .head = &head,
                              .key = &key,
                              .prefix_len = key.path_len < 4 ? 1 : 4};
    h1_writer_begin(&writer, &w->pool);
    (is_location ? template_put_location : template_put)(&writer, &t, &v);
    assert_int_equal(h1_writer_commit(&writer, &rope), 0);
    text_add(&out, "", 0);
    text_add_rope(&out, &rope);
    assert_string_equal(out.buf, expected);
    text_free(&out);
    rope_clear(&w->pool, &rope);
    arena_free(a);
}

static void test_templates(void **state)
{
    struct world *w = *state;
    check_template(w, "/", "", false, "");
    check_template(w, "/", "a", false, "a");
    check_template(w, "/", "$", false, "$");
    check_template(w, "/", "$$", false, "$");
    check_template(w, "/", "$$$", false, "$$");
    check_template(w, "/", "$${host}", false, "${host}");
    check_template(w, "/", "$a$ {}", false, "$a$ {}");
    check_template(w, "/", "${host}", false, "host.example");
    check_template(w, "/", "${client_ip}${listener}${request_id}${scheme}${method}", false,
                   "192.0.2.1webidhttpGET");
    check_template(w, "/pre/x?a=b?c", "[${path}][${rest}][${query}]", false,
                   "[/pre/x][/x][?a=b?c]");
    check_template(w, "/pre?", "[${path}][${rest}][${query}]", false, "[/pre][][?]");
    check_template(w, "http://other/%7e//x", "${host}${path}${query}", false, "other/~/x");
    check_template(w, "/", "//x", false, "//x");
}

/* Wherever a location leads, a request can't make it lead to another host. */
static void test_locations_stay_on_their_host(void **state)
{
    struct world *w = *state;
    check_template(w, "//evil.example/x", "${path}", true, "/evil.example/x");
    check_template(w, "/pre//evil.example", "/${rest}", true, "/evil.example");
    check_template(w, "/pre/evil.example", "/${rest}", true, "/evil.example");
    check_template(w, "/pre", "/${rest}", true, "/");
    check_template(w, "/pre", "/${rest}/${rest}/x", true, "/x");
    check_template(w, "/pre/a", "/x${rest}${query}", true, "/x/a");
    check_template(w, "/pre/a", "http://h${rest}", true, "http://h/a");
    check_template(w, "/pre/a", "https://${host}${path}", true, "https://host.example/pre/a");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_fields_are_as_the_model_has_them),
        cmocka_unit_test(test_prefixes_are_replaced),
        cmocka_unit_test(test_templates),
        cmocka_unit_test(test_locations_stay_on_their_host),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
