/* How the application ends a connection: RFC 9293 §3.10.4 and 3.10.5, RFC 1122 §4.2.2.13. */
#include <errno.h>

#include "dataplane/tcp/engine.h"

void tcb_queue_fin(struct tcb *tcb)
{
    if (tcb_has(tcb, TCB_FIN_QUEUED))
        return;
    tcb->flags |= TCB_FIN_QUEUED;
    if (tcb->state == TCP_ESTABLISHED)
        tcb_set_state(tcb, TCP_FIN_WAIT_1);
    else if (tcb->state == TCP_CLOSE_WAIT)
        tcb_set_state(tcb, TCP_LAST_ACK);
    tcb_mark(tcb);
}

int tcb_shutdown(struct stream *s)
{
    struct tcb *tcb = tcb_of(s);
    if (tcb->err)
        return tcb->err;
    if (tcb_is_open(tcb)) {
        tcb_queue_fin(tcb);
        tcb_leave(tcb);
    }
    return 0;
}

static bool has_unread(const struct tcb *tcb)
{
    return tcb->rcv.len > 0 || !reass_is_empty(&tcb->reass);
}

/* Gives up the handle; what runs on without it is bounded by a timer. */
static void orphan(struct tcb *tcb)
{
    uint64_t after = tcb->state == TCP_FIN_WAIT_2 ? TCP_FIN_WAIT_2_NS : TCP_ORPHAN_NS;
    tcb->misc_at = tcp_now(tcb->tcp) + after;
}

void tcb_close(struct stream *s)
{
    struct tcb *tcb = tcb_of(s);
    tcb->flags &= ~TCB_HANDLE;
    if (tcb_is_connecting(tcb)) {
        if (tcb->state == TCP_SYN_RCVD)
            tcb_send_rst(tcb);
        tcb_die(tcb, -ECONNABORTED);
    } else if (tcb_is_open(tcb) && has_unread(tcb)) {
        tcb_send_rst(tcb);
        tcb_die(tcb, -ECONNABORTED);
    } else if (tcb_is_open(tcb)) {
        tcb_queue_fin(tcb);
        orphan(tcb);
    }
    tcb_leave(tcb);
}

void tcb_abort(struct stream *s)
{
    struct tcb *tcb = tcb_of(s);
    tcb->flags &= ~TCB_HANDLE;
    if (tcb_is_open(tcb)) {
        if (tcb->state != TCP_SYN_SENT)
            tcb_send_rst(tcb);
        tcb_die(tcb, -ECONNABORTED);
    }
    tcb_leave(tcb);
}
