/* Channels between cores: every interleaving of a side that parks with one that sends, makes room,
 * closes, publishes or leaves, on the real code. And for each order that the code relies on, that
 * the checker finds what goes wrong without it. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <errno.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>

#include <rte_ring.h>

#include "runtime/qsbr.h"
#include "runtime/sched.h"
#include "tests/kit/interleave.h"
#include "tests/kit/interleave_atomics.h"

#include "runtime/mailbox.h"

#define CORES 3
#define ITEMS 4

/* A core: a mailbox, and one task that stands for all. The mailbox is only its contract, a set that
 * its owner can sleep on, so that there are fewer steps to order; test_interleave_mailbox has the
 * real one. */
struct core {
    struct mailbox box;
    _Atomic uint64_t posted; /* one bit an item */
    struct mailbox_item *items[ITEMS];
    struct task task;
    bool is_woken;
};

static struct core cores[CORES];

void mailbox_post(struct mailbox *mb, struct mailbox_item *item)
{
    struct core *c = container_of(mb, struct core, box);
    unsigned i = 0;
    while (c->items[i] && c->items[i] != item)
        i++;
    interleave_check(i < ITEMS);
    c->items[i] = item;
    atomic_fetch_or_explicit(&c->posted, 1ull << i, memory_order_acq_rel);
}

/* Sleeps until there is something, and delivers it. `may_end`: nobody need come. */
static void work(struct core *c, bool may_end)
{
    interleave_await(&c->posted, may_end);
    uint64_t posted = atomic_exchange_explicit(&c->posted, 0, memory_order_acq_rel);
    for (unsigned i = 0; i < ITEMS; i++)
        if (posted & (1ull << i))
            c->items[i]->deliver(c->items[i]);
}

/* rte_ring's part: its algorithm for one producer and one consumer, with the orders that it gives,
 * so that the checker may show each side an old tail of the other. */
static void **ring_slot(struct rte_ring *r, uint32_t index)
{
    return (void **)&r[1] + (index & r->mask);
}

static unsigned model_enqueue(struct rte_ring *r, void *const *items, unsigned n)
{
    uint32_t taken = atomic_load_explicit(&r->cons.tail, memory_order_acquire);
    if (r->capacity + taken - r->prod.head < n)
        return 0;
    for (unsigned i = 0; i < n; i++)
        *ring_slot(r, r->prod.head + i) = items[i];
    r->prod.head += n;
    atomic_store_explicit(&r->prod.tail, r->prod.head, memory_order_release);
    return n;
}

static unsigned model_dequeue(struct rte_ring *r, void **ret_items, unsigned max)
{
    uint32_t n = atomic_load_explicit(&r->prod.tail, memory_order_acquire) - r->cons.head;
    n = n < max ? n : max;
    for (unsigned i = 0; i < n; i++)
        ret_items[i] = *ring_slot(r, r->cons.head + i);
    if (n == 0)
        return 0;
    r->cons.head += n;
    atomic_store_explicit(&r->cons.tail, r->cons.head, memory_order_release);
    return n;
}

#define rte_ring_sp_enqueue_bulk(r, items, n, free) model_enqueue(r, items, n)
#define rte_ring_sc_dequeue_burst(r, to, n, left)   model_dequeue(r, to, n)
#define __atomic_load_n(p, order)                   atomic_load_explicit(p, order)
/* NOLINTBEGIN(bugprone-suspicious-include) */
#define feed      mpsc_feed
#define poll_send mpsc_poll_send
#define drop_send mpsc_drop_send
#define poll_recv mpsc_poll_recv
#define drop_recv mpsc_drop_recv
#include "runtime/chan_mpsc_remote.c"
#undef poll_recv
#undef drop_recv
#include "runtime/chan_oneshot_remote.c"
#include "runtime/chan_watch_remote.c"
/* NOLINTEND(bugprone-suspicious-include) */

/* Take the place of those in runtime/sched.c. */
void task_wake(struct task *t)
{
    container_of(t, struct core, task)->is_woken = true;
}

bool task_consume(struct task *t, unsigned n)
{
    (void)t;
    (void)n;
    return true;
}

/* A task's future is pending: its core does what comes until it is woken. */
static void park(struct core *c)
{
    while (!c->is_woken)
        work(c, false);
    c->is_woken = false;
}

