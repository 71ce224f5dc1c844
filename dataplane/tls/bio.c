/* OpenSSL's transport: copies from received mbufs and into mbufs to send, nothing in between. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include <openssl/bio.h>

#include "dataplane/tls/session.h"

static int read_job(struct tls_job *j, char *to, int size)
{
    uint32_t n = j->in_len - j->in_used;
    n = n < (uint32_t)size ? n : (uint32_t)size;
    memcpy(to, j->in + j->in_used, n);
    j->in_used += n;
    return (int)n;
}

static int read_rope(struct tls_session *s, char *to, int size)
{
    uint64_t n = s->in.len < (uint64_t)size ? s->in.len : (uint64_t)size;
    rope_copy_out(&s->in, 0, to, n);
    rope_trim_head(s->tls->ropes, &s->in, n);
    return (int)n;
}

static int on_read(BIO *b, char *to, int size)
{
    struct tls_session *s = BIO_get_data(b);
    BIO_clear_retry_flags(b);
    int n = s->job ? read_job(s->job, to, size) : read_rope(s, to, size);
    if (n > 0)
        return n;
    BIO_set_retry_read(b);
    return -1;
}

/* A pool's thread: it may allocate. */
static int write_job(struct tls_job *j, const char *from, int size)
{
    uint32_t need = j->out_len + (uint32_t)size;
    if (need > j->out_size) {
        uint32_t more = need * 2;
        uint8_t *bigger = malloc(more);
        if (!bigger)
            return -1;
        memcpy(bigger, j->out, j->out_len);
        if (j->out != j->own)
            free(j->out);
        j->out = bigger;
        j->out_size = more;
    }
    memcpy(j->out + j->out_len, from, (size_t)size);
    j->out_len += (uint32_t)size;
    return size;
}

/* Into the mbufs that were set aside for this record. */
static int write_spare(struct tls_session *s, const char *from, int size)
{
    struct tls *t = s->tls;
    int done = 0;
    while (done < size && t->spare_at < t->nspare) {
        struct rte_mbuf *m = t->spare[t->spare_at];
        uint32_t n = (uint32_t)(size - done) < TLS_SEGMENT ? (uint32_t)(size - done) : TLS_SEGMENT;
        memcpy((char *)m->buf_addr + m->data_off, from + done, n);
        if (rope_push_mbuf(t->ropes, &s->out, m, m->data_off, n) != 0)
            break;
        t->spare_at++;
        done += (int)n;
    }
    return done;
}

static int write_rope(struct tls_session *s, const char *from, int size)
{
    int done = write_spare(s, from, size);
    if (done < size && rope_append(s->tls->ropes, &s->out, from + done, (size_t)(size - done)) != 0)
        return done ? done : -1;
    return size;
}

static int on_write(BIO *b, const char *from, int size)
{
    struct tls_session *s = BIO_get_data(b);
    BIO_clear_retry_flags(b);
    return s->job ? write_job(s->job, from, size) : write_rope(s, from, size);
}

static long on_ctrl(BIO *b, int cmd, long num, void *ptr)
{
    return cmd == BIO_CTRL_FLUSH || cmd == BIO_CTRL_DUP;
}

BIO_METHOD *session_bio_new(void)
{
    BIO_METHOD *m = BIO_meth_new(BIO_get_new_index() | BIO_TYPE_SOURCE_SINK, "millrace rope");
    if (m && BIO_meth_set_read(m, on_read) && BIO_meth_set_write(m, on_write) &&
        BIO_meth_set_ctrl(m, on_ctrl))
        return m;
    BIO_meth_free(m);
    return NULL;
}

int session_bio_attach(struct tls_session *s, SSL *ssl)
{
    BIO *b = BIO_new(s->tls->bio);
    if (!b)
        return -ENOMEM;
    BIO_set_data(b, s);
    BIO_set_init(b, 1);
    SSL_set_bio(ssl, b, b); /* takes the one reference for both */
    return 0;
}
