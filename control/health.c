#include "control/health.h"

#include <errno.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#define REPORTS      64
#define UPDATES      256
#define TALLY_WAIT   1000000000ull /* for a core's tally; then without it */
#define RESEND_DELAY 100000000ull  /* to a core that doesn't know an endpoint yet */

/* A message that is ours or a core's. */
struct loan {
    struct core_msg msg;
    atomic_bool done; /* release by the core, acquire by us: the message is filled */
    bool out;
    struct health *owner;
};

struct link {
    struct loan watch, tally, update;
    struct endpoint_report watched[REPORTS], tallied[REPORTS];
    struct endpoint_update updates[UPDATES];
    bool untold;     /* something is to be sent */
    uint64_t resend; /* not before */
};

struct health {
    struct health_opts o;
    struct verdict_upstream *ups; /* by name */
    size_t nups;
    bool watching;      /* a core may have something to tell */
    uint64_t due;       /* the next end of an ejection, or of a window that isn't gathered yet */
    bool due_stale;     /* it has to be looked for */
    bool tallying;      /* the cores' tallies are being gathered */
    uint64_t tally_due; /* the latest end of that */
    struct link *links;
};

/* --- messages ----------------------------------------------------------------------------------
 */

/* On the core's thread. */
static void on_done(struct core_msg *m)
{
    struct loan *l = container_of(m, struct loan, msg);
    struct health *h = l->owner;

    atomic_store_explicit(&l->done, true, memory_order_release);
    h->o.wake(h->o.ctx);
}

static void lend(struct health *h, struct loan *l, unsigned core, enum core_msg_kind kind)
{
    l->msg.kind = kind;
    l->msg.done = on_done;
    atomic_store_explicit(&l->done, false, memory_order_relaxed);
    l->out = true;
    cores_post(&h->o.cores, core, &l->msg);
}

/* True once for each message that has come back. */
static bool take_back(struct loan *l)
{
    if (!l->out || !atomic_load_explicit(&l->done, memory_order_acquire))
        return false;
    l->out = false;
    return true;
}

static void lend_for_reports(struct health *h, struct loan *l, unsigned core,
                             enum core_msg_kind kind, struct endpoint_report *reports)
{
    l->msg.reports = reports;
    l->msg.max_reports = REPORTS;
    lend(h, l, core, kind);
}

/* --- upstreams ---------------------------------------------------------------------------------
 */

static int by_name(const void *a, const void *b)
{
    const struct verdict_upstream *x = a, *y = b;

    return strcmp(x->name, y->name);
}

static int has_name(const void *name, const void *up)
{
    return strcmp(name, ((const struct verdict_upstream *)up)->name);
}

static struct verdict_upstream *find(struct health *h, const char *name)
{
    return h->nups ? bsearch(name, h->ups, h->nups, sizeof(h->ups[0]), has_name) : NULL;
}

static void on_change(void *ctx, struct verdict_upstream *up, struct verdict_endpoint *ep,
                      uint8_t before, enum verdict_cause cause)
{
    struct health *h = ctx;

    h->due_stale = true;
    for (unsigned i = 0; i < h->o.cores.n; i++)
        h->links[i].untold = true;
    if (h->o.on_change)
        h->o.on_change(h->o.ctx, ep, before, cause);
}

static void free_upstreams(struct verdict_upstream *ups, size_t n)
{
    for (size_t i = 0; i < n; i++)
        verdict_fini(&ups[i]);
    free(ups);
}

struct health *health_new(const struct health_opts *o)
{
    struct health *h = calloc(1, sizeof(*h));

    if (!h)
        return NULL;
    h->o = *o;
    h->links = calloc(o->cores.n ? o->cores.n : 1, sizeof(h->links[0]));
    if (!h->links) {
        free(h);
        return NULL;
    }
    for (unsigned i = 0; i < o->cores.n; i++)
        h->links[i].watch.owner = h->links[i].tally.owner = h->links[i].update.owner = h;
    return h;
}

