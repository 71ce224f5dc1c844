/* What client.c, exchange*.c, tunnel.c and proxy.c share. Private to proxy/. */
#ifndef MILLRACE_DATAPLANE_PROXY_CONN_H
#define MILLRACE_DATAPLANE_PROXY_CONN_H

#include "dataplane/http/h1/body.h"
#include "dataplane/http/h1/parse.h"
#include "dataplane/http/h1/serialize.h"
#include "dataplane/http/normalize.h"
#include "dataplane/http/status.h"
#include "dataplane/proxy/conn_table.h"
#include "dataplane/proxy/head_reader.h"
#include "dataplane/proxy/proxy.h"
#include "dataplane/proxy/turned_away.h"
#include "dataplane/route/limit.h"
#include "dataplane/stream/proxy_header.h"
#include "dataplane/tls/tls.h"
#include "dataplane/upstream/upstream.h"
#include "runtime/csprng.h"

#define RELAY_BYTES     65536u        /* moved a step, and the most that stands between halves */
#define LINGER_NS       2000000000ull /* wait for the client's FIN after ours */
#define LINGER_BYTES    (1u << 20)
#define RESPONSE_HEAD   65536u
#define RESPONSE_FIELDS 256
#define MAX_ATTEMPTS    3
#define NO_TIME         UINT64_MAX

struct listener_counters {
    uint64_t accepted, refused, requests, bytes_in, bytes_out;
    uint64_t denied;       /* clients that may not come in: their SYNs, or their PROXY headers */
    uint64_t limited;      /* connections over a limit of their client's */
    uint64_t rate_limited; /* requests over one */
    uint64_t status[6];
    uint64_t turned_away[TURNED_AWAY_COUNT];
};

struct listener {
    struct list_node node;
    struct list_node conns; /* struct conn */
    struct proxy *proxy;
    char name[UPSTREAM_NAME];
    struct config_addr address;
    bool http;
    bool draining;                     /* gone from the configuration: it ends with its last one */
    bool is_new, is_opened;            /* between listeners_prepare() and what follows it */
    bool is_listed;                    /* in the snapshot that is being adopted */
    const struct config_listener *cfg; /* of the snapshot in force */
    uint8_t deadline_id;               /* enum http_header_id of cfg's deadline header */
    struct tcp_listener *tcp;          /* NULL: not open (any more) */
    uint32_t live;
    uint32_t max; /* this core's share of cfg->connections */
    struct listener_counters count;
};

struct proxy {
    struct sched *sched;
    struct tcp *tcp;
    struct rope_pool *ropes;
    struct access_ring *log;
    const struct snapshot *snapshot;
    struct upstreams upstreams;
    struct list_node listeners;
    struct list_node *found; /* the listener that was looked up last, or NULL */
    struct conn_table conns;
    struct tls *tls; /* NULL: no TLS here */
    struct slab clients, exchanges, tunnels;
    struct slab greetings, headers, hellos, handshakes;
    struct client_limits limits;
    struct csprng random;
    struct route_edit **edits, **next_edits; /* by their numbers in the snapshot, from 1 */
    uint32_t nedits, next_nedits;
    struct http_header *fields; /* scratch of a parse: valid until the next one */
    uint16_t nfields;
    struct http_head request;          /* the parse that `fields` holds, if it is a request's */
    const struct exchange *request_of; /* whose; NULL: fields hold something else */
    char *path;                        /* scratch of normalize, as large as the largest head */
    uint32_t path_size;
    uint8_t *hello; /* scratch of a ClientHello, as large as the largest */
    uint32_t hello_size;
    struct http_date date;
    int64_t wall_offset;
    unsigned core, cores;
    bool draining;
    uint64_t drain_deadline;
    struct timer drain_timer;
};

/* What a connection takes of its client's limit. */
struct conn_ticket {
    uint32_t id;   /* of the limit */
    uint32_t addr; /* 0: nothing */
};

/* A connection on its way to whoever serves it; all of it goes over to the conn. */
struct arrival {
    struct stream *stream;
    struct proxy_header *via; /* of proxy.headers; NULL: the peer is the client */
    uint64_t at;              /* accepted */
    struct conn_ticket ticket;
};

