#include "runtime/flight.h"

#include <assert.h>
#include <errno.h>
#include <stdalign.h>
#include <string.h>

#include "runtime/deadline.h"

/* One piece of work: from its start until it has landed and the last caller has read the answer.
 * Behind it lie the work's struct, the value and the key. */
struct flight_slot {
    struct task task;
    struct key_node node;
    struct list_node running; /* until it has landed */
    struct wait_list callers;
    uint32_t ncallers;
    int status;   /* valid when landed */
    bool landed;  /* answered; no longer in the table */
    bool current; /* in the table */
    bool kept;    /* goes on without callers */
    alignas(16) struct flight_work work;
};

static uint32_t align16(size_t n)
{
    return (uint32_t)((n + 15) & ~(size_t)15);
}

static struct flight *slot_flight(const struct flight_slot *s)
{
    return s->work.flight;
}

static void *slot_value(struct flight_slot *s)
{
    return (char *)s + slot_flight(s)->value_at_;
}

static struct flight_slot *slot_of(const struct flight_work *w)
{
    return container_of(w, struct flight_slot, work);
}

static void make_forgotten(struct flight_slot *s)
{
    if (s->current)
        key_table_remove(&slot_flight(s)->table_, &s->node);
    s->current = false;
}

static void free_slot(struct flight_slot *s)
{
    struct flight *f = slot_flight(s);
    assert(s->landed && !s->current && s->ncallers == 0 && !task_is_live(&s->task));
    if (s->status == 0 && f->o_.kind->release)
        f->o_.kind->release(slot_value(s));
    slab_put(&f->slots_, s);
}

/* The one way a slot is answered. */
static void land(struct flight_slot *s, int status)
{
    struct flight *f = slot_flight(s);
    assert(!s->landed && status <= 0);
    make_forgotten(s);
    s->landed = true;
    s->status = status;
    list_remove(&s->running);
    f->stats.running--;
    f->stats.failed += status < 0;
    wait_wake_all(&s->callers);
}

static enum poll slot_poll(struct task *t)
{
    struct flight_slot *s = container_of(t, struct flight_slot, task);
    const struct flight_kind *kind = slot_flight(s)->o_.kind;
    if (future_poll(&s->work.f, t) == POLL_PENDING)
        return POLL_PENDING;
    if (kind->landed)
        kind->landed(&s->work);
    land(s, s->work.f.status);
    return POLL_READY;
}

static void slot_drop(struct task *t)
{
    struct flight_slot *s = container_of(t, struct flight_slot, task);
    future_drop(&s->work.f);
    if (!s->landed)
        land(s, -ECANCELED);
    if (s->ncallers == 0)
        free_slot(s);
}

/* A slot that is being polled just now dies after that poll; nobody may find it meanwhile. */
static void give_up(struct flight_slot *s)
{
    make_forgotten(s);
    task_abort(&s->task);
}

static struct flight_slot *find_slot(const struct flight *f, const void *key, size_t len)
{
    struct key_node *n = key_table_find(&f->table_, key, len);
    return n ? container_of(n, struct flight_slot, node) : NULL;
}

static int start_slot(struct flight *f, const void *key, size_t len, struct flight_slot **ret_slot)
{
    if (len > f->o_.key_max)
        return -EINVAL;
    struct flight_slot *s = slab_get_zeroed(&f->slots_);
    if (!s) {
        f->stats.refused++;
        return -EBUSY;
    }
    char *key_copy = (char *)s + f->key_at_;
    if (len > 0)
        memcpy(key_copy, key, len);
    s->node = (struct key_node){.key = key_copy, .key_len = (uint16_t)len};
    s->work = (struct flight_work){.flight = f, .key = key_copy, .key_len = (uint16_t)len};
    s->work.value = slot_value(s);
    wait_list_init(&s->callers);
    list_push_tail(&f->running_, &s->running);
    key_table_insert(&f->table_, &s->node);
    s->current = true;
    f->stats.started++;
    f->stats.running++;
    f->o_.kind->start(&s->work);
    task_spawn(f->o_.sched, &s->task, &f->task_kind_);
    *ret_slot = s;
    return 0;
}

