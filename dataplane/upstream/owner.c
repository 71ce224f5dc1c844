/* Connections that begin with a PROXY header, and are one client's therefore. */
#include <assert.h>
#include <errno.h>

#include "dataplane/upstream/pool.h"

void owner_add(struct pool_owner *o, struct upconn *c)
{
    if (!list_is_linked(&o->conns_))
        list_init(&o->conns_);
    list_push_tail(&o->conns_, &c->owner_node_);
}

struct upconn *owner_find_idle(const struct pool_owner *o, const struct endpoint *ep)
{
    if (!o || !list_is_linked(&o->conns_))
        return NULL;
    list_for_each(n, &o->conns_)
    {
        struct upconn *c = container_of(n, struct upconn, owner_node_);
        if (c->endpoint == ep && c->state_ == UPCONN_IDLE)
            return c;
    }
    return NULL;
}

void pool_owner_end(struct pool_owner *o)
{
    struct list_node *n;
    if (!list_is_linked(&o->conns_))
        return;
    while ((n = list_pop_head(&o->conns_))) {
        struct upconn *c = container_of(n, struct upconn, owner_node_);
        assert(c->state_ == UPCONN_IDLE);
        task_abort(&c->task_);
    }
}

int upconn_greet(struct upconn *c, const struct proxy_header *h)
{
    struct upstream *up = c->endpoint->upstream;
    struct rope_pool *ropes = up->set_->o_.ropes;
    struct rope bytes = {0};
    char text[PROXY_HEADER_WRITE];
    size_t len = proxy_header_write(up->proxy_protocol, h, text);
    int err = rope_append(ropes, &bytes, text, len);
    if (err)
        return err;
    ssize_t n = stream_write(c->stream, c->stream->wr_task, &bytes);
    rope_clear(ropes, &bytes);
    if (n < 0)
        return n == -EAGAIN ? -ENOBUFS : (int)n;
    c->greeted_ = (uint8_t)up->proxy_protocol;
    return (size_t)n == len ? 0 : -ENOBUFS;
}
