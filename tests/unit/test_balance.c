/* Which endpoint is next: shares within bounds from seeds, weights, backups, panic, hashes. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <arpa/inet.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "config/load.h"
#include "dataplane/upstream/shared.h"
#include "dataplane/upstream/upstream.h"
#include "runtime/hash.h"

#define MAX 64

/* One upstream on a core that has no network: it is never connected to. */
struct bench {
    struct sched sched;
    struct mailbox mailbox;
    struct upstream_registry *registry;
    uint64_t version;
    struct upstreams set;
    struct snapshot *snapshot;
    struct upstream *up;
    unsigned picks[MAX];
};

static struct snapshot *parse(const char *upstream)
{
    struct snapshot *s = NULL;
    struct config_errors errs;
    char yaml[8192];
    snprintf(yaml, sizeof(yaml),
             "version: 1\n"
             "runtime: { cores: [0] }\n"
             "ports: [{ name: p, driver: veth, device: m, addresses: [10.9.0.1/24] }]\n"
             "listeners: [{ name: l, address: 10.9.0.1:80, tunnel: { upstream: app } }]\n"
             "upstreams: [{ name: app, %s }]\n",
             upstream);
    config_errors_init(&errs);
    int err = config_load_text("x.yaml", yaml, strlen(yaml), NULL, &s, &errs);
    config_check_report(stderr, &errs);
    config_errors_fini(&errs);
    assert_int_equal(err, 0);
    return s;
}

static void apply(struct bench *b, const char *upstream)
{
    struct snapshot *s = parse(upstream);
    s->version = b->version + 1;
    assert_int_equal(upstream_registry_prepare(b->registry, s), 0);
    upstream_registry_commit(b->registry, s);
    assert_int_equal(upstreams_apply(&b->set, s), 0);
    b->version++;
    mailbox_drain(&b->mailbox, 100);
    snapshot_free(b->snapshot);
    b->snapshot = s;
    if (b->up)
        upstream_put(b->up);
    b->up = upstream_get(&b->set, s, &s->upstreams[0]);
}

static uint64_t acked(void *ctx)
{
    return ((struct bench *)ctx)->version;
}

static struct mailbox *mailbox_of(void *ctx, unsigned core)
{
    return &((struct bench *)ctx)->mailbox;
}

static struct bench *bench_new(uint64_t seed, const char *upstream)
{
    struct bench *b = calloc(1, sizeof(*b));
    assert_non_null(b);
    sched_init(&b->sched, &(struct sched_opts){.now = 777});
    assert_int_equal(mailbox_init(&b->mailbox), 0);
    b->registry = upstream_registry_new(
        &(struct registry_cores){.ctx = b, .n = 1, .acked = acked, .mailbox = mailbox_of});
    assert_non_null(b->registry);
    upstreams_init(&b->set, &(struct upstreams_opts){
                                .sched = &b->sched, .mailbox = &b->mailbox, .seed = seed});
    apply(b, upstream);
    return b;
}

static void bench_free(struct bench *b)
{
    upstream_put(b->up);
    upstreams_fini(&b->set);
    upstream_registry_free(b->registry);
    mailbox_fini(&b->mailbox);
    sched_fini(&b->sched);
    snapshot_free(b->snapshot);
    free(b);
}

static unsigned index_of(const struct endpoint *ep)
{
    return ep->port - 1u;
}

static unsigned pick(struct bench *b, uint64_t hash)
{
    struct endpoint *ep = upstream_pick_other(b->up, hash, NULL);
    assert_non_null(ep);
    b->picks[index_of(ep)]++;
    return index_of(ep);
}

static void pick_many(struct bench *b, unsigned n)
{
    memset(b->picks, 0, sizeof(b->picks));
    for (unsigned i = 0; i < n; i++)
        pick(b, hash_mix(i));
}

