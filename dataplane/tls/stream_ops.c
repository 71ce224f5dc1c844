/* A session as struct stream. */
#include <errno.h>

#include <openssl/err.h>

#include "dataplane/tls/session.h"

static bool is_open(const struct tls_session *s)
{
    return s->state == TLS_OPEN;
}

/* What is left over of earlier writes, alerts and answers to key updates. */
static void push_out(struct tls_session *s)
{
    if (s->out.len || (s->fin_due && !s->fin_sent))
        session_flush(s, s->stream.wr_task ? s->stream.wr_task : s->stream.rd_task);
}

static ssize_t op_read(struct stream *stream, struct rope *dst, uint64_t max)
{
    struct tls_session *s = session_of(stream);
    if (!is_open(s))
        return s->err ? s->err : -EAGAIN;
    push_out(s);
    ssize_t n = records_open(s, max);
    push_out(s);
    if (n <= 0)
        return n;
    n = rope_move(s->tls->ropes, dst, &s->plain, max);
    if (n > 0)
        return n;
    if (s->stream.rd_task) /* no node for a split */
        task_wake(s->stream.rd_task);
    return -EAGAIN;
}

static ssize_t op_write(struct stream *stream, struct rope *src)
{
    struct tls_session *s = session_of(stream);
    if (s->err)
        return s->err;
    if (!is_open(s))
        return -EAGAIN;
    if (s->sent_end)
        return -EPIPE;
    return records_seal(s, src);
}

/* What has been opened already: nobody peeks into a stream that stands. */
static ssize_t op_peek(const struct stream *stream, void *dst, size_t max, bool *ret_last)
{
    const struct tls_session *s = session_of(stream);
    size_t n = s->plain.len < max ? s->plain.len : max;
    *ret_last = s->err || s->got_end;
    if (n == 0)
        return s->err ? s->err : s->got_end ? 0 : -EAGAIN;
    rope_copy_out(&s->plain, 0, dst, n);
    return (ssize_t)n;
}

static uint64_t op_read_avail(const struct stream *stream)
{
    const struct tls_session *s = session_of(stream);
    return s->plain.len;
}

/* As much as fits with the records' own bytes; what records_seal() calls too little is none. */
static uint64_t op_write_space(const struct stream *stream)
{
    const struct tls_session *s = session_of(stream);
    uint64_t space = is_open(s) && !s->err && !s->sent_end ? stream_write_space(s->under) : 0;
    if (space < 2048 + s->out.len)
        return 0;
    space -= s->out.len;
    return space - space / 64 - 128;
}

static int op_status(const struct stream *stream)
{
    const struct tls_session *s = session_of(stream);
    if (s->err)
        return s->err;
    return is_open(s) ? stream_status(s->under) : -EAGAIN;
}

/* Looks: the end is a record like any other. What comes before it waits in `plain`. */
static bool op_at_eof(const struct stream *stream)
{
    struct tls_session *s = session_of(stream);
    return is_open(s) && (records_open(s, 1) == 0 || (s->err && !s->plain.len));
}

static void say_end(struct tls_session *s)
{
    if (s->sent_end || s->err || !is_open(s))
        return;
    ERR_clear_error();
    SSL_shutdown(s->ssl);
    ERR_clear_error();
    s->sent_end = true;
}

static int op_shutdown(struct stream *stream)
{
    struct tls_session *s = session_of(stream);
    if (s->err)
        return s->err;
    say_end(s);
    s->fin_due = true;
    int err = session_flush(s, s->stream.wr_task);
    return err == -EAGAIN ? 0 : err;
}

/* The pool has the SSL: the session outlives its handle until the job is back. */
static bool leave_to_pool(struct tls_session *s)
{
    if (s->state != TLS_JOB)
        return false;
    s->orphan = true;
    stream_abort(s->under);
    s->under = NULL;
    return true;
}

static void op_close(struct stream *stream)
{
    struct tls_session *s = session_of(stream);
    tls_give_up(stream, TLS_FAIL_closed);
    if (leave_to_pool(s))
        return;
    say_end(s);
    session_close(s);
}

static void op_abort(struct stream *stream)
{
    struct tls_session *s = session_of(stream);
    tls_give_up(stream, TLS_FAIL_closed);
    if (leave_to_pool(s))
        return;
    stream_abort(s->under);
    s->under = NULL;
    session_free(s);
}

static void op_info(const struct stream *stream, struct stream_info *ret_info)
{
    stream_get_info(session_of(stream)->under, ret_info);
}

static void op_detail(const struct stream *stream, struct stream_detail *ret_detail)
{
    stream_get_detail(session_of(stream)->under, ret_detail);
}

static void op_watch(struct stream *stream)
{
    struct tls_session *s = session_of(stream);
    s->under->rd_task = stream->rd_task;
    s->under->wr_task = stream->wr_task;
}

const struct stream_ops tls_stream_ops = {
    .read = op_read,
    .write = op_write,
    .peek = op_peek,
    .read_avail = op_read_avail,
    .write_space = op_write_space,
    .status = op_status,
    .at_eof = op_at_eof,
    .shutdown = op_shutdown,
    .close = op_close,
    .abort = op_abort,
    .info = op_info,
    .detail = op_detail,
    .watch = op_watch,
};

bool tls_is(const struct stream *stream)
{
    return stream->ops == &tls_stream_ops;
}

bool tls_get_info(const struct stream *stream, struct tls_info *ret_info)
{
    const struct tls_session *s = session_of(stream);
    if (stream->ops != &tls_stream_ops || !is_open(s))
        return false;
    *ret_info = (struct tls_info){
        .version = SSL_get_version(s->ssl),
        .cipher = SSL_get_cipher_name(s->ssl),
        .sni = SSL_get_servername(s->ssl, TLSEXT_NAMETYPE_host_name),
        .subject = s->subject,
        .resumed = SSL_session_reused(s->ssl),
    };
    return true;
}
