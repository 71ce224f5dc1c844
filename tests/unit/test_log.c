/* Log lines: how they look, that hostile bytes can't break them, and that the log thread writes all
 * it was given. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <arpa/inet.h>
#include <errno.h>
#include <jansson.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "control/log.h"
#include "control/log_format.h"

#define WALL 1767225600123456789ull /* 2026-01-01T00:00:00.123456Z */

static struct access_record a_record(void)
{
    struct access_record r = {
        .wall_ns = WALL,
        .duration_ns = 1234567,
        .upstream_ns = 1000999,
        .bytes_in = 5,
        .bytes_out = 612,
        .client_addr = inet_addr("10.77.0.2"),
        .upstream_addr = inet_addr("10.77.0.9"),
        .client_port = 40000,
        .upstream_port = 9000,
        .status = 200,
        .reason = ACCESS_ok,
        .attempts = 1,
        .reused = true,
        .version_minor = 1,
        .method = "GET",
        .listener = "web",
        .upstream = "app",
        .host = "example.com",
        .target = "/index.html?a=b",
    };
    return r;
}

static void lines_look_as_documented(void **state)
{
    static char buf[LOG_LINE_MAX];
    struct log_clock clock = {0};
    struct access_record a = a_record();
    struct log_record r = {
        .wall_ns = WALL, .level = CONFIG_LOG_WARN, .source = "control", .text = "say \"hi\""};

    log_format_record(buf, &r, CONFIG_LOG_TEXT, &clock);
    assert_string_equal(buf, "2026-01-01T00:00:00.123456Z warn  control: say \"hi\"\n");
    log_format_record(buf, &r, CONFIG_LOG_JSON, &clock);
    assert_string_equal(buf, "{\"time\":\"2026-01-01T00:00:00.123456Z\",\"level\":\"warn\","
                             "\"source\":\"control\",\"message\":\"say \\\"hi\\\"\"}\n");
    log_format_access(buf, &a, CONFIG_LOG_TEXT, &clock);
    assert_string_equal(
        buf, "10.77.0.2 - - [01/Jan/2026:00:00:00 +0000] \"GET /index.html?a=b HTTP/1.1\" 200 612 "
             "client_port=40000 host=\"example.com\" listener=\"web\" upstream=\"app\" "
             "endpoint=10.77.0.9:9000 reason=ok bytes_in=5 duration_us=1234 upstream_us=1000 "
             "attempts=1 reused=1\n");
    log_format_access(buf, &a, CONFIG_LOG_JSON, &clock);
    assert_string_equal(
        buf, "{\"time\":\"2026-01-01T00:00:00.123456Z\",\"source\":\"access\","
             "\"client\":\"10.77.0.2:40000\",\"listener\":\"web\",\"method\":\"GET\","
             "\"host\":\"example.com\",\"target\":\"/index.html?a=b\",\"version\":\"1.1\","
             "\"status\":200,\"reason\":\"ok\",\"bytes_in\":5,\"bytes_out\":612,"
             "\"duration_us\":1234,\"upstream_us\":1000,\"upstream\":\"app\","
             "\"endpoint\":\"10.77.0.9:9000\",\"attempts\":1,\"reused\":true}\n");
}

static void ids_are_told_where_there_are_some(void **state)
{
    static char buf[LOG_LINE_MAX];
    struct log_clock clock = {0};
    struct access_record a = a_record();

    a.has_id = true;
    strcpy(a.request_id, "req-1");
    log_format_access(buf, &a, CONFIG_LOG_TEXT, &clock);
    assert_non_null(strstr(buf, " reused=1 request_id=req-1\n"));
    a.has_trace = true;
    for (unsigned i = 0; i < sizeof(a.trace_id); i++)
        a.trace_id[i] = (uint8_t)(i * 17);
    log_format_access(buf, &a, CONFIG_LOG_TEXT, &clock);
    assert_non_null(strstr(buf, " request_id=req-1 trace_id=00112233445566778899aabbccddeeff\n"));
    log_format_access(buf, &a, CONFIG_LOG_JSON, &clock);
    assert_non_null(strstr(buf, ",\"reused\":true,\"request_id\":\"req-1\",\"trace_id\":"
                                "\"00112233445566778899aabbccddeeff\"}\n"));
}

