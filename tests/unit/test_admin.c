/* The admin socket: requests, and clients that mean harm or mean nothing. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "control/admin.h"

struct world {
    uv_loop_t loop;
    struct admin *admin;
    char dir[64], path[96];
    int lock;
    unsigned requests;
    bool hold; /* don't answer */
    struct admin_request *held;
};

static void on_request(void *ctx, const struct admin_call *call, struct admin_request *r)
{
    struct world *w = ctx;

    w->requests++;
    if (w->hold)
        w->held = r;
    else if (call->verb == ADMIN_STATUS)
        admin_reply(r, json_pack("{s:i}", "n", (int)w->requests));
    else
        admin_refuse(r, "not now", json_pack("[s]", "because"));
}

static int setup_with(void **state, unsigned idle_ms, unsigned spare_ms)
{
    struct world *w = calloc(1, sizeof(*w));
    struct admin_opts o = {.path = w->path,
                           .idle_ms = idle_ms,
                           .spare_ms = spare_ms,
                           .on_request = on_request,
                           .ctx = w};
    char err[256];

    strcpy(w->dir, "/tmp/millrace-test-admin-XXXXXX");
    assert_non_null(mkdtemp(w->dir));
    snprintf(w->path, sizeof(w->path), "%s/run/admin.sock", w->dir);
    uv_loop_init(&w->loop);
    assert_int_equal(admin_claim(w->path, &w->lock, err, sizeof(err)), 0);
    assert_int_equal(admin_new(&w->loop, &o, &w->admin, err, sizeof(err)), 0);
    *state = w;
    return 0;
}

static int setup(void **state)
{
    return setup_with(state, 60000, 60000);
}

static int setup_hasty(void **state)
{
    return setup_with(state, 20, 60000);
}

static int setup_crowded(void **state)
{
    return setup_with(state, 60000, 1);
}

static int teardown(void **state)
{
    struct world *w = *state;
    char cmd[128];

    admin_close(w->admin);
    uv_run(&w->loop, UV_RUN_DEFAULT);
    assert_int_equal(uv_loop_close(&w->loop), 0);
    close(w->lock);
    assert_int_equal(access(w->path, F_OK), -1);
    snprintf(cmd, sizeof(cmd), "%s.lock", w->path);
    unlink(cmd);
    snprintf(cmd, sizeof(cmd), "%s/run", w->dir);
    rmdir(cmd);
    rmdir(w->dir);
    free(w);
    return 0;
}

static int dial(struct world *w)
{
    struct sockaddr_un sa = {.sun_family = AF_UNIX};
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);

    strcpy(sa.sun_path, w->path);
    assert_int_equal(connect(fd, (struct sockaddr *)&sa, sizeof(sa)), 0);
    return fd;
}

static void turn(struct world *w)
{
    for (unsigned i = 0; i < 20; i++)
        uv_run(&w->loop, UV_RUN_NOWAIT);
}

/* Sends, lets the loop turn, and gives back what came: "" for nothing, NULL for a closed
 * connection. */
static const char *talk(struct world *w, int fd, const char *text, size_t len)
{
    static char buf[4096];
    size_t sent = 0;
    ssize_t n;

    while (sent < len) {
        n = send(fd, text + sent, len - sent, MSG_NOSIGNAL);
        if (n < 0 && errno != EAGAIN)
            break;
        sent += n > 0 ? (size_t)n : 0;
        turn(w);
    }
    turn(w);
    n = recv(fd, buf, sizeof(buf) - 1, 0);
    if (n == 0 || (n < 0 && errno != EAGAIN))
        return NULL;
    buf[n < 0 ? 0 : n] = '\0';
    return buf;
}

static const char *say(struct world *w, int fd, const char *text)
{
    return talk(w, fd, text, strlen(text));
}

static void requests_are_answered_in_turn(void **state)
{
    struct world *w = *state;
    int fd = dial(w);

    assert_string_equal(say(w, fd, "{\"verb\": \"status\"}\n"),
                        "{\"ok\":true,\"result\":{\"n\":1}}\n");
    assert_string_equal(say(w, fd, "{\"verb\""), "");
    assert_string_equal(say(w, fd, ":\"status\"}\r\n\n{\"verb\":\"reload\"}\n"),
                        "{\"ok\":true,\"result\":{\"n\":2}}\n"
                        "{\"ok\":false,\"error\":\"not now\",\"errors\":[\"because\"]}\n");
    close(fd);
    turn(w);
}

