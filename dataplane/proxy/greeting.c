#include "dataplane/proxy/greeting.h"

#include <errno.h>

#include "dataplane/proxy/listener.h"
#include "dataplane/route/access.h"

struct greeting {
    struct conn c;
    struct proxy_header header;
    uint32_t left; /* of the header's bytes, once it has been understood */
    bool required; /* as it was configured at the start */
    uint64_t due;
};

static const char *const names[] = {
#define TURNED_AWAY(name, text) #name,
#include "dataplane/proxy/turned_away.def"
#undef TURNED_AWAY
};

const char *turned_away_name(enum turned_away why)
{
    return (unsigned)why < TURNED_AWAY_COUNT ? names[why] : "?";
}

size_t greeting_size(void)
{
    return sizeof(struct greeting);
}

bool greeting_is_due(const struct listener *l, uint32_t peer_addr)
{
    const struct config_proxy_protocol *x = l->cfg->proxy_protocol;
    return x && access_has(x->inside, x->ninside, peer_addr);
}

static enum step turn_away(struct greeting *g, enum turned_away why)
{
    g->c.listener->count.turned_away[why]++;
    if (why != TURNED_AWAY_proxy_cut) { /* that one has said goodbye itself */
        stream_abort(g->c.stream);
        g->c.stream = NULL;
    }
    return STEP_DONE;
}

static enum step await(struct greeting *g)
{
    if (sched_now(g->c.listener->proxy->sched) >= g->due)
        return turn_away(g, TURNED_AWAY_proxy_timeout);
    sleep_arm(&g->c.timer, &g->c.task, g->due);
    return STEP_WAIT;
}

static enum step refuse(struct greeting *g)
{
    g->c.listener->count.refused++;
    stream_abort(g->c.stream);
    g->c.stream = NULL;
    return STEP_DONE;
}

/* `header`: NULL, there was none. */
static enum step hand_over(struct greeting *g, const struct proxy_header *header)
{
    struct listener *l = g->c.listener;
    struct arrival a = {.stream = g->c.stream, .at = g->c.accepted_at};
    if (header && !header->local) {
        a.via = slab_get(&l->proxy->headers);
        if (!a.via)
            return refuse(g);
        *a.via = *header;
    }
    stream_unwatch(a.stream);
    g->c.stream = NULL;
    listener_admit(l, &a);
    return STEP_DONE;
}

static enum step look(struct greeting *g)
{
    char bytes[PROXY_HEADER_SEEN];
    bool last;
    ssize_t n = stream_peek(g->c.stream, &g->c.task, bytes, sizeof(bytes), &last);
    if (n == -EAGAIN)
        return await(g);
    if (n <= 0)
        return turn_away(g, TURNED_AWAY_proxy_cut);
    int len = proxy_header_parse(bytes, (size_t)n, &g->header);
    if (len == -ENOMSG && !g->required)
        return hand_over(g, NULL);
    if (len < 0)
        return turn_away(g,
                         len == -ENOMSG ? TURNED_AWAY_proxy_missing : TURNED_AWAY_proxy_malformed);
    if (len == 0)
        return last ? turn_away(g, TURNED_AWAY_proxy_cut) : await(g);
    g->left = (uint32_t)len;
    return STEP_AGAIN;
}

/* Takes the header off, and what it has behind its addresses, as it comes. */
static enum step take_off(struct greeting *g)
{
    struct rope bytes = {0};
    ssize_t n = stream_read(g->c.stream, &g->c.task, &bytes, g->left);
    rope_clear(g->c.listener->proxy->ropes, &bytes);
    if (n == -EAGAIN)
        return await(g);
    if (n <= 0)
        return turn_away(g, TURNED_AWAY_proxy_cut);
    g->left -= (uint32_t)n;
    return g->left ? STEP_AGAIN : hand_over(g, &g->header);
}

static enum step greeting_step(struct greeting *g)
{
    if (g->c.listener->draining || g->c.listener->proxy->draining)
        return refuse(g);
    return g->left ? take_off(g) : look(g);
}

static enum poll greeting_poll(struct task *t)
{
    struct greeting *g = container_of(t, struct greeting, c.task);
    while (task_consume(t, 1)) {
        enum step s = greeting_step(g);
        if (s != STEP_AGAIN)
            return s == STEP_DONE ? POLL_READY : POLL_PENDING;
    }
    return POLL_PENDING;
}

static void greeting_drop(struct task *t)
{
    struct greeting *g = container_of(t, struct greeting, c.task);
    struct proxy *p = g->c.listener->proxy;
    conn_fini(&g->c);
    slab_put(&p->greetings, g);
}

const struct task_kind greeting_kind = {"greeting", greeting_poll, greeting_drop,
                                        sizeof(struct greeting)};

bool greeting_start(struct listener *l, const struct arrival *a)
{
    struct greeting *g = slab_get_zeroed(&l->proxy->greetings);
    if (!g)
        return false;
    g->required = l->cfg->proxy_protocol->required;
    g->due = a->at + l->cfg->proxy_protocol->timeout;
    conn_init(&g->c, l, &greeting_kind, a);
    return true;
}
