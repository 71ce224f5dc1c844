/* Handshakes: the core collects a flight of the client's, the pool answers it. */
#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include <openssl/err.h>

#include "dataplane/tls/session.h"
#include "runtime/task.h"

#define RECORD_HANDSHAKE 22
#define RETRY_NS         1000000ull /* when other cores' jobs have filled the pool's queue */
#define HELLO_HEADER     4u
#define SUBJECT_MAX      1024u

static const char plain_http[] = "HTTP/1.1 400 Bad Request\r\n"
                                 "Content-Type: text/plain\r\n"
                                 "Content-Length: 49\r\n"
                                 "Connection: close\r\n"
                                 "\r\n"
                                 "This port speaks HTTPS; plain HTTP was received.\n";

/* Fatal, unexpected_message (RFC 8446 §6.2). */
static const uint8_t garbage_alert[] = {21, 3, 3, 0, 2, 2, 10};

/* --- what has arrived ----------------------------------------------------------------------------
 */

enum arrived { ARRIVED_PART, ARRIVED_FLIGHT, ARRIVED_HTTP, ARRIVED_GARBAGE, ARRIVED_OVERSIZED };

static enum arrived look_for_http(const struct rope *in)
{
    static const char methods[][4] = {"GET", "HEA", "POS", "PUT", "DEL",
                                      "OPT", "PAT", "CON", "TRA", "PRI"};
    char first[3];
    size_t n = in->len < sizeof(first) ? in->len : sizeof(first);
    rope_copy_out(in, 0, first, n);
    for (size_t i = 0; i < sizeof(methods) / sizeof(methods[0]); i++)
        if (memcmp(methods[i], first, n) == 0)
            return n == sizeof(first) ? ARRIVED_HTTP : ARRIVED_PART;
    return ARRIVED_GARBAGE;
}

/* The ClientHello may be cut into records anyhow: no job before it is whole. */
static enum arrived look_for_hello(const struct rope *in)
{
    uint8_t start[HELLO_HEADER], header[TLS_HEADER];
    uint32_t got = 0, need = UINT32_MAX;
    for (uint64_t at = 0; at + TLS_HEADER <= in->len;) {
        rope_copy_out(in, at, header, TLS_HEADER);
        uint32_t len = (uint32_t)header[3] << 8 | header[4];
        if (header[0] != RECORD_HANDSHAKE || header[1] != 3)
            return at ? ARRIVED_FLIGHT : ARRIVED_GARBAGE; /* later ones are OpenSSL's to refuse */
        if (len > TLS_PLAIN_MAX)
            return ARRIVED_OVERSIZED;
        at += TLS_HEADER;
        if (at + len > in->len)
            return ARRIVED_PART;
        if (len == 0)
            return ARRIVED_FLIGHT;
        for (uint32_t i = 0; i < len && got + i < HELLO_HEADER; i++)
            rope_copy_out(in, at + i, &start[got + i], 1);
        got += len;
        at += len;
        if (got >= HELLO_HEADER)
            need = HELLO_HEADER + ((uint32_t)start[1] << 16 | (uint32_t)start[2] << 8 | start[3]);
        if (got >= HELLO_HEADER && need > TLS_HELLO_MAX)
            return ARRIVED_OVERSIZED;
        if (got >= need)
            return ARRIVED_FLIGHT;
    }
    return ARRIVED_PART;
}

static enum arrived look(const struct tls_session *s)
{
    const struct rope *in = &s->in;
    uint8_t first;
    if (in->len == 0)
        return ARRIVED_PART;
    if (s->ssl)
        return record_first(in) ? ARRIVED_FLIGHT : ARRIVED_PART;
    rope_copy_out(in, 0, &first, 1);
    if (first != RECORD_HANDSHAKE)
        return look_for_http(in);
    return look_for_hello(in);
}

/* --- the end, one way or the other ---------------------------------------------------------------
 */

static int finish_failed(struct tls_session *s, enum tls_fail why)
{
    struct tls *t = s->tls;
    session_settle(s);
    t->stats.failed[why]++;
    s->fail = (uint8_t)why;
    s->state = TLS_FAILED;
    s->says_why = s->out.len > 0;
    if (s->job)
        slab_put(&t->jobs, s->job);
    s->job = NULL;
    session_die(s, -EPROTO);
    return s->err;
}

