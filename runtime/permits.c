/* Orders and their pairs. All that is written here is sequentially consistent, and so is what is
 * read off the fast path (permits.h says why that one needs no order). Pairs of Dekker's kind, in
 * each of which at least one side sees the other:
 *  - word_ and waiting_: who gives permits back writes word_, then reads waiting_; who begins to
 *    wait writes waiting_, then reads word_.
 *  - holders_ and waiting_: who begins to cache writes holders_, then reads waiting_; who begins to
 *    wait writes waiting_, then reads holders_.
 *  - epoch_ and waiting_: who closes writes epoch_, then reads waiting_; who begins to wait does it
 *    the other way round.
 * The limit and the number leased share one word, so that no lease slips past a lowered limit.
 *
 * A turn is a gift: who finds a permit free leases it for the core whose turn it is, and sends it
 * there. It stays leased on its way, so that nobody who comes in between can take it, and a core
 * with a slow pass gets its turn like any other.
 *
 * What must hold whenever no core is inside: if a permit is free and a core waits, a gift is on its
 * way to that core. Whoever makes a permit free calls settle(), and so does who gets a message.
 * tests/unit/test_interleave_permits.c tries every interleaving. */
#include "runtime/permits.h"

#include <stdlib.h>
#include <string.h>

#define EPOCH_CLOSED 1u
#define EPOCH_STEP   2u

static_assert(offsetof(struct permits_core, sched_) == 64, "the hot path is on one line");

static uint32_t limit_of(uint64_t word)
{
    return (uint32_t)(word >> 32);
}

static uint32_t leased_of(uint64_t word)
{
    return (uint32_t)word;
}

static uint32_t free_of(uint64_t word)
{
    return limit_of(word) > leased_of(word) ? limit_of(word) - leased_of(word) : 0;
}

static uint64_t word_load(const struct permits *p)
{
    return atomic_load_explicit(&p->word_, memory_order_seq_cst);
}

static uint64_t waiting_load(const struct permits *p)
{
    return atomic_load_explicit(&p->waiting_, memory_order_seq_cst);
}

static uint64_t epoch_load(const struct permits *p)
{
    return atomic_load_explicit(&p->epoch_, memory_order_seq_cst);
}

static uint64_t holders_load(const struct permits *p)
{
    return atomic_load_explicit(&p->holders_, memory_order_seq_cst);
}

static uint64_t joined_load(const struct permits *p)
{
    return atomic_load_explicit(&p->joined_, memory_order_seq_cst);
}

static uint64_t bit_of(const struct permits_core *c)
{
    return 1ull << c->index_;
}

static uint32_t chunk_of(const struct permits *p, uint64_t word)
{
    uint32_t chunk = limit_of(word) / (8 * p->ncores_);
    return chunk > 0 ? chunk : 1;
}

static void poke(struct permits *p, unsigned index)
{
    struct permits_core *c = &p->cores_[index];
    mailbox_post(c->mailbox_, &c->item_);
}

static void poke_all(struct permits *p, uint64_t cores)
{
    for (; cores; cores &= cores - 1)
        poke(p, (unsigned)__builtin_ctzll(cores));
}

/* The next core in turn after the last one, of those in the non-empty set. */
static unsigned next_in_turn(struct permits *p, uint64_t cores)
{
    unsigned last = atomic_load_explicit(&p->last_, memory_order_relaxed);
    uint64_t after = last < 63 ? cores & ~0ull << (last + 1) : 0;
    unsigned next = (unsigned)__builtin_ctzll(after ? after : cores);
    /* Races only make a turn unfair by one. */
    atomic_store_explicit(&p->last_, next, memory_order_relaxed);
    return next;
}

static bool lease_one(struct permits *p)
{
    uint64_t word = word_load(p);
    do {
        if (free_of(word) == 0)
            return false;
    } while (!atomic_compare_exchange_weak_explicit(&p->word_, &word, word + 1,
                                                    memory_order_seq_cst, memory_order_seq_cst));
    return true;
}