static void set_flags(struct bench *b, unsigned endpoint, uint8_t flags)
{
    struct endpoint_update u = {
        .key = {.upstream = "app", .addr = inet_addr("10.9.0.2"), .port = (uint16_t)(endpoint + 1)},
        .flags = flags};
    assert_true(upstreams_set_endpoint(&b->set, &u));
}

static struct endpoint *endpoint_at(struct bench *b, unsigned i)
{
    list_for_each(n, &b->up->endpoints_)
    {
        struct endpoint *ep = container_of(n, struct endpoint, node_);
        if (index_of(ep) == i)
            return ep;
    }
    return NULL;
}

#define FOUR "endpoints: [10.9.0.2:1, 10.9.0.2:2, 10.9.0.2:3, 10.9.0.2:4]"
#define WEIGHTED                                                                                   \
    "endpoints: [{ address: 10.9.0.2:1, weight: 5 }, 10.9.0.2:2, { address: 10.9.0.2:3, weight: "  \
    "2 }]"

static void round_robin_takes_turns(void **state)
{
    struct bench *b = bench_new(1, FOUR ", balance: round_robin");
    unsigned last = pick(b, 0);
    for (unsigned i = 0; i < 100; i++) {
        unsigned next = pick(b, 0);
        assert_int_equal(next, (last + 1) % 4);
        last = next;
    }
    bench_free(b);
}

/* At every moment each has had its share, to within one and a half turns; never two rounds apart.
 */
static void weighted_round_robin_is_smooth(void **state)
{
    for (uint64_t seed = 1; seed <= 50; seed++) {
        static const unsigned weights[] = {5, 1, 2};
        struct bench *b = bench_new(seed, WEIGHTED ", balance: round_robin");
        for (unsigned n = 1; n <= 800; n++) {
            pick(b, 0);
            for (unsigned i = 0; i < 3; i++) {
                double due = (double)n * weights[i] / 8, off = (double)b->picks[i] - due;
                if (off < -1.5 || off > 1.5)
                    fail_msg("seed %u: after %u picks endpoint %u had %u, not %.2f", (unsigned)seed,
                             n, i, b->picks[i], due);
            }
        }
        assert_int_equal(b->picks[0], 500);
        bench_free(b);
    }
}

/* Its time wraps around: a round is 2^32 of 2^64. */
static void weighted_round_robin_goes_on_for_ever(void **state)
{
    struct bench *b = bench_new(3, WEIGHTED ", balance: round_robin");
    for (uint32_t i = 0; i < b->up->balance.n; i++)
        b->up->balance.t.due[i] -= 20ull << 32;
    pick_many(b, 800);
    assert_int_equal(b->picks[0], 500);
    assert_int_equal(b->picks[1], 100);
    bench_free(b);
}

/* 80,000 picks: four standard deviations are within two per cent. */
static void random_follows_the_weights(void **state)
{
    for (uint64_t seed = 1; seed <= 5; seed++) {
        struct bench *b = bench_new(seed, WEIGHTED ", balance: random");
        pick_many(b, 80000);
        assert_in_range(b->picks[0], 49000, 51000);
        assert_in_range(b->picks[1], 9600, 10400);
        assert_in_range(b->picks[2], 19500, 20500);
        bench_free(b);
    }
}

static void the_less_busy_of_two_is_taken(void **state)
{
    struct bench *b = bench_new(2, FOUR);
    endpoint_at(b, 0)->active = 3;
    endpoint_at(b, 1)->active = 2;
    endpoint_at(b, 2)->active = 1;
    pick_many(b, 16000);
    /* The busiest never wins; the idlest wins each draw that it is in: 7 of 16, or more since equal
     * draws go to a neighbour. */
    assert_int_equal(b->picks[0], 0);
    assert_true(b->picks[3] > b->picks[2] && b->picks[2] > b->picks[1]);
    assert_in_range(b->picks[3], 7000, 9000);
    list_for_each(n, &b->up->endpoints_) container_of(n, struct endpoint, node_)->active = 0;
    bench_free(b);
}

