#include "runtime/chan_broadcast.h"

void broadcast_init(struct broadcast *ch, void *slots, uint32_t capacity, uint32_t item_size)
{
    assert(slots && item_size > 0);
    assert(capacity > 0 && (capacity & (capacity - 1)) == 0);
    *ch = (struct broadcast){.slots_ = slots, .mask_ = capacity - 1, .item_size_ = item_size};
    wait_list_init(&ch->waiters_);
}

void broadcast_fini(struct broadcast *ch)
{
    assert(ch->receivers_ == 0 && wait_list_is_empty(&ch->waiters_));
    ch->slots_ = NULL;
}

void broadcast_close(struct broadcast *ch)
{
    ch->closed_ = true;
    wait_wake_all(&ch->waiters_);
}

void broadcast_subscribe(struct broadcast *ch, struct broadcast_rx *rx, void *into)
{
    *rx = (struct broadcast_rx){
        .future = {.kind = &broadcast_recv_kind}, .ch_ = ch, .next_ = ch->sent_, .into = into};
    ch->receivers_++;
}

void broadcast_unsubscribe(struct broadcast_rx *rx)
{
    if (!rx->ch_)
        return;
    wait_cancel(&rx->node_);
    rx->ch_->receivers_--;
    rx->ch_ = NULL;
}

static enum poll poll_recv(struct future *f, struct task *t)
{
    return broadcast_recv_poll(container_of(f, struct broadcast_rx, future), t);
}

static void drop_recv(struct future *f)
{
    wait_cancel(&container_of(f, struct broadcast_rx, future)->node_);
}

const struct future_kind broadcast_recv_kind = {"broadcast_recv", poll_recv, drop_recv};
