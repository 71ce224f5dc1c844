#include "runtime/chan_gate.h"

int chan_gate_wait(struct chan_gate *g, struct chan_claim *c, struct task *t)
{
    if (c->granted_) {
        c->granted_ = false;
        chan_gate_unreserve(g);
        return 0;
    }
    if (g->closed_)
        return -EPIPE;
    wait_park(&g->waiters_, &c->node_, t);
    return -EAGAIN;
}

void chan_claim_drop(struct chan_gate *g, struct chan_claim *c)
{
    wait_cancel(&c->node_);
    if (!c->granted_)
        return;
    c->granted_ = false;
    chan_gate_unreserve(g);
    chan_gate_put(g, 1);
}

void chan_gate_grant(struct chan_gate *g, uint32_t slots)
{
    if (g->closed_)
        return;
    while (slots > 0 && !wait_list_is_empty(&g->waiters_)) {
        struct wait_node *n = container_of(list_first(&g->waiters_.head_), struct wait_node, node_);
        container_of(n, struct chan_claim, node_)->granted_ = true;
        g->reserved_++;
        slots--;
        wait_wake_one(&g->waiters_);
    }
    g->free_ += slots;
}

void chan_gate_close(struct chan_gate *g)
{
    g->closed_ = true;
    g->free_ = 0;
    wait_wake_all(&g->waiters_);
}
