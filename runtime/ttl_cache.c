#include "runtime/ttl_cache.h"

#include <assert.h>
#include <errno.h>
#include <stdalign.h>
#include <string.h>

#include "runtime/deadline.h"

/* Behind it lie the value and the key. */
struct ttl_entry {
    struct key_node node;
    struct list_node used; /* in values_ or failures_ */
    uint64_t good_until;   /* exclusive */
    uint64_t stale_until;  /* exclusive; >= good_until */
    uint64_t retry_at;     /* no refresh before */
    int status;            /* 0: holds a value */
};

static uint32_t align16(size_t n)
{
    return (uint32_t)((n + 15) & ~(size_t)15);
}

static uint64_t now_of(const struct ttl_cache *c)
{
    return sched_now(c->o_.sched);
}

static void *entry_value(const struct ttl_cache *c, struct ttl_entry *e)
{
    return (char *)e + c->value_at_;
}

static struct ttl_entry *find_entry(const struct ttl_cache *c, const void *key, size_t len)
{
    struct key_node *n = key_table_find(&c->table_, key, len);
    return n ? container_of(n, struct ttl_entry, node) : NULL;
}

static bool is_value(const struct ttl_entry *e)
{
    return e->status == 0;
}

static struct list_node *list_of(struct ttl_cache *c, const struct ttl_entry *e)
{
    return is_value(e) ? &c->values_ : &c->failures_;
}

static uint32_t *count_of(struct ttl_cache *c, const struct ttl_entry *e)
{
    return is_value(e) ? &c->stats.nvalues : &c->stats.nfailures;
}

static void touch(struct ttl_cache *c, struct ttl_entry *e)
{
    list_remove(&e->used);
    list_push_head(list_of(c, e), &e->used);
}

static void remove_entry(struct ttl_cache *c, struct ttl_entry *e)
{
    if (is_value(e) && c->o_.kind->release)
        c->o_.kind->release(entry_value(c, e));
    --*count_of(c, e);
    list_remove(&e->used);
    key_table_remove(&c->table_, &e->node);
    slab_put(&c->entries_, e);
}

/* Takes the place of what was there for the key; pushes out the least recently used of its own sort
 * at the bound. NULL: no memory, and the old entry is gone as well. */
static struct ttl_entry *add_entry(struct ttl_cache *c, const void *key, size_t len, int status)
{
    struct ttl_entry *old = find_entry(c, key, len);
    if (old)
        remove_entry(c, old);
    uint32_t max = status == 0 ? c->o_.max_values : c->o_.max_failures;
    uint32_t count = status == 0 ? c->stats.nvalues : c->stats.nfailures;
    if (count == max) {
        struct list_node *last = list_last(status == 0 ? &c->values_ : &c->failures_);
        struct ttl_entry *victim = container_of(last, struct ttl_entry, used);
        c->stats.evicted += now_of(c) < victim->good_until;
        remove_entry(c, victim);
    }
    struct ttl_entry *e = slab_get_zeroed(&c->entries_);
    if (!e)
        return NULL;
    char *key_copy = (char *)e + c->key_at_;
    if (len > 0)
        memcpy(key_copy, key, len);
    e->node = (struct key_node){.key = key_copy, .key_len = (uint16_t)len};
    e->status = status;
    key_table_insert(&c->table_, &e->node);
    list_push_head(list_of(c, e), &e->used);
    ++*count_of(c, e);
    return e;
}

static int keep_value(struct ttl_cache *c, const void *key, size_t len, const void *value,
                      uint64_t ttl)
{
    struct ttl_entry *e = add_entry(c, key, len, 0);
    if (!e)
        return -ENOMEM;
    if (c->o_.kind->value_size > 0)
        memcpy(entry_value(c, e), value, c->o_.kind->value_size);
    if (c->o_.kind->share)
        c->o_.kind->share(entry_value(c, e));
    e->good_until = deadline_after(now_of(c), ttl);
    e->stale_until = deadline_after(e->good_until, c->o_.stale_ns);
    return 0;
}

