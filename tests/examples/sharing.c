#include "tests/examples/virtual.h"

#include <errno.h>
#include <string.h>

#include "runtime/batcher.h"
#include "runtime/flight.h"
#include "runtime/ttl_cache.h"

static struct sched sched;
static const struct siphash_key secret = {{0x0706050403020100, 0x0f0e0d0c0b0a0908}};

static int set_up(void **state)
{
    sched_init(&sched, &(struct sched_opts){.now = START});
    return 0;
}

static int tear_down(void **state)
{
    sched_fini(&sched);
    return 0;
}

struct address {
    uint32_t ip;
};

/* doc: flight */
/* Looking a name up takes a while, and everybody asks for the same one. */
struct lookup {
    struct flight_work work; /* first */
    struct sleep reply;
    uint64_t ends;
};

static enum poll lookup_poll(struct future *f, struct task *t)
{
    struct lookup *l = container_of(f, struct lookup, work.f);
    if (!l->ends)
        l->ends = task_now(t) + 30 * MS;
    if (task_now(t) < l->ends) {
        sleep_arm(&l->reply, t, l->ends);
        return POLL_PENDING;
    }
    *(struct address *)l->work.value = (struct address){.ip = 0x0a4d0002};
    f->status = 0;
    return POLL_READY;
}

static void lookup_drop(struct future *f)
{
    sleep_cancel(&container_of(f, struct lookup, work.f)->reply);
}

static const struct future_kind lookup_future = {"lookup", lookup_poll, lookup_drop};

static void lookup_start(struct flight_work *w)
{
    future_init(&w->f, &lookup_future);
}

static const struct flight_kind lookup_kind = {.name = "lookup",
                                               .work_size = sizeof(struct lookup),
                                               .value_size = sizeof(struct address),
                                               .start = lookup_start};
/* doc end */

/* doc: flight_call */
/* Who asks has a deadline of its own; the look-up goes on for the others. */
struct asker {
    struct task task;
    struct flight_call call;
    struct address address;
    int status;
};

static enum poll asker_poll(struct task *t)
{
    struct asker *a = container_of(t, struct asker, task);
    if (future_poll(&a->call.f, t) == POLL_PENDING)
        return POLL_PENDING;
    a->status = a->call.f.status;
    return POLL_READY;
}

static void asker_drop(struct task *t)
{
    future_drop(&container_of(t, struct asker, task)->call.f);
}

static void ask(struct asker *a, struct flight *f, const char *name, uint64_t deadline)
{
    flight_call_init(&a->call, f, name, strlen(name), deadline, &a->address);
}
/* doc end */

static const struct task_kind asker_kind = {"asker", asker_poll, asker_drop};

static void one_look_up_serves_all(void **state)
{
    struct flight names;
    struct asker a = {.status = 1}, b = {.status = 1}, hasty = {.status = 1};
    assert_int_equal(flight_init(&names, &(struct flight_opts){.kind = &lookup_kind,
                                                               .sched = &sched,
                                                               .secret = secret,
                                                               .max = 16,
                                                               .key_max = 255}),
                     0);
    ask(&a, &names, "app.example", START + 1 * S);
    ask(&b, &names, "app.example", START + 1 * S);
    ask(&hasty, &names, "app.example", START + 5 * MS);
    task_spawn(&sched, &a.task, &asker_kind);
    task_spawn(&sched, &b.task, &asker_kind);
    task_spawn(&sched, &hasty.task, &asker_kind);
    assert_int_equal(virtual_run(&sched), START + 30 * MS);
    assert_int_equal(names.stats.started, 1);
    assert_int_equal(hasty.status, -ETIMEDOUT);
    assert_int_equal(a.status, 0);
    assert_int_equal(b.address.ip, 0x0a4d0002);
    flight_fini(&names);
}

/* doc: ttl_cache */
/* The same look-up, remembered: an address for a minute, a failure for a second. */
static enum poll fetch_poll(struct future *f, struct task *t)
{
    struct ttl_fetch *fetch = container_of(f, struct ttl_fetch, work.f);
    *(struct address *)fetch->work.value = (struct address){.ip = 0x0a4d0002};
    f->status = 0;
    fetch->ttl_ns = 60 * S; /* as the answer says */
    return POLL_READY;
}

static const struct future_kind fetch_future = {"fetch", fetch_poll, NULL};

static void fetch_start(struct ttl_fetch *f)
{
    future_init(&f->work.f, &fetch_future);
}

