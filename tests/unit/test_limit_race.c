/* The table of limits, step by step: several cores work in one set, and between any two accesses to
 * memory another may go on. Which, a seed says. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <ucontext.h>

#include <cmocka.h>

static void step(void);

/* limit.c's accesses to shared memory, with a step before each. */
#define __atomic_load_n(p, order)                 (step(), *(p))
#define __sync_bool_compare_and_swap(p, old, new) (step(), *(p) == (old) ? (*(p) = (new), 1) : 0)
#include "dataplane/route/limit.c"
#undef __atomic_load_n
#undef __sync_bool_compare_and_swap

#include "runtime/rng.h"

enum { CORES = 3, STACK = 65536, ID = 5, MAX = 2, CLIENTS = 3, NOW = 1000 };

struct race;

struct actor {
    ucontext_t context;
    char *stack;
    struct race *race;
    struct client_limits l;
    struct rng rng;
    bool done;
};

struct race {
    ucontext_t main;
    struct actor actors[CORES];
    struct actor *running;
    struct limit_table *table;
    struct rng rng;
    int inside[CLIENTS + 1];
    unsigned taken[CLIENTS + 1];
    const char *fault;
};

static struct race *race; /* of makecontext()'s entry, which takes no pointers */

static void step(void)
{
    struct actor *a = race->running;
    if (a)
        swapcontext(&a->context, &race->main);
}

static void note(const char *fault)
{
    if (!race->fault)
        race->fault = fault;
}

static void come_and_go(struct actor *a)
{
    for (unsigned i = 0; i < 4; i++) {
        uint32_t who = 1 + rng_below(&a->rng, CLIENTS);
        if (!client_limits_enter(&a->l, ID, who, MAX, NOW))
            continue;
        if (++a->race->inside[who] > MAX)
            note("one too many");
        step();
        a->race->inside[who]--;
        client_limits_leave(&a->l, ID, who);
    }
}

static void take(struct actor *a)
{
    static const struct config_limit three = {.id = 6, .interval = 1000, .slack = 2000};
    uint64_t wait;
    for (unsigned i = 0; i < 4; i++) {
        uint32_t who = 1 + rng_below(&a->rng, CLIENTS);
        if (client_limits_take(&a->l, &three, who, NOW, &wait) && ++a->race->taken[who] > 3)
            note("over the burst");
    }
}

static void actor_main(void)
{
    struct actor *a = race->running;
    if (rng_below(&race->rng, 2))
        come_and_go(a);
    take(a);
    come_and_go(a);
    a->done = true;
    swapcontext(&a->context, &race->main);
}

/* A key that two cells know of would be two limits. */
static void check_cells(void)
{
    for (unsigned i = 0; i < WAYS; i++)
        for (unsigned k = 0; k < i; k++) {
            const struct cell *a = &race->table->cells[i], *b = &race->table->cells[k];
            if (a->key && a->key == b->key && !(a->value & TENTATIVE) && !(b->value & TENTATIVE))
                note("a key twice");
        }
}

/* Runs of steps of one actor, short ones as a rule. */
static void play(void)
{
    unsigned left = CORES;
    while (left && !race->fault) {
        struct actor *a = &race->actors[rng_below(&race->rng, CORES)];
        unsigned steps = rng_chance(&race->rng, 200000) ? rng_below(&race->rng, 60) : 1;
        for (; steps > 0 && !a->done && !race->fault; steps--) {
            race->running = a;
            swapcontext(&race->main, &a->context);
            race->running = NULL;
            check_cells();
            left -= a->done;
        }
    }
}

/* All but a few cells are in use by others, so that newcomers meet. */
static void fill(struct client_limits *l, unsigned n)
{
    for (uint32_t who = 100; who < 100 + n; who++)
        assert_true(client_limits_enter(l, ID, who, 1, NOW));
}

static void one_race(uint64_t seed)
{
    static const uint8_t secret[16] = {1};
    race = calloc(1, sizeof(*race));
    race->rng = (struct rng){seed};
    race->table = limit_table_new(4, secret);
    struct client_limits others;
    client_limits_init(&others, race->table, CORES);
    fill(&others, rng_below(&race->rng, 10));
    for (unsigned i = 0; i < CORES; i++) {
        struct actor *a = &race->actors[i];
        a->race = race;
        a->rng = (struct rng){seed * 31 + i};
        a->stack = malloc(STACK);
        client_limits_init(&a->l, race->table, i);
        getcontext(&a->context);
        a->context.uc_stack.ss_sp = a->stack;
        a->context.uc_stack.ss_size = STACK;
        makecontext(&a->context, actor_main, 0);
    }
    play();
    if (race->fault)
        fail_msg("seed %lu: %s", seed, race->fault);
    for (uint32_t who = 1; who <= CLIENTS; who++)
        assert_int_equal(client_limits_count(&others, ID, who), 0);
    for (unsigned i = 0; i < CORES; i++)
        free(race->actors[i].stack);
    limit_table_free(race->table);
    free(race);
    race = NULL;
}

static void test_no_order_of_steps_breaks_a_limit(void **state)
{
    const char *text = getenv("SEED");
    uint64_t first = text ? strtoull(text, NULL, 0) : 1;
    for (uint64_t seed = first; seed < first + (text ? 1 : 1500); seed++)
        one_race(seed);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_no_order_of_steps_breaks_a_limit),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
