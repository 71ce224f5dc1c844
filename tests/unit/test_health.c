/* Between cores and verdicts: what is sent to whom, when a core is slow, silent or gone. */
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
#include "control/health.h"

#define CORES 3
#define S     1000000000ull
#define START (77 * S)

/* A core that keeps what it gets until the test says so. */
struct fake_core {
    struct core_msg *watch, *tally, *update;
    bool ended;
    unsigned posts;
};

struct scene {
    struct fake_core cores[CORES];
    struct health *health;
    struct snapshot *snapshot;
    uint64_t now, next;
    unsigned wakes, changes;
};

static void on_post(void *ctx, unsigned core, struct core_msg *m)
{
    struct fake_core *c = &((struct scene *)ctx)->cores[core];
    struct core_msg **place = m->kind == CORE_MSG_WATCH   ? &c->watch
                              : m->kind == CORE_MSG_TALLY ? &c->tally
                                                          : &c->update;
    assert_null(*place); /* one at a time */
    *place = m;
    c->posts++;
}

static bool on_is_running(void *ctx, unsigned core)
{
    return !((struct scene *)ctx)->cores[core].ended;
}

static const struct cores_ops fake_ops = {.post = on_post, .is_running = on_is_running};

static void on_wake(void *ctx)
{
    ((struct scene *)ctx)->wakes++;
}

static void on_change(void *ctx, const struct verdict_endpoint *ep, uint8_t before,
                      enum verdict_cause cause)
{
    ((struct scene *)ctx)->changes++;
}

static void poll(struct scene *s)
{
    s->next = health_poll(s->health, s->now);
}

static void apply(struct scene *s, const char *upstreams)
{
    struct config_errors errs;
    char yaml[4096];
    snapshot_free(s->snapshot);
    s->snapshot = NULL;
    snprintf(yaml, sizeof(yaml),
             "version: 1\n"
             "runtime: { cores: [0] }\n"
             "ports: [{ name: p, driver: veth, device: m, addresses: [10.9.0.1/24] }]\n"
             "listeners: [{ name: l, address: 10.9.0.1:80, tunnel: { upstream: app } }]\n"
             "upstreams: [%s]\n",
             upstreams);
    config_errors_init(&errs);
    assert_int_equal(config_load_text("x.yaml", yaml, strlen(yaml), NULL, &s->snapshot, &errs), 0);
    config_errors_fini(&errs);
    assert_int_equal(health_apply(s->health, s->snapshot, s->now), 0);
    poll(s);
}

static void begin(struct scene *s, const char *upstreams)
{
    memset(s, 0, sizeof(*s));
    s->now = START;
    struct health_opts o = {.cores = {.ops = &fake_ops, .ctx = s, .n = CORES},
                            .wake = on_wake,
                            .on_change = on_change,
                            .ctx = s};
    s->health = health_new(&o);
    apply(s, upstreams);
}

static void end(struct scene *s)
{
    health_free(s->health);
    snapshot_free(s->snapshot);
}

static void finish(struct scene *s, struct core_msg **place)
{
    struct core_msg *m = *place;
    assert_non_null(m);
    *place = NULL;
    m->done(m);
    poll(s);
}

static struct endpoint_report report(uint16_t port)
{
    struct endpoint_report r = {
        .key = {.upstream = "app", .addr = inet_addr("10.9.0.2"), .port = port}};
    return r;
}

static void answer(struct scene *s, struct core_msg **place, const struct endpoint_report *r)
{
    (*place)->nreports = r ? 1 : 0;
    if (r)
        (*place)->reports[0] = *r;
    finish(s, place);
}

static void assert_update(const struct core_msg *m, uint16_t port, uint8_t flags)
{
    assert_non_null(m);
    assert_int_equal(m->nupdates, 1);
    assert_string_equal(m->updates[0].key.upstream, "app");
    assert_int_equal(m->updates[0].key.port, port);
    assert_int_equal(m->updates[0].flags, flags);
}

