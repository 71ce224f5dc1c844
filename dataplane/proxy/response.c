#include <assert.h>
#include <errno.h>
#include <strings.h>

#include "dataplane/http/date.h"
#include "dataplane/proxy/duties.h"
#include "dataplane/proxy/exchange.h"

#define RETRY_AFTER_MAX_S    (366 * 86400)
#define KEEP_ALIVE_MAX_S     1000000u
#define KEEP_ALIVE_MARGIN_NS 1000000000u

/* The origin's side ended or broke before a final head. */
static enum step no_head(struct exchange *x, int err)
{
    bool nothing = rope_is_empty(&x->in);
    if (err)
        x->upstream->count.resets++;
    if (!nothing)
        return exchange_fail(x, 502, ACCESS_upstream_cut);
    if (err == -ETIMEDOUT)
        return exchange_fail(x, 504, ACCESS_request_timeout);
    return exchange_retry(x, CONFIG_RETRY_RESET, 502,
                          err ? ACCESS_upstream_reset : ACCESS_upstream_closed);
}

static enum step read_origin(struct exchange *x)
{
    ssize_t n = stream_read(x->conn->stream, &x->client->c.task, &x->in, RELAY_BYTES);
    if (n > 0)
        return STEP_AGAIN;
    if (n == -EAGAIN)
        return STEP_WAIT;
    if (x->state == EXCHANGE_AWAIT_HEAD)
        return no_head(x, (int)n);
    if (n == 0 && h1_body_eof(&x->resp) == 0)
        return STEP_AGAIN;
    x->upstream->count.resets++;
    return exchange_fail(x, 502, ACCESS_upstream_cut);
}

/* 100 and its like go on to a client that can understand them. */
static int interim(struct exchange *x, const struct http_head *head)
{
    struct proxy *p = client_proxy(x->client);
    if (head->status == 100 && x->expects) {
        x->expects = false;
        x->moved_in = client_now(x->client);
    }
    if (x->client_minor == 0)
        return 0;
    x->interim_sent = true;
    struct h1_response_edit edit = {
        .client_minor = x->client_minor,
        .via = client_http(x->client)->via,
        .keep_alive = true,
    };
    return h1_write_response(p->ropes, &x->client->out, head, &edit);
}

/* How long the origin keeps an idle connection, by its "Keep-Alive: timeout=5, max=100"; a little
 * less, so that we close first. 0: it doesn't say. */
static uint64_t announced_time(const struct http_head *head)
{
    const struct http_header *f = http_head_find(head, HTTP_H_KEEP_ALIVE);
    const char *p = head->base + f->value_off, *end = p + f->value_len;
    uint64_t s = 0;
    while (end - p > 8 && strncasecmp(p, "timeout=", 8) != 0)
        p++;
    if (end - p <= 8)
        return 0;
    for (p += 8; p < end && *p >= '0' && *p <= '9' && s < KEEP_ALIVE_MAX_S; p++)
        s = s * 10 + (uint64_t)(*p - '0');
    uint64_t ns = s * 1000000000u;
    return ns < 2 * KEEP_ALIVE_MARGIN_NS ? ns / 2 : ns - KEEP_ALIVE_MARGIN_NS;
}

static bool field_date(const struct http_head *head, enum http_header_id id, int64_t *ret_s)
{
    const struct http_header *f = http_head_find(head, id);
    return f && http_date_parse(head->base + f->value_off, f->value_len, ret_s);
}

/* A date is taken as so long after the answer's own: both are by the origin's clock. Years are
 * beyond any deadline. */
static uint64_t until_date(const struct http_head *head)
{
    int64_t at, now;
    if (!field_date(head, HTTP_H_RETRY_AFTER, &at) || !field_date(head, HTTP_H_DATE, &now))
        return 0;
    int64_t s = at - now;
    return s <= 0 ? 0 : (uint64_t)(s < RETRY_AFTER_MAX_S ? s : RETRY_AFTER_MAX_S) * 1000000000u;
}