/* Up to a chunk; returns how many, and the chunk's size. */
static uint32_t lease_chunk(struct permits *p, uint32_t *ret_chunk)
{
    uint64_t word = word_load(p);
    uint32_t n;
    do {
        *ret_chunk = chunk_of(p, word);
        n = free_of(word) < *ret_chunk ? free_of(word) : *ret_chunk;
        if (n == 0)
            return 0;
    } while (!atomic_compare_exchange_weak_explicit(&p->word_, &word, word + n,
                                                    memory_order_seq_cst, memory_order_seq_cst));
    return n;
}

/* settle() follows. */
static void give_back(struct permits *p, uint32_t n)
{
    atomic_fetch_sub_explicit(&p->word_, n, memory_order_seq_cst);
}

/* Everything cached goes back, and what is released from now on too; settle() follows. */
static void drop_cache(struct permits_core *c)
{
    struct permits *p = c->permits_;
    uint32_t n = c->cached_;
    c->cached_ = 0;
    if (c->keeps_) {
        c->keeps_ = false;
        timer_cancel(&c->sched_->wheel, &c->idle_);
        atomic_fetch_and_explicit(&p->holders_, ~bit_of(c), memory_order_seq_cst);
    }
    if (n > 0)
        give_back(p, n);
}

static struct permits_acquire *acquire_of(struct list_node *n)
{
    return container_of(n, struct permits_acquire, node_);
}

/* Takes one out of the queue and wakes it: its future finds what became of it. */
static void end_wait(struct permits_acquire *a)
{
    struct permits_core *c = a->core_;
    assert(list_is_linked(&a->node_) && c->nqueue_ > 0);
    list_remove(&a->node_);
    counter_set(&c->waiting, --c->nqueue_);
    if (c->nqueue_ == 0)
        atomic_fetch_and_explicit(&c->permits_->waiting_, ~bit_of(c), memory_order_seq_cst);
    if (a->task_)
        task_wake(a->task_);
}

static void hold(struct permits_core *c, struct leased_permit *ret_permit)
{
    counter_add(&c->in_use_, 1);
    ret_permit->core_ = c;
}

/* Gives one leased permit to one who waits here. Back it goes when the discipline has left nobody;
 * settle() follows, or is running. */
static void use_one(struct permits_core *c)
{
    struct permits *p = c->permits_;
    struct permits_acquire *a = NULL;
    if (c->nqueue_ > 0)
        a = p->discipline_->pick(c, sched_now(c->sched_));
    if (!a) {
        assert(c->nqueue_ == 0);
        give_back(p, 1);
        return;
    }
    hold(c, &a->permit);
    end_wait(a);
}

/* Sends what is free to the cores that wait, in turn and one each: a core that gets one looks for
 * more itself. `self`: the calling core, or NULL. */
static void settle(struct permits *p, struct permits_core *self)
{
    uint64_t given = 0, waiting;
    while ((waiting = waiting_load(p) & ~given) && lease_one(p)) {
        unsigned i = next_in_turn(p, waiting);
        if (self && i == self->index_) {
            use_one(self);
            continue;
        }
        given |= 1ull << i;
        atomic_fetch_add_explicit(&p->cores_[i].gifts_, 1, memory_order_release);
        poke(p, i);
    }
}

/* Not those that a limit lowered meanwhile forbids; settle() follows. */
static void use_gifts(struct permits_core *c, uint32_t n)
{
    struct permits *p = c->permits_;
    for (; n > 0 && c->nqueue_ > 0; n--) {
        uint64_t word = word_load(p);
        if (leased_of(word) > limit_of(word))
            break;
        use_one(c);
    }
    if (n > 0)
        give_back(p, n);
}

static void fail_all(struct permits_core *c)
{
    struct list_node *n;
    while ((n = list_first(&c->queue_)))
        permits_refuse(acquire_of(n), -ESHUTDOWN);
}

static bool is_closed(const struct permits *p)
{
    return epoch_load(p) & EPOCH_CLOSED;
}