/* Requests that stay: what is in flight ends up by weight, closely. */
static void least_request_fills_up_by_weight(void **state)
{
    struct bench *b = bench_new(4, WEIGHTED);
    for (unsigned i = 0; i < 8000; i++)
        upstream_pick_other(b->up, 0, NULL)->active++;
    assert_in_range(endpoint_at(b, 0)->active, 4850, 5150);
    assert_in_range(endpoint_at(b, 1)->active, 950, 1050);
    assert_in_range(endpoint_at(b, 2)->active, 1900, 2100);
    list_for_each(n, &b->up->endpoints_) container_of(n, struct endpoint, node_)->active = 0;
    bench_free(b);
}

static void another_is_taken_than_the_one_to_avoid(void **state)
{
    static const char *const kinds[] = {"round_robin", "least_request", "random",
                                        "consistent_hash"};
    for (unsigned k = 0; k < 4; k++) {
        char yaml[256];
        snprintf(yaml, sizeof(yaml), FOUR ", balance: %s", kinds[k]);
        struct bench *b = bench_new(k + 1, yaml);
        struct endpoint *bad = endpoint_at(b, 2);
        for (unsigned i = 0; i < 1000; i++)
            assert_ptr_not_equal(upstream_pick_other(b->up, hash_mix(i), bad), bad);
        for (unsigned i = 0; i < 4; i++)
            set_flags(b, i, i == 2 ? 0 : ENDPOINT_UNHEALTHY);
        apply(b, FOUR ", panic: 0%");
        assert_ptr_equal(upstream_pick_other(b->up, 5, bad), bad); /* it is the one left */
        bench_free(b);
    }
}

/* All that are used, each once; then those that are ejected, but not who fails its probes; and only
 * then the first again. */
static void who_tries_again_goes_all_around(void **state)
{
    static const char *const kinds[] = {"round_robin", "least_request", "random",
                                        "consistent_hash"};
    for (unsigned k = 0; k < 4; k++) {
        char yaml[256];
        snprintf(yaml, sizeof(yaml), FOUR ", balance: %s, panic: 0%%", kinds[k]);
        struct bench *b = bench_new(k + 1, yaml);
        set_flags(b, 0, ENDPOINT_EJECTED);
        set_flags(b, 1, ENDPOINT_EJECTED | ENDPOINT_UNHEALTHY);
        for (unsigned i = 0; i < 100; i++) {
            struct tried t = {0};
            struct endpoint *ep[12];
            unsigned spare = 0;
            for (unsigned j = 0; j < 12; j++) {
                ep[j] = upstream_pick(b->up, hash_mix(i), &t);
                tried_add(&t, ep[j]);
                assert_ptr_not_equal(ep[j], endpoint_at(b, 1));
                assert_true(j == 0 || ep[j] != ep[j - 1]);
                spare += ep[j] == endpoint_at(b, 0);
            }
            assert_ptr_not_equal(ep[0], ep[2]);
            assert_ptr_equal(ep[2], endpoint_at(b, 0));
            assert_in_range(spare, 3, 4);
        }
        bench_free(b);
    }
}

static void an_ejected_backup_is_no_way_out(void **state)
{
    struct bench *b =
        bench_new(1, "endpoints: [10.9.0.2:1, { address: 10.9.0.2:2, backup: true }]");
    struct tried t = {0};
    set_flags(b, 1, ENDPOINT_EJECTED);
    for (unsigned i = 0; i < 10; i++) {
        struct endpoint *ep = upstream_pick(b->up, 0, &t);
        assert_ptr_equal(ep, endpoint_at(b, 0));
        tried_add(&t, ep);
    }
    bench_free(b);
}

static void what_is_drained_gets_nothing(void **state)
{
    struct bench *b = bench_new(1, FOUR);
    apply(b, "endpoints: [10.9.0.2:1, { address: 10.9.0.2:2, weight: 0 }]");
    pick_many(b, 100);
    assert_int_equal(b->picks[0], 100);
    bench_free(b);
}

