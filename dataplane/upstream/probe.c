#include "dataplane/upstream/probe.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "dataplane/http/h1/body.h"
#include "dataplane/http/h1/parse.h"
#include "dataplane/upstream/judge.h"
#include "runtime/hash.h"

#define MAX_FIELDS 128

enum probe_state {
    PROBING_NOT,
    PROBING_CONNECT,
    PROBING_ASK,
    PROBING_HEAD,
    PROBING_BODY,
};

struct probe {
    struct task task;
    struct sleep sleep; /* until the next, or until this one has taken too long */
    struct endpoint *ep;
    struct stream *stream; /* NULL while it sleeps */
    struct rope out, in, payload;
    struct h1_body body;
    uint64_t due;
    uint64_t started;
    uint8_t state;
    uint8_t result; /* of the last */
    int32_t streak;
};

/* What a step says: a result, or not yet one. */
#define GO_ON      (-1)
#define WAIT       (-2)
#define NO_VERDICT (-3) /* we lack something: that says nothing about the endpoint */

size_t probe_size(void)
{
    return sizeof(struct probe);
}

static struct upstreams *set_of(const struct probe *p)
{
    return p->ep->upstream->set_;
}

static const struct config_health *settings(const struct probe *p)
{
    return p->ep->upstream->cfg->health;
}

bool probe_is_ours(const struct upstream *up)
{
    const struct upstreams_opts *o = &up->set_->o_;
    unsigned cores = o->cores ? o->cores : 1;
    return hash_bytes(up->name, strlen(up->name), 0) % cores == o->core;
}

bool probe_last(const struct probe *p, int32_t *ret_streak, uint8_t *ret_result)
{
    *ret_streak = p->streak;
    *ret_result = p->result;
    return p->streak != 0;
}

/* The interval, longer or shorter by up to half of the jitter. */
static uint64_t next_start(struct probe *p)
{
    const struct config_health *h = settings(p);
    uint64_t spread = h->interval / 100 * h->jitter;
    uint64_t at = p->started + h->interval - spread / 2;
    return spread ? at + rng_next(&set_of(p)->rng) % spread : at;
}

/* With an answer in good order, else with a RST: it leaves nothing behind on either side. */
static void let_go(struct probe *p, bool in_order)
{
    struct rope_pool *ropes = set_of(p)->o_.ropes;
    rope_clear(ropes, &p->out);
    rope_clear(ropes, &p->in);
    rope_clear(ropes, &p->payload);
    h1_body_fini(&p->body, ropes);
    if (p->stream && in_order)
        stream_close(p->stream);
    else if (p->stream)
        stream_abort(p->stream);
    p->stream = NULL;
}

static void give_up(struct probe *p)
{
    let_go(p, false);
    p->state = PROBING_NOT;
    p->due = next_start(p);
}

static void finish(struct probe *p, enum probe_result r)
{
    let_go(p, p->state >= PROBING_HEAD && r != PROBE_timeout && r != PROBE_malformed);
    p->result = (uint8_t)r;
    if (r == PROBE_ok)
        p->streak = p->streak < 0 ? 1 : p->streak + (p->streak < INT32_MAX);
    else
        p->streak = p->streak > 0 ? -1 : p->streak - (p->streak > -INT32_MAX);
    p->state = PROBING_NOT;
    p->due = next_start(p);
    judge_report(p->ep);
}

static int start(struct probe *p)
{
    const struct config_health *h = settings(p);
    struct tcp_connect_opts o = {
        .dst = p->ep->addr, .dst_port = h->port ? h->port : p->ep->port, .task = &p->task};
    p->started = task_now(&p->task);
    p->due = p->started + h->timeout;
    int err = tcp_connect(set_of(p)->tcp, &o, &p->stream);
    if (err)
        return err == -ENOBUFS || err == -EADDRNOTAVAIL ? NO_VERDICT : PROBE_unreachable;
    stream_watch(p->stream, &p->task);
    stream_watch_write(p->stream, &p->task);
    p->state = PROBING_CONNECT;
    return GO_ON;
}

static int died(int err)
{
    return err == -ENETUNREACH || err == -EHOSTUNREACH ? PROBE_unreachable : PROBE_refused;
}