/* What we keep stands in the way of someone, or it is our turn. */
static void on_poke(struct mailbox_item *item)
{
    struct permits_core *c = container_of(item, struct permits_core, item_);
    struct permits *p = c->permits_;
    uint32_t gifts = atomic_exchange_explicit(&c->gifts_, 0, memory_order_acquire);
    drop_cache(c);
    if (is_closed(p))
        fail_all(c);
    if (p->wanted_ && !c->left_ && waiting_load(p))
        p->wanted_(c);
    use_gifts(c, gifts);
    settle(p, c);
}

static void on_idle(struct timer *t, uint64_t now)
{
    struct permits_core *c = container_of(t, struct permits_core, idle_);
    if (c->used_) {
        c->used_ = false;
        timer_arm(&c->sched_->wheel, t, now + PERMITS_IDLE_NS);
        return;
    }
    drop_cache(c);
    settle(c->permits_, c);
}

/* The cache is empty: fills it. False when there is nothing to lease. */
static bool refill(struct permits_core *c)
{
    struct permits *p = c->permits_;
    uint32_t chunk, n = lease_chunk(p, &chunk);
    if (n == 0)
        return false;
    c->cached_ = n;
    c->cached_max_ = 2 * chunk;
    return true;
}

/* From now on this core may keep what is released; false when it had better not. */
static bool begin_keeping(struct permits_core *c)
{
    struct permits *p = c->permits_;
    c->keeps_ = true;
    timer_arm(&c->sched_->wheel, &c->idle_, sched_now(c->sched_) + PERMITS_IDLE_NS);
    atomic_fetch_or_explicit(&p->holders_, bit_of(c), memory_order_seq_cst);
    return waiting_load(p) == 0;
}

/* 0, -ESHUTDOWN, or -EAGAIN: others wait, or nothing is left to lease. */
static int acquire_now(struct permits_core *c, struct leased_permit *ret_permit)
{
    struct permits *p = c->permits_;
    uint64_t epoch = epoch_load(p);
    assert(!c->left_);
    if (epoch & EPOCH_CLOSED)
        return -ESHUTDOWN;
    if (waiting_load(p) || epoch != c->epoch_) {
        drop_cache(c);
        settle(p, c);
        if (waiting_load(p))
            return -EAGAIN;
        c->epoch_ = epoch;
    }
    if (c->cached_ == 0 && !refill(c))
        return -EAGAIN;
    c->cached_--;
    c->used_ = true;
    hold(c, ret_permit);
    if (!c->keeps_ && !begin_keeping(c)) {
        drop_cache(c);
        settle(p, c);
    }
    return 0;
}

int permits_try_slow_(struct permits_core *c, struct leased_permit *ret_permit)
{
    int rc = acquire_now(c, ret_permit);
    if (rc == -EAGAIN)
        poke_all(c->permits_, holders_load(c->permits_) & ~bit_of(c));
    return rc;
}

/* The permit released is in cached_. */
void permits_put_slow_(struct permits_core *c)
{
    struct permits *p = c->permits_;
    if (c->keeps_ && permits_is_calm_(c)) {
        uint32_t n = c->cached_max_ / 2;
        c->cached_ -= n;
        give_back(p, n);
    } else {
        drop_cache(c);
    }
    settle(p, c);
}

/* The first waiter of this core: others shall know, and what they keep is wanted. */
static void begin_waiting(struct permits_core *c)
{
    struct permits *p = c->permits_;
    drop_cache(c);
    atomic_fetch_or_explicit(&p->waiting_, bit_of(c), memory_order_seq_cst);
    poke_all(p, p->wanted_ ? joined_load(p) : holders_load(p));
    if (is_closed(p))
        fail_all(c);
    /* What came free before our bit could be seen. */
    settle(p, c);
}

