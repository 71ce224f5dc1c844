#include <assert.h>
#include <errno.h>
#include <string.h>

#include "dataplane/proxy/conn.h"
#include "dataplane/proxy/duties.h"
#include "dataplane/proxy/exchange.h"
#include "dataplane/route/match.h"

void client_answer(struct client *c, struct http_answer *a)
{
    struct proxy *p = client_proxy(c);
    a->keep_alive = a->keep_alive && !client_is_last(c);
    a->date = proxy_date(p);
    /* Without memory for an answer the connection is closed without one. */
    c->keep_alive = http_answer_write(p->ropes, &c->out, a) == 0 && a->keep_alive;
    c->state = CLIENT_FLUSH;
    c->flushed = client_now(c);
}

static void start_head(struct client *c)
{
    c->state = CLIENT_HEAD;
    c->since = client_now(c);
    head_reader_reset(&c->head);
}

static enum access_reason reason_of(int status)
{
    switch (status) {
    case 404:
        return ACCESS_no_route;
    case 405:
    case 501:
        return ACCESS_not_implemented;
    case 408:
        return ACCESS_header_timeout;
    case 413:
        return ACCESS_request_too_large;
    case 414:
        return ACCESS_target_too_long;
    case 417:
        return ACCESS_expectation;
    case 421:
        return ACCESS_misdirected;
    case 431:
        return ACCESS_headers_too_large;
    case 500:
    case 503:
        return ACCESS_no_memory;
    case 505:
        return ACCESS_version;
    default:
        return ACCESS_bad_request;
    }
}

/* A request that can't become an exchange. */
static enum step refuse_for(struct client *c, const struct http_head *head,
                            const struct refusal *no)
{
    struct access_record r;
    bool parsed = head && head->error == HTTP_ERR_NONE;
    record_init(&r, c);
    if (head)
        record_request(&r, c, head);
    if (parsed)
        ids_record(c, head, &r);
    record_finish(&r, c, c->since, no->status, no->why);
    rope_clear(client_proxy(c)->ropes, &c->out);
    duties_answer(c, head,
                  parsed && head->keep_alive && head->version_minor > 0 &&
                      head->framing == HTTP_BODY_NONE,
                  no, &r);
    return STEP_AGAIN;
}

static enum step refuse(struct client *c, const struct http_head *head, int status)
{
    return refuse_for(c, head,
                      &(struct refusal){.status = status,
                                        .why = reason_of(status),
                                        .retry_after = client_retry_after(status)});
}

static int route_request(struct client *c, const struct http_route_key *key,
                         const struct config_route **ret_route)
{
    switch (route_match(client_http(c), key->host.name, key->host.len, key->path, key->path_len,
                        ret_route)) {
    case ROUTE_OK:
        return 0;
    case ROUTE_NO_PATH:
        return 404;
    case ROUTE_NO_HOST:
        return 421;
    }
    return 500;
}

/* The request is in order: what the listener and the route say before an origin is asked. */
static enum step begin(struct client *c, const struct exchange_request *r)
{
    const struct config_http *http = client_http(c);
    struct exchange_request routed = *r;
    struct refusal no;
    int status;
    if (http->gated && !duties_pass_listener(c, r->head, &no))
        return refuse_for(c, r->head, &no);
    status = route_request(c, r->key, &routed.route);
    if (status)
        return refuse(c, r->head, status);
    if (routed.route->gated && !duties_pass_route(c, &routed, &no))
        return refuse_for(c, r->head, &no);
    if (r->head->framing == HTTP_BODY_LENGTH && r->head->content_length > http->body_size)
        return refuse(c, r->head, 413);
    status = exchange_start(c, &routed);
    if (status)
        return refuse(c, r->head, -status);
    c->state = CLIENT_EXCHANGE;
    return STEP_AGAIN;
}

/* The whole head stands at `base`; it and the empty lines before it are `end` bytes. */
static enum step on_head(struct client *c, const char *base, uint32_t end)
{
    struct proxy *p = client_proxy(c);
    const struct config_http *http = client_http(c);
    struct h1_limits limits = {.head_size = http->header_size};
    struct http_head head = {0};
    struct http_route_key key;
    uint32_t start = c->head.scan.start;
    p->request_of = NULL;
    http_head_init(&head, p->fields, (uint16_t)http->header_count);
    int err = h1_parse_request(base + start, end - start, &limits, &head);
    if (err)
        return refuse(c, &head, -err);
    err = http_normalize_request(&head, false, p->path, p->path_size, &key);
    enum step s =
        err ? refuse(c, &head, -err) : begin(c, &(struct exchange_request){&head, &key, NULL, end});
    if (!c->x) { /* nothing has taken it */
        rope_trim_head(p->ropes, &c->in, end);
        head_reader_reset(&c->head);
    }
    return s;
}

/* By way of a half-close: a request that comes at this moment must not turn the answer before it
 * into a RST. */
static enum step say_goodbye(struct client *c)
{
    c->keep_alive = false;
    c->state = CLIENT_FLUSH;
    return STEP_AGAIN;
}

