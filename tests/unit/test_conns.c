/* Walking through the cores' connections: pages, limits, cores that are silent, askers that leave.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <arpa/inet.h>
#include <stdlib.h>
#include <string.h>

#include "control/conns.h"

#define CORES 3

/* Cores with so many connections each, which answer at once unless they are silent. */
struct fakes {
    unsigned conns[CORES], posts[CORES];
    bool silent[CORES], ended[CORES];
    struct core_msg *held[CORES];
};

static void answer(struct fakes *f, unsigned core, struct core_msg *m)
{
    struct conns_page *p = m->conns;

    p->n = 0;
    for (; p->at < f->conns[core] && p->n < CONNS_PAGE; p->at++) {
        struct conn_info *i = &p->conns[p->n++];
        memset(i, 0, sizeof(*i));
        i->client_addr = inet_addr("10.0.0.1");
        i->client_port = (uint16_t)(1000 * core + p->at);
        strcpy(i->listener, "web");
        strcpy(i->method, "GET");
        strcpy(i->target, "/\x9b\n\"");
        i->tcp_state = "ESTABLISHED";
    }
    p->done = p->at == f->conns[core];
    m->done(m);
}

static void on_post(void *ctx, unsigned core, struct core_msg *m)
{
    struct fakes *f = ctx;

    assert_int_equal(m->kind, CORE_MSG_CONNS);
    f->posts[core]++;
    f->held[core] = m;
    if (!f->silent[core])
        answer(f, core, m);
}

static bool on_is_running(void *ctx, unsigned core)
{
    return !((struct fakes *)ctx)->ended[core];
}

static const struct cores_ops fake_ops = {.post = on_post, .is_running = on_is_running};

struct asker {
    struct conns_request request;
    json_t *answer;
    unsigned calls;
};

static void on_answer(struct conns_request *r, json_t *a)
{
    struct asker *k = container_of(r, struct asker, request);

    json_decref(k->answer);
    k->answer = a;
    k->calls++;
}

struct scene {
    uv_loop_t loop;
    struct fakes f;
    struct conns *conns;
};

static int setup(void **state)
{
    struct scene *s = calloc(1, sizeof(*s));
    struct cores cores = {&fake_ops, &s->f, CORES};

    uv_loop_init(&s->loop);
    assert_int_equal(conns_new(&s->loop, &cores, 1, &s->conns), 0);
    *state = s;
    return 0;
}

static int teardown(void **state)
{
    struct scene *s = *state;

    conns_close(s->conns);
    uv_run(&s->loop, UV_RUN_DEFAULT);
    assert_int_equal(uv_loop_close(&s->loop), 0);
    free(s);
    return 0;
}

static struct asker asker(uint32_t limit)
{
    return (struct asker){.request = {.limit = limit, .fn = on_answer}};
}

static void turn_until_called(struct scene *s, struct asker *a)
{
    while (a->calls == 0)
        uv_run(&s->loop, UV_RUN_ONCE);
}

static size_t answered(const struct asker *a)
{
    return json_array_size(json_object_get(a->answer, "connections"));
}

static bool has_more(const struct asker *a)
{
    return json_is_true(json_object_get(a->answer, "more"));
}

static void every_core_is_walked_page_by_page(void **state)
{
    struct scene *s = *state;
    struct asker a = asker(1000);

    s->f.conns[0] = 3 * CONNS_PAGE;
    s->f.conns[2] = 5;
    conns_ask(s->conns, &a.request);
    turn_until_called(s, &a);
    assert_int_equal(answered(&a), 3 * CONNS_PAGE + 5);
    assert_false(has_more(&a));
    assert_int_equal(s->f.posts[0], 3);
    assert_int_equal(s->f.posts[1], 1);
    json_t *last = json_array_get(json_object_get(a.answer, "connections"), 3 * CONNS_PAGE + 4);
    assert_int_equal(json_integer_value(json_object_get(last, "core")), 2);
    assert_string_equal(json_string_value(json_object_get(last, "client")), "10.0.0.1:2004");
    json_decref(a.answer);
}

static void a_limit_ends_the_walk(void **state)
{
    static const struct {
        unsigned limit, posts;
        bool more;
    } cases[] = {
        {10, 1, true}, {CONNS_PAGE, 2, true}, {2 * CONNS_PAGE, 2, false}, {9999, 2, false}};
    struct scene *s = *state;

    s->f.conns[0] = 2 * CONNS_PAGE;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct asker a = asker(cases[i].limit);
        s->f.posts[0] = 0;
        conns_ask(s->conns, &a.request);
        turn_until_called(s, &a);
        assert_int_equal(answered(&a),
                         cases[i].limit < 2 * CONNS_PAGE ? cases[i].limit : 2 * CONNS_PAGE);
        assert_int_equal(has_more(&a), cases[i].more);
        assert_int_equal(s->f.posts[0], cases[i].posts);
        json_decref(a.answer);
    }
}