static void a_client_of_ip6_has_its_address_in_brackets(void **state)
{
    static const uint8_t ip6[16] = {0x20, 1, 0xd, 0xb8, [15] = 1};
    static char buf[LOG_LINE_MAX];
    struct log_clock clock = {0};
    struct access_record a = a_record();

    a.has_ip6 = true;
    a.client_addr = 0;
    memcpy(a.client_ip6, ip6, sizeof(ip6));
    log_format_access(buf, &a, CONFIG_LOG_TEXT, &clock);
    assert_memory_equal(buf, "2001:db8::1 - - [", 17);
    assert_non_null(strstr(buf, " client_port=40000 "));
    log_format_access(buf, &a, CONFIG_LOG_JSON, &clock);
    assert_non_null(strstr(buf, ",\"client\":\"[2001:db8::1]:40000\","));
}

static void what_was_not_there_shows_as_a_dash(void **state)
{
    static char buf[LOG_LINE_MAX];
    struct log_clock clock = {0};
    struct access_record a = a_record();

    a.method[0] = a.host[0] = a.upstream[0] = '\0';
    a.upstream_addr = 0;
    log_format_access(buf, &a, CONFIG_LOG_TEXT, &clock);
    assert_non_null(strstr(buf, " \"-\" 200 "));
    assert_non_null(strstr(buf, " host=\"-\" "));
    assert_non_null(strstr(buf, " upstream=\"-\" endpoint=- "));
    log_format_access(buf, &a, CONFIG_LOG_JSON, &clock);
    assert_non_null(strstr(buf, "\"endpoint\":null"));
}

/* Every byte value in every field, and fields without a closing NUL: always one line of printable
 * ASCII, and always JSON. */
static void hostile_bytes_cannot_forge_anything(void **state)
{
    static char buf[LOG_LINE_MAX];
    struct log_clock clock = {0};

    for (unsigned start = 1; start < 256; start++) {
        struct access_record a = a_record();
        char *fields[] = {a.method, a.listener, a.upstream, a.host, a.target, a.request_id};
        size_t sizes[] = {sizeof(a.method), sizeof(a.listener), sizeof(a.upstream),
                          sizeof(a.host),   sizeof(a.target),   sizeof(a.request_id)};
        a.has_id = a.has_trace = true;
        memset(a.trace_id, (int)start, sizeof(a.trace_id));
        for (unsigned f = 0; f < 6; f++)
            for (size_t i = 0; i < sizes[f]; i++)
                fields[f][i] = (char)(1 + (start + i) % 255);
        for (int format = CONFIG_LOG_TEXT; format <= CONFIG_LOG_JSON; format++) {
            size_t n = log_format_access(buf, &a, (enum config_log_format)format, &clock);
            assert_int_equal(n, strlen(buf));
            assert_int_equal(buf[n - 1], '\n');
            for (size_t i = 0; i + 1 < n; i++)
                assert_in_range((unsigned char)buf[i], 0x20, 0x7e);
        }
        json_t *o = json_loads(buf, 0, NULL);
        assert_non_null(o);
        assert_int_equal(json_object_size(o), 20);
        json_decref(o);
    }
    /* In text form a quote of the client's never ends a field. */
    struct access_record a = a_record();
    strcpy(a.target, "/\" 200 0 reason=ok \\");
    log_format_access(buf, &a, CONFIG_LOG_TEXT, &clock);
    assert_non_null(strstr(buf, "/\\x22 200 0 reason=ok \\x5c HTTP/1.1\" 200 612"));
}

static char *slurp(const char *path)
{
    FILE *f = fopen(path, "r");
    char *text = NULL;
    size_t size = 0;

    assert_non_null(f);
    ssize_t n = getdelim(&text, &size, '\0', f);
    fclose(f);
    if (n < 0) {
        free(text);
        return strdup("");
    }
    return text;
}

static unsigned count_lines(const char *text)
{
    unsigned n = 0;

    for (; *text; text++)
        n += *text == '\n';
    return n;
}

#define WRITERS 4
#define LINES   200

static void *write_lines(void *arg)
{
    for (unsigned i = 0; i < LINES; i++)
        log_info(arg, "line %u", i);
    return NULL;
}

