/* A connection as struct stream. */
#include <errno.h>

#include <rte_byteorder.h>

#include "dataplane/tcp/engine.h"
#include "runtime/task.h"

/* With fewer mbufs to send the next ACK finds too little under way. */
#define SND_NODES_MIN 4

/* Mbufs that the send rope may hold, so that tiny writes can't pin the pool: the true size is at
 * most four times the buffer, and the connection's share. Bytes that wait to be sent must be let
 * go out, or nothing would come back: however short mbufs are, some are taken. */
static uint32_t max_snd_nodes(struct tcp *t)
{
    uint32_t n = 4 * (t->o.snd_buf / TCP_MBUF_SIZE);
    uint32_t share = tcp_share(t).want;
    if (n < 16)
        n = 16;
    if (n <= share)
        return n;
    return share > SND_NODES_MIN ? share : SND_NODES_MIN;
}

uint64_t tcb_snd_space(const struct tcb *tcb)
{
    struct tcp *t = tcb->tcp;
    if (tcb->snd.len >= t->o.snd_buf || tcb->snd.nodes >= max_snd_nodes(t))
        return 0;
    return t->o.snd_buf - tcb->snd.len;
}

void tcb_wake_reader(struct tcb *tcb)
{
    if (tcb->stream.rd_task)
        task_wake(tcb->stream.rd_task);
}

void tcb_wake_writer(struct tcb *tcb)
{
    if (tcb->stream.wr_task)
        task_wake(tcb->stream.wr_task);
}

static ssize_t op_read(struct stream *s, struct rope *dst, uint64_t max)
{
    struct tcb *tcb = tcb_of(s);
    if (tcb->err)
        return tcb->err;
    if (rope_is_empty(&tcb->rcv))
        return tcb_has(tcb, TCB_FIN_RCVD) ? 0 : -EAGAIN;
    ssize_t n = rope_move(tcb->tcp->o.ropes, dst, &tcb->rcv, max);
    if (n > 0)
        window_on_read(tcb);
    tcb_leave(tcb);
    if (n <= 0) {
        /* No node for a split: whole nodes need none, so a later, larger read works. */
        if (tcb->stream.rd_task)
            task_wake(tcb->stream.rd_task);
        return -EAGAIN;
    }
    return n;
}

static ssize_t op_peek(const struct stream *s, void *dst, size_t max, bool *ret_last)
{
    const struct tcb *tcb = tcb_of(s);
    *ret_last = tcb->err || tcb_has(tcb, TCB_FIN_RCVD);
    if (tcb->err)
        return tcb->err;
    size_t n = tcb->rcv.len < max ? tcb->rcv.len : max;
    if (n == 0)
        return *ret_last ? 0 : -EAGAIN;
    rope_copy_out(&tcb->rcv, 0, dst, n);
    return (ssize_t)n;
}

/* How much of src to take: whole nodes while they fit, since a split node can't be sent without a
 * copy; a part only when the buffer is empty and still too small. */
static uint64_t bytes_to_take(const struct tcb *tcb, const struct rope *src)
{
    uint64_t space = tcb_snd_space(tcb);
    if (src->len <= space && src->nodes + tcb->snd.nodes <= max_snd_nodes(tcb->tcp))
        return src->len;
    uint64_t n = 0;
    uint32_t nodes = tcb->snd.nodes;
    for (const struct rope_node *at = src->head; at; at = at->next) {
        if (n + at->len > space || nodes >= max_snd_nodes(tcb->tcp))
            break;
        n += at->len;
        nodes++;
    }
    return n == 0 && rope_is_empty(&tcb->snd) ? space : n;
}

/* Appends to the send rope and keeps the cursor: it stood at the end if it was NULL. */
static ssize_t take(struct tcb *tcb, struct rope *src, uint64_t n)
{
    struct rope_node *tail = tcb->snd.tail;
    ssize_t took = rope_move(tcb->tcp->o.ropes, &tcb->snd, src, n);
    if (took <= 0)
        return took;
    tcb->snd_end += (uint32_t)took;
    if (!tcb->cursor) {
        tcb->cursor = tail ? tail->next : tcb->snd.head;
        tcb->cursor_off = tcb->cursor->off;
    }
    return took;
}

