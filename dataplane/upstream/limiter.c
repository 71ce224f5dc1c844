#include "dataplane/upstream/limiter.h"

#include <assert.h>
#include <errno.h>
#include <string.h>

/* Joining ------------------------------------------------------------------------------------ */

void limiter_connection_wanted(struct permits_core *c)
{
    const struct limiter_side *side = c->user;
    const struct permits *p = c->permits_;
    struct permits_stats st;
    if (!side || !side->close_idle)
        return;
    permits_stats_get(p, &st);
    /* Under a limit that was lowered nobody gets one before the excess is gone. */
    uint32_t leased = permits_leased(p), limit = permits_limit(p);
    uint32_t excess = leased > limit ? leased - limit : 0;
    side->close_idle(side->ctx, excess + (st.waiting ? st.waiting : 1));
}

void limiter_side_join(struct limiter_side *side, struct shared_limits *shared, unsigned core,
                       struct sched *s, struct mailbox *mb)
{
    side->shared = shared;
    atomic_fetch_add_explicit(&shared->users, 1, memory_order_relaxed);
    side->requests = permits_join(shared->requests, core, s, mb);
    side->connections = permits_join(shared->connections, core, s, mb);
    side->connections->user = side;
}

void limiter_side_leave(struct limiter_side *side)
{
    if (!side->shared)
        return;
    permits_leave(side->requests);
    permits_leave(side->connections);
    atomic_fetch_sub_explicit(&side->shared->users, 1, memory_order_release);
    side->shared = NULL;
}

void limiter_init(struct limiter *l, struct upstream_shared *shared, unsigned core, struct sched *s,
                  struct mailbox *mb)
{
    memset(l, 0, sizeof(*l));
    l->shared = shared;
    for (unsigned i = 0; i < CONFIG_PRIORITIES; i++)
        list_init(&l->waiting_[i]);
    retry_budget_core_init(&l->budget, &shared->budget);
    limiter_side_join(&l->side, &shared->limits, core, s, mb);
    l->side.requests->user = l;
}

void limiter_fini(struct limiter *l)
{
    if (!l->shared)
        return;
    retry_budget_core_fini(&l->budget);
    limiter_side_leave(&l->side);
    l->shared = NULL;
}

void limiter_apply(struct limiter *l, const struct config_limits *cfg)
{
    l->queue_max = cfg->queue;
    l->queue_timeout = cfg->queue_timeout;
    l->target = cfg->queue_target;
    l->adaptive = cfg->queue_order == CONFIG_QUEUE_ADAPTIVE;
}

/* Answers' times ----------------------------------------------------------------------------- */

void limiter_answered(struct limiter *l, uint64_t now, uint64_t ns)
{
    if (now - l->window_ >= LIMITER_WINDOW_NS) {
        l->quickest_[1] = now - l->window_ < 2 * LIMITER_WINDOW_NS ? l->quickest_[0] : 0;
        l->quickest_[0] = 0;
        l->window_ = now;
    }
    if (l->quickest_[0] == 0 || ns < l->quickest_[0])
        l->quickest_[0] = ns;
}

uint64_t limiter_quickest(const struct limiter *l)
{
    uint64_t a = l->quickest_[0], b = l->quickest_[1];
    return a == 0 || (b && b < a) ? b : a;
}

/* An old measure must not keep out those who would bring a new one. */
static bool is_too_late(const struct limiter *l, uint64_t now, uint64_t deadline)
{
    if (deadline == UINT64_MAX)
        return false;
    uint64_t least = now - l->window_ < 2 * LIMITER_WINDOW_NS ? limiter_quickest(l) : 0;
    return deadline <= now || deadline - now < least;
}

/* The queue ---------------------------------------------------------------------------------- */

static struct admission *admission_of(struct list_node *n)
{
    return container_of(n, struct admission, node_);
}

/* One that hasn't got its turn yet: the others on the list have, and will leave it when their task
 * runs. */
static bool is_waiting(const struct admission *a)
{
    return list_is_linked(&a->acquire_.node_);
}

static struct admission *oldest(const struct limiter *l)
{
    struct admission *best = NULL;
    for (unsigned p = 0; p < CONFIG_PRIORITIES; p++) {
        struct list_node *n = list_first(&l->waiting_[p]);
        if (n && (!best || admission_of(n)->since_ < best->since_))
            best = admission_of(n);
    }
    return best;
}

