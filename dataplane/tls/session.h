/* What session.c, handshake.c, record.c, stream_ops.c and bio.c share. Private to tls/. */
#ifndef MILLRACE_DATAPLANE_TLS_SESSION_H
#define MILLRACE_DATAPLANE_TLS_SESSION_H

#include <openssl/ssl.h>

#include "dataplane/tls/context_priv.h"
#include "dataplane/tls/tls.h"
#include "runtime/list.h"
#include "runtime/slab.h"
#include "runtime/timer.h"

#define TLS_HEADER 5u
#define TLS_RECORD_MAX                                                                             \
    (16384u + 256u) /* of a record's content, RFC 8446 §5.2; TLS 1.2 has 2048                     \
                     */
#define TLS_PLAIN_MAX  16384u
#define TLS_SEALED_MAX (TLS_HEADER + TLS_PLAIN_MAX + 256u)
#define TLS_HELLO_MAX  65536u                        /* bytes of a flight that isn't whole yet */
#define TLS_JOB_IN     (TLS_HEADER + 16384u + 2048u) /* any record */
#define TLS_JOB_OUT    8192u
#define TLS_SEGMENT                                                                                \
    1440u /* bytes in an mbuf that are sealed: what fits a segment of most paths                   \
           */
#define TLS_SPARE (TLS_SEALED_MAX / TLS_SEGMENT + 2)

enum tls_state {
    TLS_FLIGHT, /* waiting for what the client has to say next */
    TLS_QUEUED, /* waiting for a place in the pool's queue */
    TLS_JOB,    /* job is in the pool, and all of the SSL with it */
    TLS_OPEN,
    TLS_FAILED, /* the handshake; err is set */
};

/* A flight's work. It holds what the SSL reads and writes meanwhile. */
struct tls_job {
    struct blocking_job job;
    struct tls_session *session;
    struct list_node queued; /* tls.queue */
    uint32_t in_len, in_used;
    uint32_t out_len, out_size;
    uint8_t *out; /* `own`, or malloced when that is too small */
    int result;   /* 1 done, 0 more is needed, -1 failed */
    bool no_memory;
    enum tls_fail fail; /* valid if failed */
    uint8_t in[TLS_JOB_IN];
    uint8_t own[TLS_JOB_OUT];
};

struct tls_session {
    struct stream stream;
    struct stream *under; /* NULL: aborted, while a job was out */
    struct tls *tls;
    struct tls_context *context; /* a reference */
    SSL *ssl;                    /* NULL before the first job */
    char *subject;               /* of the client's certificate; malloced by the last job */
    struct tls_job *job;         /* until the handshake is done */
    struct rope in;              /* received, sealed */
    struct rope out;             /* sealed, to be sent */
    struct rope plain;           /* opened, not read yet */
    uint64_t started;
    int err;
    uint8_t state;    /* enum tls_state */
    uint8_t fail;     /* enum tls_fail */
    bool handshaking; /* counted as such */
    bool orphan;      /* nobody's: freed when its job is back */
    bool got_end;     /* the peer's close_notify */
    bool sent_end;    /* ours */
    bool fin_due;     /* FIN when `out` is empty */
    bool fin_sent;
    bool says_why; /* failed, and `out` tells the client: not to be lost by a RST */
};

/* Closing in the background. */
struct tls_closing {
    struct task task;
    struct sleep timer;
    struct list_node node; /* tls.closings */
    struct tls_session *session;
    uint64_t deadline;
    uint64_t discarded;
};

struct tls {
    struct sched *sched;
    struct rope_pool *ropes;
    struct mailbox *mailbox;
    struct blocking *pool;
    unsigned class, core;
    struct slab sessions, jobs, closings;
    struct list_node closing; /* struct tls_closing */
    struct list_node queue;   /* struct tls_job: the pool's queue was full */
    struct timer retry;       /* tries again when no job of ours is out */
    BIO_METHOD *bio;
    struct rte_mbuf *spare[TLS_SPARE]; /* for the record that is being sealed */
    unsigned nspare, spare_at;
    struct tls_stats stats;
    uint8_t plain[TLS_PLAIN_MAX]; /* bytes to seal that are scattered */
};

static inline struct tls_session *session_of(const struct stream *s)
{
    return container_of(s, struct tls_session, stream);
}

extern const struct stream_ops tls_stream_ops;

/* bio.c: a session as OpenSSL's transport: its job's buffers while there is a job, else ropes. */
BIO_METHOD *session_bio_new(void);
/* 0 or -ENOMEM; the SSL gets the BIO. */
int session_bio_attach(struct tls_session *s, SSL *ssl);

/* session.c */
/* It is no longer counted as handshaking. */
void session_settle(struct tls_session *s);
void session_free(struct tls_session *s);
/* Sends what is sealed as far as TCP takes it; wakes `task` for more. 0 all gone, -EAGAIN, or the
 * error that it died of, which it has then. */
int session_flush(struct tls_session *s, struct task *task);
/* The one place where a session dies. */
void session_die(struct tls_session *s, int err);
/* Ends the handle: bytes in `out` and a FIN go out in the background. */
void session_close(struct tls_session *s);
void closings_abort(struct tls *t);

/* handshake.c */
void handshake_queue_retry(struct timer *t, uint64_t now);

/* record.c: bytes that were opened in all and stand in `plain`, until there are `max` or nothing
 * more has come. -EAGAIN, 0 at the end, > 0, or the error. */
ssize_t records_open(struct tls_session *s, uint64_t max);
ssize_t records_seal(struct tls_session *s, struct rope *src);
/* Length of the first record of `in`, with its header; 0: it isn't there as a whole. One that is
 * too long counts as whole: OpenSSL refuses it. */
uint32_t record_first(const struct rope *in);

#endif
