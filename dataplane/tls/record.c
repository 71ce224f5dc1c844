/* Records, opened and sealed on the core. */
#include <errno.h>
#include <string.h>

#include <openssl/err.h>

#include "dataplane/tls/session.h"
#include "runtime/task.h"

#define RECEIVE_BYTES 65536u /* taken from TCP at a time */
#define OPEN_MOST     8      /* records a read */
#define SEAL_MOST     4      /* records a write */
#define OVERHEAD      128u   /* of a record, at the most, for the suites there are */
#define ROOM_MIN      2048u  /* less in TCP's buffer is none: records would become crumbs */
#define OPERATION     4096u  /* bytes that are worth one of a task's operations */

uint32_t record_first(const struct rope *in)
{
    uint8_t header[TLS_HEADER];
    if (in->len < TLS_HEADER)
        return 0;
    rope_copy_out(in, 0, header, TLS_HEADER);
    uint32_t len = (uint32_t)header[3] << 8 | header[4];
    if (len > TLS_PLAIN_MAX + 2048)
        return TLS_HEADER;
    return in->len >= TLS_HEADER + len ? TLS_HEADER + len : 0;
}

/* Records are work of the task that wanted them. */
static void account(struct task *t, uint64_t bytes)
{
    if (t)
        task_consume(t, (unsigned)(bytes / OPERATION + 1));
}

/* --- opening -------------------------------------------------------------------------------------
 */

static void break_session(struct tls_session *s)
{
    s->tls->stats.broken++;
    ERR_clear_error();
    session_flush(s, s->stream.wr_task);
    session_die(s, -EPROTO);
    s->says_why = true;
}

/* False: nothing more comes of this, for now or for ever. */
static bool on_no_data(struct tls_session *s, int rc)
{
    switch (SSL_get_error(s->ssl, rc)) {
    case SSL_ERROR_WANT_READ: /* a record that carries no data */
        return true;
    case SSL_ERROR_ZERO_RETURN:
        s->got_end = true;
        return false;
    default:
        break_session(s);
        return false;
    }
}

/* One record's bytes, into fresh mbufs. */
static bool open_record(struct tls_session *s)
{
    struct rope_pool *ropes = s->tls->ropes;
    s->tls->stats.records_in++;
    do {
        struct rte_mbuf *m = rope_mbuf_new(ropes);
        if (!m) { /* mbufs come back by themselves, and nobody tells us */
            if (s->stream.rd_task)
                task_wake(s->stream.rd_task);
            return false;
        }
        size_t got = 0;
        ERR_clear_error();
        int rc = SSL_read_ex(s->ssl, (char *)m->buf_addr + m->data_off,
                             (size_t)(m->buf_len - m->data_off), &got);
        if (rc != 1 || rope_push_mbuf(ropes, &s->plain, m, m->data_off, (uint32_t)got) != 0) {
            rte_pktmbuf_free(m);
            if (rc == 1)
                session_die(s, -ENOMEM);
            return rc != 1 && on_no_data(s, rc);
        }
    } while (SSL_pending(s->ssl) > 0);
    return true;
}

/* More from TCP. False: there is nothing. */
static bool receive(struct tls_session *s)
{
    ssize_t n = stream_read(s->under, s->stream.rd_task, &s->in, RECEIVE_BYTES);
    if (n > 0)
        return true;
    if (n == 0) { /* RFC 8446 §6.1: what has come may have been cut by anyone */
        s->tls->stats.truncated++;
        session_die(s, -EPROTO);
    } else if (n != -EAGAIN) {
        session_die(s, (int)n);
    }
    return false;
}

static void open_some(struct tls_session *s, uint64_t max)
{
    uint64_t before = s->plain.len;
    unsigned opened = 0;
    while (s->plain.len < max && !s->got_end && !s->err && opened < OPEN_MOST) {
        if (!SSL_pending(s->ssl) && !record_first(&s->in)) {
            if (!receive(s))
                break;
            continue;
        }
        opened++;
        if (!open_record(s))
            break;
    }
    if (opened)
        account(s->stream.rd_task, s->plain.len - before + opened);
}

ssize_t records_open(struct tls_session *s, uint64_t max)
{
    if (s->plain.len < max)
        open_some(s, max);
    if (s->plain.len)
        return (ssize_t)s->plain.len;
    if (s->err)
        return s->err;
    if (s->got_end)
        return 0;
    return -EAGAIN;
}

/* --- sealing -------------------------------------------------------------------------------------
 */

static void release_spare(struct tls *t)
{
    while (t->nspare > t->spare_at)
        rte_pktmbuf_free(t->spare[--t->nspare]);
    t->nspare = t->spare_at = 0;
}

/* So that nothing fails once the record's number is used up. */
static bool set_aside(struct tls *t, uint32_t bytes)
{
    t->nspare = t->spare_at = 0;
    for (uint32_t room = 0; room < bytes; room += TLS_SEGMENT) {
        t->spare[t->nspare] = rope_mbuf_new(t->ropes);
        if (!t->spare[t->nspare]) {
            release_spare(t);
            return false;
        }
        t->nspare++;
    }
    return true;
}

/* Where n bytes stand in one piece. */
static const void *in_one_piece(struct tls *t, const struct rope *src, uint32_t n)
{
    if (src->head->len >= n)
        return rope_node_data(src->head);
    rope_copy_out(src, 0, t->plain, n);
    return t->plain;
}

/* 0, -EAGAIN for want of mbufs, or the error that the session dies of. */
static int seal_record(struct tls_session *s, struct rope *src, uint32_t n)
{
    struct tls *t = s->tls;
    size_t took = 0;
    if (!set_aside(t, n + OVERHEAD)) {
        if (s->stream.wr_task)
            task_wake(s->stream.wr_task);
        return -EAGAIN;
    }
    ERR_clear_error();
    int rc = SSL_write_ex(s->ssl, in_one_piece(t, src, n), n, &took);
    release_spare(t);
    if (rc != 1 || took != n) {
        ERR_clear_error();
        session_die(s, -ENOMEM);
        return s->err;
    }
    t->stats.records_out++;
    rope_trim_head(t->ropes, src, n);
    return 0;
}

/* What TCP can take of a record; 0: not enough to bother. */
static uint32_t room_for(const struct tls_session *s, const struct rope *src)
{
    uint64_t space = stream_write_space(s->under);
    if (space < ROOM_MIN)
        return 0;
    uint64_t n = src->len < TLS_PLAIN_MAX ? src->len : TLS_PLAIN_MAX;
    return (uint32_t)(n + OVERHEAD <= space ? n : space - OVERHEAD);
}

ssize_t records_seal(struct tls_session *s, struct rope *src)
{
    uint64_t before = src->len;
    int err = session_flush(s, s->stream.wr_task);
    for (unsigned i = 0; i < SEAL_MOST && !err && src->len; i++) {
        uint32_t n = room_for(s, src);
        if (n == 0) {
            stream_watch_write(s->under, s->stream.wr_task);
            err = -EAGAIN;
            break;
        }
        err = seal_record(s, src, n);
        if (!err)
            err = session_flush(s, s->stream.wr_task);
    }
    uint64_t took = before - src->len;
    if (took)
        account(s->stream.wr_task, took);
    return took ? (ssize_t)took : err;
}
