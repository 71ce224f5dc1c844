/* Asking the cores, and what is made of their answers: JSON, a table, Prometheus' text. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "control/drain.h"
#include "control/metrics_text.h"
#include "control/status.h"
#include "control/status_fields.h"
#include "control/status_json.h"
#include "control/watchdog.h"

#define CORES 3

/* Cores that do what the test says. */
struct fakes {
    struct core_msg *held[CORES];
    enum core_msg_kind last[CORES];
    unsigned posts[CORES];
    bool ended[CORES], silent[CORES];
    uint64_t passes[CORES];
    const char *activity[CORES];
    struct stall_ring stalls[CORES];
};

static const struct task_kind client_kind = {.name = "client", .size = 100};

static void set_all(const struct status_table *t, void *of, uint32_t value)
{
    for (size_t i = 0; i < t->n; i++) {
        uint64_t wide = value;
        if (t->fields[i].wide)
            memcpy((char *)of + t->fields[i].offset, &wide, sizeof(wide));
        else
            memcpy((char *)of + t->fields[i].offset, &value, sizeof(value));
    }
}

static void fill(unsigned core, struct core_status *s)
{
    s->core = core;
    s->cpu = core + 1;
    s->passes = 1000 * (core + 1);
    s->busy_tsc = 500;
    s->total_tsc = s->tsc_hz = 2000;
    s->tcp.conns = 7;
    s->tcp.drops[TCP_DROP_checksum] = 2;
    hist_record(&s->pass_ns, 2000);
    s->nkinds = 1;
    s->kinds[0].kind = &client_kind;
    s->kinds[0].live = 7;
    s->kinds[0].fruitless = 3;
    hist_record(&s->kinds[0].poll_ns, 5000000);
    s->nlisteners = 1;
    strcpy(s->listeners[0].name, "we\"b");
    set_all(&status_listener_fields, &s->listeners[0], 10 + core);
    s->listeners[0].status[2] = 10;
    s->nupstreams = 1;
    strcpy(s->upstreams[0].name, core == 1 ? "other" : "app");
    s->upstreams[0].idle = 4;
    s->upstreams[0].reused = 30;
    s->upstreams[0].connects = 10;
    s->nendpoints = 2;
    for (unsigned i = 0; i < 2; i++) {
        struct endpoint_stats *e = &s->endpoints[i];
        e->addr = 0x0200000a; /* 10.0.0.2 */
        e->port = (uint16_t)(81 - i);
        e->weight = 3;
        e->healthy = i;
        e->probed = core == 0;
        e->probe = i ? PROBE_ok : PROBE_status;
        e->picks = 10 + core;
        e->ejections = 2;
    }
}

static void on_post(void *ctx, unsigned core, struct core_msg *m)
{
    struct fakes *f = ctx;

    f->posts[core]++;
    f->last[core] = m->kind;
    f->held[core] = m;
    if (f->silent[core] || m->kind != CORE_MSG_STATUS)
        return;
    fill(core, m->status);
    m->done(m);
}

static bool on_is_running(void *ctx, unsigned core)
{
    return !((struct fakes *)ctx)->ended[core];
}

static uint64_t on_passes(void *ctx, unsigned core)
{
    return ((struct fakes *)ctx)->passes[core];
}

static const char *on_activity(void *ctx, unsigned core)
{
    return ((struct fakes *)ctx)->activity[core];
}

static const struct stall_ring *on_stalls(void *ctx, unsigned core)
{
    return &((struct fakes *)ctx)->stalls[core];
}

static const struct cores_ops fake_ops = {.post = on_post,
                                          .is_running = on_is_running,
                                          .passes = on_passes,
                                          .activity = on_activity,
                                          .stalls = on_stalls};

struct asker {
    struct status_request request;
    struct status_view view;
    unsigned calls;
    json_t *json;
    char *metrics;
};