static void keep_failure(struct ttl_cache *c, const void *key, size_t len, int status, uint64_t ttl)
{
    struct ttl_entry *e = add_entry(c, key, len, status);
    if (e)
        e->good_until = e->stale_until = deadline_after(now_of(c), ttl);
}

static void on_failure(struct ttl_cache *c, const struct ttl_fetch *f)
{
    const struct flight_work *w = &f->work;
    struct ttl_entry *old = find_entry(c, w->key, w->key_len);
    if (old && is_value(old) && now_of(c) < old->stale_until) {
        old->retry_at = deadline_after(now_of(c), f->failure_ttl_ns);
        c->stats.refresh_failed++;
    } else if (f->failure_ttl_ns > 0 && c->o_.max_failures > 0) {
        keep_failure(c, w->key, w->key_len, w->f.status, f->failure_ttl_ns);
    } else if (old) {
        remove_entry(c, old);
    }
}

static void on_landed(struct flight_work *w)
{
    struct ttl_fetch *f = container_of(w, struct ttl_fetch, work);
    struct ttl_cache *c = flight_arg(w);
    if (!flight_is_current(w))
        return;
    if (w->f.status < 0) {
        on_failure(c, f);
        return;
    }
    /* No memory for it: the callers have their answer all the same. */
    if (f->ttl_ns > 0)
        keep_value(c, w->key, w->key_len, w->value, f->ttl_ns);
    else
        ttl_cache_remove(c, w->key, w->key_len);
}

static void on_start(struct flight_work *w)
{
    struct ttl_fetch *f = container_of(w, struct ttl_fetch, work);
    struct ttl_cache *c = flight_arg(w);
    f->ttl_ns = c->o_.ttl_ns;
    f->failure_ttl_ns = c->o_.failure_ttl_ns;
    c->o_.kind->start(f);
}

static int init_flight(struct ttl_cache *c)
{
    const struct ttl_cache_opts *o = &c->o_;
    c->flight_kind_ = (struct flight_kind){.name = o->kind->name,
                                           .work_size = o->kind->fetch_size,
                                           .value_size = o->kind->value_size,
                                           .start = on_start,
                                           .landed = on_landed,
                                           .share = o->kind->share,
                                           .release = o->kind->release};
    return flight_init(&c->flight_, &(struct flight_opts){.kind = &c->flight_kind_,
                                                          .arg = c,
                                                          .sched = o->sched,
                                                          .secret = o->secret,
                                                          .max = o->max_fetches,
                                                          .key_max = o->key_max,
                                                          .keep_unwanted = o->keep_unwanted});
}

int ttl_cache_init(struct ttl_cache *c, const struct ttl_cache_opts *o)
{
    assert(o->kind->fetch_size >= sizeof(struct ttl_fetch) && o->kind->start);
    assert(o->max_values > 0 && o->max_fetches > 0);
    *c = (struct ttl_cache){.o_ = *o};
    c->value_at_ = align16(sizeof(struct ttl_entry));
    c->key_at_ = c->value_at_ + align16(o->kind->value_size);
    list_init(&c->values_);
    list_init(&c->failures_);
    uint32_t max = o->max_values + o->max_failures;
    slab_init(&c->entries_, c->key_at_ + o->key_max, max);
    int rc = key_table_init(&c->table_, max, o->secret);
    if (rc < 0)
        return rc;
    rc = init_flight(c);
    if (rc < 0)
        key_table_fini(&c->table_);
    return rc;
}

static void remove_all(struct ttl_cache *c, struct list_node *entries)
{
    struct list_node *n;
    while ((n = list_first(entries)))
        remove_entry(c, container_of(n, struct ttl_entry, used));
}

void ttl_cache_fini(struct ttl_cache *c)
{
    flight_fini(&c->flight_);
    remove_all(c, &c->values_);
    remove_all(c, &c->failures_);
    slab_fini(&c->entries_);
    key_table_fini(&c->table_);
}