static void every_line_is_written_or_counted(void **state)
{
    char path[] = "/tmp/millrace-test-log-XXXXXX";
    int fd = mkstemp(path);
    pthread_t threads[WRITERS];
    struct log_stats st;
    struct log *l;

    assert_true(fd >= 0);
    assert_int_equal(log_new(fd, &l), 0);
    for (unsigned i = 0; i < WRITERS; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, write_lines, l), 0);
    for (unsigned i = 0; i < WRITERS; i++)
        pthread_join(threads[i], NULL);
    log_debug(l, "below the level");
    log_warn(l, "two\nlines");
    log_flush(l, 10000);
    log_stats(l, &st);
    assert_int_equal(st.lines + st.lines_dropped, WRITERS * LINES + 2);
    char *text = slurp(path);
    assert_int_equal(count_lines(text), st.lines);
    assert_null(strstr(text, "below"));
    free(text);
    log_free(l);
    close(fd);
    unlink(path);
}

static void put_record(struct access_ring *ring, const char *target)
{
    struct access_record r = a_record();

    snprintf(r.target, sizeof(r.target), "%s", target);
    assert_true(access_ring_put(ring, &r));
}

/* Records go to their file, a rotation by rename and SIGUSR1 loses none, and taking the rings away
 * writes what is still in them. */
static void access_log_survives_rotation(void **state)
{
    char dir[] = "/tmp/millrace-test-access-XXXXXX", path[64], old[64];
    struct config_log c = {
        .format = CONFIG_LOG_JSON, .level = CONFIG_LOG_INFO, .access = path, .access_buffer = 8};
    struct access_ring *ring = access_ring_new(8);
    FILE *lines = tmpfile();
    struct log *l;

    assert_non_null(mkdtemp(dir));
    snprintf(path, sizeof(path), "%s/access.log", dir);
    snprintf(old, sizeof(old), "%s/access.log.1", dir);
    assert_int_equal(log_new(fileno(lines), &l), 0);
    assert_int_equal(log_configure(l, &c), 0);
    log_set_access_rings(l, &ring, 1);
    put_record(ring, "/one");
    log_flush(l, 10000);
    assert_int_equal(rename(path, old), 0);
    log_reopen(l);
    log_flush(l, 10000);
    put_record(ring, "/two");
    log_set_access_rings(l, NULL, 0);
    struct access_record left;
    assert_false(access_ring_take(ring, &left));
    log_free(l);

    char *first = slurp(old), *second = slurp(path);
    assert_non_null(strstr(first, "/one"));
    assert_int_equal(count_lines(first), 1);
    assert_non_null(strstr(second, "/two"));
    assert_int_equal(count_lines(second), 1);
    free(first);
    free(second);
    access_ring_free(ring);
    fclose(lines);
    unlink(path);
    unlink(old);
    rmdir(dir);
}

static void a_bad_path_is_refused(void **state)
{
    struct config_log c = {.access = "/nowhere/at/all/access.log"};
    FILE *lines = tmpfile();
    struct log *l;

    assert_int_equal(log_new(fileno(lines), &l), 0);
    assert_int_equal(log_configure(l, &c), -ENOENT);
    log_free(l);
    fclose(lines);
}

/* Nobody reads the pipe: producers go on, and the end comes within its time. */
static void a_full_pipe_blocks_nobody(void **state)
{
    struct log_stats st;
    struct log *l;
    int p[2];

    assert_int_equal(pipe(p), 0);
    assert_int_equal(log_new(p[1], &l), 0);
    for (unsigned i = 0; i < 20000; i++)
        log_info(l, "%0200u", i);
    log_stats(l, &st);
    assert_true(st.lines_dropped > 0);
    assert_int_equal(st.lines + st.lines_dropped, 20000);
    log_free(l);
    close(p[0]);
    close(p[1]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(lines_look_as_documented),
        cmocka_unit_test(ids_are_told_where_there_are_some),
        cmocka_unit_test(a_client_of_ip6_has_its_address_in_brackets),
        cmocka_unit_test(what_was_not_there_shows_as_a_dash),
        cmocka_unit_test(hostile_bytes_cannot_forge_anything),
        cmocka_unit_test(every_line_is_written_or_counted),
        cmocka_unit_test(access_log_survives_rotation),
        cmocka_unit_test(a_bad_path_is_refused),
        cmocka_unit_test(a_full_pipe_blocks_nobody),
    };
    return cmocka_run_group_tests_name("log", tests, NULL, NULL);
}