int flight_init(struct flight *f, const struct flight_opts *o)
{
    assert(o->kind->work_size >= sizeof(struct flight_work) && o->kind->start && o->max > 0);
    assert(!o->kind->share == !o->kind->release);
    *f = (struct flight){.o_ = *o, .task_kind_ = {o->kind->name, slot_poll, slot_drop}};
    f->value_at_ = (uint32_t)offsetof(struct flight_slot, work) + align16(o->kind->work_size);
    f->key_at_ = f->value_at_ + align16(o->kind->value_size);
    list_init(&f->running_);
    slab_init(&f->slots_, f->key_at_ + o->key_max, o->max);
    return key_table_init(&f->table_, o->max, o->secret);
}

void flight_cancel_all(struct flight *f)
{
    struct list_node *n;
    /* From the front anew each time: work that is dropped may be the last to want other work. */
    while ((n = list_first(&f->running_))) {
        give_up(container_of(n, struct flight_slot, running));
        assert(list_first(&f->running_) != n);
    }
}

void flight_fini(struct flight *f)
{
    flight_cancel_all(f);
    assert(f->stats.running == 0 && f->stats.waiting == 0);
    slab_fini(&f->slots_);
    key_table_fini(&f->table_);
}

int flight_start(struct flight *f, const void *key, size_t key_len)
{
    struct flight_slot *s = find_slot(f, key, key_len);
    int rc = s ? 0 : start_slot(f, key, key_len, &s);
    if (rc == 0)
        s->kept = true;
    return rc;
}

bool flight_forget(struct flight *f, const void *key, size_t key_len)
{
    struct flight_slot *s = find_slot(f, key, key_len);
    if (s)
        make_forgotten(s);
    return s;
}

bool flight_is_running(const struct flight *f, const void *key, size_t key_len)
{
    return find_slot(f, key, key_len);
}

bool flight_is_current(const struct flight_work *w)
{
    return slot_of(w)->current;
}

/* Finds or starts the work and counts the call in. */
static int join(struct flight_call *c)
{
    struct flight *f = c->flight_;
    struct flight_slot *s = find_slot(f, c->key_, c->key_len_);
    c->is_shared = s;
    if (!s) {
        int rc = start_slot(f, c->key_, c->key_len_, &s);
        if (rc < 0)
            return rc;
    }
    f->stats.shared += c->is_shared;
    f->stats.waiting++;
    s->ncallers++;
    c->slot_ = s;
    return 0;
}

static void leave(struct flight_call *c)
{
    struct flight_slot *s = c->slot_;
    struct flight *f = c->flight_;
    c->slot_ = NULL;
    wait_cancel(&c->node_);
    sleep_cancel(&c->alarm_);
    f->stats.waiting--;
    if (--s->ncallers > 0)
        return;
    if (!s->landed && !s->kept && !f->o_.keep_unwanted) {
        f->stats.unwanted++;
        give_up(s);
    } else if (s->landed && !task_is_live(&s->task)) {
        free_slot(s);
    }
}

static enum poll finish(struct flight_call *c, int status)
{
    c->f.status = status;
    if (c->slot_)
        leave(c);
    return POLL_READY;
}

static enum poll take_answer(struct flight_call *c)
{
    struct flight_slot *s = c->slot_;
    const struct flight_kind *kind = c->flight_->o_.kind;
    if (s->status == 0 && c->value_ && kind->value_size > 0) {
        memcpy(c->value_, slot_value(s), kind->value_size);
        if (kind->share)
            kind->share(c->value_);
    }
    return finish(c, s->status);
}

static enum poll call_poll(struct future *future, struct task *t)
{
    struct flight_call *c = container_of(future, struct flight_call, f);
    if (c->slot_ && c->slot_->landed)
        return take_answer(c);
    if (deadline_is_past(c->deadline_, task_now(t))) {
        c->flight_->stats.timed_out++;
        return finish(c, -ETIMEDOUT);
    }
    if (!c->slot_) {
        int rc = join(c);
        if (rc < 0)
            return finish(c, rc);
    }
    wait_park(&c->slot_->callers, &c->node_, t);
    if (c->deadline_ != DEADLINE_NONE)
        sleep_arm(&c->alarm_, t, c->deadline_);
    return POLL_PENDING;
}

static void call_drop(struct future *future)
{
    struct flight_call *c = container_of(future, struct flight_call, f);
    if (c->slot_)
        leave(c);
}

void flight_call_init(struct flight_call *c, struct flight *f, const void *key, size_t key_len,
                      uint64_t deadline, void *ret_value)
{
    static const struct future_kind kind = {"flight", call_poll, call_drop};
    *c = (struct flight_call){
        .flight_ = f, .deadline_ = deadline, .key_ = key, .value_ = ret_value, .key_len_ = key_len};
    future_init(&c->f, &kind);
}