/* One downstream connection; its task drives it and all that hangs off it. */
struct conn {
    struct task task;
    struct list_node node; /* listener.conns */
    struct listener *listener;
    struct stream *stream;
    struct sleep timer; /* the nearest deadline */
    uint64_t accepted_at;
    uint32_t number; /* in proxy.conns */
    struct conn_ticket ticket;
    struct proxy_header *via; /* as arrival's */
};

/* What a step of a state machine says to its loop. */
enum step {
    STEP_AGAIN, /* something moved: go round again */
    STEP_WAIT,  /* registered with whoever will wake us */
    STEP_DONE,
};

void conn_init(struct conn *c, struct listener *l, const struct task_kind *kind,
               const struct arrival *a);
/* Unlinks; closes the stream in good order if it is still there. */
void conn_fini(struct conn *c);

/* Whose connection it is, and which address they have connected to: by its PROXY header, or else as
 * TCP has it. The stream must be there. */
void conn_ends(const struct conn *c, struct proxy_header *ret_ends);
struct inet_end conn_client(const struct conn *c);

enum client_state {
    CLIENT_HEAD,     /* waiting for a request, or in the middle of its head */
    CLIENT_EXCHANGE, /* x is set */
    CLIENT_FLUSH,    /* the last bytes of an answer; then closing */
    CLIENT_LINGER,   /* FIN sent, discarding until the client's */
};

struct exchange;

struct client {
    struct conn c;
    struct rope in;  /* received, not consumed */
    struct rope out; /* to be written */
    struct exchange *x;
    struct head_reader head;
    uint64_t since; /* start of the present wait */
    uint32_t discarded;
    uint32_t requests; /* finished */
    struct pool_owner owner;
    uint8_t state;
    bool keep_alive;  /* what happens after CLIENT_FLUSH */
    uint64_t flushed; /* last time that bytes left `out` */
};

extern const struct task_kind client_kind, tunnel_kind, greeting_kind, secure_kind;
/* False: no memory, and the arrival is as it was. */
bool client_start(struct listener *l, const struct arrival *a);
bool tunnel_start(struct listener *l, const struct arrival *a);
size_t tunnel_size(void);
/* Fills in what only the tunnel knows. */
void tunnel_info(const struct conn *c, struct conn_info *to);

static inline struct proxy *client_proxy(const struct client *c)
{
    return c->c.listener->proxy;
}

static inline const struct config_http *client_http(const struct client *c)
{
    return c->c.listener->cfg->http;
}

/* No further request is taken: the process or the listener is on its way out. */
static inline bool client_is_last(const struct client *c)
{
    return c->c.listener->draining || c->c.listener->proxy->draining;
}

/* It speaks TLS to us. */
static inline bool client_is_secure(const struct client *c)
{
    return tls_is(c->c.stream);
}

static inline uint64_t client_now(const struct client *c)
{
    return sched_now(c->c.listener->proxy->sched);
}

/* Copies as much as fits, NUL-terminated. */
void record_text(char *to, size_t size, const char *from, size_t len);
/* Fills in what is known from the connection alone; the rest is empty. */
void record_conn(struct access_record *r, const struct listener *l, const struct inet_end *client);
void record_init(struct access_record *r, const struct client *c);
void record_request(struct access_record *r, const struct client *c, const struct http_head *head);
/* Adds the times, and puts it into the log's ring. */
void record_put(struct access_record *r, struct proxy *p, uint64_t started, enum access_reason why);
/* Counts the exchange against its listener and puts the record into the log's ring. */
void record_finish(struct access_record *r, struct client *c, uint64_t started, int status,
                   enum access_reason why);

/* What is short at the moment may be there in a second: of 503. */
static inline uint32_t client_retry_after(int status)
{
    return status == 503;
}

/* Puts an answer of our own into `out` and moves the client to CLIENT_FLUSH. Fills in the date, and
 * what the drain has to say about `keep_alive`. */
void client_answer(struct client *c, struct http_answer *a);

/* Who asks for it: whom proxies that are trusted name, else who is connected. */
struct inet_end client_end(const struct client *c, const struct http_head *head);

/* The client, and its address as text. */
struct inet_end record_end(const struct access_record *r);
void record_client(const struct access_record *r, char to[INET_TEXT]);

const char *proxy_date(struct proxy *p);

#endif