/* It keeps its message until it wakes up; those who ask meanwhile have messages of their own. */
static void a_silent_core_is_named_and_left_out(void **state)
{
    struct scene *s = *state;
    struct asker a = asker(100), b = asker(100);

    s->f.conns[0] = s->f.conns[1] = s->f.conns[2] = 2;
    s->f.silent[1] = true;
    conns_ask(s->conns, &a.request);
    turn_until_called(s, &a);
    assert_int_equal(answered(&a), 4);
    json_t *silent = json_object_get(a.answer, "silent_cores");
    assert_int_equal(json_array_size(silent), 1);
    assert_int_equal(json_integer_value(json_array_get(silent, 0)), 1);
    struct core_msg *held = s->f.held[1];

    s->f.silent[1] = false;
    conns_ask(s->conns, &b.request);
    turn_until_called(s, &b);
    assert_int_equal(answered(&b), 6);
    answer(&s->f, 1, held);
    json_decref(a.answer);
    json_decref(b.answer);
}

static void one_that_has_ended_is_not_asked(void **state)
{
    struct scene *s = *state;
    struct asker a = asker(100);

    s->f.ended[0] = s->f.ended[1] = s->f.ended[2] = true;
    conns_ask(s->conns, &a.request);
    assert_int_equal(a.calls, 1);
    assert_int_equal(answered(&a), 0);
    assert_int_equal(s->f.posts[0], 0);
    json_decref(a.answer);
}

static void an_asker_may_leave(void **state)
{
    struct scene *s = *state;
    struct asker a = asker(100), b = asker(100);

    s->f.silent[0] = true;
    conns_ask(s->conns, &a.request);
    conns_cancel(&a.request);
    conns_cancel(&a.request);
    s->f.silent[0] = false;
    struct core_msg *held = s->f.held[0];
    conns_ask(s->conns, &b.request);
    answer(&s->f, 0, held);
    turn_until_called(s, &b);
    assert_int_equal(a.calls, 0);
    json_decref(b.answer);
}

static void bytes_of_the_network_become_json(void **state)
{
    struct scene *s = *state;
    struct asker a = asker(1);

    s->f.conns[0] = 1;
    conns_ask(s->conns, &a.request);
    turn_until_called(s, &a);
    const json_t *c = json_array_get(json_object_get(a.answer, "connections"), 0);
    const json_t *target = json_object_get(json_object_get(c, "request"), "target");
    assert_string_equal(json_string_value(target), "/\xc2\x9b\n\"");
    assert_true(json_is_null(json_object_get(c, "endpoint")));
    json_decref(a.answer);
}

static int parse(const char *line, struct conns_request *ret, char *err, size_t err_len)
{
    struct admin_call call;

    int e = admin_parse(line, strlen(line), &call, err, err_len);
    if (e)
        return e;
    e = conns_parse(&call, ret, err, err_len);
    admin_call_fini(&call);
    return e;
}

static void filters_are_read(void **state)
{
    static const struct {
        const char *line, *error;
    } bad[] = {
        {"{\"verb\":\"conns\",\"client\":\"ten\"}", "client: expected an address"},
        {"{\"verb\":\"conns\",\"client\":\"10.0.0.0/33\"}", "client: expected an address"},
        {"{\"verb\":\"conns\",\"state\":\"sleepy\"}", "state: expected one of idle head"},
        {"{\"verb\":\"conns\",\"limit\":0}", "limit: expected 1 to 20000"},
        {"{\"verb\":\"conns\",\"limit\":20001}", "limit: expected 1 to 20000"},
        {"{\"verb\":\"conns\",\"order\":1}", "takes no \"order\""},
    };
    struct conns_request r;
    char err[256] = "";

    assert_int_equal(parse("{\"verb\":\"conns\"}", &r, err, sizeof(err)), 0);
    assert_int_equal(r.limit, CONNS_DEFAULT);
    assert_int_equal(r.filter.netmask, 0);
    assert_int_equal(parse("{\"verb\":\"conns\",\"client\":\"10.1.2.3/8\",\"state\":\"tunnel\","
                           "\"listener\":\"web\",\"limit\":7}",
                           &r, err, sizeof(err)),
                     0);
    assert_int_equal(r.filter.netmask, inet_addr("255.0.0.0"));
    assert_int_equal(r.filter.state, CONN_STATE_tunnel);
    assert_string_equal(r.filter.listener, "web");
    assert_int_equal(r.limit, 7);
    assert_int_equal(parse("{\"verb\":\"conns\",\"client\":\"10.1.2.3\"}", &r, err, sizeof(err)),
                     0);
    assert_int_equal(r.filter.netmask, 0xffffffffu);
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        assert_int_not_equal(parse(bad[i].line, &r, err, sizeof(err)), 0);
        if (!strstr(err, bad[i].error))
            fail_msg("\"%s\" is not in \"%s\"", bad[i].error, err);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(every_core_is_walked_page_by_page, setup, teardown),
        cmocka_unit_test_setup_teardown(a_limit_ends_the_walk, setup, teardown),
        cmocka_unit_test_setup_teardown(a_silent_core_is_named_and_left_out, setup, teardown),
        cmocka_unit_test_setup_teardown(one_that_has_ended_is_not_asked, setup, teardown),
        cmocka_unit_test_setup_teardown(an_asker_may_leave, setup, teardown),
        cmocka_unit_test_setup_teardown(bytes_of_the_network_become_json, setup, teardown),
        cmocka_unit_test(filters_are_read),
    };
    return cmocka_run_group_tests_name("conns", tests, NULL, NULL);
}