/* RFC 9110 §10.2.3; 0: nothing is said, or nothing that can be read. */
static uint64_t retry_after(const struct http_head *head)
{
    const struct http_header *f = http_head_find(head, HTTP_H_RETRY_AFTER);
    const char *p = f ? head->base + f->value_off : NULL;
    uint64_t s = 0;
    if (!f || f->value_len == 0)
        return 0;
    for (unsigned i = 0; i < f->value_len; i++) {
        if (p[i] < '0' || p[i] > '9' || s > RETRY_AFTER_MAX_S)
            return until_date(head);
        s = s * 10 + (uint64_t)(p[i] - '0');
    }
    return s * 1000000000u;
}

/* Whether the origin's answer is one that another attempt may better. */
static bool try_again(struct exchange *x, const struct http_head *head)
{
    uint64_t delay = retry_after(head);
    switch (head->status) {
    case 429:
        return delay && exchange_try_again(x, CONFIG_RETRY_429, delay);
    case 502:
        return exchange_try_again(x, CONFIG_RETRY_502, 0);
    case 503:
        return exchange_try_again(x, CONFIG_RETRY_503, delay);
    case 504:
        return exchange_try_again(x, CONFIG_RETRY_504, 0);
    default:
        return false;
    }
}

static int final(struct exchange *x, const struct http_head *head)
{
    struct client *c = x->client;
    struct proxy *p = client_proxy(c);
    struct h1_response_edit edit = {
        .client_minor = x->client_minor,
        /* A request that is still coming has no place behind this answer. */
        .keep_alive = x->keep_alive && x->body.done && !client_is_last(c),
        .via = client_http(c)->via,
        .date = proxy_date(p),
    };
    struct edit_work work;
    if (x->edit)
        edit.changes = edit_response(x, &work);
    h1_response_framing(head, &edit);
    int err = h1_write_response(p->ropes, &c->out, head, &edit);
    if (err)
        return err;
    err = h1_body_init(&x->resp, head->framing, head->content_length, UINT64_MAX);
    assert(err == 0);
    x->keep_alive = edit.keep_alive;
    x->resp_chunked = edit.framing == HTTP_BODY_CHUNKED;
    x->resp_reusable = head->keep_alive && head->framing != HTTP_BODY_UNTIL_CLOSE;
    x->status = head->status;
    x->head_written = true;
    x->state = EXCHANGE_RELAY;
    x->record.upstream_ns = client_now(c) - x->asked;
    if (head->status < 500)
        limiter_answered(&x->upstream->limiter, client_now(c), client_now(c) - x->admitted_at);
    x->conn->keep_alive = http_head_has(head, HTTP_H_KEEP_ALIVE) ? announced_time(head) : 0;
    exchange_drop_head(x);
    return 0;
}

static enum step on_head(struct exchange *x, const char *base, uint32_t end)
{
    struct proxy *p = client_proxy(x->client);
    struct http_head head = {0};
    uint32_t start = x->reader.scan.start;
    p->request_of = NULL;
    http_head_init(&head, p->fields, p->nfields < RESPONSE_FIELDS ? p->nfields : RESPONSE_FIELDS);
    if (h1_parse_response(base + start, end - start, x->head_request, &head) != 0 ||
        head.status == 101) {
        x->record.http_error = head.error;
        return exchange_fail(x, 502, ACCESS_upstream_malformed);
    }
    if (head.status >= 500)
        exchange_judge(x, ATTEMPT_FAILED);
    if (head.status >= 429 && try_again(x, &head))
        return STEP_AGAIN;
    int err = head.status < 200 ? interim(x, &head) : final(x, &head);
    if (err)
        return exchange_fail(x, 503, ACCESS_no_memory);
    rope_trim_head(p->ropes, &x->in, end);
    head_reader_reset_response(&x->reader);
    return STEP_AGAIN;
}