/* The task is done; its core goes on. */
static void idle(struct core *c)
{
    for (;;)
        work(c, true);
}

static void set_up_cores(void)
{
    for (unsigned i = 0; i < CORES; i++) {
        memset(&cores[i], 0, sizeof(cores[i]));
        atomic_store(&cores[i].posted, 0);
    }
}

static void *item_of(uintptr_t n)
{
    return (void *)n; // NOLINT(performance-no-int-to-ptr)
}

/* mpsc: the receiver is core 0, a sender each other. */

static struct mpsc_remote *ch;
static unsigned received, accepted;
static uintptr_t sum;

static void set_up_ports(uint32_t n)
{
    struct mailbox *senders[] = {&cores[1].box, &cores[2].box};
    struct mpsc_remote_opts o = {
        .capacity = 1, .nports = n, .receiver = &cores[0].box, .senders = senders};
    set_up_cores();
    mpsc_remote_new(&o, &ch);
    received = accepted = 0;
    sum = 0;
}

static void set_up_mpsc(void)
{
    set_up_ports(1);
}

static void set_up_two_ports(void)
{
    set_up_ports(2);
}

/* The port has no room from the start. */
static void set_up_full(void)
{
    set_up_ports(1);
    accepted = mpsc_port_try_send(mpsc_remote_port(ch, 0), item_of(1)) == 0;
}

static void tear_down_mpsc(void)
{
    ports_fini(ch);
    free(ch);
}

/* Until the end, or so many items. */
static void receive(unsigned most)
{
    struct mpsc_remote_recv r;
    mpsc_remote_recv_init(&r, ch);
    while (received < most) {
        if (mpsc_remote_recv_poll(&r, &cores[0].task) == POLL_PENDING) {
            park(&cores[0]);
            continue;
        }
        if (r.future.status == -EPIPE)
            break;
        received++;
        sum += (uintptr_t)r.item;
    }
    idle(&cores[0]);
}

static void receive_one(void)
{
    receive(1);
}

static void receive_two(void)
{
    receive(2);
}

static void receive_all(void)
{
    receive(UINT_MAX);
}

static void close_and_receive(void)
{
    mpsc_remote_close(ch);
    receive(UINT_MAX);
}

static void send(unsigned core, uintptr_t n)
{
    struct mpsc_port_send s;
    mpsc_port_send_init(&s, mpsc_remote_port(ch, core - 1), item_of(n));
    while (mpsc_port_send_poll(&s, &cores[core].task) == POLL_PENDING)
        park(&cores[core]);
    accepted += s.future.status == 0;
}

static void send_one(void)
{
    send(1, 1);
    idle(&cores[1]);
}

static void other_sends_one(void)
{
    send(2, 2);
    idle(&cores[2]);
}

static void send_second(void)
{
    send(1, 2);
    idle(&cores[1]);
}

static void send_one_and_leave(void)
{
    send(1, 1);
    mpsc_port_sender_put(mpsc_remote_port(ch, 0));
    idle(&cores[1]);
}

/* Changes its mind if there is no room at once. */
static void send_second_or_drop(void)
{
    struct mpsc_port_send s;
    mpsc_port_send_init(&s, mpsc_remote_port(ch, 0), item_of(2));
    if (mpsc_port_send_poll(&s, &cores[1].task) == POLL_READY)
        accepted++;
    else
        mpsc_port_send_drop(&s);
    mpsc_port_sender_put(mpsc_remote_port(ch, 0));
    idle(&cores[1]);
}

static const char *all_is_received(void)
{
    return received == accepted ? NULL : "an accepted item was not received";
}

static const char *two_came(void)
{
    return received == 2 && sum == 3 ? NULL : "two items did not come";
}

/* oneshot: the receiver's core is 0, the sender's 1. */

static struct oneshot_remote shot;
static unsigned releases;
static bool value_came, value_left;

static void on_release(struct oneshot_remote *o)
{
    releases++;
    value_left = o->value != NULL;
}

static void set_up_shot(void)
{
    set_up_cores();
    oneshot_remote_init(&shot, &cores[0].box, &cores[1].box, on_release);
    releases = accepted = 0;
    value_came = value_left = false;
}

static void drop_receiver(void)
{
    struct oneshot_remote_recv r;
    oneshot_remote_recv_init(&r, &shot);
    if (oneshot_remote_recv_poll(&r, &cores[0].task) == POLL_READY)
        value_came = true;
    else
        oneshot_remote_recv_drop(&r);
    idle(&cores[0]);
}