static void join_queue(struct permits_acquire *a, struct task *t)
{
    struct permits_core *c = a->core_;
    a->since = task_now(t);
    list_push_tail(&c->queue_, &a->node_);
    counter_set(&c->waiting, ++c->nqueue_);
    counter_inc(&c->waits);
    if (c->nqueue_ == 1)
        begin_waiting(c);
    else if (c->permits_->wanted_)
        poke_all(c->permits_, joined_load(c->permits_)); /* one more has to be released */
}

/* First poll: takes what is free or joins the queue. */
static enum poll begin(struct permits_acquire *a, struct task *t)
{
    struct permits_core *c = a->core_;
    int rc = permits_try_cache_(c, &a->permit) ? 0 : acquire_now(c, &a->permit);
    if (rc == -EAGAIN && c->nqueue_ < c->permits_->queue_max_) {
        join_queue(a, t);
        return list_is_linked(&a->node_) ? POLL_PENDING : POLL_READY;
    }
    if (rc == -EAGAIN) {
        counter_inc(&c->refused);
        rc = -EBUSY;
    }
    a->future.status = rc;
    return POLL_READY;
}

static enum poll wait_on(struct permits_acquire *a, struct task *t)
{
    if (task_now(t) >= a->deadline) {
        counter_inc(&a->core_->timed_out);
        a->task_ = NULL;
        permits_refuse(a, -ETIMEDOUT);
        return POLL_READY;
    }
    a->task_ = t;
    if (a->deadline != UINT64_MAX)
        sleep_arm(&a->sleep_, t, a->deadline);
    return POLL_PENDING;
}

static enum poll acquire_poll(struct future *f, struct task *t)
{
    struct permits_acquire *a = container_of(f, struct permits_acquire, future);
    assert(task_sched(t) == a->core_->sched_);
    enum poll p = POLL_READY;
    if (!list_is_linked(&a->node_)) {
        if (!task_consume(t, 1))
            return POLL_PENDING;
        if (!a->task_)
            p = begin(a, t);
    }
    if (list_is_linked(&a->node_))
        p = wait_on(a, t);
    if (p == POLL_READY)
        sleep_cancel(&a->sleep_);
    return p;
}

static void acquire_drop(struct future *f)
{
    struct permits_acquire *a = container_of(f, struct permits_acquire, future);
    sleep_cancel(&a->sleep_);
    a->task_ = NULL;
    if (list_is_linked(&a->node_))
        end_wait(a);
    leased_permit_put(&a->permit);
}

static const struct future_kind acquire_kind = {"permits_acquire", acquire_poll, acquire_drop};

void permits_acquire_init(struct permits_acquire *a, struct permits_core *c, uint64_t deadline)
{
    /* Field by field: clearing all of it costs more than an acquire, and the sleep needs no more
     * than not to be armed. */
    future_init(&a->future, &acquire_kind);
    a->permit.core_ = NULL;
    a->deadline = deadline;
    a->since = 0;
    a->core_ = c;
    a->task_ = NULL;
    a->node_ = (struct list_node){NULL, NULL};
    a->sleep_.timer.node_ = (struct list_node){NULL, NULL};
}

void permits_refuse(struct permits_acquire *a, int status)
{
    a->future.status = status;
    end_wait(a);
}

struct permits_acquire *permits_queue_first(struct permits_core *c)
{
    struct list_node *n = list_first(&c->queue_);
    return n ? acquire_of(n) : NULL;
}

struct permits_acquire *permits_queue_last(struct permits_core *c)
{
    struct list_node *n = list_last(&c->queue_);
    return n ? acquire_of(n) : NULL;
}

struct permits_acquire *permits_queue_next(struct permits_core *c, struct permits_acquire *a)
{
    struct list_node *n = a->node_.next;
    return n != &c->queue_ ? acquire_of(n) : NULL;
}

static struct permits_acquire *pick_first(struct permits_core *c, uint64_t now)
{
    (void)now;
    return permits_queue_first(c);
}

const struct permits_discipline permits_fifo = {"fifo", pick_first};

