#include "tests/examples/virtual.h"

#include <errno.h>

#include "runtime/mailbox.h"
#include "runtime/permits.h"
#include "runtime/semaphore.h"

static struct sched sched;

/* doc: semaphore */
/* A handshake: heavy, so only a few at once, and none after the client's patience. */
struct handshake {
    struct task task;
    struct semaphore_timed slot;
    struct permit permit;
    struct sleep work;
    uint64_t ends;
    int status;
};

static enum poll handshake_poll(struct task *t)
{
    struct handshake *h = container_of(t, struct handshake, task);
    if (!permit_is_held(&h->permit)) {
        if (future_poll(&h->slot.acquire.future, t) == POLL_PENDING)
            return POLL_PENDING;
        h->status = h->slot.acquire.future.status;
        if (h->status < 0)
            return POLL_READY; /* -ETIMEDOUT, -EBUSY: refuse the client */
        h->permit = permit_take(&h->slot.acquire.permit);
        h->ends = task_now(t) + 10 * MS;
    }
    if (task_now(t) < h->ends) {
        sleep_arm(&h->work, t, h->ends);
        return POLL_PENDING;
    }
    return POLL_READY;
}

static void handshake_drop(struct task *t)
{
    struct handshake *h = container_of(t, struct handshake, task);
    future_drop(&h->slot.acquire.future);
    sleep_cancel(&h->work);
    permit_put(&h->permit); /* however it ended */
}
/* doc end */

static const struct task_kind handshake_kind = {"handshake", handshake_poll, handshake_drop};

static void a_permit_goes_back_however_it_ended(void **state)
{
    struct semaphore slots;
    struct handshake h[4] = {{.status = 1}, {.status = 1}, {.status = 1}, {.status = 1}};
    sched_init(&sched, &(struct sched_opts){.now = START});
    semaphore_init(&slots, 2);
    for (unsigned i = 0; i < 4; i++) {
        semaphore_timed_init(&h[i].slot, &slots, 1, START + (i == 3 ? 5 * MS : 60 * S));
        task_spawn(&sched, &h[i].task, &handshake_kind);
    }
    sched_step(&sched, START);
    assert_int_equal(semaphore_in_use(&slots), 2);
    assert_int_equal(semaphore_waiting(&slots), 2);
    virtual_run_until(&sched, START + 1 * MS);
    task_abort(&h[0].task); /* its permit goes to the third */
    assert_int_equal(virtual_run(&sched), START + 11 * MS);
    assert_int_equal(h[2].status, 0);
    assert_int_equal(h[3].status, -ETIMEDOUT);
    assert_int_equal(semaphore_in_use(&slots), 0);
    semaphore_fini(&slots);
    sched_fini(&sched);
}

/* doc: permits */
/* A request to an upstream that takes so many at once, from all cores together. */
struct request {
    struct task task;
    struct permits_acquire acquire;
    struct leased_permit permit;
    struct sleep work;
    uint64_t ends;
    int status;
};

static enum poll request_poll(struct task *t)
{
    struct request *r = container_of(t, struct request, task);
    if (!leased_permit_is_held(&r->permit)) {
        if (future_poll(&r->acquire.future, t) == POLL_PENDING)
            return POLL_PENDING;
        r->status = r->acquire.future.status;
        if (r->status < 0)
            return POLL_READY;
        r->permit = leased_permit_take(&r->acquire.permit);
        r->ends = task_now(t) + 10 * MS;
    }
    if (task_now(t) < r->ends) {
        sleep_arm(&r->work, t, r->ends);
        return POLL_PENDING;
    }
    return POLL_READY;
}

static void request_drop(struct task *t)
{
    struct request *r = container_of(t, struct request, task);
    future_drop(&r->acquire.future);
    sleep_cancel(&r->work);
    leased_permit_put(&r->permit);
}
/* doc end */

static const struct task_kind request_kind = {"request", request_poll, request_drop};

static void run_with_mailbox(struct mailbox *mb, uint64_t until)
{
    for (uint64_t now = sched_now(&sched); now < until; now += 1 * MS) {
        do
            mailbox_drain(mb, 64);
        while (sched_step(&sched, now) || mailbox_is_pending(mb));
    }
}

static void a_global_limit_is_leased(void **state)
{
    struct mailbox mailbox;
    struct request r[5] = {
        {.status = 1}, {.status = 1}, {.status = 1}, {.status = 1}, {.status = 1}};
    sched_init(&sched, &(struct sched_opts){.now = START});
    assert_int_equal(mailbox_init(&mailbox), 0);
    /* doc: permits_new */
    struct permits *permits; /* control's */
    if (permits_new(&(struct permits_opts){.limit = 3, .cores = 1, .queue = 1}, &permits) < 0)
        return;
    struct permits_core *mine = permits_join(permits, 0, &sched, &mailbox); /* each core's */
    /* doc end */
    for (unsigned i = 0; i < 5; i++) {
        permits_acquire_init(&r[i].acquire, mine, START + 60 * S);
        task_spawn(&sched, &r[i].task, &request_kind);
    }
    sched_step(&sched, START);
    assert_int_equal(permits_in_use(permits), 3);
    assert_int_equal(r[4].status, -EBUSY); /* one may wait */
    run_with_mailbox(&mailbox, START + 100 * MS);
    assert_int_equal(r[3].status, 0);
    assert_int_equal(permits_in_use(permits), 0);
    assert_int_equal(permits_leased(permits), 0); /* idle leases have gone back */
    permits_leave(mine);
    mailbox_drain(&mailbox, 64);
    permits_free(permits);
    mailbox_fini(&mailbox);
    sched_fini(&sched);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_permit_goes_back_however_it_ended),
        cmocka_unit_test(a_global_limit_is_leased),
    };
    return cmocka_run_group_tests_name("permits", tests, NULL, NULL);
}