#define PLAIN "{ name: app, endpoints: [10.9.0.2:1, 10.9.0.2:2] }"
#define PROBED                                                                                     \
    "{ name: app, endpoints: [10.9.0.2:1, 10.9.0.2:2], health: { healthy: 1, unhealthy: 1 } }"
#define JUDGED                                                                                     \
    "{ name: app, endpoints: [10.9.0.2:1, 10.9.0.2:2], outlier: { window: 10s, requests: 2 } }"

static void without_settings_nobody_is_asked(void **state)
{
    struct scene s;
    begin(&s, PLAIN);
    for (unsigned i = 0; i < CORES; i++)
        assert_int_equal(s.cores[i].posts, 0);
    assert_int_equal(s.next, UINT64_MAX);
    end(&s);
}

static void what_one_core_finds_all_are_told(void **state)
{
    struct scene s;
    struct endpoint_report bad = report(2);
    begin(&s, PROBED);
    for (unsigned i = 0; i < CORES; i++)
        assert_non_null(s.cores[i].watch);
    bad.probed = true;
    bad.streak = -1;
    answer(&s, &s.cores[1].watch, &bad);
    assert_int_equal(s.wakes, 1);
    assert_int_equal(s.changes, 1);
    assert_non_null(s.cores[1].watch); /* goes on watching */
    for (unsigned i = 0; i < CORES; i++) {
        assert_update(s.cores[i].update, 2, ENDPOINT_UNHEALTHY);
        finish(&s, &s.cores[i].update);
        assert_null(s.cores[i].update); /* once */
    }
    end(&s);
}

/* A core that still has the last message gets the newest state after it, not each in between. */
static void a_slow_core_gets_the_newest(void **state)
{
    struct scene s;
    struct endpoint_report r = report(1);
    begin(&s, PROBED);
    r.probed = true;
    for (int i = 0; i < 4; i++) {
        r.streak = i % 2 ? 1 : -1;
        answer(&s, &s.cores[0].watch, &r);
        if (i > 0)
            continue;
        finish(&s, &s.cores[1].update);
    }
    assert_int_equal(s.changes, 4);
    assert_update(s.cores[0].update, 1, ENDPOINT_UNHEALTHY); /* the first, still there */
    finish(&s, &s.cores[0].update);
    assert_update(s.cores[0].update, 1, 0);
    finish(&s, &s.cores[0].update);
    assert_null(s.cores[0].update);
    end(&s);
}

static void a_core_that_does_not_know_it_yet_is_told_again(void **state)
{
    struct scene s;
    struct endpoint_report r = report(1);
    begin(&s, PROBED);
    r.probed = true;
    r.streak = -1;
    answer(&s, &s.cores[0].watch, &r);
    s.cores[2].update->missed = 1;
    finish(&s, &s.cores[2].update);
    assert_null(s.cores[2].update);
    assert_int_equal(s.next, START + S / 10);
    s.now = s.next;
    poll(&s);
    assert_update(s.cores[2].update, 1, ENDPOINT_UNHEALTHY);
    s.cores[2].update->missed = 0;
    finish(&s, &s.cores[2].update);
    assert_null(s.cores[2].update);
    end(&s);
}

/* A window is judged when every core has told its part. */
static void a_window_waits_for_all_cores(void **state)
{
    struct scene s;
    struct endpoint_report r = report(1);
    begin(&s, JUDGED);
    assert_int_equal(s.next, START + 10 * S);
    s.now = s.next;
    poll(&s);
    r.tally.requests = r.tally.failed = 1;
    answer(&s, &s.cores[0].tally, &r);
    answer(&s, &s.cores[1].tally, NULL);
    assert_int_equal(s.changes, 0);
    answer(&s, &s.cores[2].tally, &r);
    assert_int_equal(s.changes, 1); /* two requests of two cores */
    assert_update(s.cores[0].update, 1, ENDPOINT_EJECTED);
    assert_int_equal(s.next, START + 20 * S);
    end(&s);
}