static int write_request(struct probe *p)
{
    const struct config_health *h = settings(p);
    struct rope_pool *ropes = set_of(p)->o_.ropes;
    const uint8_t *b = (const uint8_t *)&p->ep->addr;
    int err = rope_printf(ropes, &p->out, "GET %s HTTP/1.1\r\nHost: ", h->path);
    if (!err && h->host)
        err = rope_printf(ropes, &p->out, "%s", h->host);
    else if (!err)
        err = rope_printf(ropes, &p->out, "%u.%u.%u.%u:%u", b[0], b[1], b[2], b[3], p->ep->port);
    return err ? err
               : rope_printf(ropes, &p->out,
                             "\r\nUser-Agent: millrace-health\r\nConnection: close\r\n\r\n");
}

/* What the upstream's connections begin with, of a connection of our own. A port of its own for
 * probes isn't the origin's. */
static int write_greeting(struct probe *p)
{
    unsigned version = p->ep->upstream->proxy_protocol;
    struct stream_info info;
    char text[PROXY_HEADER_WRITE];
    if (!version || (settings(p)->port && settings(p)->port != p->ep->port))
        return 0;
    stream_get_info(p->stream, &info);
    struct proxy_header h = {.local = version != CONFIG_PROXY_V1,
                             .client = {.addr = info.local_addr, .port = info.local_port},
                             .to = {.addr = info.peer_addr, .port = info.peer_port}};
    return rope_append(set_of(p)->o_.ropes, &p->out, text, proxy_header_write(version, &h, text));
}

static int connecting(struct probe *p)
{
    int err = stream_status(p->stream);
    if (err == -EAGAIN)
        return WAIT;
    if (err)
        return died(err);
    if (write_greeting(p) != 0)
        return NO_VERDICT;
    if (!settings(p)->path && rope_is_empty(&p->out))
        return PROBE_ok;
    if (settings(p)->path && write_request(p) != 0)
        return NO_VERDICT;
    p->state = PROBING_ASK;
    return GO_ON;
}

static int asking(struct probe *p)
{
    ssize_t n = stream_write(p->stream, &p->task, &p->out);
    if (n == -EAGAIN)
        return WAIT;
    if (n < 0)
        return died((int)n);
    if (!rope_is_empty(&p->out))
        return GO_ON;
    p->state = PROBING_HEAD; /* and a connection that was all it wanted ends in good order */
    return settings(p)->path ? GO_ON : PROBE_ok;
}

static bool is_expected(const struct config_health *h, uint16_t status)
{
    if (!h->nstatuses)
        return status >= 200 && status <= 299;
    for (size_t i = 0; i < h->nstatuses; i++)
        if (status >= h->statuses[i].lo && status <= h->statuses[i].hi)
            return true;
    return false;
}

static bool wants_body(const struct config_health *h)
{
    return h->body_starts || h->body_contains;
}

/* > 0: bytes came; 0: the end; a result or WAIT. */
static int take_more(struct probe *p, bool *ret_eof)
{
    ssize_t n = stream_read(p->stream, &p->task, &p->in, PROBE_SCRATCH);
    *ret_eof = n == 0;
    if (n >= 0)
        return GO_ON;
    return n == -EAGAIN ? WAIT : died((int)n);
}

static int on_head(struct probe *p, const char *bytes, uint32_t len, uint32_t end)
{
    const struct config_health *h = settings(p);
    struct http_header fields[MAX_FIELDS];
    struct http_head head = {0};
    http_head_init(&head, fields, MAX_FIELDS);
    if (h1_parse_response(bytes, len, false, &head) != 0)
        return PROBE_malformed;
    rope_trim_head(set_of(p)->o_.ropes, &p->in, end);
    if (head.status < 200)
        return head.status == 101 ? PROBE_malformed : GO_ON;
    if (!is_expected(h, head.status))
        return PROBE_status;
    if (!wants_body(h))
        return PROBE_ok;
    h1_body_init(&p->body, head.framing, head.content_length, UINT64_MAX);
    p->state = PROBING_BODY;
    return GO_ON;
}

static int reading_head(struct probe *p)
{
    static const struct h1_limits limits = {.head_size = PROBE_SCRATCH};
    char *text = set_of(p)->scratch_;
    uint32_t len = p->in.len < PROBE_SCRATCH ? (uint32_t)p->in.len : PROBE_SCRATCH;
    struct h1_scan scan;
    bool eof;
    rope_copy_out(&p->in, 0, text, len);
    h1_scan_init_response(&scan);
    int end = h1_scan_head(&scan, text, len, &limits);
    if (end > 0)
        return on_head(p, text + scan.start, (uint32_t)end - scan.start, (uint32_t)end);
    if (end < 0 || len == PROBE_SCRATCH)
        return PROBE_malformed;
    int r = take_more(p, &eof);
    return r == GO_ON && eof ? PROBE_refused : r;
}