static void shoot(void)
{
    accepted = oneshot_remote_send(&shot, &shot) == 0;
    idle(&cores[1]);
}

/* Sends once it has heard that nobody waits. */
static void await_closed(void)
{
    struct oneshot_remote_closed c;
    oneshot_remote_closed_init(&c, &shot);
    while (oneshot_remote_closed_poll(&c, &cores[1].task) == POLL_PENDING)
        park(&cores[1]);
    shoot();
}

static const char *released_once(void)
{
    if (releases != 1)
        return "not released once";
    return (value_came || value_left) == (accepted == 1) ? NULL : "the value went astray";
}

/* watch: a reader on cores 0 and 1, the writer is the last party. */

static struct watch_remote watched;
static struct watch_reader readers[2];
static struct watch_value values[3];
static struct rte_rcu_qsbr *qsbr;

static void keep(struct watch_value *v)
{
    (void)v;
}

static void set_up_watch(void)
{
    struct mailbox *mailboxes[] = {&cores[0].box, &cores[1].box};
    struct watch_remote_opts o = {.first = &values[0],
                                  .qsbr = qsbr,
                                  .readers = readers,
                                  .mailboxes = mailboxes,
                                  .nreaders = 2,
                                  .free = keep};
    set_up_cores();
    watch_remote_init(&watched, &o);
}

/* Until the version, or the end (0). */
static void follow(unsigned core, uint64_t version)
{
    struct watch_remote_changed c = {
        .future = {.kind = &watch_remote_changed_kind}, .r_ = &readers[core], .seen = 1};
    for (;;) {
        if (watch_remote_changed_poll(&c, &cores[core].task) == POLL_PENDING)
            park(&cores[core]);
        else if (c.future.status == -EPIPE || c.seen == version)
            return;
    }
}

static void follow_to_second(void)
{
    follow(0, 2);
}

static void other_follows_to_second(void)
{
    follow(1, 2);
}

static void follow_to_third(void)
{
    follow(0, 3);
}

static void follow_to_the_end(void)
{
    follow(0, 0);
}

static void publish_once(void)
{
    watch_remote_publish(&watched, &values[1]);
}

static void publish_twice(void)
{
    publish_once();
    watch_remote_publish(&watched, &values[2]);
}

static void publish_and_close(void)
{
    publish_once();
    watch_remote_close(&watched);
}

enum {
    SEND,
    TWO_SENDERS,
    FULL,
    CHANGED_MIND,
    LEAVE,
    CLOSE,
    CLOSE_FULL,
    SHOT_DROP,
    SHOT_CLOSED,
    PUBLISH,
    PUBLISH_TWICE,
    TWO_READERS,
    PUBLISH_CLOSE,
    NCASES
};

#define MPSC .set_up = set_up_mpsc, .tear_down = tear_down_mpsc

static const struct interleave_case cases[NCASES] = {
    [SEND] = {.name = "send against park",
              .nparties = 2,
              .party = {receive_one, send_one},
              .end = all_is_received,
              MPSC},
    [TWO_SENDERS] = {.name = "two senders",
                     .nparties = 3,
                     .party = {receive_one, send_one, other_sends_one},
                     .set_up = set_up_two_ports,
                     .tear_down = tear_down_mpsc},
    [FULL] = {.name = "a sender without room",
              .nparties = 2,
              .party = {receive_two, send_second},
              .set_up = set_up_full,
              .tear_down = tear_down_mpsc,
              .end = two_came},
    [CHANGED_MIND] = {.name = "a sender that asks for room and goes",
                      .nparties = 2,
                      .party = {receive_all, send_second_or_drop},
                      .set_up = set_up_full,
                      .tear_down = tear_down_mpsc,
                      .end = all_is_received},
    [LEAVE] = {.name = "the last sender leaves",
               .nparties = 2,
               .party = {receive_all, send_one_and_leave},
               .end = all_is_received,
               MPSC},
    [CLOSE] = {.name = "close against send",
               .nparties = 2,
               .party = {close_and_receive, send_one},
               .end = all_is_received,
               MPSC},
    [CLOSE_FULL] = {.name = "close against a sender without room",
                    .nparties = 2,
                    .party = {close_and_receive, send_second},
                    .set_up = set_up_full,
                    .tear_down = tear_down_mpsc,
                    .end = all_is_received},
    [SHOT_DROP] = {.name = "shot against drop",
                   .nparties = 2,
                   .party = {drop_receiver, shoot},
                   .set_up = set_up_shot,
                   .end = released_once},
    [SHOT_CLOSED] = {.name = "sender that waits for the receiver to go",
                     .nparties = 2,
                     .party = {drop_receiver, await_closed},
                     .set_up = set_up_shot,
                     .end = released_once},
    [PUBLISH] = {.name = "publish against park",
                 .nparties = 2,
                 .party = {follow_to_second, publish_once},
                 .set_up = set_up_watch},
    [PUBLISH_TWICE] = {.name = "two changes",
                       .nparties = 2,
                       .party = {follow_to_third, publish_twice},
                       .set_up = set_up_watch},
    [TWO_READERS] = {.name = "two readers",
                     .nparties = 3,
                     .party = {follow_to_second, other_follows_to_second, publish_once},
                     .set_up = set_up_watch},
    [PUBLISH_CLOSE] = {.name = "change and end",
                       .nparties = 2,
                       .party = {follow_to_the_end, publish_and_close},
                       .set_up = set_up_watch},
};

