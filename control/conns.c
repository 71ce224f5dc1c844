#include "control/conns.h"

#include <assert.h>
#include <errno.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

/* One message on its way through the pages of one core. */
struct conns_leg {
    struct core_msg msg;
    struct conns_page page;
    atomic_bool done; /* release by the core, acquire by us: `page` is filled */
    bool late;        /* has seen a tick of the timer */
    struct list_node node;
    struct conns *owner;
    struct conns_request *asker; /* NULL: nobody waits any more */
};

struct conns {
    struct cores cores;
    struct list_node requests, legs;
    unsigned handles;
    unsigned timeout_ms;
    uv_async_t async;
    uv_timer_t timer;
};

static void go_on(struct conns *c, struct conns_request *r);

/* On the core's thread. */
static void on_core_done(struct core_msg *m)
{
    struct conns_leg *leg = container_of(m, struct conns_leg, msg);

    atomic_store_explicit(&leg->done, true, memory_order_release);
    uv_async_send(&leg->owner->async);
}

static void post(struct conns_leg *leg)
{
    memset(&leg->msg, 0, sizeof(leg->msg));
    leg->msg.kind = CORE_MSG_CONNS;
    leg->msg.conns = &leg->page;
    leg->msg.done = on_core_done;
    leg->late = false;
    atomic_store_explicit(&leg->done, false, memory_order_relaxed);
    cores_post(&leg->owner->cores, leg->asker->core_, &leg->msg);
}

static void drop(struct conns_leg *leg)
{
    list_remove(&leg->node);
    free(leg);
}

static void forget(struct conns_request *r)
{
    list_remove(&r->node_);
    if (r->leg_)
        r->leg_->asker = NULL; /* freed when its core gives it back */
    r->leg_ = NULL;
    json_decref(r->list_);
    json_decref(r->silent_);
    r->list_ = r->silent_ = NULL;
}

static void finish(struct conns_request *r, bool good)
{
    json_t *answer = NULL;

    if (good)
        answer = json_pack("{s:O, s:b, s:O}", "connections", r->list_, "more", r->more_,
                           "silent_cores", r->silent_);
    forget(r);
    r->fn(r, answer);
}

/* False: no memory. */
static bool begin_core(struct conns *c, struct conns_request *r)
{
    struct conns_leg *leg = calloc(1, sizeof(*leg));

    if (!leg)
        return false;
    leg->owner = c;
    leg->asker = r;
    leg->page.filter = r->filter;
    r->leg_ = leg;
    list_push_tail(&c->legs, &leg->node);
    post(leg);
    return true;
}

/* The next core that runs, or the end. */
static void go_on(struct conns *c, struct conns_request *r)
{
    while (r->core_ < c->cores.n && !cores_is_running(&c->cores, r->core_))
        r->core_++;
    if (r->core_ == c->cores.n)
        finish(r, true);
    else if (!begin_core(c, r))
        finish(r, false);
}

/* False: no memory. */
static bool take_page(struct conns_request *r, const struct conns_page *p)
{
    for (unsigned i = 0; i < p->n; i++) {
        if (json_array_size(r->list_) == r->limit) {
            r->more_ = true;
            break;
        }
        if (json_array_append_new(r->list_, conn_to_json(r->core_, &p->conns[i])))
            return false;
    }
    return true;
}

static void on_page(struct conns *c, struct conns_leg *leg)
{
    struct conns_request *r = leg->asker;
    bool good = !r || take_page(r, &leg->page), done = leg->page.done;

    if (r && good && !done && !r->more_) {
        post(leg);
        return;
    }
    if (r)
        r->leg_ = NULL;
    drop(leg);
    if (!r)
        return;
    r->core_++;
    if (!good || r->more_)
        finish(r, good);
    else
        go_on(c, r);
}

static void take_pages(struct conns *c)
{
    list_for_each_safe(n, tmp, &c->legs)
    {
        struct conns_leg *leg = container_of(n, struct conns_leg, node);
        if (atomic_load_explicit(&leg->done, memory_order_acquire))
            on_page(c, leg);
    }
}

static void on_async(uv_async_t *h)
{
    take_pages(h->data);
}

static void give_up(struct conns *c, struct conns_request *r)
{
    r->leg_->asker = NULL;
    r->leg_ = NULL;
    json_array_append_new(r->silent_, json_integer(r->core_));
    r->core_++;
    go_on(c, r);
}

/* What has been out since the tick before is late. */
static void on_timer(uv_timer_t *h)
{
    struct conns *c = h->data;

    take_pages(c);
    list_for_each_safe(n, tmp, &c->requests)
    {
        struct conns_request *r = container_of(n, struct conns_request, node_);
        bool late = r->leg_->late;
        r->leg_->late = true;
        if (late || !cores_is_running(&c->cores, r->core_))
            give_up(c, r);
    }
    if (list_is_empty(&c->requests))
        uv_timer_stop(h);
}

void conns_ask(struct conns *c, struct conns_request *r)
{
    r->list_ = json_array();
    r->silent_ = json_array();
    r->core_ = 0;
    r->more_ = false;
    r->leg_ = NULL;
    list_push_tail(&c->requests, &r->node_);
    if (!r->list_ || !r->silent_) {
        finish(r, false);
        return;
    }
    uv_timer_start(&c->timer, on_timer, c->timeout_ms, c->timeout_ms);
    go_on(c, r);
}

void conns_cancel(struct conns_request *r)
{
    if (list_is_linked(&r->node_))
        forget(r);
}

int conns_new(uv_loop_t *loop, const struct cores *cores, unsigned timeout_ms,
              struct conns **ret_conns)
{
    struct conns *c = calloc(1, sizeof(*c));

    if (!c)
        return -ENOMEM;
    c->cores = *cores;
    c->timeout_ms = timeout_ms;
    list_init(&c->requests);
    list_init(&c->legs);
    int e = uv_async_init(loop, &c->async, on_async);
    if (e) {
        free(c);
        return e;
    }
    uv_timer_init(loop, &c->timer);
    c->async.data = c->timer.data = c;
    c->handles = 2;
    *ret_conns = c;
    return 0;
}

static void on_closed(uv_handle_t *h)
{
    struct conns *c = h->data;

    if (--c->handles > 0)
        return;
    take_pages(c);
    if (list_is_empty(&c->legs))
        free(c);
}

void conns_close(struct conns *c)
{
    if (!c)
        return;
    assert(list_is_empty(&c->requests));
    uv_close((uv_handle_t *)&c->async, on_closed);
    uv_close((uv_handle_t *)&c->timer, on_closed);
}