static bool has_right_body(struct probe *p)
{
    const struct config_health *h = settings(p);
    char *text = set_of(p)->scratch_;
    size_t len = p->payload.len < PROBE_SCRATCH ? p->payload.len : PROBE_SCRATCH;
    size_t starts = h->body_starts ? strlen(h->body_starts) : 0;
    rope_copy_out(&p->payload, 0, text, len);
    if (starts && (len < starts || memcmp(text, h->body_starts, starts) != 0))
        return false;
    return !h->body_contains || memmem(text, len, h->body_contains, strlen(h->body_contains));
}

/* Nothing that may still come can make it right. */
static bool is_whole(const struct probe *p)
{
    return p->body.done || p->body.kind == HTTP_BODY_NONE || p->payload.len >= PROBE_SCRATCH;
}

static int reading_body(struct probe *p)
{
    struct rope_pool *ropes = set_of(p)->o_.ropes;
    bool eof;
    ssize_t n = 0;
    if (!rope_is_empty(&p->in))
        n = h1_body_decode(&p->body, ropes, &p->in, &p->payload, PROBE_SCRATCH);
    if (n == -EBADMSG)
        return PROBE_malformed;
    if (n < 0)
        return NO_VERDICT;
    if (has_right_body(p))
        return PROBE_ok;
    if (is_whole(p))
        return PROBE_body;
    if (n > 0)
        return GO_ON;
    int r = take_more(p, &eof);
    if (r != GO_ON || !eof)
        return r;
    return h1_body_eof(&p->body) == 0 ? PROBE_body : PROBE_refused;
}

static int step(struct probe *p)
{
    switch ((enum probe_state)p->state) {
    case PROBING_NOT:
        return task_now(&p->task) < p->due ? WAIT : start(p);
    case PROBING_CONNECT:
        return connecting(p);
    case PROBING_ASK:
        return asking(p);
    case PROBING_HEAD:
        return reading_head(p);
    case PROBING_BODY:
        return reading_body(p);
    }
    return WAIT;
}

static enum poll probe_poll(struct task *t)
{
    struct probe *p = container_of(t, struct probe, task);
    while (task_consume(t, 1)) {
        int r = step(p);
        if (r == WAIT && p->state != PROBING_NOT && task_now(t) >= p->due)
            r = PROBE_timeout;
        if (r == WAIT) {
            sleep_arm(&p->sleep, t, p->due);
            return POLL_PENDING;
        }
        if (r == NO_VERDICT)
            give_up(p);
        else if (r != GO_ON)
            finish(p, (enum probe_result)r);
    }
    return POLL_PENDING;
}

static void probe_drop(struct task *t)
{
    struct probe *p = container_of(t, struct probe, task);
    sleep_cancel(&p->sleep);
    let_go(p, false);
    p->ep->probe_ = NULL;
    slab_put(&set_of(p)->probes_, p);
}

static const struct task_kind probe_kind = {"probe", probe_poll, probe_drop, sizeof(struct probe)};

int probe_prepare(struct endpoint *ep)
{
    struct upstream *up = ep->upstream;
    struct upstreams *u = up->set_;
    const struct config_health *h = up->cfg->health;
    if (!h || u->closing_ || !probe_is_ours(up)) {
        probe_stop(ep);
        return 0;
    }
    if (ep->probe_) {
        task_wake(&ep->probe_->task);
        return 0;
    }
    if (!u->scratch_)
        u->scratch_ = malloc(PROBE_SCRATCH);
    struct probe *p = u->scratch_ ? slab_get_zeroed(&u->probes_) : NULL;
    if (!p)
        return -ENOMEM;
    uint64_t spread = h->interval / 100 * h->jitter;
    p->ep = ep;
    p->due = sched_now(u->sched) + (spread ? rng_next(&u->rng) % spread : 0);
    ep->probe_ = p;
    task_spawn(u->sched, &p->task, &probe_kind);
    p->task.label = up->name;
    return 0;
}

void probe_stop(struct endpoint *ep)
{
    if (ep->probe_)
        task_abort(&ep->probe_->task);
}