static int set_up(void **state)
{
    (void)state;
    qsbr = qsbr_new(1);
    return qsbr ? 0 : -1;
}

static int tear_down(void **state)
{
    (void)state;
    qsbr_free(qsbr);
    return 0;
}

static void no_wake_up_is_ever_lost(void **state)
{
    (void)state;
    for (unsigned i = 0; i < NCASES; i++) {
        struct interleave_result r;
        interleave_explore(&cases[i], stdout, &r);
        print_message("# %s: %lu schedules, %lu pruned\n", cases[i].name,
                      (unsigned long)r.schedules, (unsigned long)r.pruned);
        if (r.has_failed)
            fail_msg("%s: %s", cases[i].name, r.why);
        assert_true(r.schedules > 1);
    }
}

/* The orders that the comments in the sources claim to need. What they are for that isn't atomic
 * (memory that is given back) is TSan's part. */
static const struct {
    unsigned in; /* the case that shows it */
    struct interleave_mutation m;
} mutations[] = {
    {SEND, {"mpsc_port_publish_", INTERLEAVE_STORE, "&p->sent_", memory_order_release}},
    {SEND, {"mpsc_port_publish_", INTERLEAVE_LOAD, "&p->ch_->state_", memory_order_acquire}},
    {SEND, {"mpsc_remote_arm", INTERLEAVE_OR, "&ch->state_", memory_order_acq_rel}},
    {SEND, {"mpsc_remote_arm", INTERLEAVE_LOAD, "&p->sent_", memory_order_acquire}},
    {PUBLISH, {"watch_remote_publish", INTERLEAVE_EXCHANGE, "&w->newest_", memory_order_acq_rel}},
    {PUBLISH, {"tell_readers", INTERLEAVE_LOAD, "&r->waiting_", memory_order_acquire}},
    {PUBLISH,
     {"watch_remote_changed_poll", INTERLEAVE_STORE, "&r->waiting_", memory_order_release}},
    {PUBLISH, {"look", INTERLEAVE_LOAD, "&w->newest_", memory_order_acquire}},
    {PUBLISH_CLOSE, {"look", INTERLEAVE_LOAD, "&w->closed_", memory_order_acquire}},
    {PUBLISH_CLOSE, {"watch_remote_close", INTERLEAVE_STORE, "&w->closed_", memory_order_release}},
};

static void every_order_is_needed(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof(mutations) / sizeof(mutations[0]); i++) {
        struct interleave_case c = cases[mutations[i].in];
        struct interleave_result r;
        c.mutation = &mutations[i].m;
        interleave_explore(&c, NULL, &r);
        if (!r.has_failed)
            fail_msg("%s of %s may be weaker: nothing fails in %lu schedules", c.mutation->func,
                     c.mutation->what, (unsigned long)r.schedules);
        assert_true(r.mutated > 0);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(no_wake_up_is_ever_lost),
        cmocka_unit_test(every_order_is_needed),
    };
    return cmocka_run_group_tests_name("interleave_channels", tests, set_up, tear_down);
}
