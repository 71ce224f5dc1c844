/* When a listener that drains is empty, by what the cores say. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "control/draining.h"

static const struct config_addr here = {.addr = 0x01020304, .port = 80};
static const struct config_addr there = {.addr = 0x01020304, .port = 81};

struct scene {
    struct config_listener draining[2];
    struct snapshot current;
    struct publish p;
    struct core_status st[2];
    struct status_view v;
};

static struct scene *scene_new(void)
{
    struct scene *s = calloc(1, sizeof(*s));

    s->draining[0] = (struct config_listener){.name = "web", .address = here};
    s->draining[1] = (struct config_listener){.name = "web", .address = there};
    s->current = (struct snapshot){.version = 7, .draining = s->draining, .ndraining = 2};
    s->p.current = &s->current;
    s->v.ncores = 2;
    for (unsigned i = 0; i < 2; i++) {
        s->st[i].snapshot_version = 7;
        s->v.cores[i] = (struct status_core){.running = true, .answering = true, .s = &s->st[i]};
    }
    return s;
}

static void add(struct core_status *st, const struct config_addr *a, bool draining, uint32_t conns)
{
    struct listener_stats *l = &st->listeners[st->nlisteners++];

    strcpy(l->name, "web");
    l->address = *a;
    l->draining = draining;
    l->conns = conns;
}

static bool *look(struct scene *s)
{
    static bool none[2];

    draining_look(&s->p, &s->v);
    return s->p.is_empty ? s->p.is_empty : none;
}

static void scene_free(struct scene *s)
{
    free(s->p.is_empty);
    free(s);
}

static void empty_on_every_core(void **state)
{
    struct scene *s = scene_new();

    add(&s->st[0], &here, true, 0);
    add(&s->st[1], &here, true, 0);
    add(&s->st[1], &there, true, 1);
    assert_true(look(s)[0]);
    assert_false(look(s)[1]);
    scene_free(s);
}

/* Its successor of the same name and address, of another kind, is another one. */
static void an_open_one_does_not_count(void **state)
{
    struct scene *s = scene_new();

    add(&s->st[0], &here, false, 5);
    add(&s->st[0], &there, true, 5);
    assert_true(look(s)[0]);
    assert_false(look(s)[1]);
    scene_free(s);
}

static void nothing_is_concluded_from_old_news(void **state)
{
    struct scene *s = scene_new();

    s->st[1].snapshot_version = 6;
    assert_false(look(s)[0]);
    s->v.cores[1] = (struct status_core){.running = true};
    assert_false(look(s)[0]);
    s->v.cores[1].running = false; /* it has ended, with all it had */
    assert_true(look(s)[0]);
    scene_free(s);
}

static void an_answer_that_is_full_may_leave_some_out(void **state)
{
    struct scene *s = scene_new();

    while (s->st[0].nlisteners < STATUS_MAX_LISTENERS - 1)
        add(&s->st[0], &there, false, 0);
    add(&s->st[0], &here, true, 0);
    assert_true(look(s)[0]);
    assert_false(look(s)[1]);
    scene_free(s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(empty_on_every_core),
        cmocka_unit_test(an_open_one_does_not_count),
        cmocka_unit_test(nothing_is_concluded_from_old_news),
        cmocka_unit_test(an_answer_that_is_full_may_leave_some_out),
    };
    return cmocka_run_group_tests_name("draining", tests, NULL, NULL);
}
