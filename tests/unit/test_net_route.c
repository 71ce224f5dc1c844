#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <errno.h>

#include <cmocka.h>

#include <rte_ip.h>

#include "tests/kit/eal.h"
#include "tests/kit/net_rig.h"

#define SEC 1000000000ull

/* Port 0: 10.0.0.1/24, gateway 10.0.0.254. Port 1: 10.0.0.129/25 and 192.0.2.9/32, gateway
 * 192.0.2.1. */
struct two_ports {
    struct net_rig rig;
    struct netif second;
};

static void no_flush(struct netif *nif)
{
    for (unsigned i = 0; i < nif->tx_n; i++)
        rte_pktmbuf_free(nif->tx[i]);
    nif->tx_n = 0;
}

static int setup(void **state)
{
    static struct two_ports t;
    net_rig_init(&t.rig, &(struct net_rig_opts){0});
    t.second = (struct netif){
        .mac = {{2, 0, 0, 0, 1, 1}},
        .mtu = 9000,
        .index = 1,
        .gateway = IP4(192, 0, 2, 1),
        .naddrs = 2,
        .addrs = {{IP4(10, 0, 0, 129), 25}, {IP4(192, 0, 2, 9), 32}},
        .flush = no_flush,
    };
    net_add_if(t.rig.net, &t.second, false);
    *state = &t;
    return 0;
}

static int teardown(void **state)
{
    struct two_ports *t = *state;
    no_flush(&t->second);
    net_rig_fini(&t->rig);
    return 0;
}

static void the_table_of_routes(void **state)
{
    struct two_ports *t = *state;
    struct netif *first = &t->rig.nif, *second = &t->second;
    const struct {
        uint32_t dst, src;
        int err;
        struct netif *nif;
        uint32_t ret_src, next_hop;
    } cases[] = {
        /* Connected; the longer prefix wins. */
        {IP4(10, 0, 0, 2), 0, 0, first, RIG_US, IP4(10, 0, 0, 2)},
        {IP4(10, 0, 0, 200), 0, 0, second, IP4(10, 0, 0, 129), IP4(10, 0, 0, 200)},
        /* By gateway: the first interface's, unless the source says otherwise. */
        {RIG_FAR, 0, 0, first, RIG_US, RIG_GATEWAY},
        {RIG_FAR, RIG_US, 0, first, RIG_US, RIG_GATEWAY},
        {RIG_FAR, IP4(192, 0, 2, 9), 0, second, IP4(192, 0, 2, 9), IP4(192, 0, 2, 1)},
        {IP4(10, 0, 0, 200), RIG_US, 0, first, RIG_US, IP4(10, 0, 0, 200)},
        /* Nowhere. */
        {RIG_FAR, IP4(1, 2, 3, 4), -ENETUNREACH, NULL, 0, 0},
        {RIG_US, 0, -ENETUNREACH, NULL, 0, 0},
        {IP4(192, 0, 2, 9), 0, -ENETUNREACH, NULL, 0, 0},
        {IP4(10, 0, 0, 255), 0, -ENETUNREACH, NULL, 0, 0},
        {0, 0, -ENETUNREACH, NULL, 0, 0},
        {IP4(127, 0, 0, 1), 0, -ENETUNREACH, NULL, 0, 0},
        {IP4(224, 0, 0, 5), 0, -ENETUNREACH, NULL, 0, 0},
        {UINT32_MAX, 0, -ENETUNREACH, NULL, 0, 0},
    };
    for (unsigned i = 0; i < RTE_DIM(cases); i++) {
        struct net_route r = {0};
        int err = net_route_lookup(t->rig.net, cases[i].dst, cases[i].src, &r);
        if (err != cases[i].err || r.nif != cases[i].nif || r.src != cases[i].ret_src ||
            r.next_hop != cases[i].next_hop)
            fail_msg("case %u: err %d, src %08x, next hop %08x", i, err, rte_be_to_cpu_32(r.src),
                     rte_be_to_cpu_32(r.next_hop));
        if (!err)
            assert_int_equal(r.mtu, r.nif->mtu);
    }
}

