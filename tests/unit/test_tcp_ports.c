#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <errno.h>
#include <string.h>

#include <cmocka.h>

#include "dataplane/tcp/ports.h"

struct used {
    bool port[65536];
    unsigned asked;
};

static bool in_use(void *ctx, uint16_t port)
{
    struct used *u = ctx;
    u->asked++;
    return u->port[port];
}

static void every_port_is_one_cores(void **state)
{
    const struct port_space spaces[] = {
        {32768, 60999, 0, 1}, {32768, 60999, 0, 2}, {1000, 1010, 0, 4},
        {65530, 65535, 0, 5}, {1024, 65535, 0, 7},
    };
    for (size_t i = 0; i < sizeof(spaces) / sizeof(*spaces); i++) {
        struct port_space s = spaces[i];
        uint32_t sum = 0;
        for (s.core = 0; s.core < s.cores; s.core++)
            sum += ports_count(&s);
        assert_int_equal(sum, s.hi - s.lo + 1);
    }
}

static void all_of_a_cores_ports_are_found_and_then_none(void **state)
{
    static struct used used;
    struct port_space s = {40000, 40999, 2, 3};
    struct rng rng = {7};
    uint32_t n = ports_count(&s);
    uint16_t first = 0, port = 0;
    unsigned ascending = 0;
    for (uint32_t i = 0; i < n; i++) {
        uint16_t last = port;
        assert_int_equal(ports_pick(&s, &rng, in_use, &used, &port), 0);
        assert_true(ports_contain(&s, port));
        assert_int_equal(ports_owner(&s, port), 2);
        assert_false(used.port[port]);
        used.port[port] = true;
        ascending += port == last + 3;
        if (i == 0)
            first = port;
    }
    assert_true(ascending < n / 2); /* random, not a count */
    used.asked = 0;
    assert_int_equal(ports_pick(&s, &rng, in_use, &used, &port), -EADDRNOTAVAIL);
    assert_int_equal(used.asked, n);
    used.port[first] = false;
    assert_int_equal(ports_pick(&s, &rng, in_use, &used, &port), 0);
    assert_int_equal(port, first);
}

static void more_cores_than_ports(void **state)
{
    static struct used used;
    struct port_space s = {500, 501, 2, 4};
    struct rng rng = {7};
    uint16_t port;
    assert_int_equal(ports_count(&s), 0);
    assert_int_equal(ports_pick(&s, &rng, in_use, &used, &port), -EADDRNOTAVAIL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_port_is_one_cores),
        cmocka_unit_test(all_of_a_cores_ports_are_found_and_then_none),
        cmocka_unit_test(more_cores_than_ports),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