void health_free(struct health *h)
{
    if (!h)
        return;
    free_upstreams(h->ups, h->nups);
    free(h->links);
    free(h);
}

int health_apply(struct health *h, const struct snapshot *s, uint64_t now)
{
    struct verdict_upstream *ups = calloc(s->nupstreams + 1, sizeof(*ups));

    if (!ups)
        return -ENOMEM;
    for (size_t i = 0; i < s->nupstreams; i++) {
        const struct config_upstream *cfg = &s->upstreams[i];

        if (verdict_init(&ups[i], cfg, find(h, cfg->name), now, on_change, h)) {
            free_upstreams(ups, i);
            return -ENOMEM;
        }
    }
    qsort(ups, s->nupstreams, sizeof(*ups), by_name);
    if (!h->ups) /* the cores begin with all of it good */
        for (size_t i = 0; i < s->nupstreams; i++)
            for (size_t j = 0; j < ups[i].nendpoints; j++)
                ups[i].endpoints[j].untold = 0;
    free_upstreams(h->ups, h->nups);
    h->ups = ups;
    h->nups = s->nupstreams;
    h->due_stale = true;
    h->watching = false;
    for (size_t i = 0; i < h->nups; i++) {
        verdict_settle(&ups[i]);
        h->watching |= ups[i].has_health || ups[i].has_outlier;
    }
    for (unsigned i = 0; i < h->o.cores.n; i++)
        h->links[i].untold = true;
    return 0;
}

/* --- taking in ---------------------------------------------------------------------------------
 */

static void take_reports(struct health *h, const struct core_msg *m, uint64_t now)
{
    for (unsigned i = 0; i < m->nreports; i++) {
        struct endpoint_report *r = &m->reports[i];
        struct verdict_upstream *up = find(h, r->key.upstream);
        struct verdict_endpoint *ep = up ? verdict_find(up, &r->key) : NULL;

        if (ep)
            verdict_report(up, ep, r, now);
    }
}

static void take_tally(struct health *h, unsigned core, uint64_t now)
{
    struct link *k = &h->links[core];

    take_reports(h, &k->tally.msg, now);
    if (k->tally.msg.nreports == REPORTS) /* there may be more */
        lend_for_reports(h, &k->tally, core, CORE_MSG_TALLY, k->tallied);
}

/* Which ones a core missed isn't known; all that isn't as it is from the start is sent again. */
static void take_update(struct health *h, unsigned core, uint64_t now)
{
    struct link *k = &h->links[core];

    if (!k->update.msg.missed)
        return;
    k->untold = true;
    k->resend = now + RESEND_DELAY;
    for (size_t i = 0; i < h->nups; i++)
        for (size_t j = 0; j < h->ups[i].nendpoints; j++)
            if (h->ups[i].endpoints[j].flags)
                h->ups[i].endpoints[j].untold |= 1ull << core;
}

static void take_in(struct health *h, uint64_t now)
{
    for (unsigned i = 0; i < h->o.cores.n; i++) {
        struct link *k = &h->links[i];

        if (take_back(&k->watch))
            take_reports(h, &k->watch.msg, now);
        if (take_back(&k->tally))
            take_tally(h, i, now);
        if (take_back(&k->update))
            take_update(h, i, now);
    }
}

/* --- windows -----------------------------------------------------------------------------------
 */

static void begin_tally(struct health *h, uint64_t now)
{
    h->tallying = true;
    h->due_stale = true;
    h->tally_due = now + TALLY_WAIT;
    for (unsigned i = 0; i < h->o.cores.n; i++)
        if (!h->links[i].tally.out && cores_is_running(&h->o.cores, i))
            lend_for_reports(h, &h->links[i].tally, i, CORE_MSG_TALLY, h->links[i].tallied);
}

