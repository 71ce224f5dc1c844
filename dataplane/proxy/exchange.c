#include "dataplane/proxy/exchange.h"

#include <assert.h>
#include <errno.h>
#include <string.h>

#include "dataplane/http/deadline.h"
#include "dataplane/proxy/admit.h"
#include "dataplane/proxy/duties.h"

static struct proxy *proxy_of(const struct exchange *x)
{
    return client_proxy(x->client);
}

static struct task *task_of(const struct exchange *x)
{
    return &x->client->c.task;
}

static uint64_t earlier(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

typedef bool deadline_parse(const char *text, size_t len, uint64_t *ret_ns);

/* The least of what the fields of that name, and number, say. */
static uint64_t patience_by(const struct http_head *head, const char *name, enum http_header_id id,
                            deadline_parse *parse)
{
    uint64_t ns, least = NO_TIME;
    struct http_header *f = NULL;
    if (id != HTTP_H_OTHER && !http_head_has(head, id))
        return NO_TIME;
    size_t len = strlen(name);
    while ((f = http_head_find_name(head, f, name, len))) {
        if (parse(head->base + f->value_off, f->value_len, &ns))
            least = earlier(least, ns);
        f++;
    }
    return least;
}

/* How long the client says it will wait; NO_TIME: it doesn't. */
static uint64_t client_patience(const struct exchange *x, const struct http_head *head)
{
    const struct listener *l = x->client->c.listener;
    const char *name = l->cfg->http->deadline_header;
    if (!name)
        return NO_TIME;
    return earlier(
        patience_by(head, name, (enum http_header_id)l->deadline_id, http_deadline_parse_ms),
        patience_by(head, HTTP_GRPC_TIMEOUT, HTTP_H_GRPC_TIMEOUT, http_deadline_parse_grpc));
}

static uint64_t request_deadline(const struct exchange *x, const struct exchange_request *r)
{
    uint64_t t =
        r->route->request_timeout ? r->route->request_timeout : x->upstream->request_timeout;
    t = earlier(t ? t : NO_TIME, client_patience(x, r->head));
    return t < NO_TIME - x->started ? x->started + t : NO_TIME;
}

int exchange_start(struct client *c, const struct exchange_request *r)
{
    const struct http_head *head = r->head;
    struct proxy *p = client_proxy(c);
    struct exchange *x = slab_get(&p->exchanges);
    if (!x)
        return -503;
    memset(x, 0, offsetof(struct exchange, record));
    x->client = c;
    x->started = client_now(c);
    x->moved_in = x->moved_out = x->started;
    x->idempotent = http_method_is_idempotent(head->method);
    x->head_request = head->method == HTTP_HEAD;
    x->client_minor = head->version_minor;
    x->keep_alive = head->keep_alive;
    x->expects = head->expect_continue;
    record_init(&x->record, c);
    record_request(&x->record, c, head);
    int err =
        h1_body_init(&x->body, head->framing, head->content_length, client_http(c)->body_size);
    if (head->framing == HTTP_BODY_NONE)
        x->body.done = true;
    if (!err)
        err = exchange_keep_head(x, r->end);
    if (err) {
        slab_put(&p->exchanges, x);
        return err == -EFBIG ? -413 : -503;
    }
    p->request = *head;
    p->request_of = x;
    x->upstream = upstream_get(&p->upstreams, p->snapshot, r->route->upstream);
    x->upstream->count.requests++;
    retry_budget_request(&x->upstream->limiter.budget);
    x->priority = (uint8_t)r->route->priority;
    x->route = (uint32_t)(r->route - client_http(c)->routes);
    x->version = p->snapshot->version;
    x->try_due = NO_TIME;
    x->hash = exchange_hash(x->upstream, r, &x->record);
    x->deadline = request_deadline(x, r);
    record_text(x->record.upstream, sizeof(x->record.upstream), x->upstream->name,
                strlen(x->upstream->name));
    c->c.task.label = x->upstream->name;
    c->x = x;
    if (r->route->edit) {
        x->edit = route_edit_get(p->edits[r->route->edit - 1]);
        edit_begin(x, head);
    }
    return 0;
}

void exchange_judge(struct exchange *x, enum attempt_result r)
{
    if (x->judged || !x->conn)
        return;
    x->judged = true;
    endpoint_judge(x->ep, r, x->record.upstream_ns);
}

void exchange_end_attempt(struct exchange *x, enum leave how)
{
    struct rope_pool *ropes = proxy_of(x)->ropes;
    if (x->state == EXCHANGE_RELAY)
        exchange_judge(x, ATTEMPT_OK);
    rope_clear(ropes, &x->up);
    bool clean = rope_is_empty(&x->in);
    rope_clear(ropes, &x->in);
    head_reader_reset(&x->reader);
    h1_body_fini(&x->resp, ropes);
    pool_wait_cancel(&x->wait);
    admission_cancel(&x->admission);
    conn_permits_put(&x->for_conn);
    leased_permit_put(&x->permit);
    x->try_due = NO_TIME;
    if (x->conn && how == LEAVE_POOLED && clean)
        pool_release(x->conn);
    else if (x->conn)
        pool_discard(x->conn, how == LEAVE_BROKEN || !clean);
    x->conn = NULL;
    if (x->ep)
        endpoint_release(x->ep);
    x->ep = NULL;
}

static void exchange_free(struct exchange *x, enum leave how)
{
    struct client *c = x->client;
    struct proxy *p = proxy_of(x);
    exchange_end_attempt(x, how);
    leased_permit_put(&x->admitted);
    exchange_drop_head(x);
    h1_body_fini(&x->body, p->ropes);
    c->c.task.label = NULL;
    c->x = NULL;
    upstream_put(x->upstream);
    if (x->edit)
        route_edit_put(x->edit);
    slab_put(&p->exchanges, x);
}

void exchange_cancel(struct exchange *x, enum access_reason why)
{
    x->record.attempts = x->attempts;
    record_finish(&x->record, x->client, x->started, x->status, why);
    exchange_free(x, LEAVE_BROKEN);
}

/* Breaks the client's connection: a part of an answer must never look whole. */
static enum step cut_client(struct exchange *x, enum access_reason why)
{
    struct client *c = x->client;
    exchange_cancel(x, why);
    stream_abort(c->c.stream);
    c->c.stream = NULL;
    return STEP_DONE;
}

/* Whether it is the origin that keeps us waiting: for the handshake, or for an answer to a request
 * that it has all of. */
static bool is_origins_turn(const struct exchange *x)
{
    return x->state == EXCHANGE_CONNECT || (x->state == EXCHANGE_AWAIT_HEAD && x->request_sent);
}

enum step exchange_fail(struct exchange *x, int status, enum access_reason why)
{
    struct client *c = x->client;
    x->record.attempts = x->attempts;
    if (why == ACCESS_request_timeout || why == ACCESS_connect_timeout)
        x->upstream->count.timeouts++;
    if (why == ACCESS_upstream_malformed || why == ACCESS_upstream_cut ||
        (why == ACCESS_request_timeout && is_origins_turn(x)))
        exchange_judge(x, ATTEMPT_FAILED);
    if (x->head_out)
        return cut_client(x, why);
    if (why == ACCESS_client_gone) {
        /* Nobody waits for an answer; earlier ones may still be on their way to be read. */
        x->status = (uint16_t)status;
        exchange_cancel(x, why);
        return STEP_DONE;
    }
    if (x->head_written) {
        x->record.bytes_out = 0;
        rope_clear(client_proxy(c)->ropes, &c->out);
    }
    struct http_answer a = {.status = status,
                            .keep_alive = x->keep_alive && x->body.done && x->client_minor > 0,
                            .head_request = x->head_request,
                            .retry_after = client_retry_after(status)};
    edit_answer(x, &a);
    record_finish(&x->record, c, x->started, status, why);
    client_answer(c, &a);
    exchange_free(x, LEAVE_BROKEN);
    return STEP_AGAIN;
}

/* When the client must have sent more of its body. Once an answer is on its way the client may well
 * wait for that before it goes on, or never go on. */
static uint64_t body_due(const struct exchange *x)
{
    if (x->state != EXCHANGE_AWAIT_HEAD || x->body.done || x->request_cut || x->expects ||
        !rope_is_empty(&x->up))
        return NO_TIME;
    return x->moved_in + client_http(x->client)->body_timeout;
}

/* When the client must have taken more of the answer. */
static uint64_t write_due(const struct exchange *x)
{
    if (x->state < EXCHANGE_AWAIT_HEAD || rope_is_empty(&x->client->out))
        return NO_TIME;
    return x->moved_out + client_http(x->client)->body_timeout;
}

/* The nearest of the deadlines that apply now. */
static uint64_t exchange_due(const struct exchange *x)
{
    uint64_t due = earlier(x->deadline, earlier(body_due(x), write_due(x)));
    if (x->state == EXCHANGE_RELAY)
        return due;
    due = earlier(due, x->try_due);
    bool has_own = x->state == EXCHANGE_BACKOFF || x->state == EXCHANGE_ACQUIRE ||
                   x->state == EXCHANGE_CONNECT;
    return has_own ? earlier(due, x->due) : due;
}

enum step exchange_wait(struct exchange *x)
{
    uint64_t due = exchange_due(x);
    if (due != NO_TIME)
        sleep_arm(&x->client->c.timer, task_of(x), due);
    return STEP_WAIT;
}

/* A new attempt has to be admitted like any other request. */
static enum step backoff(struct exchange *x)
{
    if (client_now(x->client) < x->due)
        return exchange_wait(x);
    x->state = EXCHANGE_ADMIT;
    return STEP_AGAIN;
}

static int greet(struct exchange *x)
{
    struct proxy_header ends;
    conn_ends(&x->client->c, &ends);
    return upconn_greet(x->conn, &ends);
}

static enum step connecting(struct exchange *x)
{
    int err = stream_status(x->conn->stream);
    if (err == -EAGAIN) {
        if (client_now(x->client) < x->due)
            return exchange_wait(x);
        x->upstream->count.connect_failed++;
        return exchange_retry(x, CONFIG_RETRY_CONNECT, 504, ACCESS_connect_timeout);
    }
    if (err) {
        x->upstream->count.connect_failed++;
        return exchange_retry(x, CONFIG_RETRY_CONNECT, 502, ACCESS_connect_failed);
    }
    if (upconn_wants_header(x->conn))
        err = greet(x);
    if (!err)
        err = exchange_write_head(x);
    /* A chunked body may have been read to its end without a byte of payload before this attempt.
     */
    if (!err && x->body.kind == HTTP_BODY_CHUNKED && x->body.done)
        err = h1_body_encode_last(proxy_of(x)->ropes, &x->up, NULL);
    if (err)
        return exchange_fail(x, 503, ACCESS_no_memory);
    head_reader_reset_response(&x->reader);
    x->state = EXCHANGE_AWAIT_HEAD;
    x->asked = x->moved_in = client_now(x->client);
    return STEP_AGAIN;
}

/* A client that resets has gone; one that ends its half while it waits for a head has gone too, as
 * far as anyone can tell (a killed client looks just like it). */
static bool client_is_gone(const struct exchange *x)
{
    const struct stream *s = x->client->c.stream;
    if (stream_status(s) < 0)
        return true;
    return x->state <= EXCHANGE_AWAIT_HEAD && x->body.done && rope_is_empty(&x->client->in) &&
           stream_at_eof(s);
}

static enum step check_time(struct exchange *x)
{
    uint64_t now = client_now(x->client);
    if (now >= x->deadline)
        return exchange_fail(x, 504, ACCESS_request_timeout);
    if (now >= write_due(x))
        return cut_client(x, ACCESS_write_timeout);
    if (now >= body_due(x))
        return exchange_fail(x, 408, ACCESS_body_timeout);
    if (now >= x->try_due && x->state < EXCHANGE_RELAY) {
        x->upstream->count.timeouts++;
        return exchange_retry(x, CONFIG_RETRY_TIMEOUT, 504, ACCESS_try_timeout);
    }
    return STEP_AGAIN;
}

static enum step transfer(struct exchange *x)
{
    struct client *c = x->client;
    enum step up = exchange_pump_request(x);
    if (c->x != x || up == STEP_DONE)
        return up;
    if (x->state < EXCHANGE_AWAIT_HEAD) /* begun anew */
        return STEP_AGAIN;
    enum step down = exchange_pump_response(x);
    if (c->x != x || down != STEP_WAIT)
        return down;
    return up == STEP_AGAIN ? STEP_AGAIN : exchange_wait(x);
}

static enum step step_of_state(struct exchange *x)
{
    switch ((enum exchange_state)x->state) {
    case EXCHANGE_ADMIT:
        return exchange_admit(x);
    case EXCHANGE_BACKOFF:
        return backoff(x);
    case EXCHANGE_PICK:
        return exchange_pick(x);
    case EXCHANGE_PERMIT:
        return exchange_permit(x);
    case EXCHANGE_DIAL:
        return exchange_dial(x);
    case EXCHANGE_CONN_PERMIT:
        return exchange_conn_permit(x);
    case EXCHANGE_ACQUIRE:
        return exchange_acquire(x);
    case EXCHANGE_CONNECT:
        return connecting(x);
    case EXCHANGE_AWAIT_HEAD:
    case EXCHANGE_RELAY:
        return transfer(x);
    }
    return STEP_DONE;
}

/* From state to state as far as it goes: time and the client stand still within a pass, so neither
 * is looked at again. */
enum step exchange_step(struct exchange *x)
{
    struct client *c = x->client;
    if (client_is_gone(x))
        return exchange_fail(x, 499, ACCESS_client_gone);
    enum step s = check_time(x);
    if (c->x != x || s == STEP_DONE)
        return s;
    stream_watch(c->c.stream, &c->c.task);
    uint8_t before;
    do {
        before = x->state;
        s = step_of_state(x);
    } while (s == STEP_AGAIN && c->x == x && x->state > before);
    return s;
}

enum step exchange_complete(struct exchange *x)
{
    struct client *c = x->client;
    bool keep = x->keep_alive && x->body.done;
    enum leave how = !x->request_sent || !x->body.done ? LEAVE_BROKEN
                     : x->resp_reusable                ? LEAVE_POOLED
                                                       : LEAVE_CLOSED;
    x->record.attempts = x->attempts;
    x->upstream->count.responses++;
    record_finish(&x->record, c, x->started, x->status, ACCESS_ok);
    exchange_free(x, how);
    c->keep_alive = keep;
    c->state = CLIENT_FLUSH;
    c->flushed = client_now(c);
    return STEP_AGAIN;
}