static void on_answer(struct status_request *r, const struct status_view *v)
{
    struct asker *a = container_of(r, struct asker, request);
    struct process_info p = {.version = "1.2.3",
                             .build = "abc",
                             .dpdk = "22",
                             .state = "running",
                             .config_path = "/x.yaml",
                             .config_version = 4,
                             .last_reload_ok = true,
                             .nports = 1,
                             .ports[0] = {.name = "edge0",
                                          .device = "mill0",
                                          .info = {.driver = "veth"},
                                          .counters = {.rx_packets = 99}}};
    size_t len;

    a->view = *v;
    a->calls++;
    json_decref(a->json);
    a->json = status_to_json(&p, v);
    free(a->metrics);
    FILE *f = open_memstream(&a->metrics, &len);
    assert_int_equal(metrics_write(f, &p, v), 0);
    fclose(f);
}

static void asker_fini(struct asker *a)
{
    json_decref(a->json);
    free(a->metrics);
}

/* The loop has nothing to wait for but its own timer of a millisecond. */
static void turn_until_called(uv_loop_t *loop, struct asker *a, unsigned calls)
{
    while (a->calls < calls)
        uv_run(loop, UV_RUN_ONCE);
}

static void cores_are_asked_and_shown(void **state)
{
    struct fakes f = {0};
    struct cores cores = {&fake_ops, &f, CORES};
    struct asker a = {.request = {.fn = on_answer}};
    struct status *s;
    uv_loop_t loop;

    uv_loop_init(&loop);
    assert_int_equal(status_new(&loop, &cores, 1, &s), 0);
    status_ask(s, &a.request);
    turn_until_called(&loop, &a, 1);

    json_t *c = json_array_get(json_object_get(a.json, "cores"), 2);
    json_int_t passes, conns, bad, busy;
    assert_int_equal(json_unpack(c, "{s:{s:I, s:I}, s:{s:I, s:{s:I}}}", "loop", "passes", &passes,
                                 "busy_ns", &busy, "tcp", "conns", &conns, "drops", "checksum",
                                 &bad),
                     0);
    assert_int_equal(passes, 3000);
    assert_int_equal(busy, 250000000);
    assert_int_equal(conns, 7);
    assert_int_equal(bad, 2);

    json_int_t bytes, longest;
    json_t *kinds = json_object_get(json_object_get(c, "tasks"), "kinds");
    assert_int_equal(json_array_size(kinds), 1);
    assert_int_equal(json_unpack(json_array_get(kinds, 0), "{s:I, s:{s:I}}", "bytes", &bytes,
                                 "poll", "max_ns", &longest),
                     0);
    assert_int_equal(bytes, 700);
    assert_int_equal(longest, 5000000);

    json_t *l = json_object_get(a.json, "listeners"), *u = json_object_get(a.json, "upstreams");
    assert_int_equal(json_array_size(l), 1);
    for (size_t i = 0; i < status_listener_fields.n; i++) {
        const char *name = status_listener_fields.fields[i].name;
        if (json_integer_value(json_object_get(json_array_get(l, 0), name)) != 33)
            fail_msg("%s is not the sum over the cores", name);
    }
    assert_int_equal(json_array_size(u), 2);
    assert_int_equal(json_integer_value(json_object_get(json_array_get(u, 0), "idle")), 8);

    assert_non_null(strstr(a.metrics, "millrace_loop_passes_total{core=\"2\"} 3000\n"));
    assert_non_null(
        strstr(a.metrics, "millrace_listener_requests_total{listener=\"we\\\"b\"} 33\n"));
    assert_non_null(strstr(
        a.metrics, "millrace_listener_responses_total{listener=\"we\\\"b\",class=\"2xx\"} 30\n"));
    assert_non_null(strstr(a.metrics, "millrace_port_rx_packets_total{port=\"edge0\"} 99\n"));
    assert_non_null(
        strstr(a.metrics, "millrace_tcp_segments_total{core=\"0\",reason=\"checksum\"} 2\n"));
    assert_non_null(
        strstr(a.metrics, "millrace_task_fruitless_total{core=\"1\",kind=\"client\"} 3\n"));
    assert_non_null(strstr(a.metrics, "millrace_task_bytes{core=\"1\",kind=\"client\"} 700\n"));
    assert_non_null(strstr(a.metrics, "millrace_task_poll_seconds_bucket{core=\"1\",kind="
                                      "\"client\",le=\"0.004\"} 0\n"));
    assert_non_null(strstr(a.metrics, "millrace_task_poll_max_seconds{core=\"1\",kind="
                                      "\"client\"} 0.005000000\n"));
    asker_fini(&a);
    status_close(s);
    uv_run(&loop, UV_RUN_DEFAULT);
    uv_loop_close(&loop);
}