static void a_request_without_a_client_is_still_answered(void **state)
{
    struct world *w = *state;
    int fd = dial(w);

    w->hold = true;
    assert_string_equal(say(w, fd, "{\"verb\":\"drain\"}\n{\"verb\":\"status\"}\n"), "");
    assert_non_null(w->held);
    admin_note(w->held, json_pack("{s:i}", "left", 3));
    assert_string_equal(say(w, fd, ""), "{\"ok\":true,\"note\":{\"left\":3}}\n");
    close(fd);
    turn(w);
    assert_int_equal(w->requests, 1);
    admin_reply(w->held, json_object());
    turn(w);
}

/* `echo … | socat` closes its half at once. */
static void a_half_closed_client_gets_its_answer(void **state)
{
    struct world *w = *state;
    int fd = dial(w);

    w->hold = true;
    assert_string_equal(say(w, fd, "{\"verb\":\"status\"}\n"), "");
    shutdown(fd, SHUT_WR);
    turn(w);
    admin_reply(w->held, json_object());
    assert_string_equal(say(w, fd, ""), "{\"ok\":true,\"result\":{}}\n");
    assert_null(say(w, fd, ""));
    close(fd);
}

static void wrong_requests_are_told_apart(void **state)
{
    static const struct {
        const char *line, *error;
    } cases[] = {
        {"hello", "not a JSON object"},
        {"{", "not a JSON object"},
        {"[1]", "expected an object"},
        {"{\"verb\":1}", "expected an object"},
        {"{}", "expected an object"},
        {"{\"verb\":\"stop\"}", "unknown verb \\\"stop\\\""},
        {"{\"verb\":\"\\u0000\"}", "not a JSON object"},
        {"{\"verb\":\"status\",\"verb\":\"drain\"}", "not a JSON object"},
        {"{\"verb\":\"status\",\"x\":1}", "takes no \\\"x\\\""},
        {"{\"verb\":\"reload\",\"if_version\":\"7\"}", "\\\"if_version\\\" must be a whole number"},
        {"{\"verb\":\"reload\",\"if_version\":-7}", "must be a whole number"},
        {"{\"verb\":\"reload\",\"overrides\":\"burn\"}", "must be one of its words"},
        {"{\"verb\":\"upstream\",\"action\":\"drain\"}", "needs \\\"upstream\\\""},
        {"{\"verb\":\"upstream\",\"upstream\":1,\"action\":\"drain\"}", "must be a string"},
        {"\xff\xfe", "not a JSON object"},
    };
    struct world *w = *state;
    int fd = dial(w);

    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        char line[128];
        snprintf(line, sizeof(line), "%s\n", cases[i].line);
        const char *answer = say(w, fd, line);
        assert_non_null(answer);
        if (!strstr(answer, cases[i].error) || !strstr(answer, "\"ok\":false"))
            fail_msg("%s answered %s", cases[i].line, answer);
    }
    assert_int_equal(w->requests, 0);
    assert_non_null(strstr(say(w, fd, "{\"verb\":\"status\"}\n"), "\"ok\":true"));
    close(fd);
    turn(w);
}

static void arguments_are_read_by_name(void **state)
{
    static const char line[] = "{\"verb\":\"rollback\",\"version\":9007199254740993}";
    struct admin_call c;
    char err[256];
    uint64_t n = 0;

    assert_int_equal(admin_parse(line, strlen(line), &c, err, sizeof(err)), 0);
    assert_int_equal(c.verb, ADMIN_ROLLBACK);
    assert_true(admin_number(&c, "version", &n));
    assert_true(n == 9007199254740993);
    assert_false(admin_number(&c, "if_version", &n));
    assert_null(admin_text(&c, "overrides"));
    admin_call_fini(&c);
}

static void an_endless_request_is_cut(void **state)
{
    struct world *w = *state;
    int fd = dial(w);
    size_t len = 4 * ADMIN_MAX_REQUEST;
    char *flood = malloc(len);

    memset(flood, '[', len);
    const char *answer = talk(w, fd, flood, len);
    if (answer) {
        assert_non_null(strstr(answer, "request too long"));
        assert_null(say(w, fd, ""));
    }
    assert_int_equal(w->requests, 0);
    free(flood);
    close(fd);
    turn(w);
}

/* Requests pile up behind one that is being served: at some size the client is cut, and the one
 * under way ends well. */
static void a_flood_behind_a_request_is_cut(void **state)
{
    struct world *w = *state;
    int fd = dial(w);

    w->hold = true;
    for (unsigned i = 0; i < 8192; i++)
        if (!say(w, fd, "{\"verb\":\"status\"}\n"))
            break;
    assert_int_equal(w->requests, 1);
    assert_null(say(w, fd, ""));
    admin_reply(w->held, json_object());
    close(fd);
    turn(w);
}

