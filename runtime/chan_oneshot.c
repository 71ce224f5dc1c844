#include "runtime/chan_oneshot.h"

static enum poll poll_recv(struct future *f, struct task *t)
{
    return oneshot_recv_poll(container_of(f, struct oneshot_rx, future), t);
}

static void drop_recv(struct future *f)
{
    oneshot_rx_drop(container_of(f, struct oneshot_rx, future));
}

const struct future_kind oneshot_recv_kind = {"oneshot_recv", poll_recv, drop_recv};

static enum poll poll_closed(struct future *f, struct task *t)
{
    return oneshot_closed_poll(container_of(f, struct oneshot_closed, future), t);
}

static void drop_closed(struct future *f)
{
    oneshot_closed_drop(container_of(f, struct oneshot_closed, future));
}

const struct future_kind oneshot_closed_kind = {"oneshot_closed", poll_closed, drop_closed};
