/* Heads as they go on: what was received, without what belongs to the connection it came by
 * (RFC 9110 §7.6.1), with what this hop adds.
 *
 * Dropped: Connection and what it nominates, Keep-Alive, Proxy-Connection, TE, Transfer-Encoding,
 * Upgrade; and Content-Length, which is written anew from the framing given. Kept: Trailer,
 * Proxy-Authenticate, Proxy-Authorization, Expect. "TE: trailers" goes on as such.
 * Heads may be of any size: they continue in the next mbuf.
 *
 * On -ENOMEM `out` is as it was.
 */
#ifndef MILLRACE_DATAPLANE_HTTP_H1_SERIALIZE_H
#define MILLRACE_DATAPLANE_HTTP_H1_SERIALIZE_H

#include "config/snapshot.h"
#include "dataplane/http/message.h"
#include "dataplane/stream/rope.h"

struct h1_writer; /* writer.h */

/* A name in lower case. */
struct h1_name {
    const char *text;
    uint32_t len;
};

struct h1_path {
    const char *piece[2]; /* one after the other */
    uint32_t len[2];
};

/* What the edge's configuration changes, beyond what the hop itself demands. */
struct h1_changes {
    uint64_t drop; /* fields that go: a bit for each known id; with HTTP_H_OTHER's, also `names` */
    const struct h1_name *names;
    uint32_t nnames;
    const struct h1_path *path; /* a request's, in place of its own; NULL: that stays */
    const char *host;           /* a request's, in place of its Host; NULL: that stays */
    void (*put)(struct h1_writer *w, const void *ctx); /* writes further lines; NULL: none */
    const void *ctx;
};

struct h1_request_edit {
    enum config_forwarded forwarded;
    const char
        *client_addr; /* as text, "192.0.2.1" or "2001:db8::1"; unused when forwarded is off */
    const char *default_host;         /* Host for a request of HTTP/1.0 without one; NULL: empty */
    const char *via;                  /* pseudonym; NULL: no Via */
    const char *deadline_name;        /* replaces fields of that name; NULL: none is written */
    const char *deadline;             /* its value */
    const char *subject_name;         /* the same for the client's certificate */
    const char *subject;              /* NULL: none, fields of that name go all the same */
    bool https;                       /* what the client spoke to us */
    bool close;                       /* this is the last request on the upstream connection */
    enum http_framing framing;        /* NONE, LENGTH or CHUNKED */
    uint64_t content_length;          /* with LENGTH; LENGTH 0 writes "Content-Length: 0" */
    const struct h1_changes *changes; /* NULL: none */
};

struct h1_response_edit {
    uint8_t client_minor;      /* HTTP/1.x of the request */
    bool keep_alive;           /* false: "Connection: close" */
    const char *via;           /* NULL: no Via */
    const char *date;          /* IMF-fixdate, for an answer without Date; NULL: none is added */
    enum http_framing framing; /* from h1_response_framing() */
    uint64_t content_length;
    const struct h1_changes *changes; /* of final answers; NULL: none */
};

/* X-Forwarded-For and Forwarded are appended to what came, -Proto and -Host replaced. With an
 * absolute target, Host is its authority (RFC 9112 §3.2.2). The request goes out as HTTP/1.1. */
int h1_write_request(struct rope_pool *pool, struct rope *out, const struct http_head *head,
                     const struct h1_request_edit *edit);

/* Also for interim (1xx) responses: these get no framing, Connection or Date. Goes out as HTTP/1.1.
 */
int h1_write_response(struct rope_pool *pool, struct rope *out, const struct http_head *head,
                      const struct h1_response_edit *edit);

/* How a request's body goes on: unchanged; a body-less POST, PUT or PATCH keeps "Content-Length:
 * 0". */
void h1_request_framing(const struct http_head *head, struct h1_request_edit *edit);

/* How an answer goes on to a client of HTTP/1.<client_minor>, from edit->client_minor and
 * edit->keep_alive: a length stays; all else is chunked for 1.1, and for 1.0 ends with the
 * connection (keep_alive becomes false). */
void h1_response_framing(const struct http_head *head, struct h1_response_edit *edit);

#endif
