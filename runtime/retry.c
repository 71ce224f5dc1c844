#include "runtime/retry.h"

#include <assert.h>
#include <errno.h>

#include "runtime/backoff.h"
#include "runtime/list.h"
#include "runtime/retry_budget.h"
#include "runtime/sched.h"

enum state { BEGIN, STARTING, RUNNING, WAITING, ENDED };

const char *retry_end_text(enum retry_end e)
{
    static const char *const texts[] = {
#define RETRY_END(name, text) [RETRY_END_##name] = (text),
#include "runtime/retry_end.def"
#undef RETRY_END
    };
    return (unsigned)e < sizeof(texts) / sizeof(texts[0]) ? texts[e] : "?";
}

static uint64_t add(uint64_t a, uint64_t b)
{
    return a > UINT64_MAX - b ? UINT64_MAX : a + b;
}

static enum poll end(struct retry *r, enum retry_end why, int status)
{
    assert(r->state_ != ENDED);
    r->state_ = ENDED;
    r->end = why;
    r->future.status = status;
    sleep_cancel(&r->sleep_);
    return POLL_READY;
}

static void drop_current(struct retry *r)
{
    if (r->current_)
        future_drop(r->current_);
    r->current_ = NULL;
}

static bool is_late(const struct retry *r, uint64_t now)
{
    return now >= r->deadline_ && r->deadline_ != UINT64_MAX;
}

/* The next attempt; false when the retry has ended instead. */
static bool start(struct retry *r, uint64_t now)
{
    if (is_late(r, now)) {
        end(r, RETRY_END_TIME, r->attempt > 0 ? r->future.status : -ETIMEDOUT);
        return false;
    }
    int rc = r->ops_->start(r, &r->current_);
    if (rc < 0) {
        end(r, RETRY_END_START, rc);
        return false;
    }
    r->state_ = RUNNING;
    return true;
}

/* When the next attempt may begin: never before the server's time, and spread by the jitter. */
static uint64_t resume_time(struct retry *r, uint64_t now)
{
    const struct retry_policy *p = r->policy_;
    uint64_t ceiling = backoff_ceiling(p->base, p->cap, r->attempt + 1);
    uint64_t asked = r->ops_->server_delay ? r->ops_->server_delay(r, r->current_) : 0;
    return add(add(now, asked), backoff_jitter(r->rng_, ceiling));
}

static enum retry_end judge(struct retry *r, uint64_t now)
{
    if (r->current_->status >= 0)
        return RETRY_END_OK;
    if (r->ops_->is_transient && !r->ops_->is_transient(r, r->current_))
        return RETRY_END_FATAL;
    if (r->attempt + 1 >= r->policy_->attempts)
        return RETRY_END_ATTEMPTS;
    r->resume_ = resume_time(r, now);
    if (is_late(r, r->resume_))
        return RETRY_END_TIME;
    /* Last, so that a retry that isn't made costs no budget. */
    if (r->budget_ && !retry_budget_take(r->budget_, now))
        return RETRY_END_BUDGET;
    return RETRY_END_RUNNING;
}

/* An attempt is done: the retry ends with it, or waits for the next. */
static void on_result(struct retry *r, uint64_t now)
{
    enum retry_end why = judge(r, now);
    r->future.status = r->current_->status;
    if (why != RETRY_END_RUNNING) {
        end(r, why, r->future.status);
        return;
    }
    drop_current(r);
    r->attempt++;
    r->state_ = WAITING;
}

static enum poll sleep_until(struct retry *r, struct task *t, uint64_t at)
{
    if (at != UINT64_MAX)
        sleep_arm(&r->sleep_, t, at);
    return POLL_PENDING;
}

static void begin(struct retry *r, uint64_t now)
{
    uint64_t by_total = add(now, r->policy_->total);
    if (by_total < r->deadline_)
        r->deadline_ = by_total;
    r->state_ = STARTING;
}

static enum poll retry_poll(struct future *f, struct task *t)
{
    struct retry *r = container_of(f, struct retry, future);
    uint64_t now = task_now(t);
    for (;;) {
        switch ((enum state)r->state_) {
        case BEGIN:
            begin(r, now);
            break;
        case STARTING:
            if (!task_consume(t, 1))
                return POLL_PENDING;
            start(r, now);
            break;
        case RUNNING:
            if (future_poll(r->current_, t) == POLL_READY) {
                on_result(r, now);
                break;
            }
            if (!is_late(r, now))
                return sleep_until(r, t, r->deadline_);
            drop_current(r);
            return end(r, RETRY_END_TIME, -ETIMEDOUT);
        case WAITING:
            if (now < r->resume_)
                return sleep_until(r, t, r->resume_);
            r->state_ = STARTING;
            break;
        case ENDED:
            return POLL_READY;
        }
    }
}

static void retry_drop(struct future *f)
{
    struct retry *r = container_of(f, struct retry, future);
    sleep_cancel(&r->sleep_);
    drop_current(r);
    r->state_ = ENDED;
}

static const struct future_kind retry_kind = {"retry", retry_poll, retry_drop};

void retry_init(struct retry *r, const struct retry_opts *o)
{
    assert(o->ops->start && o->policy->attempts > 0 && o->rng);
    *r = (struct retry){
        .ops_ = o->ops,
        .policy_ = o->policy,
        .rng_ = o->rng,
        .budget_ = o->budget,
        .deadline_ = o->deadline,
    };
    future_init(&r->future, &retry_kind);
}

bool retry_is_waiting(const struct retry *r)
{
    return r->state_ == WAITING;
}