static void clients_over_the_limit_are_told(void **state)
{
    struct world *w = *state;
    int fds[ADMIN_MAX_CLIENTS], one;

    for (unsigned i = 0; i < ADMIN_MAX_CLIENTS; i++) {
        fds[i] = dial(w);
        turn(w);
    }
    one = dial(w);
    assert_non_null(strstr(say(w, one, ""), "too many admin clients"));
    assert_null(say(w, one, ""));
    close(one);
    close(fds[0]);
    turn(w);
    one = dial(w);
    assert_non_null(strstr(say(w, one, "{\"verb\":\"status\"}\n"), "\"ok\":true"));
    close(one);
    for (unsigned i = 1; i < ADMIN_MAX_CLIENTS; i++)
        close(fds[i]);
    turn(w);
}

/* One byte now and then doesn't keep a place: a whole request in time does. */
static void a_request_that_trickles_is_cut(void **state)
{
    struct world *w = *state;
    uint64_t end = uv_hrtime() + 10ull * 1000000000;
    int slow = dial(w);
    bool open = true;

    for (unsigned i = 0; open && uv_hrtime() < end; i++) {
        uv_run(&w->loop, UV_RUN_ONCE); /* the timer, at the latest */
        open = say(w, slow, " ") != NULL;
    }
    assert_false(open);
    close(slow);
    assert_int_equal(w->requests, 0);
}

/* Clients that only hold their places make room for one who asks. */
static void the_hung_give_way(void **state)
{
    struct world *w = *state;
    int fds[ADMIN_MAX_CLIENTS], one;

    for (unsigned i = 0; i < ADMIN_MAX_CLIENTS; i++) {
        fds[i] = dial(w);
        turn(w);
    }
    uint64_t until = uv_now(&w->loop) + 3;
    while (uv_now(&w->loop) < until)
        turn(w);
    for (unsigned i = 0; i < 3; i++) {
        one = dial(w);
        assert_non_null(strstr(say(w, one, "{\"verb\":\"status\"}\n"), "\"ok\":true"));
        assert_null(say(w, fds[i], ""));
    }
    for (unsigned i = 0; i < ADMIN_MAX_CLIENTS; i++)
        close(fds[i]);
    turn(w);
}

/* A second instance is refused; the socket that a crash leaves is replaced; a file is not. */
static void one_instance_a_socket(void **state)
{
    struct world *w = *state;
    char err[256], path[160];
    struct stat st;
    int lock;

    assert_int_equal(admin_claim(w->path, &lock, err, sizeof(err)), -EADDRINUSE);
    assert_non_null(strstr(err, "another instance is running (socket "));
    assert_int_equal(stat(w->path, &st), 0);
    assert_int_equal(st.st_mode & 07777, 0660);

    snprintf(path, sizeof(path), "%s/run/other.sock", w->dir);
    struct sockaddr_un sa = {.sun_family = AF_UNIX};
    strcpy(sa.sun_path, path);
    int fd = socket(AF_UNIX, SOCK_STREAM, 0);
    assert_int_equal(bind(fd, (struct sockaddr *)&sa, sizeof(sa)), 0);
    close(fd);
    assert_int_equal(admin_claim(path, &lock, err, sizeof(err)), 0);
    assert_int_equal(access(path, F_OK), -1);
    close(lock);

    fd = open(path, O_CREAT | O_WRONLY, 0600);
    close(fd);
    assert_int_equal(admin_claim(path, &lock, err, sizeof(err)), -EEXIST);
    assert_non_null(strstr(err, "is no socket"));
    unlink(path);
    strcat(path, ".lock");
    unlink(path);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(requests_are_answered_in_turn, setup, teardown),
        cmocka_unit_test_setup_teardown(a_request_without_a_client_is_still_answered, setup,
                                        teardown),
        cmocka_unit_test_setup_teardown(a_half_closed_client_gets_its_answer, setup, teardown),
        cmocka_unit_test_setup_teardown(wrong_requests_are_told_apart, setup, teardown),
        cmocka_unit_test_setup_teardown(an_endless_request_is_cut, setup, teardown),
        cmocka_unit_test_setup_teardown(a_flood_behind_a_request_is_cut, setup, teardown),
        cmocka_unit_test_setup_teardown(clients_over_the_limit_are_told, setup, teardown),
        cmocka_unit_test(arguments_are_read_by_name),
        cmocka_unit_test_setup_teardown(a_request_that_trickles_is_cut, setup_hasty, teardown),
        cmocka_unit_test_setup_teardown(the_hung_give_way, setup_crowded, teardown),
        cmocka_unit_test_setup_teardown(one_instance_a_socket, setup, teardown),
    };
    signal(SIGPIPE, SIG_IGN); /* as the supervisor does */
    return cmocka_run_group_tests_name("admin", tests, NULL, NULL);
}