static void without_gateway_far_is_unreachable(void **state)
{
    struct two_ports *t = *state;
    struct net_route r;
    t->rig.nif.gateway = 0;
    t->second.gateway = 0;
    assert_int_equal(net_route_lookup(t->rig.net, RIG_FAR, 0, &r), -ENETUNREACH);
    assert_int_equal(net_rig_output(&t->rig, NULL, RIG_FAR, 253, "x", 1, true), -ENETUNREACH);
    assert_int_equal(net_stats(t->rig.net)->drops[NET_DROP_no_route], 1);
    assert_int_equal(kit_pool_used(t->rig.pool), 0);
}

static uint16_t mtu_to(struct two_ports *t, uint32_t dst)
{
    struct net_route r;
    assert_int_equal(net_route_lookup(t->rig.net, dst, 0, &r), 0);
    return r.mtu;
}

static void learned_mtus_lower_the_path_and_age(void **state)
{
    struct two_ports *t = *state;
    struct net *n = t->rig.net;
    net_pmtu_learn(n, RIG_FAR, 1300);
    assert_int_equal(mtu_to(t, RIG_FAR), 1300);
    assert_int_equal(mtu_to(t, IP4(198, 51, 100, 8)), 1500);
    net_pmtu_learn(n, RIG_FAR, 1400); /* never up */
    assert_int_equal(mtu_to(t, RIG_FAR), 1300);
    net_pmtu_learn(n, RIG_FAR, 68);
    assert_int_equal(mtu_to(t, RIG_FAR), NET_PMTU_MIN);
    net_pmtu_learn(n, RIG_PEER, 9000); /* no more than the wire takes */
    assert_int_equal(mtu_to(t, RIG_PEER), 1500);
    net_rig_advance(&t->rig, 601 * SEC);
    assert_int_equal(mtu_to(t, RIG_FAR), 1500);
}

/* A connection's path follows both when an MTU is learned and when it is forgotten. */
static void a_cached_path_follows(void **state)
{
    struct two_ports *t = *state;
    struct net_path p = {0};
    net_rig_output(&t->rig, &p, RIG_FAR, 253, "x", 1, true);
    assert_int_equal(p.route.mtu, 1500);
    net_pmtu_learn(t->rig.net, RIG_FAR, 1300);
    net_rig_output(&t->rig, &p, RIG_FAR, 253, "x", 1, true);
    assert_int_equal(p.route.mtu, 1300);
    net_rig_advance(&t->rig, 601 * SEC);
    net_rig_output(&t->rig, &p, RIG_FAR, 253, "x", 1, true);
    assert_int_equal(p.route.mtu, 1500);
    assert_int_equal(p.route.next_hop, RIG_GATEWAY);
}

static void the_mtu_cache_is_bounded(void **state)
{
    struct two_ports *t = *state;
    for (unsigned i = 0; i < 100000; i++)
        net_pmtu_learn(t->rig.net, rte_cpu_to_be_32(0x14000000 + i), 1000);
    unsigned known = 0;
    for (unsigned i = 0; i < 100000; i++)
        known += mtu_to(t, rte_cpu_to_be_32(0x14000000 + i)) == 1000;
    assert_in_range(known, 512, 1024);
    net_pmtu_learn(t->rig.net, RIG_FAR, 900); /* and still learns */
    assert_int_equal(mtu_to(t, RIG_FAR), 900);
}

static void interfaces_are_bounded(void **state)
{
    struct two_ports *t = *state;
    static struct netif more[NET_MAX_IFS];
    for (unsigned i = 2; i < NET_MAX_IFS; i++)
        assert_int_equal(net_add_if(t->rig.net, &more[i], false), 0);
    assert_int_equal(net_add_if(t->rig.net, &more[0], false), -ENOSPC);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(the_table_of_routes, setup, teardown),
        cmocka_unit_test_setup_teardown(without_gateway_far_is_unreachable, setup, teardown),
        cmocka_unit_test_setup_teardown(learned_mtus_lower_the_path_and_age, setup, teardown),
        cmocka_unit_test_setup_teardown(a_cached_path_follows, setup, teardown),
        cmocka_unit_test_setup_teardown(the_mtu_cache_is_bounded, setup, teardown),
        cmocka_unit_test_setup_teardown(interfaces_are_bounded, setup, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
