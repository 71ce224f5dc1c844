/* TLS (RFC 8446, RFC 5246) of one core: sessions as streams over TCP's.
 *
 * A session takes over a connected stream and becomes one itself. Its handshake runs in the
 * blocking pool, a flight of the client's at a time: while such a job is out it alone touches the
 * SSL, and what the client sends waits in TCP's window. Records are opened and sealed on the core,
 * whole ones only, straight from and into mbufs; each 4 KiB of them counts as an operation of the
 * task's budget. Nothing is buffered in OpenSSL between records.
 *
 * Thread: the owner core, but for what the pool runs.
 */
#ifndef MILLRACE_DATAPLANE_TLS_TLS_H
#define MILLRACE_DATAPLANE_TLS_TLS_H

#include <stdbool.h>
#include <stdint.h>

#include "dataplane/stream/stream.h"
#include "dataplane/tls/context.h"
#include "runtime/blocking.h"
#include "runtime/hist.h"
#include "runtime/sched.h"

enum tls_fail {
#define TLS_FAIL(name, text) TLS_FAIL_##name,
#include "dataplane/tls/fail.def"
#undef TLS_FAIL
    TLS_FAIL_COUNT
};
const char *tls_fail_name(enum tls_fail f);

struct tls_stats {
    uint64_t started, done, resumed; /* handshakes; resumed ones are among the done */
    uint64_t failed[TLS_FAIL_COUNT];
    uint64_t jobs, refused; /* to the pool; that found its queue full */
    uint64_t records_in, records_out;
    uint64_t broken, truncated; /* sessions: by a bad record; by an end without close_notify */
    uint32_t sessions;          /* that live */
    uint32_t handshaking;       /* of them, not done yet */
    uint32_t waiting;           /* of those, for a place in the pool's queue */
    uint32_t jobs_out;          /* in the pool now */
    struct hist handshake_ns;   /* of done ones: from the start to the last flight */
};

struct tls;

struct tls_opts {
    struct sched *sched;
    struct rope_pool *ropes;
    struct mailbox *mailbox; /* the core's */
    struct blocking *pool;   /* NULL: handshakes run in place */
    unsigned class;          /* of the pool's */
    unsigned core;           /* whose set of a context */
};

struct tls *tls_new(const struct tls_opts *o); /* NULL: no memory */
/* Every session is closed, and the pool has stopped and its answers have been delivered. */
void tls_free(struct tls *t);
const struct tls_stats *tls_stats(const struct tls *t);

/* A server's session over `under`, which belongs to it from now on, by a context of which it takes
 * a reference. NULL: no memory; `under` is still the caller's. */
struct stream *tls_accept(struct tls *t, struct tls_context *c, struct stream *under);

/* Drives the handshake. 0: done, the stream is open. -EAGAIN: `task` will be woken. Else it has
 * failed, *ret_fail says why, and the stream can only be closed (what there is to say to the
 * client, such as an alert, is sent then) or aborted. `refuse`: a full queue is a failure. */
int tls_handshake(struct stream *s, struct task *task, bool refuse, enum tls_fail *ret_fail);

/* The caller gives up a handshake that is not done: counted so; to be closed. */
void tls_give_up(struct stream *s, enum tls_fail why);

/* Is it one of ours? */
bool tls_is(const struct stream *s);

/* What was agreed upon. */
struct tls_info {
    const char *version; /* "TLSv1.3"; a literal */
    const char *cipher;  /* as OpenSSL names it; a literal */
    const char *sni;     /* lives as long as the stream, as `subject`; NULL: none was asked for */
    const char *subject; /* of the client's certificate, by RFC 2253; NULL: it showed none */
    bool resumed;
};
/* False: not a TLS stream, or its handshake is not done. */
bool tls_get_info(const struct stream *s, struct tls_info *ret_info);

#endif
