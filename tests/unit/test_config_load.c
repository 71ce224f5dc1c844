/* What a file becomes: defaults, order, references; files that can't be read; inputs that are made
 * to take long. */
#include <setjmp.h>
#include <stdarg.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>
#include <cmocka.h>
#include "config/load.h"
#include "config/schema.h"

#define MS  1000000ull
#define SEC (1000 * MS)

static const char head[] = "version: 1\n"
                           "runtime: { cores: [1] }\n"
                           "ports:\n"
                           "  - name: edge0\n"
                           "    driver: veth\n"
                           "    device: mill0\n"
                           "    addresses: [10.77.0.1/24]\n"
                           "upstreams:\n"
                           "  - name: app\n"
                           "    endpoints: [10.77.0.2:9000]\n"
                           "  - name: b\n"
                           "    endpoints: [10.77.0.2:9001]\n"
                           "listeners:\n"
                           "  - name: web\n"
                           "    address: 10.77.0.1:8080\n";

static int load_text(const char *text, size_t len, struct snapshot **ret, char **ret_report)
{
    struct config_errors errs;
    size_t size;
    FILE *f = open_memstream(ret_report, &size);
    int rc;

    config_errors_init(&errs);
    rc = config_load_text("x.yaml", text, len, NULL, ret, &errs);
    config_check_report(f, &errs);
    config_errors_fini(&errs);
    fclose(f);
    return rc;
}

static struct snapshot *load(const char *listener)
{
    char *text = NULL, *report;
    struct snapshot *s = NULL;
    int len = asprintf(&text, "%s%s", head, listener);

    if (load_text(text, len, &s, &report))
        fail_msg("%s", report);
    free(text);
    free(report);
    return s;
}

static void defaults(void **state)
{
    struct snapshot *s = load("    http: { routes: [{ upstream: app }] }\n"
                              "  - { name: raw, address: \"*:1\", tunnel: { upstream: b } }\n");
    const struct config_http *http = s->listeners[0].http;
    const struct config_port *p = &s->ports[0];
    const struct config_upstream *u = &s->upstreams[0];

    assert_int_equal(s->runtime.blocking_threads, 2);
    assert_int_equal(s->runtime.poll, CONFIG_POLL_ADAPTIVE);
    assert_int_equal(s->runtime.memory_rcv_buf, 256 << 10);
    assert_int_equal(p->mtu, 1500);
    assert_int_equal(p->queues, 0);
    assert_int_equal(p->rx_descriptors, 2048);
    assert_int_equal(p->pool_size, 0);
    assert_int_equal(p->host_address.addr, 0);
    assert_int_equal(p->gateway, 0);
    assert_null(p->driver_args);
    assert_int_equal(s->listeners[0].connections, 10000);
    assert_int_equal(http->header_timeout, 10 * SEC);
    assert_int_equal(http->idle_timeout, 60 * SEC);
    assert_int_equal(http->body_timeout, 30 * SEC);
    assert_int_equal(http->header_size, 16 << 10);
    assert_int_equal(http->header_count, 100);
    assert_int_equal(http->body_size, 1 << 30);
    assert_int_equal(http->forwarded, CONFIG_FORWARDED_X);
    assert_string_equal(http->via, "millrace");
    assert_true(http->access_log);
    assert_int_equal(http->routes[0].host_kind, CONFIG_HOST_ANY);
    assert_null(http->routes[0].host);
    assert_string_equal(http->routes[0].path_prefix, "/");
    assert_int_equal(http->routes[0].request_timeout, 0);
    assert_null(s->listeners[0].tunnel);
    assert_int_equal(s->listeners[1].tunnel->idle_timeout, 300 * SEC);
    assert_int_equal(u->connect_timeout, 1 * SEC);
    assert_int_equal(u->request_timeout, 15 * SEC);
    assert_int_equal(u->idle_timeout, 60 * SEC);
    assert_int_equal(u->balance, CONFIG_LEAST_REQUEST);
    assert_int_equal(u->panic, 30);
    assert_int_equal(u->endpoints[0].weight, 1);
    assert_false(u->endpoints[0].backup);
    assert_null(u->hash.table);
    assert_int_equal(u->pool.min, 0);
    assert_int_equal(u->pool.max, UINT32_MAX);
    assert_int_equal(u->pool.idle, 1024);
    assert_int_equal(u->pool.lifetime, 0);
    assert_null(u->health);
    assert_null(u->outlier);
    assert_string_equal(s->admin.socket, "/run/millrace/admin.sock");
    assert_false(s->admin.has_metrics);
    assert_int_equal(s->log.level, CONFIG_LOG_INFO);
    assert_string_equal(s->log.access, "stderr");
    assert_int_equal(s->drain.timeout, 30 * SEC);
    assert_string_equal(s->path, "x.yaml");
    snapshot_free(s);
}