/* Silence before a request ends the connection; silence inside a head is answered. */
static enum step head_timeout(struct client *c)
{
    if (c->in.len == 0)
        return STEP_DONE;
    return refuse(c, NULL, 408);
}

static uint64_t head_due(const struct client *c)
{
    const struct config_http *http = client_http(c);
    return c->since + (c->in.len ? http->header_timeout : http->idle_timeout);
}

static enum step read_head(struct client *c)
{
    const struct config_http *http = client_http(c);
    struct h1_limits limits = {.head_size = http->header_size};
    const char *base;
    int end = head_reader_scan(&c->head, &c->in, &limits, &base);
    if (end < 0)
        return refuse(c, NULL, -end);
    if (end > 0)
        return on_head(c, base, (uint32_t)end);
    if (client_is_last(c) && c->in.len == 0)
        return say_goodbye(c);

    bool was_idle = c->in.len == 0;
    ssize_t n = stream_read(c->c.stream, &c->c.task, &c->in, RELAY_BYTES);
    if (n > 0) {
        if (was_idle)
            c->since = client_now(c);
        return STEP_AGAIN;
    }
    if (n == -EAGAIN) {
        if (client_now(c) >= head_due(c))
            return head_timeout(c);
        sleep_arm(&c->c.timer, &c->c.task, head_due(c));
        return STEP_WAIT;
    }
    /* EOF or death; a head that was begun is of no use to anyone. */
    return STEP_DONE;
}

static enum step flush(struct client *c)
{
    if (c->out.len) {
        ssize_t n = stream_write(c->c.stream, &c->c.task, &c->out);
        uint64_t now = client_now(c);
        if (n > 0) {
            c->flushed = now;
        } else if (n == -EAGAIN) {
            uint64_t due = c->flushed + client_http(c)->body_timeout;
            if (now >= due) {
                stream_abort(c->c.stream);
                c->c.stream = NULL;
                return STEP_DONE;
            }
            sleep_arm(&c->c.timer, &c->c.task, due);
            return STEP_WAIT;
        } else {
            return STEP_DONE;
        }
        return STEP_AGAIN;
    }
    if (c->keep_alive) {
        start_head(c);
        return STEP_AGAIN;
    }
    /* RFC 9112 §9.6: half-close first, so that bytes still on their way from the client don't turn
     * our answer into a RST. */
    if (stream_shutdown(c->c.stream) < 0)
        return STEP_DONE;
    rope_clear(client_proxy(c)->ropes, &c->in);
    c->state = CLIENT_LINGER;
    c->since = client_now(c);
    c->discarded = 0;
    return STEP_AGAIN;
}

static enum step linger(struct client *c)
{
    ssize_t n = stream_read(c->c.stream, &c->c.task, &c->in, RELAY_BYTES);
    if (n > 0) {
        rope_clear(client_proxy(c)->ropes, &c->in);
        c->discarded += (uint32_t)n;
        return c->discarded > LINGER_BYTES ? STEP_DONE : STEP_AGAIN;
    }
    uint64_t due = c->since + LINGER_NS;
    if (n != -EAGAIN || client_now(c) >= due)
        return STEP_DONE;
    sleep_arm(&c->c.timer, &c->c.task, due);
    return STEP_WAIT;
}

static enum step client_step(struct client *c)
{
    switch ((enum client_state)c->state) {
    case CLIENT_HEAD:
        return read_head(c);
    case CLIENT_EXCHANGE:
        return exchange_step(c->x);
    case CLIENT_FLUSH:
        return flush(c);
    case CLIENT_LINGER:
        return linger(c);
    }
    return STEP_DONE;
}

static enum poll client_poll(struct task *t)
{
    struct client *c = container_of(t, struct client, c.task);
    do { /* a step that only waits is no operation: it would hide a wake-up for nothing */
        switch (client_step(c)) {
        case STEP_AGAIN:
            break;
        case STEP_WAIT:
            return POLL_PENDING;
        case STEP_DONE:
            return POLL_READY;
        }
    } while (task_consume(t, 1));
    return POLL_PENDING;
}

static void client_drop(struct task *t)
{
    struct client *c = container_of(t, struct client, c.task);
    struct proxy *p = client_proxy(c);
    if (c->x)
        exchange_cancel(c->x, p->draining ? ACCESS_shutdown : ACCESS_client_gone);
    pool_owner_end(&c->owner);
    rope_clear(p->ropes, &c->in);
    rope_clear(p->ropes, &c->out);
    head_reader_reset(&c->head);
    conn_fini(&c->c);
    slab_put(&p->clients, c);
}

const struct task_kind client_kind = {"client", client_poll, client_drop, sizeof(struct client)};

bool client_start(struct listener *l, const struct arrival *a)
{
    struct client *c = slab_get_zeroed(&l->proxy->clients);
    if (!c)
        return false;
    conn_init(&c->c, l, &client_kind, a);
    start_head(c);
    return true;
}
