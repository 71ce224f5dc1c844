/* Handshakes in a pool with a thread: what waits, what is refused, and whose a session is whose
 * connection has gone while its job was out. A job of the test's own holds the thread up for as
 * long as the test wants. */
#include <sched.h>
#include <stdatomic.h>

#include "runtime/blocking.h"
#include "tests/flow/flow.h"
#include "tests/kit/pki.h"
#include "tests/kit/tls_peer.h"

static struct pki pki;

struct gate {
    struct blocking_job job;
    struct mailbox mailbox;
    atomic_bool open, entered;
    bool done;
};

struct scene {
    struct world *w;
    struct blocking *pool;
    struct gate gate;
};

static void hold(struct blocking_job *job)
{
    struct gate *g = container_of(job, struct gate, job);
    atomic_store(&g->entered, true);
    while (!atomic_load(&g->open))
        sched_yield();
}

static void held(struct blocking_job *job)
{
    container_of(job, struct gate, job)->done = true;
}

static void close_gate(struct scene *s)
{
    struct gate *g = &s->gate;
    memset(&g->job, 0, sizeof(g->job));
    g->job.run = hold;
    g->job.done = held;
    g->job.reply = &g->mailbox;
    g->done = false;
    atomic_store(&g->open, false);
    atomic_store(&g->entered, false);
    assert_int_equal(blocking_submit(s->pool, &g->job), 0);
    while (!atomic_load(&g->entered))
        sched_yield();
}

static const struct tls_stats *stats(struct scene *s)
{
    return &world_status(s->w)->tls;
}

/* Until the pool has nothing left and the core has heard of all of it. */
static void open_gate(struct scene *s)
{
    atomic_store(&s->gate.open, true);
    while (!s->gate.done)
        mailbox_drain(&s->gate.mailbox, 1);
    for (unsigned i = 0; i < 1000000 && (stats(s)->jobs_out || stats(s)->waiting); i++) {
        sched_yield();
        world_sleep(s->w, WORLD_MS / 10);
    }
    assert_int_equal(stats(s)->jobs_out, 0);
}

static void start(struct scene *s, unsigned queue, const char *overload)
{
    char yaml[4096];
    struct blocking_class class = {"handshake", 1, queue};
    struct blocking_opts o = {.threads = 1, .classes = &class, .nclasses = 1};
    snprintf(yaml, sizeof(yaml),
             FLOW_HEAD("[0]") "listeners:\n"
                              "  - name: web\n"
                              "    address: 10.9.0.1:443\n"
                              "    tls:\n"
                              "      certificates: [ { cert: %s/a.pem, key: %s/a.key } ]\n"
                              "      overload: %s\n"
                              "      handshake_timeout: 5s\n"
                              "    http: { routes: [ { upstream: app } ] }\n" FLOW_UPSTREAM,
             pki.dir, pki.dir, overload);
    assert_int_equal(mailbox_init(&s->gate.mailbox), 0);
    assert_int_equal(blocking_new(&o, &s->pool), 0);
    s->w = world_new(&(struct world_opts){
        .yaml = yaml, .seed = 1, .path = {.delay_ns = 100000}, .pool = s->pool});
}

/* As the engine does it: the pool first, then the core hears of what is left. */
static void finish(struct scene *s)
{
    struct blocking *pool = s->pool;
    world_free(s->w);
    blocking_stop(pool, BLOCKING_RETURN);
    blocking_free(pool);
    mailbox_fini(&s->gate.mailbox);
}

static struct tls_peer *greet(struct scene *s)
{
    struct tls_peer *t = tls_peer_new(s->w, 443, NULL, NULL);
    tls_peer_pump(t);
    world_sleep(s->w, 10 * WORLD_MS);
    return t;
}

static void drop(struct tls_peer *t, void (*how)(struct peer *p))
{
    if (how)
        how(t->peer);
    tls_peer_free(t);
}