static ssize_t op_write(struct stream *s, struct rope *src)
{
    struct tcb *tcb = tcb_of(s);
    if (tcb->err)
        return tcb->err;
    if (tcb_has(tcb, TCB_FIN_QUEUED))
        return -EPIPE;
    if (tcb_is_connecting(tcb))
        return -EAGAIN;
    uint64_t n = bytes_to_take(tcb, src);
    ssize_t took = n ? take(tcb, src, n) : -EAGAIN;
    if (took > 0) {
        tcb_mark(tcb);
    } else {
        tcb->flags |= TCB_WANT_WRITE;
        if (rope_is_empty(&tcb->snd) && tcb->ack_at > tcp_now(tcb->tcp) + TCP_NO_MBUF_NS) {
            /* No ACK will come to wake the writer: a timer does. */
            tcb->flags |= TCB_OUT_RETRY;
            tcb->ack_at = tcp_now(tcb->tcp) + TCP_NO_MBUF_NS;
        }
        took = -EAGAIN;
    }
    tcb_leave(tcb);
    return took;
}

static uint64_t op_read_avail(const struct stream *s)
{
    return tcb_of(s)->rcv.len;
}

static uint64_t op_write_space(const struct stream *s)
{
    const struct tcb *tcb = tcb_of(s);
    bool writable = tcb->state == TCP_ESTABLISHED || tcb->state == TCP_CLOSE_WAIT;
    return writable ? tcb_snd_space(tcb) : 0;
}

static int op_status(const struct stream *s)
{
    const struct tcb *tcb = tcb_of(s);
    if (tcb->err)
        return tcb->err;
    return tcb_is_connecting(tcb) ? -EAGAIN : 0;
}

static bool op_at_eof(const struct stream *s)
{
    const struct tcb *tcb = tcb_of(s);
    return tcb_has(tcb, TCB_FIN_RCVD) && rope_is_empty(&tcb->rcv);
}

static void op_info(const struct stream *s, struct stream_info *ret_info)
{
    const struct tcb *tcb = tcb_of(s);
    *ret_info = (struct stream_info){
        .local_addr = tcb->tuple.local_addr,
        .peer_addr = tcb->tuple.peer_addr,
        .local_port = rte_be_to_cpu_16(tcb->tuple.local_port),
        .peer_port = rte_be_to_cpu_16(tcb->tuple.peer_port),
        .srtt_ns = tcb->rtt.srtt_us * 1000ull,
        .bytes_in = tcb->bytes_in,
        .bytes_out = tcb->bytes_out,
        .retransmits = tcb->retransmits,
    };
}

static void op_detail(const struct stream *s, struct stream_detail *ret_detail)
{
    const struct tcb *tcb = tcb_of(s);
    *ret_detail = (struct stream_detail){
        .state = tcp_state_name(tcb->state),
        .moved_at = tcb->heard_at > tcb->sent_at ? tcb->heard_at : tcb->sent_at,
        .cwnd = tcb->cc.cwnd,
        .unacked = tcb->snd_max - tcb->snd_una,
        .send_queue = (uint32_t)tcb->snd.len,
        .recv_queue = (uint32_t)tcb->rcv.len,
        .rto_us = (uint32_t)(rtt_timeout(&tcb->rtt, tcb->backoffs) / 1000),
    };
}

const struct stream_ops tcb_stream_ops = {
    .read = op_read,
    .write = op_write,
    .peek = op_peek,
    .read_avail = op_read_avail,
    .write_space = op_write_space,
    .status = op_status,
    .at_eof = op_at_eof,
    .shutdown = tcb_shutdown,
    .close = tcb_close,
    .abort = tcb_abort,
    .info = op_info,
    .detail = op_detail,
};
