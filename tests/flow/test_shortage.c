/* Slow readers hold all that the pool has; everybody else must not notice. */
#include "tests/flow/flow.h"

#define READERS 40
#define CROWD   90 /* with so many even the least that each may hold is more than there is */
#define BURST   64 /* mbufs that are left for what the port receives */
#define BIG     600000

static const char *const shortage_yaml =
    FLOW_HEAD("[0]") FLOW_LISTENERS("") "upstreams:\n"
                                        "  - name: app\n"
                                        "    endpoints: [10.9.0.2:9000]\n"
                                        "    timeouts: { request: 5m }\n";

struct watch {
    struct world *w;
    uint32_t least;
};

/* The fewest mbufs there ever were. */
static bool note_least(void *ctx)
{
    struct watch *t = ctx;
    uint32_t avail = rte_mempool_avail_count(t->w->shared.mbufs);
    t->least = avail < t->least ? avail : t->least;
    return false;
}

static struct world *with_slow_readers(struct peer **readers, int n, unsigned mbufs)
{
    static char big[BIG];
    struct world_opts o = {.yaml = shortage_yaml,
                           .mbufs = 16383,
                           .proxy_mbufs = mbufs,
                           .path = {.delay_ns = 100000, .rate_bps = 1000000000}};
    struct world *w = world_new(&o);
    struct peer *origins[CROWD];
    struct watch watch = {.w = w, .least = UINT32_MAX};
    world_listen(w, 9000);
    for (int i = 0; i < n; i++) {
        readers[i] = world_connect(w, 80);
        peer_say(readers[i], GET);
        origins[i] = flow_origin(w);
    }
    for (int i = 0; i < n; i++) {
        readers[i]->count_only = true;
        peer_pause(readers[i], true);
        peer_say(origins[i], "HTTP/1.1 200 OK\r\nContent-Length: 600000\r\n\r\n");
        peer_send(origins[i], big, BIG * READERS / (size_t)n);
    }
    world_run(w, note_least, &watch, 5 * WORLD_S);
    assert_true(watch.least >= BURST);
    return w;
}

static void a_pool_full_of_stalled_answers_empties_with_them(void **state)
{
    struct peer *readers[READERS];
    struct world *w = with_slow_readers(readers, READERS, 2048);
    assert_true(world_status(w)->tcp.mbufs_held > 1400); /* or it was no test */
    assert_true(world_status(w)->mbufs_avail >= 300);
    for (int i = 0; i < READERS; i++)
        peer_abort(readers[i]);
    world_sleep(w, WORLD_S);
    struct peer *c = world_connect(w, 80);
    peer_say(c, GET);
    struct peer *o = flow_origin(w);
    peer_say(o, OK2);
    assert_int_equal(flow_status(c), 200);
    peer_expect(c, "ok");
    assert_true(world_status(w)->mbufs_avail > 1900);
    world_free(w);
}

/* Whatever the readers hold, there is enough for who comes after them: no SYN is lost, no segment
 * waits for a timeout. */
static void strangers_are_served_meanwhile(void **state)
{
    struct peer *readers[READERS];
    struct world *w = with_slow_readers(readers, READERS, 2048);
    uint64_t from = w->now;
    for (int i = 0; i < 20; i++) {
        struct peer *c = world_connect(w, 80);
        peer_say(c, GET);
        struct peer *o = flow_origin(w);
        peer_say(o, OK2);
        assert_int_equal(flow_status(c), 200);
        peer_expect(c, "ok");
        peer_close(c);
        peer_close(o);
    }
    assert_true(w->now - from < 200 * WORLD_MS);
    world_free(w);
}

static void readers_that_go_on_get_every_byte(void **state)
{
    struct peer *readers[READERS];
    struct world *w = with_slow_readers(readers, READERS, 2048);
    for (int i = 0; i < READERS; i++)
        peer_pause(readers[i], false);
    for (int i = 0; i < READERS; i++) {
        peer_expect_bytes(readers[i], BIG);
        assert_int_equal(readers[i]->err, 0);
    }
    world_free(w);
}

static void a_crowd_too_large_for_any_share_is_outlived(void **state)
{
    struct peer *readers[CROWD];
    struct world *w = with_slow_readers(readers, CROWD, 1024);
    for (int i = 0; i < CROWD; i++)
        peer_abort(readers[i]);
    world_sleep(w, WORLD_S);
    struct peer *c = world_connect(w, 80);
    peer_say(c, GET);
    struct peer *o = flow_origin(w);
    peer_say(o, OK2);
    peer_expect_through(c, "ok");
    world_free(w);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_pool_full_of_stalled_answers_empties_with_them),
        cmocka_unit_test(strangers_are_served_meanwhile),
        cmocka_unit_test(a_crowd_too_large_for_any_share_is_outlived),
        cmocka_unit_test(readers_that_go_on_get_every_byte),
    };
    return cmocka_run_group_tests_name("flow_shortage", tests, NULL, NULL);
}