/* Of two cores that have the upstream: what they count is added up, what control told them isn't.
 */
static void endpoints_are_shown_with_their_upstream(void **state)
{
    struct fakes f = {.ended = {[1] = true}};
    struct cores cores = {&fake_ops, &f, CORES};
    struct asker a = {.request = {.fn = on_answer}};
    json_int_t picks, weight, healthy, ejections;
    const char *address, *probe;
    double ratio;
    struct status *s;
    uv_loop_t loop;

    uv_loop_init(&loop);
    assert_int_equal(status_new(&loop, &cores, 1, &s), 0);
    status_ask(s, &a.request);
    turn_until_called(&loop, &a, 1);
    json_t *u = json_array_get(json_object_get(a.json, "upstreams"), 0);
    json_t *e = json_object_get(u, "endpoints");
    assert_int_equal(json_unpack(u, "{s:f}", "reuse_ratio", &ratio), 0);
    assert_true(ratio == 0.75);
    assert_int_equal(json_array_size(e), 2);
    assert_int_equal(json_unpack(json_array_get(e, 1), "{s:s, s:s, s:I, s:I, s:I, s:I}", "address",
                                 &address, "probe", &probe, "picks", &picks, "weight", &weight,
                                 "healthy", &healthy, "ejections", &ejections),
                     0);
    assert_string_equal(address, "10.0.0.2:81");
    assert_string_equal(probe, "status");
    assert_int_equal(picks, 22);
    assert_int_equal(weight, 3);
    assert_int_equal(healthy, 0);
    assert_int_equal(ejections, 2);
    assert_non_null(strstr(a.metrics, "millrace_endpoint_picks_total{upstream=\"app\",endpoint="
                                      "\"10.0.0.2:80\"} 22\n"));
    assert_non_null(strstr(a.metrics, "millrace_upstream_reuse_ratio{upstream=\"app\"} 0.75\n"));
    asker_fini(&a);
    status_close(s);
    uv_run(&loop, UV_RUN_DEFAULT);
    uv_loop_close(&loop);
}

/* A core that is silent is shown so, keeps its message, and is not asked again until it gives it
 * back; one that has ended is not asked at all. */
static void a_silent_core_is_left_alone(void **state)
{
    struct fakes f = {.silent = {[1] = true}, .ended = {[2] = true}};
    struct cores cores = {&fake_ops, &f, CORES};
    struct asker a = {.request = {.fn = on_answer}};
    struct status *s;
    uv_loop_t loop;

    uv_loop_init(&loop);
    assert_int_equal(status_new(&loop, &cores, 1, &s), 0);
    status_ask(s, &a.request);
    turn_until_called(&loop, &a, 1);
    assert_true(a.view.cores[0].answering);
    assert_false(a.view.cores[1].answering);
    assert_true(a.view.cores[1].running);
    assert_false(a.view.cores[2].running);
    assert_non_null(strstr(a.metrics, "millrace_core_up{core=\"1\"} 0\n"));
    assert_null(strstr(a.metrics, "millrace_loop_passes_total{core=\"1\"}"));

    status_ask(s, &a.request);
    turn_until_called(&loop, &a, 2);
    assert_int_equal(f.posts[0], 2);
    assert_int_equal(f.posts[1], 1);
    assert_int_equal(f.posts[2], 0);

    f.silent[1] = false;
    fill(1, f.held[1]->status);
    f.held[1]->done(f.held[1]);
    status_ask(s, &a.request);
    turn_until_called(&loop, &a, 3);
    assert_int_equal(f.posts[1], 2);
    assert_true(a.view.cores[1].answering);
    asker_fini(&a);
    status_close(s);
    uv_run(&loop, UV_RUN_DEFAULT);
    uv_loop_close(&loop);
}