static void finish_done(struct tls_session *s)
{
    struct tls *t = s->tls;
    session_settle(s);
    t->stats.done++;
    t->stats.resumed += (uint64_t)SSL_session_reused(s->ssl);
    hist_record(&t->stats.handshake_ns, sched_now(t->sched) - s->started);
    slab_put(&t->jobs, s->job);
    s->job = NULL;
    s->state = TLS_OPEN;
}

static void wake(const struct tls_session *s)
{
    if (s->stream.rd_task)
        task_wake(s->stream.rd_task);
}

/* --- the job -------------------------------------------------------------------------------------
 */

static enum tls_fail why_failed(void)
{
    unsigned long e = ERR_peek_error();
    int reason = ERR_GET_REASON(e);
    if (ERR_GET_LIB(e) != ERR_LIB_SSL)
        return ERR_GET_REASON(e) == ERR_R_MALLOC_FAILURE ? TLS_FAIL_no_memory : TLS_FAIL_protocol;
    if (reason >= SSL_AD_REASON_OFFSET)
        return TLS_FAIL_alert;
    switch (reason) {
    case SSL_R_UNSUPPORTED_PROTOCOL:
    case SSL_R_UNKNOWN_PROTOCOL:
    case SSL_R_VERSION_TOO_LOW:
    case SSL_R_NO_PROTOCOLS_AVAILABLE:
    case SSL_R_INAPPROPRIATE_FALLBACK:
        return TLS_FAIL_version;
    case SSL_R_NO_SHARED_CIPHER:
    case SSL_R_NO_SHARED_GROUPS:
    case SSL_R_NO_SUITABLE_KEY_SHARE:
    case SSL_R_NO_SUITABLE_SIGNATURE_ALGORITHM:
    case SSL_R_NO_SHARED_SIGNATURE_ALGORITHMS:
    case SSL_R_NO_CIPHERS_SPECIFIED:
        return TLS_FAIL_cipher;
    case SSL_R_NO_APPLICATION_PROTOCOL:
        return TLS_FAIL_alpn;
    case SSL_R_PEER_DID_NOT_RETURN_A_CERTIFICATE:
        return TLS_FAIL_no_client_cert;
    case SSL_R_CERTIFICATE_VERIFY_FAILED:
        return TLS_FAIL_bad_client_cert;
    default:
        return TLS_FAIL_protocol;
    }
}

static SSL *make_ssl(struct tls_session *s)
{
    SSL *ssl = SSL_new(s->context->sets[s->tls->core].ctx[0]);
    if (!ssl)
        return NULL;
    if (session_bio_attach(s, ssl) < 0) {
        SSL_free(ssl);
        return NULL;
    }
    SSL_set_accept_state(ssl);
    return ssl;
}

/* Printable ASCII alone: RFC 2253 escapes the rest. NULL: no memory. */
static char *subject_of(X509 *x)
{
    BIO *b = BIO_new(BIO_s_mem());
    char *bytes, *copy = NULL;
    if (b && X509_NAME_print_ex(b, X509_get_subject_name(x), 0, XN_FLAG_RFC2253) >= 0) {
        long n = BIO_get_mem_data(b, &bytes);
        copy = strndup(bytes, (size_t)n < SUBJECT_MAX ? (size_t)n : SUBJECT_MAX);
    }
    BIO_free(b);
    return copy;
}

/* A client that has shown a certificate must not pass for one that has not. */
static void note_subject(struct tls_session *s, struct tls_job *j)
{
    X509 *x = SSL_get0_peer_certificate(s->ssl);
    s->subject = x ? subject_of(x) : NULL;
    if (!x || s->subject)
        return;
    j->result = -1;
    j->fail = TLS_FAIL_no_memory;
}

static void run_job(struct blocking_job *job)
{
    struct tls_job *j = container_of(job, struct tls_job, job);
    struct tls_session *s = j->session;
    ERR_clear_error();
    if (!s->ssl)
        s->ssl = make_ssl(s);
    if (!s->ssl) {
        j->result = -1;
        j->fail = TLS_FAIL_no_memory;
        return;
    }
    int rc = SSL_do_handshake(s->ssl);
    j->result = rc == 1 ? 1 : SSL_get_error(s->ssl, rc) == SSL_ERROR_WANT_READ ? 0 : -1;
    if (j->result < 0)
        j->fail = why_failed();
    if (j->result > 0)
        note_subject(s, j);
    ERR_clear_error();
}