static void refuse(struct admission *a, int status)
{
    list_remove(&a->node_);
    permits_refuse(&a->acquire_, status);
}

/* True in overload; refuses those who have waited for too long then. */
static bool look_at_queue(struct limiter *l, uint64_t now)
{
    struct admission *a = oldest(l);
    if (!a || now - a->since_ < l->target) {
        l->calm_ = now;
        return false;
    }
    if (now - l->calm_ < LIMITER_INTERVAL_NS)
        return false;
    while ((a = oldest(l)) && is_waiting(a) && now - a->since_ > LIMITER_INTERVAL_NS)
        refuse(a, -ECANCELED);
    return true;
}

/* The first in order that can still be answered in time; the others before it are refused. */
static struct admission *pick_of(struct limiter *l, struct list_node *list, bool newest_first,
                                 uint64_t now)
{
    struct list_node *next, *n = newest_first ? list->prev : list->next;
    for (; n != list; n = next) {
        struct admission *a = admission_of(n);
        next = newest_first ? n->prev : n->next;
        if (!is_waiting(a))
            continue;
        if (!is_too_late(l, now, a->deadline_))
            return a;
        refuse(a, -ETIME);
    }
    return NULL;
}

static struct permits_acquire *pick(struct permits_core *c, uint64_t now)
{
    struct limiter *l = c->user;
    bool newest_first = l->adaptive && look_at_queue(l, now);
    for (unsigned p = 0; p < CONFIG_PRIORITIES; p++) {
        struct admission *a = pick_of(l, &l->waiting_[p], newest_first, now);
        if (a) {
            list_remove(&a->node_);
            return &a->acquire_;
        }
    }
    return NULL;
}

const struct permits_discipline limiter_discipline = {"limiter", pick};

/* A place in the queue, counted over all cores: exact, and written only by those who wait. */
static bool take_place(struct limiter *l)
{
    unsigned n = atomic_fetch_add_explicit(&l->shared->queued, 1, memory_order_relaxed);
    if (n < l->queue_max)
        return true;
    atomic_fetch_sub_explicit(&l->shared->queued, 1, memory_order_relaxed);
    return false;
}

static void leave(struct admission *a)
{
    atomic_fetch_sub_explicit(&a->limiter_->shared->queued, 1, memory_order_relaxed);
    list_remove(&a->node_);
    a->limiter_ = NULL;
}

static void count_end(struct limiter *l, int status)
{
    l->count.queue_timeout += status == -ETIMEDOUT;
    l->count.too_late += status == -ETIME;
    l->count.shed += status == -ECANCELED;
}

int admission_begin(struct admission *a, struct limiter *l, struct permits_core *from,
                    enum config_priority p, struct task *t, uint64_t now, uint64_t deadline,
                    struct leased_permit *ret_permit)
{
    assert(!a->limiter_);
    int err = permits_try(from, ret_permit);
    if (err != -EAGAIN)
        return err;
    if (is_too_late(l, now, deadline)) {
        l->count.too_late++;
        return -ETIME;
    }
    if (!take_place(l)) {
        l->count.queue_full++;
        return -EBUSY;
    }
    l->count.queued++;
    uint64_t due = now + l->queue_timeout;
    permits_acquire_init(&a->acquire_, from, due < deadline ? due : deadline);
    a->limiter_ = l;
    a->since_ = now;
    a->deadline_ = deadline;
    /* The others are first in, first out. */
    if (from == l->side.requests) {
        if (!oldest(l))
            l->calm_ = now;
        list_push_tail(&l->waiting_[p], &a->node_);
    }
    return admission_poll(a, t, ret_permit);
}

int admission_poll(struct admission *a, struct task *t, struct leased_permit *ret_permit)
{
    struct limiter *l = a->limiter_;
    assert(l);
    if (future_poll(&a->acquire_.future, t) == POLL_PENDING)
        return -EAGAIN;
    int status = a->acquire_.future.status;
    leave(a);
    if (status == 0)
        *ret_permit = leased_permit_take(&a->acquire_.permit);
    else
        count_end(l, status);
    return status;
}

void admission_cancel(struct admission *a)
{
    if (!a->limiter_)
        return;
    future_drop(&a->acquire_.future);
    leave(a);
}
