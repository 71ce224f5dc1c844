#include "tests/examples/virtual.h"

#include <errno.h>

#include "runtime/chan_broadcast.h"
#include "runtime/chan_mpsc.h"
#include "runtime/chan_oneshot.h"
#include "runtime/chan_watch.h"

static struct sched sched;

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

struct record {
    unsigned bytes;
};

/* doc: mpsc_send */
/* Reports ten records and waits whenever the writer is behind. */
struct reporter {
    struct task task;
    struct mpsc *to;
    struct mpsc_send send;
    bool is_sending;
    struct record records[10];
    unsigned sent;
};

static enum poll reporter_poll(struct task *t)
{
    struct reporter *r = container_of(t, struct reporter, task);
    while (r->sent < 10) {
        if (!r->is_sending)
            mpsc_send_init(&r->send, r->to, &r->records[r->sent]);
        r->is_sending = mpsc_send_poll(&r->send, t) == POLL_PENDING;
        if (r->is_sending)
            return POLL_PENDING;
        if (r->send.future.status < 0)
            return POLL_READY; /* -EPIPE: nobody reads any more; the record is still ours */
        r->sent++;
    }
    return POLL_READY;
}

static void reporter_drop(struct task *t)
{
    struct reporter *r = container_of(t, struct reporter, task);
    if (r->is_sending)
        mpsc_send_drop(&r->send);
    mpsc_sender_put(r->to);
}
/* doc end */

static const struct task_kind reporter_kind = {"reporter", reporter_poll, reporter_drop};

/* doc: mpsc_recv */
/* Writes what has come, as much at once as there is. */
struct writer {
    struct task task;
    struct mpsc_recv_many recv;
    void *items[8];
    unsigned bytes, writes;
};

static enum poll writer_poll(struct task *t)
{
    struct writer *w = container_of(t, struct writer, task);
    while (mpsc_recv_many_poll(&w->recv, t) == POLL_READY) {
        if (w->recv.future.status < 0)
            return POLL_READY; /* -EPIPE: the last sender has gone, and nothing is left */
        w->writes++;
        for (unsigned i = 0; i < w->recv.n; i++)
            w->bytes += ((struct record *)w->items[i])->bytes;
        if (!task_consume(t, w->recv.n))
            return POLL_PENDING;
    }
    return POLL_PENDING;
}

static void writer_drop(struct task *t)
{
    mpsc_recv_many_drop(&container_of(t, struct writer, task)->recv);
}
/* doc end */

static const struct task_kind writer_kind = {"writer", writer_poll, writer_drop};

static void senders_wait_for_the_receiver(void **state)
{
    struct writer w = {.bytes = 0};
    struct reporter a = {.sent = 0}, b = {.sent = 0};
    for (unsigned i = 0; i < 10; i++)
        a.records[i].bytes = b.records[i].bytes = 100;
    /* doc: mpsc_init */
    struct mpsc ch;
    void *slots[4]; /* the bound */
    mpsc_init(&ch, slots, 4);
    mpsc_recv_many_init(&w.recv, &ch, w.items, 8);
    mpsc_sender_get(&ch); /* a second sender */
    a.to = b.to = &ch;
    /* doc end */
    task_spawn(&sched, &a.task, &reporter_kind);
    task_spawn(&sched, &b.task, &reporter_kind);
    sched_step(&sched, START);
    assert_int_equal(mpsc_len(&ch), 4);
    assert_int_equal(mpsc_free(&ch), 0);
    task_spawn(&sched, &w.task, &writer_kind);
    virtual_run(&sched);
    assert_int_equal(w.bytes, 2000);
    assert_true(w.writes < 20); /* together, not one by one */
    assert_false(task_is_live(&w.task));
    mpsc_fini(&ch);
}

static void a_reserved_slot_cannot_fail(void **state)
{
    struct mpsc ch;
    void *slots[1], *item = NULL;
    struct record record = {.bytes = 7};
    mpsc_init(&ch, slots, 1);
    /* doc: mpsc_reserve */
    struct mpsc_permit permit;
    if (mpsc_try_reserve(&ch, &permit) < 0)
        return; /* no room: better known before the work is done */
    record.bytes *= 2;
    mpsc_permit_send(&permit, &record);
    /* doc end */
    assert_int_equal(mpsc_try_send(&ch, &record), -EAGAIN);
    assert_int_equal(mpsc_try_recv(&ch, &item), 0);
    assert_int_equal(((struct record *)item)->bytes, 14);
    mpsc_sender_put(&ch);
    mpsc_fini(&ch);
}

/* doc: oneshot */
/* Asks for an answer; who answers may go without one. */
struct question {
    struct task task;
    struct oneshot_rx answer;
    int status;
};

static enum poll question_poll(struct task *t)
{
    struct question *q = container_of(t, struct question, task);
    if (oneshot_recv_poll(&q->answer, t) == POLL_PENDING)
        return POLL_PENDING;
    q->status = q->answer.future.status; /* 0: answer.value; -EPIPE: dropped unanswered */
    return POLL_READY;
}