static void words_stand_for_values(void **state)
{
    struct snapshot *s = load("    http:\n"
                              "      routes: [{ upstream: app }]\n"
                              "      via: off\n"
                              "      forwarded: off\n"
                              "      access_log: false\n"
                              "      limits: { body_size: unlimited }\n"
                              "admin: { socket: off, metrics: \"*:9901\" }\n");

    assert_null(s->listeners[0].http->via);
    assert_int_equal(s->listeners[0].http->forwarded, CONFIG_FORWARDED_OFF);
    assert_false(s->listeners[0].http->access_log);
    assert_int_equal(s->listeners[0].http->body_size, UINT64_MAX);
    assert_null(s->admin.socket);
    assert_true(s->admin.has_metrics);
    assert_int_equal(s->admin.metrics.port, 9901);
    snapshot_free(s);
}

static void routes_are_sorted_by_precedence(void **state)
{
    static const struct {
        const char *host, *path;
    } expected[] = {
        {"www.a.example", "/x"}, {"www.a.example", "/"}, {"b.example", "/"}, {".a.example", "/x/y"},
        {".a.example", "/x"},    {".example", "/long"},  {NULL, "/x"},       {NULL, "/"},
    };
    struct snapshot *s = load("    http:\n"
                              "      routes:\n"
                              "        - upstream: app\n"
                              "        - { match: { path_prefix: /x }, upstream: app }\n"
                              "        - { match: { host: \"*.example\", path_prefix: /long }, "
                              "upstream: app }\n"
                              "        - { match: { host: \"*.a.example\", path_prefix: /x }, "
                              "upstream: app }\n"
                              "        - { match: { host: b.example }, upstream: b }\n"
                              "        - { match: { host: \"*.A.example\", path_prefix: /x/y }, "
                              "upstream: app }\n"
                              "        - { match: { host: WWW.a.example }, upstream: b }\n"
                              "        - { match: { host: www.a.example, path_prefix: /x }, "
                              "upstream: b }\n");
    const struct config_http *http = s->listeners[0].http;

    assert_int_equal(http->nroutes, sizeof(expected) / sizeof(expected[0]));
    for (size_t i = 0; i < http->nroutes; i++) {
        const struct config_route *r = &http->routes[i];

        assert_string_equal(r->host ? r->host : "any", expected[i].host ? expected[i].host : "any");
        assert_string_equal(r->path_prefix, expected[i].path);
        assert_int_equal(r->host_len, r->host ? strlen(r->host) : 0);
        assert_int_equal(r->path_prefix_len, strlen(r->path_prefix));
    }
    assert_ptr_equal(http->routes[2].upstream, snapshot_upstream(s, "b"));
    assert_null(snapshot_upstream(s, "c"));
    assert_ptr_equal(snapshot_listener(s, "web"), &s->listeners[0]);
    assert_null(snapshot_listener(s, "raw"));
    snapshot_free(s);
}

static void cores_are_checked_for_a_machine(void **state)
{
    struct snapshot *s = load("    tunnel: { upstream: app }\n");
    struct config_errors errs;
    char text[1024];

    snapshot_free(s);
    s = NULL;
    snprintf(text, sizeof(text), "%s    tunnel: { upstream: app }\n", head);
    config_errors_init(&errs);
    assert_int_equal(
        config_load_text("x.yaml", text, strlen(text), &(struct config_host){.cpus = 1}, &s, &errs),
        -EINVAL);
    assert_null(s);
    assert_int_equal(errs.count, 1);
    assert_string_equal(errs.list[0].text, "x.yaml:2:20: runtime.cores[0]: this machine has no CPU "
                                           "1: expected 0 to 0");
    config_errors_fini(&errs);
}

static void assert_file_fails(const char *path, int rc, const char *expected)
{
    struct config_errors errs;
    struct snapshot *s = NULL;

    config_errors_init(&errs);
    assert_int_equal(config_load_file(path, &s, &errs), rc);
    assert_null(s);
    assert_int_equal(errs.count, 1);
    assert_non_null(strstr(errs.list[0].text, path));
    assert_non_null(strstr(errs.list[0].text, expected));
    config_errors_fini(&errs);
}

static void files_that_cant_be_read(void **state)
{
    char folder[] = "/tmp/config_load.XXXXXX", path[100];

    assert_non_null(mkdtemp(folder));
    assert_file_fails(folder, -EISDIR, "this is a directory");
    snprintf(path, sizeof(path), "%s/x", folder);
    assert_file_fails(path, -ENOENT, "No such file");
    assert_int_equal(mkfifo(path, 0600), 0);
    assert_file_fails(path, -EINVAL, "expected a regular file");
    unlink(path);
    FILE *f = fopen(path, "w");
    fclose(f);
    assert_file_fails(path, -EINVAL, "the file is empty");
    assert_int_equal(truncate(path, CONFIG_FILE_MAX + 1), 0);
    assert_file_fails(path, -EINVAL, "at most 1MiB");
    unlink(path);
    rmdir(folder);
}

