/* What `millrace top` makes of two looks, how it looks, and that a terminal is as it was after it.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <errno.h>
#include <poll.h>
#include <pty.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "control/terminal.h"
#include "control/top.h"
#include "tests/unit/top_recorded.h"

static json_t *frame_of(const char *before, const char *after)
{
    json_t *b = before ? json_loads(before, 0, NULL) : NULL, *a = json_loads(after, 0, NULL);

    assert_non_null(a);
    json_t *frame = top_frame(b, a);
    json_decref(a);
    json_decref(b);
    assert_non_null(frame);
    return frame;
}

static char *drawn(const json_t *frame, struct top_screen screen)
{
    char *text = NULL;
    size_t len;
    FILE *f = open_memstream(&text, &len);

    top_draw(f, frame, &screen);
    fclose(f);
    return text;
}

static double number(const json_t *frame, const char *list, size_t i, const char *key)
{
    const json_t *v = json_object_get(json_array_get(json_object_get(frame, list), i), key);

    if (!json_is_number(v))
        fail_msg("%s[%zu].%s is no number", list, i, key);
    return json_number_value(v);
}

static void assert_near(double got, double want)
{
    if (got < want * 0.999 - 0.0001 || got > want * 1.001 + 0.0001)
        fail_msg("%g is not %g", got, want);
}

static void a_frame_is_of_the_time_between_two_looks(void **state)
{
    json_t *f = frame_of(status_before, status_after);

    assert_near(number(f, "cores", 0, "busy"), 0.47);
    /* Of 12,500 polls 109 were at most 14 us, one took 2.1 ms; the 7 ms are from before. */
    assert_near(number(f, "cores", 0, "poll_p99_ns"), 1023);
    assert_near(number(f, "cores", 0, "poll_worst_ns"), 2097151);
    assert_near(number(f, "cores", 0, "poll_worst_ever_ns"), 7000000);
    assert_near(number(f, "cores", 0, "stalls"), 1);
    assert_near(number(f, "cores", 0, "stalls_ever"), 4);
    assert_near(number(f, "cores", 0, "rx_packets_per_s"), 12345);
    assert_near(number(f, "listeners", 0, "requests_per_s"), 12500);
    assert_near(number(f, "listeners", 0, "5xx_per_s"), 1);
    /* A listener that drains is another one than that of its name. */
    assert_near(number(f, "listeners", 1, "requests_per_s"), 0);
    assert_near(number(f, "listeners", 2, "requests_per_s"), 8);
    assert_near(number(f, "upstreams", 0, "reuse_ratio"), 12880.0 / 12920);
    assert_near(number(f, "upstreams", 0, "amplification"), 13000.0 / 12400);
    assert_near(number(f, "upstreams", 0, "refused_per_s"), 26);
    assert_near(number(f, "upstreams", 0, "failed_per_s"), 3);
    assert_near(number(f, "upstreams", 0, "endpoints_ejected"), 1);
    json_decref(f);
}

static void without_a_look_before_it_is_since_the_start(void **state)
{
    json_t *f = frame_of(NULL, status_after);

    assert_true(json_is_true(json_object_get(f, "since_start")));
    assert_near(number(f, "listeners", 0, "requests_per_s"), 17500 / 93785.0);
    json_decref(f);
    /* Another process is no look before. */
    char *other = strdup(status_before), *pid = strstr(other, "\"pid\": 77");
    pid[7] = '8';
    f = frame_of(other, status_after);
    assert_true(json_is_true(json_object_get(f, "since_start")));
    json_decref(f);
    free(other);
}

static void assert_lines(const char *text, const char *const *lines)
{
    for (unsigned i = 0; lines[i]; i++) {
        size_t n = strcspn(text, "\n");
        if (n != strlen(lines[i]) || memcmp(text, lines[i], n) != 0)
            fail_msg("line %u is \"%.*s\", not \"%s\"", i + 1, (int)n, text, lines[i]);
        text += n + (text[n] == '\n');
    }
    assert_string_equal(text, "");
}

