#include "runtime/batcher.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/deadline.h"

/* batch_add.state_ */
enum add_state {
    ADD_NEW,
    ADD_WAITING,  /* for room */
    ADD_IN,       /* in a batch, for its outcome */
    ADD_ANSWERED, /* status is set */
};

static struct batch_buffer *filling(struct batcher *b)
{
    return &b->buffers_[b->filling_];
}

int batcher_init(struct batcher *b, const struct batcher_opts *o)
{
    assert(o->sched && o->max_items > 0 && o->item_size > 0);
    *b = (struct batcher){.o_ = *o};
    list_init(&b->waiting_);
    for (unsigned i = 0; i < 2; i++) {
        list_init(&b->buffers_[i].callers_);
        b->buffers_[i].items_ = calloc(o->max_items, o->item_size);
        if (!b->buffers_[i].items_) {
            free(b->buffers_[0].items_);
            return -ENOMEM;
        }
    }
    return 0;
}

void batcher_fini(struct batcher *b)
{
    assert(!b->taker_ && !b->flush_ && list_is_empty(&b->waiting_));
    assert(list_is_empty(&filling(b)->callers_));
    free(b->buffers_[0].items_);
    free(b->buffers_[1].items_);
    *b = (struct batcher){0};
}

/* Why what is in is due. False when it is not, or nothing is in. */
static bool is_due(struct batcher *b, enum batch_why *ret_why)
{
    uint32_t count = filling(b)->count_;
    if (count == 0)
        return false;
    if (count == b->o_.max_items)
        *ret_why = BATCH_SIZE;
    else if (b->closed_)
        *ret_why = BATCH_CLOSED;
    else if (b->asked_)
        *ret_why = BATCH_ASKED;
    else if (deadline_is_past(b->due_at_, sched_now(b->o_.sched)))
        *ret_why = BATCH_DELAY;
    else
        return false;
    return true;
}

static void wake_taker(struct batcher *b)
{
    enum batch_why why;
    if (b->taker_ && (is_due(b, &why) || b->closed_))
        task_wake(b->taker_->task_);
}

/* The taker's alarm, while there is one; a batcher that nobody flushes needs no timer. */
static void set_alarm(struct batcher *b)
{
    if (b->taker_ && filling(b)->count_ > 0 && b->due_at_ != DEADLINE_NONE)
        sleep_arm(&b->taker_->sleep_, b->taker_->task_, b->due_at_);
}

static void put_item(struct batcher *b, const void *item)
{
    struct batch_buffer *buffer = filling(b);
    assert(buffer->count_ < b->o_.max_items);
    memcpy(buffer->items_ + buffer->count_++ * b->o_.item_size, item, b->o_.item_size);
    b->stats.added++;
    if (buffer->count_ == 1) {
        b->due_at_ = deadline_after(sched_now(b->o_.sched), b->o_.max_delay_ns);
        set_alarm(b);
    }
    wake_taker(b);
}

/* Nobody gets in before those who wait: take_batch() serves them first, so while any waits the
 * buffer is full. */
static bool has_room(struct batcher *b)
{
    bool is_full = filling(b)->count_ == b->o_.max_items;
    assert(is_full || list_is_empty(&b->waiting_));
    return !is_full;
}

int batcher_try_add(struct batcher *b, const void *item)
{
    if (b->closed_)
        return -EPIPE;
    if (!has_room(b)) {
        b->stats.refused++;
        return -EBUSY;
    }
    put_item(b, item);
    return 0;
}

static void answer(struct batch_add *a, int status)
{
    bool is_parked = a->state_ != ADD_NEW; /* else it is in its own poll */
    list_remove(&a->node_);
    a->f.status = status;
    a->state_ = ADD_ANSWERED;
    if (is_parked)
        task_wake(a->task_);
}

/* Who only wants the item in has his answer with it. */
static void let_in(struct batch_add *a)
{
    struct batcher *b = a->batcher_;
    list_remove(&a->node_);
    put_item(b, a->item_);
    a->is_in = true;
    if (a->await_flush_) {
        a->state_ = ADD_IN;
        list_push_tail(&filling(b)->callers_, &a->node_);
    } else {
        answer(a, 0);
    }
}

