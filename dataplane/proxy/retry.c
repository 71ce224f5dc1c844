/* Another attempt: whether, and when. */
#include "dataplane/proxy/exchange.h"
#include "runtime/retry_budget.h"

/* A pooled connection that the origin had closed already, or was about to: no fault of its, and
 * nothing that waiting would mend. */
static bool was_stale(const struct exchange *x, enum config_retry_on class)
{
    return class == CONFIG_RETRY_RESET && x->reused && !x->fresh;
}

/* RFC 9110 §9.2.2: what may have been processed is repeated only if that does no harm; body bytes
 * that have gone are gone. */
static bool is_safe(const struct exchange *x)
{
    if (x->head_written || x->interim_sent || x->body.total)
        return false;
    return !x->any_sent || (x->idempotent && x->body.done);
}

/* Full jitter under a ceiling that doubles; and not before the server said. */
static uint64_t wait_before(struct exchange *x, uint64_t delay)
{
    const struct config_retries *r = &x->upstream->retries;
    uint64_t ceiling = r->backoff_base;
    for (unsigned i = 1; i < x->attempts && ceiling < r->backoff_max; i++)
        ceiling *= 2;
    if (ceiling > r->backoff_max)
        ceiling = r->backoff_max;
    return delay + rng_next(&x->upstream->set_->rng) % (ceiling + 1);
}

bool exchange_try_again(struct exchange *x, enum config_retry_on class, uint64_t delay)
{
    struct upstream *up = x->upstream;
    uint64_t now = client_now(x->client);
    bool stale = was_stale(x, class);
    if (!is_safe(x) || x->attempts >= up->retries.attempts || (!stale && !up->retries.when[class]))
        return false;
    uint64_t wait = stale ? 0 : wait_before(x, delay);
    if (x->deadline != NO_TIME && wait >= x->deadline - now)
        return false;
    if (!retry_budget_take(&up->limiter.budget, now)) {
        up->count.no_budget++;
        return false;
    }
    up->count.retries++;
    if (stale)
        x->fresh = true;
    else
        tried_add(&x->tried, x->ep);
    exchange_end_attempt(x, LEAVE_BROKEN);
    if (wait == 0) {
        x->state = EXCHANGE_PICK;
        return true;
    }
    leased_permit_put(&x->admitted);
    x->due = now + wait;
    x->state = EXCHANGE_BACKOFF;
    return true;
}

enum step exchange_retry(struct exchange *x, enum config_retry_on class, int status,
                         enum access_reason why)
{
    if (!was_stale(x, class))
        exchange_judge(x, ATTEMPT_FAILED);
    return exchange_try_again(x, class, 0) ? STEP_AGAIN : exchange_fail(x, status, why);
}
