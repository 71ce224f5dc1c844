#include <errno.h>

#include "dataplane/proxy/exchange.h"

/* The origin no longer reads. Its answer may be on its way all the same (a 413, say), so only the
 * sending ends here; the response half decides what becomes of the exchange. */
static void cut_request(struct exchange *x)
{
    rope_clear(client_proxy(x->client)->ropes, &x->up);
    x->request_cut = true;
}

/* -EAGAIN: the origin's side is full; else 0. */
static int write_up(struct exchange *x)
{
    while (!rope_is_empty(&x->up)) {
        ssize_t n = stream_write(x->conn->stream, &x->client->c.task, &x->up);
        if (n == -EAGAIN)
            return -EAGAIN;
        if (n < 0) {
            cut_request(x);
            return 0;
        }
        x->any_sent = true;
        x->moved_in = client_now(x->client);
    }
    return 0;
}

static int frame(struct exchange *x, struct rope *payload)
{
    struct rope_pool *ropes = client_proxy(x->client)->ropes;
    x->record.bytes_in += payload->len;
    x->upstream->count.bytes_out += payload->len;
    if (x->body.kind != HTTP_BODY_CHUNKED) {
        rope_splice(&x->up, payload);
        return 0;
    }
    if (!rope_is_empty(payload)) {
        int err = h1_body_encode_chunk(ropes, &x->up, payload);
        if (err)
            return err;
    }
    return x->body.done ? h1_body_encode_last(ropes, &x->up, &x->body.trailers) : 0;
}

/* Takes the next piece of the body out of what has been received. */
static enum step decode(struct exchange *x)
{
    struct client *c = x->client;
    struct rope_pool *ropes = client_proxy(c)->ropes;
    struct rope payload = {0};
    ssize_t n = h1_body_decode(&x->body, ropes, &c->in, &payload, RELAY_BYTES);
    if (n == -EBADMSG)
        return exchange_fail(x, 400, ACCESS_bad_request);
    if (n == -EFBIG)
        return exchange_fail(x, 413, ACCESS_request_too_large);
    if (n < 0)
        return exchange_fail(x, 503, ACCESS_no_memory);
    if (n == 0 && !x->body.done)
        return STEP_WAIT;
    x->expects = false;
    if (frame(x, &payload) < 0) {
        rope_clear(ropes, &payload);
        return exchange_fail(x, 503, ACCESS_no_memory);
    }
    return STEP_AGAIN;
}

static enum step read_body(struct exchange *x)
{
    struct client *c = x->client;
    ssize_t n = stream_read(c->c.stream, &c->c.task, &c->in, RELAY_BYTES);
    if (n > 0) {
        x->moved_in = client_now(c);
        x->expects = false;
        return STEP_AGAIN;
    }
    if (n == -EAGAIN)
        return STEP_WAIT;
    return exchange_fail(x, 499, ACCESS_client_gone);
}

enum step exchange_pump_request(struct exchange *x)
{
    struct client *c = x->client;
    if (x->request_sent || x->request_cut)
        return STEP_WAIT;
    if (write_up(x) == -EAGAIN)
        return STEP_WAIT;
    if (x->request_cut)
        return STEP_AGAIN;
    if (x->body.done || x->body.kind == HTTP_BODY_NONE) {
        x->body.done = true;
        x->request_sent = true;
        return STEP_AGAIN;
    }
    enum step s = STEP_WAIT;
    if (!rope_is_empty(&c->in))
        s = decode(x);
    if (c->x == x && s == STEP_WAIT)
        s = read_body(x);
    return s;
}
