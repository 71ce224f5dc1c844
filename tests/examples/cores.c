#include "tests/examples/virtual.h"

#include <errno.h>
#include <poll.h>
#include <pthread.h>

#include "runtime/chan_mpsc_remote.h"
#include "runtime/chan_watch_remote.h"
#include "runtime/mailbox.h"

static struct sched sched;
static struct mailbox mailbox;

static int set_up(void **state)
{
    sched_init(&sched, &(struct sched_opts){.now = START});
    return mailbox_init(&mailbox);
}

static int tear_down(void **state)
{
    sched_fini(&sched);
    mailbox_fini(&mailbox);
    return 0;
}

static void loop_until_done(const struct task *t)
{
    while (task_is_live(t)) {
        mailbox_drain(&mailbox, 64);
        if (sched_step(&sched, START) || !task_is_live(t) || !mailbox_prepare_sleep(&mailbox))
            continue;
        struct pollfd fd = {.fd = mailbox_fd(&mailbox), .events = POLLIN};
        poll(&fd, 1, -1);
        mailbox_end_sleep(&mailbox);
    }
}

struct result {
    unsigned n;
};

static struct result results[8] = {{1}, {2}, {3}, {4}, {5}, {6}, {7}, {8}};

/* doc: mpsc_remote */
/* Collects the results of another thread, as many at once as there are. */
struct collector {
    struct task task;
    struct mpsc_remote_recv_many recv;
    void *items[16];
    unsigned sum;
};

static enum poll collector_poll(struct task *t)
{
    struct collector *c = container_of(t, struct collector, task);
    while (mpsc_remote_recv_many_poll(&c->recv, t) == POLL_READY) {
        if (c->recv.future.status < 0)
            return POLL_READY; /* -EPIPE: every port has ended */
        for (unsigned i = 0; i < c->recv.n; i++)
            c->sum += ((struct result *)c->items[i])->n;
    }
    return POLL_PENDING;
}

static void collector_drop(struct task *t)
{
    mpsc_remote_recv_many_drop(&container_of(t, struct collector, task)->recv);
}

static void *worker_main(void *arg) /* the port is its thread's alone */
{
    struct mpsc_port *port = arg;
    for (unsigned i = 0; i < 8; i++)
        (void)mpsc_port_try_send(port, &results[i]); /* -EAGAIN: full; a task would wait for room */
    mpsc_port_sender_put(port);
    return NULL;
}
/* doc end */

static const struct task_kind collector_kind = {"collector", collector_poll, collector_drop};

static void results_come_from_another_thread(void **state)
{
    struct collector c = {.sum = 0};
    struct mpsc_remote *ch;
    pthread_t thread;
    /* doc: mpsc_remote_new */
    int rc = mpsc_remote_new(&(struct mpsc_remote_opts){.capacity = 8, /* a port */
                                                        .nports = 1,
                                                        .receiver = &mailbox,
                                                        .senders = (struct mailbox *const[]){NULL}},
                             &ch);
    /* doc end */
    assert_int_equal(rc, 0);
    mpsc_remote_recv_many_init(&c.recv, ch, c.items, 16);
    task_spawn(&sched, &c.task, &collector_kind);
    assert_int_equal(pthread_create(&thread, NULL, worker_main, mpsc_remote_port(ch, 0)), 0);
    loop_until_done(&c.task);
    assert_int_equal(c.sum, 36);
    pthread_join(thread, NULL);
    while (mailbox_drain(&mailbox, 64) > 0)
        ;
    mpsc_remote_free(ch);
}

/* doc: watch_value */
/* Limits that control changes and every core reads. */
struct limits {
    struct watch_value head;
    unsigned connections;
};

static void limits_free(struct watch_value *v) /* when no core can hold it any more */
{
    container_of(v, struct limits, head)->connections = 0;
}

/* On a core: good until its pass is over. */
static unsigned connections_now(const struct watch_remote *w)
{
    return container_of(watch_remote_get(w), struct limits, head)->connections;
}
/* doc end */

static void an_old_value_goes_when_nobody_can_hold_it(void **state)
{
    struct limits values[2] = {{.connections = 10}, {.connections = 20}};
    struct watch_remote w;
    struct watch_reader reader;
    struct rte_rcu_qsbr *qsbr = qsbr_new(1);
    watch_remote_init(&w,
                      &(struct watch_remote_opts){.first = &values[0].head,
                                                  .qsbr = qsbr,
                                                  .readers = &reader,
                                                  .mailboxes = (struct mailbox *const[]){&mailbox},
                                                  .nreaders = 1,
                                                  .free = limits_free});
    rte_rcu_qsbr_thread_online(qsbr, 0);
    assert_int_equal(connections_now(&w), 10);
    /* doc: publish */
    watch_remote_publish(&w, &values[1].head); /* control: never waits for a core */
    /* doc end */
    assert_int_equal(connections_now(&w), 20);
    assert_int_equal(watch_remote_reclaim(&w), 1);
    assert_int_equal(values[0].connections, 10); /* the core is in the same pass still */
    rte_rcu_qsbr_quiescent(qsbr, 0);
    assert_int_equal(watch_remote_reclaim(&w), 0);
    assert_int_equal(values[0].connections, 0);
    rte_rcu_qsbr_thread_offline(qsbr, 0);
    watch_remote_fini(&w);
    qsbr_free(qsbr);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(results_come_from_another_thread, set_up, tear_down),
        cmocka_unit_test_setup_teardown(an_old_value_goes_when_nobody_can_hold_it, set_up,
                                        tear_down),
    };
    return cmocka_run_group_tests_name("cores", tests, NULL, NULL);
}
