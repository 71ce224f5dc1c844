/* What a core may ask of the kernel, and what ends it: each in a process of its own, whose last
 * words are read. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <semaphore.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <rte_pause.h>

#include "runtime/clock.h"
#include "runtime/sched.h"
#include "runtime/trap.h"

/* The core's world in the child. */
static struct sched sched;
static struct pollfd idle[1];
static int wake_fd, pipe_fds[2], sockets[2];
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static atomic_bool lock_held;

struct caller {
    struct task task;
    void (*call)(void);
};

static enum poll caller_poll(struct task *t)
{
    container_of(t, struct caller, task)->call();
    return POLL_READY;
}

static void caller_drop(struct task *t)
{
    (void)t;
}

static const struct task_kind caller_kind = {"caller", caller_poll, caller_drop,
                                             sizeof(struct caller)};

static void run_on_a_core(void (*call)(void))
{
    struct caller c = {.call = call, .task.label = "web"};
    struct trap_opts o = {.name = "core/7", .wake_fd = wake_fd, .idle = idle};
    sched_init(&sched, &(struct sched_opts){.now = 4711});
    sched_bind_thread(&sched);
    if (trap_arm(&o))
        _exit(99);
    task_spawn(&sched, &c.task, &caller_kind);
    sched_step(&sched, 4712);
}

/* Runs `whole` in a child. Its wait status, and what it said. */
static int in_child(void (*whole)(void (*call)(void)), void (*call)(void), char *said, size_t size)
{
    int err[2], status;
    size_t n = 0;
    ssize_t r;
    assert_int_equal(pipe(err), 0);
    pid_t child = fork();
    if (child == 0) {
        dup2(err[1], STDERR_FILENO);
        whole(call);
        _exit(0);
    }
    close(err[1]);
    while (n + 1 < size && (r = read(err[0], said + n, size - n - 1)) > 0)
        n += (size_t)r;
    said[n] = '\0';
    close(err[0]);
    assert_int_equal(waitpid(child, &status, 0), child);
    return status;
}

static int set_up(void **state)
{
    (void)state;
    wake_fd = eventfd(0, EFD_NONBLOCK);
    assert_int_equal(pipe(pipe_fds), 0);
    assert_int_equal(socketpair(AF_UNIX, SOCK_DGRAM, 0, sockets), 0);
    return wake_fd < 0;
}

static int tear_down(void **state)
{
    (void)state;
    close(wake_fd);
    for (int i = 0; i < 2; i++) {
        close(pipe_fds[i]);
        close(sockets[i]);
    }
    return 0;
}

static void call_nanosleep(void)
{
    nanosleep(&(struct timespec){.tv_nsec = 1}, NULL);
}

static void call_read(void)
{
    char c[8];
    (void)!read(pipe_fds[0], c, sizeof(c));
}

static void call_write(void)
{
    char c[100] = {0};
    (void)!write(pipe_fds[1], c, sizeof(c));
}

static void call_open(void)
{
    (void)!open("/dev/null", O_RDONLY);
}

static void call_poll(void)
{
    poll(NULL, 0, 1);
}

static void call_ppoll(void)
{
    struct timespec ts = {.tv_nsec = 1};
    ppoll(NULL, 0, &ts, NULL);
}

static void call_sendto(void)
{
    sendto(sockets[0], "x", 1, 0, NULL, 0);
}

static void call_recv(void)
{
    char c;
    (void)!recv(sockets[0], &c, 1, 0);
}

static void call_sem_wait(void)
{
    sem_t s;
    sem_init(&s, 0, 0);
    sem_wait(&s);
}

static void *hold_lock(void *arg)
{
    (void)arg;
    pthread_mutex_lock(&lock);
    atomic_store(&lock_held, true);
    for (;;)
        pause();
    return NULL;
}

static void call_lock(void)
{
    pthread_mutex_lock(&lock);
}

/* The holder must be there before the filter is: a thread inherits it. */
static void with_held_lock(void *(*holder)(void *), void (*call)(void))
{
    pthread_t t;
    pthread_create(&t, NULL, holder, NULL);
    while (!atomic_load(&lock_held))
        rte_pause();
    run_on_a_core(call);
}

static void beside_an_eternal_holder(void (*call)(void))
{
    with_held_lock(hold_lock, call);
}