static struct asker late;
static struct status *late_status;

static void ask_again(struct status_request *r, const struct status_view *v)
{
    on_answer(r, v);
    if (late.calls == 0)
        status_ask(late_status, &late.request);
}

/* A question that comes during a round gets an answer of its own; a cancelled one gets none. */
static void an_answer_is_never_older_than_its_question(void **state)
{
    struct fakes f = {0};
    struct cores cores = {&fake_ops, &f, CORES};
    struct asker a = {.request = {.fn = ask_again}}, b = {.request = {.fn = on_answer}};
    uv_loop_t loop;

    late.request.fn = on_answer;
    uv_loop_init(&loop);
    assert_int_equal(status_new(&loop, &cores, 1, &late_status), 0);
    status_ask(late_status, &a.request);
    status_ask(late_status, &b.request);
    status_cancel(&b.request);
    turn_until_called(&loop, &late, 1);
    assert_int_equal(a.calls, 1);
    assert_int_equal(b.calls, 0);
    assert_int_equal(f.posts[0], 2);
    asker_fini(&a);
    asker_fini(&late);
    status_close(late_status);
    uv_run(&loop, UV_RUN_DEFAULT);
    uv_loop_close(&loop);
}

static bool starts(const char *line, const char *with)
{
    return strncmp(line, with, strlen(with)) == 0;
}

/* Every family in one piece: HELP, TYPE, then samples of that name only; no name twice. */
static void metrics_keep_the_format(void **state)
{
    struct fakes f = {0};
    struct cores cores = {&fake_ops, &f, CORES};
    struct asker a = {.request = {.fn = on_answer}};
    char family[128] = "", name[128], seen[65536] = " ", *save, *line;
    struct status *s;
    uv_loop_t loop;
    unsigned families = 0;

    uv_loop_init(&loop);
    assert_int_equal(status_new(&loop, &cores, 1, &s), 0);
    status_ask(s, &a.request);
    turn_until_called(&loop, &a, 1);
    for (line = strtok_r(a.metrics, "\n", &save); line; line = strtok_r(NULL, "\n", &save)) {
        if (starts(line, "# HELP ")) {
            assert_int_equal(sscanf(line, "# HELP %127s", family), 1);
            snprintf(name, sizeof(name), " %s ", family);
            if (strstr(seen, name))
                fail_msg("family %s twice", family);
            strcat(seen, name);
            families++;
        } else if (starts(line, "# TYPE ")) {
            assert_int_equal(sscanf(line, "# TYPE %127s", name), 1);
            assert_string_equal(name, family);
        } else {
            size_t n = strcspn(line, "{ ");
            if (strncmp(line, family, strlen(family)) != 0 || !starts(line, "millrace_"))
                fail_msg("sample outside its family: %s", line);
            assert_true(n >= strlen(family));
            char *end, *value = strrchr(line, ' ') + 1;
            strtod(value, &end);
            assert_int_equal(*end, '\0');
        }
    }
    assert_true(families > 80);
    asker_fini(&a);
    status_close(s);
    uv_run(&loop, UV_RUN_DEFAULT);
    uv_loop_close(&loop);
}

static void the_table_needs_no_key(void **state)
{
    json_t *empty = json_object();
    char *text = NULL;
    size_t len;
    FILE *f = open_memstream(&text, &len);

    status_print(empty, f);
    fclose(f);
    assert_non_null(strstr(text, "CORE"));
    free(text);
    json_decref(empty);
}

