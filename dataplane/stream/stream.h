/* A byte stream with backpressure: what TCP and TLS give to HTTP and the tunnel.
 *
 * Errors are 0/-errno. -EAGAIN means: not now, `t` is registered and will be woken (each direction
 * remembers one task: the last one that asked). Wake-ups may be spurious. After any other error the
 * stream is dead and every call returns the same error.
 *
 *   -ECONNREFUSED  RST in answer to our SYN           -ETIMEDOUT   peer stopped answering
 *   -ECONNRESET    RST                                -EHOSTUNREACH / -ENETUNREACH  no neighbour,
 * ICMP -ECONNABORTED  aborted by this side               -EPIPE       write after our own shutdown
 *   -EPROTO        TLS: a record that is broken, or the end of the connection without close_notify
 *
 * Ownership: whoever opened or accepted the stream holds its one handle and ends it with exactly
 * one stream_close() or stream_abort(); the handle is invalid afterwards.
 *
 * Thread: the owner core. Nothing here yields by itself.
 */
#ifndef MILLRACE_DATAPLANE_STREAM_STREAM_H
#define MILLRACE_DATAPLANE_STREAM_STREAM_H

#include <stdint.h>
#include <sys/types.h>

#include "dataplane/stream/rope.h"
#include "runtime/task.h"

struct stream;

struct stream_info {
    uint32_t local_addr, peer_addr; /* network order */
    uint16_t local_port, peer_port; /* host order */
    uint64_t srtt_ns;
    uint64_t bytes_in, bytes_out, retransmits;
};

/* What only someone who looks at single connections wants to know. */
struct stream_detail {
    const char *state;                              /* a literal: TCP's name for it */
    uint64_t moved_at;                              /* ns: the last segment, either way */
    uint32_t cwnd, unacked, send_queue, recv_queue; /* bytes */
    uint32_t rto_us;
};

struct stream_ops {
    ssize_t (*read)(struct stream *s, struct rope *dst, uint64_t max);
    ssize_t (*write)(struct stream *s, struct rope *src);
    ssize_t (*peek)(const struct stream *s, void *dst, size_t max, bool *ret_last);
    uint64_t (*read_avail)(const struct stream *s);
    uint64_t (*write_space)(const struct stream *s);
    int (*status)(const struct stream *s);
    bool (*at_eof)(const struct stream *s);
    int (*shutdown)(struct stream *s);
    void (*close)(struct stream *s);
    void (*abort)(struct stream *s);
    void (*info)(const struct stream *s, struct stream_info *ret_info);
    void (*detail)(const struct stream *s, struct stream_detail *ret_detail);
    /* rd_task and wr_task have been set without a call: NULL where that is all there is to it. */
    void (*watch)(struct stream *s);
};

struct stream {
    const struct stream_ops *ops;
    struct task *rd_task; /* woken when readable, at EOF, or dead */
    struct task *wr_task; /* woken when writable again, connected, or dead */
};

/* Moves up to `max` received bytes to the end of dst and opens the window for them. > 0 bytes,
 * 0 at end of stream, -EAGAIN, or the error (bytes received before a FIN come first; after a RST
 * nothing more is delivered). */
static inline ssize_t stream_read(struct stream *s, struct task *t, struct rope *dst, uint64_t max)
{
    s->rd_task = t;
    return s->ops->read(s, dst, max);
}

/* Copies up to `max` of the received bytes out and leaves them unread. > 0 bytes; 0 at end of
 * stream, -EAGAIN, or the error. *ret_last: nothing comes after what is there now. May be called
 * for what has come from the wire itself only, as TCP has it. */
static inline ssize_t stream_peek(struct stream *s, struct task *t, void *dst, size_t max,
                                  bool *ret_last)
{
    s->rd_task = t;
    return s->ops->peek(s, dst, max, ret_last);
}

/* Takes bytes off the front of src as far as the send buffer has room: > 0 bytes taken, -EAGAIN
 * (also while connecting), or the error (src keeps its bytes). src must not be empty.
 *
 * What stands in front of a taken node in its mbuf is overwritten by headers when nothing else
 * holds the mbuf: who still needs bytes that it has trimmed off keeps a reference. */
static inline ssize_t stream_write(struct stream *s, struct task *t, struct rope *src)
{
    s->wr_task = t;
    return s->ops->write(s, src);
}

/* Registers `t` for a change on the reading side (bytes, EOF, death) without taking anything. */
static inline void stream_watch(struct stream *s, struct task *t)
{
    s->rd_task = t;
    if (s->ops->watch)
        s->ops->watch(s);
}

/* Registers `t` for room or death on the writing side. */
static inline void stream_watch_write(struct stream *s, struct task *t)
{
    s->wr_task = t;
    if (s->ops->watch)
        s->ops->watch(s);
}

/* Forgets `t` in both directions: call before t is dropped while the stream lives on. */
static inline void stream_unwatch(struct stream *s)
{
    s->rd_task = s->wr_task = NULL;
    if (s->ops->watch)
        s->ops->watch(s);
}

/* Bytes that a read would return now. */
static inline uint64_t stream_read_avail(const struct stream *s)
{
    return s->ops->read_avail(s);
}

/* Room for writing now; 0 while connecting or dead. */
static inline uint64_t stream_write_space(const struct stream *s)
{
    return s->ops->write_space(s);
}

/* 0 alive and connected, -EAGAIN still connecting, else the error it died of. */
static inline int stream_status(const struct stream *s)
{
    return s->ops->status(s);
}

/* True when the peer has sent FIN and every byte before it has been read. */
static inline bool stream_at_eof(const struct stream *s)
{
    return s->ops->at_eof(s);
}

/* FIN after the bytes already written; reading goes on. Idempotent. 0 or the error. */
static inline int stream_shutdown(struct stream *s)
{
    return s->ops->shutdown(s);
}

/* Ends the handle in good order: bytes already written and a FIN still go out (in the background,
 * bounded by a timer); bytes that arrive or are left unread turn it into a RST (RFC 9293 §3.10.4,
 * RFC 1122 §4.2.2.13). */
static inline void stream_close(struct stream *s)
{
    s->rd_task = s->wr_task = NULL;
    s->ops->close(s);
}

/* Ends the handle with a RST; unsent and unread bytes are dropped. */
static inline void stream_abort(struct stream *s)
{
    s->rd_task = s->wr_task = NULL;
    s->ops->abort(s);
}

static inline void stream_get_info(const struct stream *s, struct stream_info *ret_info)
{
    s->ops->info(s, ret_info);
}

static inline void stream_get_detail(const struct stream *s, struct stream_detail *ret_detail)
{
    s->ops->detail(s, ret_detail);
}

#endif
