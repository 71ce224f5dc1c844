/* One request and its response: ROUTE → ADMIT → PICK → CONNECT → SEND → AWAIT_HEAD → RELAY → DONE,
 * with BACKOFF between attempts. One absolute deadline holds over all of it.
 *
 * Driven by the client's task. The request goes up (request.c) and the response comes down
 * (response.c) at the same time; each half stops when what it has moved can't be written on, so
 * that at most RELAY_BYTES stand in the exchange and TCP's window holds back the rest.
 *
 * Private to proxy/.
 */
#ifndef MILLRACE_DATAPLANE_PROXY_EXCHANGE_H
#define MILLRACE_DATAPLANE_PROXY_EXCHANGE_H

#include "dataplane/http/trace.h"
#include "dataplane/proxy/conn.h"
#include "dataplane/route/edit.h"

enum exchange_state {
    EXCHANGE_ADMIT,       /* waiting for a permit of the upstream */
    EXCHANGE_BACKOFF,     /* between two attempts; no permit is held */
    EXCHANGE_PICK,        /* an endpoint */
    EXCHANGE_PERMIT,      /* waiting for a permit of the endpoint's */
    EXCHANGE_DIAL,        /* a connection to it */
    EXCHANGE_CONN_PERMIT, /* waiting for a permit to open one */
    EXCHANGE_ACQUIRE,     /* this core has as many to it as it may: waiting for one */
    EXCHANGE_CONNECT,     /* waiting for the handshake */
    EXCHANGE_AWAIT_HEAD,  /* the request is going up, no final response head yet */
    EXCHANGE_RELAY,       /* the response is coming down */
};

struct exchange {
    struct client *client;
    struct upstream *upstream; /* a reference */
    struct tried tried;        /* endpoints that didn't answer */
    struct endpoint *ep;       /* where this attempt goes; held. NULL: nowhere yet */
    struct upconn *conn;
    struct leased_permit admitted;  /* of the upstream's requests */
    struct leased_permit permit;    /* of the endpoint's */
    struct conn_permits for_conn;   /* for a connection that will be opened */
    struct admission admission;     /* in ADMIT, PERMIT, CONN_PERMIT */
    struct permits_core *conn_from; /* in CONN_PERMIT */
    struct route_edit *edit;        /* a reference; NULL: the route changes nothing */
    struct pool_wait wait;
    uint64_t hash; /* of what consistent hashing goes by */
    uint8_t state;
    uint8_t attempts;
    uint8_t priority;
    uint32_t route;   /* index in its listener's routes, as they were in that version */
    uint64_t version; /* of the configuration that it began with */
    bool reused;
    bool fresh; /* the pool has let us down: connect anew */
    bool idempotent;
    bool head_request;
    bool keep_alive; /* what the client asked for */
    uint8_t client_minor;
    bool request_sent; /* all of it has been given to TCP */
    bool request_cut;  /* the origin no longer takes it; only the response is of interest */
    bool expects;      /* the client holds its body back until it is told to go on */
    bool judged;       /* the endpoint has been told what this attempt came to */
    bool any_sent;     /* a byte of the request was given to TCP in this attempt */
    bool interim_sent; /* an interim response has gone to the client's rope */
    bool head_written; /* a final response head is in the client's rope, and nothing before it */
    bool head_out;     /* a byte of it was given to TCP: from here on there is no other answer */
    uint64_t started, deadline;
    uint64_t admitted_at;
    uint64_t due;       /* of the present state: BACKOFF, ACQUIRE, CONNECT */
    uint64_t try_due;   /* of the attempt, up to its response's head */
    uint64_t asked;     /* the request's head was written in this attempt */
    uint64_t moved_in;  /* last time the client's body moved, or we began to want it */
    uint64_t moved_out; /* last time the client took bytes, or we had none for it */

    struct rope head; /* the request's head in its mbuf, kept for another attempt */
    char *head_buf;   /* or here, when it spanned several */
    uint32_t head_start, head_len;
    struct h1_body body; /* of the request */
    struct rope up;      /* to be written to the origin */

    struct rope in; /* from the origin, not consumed */
    struct head_reader reader;
    struct h1_body resp;
    bool resp_chunked;  /* how the client gets it */
    bool resp_reusable; /* the origin keeps the connection */
    bool trace_begins;  /* with this request */
    uint8_t trace_flags;
    uint16_t status;
    struct access_record record;
    uint8_t trace_parent[HTTP_TRACE_PARENT]; /* of the record's trace, as the origin gets it */
};

/* A request that has been parsed and routed. */
struct exchange_request {
    const struct http_head *head;
    const struct http_route_key *key;
    const struct config_route *route;
    uint32_t end; /* of the head at the front of client->in, leading empty lines included */
};

/* Takes the head and begins. 0, or -status: nothing taken then. */
int exchange_start(struct client *c, const struct exchange_request *r);

enum step exchange_step(struct exchange *x);

/* The client's task is being dropped: ends the exchange without an answer. */
void exchange_cancel(struct exchange *x, enum access_reason why);

/* request.c: moves what can be moved. STEP_DONE: the exchange has ended. */
enum step exchange_pump_request(struct exchange *x);
/* response.c */
enum step exchange_pump_response(struct exchange *x);

/* Takes the head, `end` bytes at the front of client->in, for this and later attempts. 0 or
 * -ENOMEM: nothing taken then. */
int exchange_keep_head(struct exchange *x, uint32_t end);

/* Writes the request's head for a new attempt into x->up. 0 or -errno. */
int exchange_write_head(struct exchange *x);

/* No further attempt will be made: the request's head is not needed any more. */
void exchange_drop_head(struct exchange *x);

/* Ends with an answer of our own, in place of one of which no byte has gone out yet, or else by
 * cutting the client off. */
enum step exchange_fail(struct exchange *x, int status, enum access_reason why);

/* retry.c: another attempt, if it is allowed: the failure may pass, repeating does no harm, and
 * attempts, budget and time are left. `delay`: what the server asked for, ns. False: nothing has
 * changed. */
bool exchange_try_again(struct exchange *x, enum config_retry_on class, uint64_t delay);

/* The origin let us down before a byte of the response: another attempt, or fails. */
enum step exchange_retry(struct exchange *x, enum config_retry_on class, int status,
                         enum access_reason why);

/* What becomes of the origin's connection. */
enum leave {
    LEAVE_BROKEN, /* in the middle of something: RST, lest the origin take it for whole */
    LEAVE_CLOSED, /* all was said, but one side wants no more: FIN */
    LEAVE_POOLED,
};

/* Lets go of the endpoint, its connection and permits in this attempt. */
void exchange_end_attempt(struct exchange *x, enum leave how);

/* hash.c: what consistent hashing goes by; 0 when the upstream doesn't hash. */
uint64_t exchange_hash(const struct upstream *up, const struct exchange_request *r,
                       const struct access_record *record);

/* Tells the endpoint, once an attempt, what has come of it. */
void exchange_judge(struct exchange *x, enum attempt_result r);

/* Everything has been relayed. */
enum step exchange_complete(struct exchange *x);

#endif