#define BACKED "endpoints: [10.9.0.2:1, 10.9.0.2:2, { address: 10.9.0.2:3, backup: true }]"

static void backups_wait_for_the_last_primary(void **state)
{
    struct bench *b = bench_new(1, BACKED ", panic: 0%");
    pick_many(b, 100);
    assert_int_equal(b->picks[2], 0);
    set_flags(b, 0, ENDPOINT_UNHEALTHY);
    pick_many(b, 100);
    assert_int_equal(b->picks[1], 100);
    set_flags(b, 1, ENDPOINT_EJECTED);
    pick_many(b, 100);
    assert_int_equal(b->picks[2], 100);
    assert_true(b->up->balance.backups);
    set_flags(b, 0, 0);
    pick_many(b, 100);
    assert_int_equal(b->picks[0], 100);
    /* A backup that is no good either is no help. */
    set_flags(b, 0, ENDPOINT_UNHEALTHY);
    set_flags(b, 2, ENDPOINT_UNHEALTHY);
    assert_null(upstream_pick_other(b->up, 0, NULL));
    assert_int_equal(b->up->count.no_endpoint, 1);
    bench_free(b);
}

/* Under the threshold all are used; at it those that are good. */
static void panic_uses_all(void **state)
{
    struct bench *b = bench_new(1, FOUR ", panic: 50%, balance: round_robin");
    set_flags(b, 0, ENDPOINT_UNHEALTHY);
    set_flags(b, 1, ENDPOINT_EJECTED);
    assert_int_equal(b->up->balance.n, 2);
    assert_false(b->up->balance.panic);
    set_flags(b, 2, ENDPOINT_UNHEALTHY | ENDPOINT_EJECTED);
    assert_int_equal(b->up->balance.n, 4);
    assert_true(b->up->balance.panic);
    pick_many(b, 100);
    assert_int_equal(b->picks[0], 25);
    set_flags(b, 2, ENDPOINT_UNHEALTHY);
    assert_int_equal(b->up->balance.n, 4);
    set_flags(b, 2, 0);
    assert_int_equal(b->up->balance.n, 2);
    bench_free(b);
}

/* What is known of an endpoint survives a reload that keeps it, and goes with it. */
static void flags_survive_a_reload(void **state)
{
    struct bench *b = bench_new(1, FOUR);
    set_flags(b, 1, ENDPOINT_UNHEALTHY);
    apply(b, "endpoints: [10.9.0.2:4, 10.9.0.2:2, 10.9.0.2:9], balance: random");
    pick_many(b, 100);
    assert_int_equal(b->picks[1], 0);
    assert_true(b->picks[8] > 0 && b->picks[3] > 0);
    apply(b, "endpoints: [10.9.0.2:4]");
    apply(b, FOUR);
    pick_many(b, 100);
    assert_true(b->picks[1] > 0);
    bench_free(b);
}

#define TEN                                                                                        \
    "endpoints: [10.9.0.2:1, 10.9.0.2:2, 10.9.0.2:3, 10.9.0.2:4, 10.9.0.2:5, 10.9.0.2:6, "         \
    "10.9.0.2:7, 10.9.0.2:8, 10.9.0.2:9, 10.9.0.2:10], balance: consistent_hash"

static void hashes_are_spread_evenly(void **state)
{
    struct bench *b = bench_new(1, TEN);
    pick_many(b, 100000);
    for (unsigned i = 0; i < 10; i++)
        assert_in_range(b->picks[i], 9600, 10400);
    bench_free(b);
}