static void a_silent_core_is_waited_for_a_second_and_not_asked_twice(void **state)
{
    struct scene s;
    struct endpoint_report r = report(1);
    begin(&s, JUDGED);
    s.now += 10 * S;
    poll(&s);
    r.tally.requests = r.tally.failed = 2;
    answer(&s, &s.cores[0].tally, &r);
    answer(&s, &s.cores[1].tally, NULL);
    assert_int_equal(s.next, START + 11 * S);
    s.now = s.next;
    poll(&s);
    assert_int_equal(s.changes, 1);
    s.now = s.next;
    poll(&s); /* the next window: core 2 still has its message */
    answer(&s, &s.cores[0].tally, NULL);
    answer(&s, &s.cores[1].tally, NULL);
    finish(&s, &s.cores[2].tally);
    end(&s);
}

static void a_core_that_has_ended_is_left_alone(void **state)
{
    struct scene s;
    begin(&s, JUDGED);
    s.cores[1].ended = true;
    s.now += 10 * S;
    poll(&s);
    assert_null(s.cores[1].tally);
    answer(&s, &s.cores[0].tally, NULL);
    answer(&s, &s.cores[2].tally, NULL);
    assert_int_equal(s.next, START + 20 * S);
    end(&s);
}

static void a_full_report_is_followed_by_the_rest(void **state)
{
    struct scene s;
    begin(&s, JUDGED);
    s.now += 10 * S;
    poll(&s);
    struct core_msg *m = s.cores[0].tally;
    for (unsigned i = 0; i < m->max_reports; i++)
        m->reports[i] = report(1);
    m->nreports = m->max_reports;
    finish(&s, &s.cores[0].tally);
    answer(&s, &s.cores[0].tally, NULL);
    end(&s);
}

/* A record that was gone for one version: the core may have the old endpoint all the same. */
static void what_comes_back_is_told_afresh(void **state)
{
    struct scene s;
    struct endpoint_report r = report(2);
    begin(&s, PROBED);
    r.probed = true;
    r.streak = -1;
    answer(&s, &s.cores[0].watch, &r);
    for (unsigned i = 0; i < CORES; i++)
        finish(&s, &s.cores[i].update);
    apply(&s, "{ name: app, endpoints: [10.9.0.2:1], health: {} }");
    apply(&s, PROBED);
    for (unsigned i = 0; i < CORES; i++)
        assert_update(s.cores[i].update, 2, 0);
    end(&s);
}

static void reports_about_nothing_known_are_ignored(void **state)
{
    struct scene s;
    struct endpoint_report r = report(9);
    begin(&s, PROBED);
    r.probed = true;
    r.streak = -5;
    answer(&s, &s.cores[0].watch, &r);
    strcpy(r.key.upstream, "gone");
    answer(&s, &s.cores[0].watch, &r);
    assert_int_equal(s.changes, 0);
    end(&s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(without_settings_nobody_is_asked),
        cmocka_unit_test(what_one_core_finds_all_are_told),
        cmocka_unit_test(a_slow_core_gets_the_newest),
        cmocka_unit_test(a_core_that_does_not_know_it_yet_is_told_again),
        cmocka_unit_test(a_window_waits_for_all_cores),
        cmocka_unit_test(a_silent_core_is_waited_for_a_second_and_not_asked_twice),
        cmocka_unit_test(a_core_that_has_ended_is_left_alone),
        cmocka_unit_test(a_full_report_is_followed_by_the_rest),
        cmocka_unit_test(what_comes_back_is_told_afresh),
        cmocka_unit_test(reports_about_nothing_known_are_ignored),
    };
    return cmocka_run_group_tests_name("health", tests, NULL, NULL);
}