static void take_output(struct tls_session *s, struct tls_job *j)
{
    int err = rope_append(s->tls->ropes, &s->out, j->out, j->out_len);
    if (j->out != j->own)
        free(j->out);
    if (err && j->result >= 0) {
        j->result = -1;
        j->fail = TLS_FAIL_no_memory;
    }
}

static void take_answer(struct tls_session *s, struct tls_job *j)
{
    if (j->job.status != 0) {
        j->result = -1;
        j->fail = TLS_FAIL_shutdown;
    }
    rope_trim_head(s->tls->ropes, &s->in, j->in_used);
    take_output(s, j);
    s->state = TLS_FLIGHT;
    if (s->err) { /* given up meanwhile, not closed yet */
        s->state = TLS_FAILED;
    } else if (j->result < 0) {
        finish_failed(s, j->fail);
    } else if (session_flush(s, s->stream.wr_task) < 0 && s->err) {
        finish_failed(s, TLS_FAIL_closed);
    } else if (j->result > 0) {
        finish_done(s);
    }
    wake(s);
}

static void run_queue(struct tls *t);

static void job_done(struct blocking_job *job)
{
    struct tls_job *j = container_of(job, struct tls_job, job);
    struct tls_session *s = j->session;
    struct tls *t = s->tls;
    t->stats.jobs_out--;
    if (s->orphan) {
        if (j->out != j->own)
            free(j->out);
        s->state = TLS_FAILED;
        session_free(s);
    } else {
        take_answer(s, j);
    }
    run_queue(t);
}

/* --- the queue -----------------------------------------------------------------------------------
 */

/* As many whole records as fit. */
static uint32_t fill(const struct rope *in, uint8_t *to)
{
    uint64_t at = 0;
    while (at + TLS_HEADER <= in->len) {
        uint8_t header[TLS_HEADER];
        rope_copy_out(in, at, header, TLS_HEADER);
        uint64_t len = TLS_HEADER + ((uint32_t)header[3] << 8 | header[4]);
        if (at + len > in->len || at + len > TLS_JOB_IN)
            break;
        at += len;
    }
    if (at == 0) /* a record that is too long */
        at = in->len < TLS_JOB_IN ? in->len : TLS_JOB_IN;
    rope_copy_out(in, 0, to, at);
    return (uint32_t)at;
}

static int submit(struct tls *t, struct tls_job *j)
{
    struct tls_session *s = j->session;
    int err = 0;
    s->state = TLS_JOB;
    if (t->pool)
        err = blocking_submit(t->pool, &j->job);
    else
        blocking_run_inline(&j->job);
    if (err) {
        s->state = TLS_QUEUED;
        return err;
    }
    t->stats.jobs++;
    t->stats.jobs_out++;
    return 0;
}

static void leave_queue(struct tls_job *j)
{
    if (!list_is_linked(&j->queued))
        return;
    list_remove(&j->queued);
    j->session->tls->stats.waiting--;
}

static void run_queue(struct tls *t)
{
    struct list_node *n;
    while ((n = list_first(&t->queue))) {
        struct tls_job *j = container_of(n, struct tls_job, queued);
        int err = submit(t, j);
        if (err == -EBUSY)
            break;
        leave_queue(j);
        if (err) {
            finish_failed(j->session, TLS_FAIL_shutdown);
            wake(j->session);
        }
    }
    if (!list_is_empty(&t->queue) && t->stats.jobs_out == 0)
        timer_arm(&t->sched->wheel, &t->retry, sched_now(t->sched) + RETRY_NS);
}

void handshake_queue_retry(struct timer *timer, uint64_t now)
{
    run_queue(container_of(timer, struct tls, retry));
}

static struct tls_job *job_new(struct tls_session *s)
{
    struct tls_job *j = slab_get(&s->tls->jobs);
    if (!j)
        return NULL;
    memset(j, 0, offsetof(struct tls_job, in));
    j->session = s;
    j->job.run = run_job;
    j->job.done = job_done;
    j->job.reply = s->tls->mailbox;
    j->job.class = s->tls->class;
    return j;
}