static const struct ttl_cache_kind fetch_kind = {.name = "fetch",
                                                 .fetch_size = sizeof(struct ttl_fetch),
                                                 .value_size = sizeof(struct address),
                                                 .start = fetch_start};
/* doc end */

struct getter {
    struct task task;
    struct ttl_get get;
    struct address address;
};

static enum poll getter_poll(struct task *t)
{
    return future_poll(&container_of(t, struct getter, task)->get.f, t);
}

static void getter_drop(struct task *t)
{
    future_drop(&container_of(t, struct getter, task)->get.f);
}

static const struct task_kind getter_kind = {"getter", getter_poll, getter_drop};

static enum ttl_found get(struct ttl_cache *c)
{
    struct getter g = {.address = {0}};
    ttl_get_init(&g.get, c, "app.example", 11, UINT64_MAX, &g.address);
    task_spawn(&sched, &g.task, &getter_kind);
    while (sched_step(&sched, sched_now(&sched)))
        ;
    assert_int_equal(g.get.f.status, 0);
    assert_int_equal(g.address.ip, 0x0a4d0002);
    return g.get.found;
}

static void what_was_fetched_is_remembered_for_its_time(void **state)
{
    struct ttl_cache names;
    /* doc: ttl_cache_init */
    int rc = ttl_cache_init(&names, &(struct ttl_cache_opts){.kind = &fetch_kind,
                                                             .sched = &sched,
                                                             .secret = secret,
                                                             .max_values = 1000,
                                                             .max_failures = 100,
                                                             .max_fetches = 16,
                                                             .key_max = 255,
                                                             .ttl_ns = 60 * S,
                                                             .failure_ttl_ns = 1 * S,
                                                             .stale_ns = 10 * S});
    /* doc end */
    assert_int_equal(rc, 0);
    assert_int_equal(get(&names), TTL_MISS);
    assert_int_equal(get(&names), TTL_FRESH);
    virtual_run_until(&sched, START + 61 * S);
    assert_int_equal(get(&names), TTL_STALE); /* given at once, and fetched anew meanwhile */
    assert_int_equal(get(&names), TTL_FRESH);
    ttl_cache_fini(&names);
}

/* doc: batcher */
/* Sends metrics in batches: 8 at once, or what there is after 5 ms. */
struct sender {
    struct task task;
    struct batch_take take;
    unsigned batches, items;
};

static enum poll sender_poll(struct task *t)
{
    struct sender *s = container_of(t, struct sender, task);
    while (future_poll(&s->take.f, t) == POLL_READY) {
        if (s->take.f.status < 0)
            return POLL_READY; /* -EPIPE: closed, and everything has been taken */
        s->batches++;
        s->items += s->take.count; /* s->take.items lie one behind the other */
        batch_take_done(&s->take, 0);
        batch_take_init(&s->take, s->take.batcher_);
    }
    return POLL_PENDING;
}

static void sender_drop(struct task *t)
{
    future_drop(&container_of(t, struct sender, task)->take.f);
}
/* doc end */

static const struct task_kind sender_kind = {"sender", sender_poll, sender_drop};

static void a_batch_goes_when_it_is_full_or_old(void **state)
{
    struct batcher metrics;
    struct sender s = {.items = 0};
    assert_int_equal(batcher_init(&metrics, &(struct batcher_opts){.sched = &sched,
                                                                   .max_items = 8,
                                                                   .item_size = sizeof(unsigned),
                                                                   .max_delay_ns = 5 * MS}),
                     0);
    batch_take_init(&s.take, &metrics);
    task_spawn(&sched, &s.task, &sender_kind);
    for (unsigned i = 0; i < 11; i++) {
        assert_int_equal(batcher_try_add(&metrics, &i), 0);
        sched_step(&sched, START);
    }
    virtual_run_until(&sched, START + 4 * MS);
    assert_int_equal(s.items, 8);
    virtual_run_until(&sched, START + 5 * MS);
    assert_int_equal(s.items, 11);
    assert_int_equal(s.batches, 2);
    batcher_close(&metrics);
    virtual_run(&sched);
    batcher_fini(&metrics);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(one_look_up_serves_all, set_up, tear_down),
        cmocka_unit_test_setup_teardown(what_was_fetched_is_remembered_for_its_time, set_up,
                                        tear_down),
        cmocka_unit_test_setup_teardown(a_batch_goes_when_it_is_full_or_old, set_up, tear_down),
    };
    return cmocka_run_group_tests_name("sharing", tests, NULL, NULL);
}