static void watchdog_tells_stuck_from_suspended(void **state)
{
    struct fakes f = {0};
    struct cores cores = {&fake_ops, &f, CORES};
    struct watchdog w;
    uint64_t ms = 1000000, now = 777 * ms;

    watchdog_init(&w, &cores);
    f.ended[0] = true;
    for (unsigned i = 0; i < 20; i++) {
        f.passes[1]++;
        f.passes[2] += i % 3 == 0; /* a pass each 1.5 s */
        assert_int_equal(watchdog_check(&w, now += 500 * ms), -1);
    }
    /* The machine was asleep for a minute: nobody's fault. */
    assert_int_equal(watchdog_check(&w, now += 60000 * ms), -1);
    for (unsigned i = 0; i < 3; i++) {
        f.passes[1]++;
        assert_int_equal(watchdog_check(&w, now += 500 * ms), -1);
    }
    f.passes[1]++;
    assert_int_equal(watchdog_check(&w, now += 500 * ms), 2);
}

/* What stands in the log before the process aborts. */
static void watchdog_names_what_each_core_does(void **state)
{
    struct fakes f = {.passes = {5, 6, 7}, .activity = {"client", NULL, "pass"}};
    struct cores cores = {&fake_ops, &f, CORES};
    struct stall_event e = {
        .at = 1, .ns = 5000000, .running = true, .kind = "client", .label = "web"};
    struct stall_record r;
    struct watchdog w;
    char line[200];

    watchdog_init(&w, &cores);
    watchdog_check(&w, 1000000000);
    watchdog_describe(&w, 0, 3100000000, line, sizeof(line));
    assert_string_equal(line, "core 0: 5 passes, the last 2.1 s ago, in a task of kind client");
    assert_false(watchdog_culprit(&w, 0, &r));
    uint64_t number = stall_push(&f.stalls[0], &e);
    watchdog_describe(&w, 0, 3100000000, line, sizeof(line));
    assert_string_equal(
        line, "core 0: 5 passes, the last 2.1 s ago, in a task of kind client, label web");
    assert_true(watchdog_culprit(&w, 0, &r));
    stall_settle(&f.stalls[0], number, 6000000);
    assert_false(watchdog_culprit(&w, 0, &r));
    watchdog_describe(&w, 1, 3100000000, line, sizeof(line));
    assert_string_equal(line, "core 1: 6 passes, the last 2.1 s ago, between two passes");
    watchdog_describe(&w, 2, 3100000000, line, sizeof(line));
    assert_string_equal(line, "core 2: 7 passes, the last 2.1 s ago, in a pass, in no task");
    f.ended[1] = true;
    watchdog_describe(&w, 1, 3100000000, line, sizeof(line));
    assert_string_equal(line, "core 1: 6 passes, the last 2.1 s ago, has ended");
}

static void drain_tells_running_cores_once(void **state)
{
    struct fakes f = {.ended = {[1] = true}};
    struct cores cores = {&fake_ops, &f, CORES};
    struct drain d;

    drain_init(&d, &cores);
    assert_true(drain_start(&d, 5000));
    assert_false(drain_start(&d, 9000));
    assert_int_equal(d.deadline, 5000);
    assert_int_equal(f.posts[0], 1);
    assert_int_equal(f.posts[1], 0);
    assert_int_equal(f.last[2], CORE_MSG_DRAIN);
    assert_int_equal(f.held[2]->deadline, 5000);
    assert_false(drain_is_done(&d));
    drain_stop(&d);
    drain_stop(&d);
    assert_int_equal(f.posts[2], 2);
    assert_int_equal(f.last[2], CORE_MSG_STOP);
    f.ended[0] = f.ended[2] = true;
    assert_true(drain_is_done(&d));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(cores_are_asked_and_shown),
        cmocka_unit_test(endpoints_are_shown_with_their_upstream),
        cmocka_unit_test(a_silent_core_is_left_alone),
        cmocka_unit_test(an_answer_is_never_older_than_its_question),
        cmocka_unit_test(metrics_keep_the_format),
        cmocka_unit_test(the_table_needs_no_key),
        cmocka_unit_test(watchdog_tells_stuck_from_suspended),
        cmocka_unit_test(watchdog_names_what_each_core_does),
        cmocka_unit_test(drain_tells_running_cores_once),
    };
    return cmocka_run_group_tests_name("status", tests, NULL, NULL);
}