/* Whatever the core, the seed, and who else has come and gone in between. */
static void a_hash_stays_where_it_is(void **state)
{
    struct bench *b = bench_new(1, TEN), *other = bench_new(99, TEN);
    unsigned home[10000], moved = 0;
    for (unsigned i = 0; i < 10000; i++) {
        home[i] = pick(b, hash_mix(i));
        assert_int_equal(pick(other, hash_mix(i)), home[i]);
    }
    set_flags(b, 3, ENDPOINT_UNHEALTHY);
    for (unsigned i = 0; i < 10000; i++) {
        unsigned now = pick(b, hash_mix(i));
        assert_int_not_equal(now, 3);
        if (home[i] != 3)
            assert_int_equal(now, home[i]);
    }
    set_flags(b, 3, 0);
    for (unsigned i = 0; i < 10000; i++)
        assert_int_equal(pick(b, hash_mix(i)), home[i]);
    /* One less in the configuration moves a tenth, and very little of the rest. */
    apply(b, "endpoints: [10.9.0.2:1, 10.9.0.2:2, 10.9.0.2:3, 10.9.0.2:5, 10.9.0.2:6, "
             "10.9.0.2:7, 10.9.0.2:8, 10.9.0.2:9, 10.9.0.2:10], balance: consistent_hash");
    for (unsigned i = 0; i < 10000; i++)
        moved += pick(b, hash_mix(i)) != home[i] && home[i] != 3;
    assert_in_range(moved, 0, 500);
    bench_free(b);
    bench_free(other);
}

/* What an endpoint that is gone had is spread over the others. */
static void orphans_are_spread(void **state)
{
    struct bench *b = bench_new(1, TEN);
    unsigned heirs[10] = {0}, orphans = 0;
    for (unsigned i = 0; i < 50000; i++) {
        uint64_t h = hash_mix(i);
        set_flags(b, 3, 0);
        if (pick(b, h) != 3)
            continue;
        set_flags(b, 3, ENDPOINT_EJECTED);
        heirs[pick(b, h)]++;
        orphans++;
    }
    for (unsigned i = 0; i < 10; i++)
        if (i != 3)
            assert_in_range(heirs[i], orphans / 18, orphans / 5);
    bench_free(b);
}

/* Backups aren't in the table; they share by weight, and stay with what they have. */
static void backups_hash_too(void **state)
{
    struct bench *b =
        bench_new(1, "endpoints: [10.9.0.2:1, { address: 10.9.0.2:2, backup: true }, { address: "
                     "10.9.0.2:3, backup: true, weight: 3 }], balance: consistent_hash");
    set_flags(b, 0, ENDPOINT_UNHEALTHY);
    pick_many(b, 40000);
    assert_int_equal(b->picks[0], 0);
    assert_in_range(b->picks[1], 9600, 10400);
    for (unsigned i = 0; i < 100; i++)
        assert_int_equal(pick(b, hash_mix(i)), pick(b, hash_mix(i)));
    bench_free(b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(round_robin_takes_turns),
        cmocka_unit_test(weighted_round_robin_is_smooth),
        cmocka_unit_test(weighted_round_robin_goes_on_for_ever),
        cmocka_unit_test(random_follows_the_weights),
        cmocka_unit_test(the_less_busy_of_two_is_taken),
        cmocka_unit_test(least_request_fills_up_by_weight),
        cmocka_unit_test(another_is_taken_than_the_one_to_avoid),
        cmocka_unit_test(who_tries_again_goes_all_around),
        cmocka_unit_test(an_ejected_backup_is_no_way_out),
        cmocka_unit_test(what_is_drained_gets_nothing),
        cmocka_unit_test(backups_wait_for_the_last_primary),
        cmocka_unit_test(panic_uses_all),
        cmocka_unit_test(flags_survive_a_reload),
        cmocka_unit_test(hashes_are_spread_evenly),
        cmocka_unit_test(a_hash_stays_where_it_is),
        cmocka_unit_test(orphans_are_spread),
        cmocka_unit_test(backups_hash_too),
    };
    return cmocka_run_group_tests_name("balance", tests, NULL, NULL);
}
