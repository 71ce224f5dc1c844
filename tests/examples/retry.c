#include "tests/examples/virtual.h"

#include <errno.h>

#include "runtime/join.h"
#include "runtime/retry.h"
#include "runtime/retry_budget.h"
#include "tests/examples/call.h"

static struct sched sched;
static struct rng rng;

static int set_up(void **state)
{
    sched_init(&sched, &(struct sched_opts){.now = START});
    rng.state = 42;
    return 0;
}

static int tear_down(void **state)
{
    sched_fini(&sched);
    return 0;
}

/* doc: retry */
/* A fetch that is tried up to three times, for a second at the most. */
struct fetch {
    struct join_task task;
    struct join_handle handle;
    struct retry retry;
    struct call call; /* one attempt after another */
    const int *results;
};

static int fetch_start(struct retry *r, struct future **ret_attempt)
{
    struct fetch *f = container_of(r, struct fetch, retry);
    call_init(&f->call, 10 * MS, f->results[r->attempt]);
    *ret_attempt = &f->call.f;
    return 0;
}

static bool fetch_is_transient(struct retry *r, const struct future *attempt)
{
    return attempt->status == -ECONNREFUSED || attempt->status == -ECONNRESET;
}

static const struct retry_ops fetch_ops = {.start = fetch_start,
                                           .is_transient = fetch_is_transient};
static const struct retry_policy fetch_policy = {
    .attempts = 3, .base = 20 * MS, .cap = 500 * MS, .total = 1 * S};
/* doc end */

static const struct join_kind fetch_kind = {.task = {JOIN_TASK("fetch")}};

static void fetch_run(struct fetch *f, const int *results, struct retry_budget_core *budget)
{
    f->results = results;
    /* doc: retry_init */
    retry_init(&f->retry, &(struct retry_opts){.ops = &fetch_ops,
                                               .policy = &fetch_policy,
                                               .rng = &rng,
                                               .budget = budget,
                                               .deadline = UINT64_MAX});
    join_spawn(&sched, &f->task, &fetch_kind, &f->retry.future, &f->handle);
    /* doc end */
    virtual_run(&sched);
}

static void what_may_pass_is_tried_again(void **state)
{
    static struct fetch passes, lasts, fatal;
    fetch_run(&passes, (const int[]){-ECONNREFUSED, 0}, NULL);
    assert_int_equal(passes.retry.future.status, 0);
    assert_int_equal(passes.retry.attempt, 1);
    fetch_run(&lasts, (const int[]){-ECONNREFUSED, -ECONNRESET, -ECONNREFUSED}, NULL);
    assert_int_equal(lasts.retry.future.status, -ECONNREFUSED);
    assert_int_equal(lasts.retry.attempt, 2);
    fetch_run(&fatal, (const int[]){-EINVAL}, NULL);
    assert_int_equal(fatal.retry.future.status, -EINVAL);
    assert_int_equal(fatal.retry.attempt, 0);
}

static void a_budget_stops_a_storm(void **state)
{
    static const int refused[] = {-ECONNREFUSED, -ECONNREFUSED, -ECONNREFUSED};
    static struct fetch f[100];
    unsigned retries = 0;
    /* doc: budget */
    struct retry_budget budget;                                                 /* control's */
    struct retry_budget_core my_core;                                           /* each core's */
    retry_budget_init(&budget, &(struct retry_budget_opts){.ratio_ppm = 200000, /* 20 % */
                                                           .min_per_second = 0,
                                                           .burst = 10,
                                                           .cores = 1});
    retry_budget_core_init(&my_core, &budget);
    /* doc end */
    for (unsigned i = 0; i < 100; i++) {
        retry_budget_request(&my_core);
        fetch_run(&f[i], refused, &my_core);
        retries += f[i].retry.attempt;
    }
    assert_true(retries > 0 && retries <= 20);
    assert_int_equal(counter_get(&my_core.granted), retries);
    assert_true(counter_get(&my_core.refused) > 0);
    retry_budget_core_fini(&my_core);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(what_may_pass_is_tried_again, set_up, tear_down),
        cmocka_unit_test_setup_teardown(a_budget_stops_a_storm, set_up, tear_down),
    };
    return cmocka_run_group_tests_name("retry", tests, NULL, NULL);
}