int permits_new(const struct permits_opts *o, struct permits **ret_permits)
{
    assert(o->cores > 0 && o->cores <= PERMITS_MAX_CORES);
    size_t size = sizeof(struct permits) + o->cores * sizeof(struct permits_core);
    struct permits *p = aligned_alloc(64, size);
    if (!p)
        return -ENOMEM;
    memset(p, 0, size);
    p->ncores_ = o->cores;
    p->queue_max_ = o->queue;
    p->discipline_ = o->discipline ? o->discipline : &permits_fifo;
    p->wanted_ = o->wanted;
    atomic_store_explicit(&p->word_, (uint64_t)o->limit << 32, memory_order_relaxed);
    *ret_permits = p;
    return 0;
}

void permits_free(struct permits *p)
{
    if (!p)
        return;
    assert(leased_of(word_load(p)) == 0 && waiting_load(p) == 0 && joined_load(p) == 0);
    free(p);
}

/* Writes the limit; returns the one before. */
static uint32_t replace_limit(struct permits *p, uint32_t limit)
{
    uint64_t word = word_load(p);
    while (!atomic_compare_exchange_weak_explicit(&p->word_, &word,
                                                  (uint64_t)limit << 32 | leased_of(word),
                                                  memory_order_seq_cst, memory_order_seq_cst))
        ;
    return limit_of(word);
}

/* The word first, then the epoch: who has seen the new epoch leases under the new limit. What is
 * cached under the old one can't be used any more, and goes back as soon as anyone wants it. */
void permits_set_limit(struct permits *p, uint32_t limit)
{
    if (is_closed(p))
        return;
    if (replace_limit(p, limit) > limit)
        atomic_fetch_add_explicit(&p->epoch_, EPOCH_STEP, memory_order_seq_cst);
    settle(p, NULL);
}

void permits_close(struct permits *p)
{
    uint64_t epoch = atomic_fetch_or_explicit(&p->epoch_, EPOCH_CLOSED, memory_order_seq_cst);
    if (epoch & EPOCH_CLOSED)
        return;
    replace_limit(p, 0);
    poke_all(p, waiting_load(p));
}

uint32_t permits_limit(const struct permits *p)
{
    return limit_of(word_load(p));
}

uint32_t permits_leased(const struct permits *p)
{
    return leased_of(word_load(p));
}

uint32_t permits_in_use(const struct permits *p)
{
    uint64_t sum = 0;
    for (unsigned i = 0; i < p->ncores_; i++)
        sum += counter_get(&p->cores_[i].in_use_);
    return (uint32_t)sum;
}

void permits_stats_get(const struct permits *p, struct permits_stats *ret_stats)
{
    *ret_stats = (struct permits_stats){0};
    for (unsigned i = 0; i < p->ncores_; i++) {
        const struct permits_core *c = &p->cores_[i];
        ret_stats->waits += counter_get(&c->waits);
        ret_stats->refused += counter_get(&c->refused);
        ret_stats->timed_out += counter_get(&c->timed_out);
        ret_stats->waiting += (uint32_t)counter_get(&c->waiting);
    }
}

struct permits_core *permits_join(struct permits *p, unsigned index, struct sched *s,
                                  struct mailbox *mb)
{
    assert(index < p->ncores_);
    struct permits_core *c = &p->cores_[index];
    assert(!c->permits_);
    c->permits_ = p;
    c->index_ = (uint8_t)index;
    c->sched_ = s;
    c->mailbox_ = mb;
    c->item_.deliver = on_poke;
    c->idle_.fire = on_idle;
    c->epoch_ = epoch_load(p);
    list_init(&c->queue_);
    atomic_fetch_or_explicit(&p->joined_, bit_of(c), memory_order_seq_cst);
    return c;
}

void permits_leave(struct permits_core *c)
{
    struct permits *p = c->permits_;
    assert(!c->left_);
    fail_all(c);
    drop_cache(c);
    c->left_ = true;
    atomic_fetch_and_explicit(&p->joined_, ~bit_of(c), memory_order_seq_cst);
    assert(counter_get(&c->in_use_) == 0);
    settle(p, c);
}