static enum step await_head(struct exchange *x)
{
    static const struct h1_limits limits = {.head_size = RESPONSE_HEAD};
    const char *base;
    int end = head_reader_scan(&x->reader, &x->in, &limits, &base);
    if (end == -500)
        return exchange_fail(x, 503, ACCESS_no_memory);
    if (end < 0) {
        x->record.http_error = x->reader.scan.error;
        return exchange_fail(x, 502, ACCESS_upstream_malformed);
    }
    if (end > 0)
        return on_head(x, base, (uint32_t)end);
    return read_origin(x);
}

/* Only for a client that gets chunks. */
static int frame(struct exchange *x, struct rope *payload)
{
    struct rope_pool *ropes = client_proxy(x->client)->ropes;
    struct rope *out = &x->client->out;
    if (!rope_is_empty(payload)) {
        int err = h1_body_encode_chunk(ropes, out, payload);
        if (err)
            return err;
    }
    return x->resp.done ? h1_body_encode_last(ropes, out, &x->resp.trailers) : 0;
}

/* Without chunks to make, the body goes straight to what is being written: a small one lands behind
 * the head, in the same mbuf. */
static ssize_t decode(struct exchange *x, struct rope *payload)
{
    struct client *c = x->client;
    struct rope *to = x->resp_chunked ? payload : &c->out;
    ssize_t n = h1_body_decode(&x->resp, client_proxy(c)->ropes, &x->in, to, RELAY_BYTES);
    if (n > 0) {
        x->record.bytes_out += (uint64_t)n;
        x->upstream->count.bytes_in += (uint64_t)n;
    }
    return n;
}

static enum step relay(struct exchange *x)
{
    struct client *c = x->client;
    struct rope payload = {0};
    if (x->resp.done || x->resp.kind == HTTP_BODY_NONE)
        return exchange_complete(x);
    if (!rope_is_empty(&x->in)) {
        ssize_t n = decode(x, &payload);
        if (n == -ENOMEM)
            return exchange_fail(x, 503, ACCESS_no_memory);
        if (n < 0)
            return exchange_fail(x, 502, ACCESS_upstream_malformed);
        if (n > 0 || x->resp.done)
            goto decoded;
    }
    enum step s = read_origin(x);
    if (s != STEP_AGAIN || c->x != x || !x->resp.done)
        return s;
decoded:
    /* The end of a close-delimited body comes without bytes; a chunked client must hear of it. */
    if (x->resp_chunked && frame(x, &payload) < 0) {
        rope_clear(client_proxy(c)->ropes, &payload);
        return exchange_fail(x, 503, ACCESS_no_memory);
    }
    return STEP_AGAIN;
}

/* -EAGAIN: the client's side is full; 0 written; else the error. */
static int write_down(struct exchange *x)
{
    struct client *c = x->client;
    while (!rope_is_empty(&c->out)) {
        ssize_t n = stream_write(c->c.stream, &c->c.task, &c->out);
        if (n < 0)
            return (int)n;
        x->moved_out = client_now(c);
        x->head_out = x->head_written;
    }
    return 0;
}

static enum step produce(struct exchange *x)
{
    return x->state == EXCHANGE_RELAY ? relay(x) : await_head(x);
}

/* What has been received already goes out together with the head: one write, fewer segments. */
static bool has_more_at_hand(const struct exchange *x)
{
    return x->state == EXCHANGE_RELAY && !x->resp.done && !rope_is_empty(&x->in) &&
           x->client->out.len < RELAY_BYTES;
}

enum step exchange_pump_response(struct exchange *x)
{
    struct client *c = x->client;
    if (!rope_is_empty(&c->out) && !has_more_at_hand(x)) {
        int err = write_down(x);
        if (err)
            return err == -EAGAIN ? STEP_WAIT : exchange_fail(x, 499, ACCESS_client_gone);
    }
    /* The client's time begins when there is something for it to take. */
    if (rope_is_empty(&c->out))
        x->moved_out = client_now(c);
    enum step s = produce(x);
    if (c->x != x || s != STEP_WAIT || rope_is_empty(&c->out))
        return s;
    int err = write_down(x);
    return err && err != -EAGAIN ? exchange_fail(x, 499, ACCESS_client_gone) : STEP_WAIT;
}