static void a_file_is_loaded(void **state)
{
    char path[] = "/tmp/config_load.XXXXXX";
    struct config_errors errs;
    struct snapshot *s = NULL;
    int fd = mkstemp(path);

    dprintf(fd, "%s    tunnel: { upstream: app }\n", head);
    close(fd);
    config_errors_init(&errs);
    assert_int_equal(config_load_file(path, &s, &errs), 0);
    assert_string_equal(s->path, path);
    assert_false(config_errors_any(&errs));
    snapshot_free(s);
    unlink(path);
}

/* A quarter of a megabyte made of one text over and over. The limit is far above what is needed and
 * far below what anything quadratic takes. */
static void assert_fast(const char *first, const char *again, const char *last)
{
    char *text = malloc(CONFIG_FILE_MAX + 1), *report;
    size_t len = strlen(first), step = strlen(again);
    struct snapshot *s = NULL;
    struct timespec a, b;

    memcpy(text, first, len);
    for (; len + step + strlen(last) <= CONFIG_FILE_MAX / 4; len += step)
        memcpy(text + len, again, step);
    memcpy(text + len, last, strlen(last));
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &a);
    load_text(text, len + strlen(last), &s, &report);
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &b);
    if (b.tv_sec - a.tv_sec > 10)
        fail_msg("\"%s\" takes %lds", again, (long)(b.tv_sec - a.tv_sec));
    snapshot_free(s);
    free(report);
    free(text);
}

static void nothing_takes_long(void **state)
{
    char text[2048];

    assert_fast("[", "[", "");
    assert_fast("", "a: ", "");
    assert_fast("", "a: 1\n", "");
    assert_fast("{", "a,", "}");
    assert_fast("[", "a,", "]");
    assert_fast("a: [", "&a a,", "]");
    assert_fast("a: &a [b]\nb: [", "*a,", "]");
    assert_fast("", "? a\n", "");
    assert_fast("", "- ", "");
    assert_fast("a: |\n", " x\n", "");
    assert_fast("a", "\n", "b");
    assert_fast("a: \"", "\n", "\"");
    assert_fast("a: |\n x", "\n", " y\n");
    assert_fast("", "\n", "");
    assert_fast("a: '", "''", "'");
    assert_fast("a: \"", "\\x41", "\"");
    assert_fast("", "x", "");
    snprintf(text, sizeof(text), "%s    tunnel: { upstream: [", head);
    assert_fast(text, "a,", "] }\n");
    snprintf(text, sizeof(text), "%s    http: { routes: [", head);
    assert_fast(text, "{upstream: app},", "] }\n");
    snprintf(text, sizeof(text), "%s    http: { routes: [", head);
    assert_fast(text, "{upstream: ap},", "] }\n");
    assert_fast("upstreams:\n", " - {name: a, endpoints: [10.0.0.1:1]}\n", "");
    assert_fast("listeners:\n", " - {name: a, address: \"*:80\"}\n", "");
    assert_fast("upstreams:\n - endpoints: [", "10.0.0.1:1,", "]\n");
}

static void check_group(const struct config_group *g)
{
    unsigned n = 0;

    assert_non_null(g->doc);
    for (const struct config_key *k = g->keys; k->name; k++) {
        n++;
        assert_true(k->doc && k->doc[0]);
        assert_true(k->doc[strlen(k->doc) - 1] == '.');
        assert_ptr_equal(config_key_find(g, k->name, strlen(k->name)), k);
        if (k->kind == CONFIG_LIST)
            assert_non_null(k->group->identity);
        if (k->kind == CONFIG_VALUES)
            assert_non_null(k->type->plural);
        if (k->group) {
            assert_null(k->type);
            check_group(k->group);
        } else {
            assert_non_null(k->type);
            assert_false(k->required && k->initial);
        }
    }
    assert_true(n > 0 && n <= CONFIG_KEYS_MAX);
}

static void the_schema_is_whole(void **state)
{
    check_group(&config_root);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(defaults),
        cmocka_unit_test(words_stand_for_values),
        cmocka_unit_test(routes_are_sorted_by_precedence),
        cmocka_unit_test(cores_are_checked_for_a_machine),
        cmocka_unit_test(files_that_cant_be_read),
        cmocka_unit_test(a_file_is_loaded),
        cmocka_unit_test(nothing_takes_long),
        cmocka_unit_test(the_schema_is_whole),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