/* clang-format off */
static const char *const screen_80x24[] = {
    "millrace 0.1.0  pid 77  running  up 1d 02:03:05  configuration 13  last 1.0 s",
    "clients 1.23K  requests 12.5K/s  in 400/s  out 2.50M/s  stalls 1  retransmits 2/",
    "",
    "CORE CPU   BUSY            POLLp99  WORST STALLS  CONNS  TASKS   RX/s   TX/s",
    "0      1  47.0% [||||    ]   1.0us  2.1ms      1  1.25K    112  12.3K    100",
    "1    does not answer",
    "",
    "LISTENER      ADDRESS               CONNS ACC/s REQ/s 4xx/s 5xx/s  IN/s OUT/s",
    "web           192.168.100.200:8080  1.23K 1.19K 12.5K     2     1   400 2.50M",
    "raw           *:8081                    3     0     0     0     0     0     0",
    "raw           draining                  1     8     8     0     0     0     0",
    "",
    "UPSTREAM      REQ/s   PERMITS     QUEUE BUDGET REUSE RTR/s REF/s FAIL/s  ENDP EJ",
    "app           12.4K     64/64    12/512     41  100%   600    26      3   2/3  1",
    "api               0         -         -      -     -     -     -      0     -  -",
    "",
    "",
    "",
    "",
    "",
    "",
    "",
    "",
    "q ends, space looks now",
    NULL};
/* clang-format on */

static void a_frame_fits_80_by_24(void **state)
{
    json_t *f = frame_of(status_before, status_after);
    char *text = drawn(f, (struct top_screen){80, 24, false, "q ends, space looks now"});

    assert_lines(text, screen_80x24);
    free(text);
    json_decref(f);
}

/* Whatever the size and however many there are: never more lines or columns than there is room for,
 * the note is the last line, and who is left out is counted. */
static void any_size_holds(void **state)
{
    json_t *f = frame_of(status_before, status_after);
    json_t *ups = json_object_get(f, "upstreams"), *list = json_object_get(f, "listeners");

    for (unsigned i = 0; i < 60; i++) {
        json_t *u = json_copy(json_array_get(ups, 0)), *l = json_copy(json_array_get(list, 0));
        json_object_set_new(u, "name", json_sprintf("upstream-with-a-name-%u", i));
        json_object_set_new(u, "requests_per_s", json_integer(i));
        json_array_append_new(ups, u);
        json_array_append_new(list, l);
    }
    for (unsigned rows = 1; rows < 160; rows++) {
        for (unsigned cols = 20; cols < 130; cols += 27) {
            char *text = drawn(f, (struct top_screen){cols, rows, false, "note"}), *p = text;
            unsigned lines = 0;
            for (size_t n; *p; p += n + 1, lines++) {
                n = strcspn(p, "\n");
                assert_true(n <= cols);
            }
            assert_true(lines <= rows);
            if (rows >= 6)
                assert_string_equal(text + strlen(text) - 6, "\nnote\n");
            free(text);
        }
    }
    char *text = drawn(f, (struct top_screen){80, 24, false, "note"});
    assert_non_null(strstr(text, "more, less busy"));
    assert_non_null(strstr(text, "upstream-wit~"));
    assert_non_null(strstr(text, "app ")); /* the busiest of all */
    assert_null(strstr(text, "api "));     /* the idlest */
    free(text);
    text = drawn(f, (struct top_screen){0});
    assert_null(strstr(text, "less busy"));
    free(text);
    json_decref(f);
}

static void a_status_of_another_version_shows_dashes(void **state)
{
    json_t *f = frame_of(NULL, "{\"cores\": [{\"answering\": true}], \"upstreams\": [{}]}");
    char *text = drawn(f, (struct top_screen){80, 24, true, NULL});

    assert_non_null(strstr(text, "\n-      -      - [        ]       -"));
    free(text);
    json_decref(f);
}