static enum ttl_found find(struct ttl_cache *c, const void *key, size_t len,
                           struct ttl_entry **ret_entry)
{
    struct ttl_entry *e = find_entry(c, key, len);
    uint64_t now = now_of(c);
    if (!e || now >= e->stale_until) {
        c->stats.misses++;
        return TTL_MISS;
    }
    *ret_entry = e;
    touch(c, e);
    if (!is_value(e)) {
        c->stats.failures++;
        return TTL_FAILURE;
    }
    bool is_fresh = now < e->good_until;
    c->stats.fresh += is_fresh;
    c->stats.stale += !is_fresh;
    return is_fresh ? TTL_FRESH : TTL_STALE;
}

enum ttl_found ttl_cache_find(struct ttl_cache *c, const void *key, size_t key_len,
                              const void **ret_value, int *ret_status)
{
    struct ttl_entry *e = NULL;
    enum ttl_found found = find(c, key, key_len, &e);
    if (found == TTL_FAILURE)
        *ret_status = e->status;
    else if (e)
        *ret_value = entry_value(c, e);
    return found;
}

int ttl_cache_put(struct ttl_cache *c, const void *key, size_t key_len, const void *value,
                  uint64_t ttl_ns)
{
    if (key_len > c->o_.key_max)
        return -EINVAL;
    flight_forget(&c->flight_, key, key_len);
    if (ttl_ns > 0)
        return keep_value(c, key, key_len, value, ttl_ns);
    ttl_cache_remove(c, key, key_len);
    return 0;
}

bool ttl_cache_remove(struct ttl_cache *c, const void *key, size_t key_len)
{
    flight_forget(&c->flight_, key, key_len);
    struct ttl_entry *e = find_entry(c, key, key_len);
    if (e)
        remove_entry(c, e);
    return e;
}

/* No slot: the next to ask tries again, the stale value serves meanwhile. */
static void refresh(struct ttl_cache *c, struct ttl_entry *e)
{
    const struct key_node *n = &e->node;
    if (now_of(c) < e->retry_at || flight_is_running(&c->flight_, n->key, n->key_len))
        return;
    if (flight_start(&c->flight_, n->key, n->key_len) == 0)
        c->stats.refreshes++;
}

static void copy_value(const struct ttl_get *g, struct ttl_entry *e)
{
    const struct ttl_cache_kind *kind = g->cache_->o_.kind;
    if (!g->value_ || kind->value_size == 0)
        return;
    memcpy(g->value_, entry_value(g->cache_, e), kind->value_size);
    if (kind->share)
        kind->share(g->value_);
}

/* True: answered from memory. */
static bool answer_from_memory(struct ttl_get *g)
{
    struct ttl_cache *c = g->cache_;
    struct ttl_entry *e = NULL;
    g->found = find(c, g->key_, g->key_len_, &e);
    if (g->found == TTL_MISS)
        return false;
    g->f.status = e->status;
    if (g->found == TTL_FAILURE)
        return true;
    copy_value(g, e);
    if (g->found == TTL_STALE)
        refresh(c, e);
    return true;
}

static enum poll get_poll(struct future *future, struct task *t)
{
    struct ttl_get *g = container_of(future, struct ttl_get, f);
    if (!g->is_fetching_) {
        if (answer_from_memory(g))
            return POLL_READY;
        flight_call_init(&g->call_, &g->cache_->flight_, g->key_, g->key_len_, g->deadline_,
                         g->value_);
        g->is_fetching_ = true;
    }
    enum poll p = future_poll(&g->call_.f, t);
    g->f.status = g->call_.f.status;
    return p;
}

static void get_drop(struct future *future)
{
    struct ttl_get *g = container_of(future, struct ttl_get, f);
    if (g->is_fetching_)
        future_drop(&g->call_.f);
}

void ttl_get_init(struct ttl_get *g, struct ttl_cache *c, const void *key, size_t key_len,
                  uint64_t deadline, void *ret_value)
{
    static const struct future_kind kind = {"ttl_get", get_poll, get_drop};
    *g = (struct ttl_get){
        .cache_ = c, .key_ = key, .key_len_ = key_len, .value_ = ret_value, .deadline_ = deadline};
    future_init(&g->f, &kind);
}