static const struct {
    void (*call)(void);
    const char *name;
} forbidden[] = {
    {call_nanosleep, "clock_nanosleep()"},
    {call_read, "read()"},
    {call_write, "write()"},
    {call_open, "openat()"},
    {call_poll, "poll()"},
    {call_ppoll, "ppoll()"},
    {call_sendto, "sendto()"},
    {call_recv, "recvfrom()"},
    {call_sem_wait, "futex()"},
};

static void a_blocking_call_ends_the_process_and_is_named(void **state)
{
    static char said[8192];
    char want[128];
    (void)state;
    for (size_t i = 0; i < sizeof(forbidden) / sizeof(forbidden[0]); i++) {
        int status = in_child(run_on_a_core, forbidden[i].call, said, sizeof(said));
        snprintf(
            want, sizeof(want),
            "millrace: a core must not block: %s in task \"caller\" (label \"web\") on core/7\n",
            forbidden[i].name);
        if (!WIFSIGNALED(status) || WTERMSIG(status) != SIGABRT || !strstr(said, want) ||
            !strstr(said, "/unit_trap+0x"))
            fail_msg("%s: status %#x, said: %s", forbidden[i].name, status, said);
    }
}

static void call_all_that_is_fine(void)
{
    uint64_t one = 1;
    char c;
    struct timespec now;
    (void)!write(wake_fd, &one, sizeof(one));
    (void)!read(wake_fd, &one, sizeof(one));
    (void)!read(wake_fd, &one, sizeof(one)); /* and empty: it doesn't wait */
    ppoll(idle, 1, &(struct timespec){0}, NULL);
    poll(NULL, 0, 0);
    sendto(sockets[0], "x", 1, MSG_DONTWAIT, NULL, 0);
    (void)!recv(sockets[1], &c, 1, MSG_DONTWAIT);
    clock_gettime(CLOCK_MONOTONIC, &now);
    for (size_t size = 1; size <= 64 << 20; size *= 4) {
        char *chunk = aligned_alloc(64, size < 64 ? 64 : size);
        memset(chunk, 1, size);
        free(chunk);
    }
    sem_t s;
    sem_init(&s, 0, 0);
    sem_post(&s);
}

static void what_a_core_needs_goes_through(void **state)
{
    static char said[8192];
    (void)state;
    int status = in_child(run_on_a_core, call_all_that_is_fine, said, sizeof(said));
    if (status)
        fail_msg("status %#x, said: %s", status, said);
}

/* Lets go once the other waits, as whoever holds malloc's lock does. */
static void *hold_lock_shortly(void *arg)
{
    (void)arg;
    pthread_mutex_lock(&lock);
    atomic_store(&lock_held, true);
    while (__atomic_load_n(&lock.__data.__lock, __ATOMIC_RELAXED) != 2)
        rte_pause();
    pthread_mutex_unlock(&lock);
    return NULL;
}

static void beside_a_short_holder(void (*call)(void))
{
    with_held_lock(hold_lock_shortly, call);
}

static void a_lock_held_shortly_is_waited_for_and_one_held_long_is_a_block(void **state)
{
    static char said[8192];
    (void)state;
    int status = in_child(beside_a_short_holder, call_lock, said, sizeof(said));
    if (status)
        fail_msg("status %#x, said: %s", status, said);
    status = in_child(beside_an_eternal_holder, call_lock, said, sizeof(said));
    if (!WIFSIGNALED(status) || !strstr(said, "must not block: futex() in task \"caller\""))
        fail_msg("status %#x, said: %s", status, said);
}

#ifdef __SANITIZE_ADDRESS__
static void call_out_of_bounds(void)
{
    static volatile size_t size = 10;
    volatile char *c = malloc(size);
    c[size + 2] = 1;
}

static void a_sanitizers_report_comes_through(void **state)
{
    static char said[65536];
    (void)state;
    int status = in_child(run_on_a_core, call_out_of_bounds, said, sizeof(said));
    if (!status || !strstr(said, "heap-buffer-overflow") || !strstr(said, "allocated by") ||
        strstr(said, "must not block"))
        fail_msg("status %#x, said: %s", status, said);
}
#endif

#define story(f) cmocka_unit_test_setup_teardown(f, set_up, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        story(a_blocking_call_ends_the_process_and_is_named),
        story(what_a_core_needs_goes_through),
        story(a_lock_held_shortly_is_waited_for_and_one_held_long_is_a_block),
#ifdef __SANITIZE_ADDRESS__
        story(a_sanitizers_report_comes_through),
#endif
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