static bool has_all_tallies(const struct health *h)
{
    for (unsigned i = 0; i < h->o.cores.n; i++)
        if (h->links[i].tally.out && cores_is_running(&h->o.cores, i))
            return false;
    return true;
}

static bool is_window_over(const struct health *h, uint64_t now)
{
    for (size_t i = 0; i < h->nups; i++)
        if (h->ups[i].has_outlier && now >= h->ups[i].window_end)
            return true;
    return false;
}

/* When every core has told its part, or has had its time. */
static void close_windows(struct health *h, uint64_t now)
{
    take_in(h, now);
    if (!h->tallying || !(has_all_tallies(h) || now >= h->tally_due))
        return;
    h->tallying = false;
    h->due_stale = true;
    for (size_t i = 0; i < h->nups; i++)
        if (h->ups[i].has_outlier && now >= h->ups[i].window_end)
            verdict_window(&h->ups[i], now);
}

/* --- sending -----------------------------------------------------------------------------------
 */

static unsigned gather_updates(struct health *h, unsigned core)
{
    struct link *k = &h->links[core];
    unsigned n = 0;

    k->untold = false;
    for (size_t i = 0; i < h->nups; i++) {
        for (size_t j = 0; j < h->ups[i].nendpoints; j++) {
            struct verdict_endpoint *ep = &h->ups[i].endpoints[j];

            if (!(ep->untold >> core & 1))
                continue;
            if (n == UPDATES) {
                k->untold = true;
                return n;
            }
            ep->untold &= ~(1ull << core);
            k->updates[n++] = (struct endpoint_update){ep->key, ep->flags};
        }
    }
    return n;
}

static void send_updates(struct health *h, unsigned core, uint64_t now)
{
    struct link *k = &h->links[core];

    if (!k->untold || k->update.out || now < k->resend)
        return;
    k->update.msg.updates = k->updates;
    k->update.msg.nupdates = gather_updates(h, core);
    if (k->update.msg.nupdates)
        lend(h, &k->update, core, CORE_MSG_ENDPOINTS);
}

static void send_out(struct health *h, uint64_t now)
{
    for (unsigned i = 0; i < h->o.cores.n; i++) {
        struct link *k = &h->links[i];

        if (!cores_is_running(&h->o.cores, i))
            continue;
        send_updates(h, i, now);
        if (h->watching && !k->watch.out)
            lend_for_reports(h, &k->watch, i, CORE_MSG_WATCH, k->watched);
    }
}

static uint64_t earlier(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

static void find_due(struct health *h)
{
    if (!h->due_stale)
        return;
    h->due_stale = false;
    h->due = UINT64_MAX;
    for (size_t i = 0; i < h->nups; i++) {
        const struct verdict_upstream *up = &h->ups[i];

        h->due = earlier(h->due, verdict_next_return(up));
        if (up->has_outlier && !h->tallying)
            h->due = earlier(h->due, up->window_end);
    }
}

static uint64_t next_call(const struct health *h, uint64_t now)
{
    uint64_t next = h->tallying ? earlier(h->due, h->tally_due) : h->due;

    for (unsigned i = 0; i < h->o.cores.n; i++)
        if (h->links[i].untold && !h->links[i].update.out && cores_is_running(&h->o.cores, i))
            next = earlier(next, h->links[i].resend > now ? h->links[i].resend : now);
    return next;
}

/* Ejections and windows that have ended. */
static void on_due(struct health *h, uint64_t now)
{
    for (size_t i = 0; i < h->nups; i++)
        if (h->ups[i].has_outlier)
            verdict_expire(&h->ups[i], now);
    if (!h->tallying && is_window_over(h, now))
        begin_tally(h, now);
}

uint64_t health_poll(struct health *h, uint64_t now)
{
    take_in(h, now);
    find_due(h);
    if (now >= h->due)
        on_due(h, now);
    close_windows(h, now);
    send_out(h, now);
    find_due(h);
    return next_call(h, now);
}
