#include "dataplane/tls/session.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/task.h"

#define CLOSE_NS       5000000000ull /* for what is sealed to get into TCP's buffer */
#define LINGER_NS      1000000000ull /* for the client to read why, and to end */
#define LINGER_BYTES   65536u
#define DISCARD_STRIDE 16384u

static const char *const fail_names[] = {
#define TLS_FAIL(name, text) #name,
#include "dataplane/tls/fail.def"
#undef TLS_FAIL
};

const char *tls_fail_name(enum tls_fail f)
{
    return (unsigned)f < TLS_FAIL_COUNT ? fail_names[f] : "?";
}

struct tls *tls_new(const struct tls_opts *o)
{
    struct tls *t = calloc(1, sizeof(*t));
    if (!t)
        return NULL;
    t->sched = o->sched;
    t->ropes = o->ropes;
    t->mailbox = o->mailbox;
    t->pool = o->pool;
    t->class = o->class;
    t->core = o->core;
    list_init(&t->queue);
    list_init(&t->closing);
    t->retry.fire = handshake_queue_retry;
    slab_init(&t->sessions, sizeof(struct tls_session), 0);
    slab_init(&t->jobs, sizeof(struct tls_job), 0);
    slab_init(&t->closings, sizeof(struct tls_closing), 0);
    t->bio = session_bio_new();
    if (t->bio)
        return t;
    free(t);
    return NULL;
}

void tls_free(struct tls *t)
{
    closings_abort(t);
    assert(list_is_empty(&t->queue) && t->stats.jobs_out == 0);
    timer_cancel(&t->sched->wheel, &t->retry);
    slab_fini(&t->sessions);
    slab_fini(&t->jobs);
    slab_fini(&t->closings);
    BIO_meth_free(t->bio);
    free(t);
}

const struct tls_stats *tls_stats(const struct tls *t)
{
    return &t->stats;
}

struct stream *tls_accept(struct tls *t, struct tls_context *c, struct stream *under)
{
    struct tls_session *s = slab_get_zeroed(&t->sessions);
    if (!s)
        return NULL;
    s->stream.ops = &tls_stream_ops;
    s->under = under;
    s->tls = t;
    tls_context_get(c);
    s->context = c;
    s->started = sched_now(t->sched);
    s->handshaking = true;
    t->stats.started++;
    t->stats.sessions++;
    t->stats.handshaking++;
    return &s->stream;
}

void session_settle(struct tls_session *s)
{
    if (s->handshaking)
        s->tls->stats.handshaking--;
    s->handshaking = false;
}

void session_free(struct tls_session *s)
{
    struct tls *t = s->tls;
    assert(s->state != TLS_JOB && !s->under);
    session_settle(s);
    if (s->job)
        slab_put(&t->jobs, s->job);
    SSL_free(s->ssl);
    free(s->subject);
    tls_context_put(s->context);
    rope_clear(t->ropes, &s->in);
    rope_clear(t->ropes, &s->out);
    rope_clear(t->ropes, &s->plain);
    t->stats.sessions--;
    slab_put(&t->sessions, s);
}

void session_die(struct tls_session *s, int err)
{
    assert(err < 0);
    if (!s->err)
        s->err = err;
}

static int send_fin(struct tls_session *s)
{
    if (!s->fin_due || s->fin_sent)
        return 0;
    int err = stream_shutdown(s->under);
    s->fin_sent = !err;
    return err;
}

int session_flush(struct tls_session *s, struct task *task)
{
    while (s->out.len) {
        ssize_t n = stream_write(s->under, task, &s->out);
        if (n == -EAGAIN)
            return -EAGAIN;
        if (n < 0) {
            session_die(s, (int)n);
            return (int)n;
        }
    }
    return send_fin(s);
}

/* --- closing -------------------------------------------------------------------------------------
 */

/* What comes in is thrown away: left unread it would turn the end into a RST, which takes with it
 * what the client has not read. True at the end. */
static bool discard(struct tls_closing *c)
{
    struct tls_session *s = c->session;
    ssize_t n;
    do {
        rope_clear(s->tls->ropes, &s->in);
        n = stream_read(s->under, &c->task, &s->in, DISCARD_STRIDE);
        c->discarded += n > 0 ? (uint64_t)n : 0;
    } while (n > 0 && c->discarded <= LINGER_BYTES);
    return n != -EAGAIN;
}

static enum poll closing_poll(struct task *task)
{
    struct tls_closing *c = container_of(task, struct tls_closing, task);
    struct tls_session *s = c->session;
    int err = session_flush(s, task);
    bool over = sched_now(s->tls->sched) >= c->deadline;
    if (err && err != -EAGAIN)
        return POLL_READY;
    if (!over && (err == -EAGAIN || (s->says_why && !discard(c)))) {
        sleep_arm(&c->timer, task, c->deadline);
        return POLL_PENDING;
    }
    if (err == 0) {
        stream_close(s->under);
        s->under = NULL;
    }
    return POLL_READY;
}

static void closing_drop(struct task *task)
{
    struct tls_closing *c = container_of(task, struct tls_closing, task);
    struct tls_session *s = c->session;
    sleep_cancel(&c->timer);
    list_remove(&c->node);
    if (s->under)
        stream_abort(s->under);
    s->under = NULL;
    slab_put(&s->tls->closings, c);
    session_free(s);
}

static const struct task_kind closing_kind = {"tls close", closing_poll, closing_drop,
                                              sizeof(struct tls_closing)};

static void close_in_background(struct tls_session *s)
{
    struct tls *t = s->tls;
    struct tls_closing *c = slab_get_zeroed(&t->closings);
    if (!c) {
        stream_abort(s->under);
        s->under = NULL;
        session_free(s);
        return;
    }
    c->session = s;
    s->fin_due = true;
    c->deadline = sched_now(t->sched) + (s->says_why ? LINGER_NS : CLOSE_NS);
    stream_unwatch(s->under);
    list_push_tail(&t->closing, &c->node);
    task_spawn(t->sched, &c->task, &closing_kind);
}

void session_close(struct tls_session *s)
{
    if (s->err && !s->says_why) {
        stream_abort(s->under);
        s->under = NULL;
        session_free(s);
        return;
    }
    if (session_flush(s, NULL) == 0 && !s->says_why) {
        stream_close(s->under);
        s->under = NULL;
        session_free(s);
        return;
    }
    close_in_background(s);
}

void closings_abort(struct tls *t)
{
    struct list_node *n;
    while ((n = list_first(&t->closing)))
        task_abort(&container_of(n, struct tls_closing, node)->task);
}
