/* What systemd hears from us, and that its watchdog is fed by every core. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "control/notify.h"

#define CORES 3

struct fakes {
    uint64_t passes[CORES];
    bool ended[CORES];
};

static uint64_t on_passes(void *ctx, unsigned core)
{
    return ((struct fakes *)ctx)->passes[core];
}

static bool on_is_running(void *ctx, unsigned core)
{
    return !((struct fakes *)ctx)->ended[core];
}

static const struct cores_ops fake_ops = {.is_running = on_is_running, .passes = on_passes};

/* systemd's end of the socket. */
static int listener;

static const char *heard(void)
{
    static char buf[512];
    ssize_t n = recv(listener, buf, sizeof(buf) - 1, MSG_DONTWAIT);

    if (n < 0)
        return NULL;
    buf[n] = '\0';
    return buf;
}

static int setup(void **state)
{
    struct sockaddr_un sa = {.sun_family = AF_UNIX};
    char name[64];

    /* An abstract name: nothing to clean up. */
    snprintf(name, sizeof(name), "@millrace-test-notify-%d", getpid());
    memcpy(sa.sun_path + 1, name + 1, strlen(name) - 1);
    listener = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    setenv("NOTIFY_SOCKET", name, 1);
    setenv("WATCHDOG_USEC", "10000000", 1);
    return bind(listener, (struct sockaddr *)&sa,
                (socklen_t)(offsetof(struct sockaddr_un, sun_path) + strlen(name)));
}

static int teardown(void **state)
{
    close(listener);
    return 0;
}

static void one_core_that_stands_still_stops_the_feeding(void **state)
{
    struct fakes f = {0};
    struct cores cores = {&fake_ops, &f, CORES};
    struct notify n;

    notify_init(&n, &cores);
    for (unsigned stuck = 0; stuck < CORES; stuck++) {
        for (unsigned tick = 0; tick < 4; tick++) {
            for (unsigned i = 0; i < CORES; i++)
                f.passes[i]++;
            assert_true(notify_feed(&n));
            assert_string_equal(heard(), "WATCHDOG=1");
        }
        for (unsigned tick = 0; tick < 4; tick++) {
            for (unsigned i = 0; i < CORES; i++)
                f.passes[i] += i != stuck;
            assert_false(notify_feed(&n));
            assert_null(heard());
        }
        /* Once it goes on, the others need not move again. */
        f.passes[stuck]++;
        assert_true(notify_feed(&n));
        assert_string_equal(heard(), "WATCHDOG=1");
    }
}

/* Idle cores make a pass a second, at different times; the feed comes when the last one has. */
static void idle_cores_feed_with_the_slowest(void **state)
{
    struct fakes f = {0};
    struct cores cores = {&fake_ops, &f, CORES};
    struct notify n;
    unsigned feeds = 0, since = 0;

    notify_init(&n, &cores);
    for (unsigned tick = 0; tick < 40; tick++) {
        f.passes[0]++;
        f.passes[1] += tick % 2 == 0;
        f.passes[2] += tick % 2 == 1;
        since++;
        if (notify_feed(&n)) {
            assert_true(since * 500000000ull <= NOTIFY_FEED_NS);
            assert_string_equal(heard(), "WATCHDOG=1");
            feeds++;
            since = 0;
        }
    }
    assert_true(feeds >= 13);
}

static void a_core_that_has_ended_is_not_waited_for(void **state)
{
    struct fakes f = {.ended = {[1] = true}};
    struct cores cores = {&fake_ops, &f, CORES};
    struct notify n;

    notify_init(&n, &cores);
    f.passes[0]++;
    assert_false(notify_feed(&n));
    f.passes[2]++;
    assert_true(notify_feed(&n));
    assert_string_equal(heard(), "WATCHDOG=1");
}

static void without_a_watchdog_nothing_is_fed(void **state)
{
    struct fakes f = {0};
    struct cores cores = {&fake_ops, &f, 1};
    struct notify n;

    unsetenv("WATCHDOG_USEC");
    notify_init(&n, &cores);
    setenv("WATCHDOG_USEC", "2000000", 1);
    assert_false(notify_is_hasty(&n));
    f.passes[0]++;
    assert_true(notify_feed(&n));
    assert_null(heard());
    notify_init(&n, &cores);
    assert_true(notify_is_hasty(&n));
    setenv("WATCHDOG_USEC", "10000000", 1);
}

static void each_turn_is_told(void **state)
{
    struct fakes f = {0};
    struct cores cores = {&fake_ops, &f, CORES};
    struct notify n;
    char ready[128];

    notify_init(&n, &cores);
    notify_ready(&n, 7);
    snprintf(ready, sizeof(ready),
             "READY=1\nMAINPID=%d\nSTATUS=Serving with 3 cores, configuration version 7", getpid());
    assert_string_equal(heard(), ready);
    notify_reloading(123456789000);
    assert_string_equal(heard(), "RELOADING=1\nMONOTONIC_USEC=123456789\nSTATUS=Reloading");
    notify_draining(30000000000, 500000000);
    assert_string_equal(
        heard(), "STOPPING=1\nEXTEND_TIMEOUT_USEC=30500000\nSTATUS=Draining for at most 30 s");
    notify_stopping(3000000000);
    assert_string_equal(heard(), "STOPPING=1\nEXTEND_TIMEOUT_USEC=3000000\nSTATUS=Stopping");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(one_core_that_stands_still_stops_the_feeding),
        cmocka_unit_test(idle_cores_feed_with_the_slowest),
        cmocka_unit_test(a_core_that_has_ended_is_not_waited_for),
        cmocka_unit_test(without_a_watchdog_nothing_is_fed),
        cmocka_unit_test(each_turn_is_told),
    };
    return cmocka_run_group_tests_name("notify", tests, setup, teardown);
}
