/* Everything shared is relaxed: only amounts pass through it, and each is moved by one exchange. */
#include "runtime/retry_budget.h"

#include <assert.h>

#include "runtime/clock.h"

void retry_budget_init(struct retry_budget *b, const struct retry_budget_opts *o)
{
    assert(o->burst > 0 && o->cores > 0);
    uint64_t chunk = o->burst / (8 * o->cores);
    *b = (struct retry_budget){
        .chunk_ = (chunk > 0 ? chunk : 1) * RETRY_BUDGET_TOKEN,
        .pool_max_ = o->burst * RETRY_BUDGET_TOKEN,
    };
    retry_budget_set(b, o->ratio_ppm, o->min_per_second);
}

void retry_budget_set(struct retry_budget *b, uint32_t ratio_ppm, uint32_t min_per_second)
{
    assert(ratio_ppm <= RETRY_BUDGET_TOKEN && min_per_second <= RETRY_BUDGET_FLOOR_MAX);
    atomic_store_explicit(&b->ratio_ppm_, ratio_ppm, memory_order_relaxed);
    atomic_store_explicit(&b->min_per_second_, min_per_second, memory_order_relaxed);
}

uint32_t retry_budget_pool(const struct retry_budget *b)
{
    return (uint32_t)(atomic_load_explicit(&b->pool_, memory_order_relaxed) / RETRY_BUDGET_TOKEN);
}

void retry_budget_core_init(struct retry_budget_core *c, struct retry_budget *b)
{
    *c = (struct retry_budget_core){.budget_ = b};
}

/* Moves up to `n` from the core to the pool, as far as there is room. */
static void give(struct retry_budget_core *c, uint64_t n)
{
    struct retry_budget *b = c->budget_;
    uint64_t pool = atomic_load_explicit(&b->pool_, memory_order_relaxed);
    uint64_t move;
    do {
        uint64_t room = b->pool_max_ - pool;
        move = n < room ? n : room;
        if (move == 0)
            return;
    } while (!atomic_compare_exchange_weak_explicit(&b->pool_, &pool, pool + move,
                                                    memory_order_relaxed, memory_order_relaxed));
    c->tokens_ -= move;
}

void retry_budget_share_(struct retry_budget_core *c)
{
    uint64_t max = 2 * c->budget_->chunk_;
    give(c, c->budget_->chunk_);
    if (c->tokens_ > max)
        c->tokens_ = max;
}

void retry_budget_core_fini(struct retry_budget_core *c)
{
    give(c, c->tokens_);
    c->tokens_ = 0;
}

/* Up to a chunk from the pool; nothing when it wouldn't make a token. */
static void fetch(struct retry_budget_core *c)
{
    struct retry_budget *b = c->budget_;
    uint64_t pool = atomic_load_explicit(&b->pool_, memory_order_relaxed);
    uint64_t move;
    do {
        move = pool < b->chunk_ ? pool : b->chunk_;
        if (c->tokens_ + move < RETRY_BUDGET_TOKEN)
            return;
    } while (!atomic_compare_exchange_weak_explicit(&b->pool_, &pool, pool - move,
                                                    memory_order_relaxed, memory_order_relaxed));
    c->tokens_ += move;
}

/* A leaky meter (GCRA): each retry moves floor_ on by its share of a second, and floor_ may be at
 * most a second ahead of now. The step is rounded up, so that the rate is never exceeded; the
 * second is stretched by what that adds up to, so that it holds all of its retries. */
static bool take_floor(struct retry_budget *b, uint64_t now)
{
    uint64_t rate = atomic_load_explicit(&b->min_per_second_, memory_order_relaxed);
    if (rate == 0)
        return false;
    uint64_t step = (CLOCK_NS_PER_S + rate - 1) / rate;
    uint64_t spent = atomic_load_explicit(&b->floor_, memory_order_relaxed);
    uint64_t next;
    do {
        next = (spent > now ? spent : now) + step;
        if (next > now + CLOCK_NS_PER_S + rate)
            return false;
    } while (!atomic_compare_exchange_weak_explicit(&b->floor_, &spent, next, memory_order_relaxed,
                                                    memory_order_relaxed));
    return true;
}

bool retry_budget_take(struct retry_budget_core *c, uint64_t now)
{
    if (c->tokens_ < RETRY_BUDGET_TOKEN)
        fetch(c);
    if (c->tokens_ >= RETRY_BUDGET_TOKEN) {
        c->tokens_ -= RETRY_BUDGET_TOKEN;
    } else if (!take_floor(c->budget_, now)) {
        counter_inc(&c->refused);
        return false;
    }
    counter_inc(&c->granted);
    return true;
}