static void numbers_take_five_columns(void **state)
{
    static const struct {
        double v;
        const char *text;
    } cases[] = {{0, "0"},          {0.04, "0.0"},   {7, "7"},         {7.25, "7.2"},
                 {9.97, "10"},      {999, "999"},    {999.6, "1.00K"}, {1234, "1.23K"},
                 {9994, "9.99K"},   {9996, "10.0K"}, {99949, "99.9K"}, {99960, "100K"},
                 {999600, "1.00M"}, {1e12, "1.00T"}, {-5, "0"},        {0.0 / 0.0, "0"}};
    char buf[32];

    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        terminal_human(cases[i].v, buf, sizeof(buf));
        assert_string_equal(buf, cases[i].text);
    }
}

static void nothing_from_elsewhere_steers_a_terminal(void **state)
{
    char buf[32];

    terminal_clean("a\033[31m\x9b\n\x7f\xc3\xa9z", buf, sizeof(buf));
    assert_string_equal(buf, "a?[31m???z");
    terminal_clean("0123456789", buf, 5);
    assert_string_equal(buf, "0123");
}

/* --- the terminal ------------------------------------------------------------------------------
 */

struct pair {
    int master, slave;
};

static struct pair a_terminal(void)
{
    struct winsize w = {.ws_row = 30, .ws_col = 100};
    struct pair p;

    assert_int_equal(openpty(&p.master, &p.slave, NULL, NULL, &w), 0);
    return p;
}

/* Waits for the end of what is expected: the kernel passes it on in its own time. */
static void assert_shown(const struct pair *p, const char *want)
{
    static char buf[4096];
    struct pollfd poll_fd = {.fd = p->master, .events = POLLIN};
    size_t len = 0, n = strlen(want);

    while (len < n && poll(&poll_fd, 1, 10000) == 1) {
        ssize_t got = read(p->master, buf + len, n - len);
        if (got <= 0)
            break;
        len += (size_t)got;
    }
    buf[len] = '\0';
    assert_string_equal(buf, want);
}

static void assert_same_settings(const struct termios *a, const struct termios *b)
{
    assert_int_equal(a->c_lflag, b->c_lflag);
    assert_int_equal(a->c_iflag, b->c_iflag);
    assert_int_equal(a->c_oflag, b->c_oflag);
    assert_memory_equal(a->c_cc, b->c_cc, sizeof(a->c_cc));
}

static void a_terminal_is_given_back(void **state)
{
    struct pair p = a_terminal();
    struct termios before, during, after;
    struct terminal t;
    sigset_t mask_before, mask_after;
    unsigned cols, rows;

    tcgetattr(p.slave, &before);
    sigprocmask(SIG_BLOCK, NULL, &mask_before);
    assert_int_equal(terminal_open(&t, p.slave, p.slave), 0);
    tcgetattr(p.slave, &during);
    assert_false(during.c_lflag & (ICANON | ECHO));
    assert_true(during.c_lflag & ISIG); /* Ctrl-C is a signal still */
    terminal_size(&t, &cols, &rows);
    assert_int_equal(cols, 100);
    assert_int_equal(rows, 30);
    assert_true(terminal_show(&t, "one\ntwo\n", 8));
    assert_shown(&p, "\033[?1049h\033[?25l\033[2J\033[Hone\033[K\r\r\ntwo\033[K\033[J");
    terminal_close(&t);
    terminal_close(&t);
    assert_shown(&p, "\033[?25h\033[?1049l");
    tcgetattr(p.slave, &after);
    assert_same_settings(&before, &after);
    sigprocmask(SIG_BLOCK, NULL, &mask_after);
    for (int i = 1; i < 32; i++)
        assert_int_equal(sigismember(&mask_before, i), sigismember(&mask_after, i));
    close(p.master);
    close(p.slave);
}

