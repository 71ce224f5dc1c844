#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <arpa/inet.h>
#include <errno.h>
#include <stdbool.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include <bpf/bpf.h>
#include <cmocka.h>
#include <linux/bpf.h>

#include "dataplane/xdp/steer.h"

static struct steer *s; /* NULL: not allowed to load programs, as in a developer's own shell */

static int load(void **state)
{
    (void)state;
    struct config_addr ours[] = {{.addr = inet_addr("10.1.0.1"), .prefix = 24},
                                 {.addr = inet_addr("192.0.2.7"), .prefix = 32}};
    int rc = steer_new(ours, 2, &s);
    return rc == -EPERM ? 0 : rc;
}

static int unload(void **state)
{
    (void)state;
    steer_free(s);
    s = NULL;
    return 0;
}

/* What the program says to a frame given in hex, spaces free. */
static int verdict_of(const char *hex)
{
    uint8_t frame[128];
    LIBBPF_OPTS(bpf_test_run_opts, o, .data_in = frame, .repeat = 1);
    for (unsigned digits = 0, byte = 0; *hex; hex++) {
        if (*hex == ' ')
            continue;
        byte = byte << 4 | (unsigned)(*hex <= '9' ? *hex - '0' : *hex - 'a' + 10);
        if (++digits % 2 == 0)
            frame[o.data_size_in++] = (uint8_t)byte;
    }
    assert_int_equal(bpf_prog_test_run_opts(steer_prog_fd(s), &o), 0);
    return (int)o.retval;
}

#define MACS    "020000000001 020000000002 "
#define IP_HEAD "0800 45 00 0028 0000 4000 40 06 0000 "
#define TCP     "1f90 0050 00000000 00000000 5002 ffff 0000 0000"
#define US      "0a010001 "
#define US_TOO  "c0000207 "
#define OTHER   "0a010002 "
#define ARP     "0806 0001 0800 06 04 0001 "

static const struct {
    const char *what, *frame;
    bool ours;
} frames[] = {
    {"TCP to an address of ours", MACS IP_HEAD OTHER US TCP, true},
    {"TCP to our second address", MACS IP_HEAD OTHER US_TOO TCP, true},
    {"TCP from an address of ours, to another", MACS IP_HEAD US OTHER TCP, false},
    {"ssh to the kernel's address", MACS IP_HEAD US OTHER "8000 0016", false},
    {"IPv4 with options to us", MACS "0800 46 00 0018 0000 4000 40 01 0000 " OTHER US "94040000",
     true},
    {"a later fragment to us", MACS "0800 45 00 0028 0000 00b9 40 11 0000 " OTHER US TCP, true},
    {"an IPv4 header that is cut short", MACS "0800 45 00 0028 0000 4000 40 06 0000 " OTHER "0a01",
     false},
    {"ARP that asks for us", MACS ARP "020000000002 " OTHER "000000000000 " US, true},
    {"an ARP answer to us", MACS "0806 0001 0800 06 04 0002 020000000002 " OTHER "020000000001 " US,
     true},
    {"ARP that claims our address", MACS ARP "020000000002 " US "000000000000 " OTHER, true},
    {"ARP between others", MACS ARP "020000000002 " OTHER "000000000000 0a010003", false},
    {"ARP that is cut short", MACS ARP "020000000002 " OTHER "000000000000 0a01", false},
    {"ARP of another length",
     MACS "0806 0001 0800 06 10 0001 020000000002 " OTHER "000000000000 " US, false},
    {"a VLAN frame to us", MACS "8100 0005 " IP_HEAD OTHER US TCP, false},
    {"IPv6",
     MACS "86dd 60000000 0000 3b 40 fd770000000000000000000000000002 "
          "fd770000000000000000000000000001",
     false},
    {"an Ethernet header alone", MACS "0800", false},
};

static void only_our_addresses_traffic_is_ours(void **state)
{
    (void)state;
    if (!s)
        skip();
    /* Without a socket in the map what is ours is dropped; the rest is the kernel's. */
    for (unsigned i = 0; i < sizeof(frames) / sizeof(frames[0]); i++) {
        int want = frames[i].ours ? XDP_DROP : XDP_PASS, got = verdict_of(frames[i].frame);
        if (got != want)
            fail_msg("%s: verdict %d, not %d", frames[i].what, got, want);
    }
}

static void every_verdict_is_counted(void **state)
{
    (void)state;
    if (!s)
        skip();
    uint64_t n[STEER_VERDICTS];
    int fd = socket(AF_XDP, SOCK_RAW | SOCK_CLOEXEC, 0);
    assert_true(fd >= 0);
    assert_int_equal(verdict_of(frames[0].frame), XDP_DROP);
    assert_int_equal(steer_set_socket(s, 0, fd), 0);
    assert_int_equal(verdict_of(frames[0].frame), XDP_REDIRECT);
    assert_int_equal(verdict_of(frames[0].frame), XDP_REDIRECT);
    for (unsigned i = 0; i < 3; i++)
        assert_int_equal(verdict_of(frames[3].frame), XDP_PASS);
    steer_counters(s, n);
    assert_int_equal(n[STEER_DROP], 1);
    assert_int_equal(n[STEER_REDIRECT], 2);
    assert_int_equal(n[STEER_PASS], 3);
    close(fd);
}

static void the_object_is_an_elf_file_for_the_driver(void **state)
{
    (void)state;
    char magic[4];
    int fd = steer_object_fd();
    assert_true(fd >= 0);
    assert_int_equal(pread(fd, magic, 4, 0), 4);
    assert_memory_equal(magic, "\177ELF", 4);
    close(fd);
}

static void too_many_addresses_are_refused(void **state)
{
    (void)state;
    if (!s)
        skip();
    static struct config_addr many[STEER_MAX_ADDRS + 1];
    struct steer *none = NULL;
    for (unsigned i = 0; i <= STEER_MAX_ADDRS; i++)
        many[i].addr = htonl(0x0a000000 + i);
    assert_int_equal(steer_new(many, STEER_MAX_ADDRS + 1, &none), -E2BIG);
    assert_null(none);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(only_our_addresses_traffic_is_ours, load, unload),
        cmocka_unit_test_setup_teardown(every_verdict_is_counted, load, unload),
        cmocka_unit_test(the_object_is_an_elf_file_for_the_driver),
        cmocka_unit_test_setup_teardown(too_many_addresses_are_refused, load, unload),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