static void a_connection_may_go_while_its_job_is_out(void **state)
{
    struct scene s = {0};
    start(&s, 16, "wait");
    close_gate(&s);
    struct tls_peer *a = greet(&s), *b = greet(&s), *c = greet(&s), *d = greet(&s);
    assert_int_equal(stats(&s)->jobs_out, 4);
    drop(a, peer_abort);
    drop(b, peer_close);
    world_sleep(s.w, 10 * WORLD_MS);
    assert_int_equal(stats(&s)->failed[TLS_FAIL_closed], 1); /* a FIN may have a half behind it */
    world_sleep(s.w, 6 * WORLD_S);
    assert_int_equal(stats(&s)->failed[TLS_FAIL_timeout], 3);
    assert_int_equal(stats(&s)->handshaking, 0);
    assert_int_equal(stats(&s)->sessions, 4); /* the jobs' now */
    open_gate(&s);
    assert_int_equal(stats(&s)->sessions, 0);
    assert_int_equal(stats(&s)->done, 0);
    drop(c, peer_close);
    drop(d, peer_close);
    finish(&s);
}

static void what_finds_the_queue_full_waits_its_turn(void **state)
{
    struct scene s = {0};
    struct tls_peer *t[6];
    start(&s, 2, "wait");
    close_gate(&s);
    for (unsigned i = 0; i < 6; i++)
        t[i] = greet(&s);
    assert_int_equal(stats(&s)->jobs_out, 2);
    assert_int_equal(stats(&s)->waiting, 4);
    drop(t[3], peer_abort); /* one of those that wait */
    world_sleep(s.w, 10 * WORLD_MS);
    assert_int_equal(stats(&s)->waiting, 3);
    open_gate(&s);
    for (unsigned i = 0; i < 6; i++) {
        for (unsigned n = 0; i != 3 && !t[i]->done && n < 100000; n++) {
            tls_peer_pump(t[i]);
            sched_yield();
            world_sleep(s.w, WORLD_MS / 10);
        }
        if (i != 3)
            assert_true(t[i]->done);
    }
    for (unsigned i = 0; i < 6; i++)
        if (i != 3)
            drop(t[i], peer_close);
    finish(&s);
}

static void or_is_refused_where_that_is_the_policy(void **state)
{
    struct scene s = {0};
    struct tls_peer *t[4];
    start(&s, 2, "refuse");
    close_gate(&s);
    for (unsigned i = 0; i < 4; i++)
        t[i] = greet(&s);
    assert_int_equal(stats(&s)->jobs_out, 2);
    assert_int_equal(stats(&s)->waiting, 0);
    assert_int_equal(stats(&s)->failed[TLS_FAIL_overload], 2);
    tls_peer_expect_over(t[3]);
    open_gate(&s);
    for (unsigned i = 0; i < 4; i++)
        drop(t[i], i < 2 ? peer_close : NULL);
    finish(&s);
}

/* The process ends while jobs are in the queue. */
static void a_pool_that_stops_gives_its_jobs_back(void **state)
{
    struct scene s = {0};
    start(&s, 16, "wait");
    close_gate(&s);
    struct tls_peer *a = greet(&s), *b = greet(&s);
    drop(a, peer_abort);
    world_sleep(s.w, 10 * WORLD_MS);
    atomic_store(&s.gate.open, true);
    blocking_stop(s.pool, BLOCKING_RETURN);
    mailbox_drain(&s.gate.mailbox, 1);
    world_sleep(s.w, WORLD_S);
    assert_int_equal(stats(&s)->sessions, stats(&s)->handshaking);
    assert_int_equal(stats(&s)->jobs_out, 0);
    drop(b, peer_close);
    finish(&s);
}

static int make_certs(void **state)
{
    pki_init(&pki);
    pki_make(&pki, &(struct pki_cert){.file = "a", .names = "DNS:a.example"});
    return 0;
}

static int remove_certs(void **state)
{
    pki_fini(&pki);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_connection_may_go_while_its_job_is_out),
        cmocka_unit_test(what_finds_the_queue_full_waits_its_turn),
        cmocka_unit_test(or_is_refused_where_that_is_the_policy),
        cmocka_unit_test(a_pool_that_stops_gives_its_jobs_back),
    };
    return cmocka_run_group_tests(tests, make_certs, remove_certs);
}
