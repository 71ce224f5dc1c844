#include "tests/examples/virtual.h"

#include <errno.h>
#include <poll.h>
#include <pthread.h>

#include "runtime/blocking.h"
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

/* doc: loop */
/* The skeleton of a core's loop: what has come, then a pass; asleep when there is nothing. */
static void loop_until(const bool *is_done)
{
    while (!*is_done) {
        mailbox_drain(&mailbox, 64);
        if (sched_step(&sched, START) || *is_done)
            continue;
        if (mailbox_prepare_sleep(&mailbox)) {
            struct pollfd fd = {.fd = mailbox_fd(&mailbox), .events = POLLIN};
            poll(&fd, 1, -1); /* or until sched_next_timeout() */
            mailbox_end_sleep(&mailbox);
        }
    }
}
/* doc end */

/* doc: actor */
/* An actor: whoever wants the counter changed sends it a message; only its core touches it. */
struct counter_actor {
    unsigned sum; /* the owner's alone */
    bool is_done;
};

struct add {
    struct mailbox_item item;
    struct counter_actor *to;
    unsigned n;
};

static void add_deliver(struct mailbox_item *item) /* on the owner's core */
{
    struct add *a = container_of(item, struct add, item);
    a->to->sum += a->n;
    a->to->is_done = a->to->sum == 42;
}

static void add_send(struct add *a, struct counter_actor *to, unsigned n) /* from any thread */
{
    *a = (struct add){.item = {.deliver = add_deliver}, .to = to, .n = n};
    mailbox_post(&mailbox, &a->item); /* neither allocates nor fails */
}
/* doc end */

static struct counter_actor actor;
static struct add adds[2];

static void *other_thread(void *arg)
{
    add_send(&adds[0], &actor, 2);
    add_send(&adds[1], &actor, 40);
    return NULL;
}

static void an_actor_is_told_from_another_thread(void **state)
{
    pthread_t thread;
    assert_int_equal(pthread_create(&thread, NULL, other_thread, NULL), 0);
    loop_until(&actor.is_done);
    assert_int_equal(actor.sum, 42);
    pthread_join(thread, NULL);
}

/* doc: remote */
/* A task that another thread wakes. The waker is a plain value, and harmless when it is late. */
struct listener {
    struct task task;
    struct remote_waker waker;
    atomic_bool rung; /* release by the ringer, acquire here */
    bool has_heard;
};

static enum poll listener_poll(struct task *t)
{
    struct listener *l = container_of(t, struct listener, task);
    l->has_heard = atomic_load_explicit(&l->rung, memory_order_acquire);
    return l->has_heard ? POLL_READY : POLL_PENDING;
}

static void listener_drop(struct task *t)
{
    remote_slot_put(&container_of(t, struct listener, task)->waker);
}

static void *ring(void *arg)
{
    struct listener *l = arg;
    struct remote_waker w = l->waker; /* before `rung`: the task may go at once */
    atomic_store_explicit(&l->rung, true, memory_order_release);
    remote_wake(w);
    return NULL;
}
/* doc end */

static const struct task_kind listener_kind = {"listener", listener_poll, listener_drop};

static void a_task_is_woken_from_another_thread(void **state)
{
    static struct listener l;
    pthread_t thread;
    assert_int_equal(remote_slot_take(&mailbox, &l.task, &l.waker), 0);
    task_spawn(&sched, &l.task, &listener_kind);
    sched_step(&sched, START);
    assert_int_equal(pthread_create(&thread, NULL, ring, &l), 0);
    loop_until(&l.has_heard);
    pthread_join(thread, NULL);
}

/* doc: job */
/* Sums up a file's worth of bytes off the core. */
struct digest {
    struct blocking_job job;
    struct task *waiter;
    const unsigned char *bytes;
    size_t len;
    unsigned sum;
    bool is_back;
};

static void digest_run(struct blocking_job *job) /* a pool thread: it may block */
{
    struct digest *d = container_of(job, struct digest, job);
    for (size_t i = 0; i < d->len; i++)
        d->sum += d->bytes[i];
}

static void digest_done(struct blocking_job *job) /* our core again */
{
    struct digest *d = container_of(job, struct digest, job);
    d->is_back = true;
    if (d->waiter)
        task_wake(d->waiter);
}

static enum poll digest_poll(struct digest *d, struct task *t)
{
    d->waiter = t;
    return d->is_back ? POLL_READY : POLL_PENDING;
}

/* The job can't be taken back once it runs: its memory must stay until `done`. */
static void digest_drop(struct digest *d)
{
    d->waiter = NULL;
    blocking_cancel(&d->job);
}
/* doc end */

struct client {
    struct task task;
    struct digest *digest;
    bool has_sum;
};

static enum poll client_poll(struct task *t)
{
    struct client *c = container_of(t, struct client, task);
    if (digest_poll(c->digest, t) == POLL_PENDING)
        return POLL_PENDING;
    c->has_sum = true;
    return POLL_READY;
}

static void client_drop(struct task *t)
{
    digest_drop(container_of(t, struct client, task)->digest);
}

static const struct task_kind client_kind = {"client", client_poll, client_drop};

static void work_comes_back_as_a_wake_up(void **state)
{
    static const unsigned char bytes[1000] = {[3] = 40, [999] = 2};
    static struct digest digest;
    static struct client client;
    struct blocking *pool;
    /* doc: pool */
    static const struct blocking_class classes[] = {
        {.name = "parse", .max_running = 1, .max_queued = 16},
    };
    int rc = blocking_new(
        &(struct blocking_opts){
            .threads = 2, .classes = classes, .nclasses = 1, .spin_ns = 20 * US},
        &pool);
    /* doc end */
    assert_int_equal(rc, 0);
    /* doc: submit */
    digest = (struct digest){
        .job = {.run = digest_run, .done = digest_done, .reply = &mailbox, .class = 0},
        .bytes = bytes,
        .len = sizeof(bytes)};
    rc = blocking_submit(pool, &digest.job); /* -EBUSY: shed it now */
    /* doc end */
    assert_int_equal(rc, 0);
    client.digest = &digest;
    task_spawn(&sched, &client.task, &client_kind);
    loop_until(&client.has_sum);
    assert_int_equal(digest.sum, 42);
    blocking_stop(pool, BLOCKING_RETURN);
    blocking_free(pool);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(an_actor_is_told_from_another_thread, set_up, tear_down),
        cmocka_unit_test_setup_teardown(a_task_is_woken_from_another_thread, set_up, tear_down),
        cmocka_unit_test_setup_teardown(work_comes_back_as_a_wake_up, set_up, tear_down),
    };
    return cmocka_run_group_tests_name("threads", tests, NULL, NULL);
}