static void begin_add(struct batch_add *a)
{
    struct batcher *b = a->batcher_;
    if (b->closed_) {
        answer(a, -EPIPE);
    } else if (has_room(b)) {
        let_in(a);
    } else {
        a->state_ = ADD_WAITING;
        list_push_tail(&b->waiting_, &a->node_);
        b->stats.waited++;
    }
}

static enum poll add_poll(struct future *future, struct task *t)
{
    struct batch_add *a = container_of(future, struct batch_add, f);
    a->task_ = t;
    if (a->state_ == ADD_NEW)
        begin_add(a);
    return a->state_ == ADD_ANSWERED ? POLL_READY : POLL_PENDING;
}

static void add_drop(struct future *future)
{
    list_remove(&container_of(future, struct batch_add, f)->node_);
}

void batch_add_init(struct batch_add *a, struct batcher *b, const void *item, bool await_flush)
{
    static const struct future_kind kind = {"batch_add", add_poll, add_drop};
    *a = (struct batch_add){.batcher_ = b, .item_ = item, .await_flush_ = await_flush};
    future_init(&a->f, &kind);
}

/* The buffers change places, and who waited for room gets it. */
static void take_batch(struct batch_take *k, enum batch_why why)
{
    struct batcher *b = k->batcher_;
    struct list_node *n;
    k->items = filling(b)->items_;
    k->count = filling(b)->count_;
    k->why = why;
    b->stats.batches[why]++;
    b->flush_ = k;
    b->filling_ ^= 1;
    b->asked_ = false;
    while (filling(b)->count_ < b->o_.max_items && (n = list_first(&b->waiting_)))
        let_in(container_of(n, struct batch_add, node_));
}

static void stop_waiting(struct batch_take *k)
{
    if (k->batcher_->taker_ == k)
        k->batcher_->taker_ = NULL;
    sleep_cancel(&k->sleep_);
}

static enum poll take_poll(struct future *future, struct task *t)
{
    struct batch_take *k = container_of(future, struct batch_take, f);
    struct batcher *b = k->batcher_;
    enum batch_why why;
    assert(!b->flush_ && (!b->taker_ || b->taker_ == k));
    stop_waiting(k);
    if (is_due(b, &why)) {
        take_batch(k, why);
        return POLL_READY;
    }
    if (b->closed_) {
        future->status = -EPIPE;
        return POLL_READY;
    }
    b->taker_ = k;
    k->task_ = t;
    set_alarm(b);
    return POLL_PENDING;
}

static void take_drop(struct future *future)
{
    struct batch_take *k = container_of(future, struct batch_take, f);
    struct batcher *b = k->batcher_;
    stop_waiting(k);
    if (b->flush_ == k)
        batch_take_done(k, -ECANCELED);
}

void batch_take_init(struct batch_take *k, struct batcher *b)
{
    static const struct future_kind kind = {"batch_take", take_poll, take_drop};
    *k = (struct batch_take){.batcher_ = b};
    future_init(&k->f, &kind);
}

void batch_take_done(struct batch_take *k, int status)
{
    struct batcher *b = k->batcher_;
    struct batch_buffer *done = &b->buffers_[b->filling_ ^ 1];
    struct list_node *n;
    assert(b->flush_ == k && status <= 0);
    *(status == 0 ? &b->stats.flushed : &b->stats.failed) += done->count_;
    b->flush_ = NULL;
    done->count_ = 0;
    k->items = NULL;
    k->count = 0;
    while ((n = list_first(&done->callers_)))
        answer(container_of(n, struct batch_add, node_), status);
}

void batcher_flush(struct batcher *b)
{
    if (filling(b)->count_ == 0)
        return;
    b->asked_ = true;
    wake_taker(b);
}

void batcher_close(struct batcher *b)
{
    struct list_node *n;
    b->closed_ = true;
    while ((n = list_first(&b->waiting_)))
        answer(container_of(n, struct batch_add, node_), -EPIPE);
    wake_taker(b);
}