static void what_is_no_terminal_is_left_alone(void **state)
{
    struct terminal t;
    int fds[2];

    assert_int_equal(pipe(fds), 0);
    assert_int_equal(terminal_open(&t, fds[0], fds[1]), -ENOTTY);
    terminal_close(&t);
    close(fds[0]);
    close(fds[1]);
}

static void keys_signals_sizes_and_answers_are_events(void **state)
{
    struct pair p = a_terminal();
    struct terminal t;
    int key = 0, fds[2];

    assert_int_equal(pipe(fds), 0);
    assert_int_equal(terminal_open(&t, p.slave, p.slave), 0);
    assert_int_equal(terminal_wait(&t, fds[0], 0, &key), TERMINAL_TIMEOUT);
    assert_int_equal(write(p.master, "q", 1), 1);
    assert_int_equal(terminal_wait(&t, fds[0], -1, &key), TERMINAL_KEY);
    assert_int_equal(key, 'q');
    raise(SIGWINCH);
    assert_int_equal(terminal_wait(&t, fds[0], -1, &key), TERMINAL_RESIZED);
    raise(SIGTERM);
    assert_int_equal(terminal_wait(&t, fds[0], -1, &key), TERMINAL_SIGNAL);
    assert_int_equal(key, SIGTERM);
    assert_int_equal(write(fds[1], "x", 1), 1);
    assert_int_equal(terminal_wait(&t, fds[0], -1, &key), TERMINAL_READABLE);
    close(p.master); /* it hangs up */
    assert_int_equal(terminal_wait(&t, -1, -1, &key), TERMINAL_GONE);
    assert_false(terminal_show(&t, "x", 1));
    terminal_close(&t);
    close(p.slave);
    close(fds[0]);
    close(fds[1]);
}

/* Ctrl-Z: the shell gets its terminal as it was; `fg` takes it again. */
static void stopping_gives_the_terminal_to_the_shell(void **state)
{
    struct pair p = a_terminal();
    struct termios before, stopped;
    int status;

    tcgetattr(p.slave, &before);
    pid_t pid = fork();
    if (pid == 0) {
        struct terminal t;
        int key;
        if (terminal_open(&t, p.slave, p.slave))
            _exit(1);
        raise(SIGTSTP);
        bool good = terminal_wait(&t, -1, -1, &key) == TERMINAL_RESIZED;
        terminal_close(&t);
        _exit(good ? 0 : 2);
    }
    assert_int_equal(waitpid(pid, &status, WUNTRACED), pid);
    assert_true(WIFSTOPPED(status));
    tcgetattr(p.slave, &stopped);
    assert_same_settings(&before, &stopped);
    assert_shown(&p, "\033[?1049h\033[?25l\033[2J\033[?25h\033[?1049l");
    kill(pid, SIGCONT);
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_int_equal(status, 0);
    assert_shown(&p, "\033[?1049h\033[?25l\033[2J\033[?25h\033[?1049l");
    close(p.master);
    close(p.slave);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_frame_is_of_the_time_between_two_looks),
        cmocka_unit_test(without_a_look_before_it_is_since_the_start),
        cmocka_unit_test(a_frame_fits_80_by_24),
        cmocka_unit_test(any_size_holds),
        cmocka_unit_test(a_status_of_another_version_shows_dashes),
        cmocka_unit_test(numbers_take_five_columns),
        cmocka_unit_test(nothing_from_elsewhere_steers_a_terminal),
        cmocka_unit_test(a_terminal_is_given_back),
        cmocka_unit_test(what_is_no_terminal_is_left_alone),
        cmocka_unit_test(keys_signals_sizes_and_answers_are_events),
        cmocka_unit_test(stopping_gives_the_terminal_to_the_shell),
    };
    return cmocka_run_group_tests_name("top", tests, NULL, NULL);
}