static void question_drop(struct task *t)
{
    oneshot_rx_drop(&container_of(t, struct question, task)->answer);
}
/* doc end */

static const struct task_kind question_kind = {"question", question_poll, question_drop};

static void an_answer_comes_once_or_never(void **state)
{
    struct question heard = {.status = 1}, unheard = {.status = 1};
    struct oneshot_tx heard_tx, unheard_tx;
    int answer = 42;
    oneshot_init(&heard_tx, &heard.answer);
    oneshot_init(&unheard_tx, &unheard.answer);
    task_spawn(&sched, &heard.task, &question_kind);
    task_spawn(&sched, &unheard.task, &question_kind);
    virtual_run(&sched);
    assert_int_equal(oneshot_send(&heard_tx, &answer), 0);
    oneshot_tx_drop(&unheard_tx);
    virtual_run(&sched);
    assert_int_equal(heard.status, 0);
    assert_ptr_equal(heard.answer.value, &answer);
    assert_int_equal(unheard.status, -EPIPE);
}

struct event {
    unsigned number;
};

/* doc: broadcast */
/* A subscriber of the event stream: shows how many it has missed. */
struct subscriber {
    struct task task;
    struct broadcast_rx rx;
    struct event event;
    unsigned seen, missed;
};

static enum poll subscriber_poll(struct task *t)
{
    struct subscriber *s = container_of(t, struct subscriber, task);
    while (broadcast_recv_poll(&s->rx, t) == POLL_READY) {
        if (s->rx.future.status == -EPIPE)
            return POLL_READY;
        if (s->rx.future.status == -EOVERFLOW)
            s->missed += s->rx.lagged; /* and goes on at the oldest that is left */
        else
            s->seen++; /* s->event is a copy */
        if (!task_consume(t, 1))
            return POLL_PENDING;
    }
    return POLL_PENDING;
}

static void subscriber_drop(struct task *t)
{
    broadcast_unsubscribe(&container_of(t, struct subscriber, task)->rx);
}
/* doc end */

static const struct task_kind subscriber_kind = {"subscriber", subscriber_poll, subscriber_drop};

static void who_is_slow_learns_how_much_it_lost(void **state)
{
    struct broadcast ch;
    struct event slots[8];
    struct subscriber s = {.seen = 0};
    broadcast_init(&ch, slots, 8, sizeof(struct event));
    broadcast_subscribe(&ch, &s.rx, &s.event);
    task_spawn(&sched, &s.task, &subscriber_kind);
    virtual_run(&sched);
    for (unsigned i = 0; i < 20; i++)
        broadcast_send(&ch, &(struct event){.number = i});
    virtual_run(&sched);
    assert_int_equal(s.missed, 12);
    assert_int_equal(s.seen, 8);
    assert_int_equal(s.event.number, 19);
    broadcast_close(&ch);
    virtual_run(&sched);
    assert_false(task_is_live(&s.task));
    broadcast_fini(&ch);
}

struct limits {
    unsigned connections;
};

/* doc: watch */
/* Follows the limits; of three changes at once it sees the last. */
struct follower {
    struct task task;
    struct watch *limits;
    struct watch_changed changed;
    unsigned now, changes;
};

static enum poll follower_poll(struct task *t)
{
    struct follower *f = container_of(t, struct follower, task);
    while (watch_changed_poll(&f->changed, t) == POLL_READY) {
        if (f->changed.future.status < 0)
            return POLL_READY; /* -EPIPE: it will not change any more */
        const struct limits *limits = watch_get(f->limits); /* good until we return */
        f->now = limits->connections;
        f->changes++;
    }
    return POLL_PENDING;
}

static void follower_drop(struct task *t)
{
    watch_changed_drop(&container_of(t, struct follower, task)->changed);
}
/* doc end */

static const struct task_kind follower_kind = {"follower", follower_poll, follower_drop};

static void the_latest_value_wins(void **state)
{
    struct limits values[3] = {{10}, {20}, {30}};
    struct watch w;
    struct follower f = {.limits = &w};
    watch_init(&w, &values[0]);
    watch_changed_init(&f.changed, &w);
    task_spawn(&sched, &f.task, &follower_kind);
    virtual_run(&sched);
    assert_ptr_equal(watch_send(&w, &values[1]), &values[0]);
    assert_ptr_equal(watch_send(&w, &values[2]), &values[1]);
    virtual_run(&sched);
    assert_int_equal(f.now, 30);
    assert_int_equal(f.changes, 1);
    watch_close(&w);
    virtual_run(&sched);
    assert_false(task_is_live(&f.task));
    watch_fini(&w);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(senders_wait_for_the_receiver, set_up, tear_down),
        cmocka_unit_test_setup_teardown(a_reserved_slot_cannot_fail, set_up, tear_down),
        cmocka_unit_test_setup_teardown(an_answer_comes_once_or_never, set_up, tear_down),
        cmocka_unit_test_setup_teardown(who_is_slow_learns_how_much_it_lost, set_up, tear_down),
        cmocka_unit_test_setup_teardown(the_latest_value_wins, set_up, tear_down),
    };
    return cmocka_run_group_tests_name("channels", tests, NULL, NULL);
}
