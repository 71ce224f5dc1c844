#include "dataplane/proxy/secure.h"

#include <errno.h>

#include "dataplane/proxy/listener.h"
#include "dataplane/tls/tls.h"

struct secure {
    struct conn c;
    uint64_t due;
};

static uint64_t now_of(const struct secure *x)
{
    return sched_now(x->c.listener->proxy->sched);
}

/* The handshake is done: what it held is the client's or the tunnel's from now on. */
static enum poll hand_over(struct secure *x)
{
    struct listener *l = x->c.listener;
    struct arrival a = {
        .stream = x->c.stream, .via = x->c.via, .at = x->c.accepted_at, .ticket = x->c.ticket};
    stream_unwatch(a.stream);
    if (!listener_serve(l, &a)) {
        l->count.refused++;
        return POLL_READY;
    }
    x->c.stream = NULL;
    x->c.via = NULL;
    x->c.ticket = (struct conn_ticket){0};
    return POLL_READY;
}

static enum poll give_up(struct secure *x, enum tls_fail why)
{
    tls_give_up(x->c.stream, why);
    return POLL_READY;
}

static enum poll secure_poll(struct task *t)
{
    struct secure *x = container_of(t, struct secure, c.task);
    struct listener *l = x->c.listener;
    enum tls_fail why;
    if (l->draining || l->proxy->draining)
        return give_up(x, TLS_FAIL_shutdown);
    if (now_of(x) >= x->due)
        return give_up(x, TLS_FAIL_timeout);
    int err = tls_handshake(x->c.stream, t,
                            l->cfg->tls && l->cfg->tls->overload == CONFIG_OVERLOAD_REFUSE, &why);
    if (err == 0)
        return hand_over(x);
    if (err != -EAGAIN)
        return POLL_READY; /* conn_fini() closes, and the client hears why */
    sleep_arm(&x->c.timer, t, x->due);
    return POLL_PENDING;
}

static void secure_drop(struct task *t)
{
    struct secure *x = container_of(t, struct secure, c.task);
    struct proxy *p = x->c.listener->proxy;
    conn_fini(&x->c);
    slab_put(&p->handshakes, x);
}

const struct task_kind secure_kind = {"handshake", secure_poll, secure_drop, sizeof(struct secure)};

size_t secure_size(void)
{
    return sizeof(struct secure);
}

bool secure_start(struct listener *l, const struct arrival *a)
{
    struct proxy *p = l->proxy;
    struct secure *x = slab_get_zeroed(&p->handshakes);
    struct arrival sealed = *a;
    if (!x)
        return false;
    sealed.stream = tls_accept(p->tls, l->cfg->tls->context, a->stream);
    if (!sealed.stream) {
        slab_put(&p->handshakes, x);
        return false;
    }
    conn_init(&x->c, l, &secure_kind, &sealed);
    x->due = sched_now(p->sched) + l->cfg->tls->handshake_timeout;
    return true;
}
