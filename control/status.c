#include "control/status.h"

#include <errno.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

struct asked_core {
    struct core_msg msg;
    struct core_status status;
    atomic_bool done; /* release by the core, acquire by us: `status` is filled */
    bool posted;      /* the message is the core's */
    bool this_round;
    struct status *owner;
};

struct status {
    struct cores cores;
    struct list_node now, next; /* struct status_request */
    bool under_way;
    unsigned timeout_ms;
    unsigned handles; /* open ones */
    uv_loop_t *loop;
    uv_async_t async;
    uv_timer_t timer;
    struct asked_core *asked;
};

static void begin(struct status *s);

/* On the core's thread. */
static void on_core_done(struct core_msg *m)
{
    struct asked_core *a = container_of(m, struct asked_core, msg);

    atomic_store_explicit(&a->done, true, memory_order_release);
    uv_async_send(&a->owner->async);
}

/* Takes back a message that its core has finished. */
static bool take_back(struct asked_core *a)
{
    if (a->posted && atomic_load_explicit(&a->done, memory_order_acquire))
        a->posted = false;
    return !a->posted;
}

static void end(struct status *s)
{
    struct status_view v = {.ncores = s->cores.n};
    struct list_node *n;

    uv_timer_stop(&s->timer);
    for (unsigned i = 0; i < s->cores.n; i++) {
        struct asked_core *a = &s->asked[i];
        v.cores[i].running = cores_is_running(&s->cores, i);
        v.cores[i].answering = a->this_round && take_back(a);
        v.cores[i].s = v.cores[i].answering ? &a->status : NULL;
    }
    while ((n = list_pop_head(&s->now))) {
        struct status_request *r = container_of(n, struct status_request, node_);
        r->fn(r, &v);
    }
    s->under_way = false;
    if (!list_is_empty(&s->next))
        begin(s);
}

static bool all_answered(struct status *s)
{
    bool all = true;

    for (unsigned i = 0; i < s->cores.n; i++)
        if (!take_back(&s->asked[i]) && s->asked[i].this_round && cores_is_running(&s->cores, i))
            all = false;
    return all;
}

static void on_async(uv_async_t *h)
{
    struct status *s = h->data;

    if (s->under_way && all_answered(s))
        end(s);
}

static void on_timeout(uv_timer_t *h)
{
    struct status *s = h->data;

    if (s->under_way)
        end(s);
}

static void ask_core(struct status *s, unsigned i)
{
    struct asked_core *a = &s->asked[i];

    a->this_round = take_back(a) && cores_is_running(&s->cores, i);
    if (!a->this_round)
        return;
    memset(&a->status, 0, sizeof(a->status));
    memset(&a->msg, 0, sizeof(a->msg));
    a->msg.kind = CORE_MSG_STATUS;
    a->msg.status = &a->status;
    a->msg.done = on_core_done;
    atomic_store_explicit(&a->done, false, memory_order_relaxed);
    a->posted = true;
    cores_post(&s->cores, i, &a->msg);
}

static void begin(struct status *s)
{
    s->under_way = true;
    list_splice_tail(&s->now, &s->next);
    for (unsigned i = 0; i < s->cores.n; i++)
        ask_core(s, i);
    uv_timer_start(&s->timer, on_timeout, s->timeout_ms, 0);
    /* Answers may be there already, or nobody runs: the loop's next turn finds out. */
    uv_async_send(&s->async);
}

void status_ask(struct status *s, struct status_request *r)
{
    list_push_tail(&s->next, &r->node_);
    if (!s->under_way)
        begin(s);
}

void status_cancel(struct status_request *r)
{
    list_remove(&r->node_);
}

int status_new(uv_loop_t *loop, const struct cores *cores, unsigned timeout_ms,
               struct status **ret_status)
{
    struct status *s = calloc(1, sizeof(*s));

    if (!s)
        return -ENOMEM;
    s->asked = calloc(cores->n ? cores->n : 1, sizeof(*s->asked));
    if (!s->asked) {
        free(s);
        return -ENOMEM;
    }
    s->cores = *cores;
    s->loop = loop;
    s->timeout_ms = timeout_ms;
    list_init(&s->now);
    list_init(&s->next);
    for (unsigned i = 0; i < cores->n; i++)
        s->asked[i].owner = s;
    int e = uv_async_init(loop, &s->async, on_async);
    if (e) {
        free(s->asked);
        free(s);
        return e;
    }
    uv_timer_init(loop, &s->timer);
    s->async.data = s->timer.data = s;
    s->handles = 2;
    *ret_status = s;
    return 0;
}