static int start_job(struct tls_session *s, bool refuse)
{
    struct tls *t = s->tls;
    if (!s->job)
        s->job = job_new(s);
    struct tls_job *j = s->job;
    if (!j)
        return finish_failed(s, TLS_FAIL_no_memory);
    j->in_len = fill(&s->in, j->in);
    j->in_used = j->out_len = 0;
    j->out = j->own;
    j->out_size = sizeof(j->own);
    bool in_line = !list_is_empty(&t->queue);
    int err = in_line ? -EBUSY : submit(t, j);
    if (!err)
        return -EAGAIN;
    if (err != -EBUSY)
        return finish_failed(s, TLS_FAIL_shutdown);
    t->stats.refused++;
    if (refuse)
        return finish_failed(s, TLS_FAIL_overload);
    s->state = TLS_QUEUED;
    list_push_tail(&t->queue, &j->queued);
    t->stats.waiting++;
    if (!in_line)
        run_queue(t);
    return -EAGAIN;
}

/* --- the connection's side -----------------------------------------------------------------------
 */

static int refuse_bytes(struct tls_session *s, const void *answer, size_t len, enum tls_fail why)
{
    if (rope_append(s->tls->ropes, &s->out, answer, len) == 0)
        session_flush(s, NULL);
    int err = finish_failed(s, why);
    s->says_why = true;
    return err;
}

static int on_arrived(struct tls_session *s, bool refuse)
{
    switch (look(s)) {
    case ARRIVED_PART:
        if (s->in.len <= TLS_HELLO_MAX)
            return -EAGAIN;
        break;
    case ARRIVED_FLIGHT:
        return start_job(s, refuse);
    case ARRIVED_HTTP:
        return refuse_bytes(s, plain_http, sizeof(plain_http) - 1, TLS_FAIL_plain_http);
    case ARRIVED_GARBAGE:
        return refuse_bytes(s, garbage_alert, sizeof(garbage_alert), TLS_FAIL_not_tls);
    case ARRIVED_OVERSIZED:
        break;
    }
    return refuse_bytes(s, garbage_alert, sizeof(garbage_alert), TLS_FAIL_oversized);
}

static int collect(struct tls_session *s, struct task *task, bool refuse)
{
    if (session_flush(s, task) < 0 && s->err)
        return finish_failed(s, TLS_FAIL_closed);
    int err = s->in.len ? on_arrived(s, refuse) : -EAGAIN;
    while (err == -EAGAIN && s->state == TLS_FLIGHT) {
        ssize_t n = stream_read(s->under, task, &s->in, TLS_HELLO_MAX);
        if (n == -EAGAIN)
            return -EAGAIN;
        if (n <= 0)
            return finish_failed(s, TLS_FAIL_closed);
        err = on_arrived(s, refuse);
    }
    return err;
}

/* In the queue or in the pool: only the client's death is of interest. */
static int wait_for_pool(struct tls_session *s, struct task *task)
{
    stream_watch(s->under, task);
    return stream_status(s->under) < 0 ? -ECONNRESET : -EAGAIN;
}

int tls_handshake(struct stream *stream, struct task *task, bool refuse, enum tls_fail *ret_fail)
{
    struct tls_session *s = session_of(stream);
    int err = s->err;
    stream->rd_task = stream->wr_task = task;
    switch ((enum tls_state)s->state) {
    case TLS_OPEN:
        return 0;
    case TLS_FLIGHT:
        err = collect(s, task, refuse);
        break;
    case TLS_QUEUED:
    case TLS_JOB:
        err = wait_for_pool(s, task);
        if (err != -EAGAIN)
            tls_give_up(stream, TLS_FAIL_closed);
        break;
    case TLS_FAILED:
        break;
    }
    if (err != -EAGAIN)
        *ret_fail = (enum tls_fail)s->fail;
    return err;
}

void tls_give_up(struct stream *stream, enum tls_fail why)
{
    struct tls_session *s = session_of(stream);
    if (!s->handshaking)
        return;
    session_settle(s);
    s->tls->stats.failed[why]++;
    s->fail = (uint8_t)why;
    if (s->state == TLS_QUEUED)
        leave_queue(s->job);
    if (s->state != TLS_JOB)
        s->state = TLS_FAILED;
    session_die(s, -ETIMEDOUT);
}