static void on_closed(uv_handle_t *h)
{
    struct status *s = h->data;
    bool lent = false;

    if (--s->handles > 0)
        return;
    for (unsigned i = 0; i < s->cores.n; i++)
        lent |= !take_back(&s->asked[i]);
    if (lent)
        return;
    free(s->asked);
    free(s);
}

void status_close(struct status *s)
{
    if (!s)
        return;
    while (list_pop_head(&s->now) || list_pop_head(&s->next))
        ;
    s->under_way = false;
    uv_close((uv_handle_t *)&s->async, on_closed);
    uv_close((uv_handle_t *)&s->timer, on_closed);
}

static void add_listener(struct listener_stats *sum, const struct listener_stats *l)
{
#define LISTENER_FIELD(group, name, member, kind, help) sum->member += l->member;
#include "control/status_fields.def"
    for (unsigned i = 0; i < 6; i++)
        sum->status[i] += l->status[i];
    for (unsigned i = 0; i < TURNED_AWAY_COUNT; i++)
        sum->turned_away[i] += l->turned_away[i];
}

/* One that drains may have a successor of its name. */
static bool is_same_listener(const struct listener_stats *a, const struct listener_stats *b)
{
    return a->draining == b->draining && a->address.addr == b->address.addr &&
           a->address.port == b->address.port && strcmp(a->name, b->name) == 0;
}

unsigned status_sum_listeners(const struct status_view *v, struct listener_stats *ret, unsigned max)
{
    unsigned n = 0, k;

    for (unsigned c = 0; c < v->ncores; c++) {
        const struct core_status *s = v->cores[c].s;
        for (unsigned i = 0; s && i < s->nlisteners; i++) {
            for (k = 0; k < n && !is_same_listener(&ret[k], &s->listeners[i]); k++)
                ;
            if (k == max)
                continue;
            if (k == n) {
                memset(&ret[n], 0, sizeof(ret[n]));
                memcpy(ret[n].name, s->listeners[i].name, sizeof(ret[0].name));
                ret[n].address = s->listeners[i].address;
                ret[n++].draining = s->listeners[i].draining;
            }
            add_listener(&ret[k], &s->listeners[i]);
        }
    }
    return n;
}

unsigned status_merge_names(struct listener_stats *sums, unsigned n)
{
    unsigned kept = 0, k;

    for (unsigned i = 0; i < n; i++) {
        for (k = 0; k < kept && strcmp(sums[k].name, sums[i].name) != 0; k++)
            ;
        if (k < kept)
            add_listener(&sums[k], &sums[i]);
        else
            sums[kept++] = sums[i];
    }
    return kept;
}

static void add_upstream(struct upstream_stats *sum, const struct upstream_stats *u)
{
#define UPSTREAM_FIELD(group, name, field, kind, help) sum->field += u->field;
#include "control/status_fields.def"
    /* The same on all cores, but for a moment. */
    sum->requests_limit = u->requests_limit;
    sum->connections_limit = u->connections_limit;
    sum->queue_limit = u->queue_limit;
    sum->used = u->used;
    sum->panic = u->panic;
    sum->backups = u->backups;
}

unsigned status_sum_upstreams(const struct status_view *v, struct upstream_stats *ret, unsigned max)
{
    unsigned n = 0, k;

    for (unsigned c = 0; c < v->ncores; c++) {
        const struct core_status *s = v->cores[c].s;
        for (unsigned i = 0; s && i < s->nupstreams; i++) {
            for (k = 0; k < n && strcmp(ret[k].name, s->upstreams[i].name) != 0; k++)
                ;
            if (k == max)
                continue;
            if (k == n) {
                memset(&ret[n], 0, sizeof(ret[n]));
                memcpy(ret[n++].name, s->upstreams[i].name, sizeof(ret[0].name));
            }
            add_upstream(&ret[k], &s->upstreams[i]);
        }
    }
    return n;
}
