/* A validated, immutable configuration. Built by config/load.c, read by every core.
 *
 * Ownership: everything hangs off the snapshot and is freed with it (snapshot_free()). Strings are
 * NUL-terminated. Addresses are IPv4 in network order, ports in host order, times in ns, sizes in
 * bytes.
 *
 * Thread: immutable, so any; freeing is control's (docs/architecture.md, Snapshots).
 */
#ifndef MILLRACE_CONFIG_SNAPSHOT_H
#define MILLRACE_CONFIG_SNAPSHOT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "config/duties.h"
#include "config/tls.h"

#define CONFIG_MAX_CORES 64

struct config_addr {
    uint32_t addr;  /* network order */
    uint16_t port;  /* host order; 0 where none belongs */
    uint8_t prefix; /* 0 where none belongs */
};

enum config_poll { CONFIG_POLL_ADAPTIVE, CONFIG_POLL_BUSY };
enum config_driver { CONFIG_VETH, CONFIG_AF_XDP, CONFIG_PCI, CONFIG_MEMIF, CONFIG_TAP };
enum config_balance {
    CONFIG_ROUND_ROBIN,
    CONFIG_LEAST_REQUEST,
    CONFIG_RANDOM,
    CONFIG_CONSISTENT_HASH
};
enum config_hash_by {
    CONFIG_HASH_SOURCE,
    CONFIG_HASH_PATH,
    CONFIG_HASH_HEADER,
    CONFIG_HASH_COOKIE
};
enum config_log_format { CONFIG_LOG_TEXT, CONFIG_LOG_JSON };
enum config_log_level { CONFIG_LOG_ERROR, CONFIG_LOG_WARN, CONFIG_LOG_INFO, CONFIG_LOG_DEBUG };

struct config_runtime {
    unsigned cores[CONFIG_MAX_CORES]; /* CPU numbers */
    unsigned ncores;
    unsigned blocking_threads;
    unsigned tls_handshakes; /* in those at once; 0: as many as there are threads */
    unsigned tls_queue;      /* that may wait for one */
    enum config_poll poll;
    uint32_t connections;    /* TCP connections a core holds at the most */
    uint64_t memory_rcv_buf; /* TCP receive and send buffer a connection */
    uint64_t memory_snd_buf;
    uint32_t tracked_clients; /* pairs of a client and a limit of its own, over all cores */
};

struct config_port {
    const char *name;
    enum config_driver driver;
    const char *device; /* veth: the kernel's end; af_xdp: the NIC; pci: its address; memif: the
                           socket; tap: the interface's name */
    struct config_addr host_address; /* veth, tap: given to the kernel's end; addr 0: none */
    struct config_addr *addresses;   /* ours on this port */
    size_t naddresses;
    uint32_t gateway; /* 0: none */
    uint16_t mtu;
    uint16_t queues; /* 0: one a core (veth: 1) */
    uint16_t rx_descriptors, tx_descriptors;
    uint32_t pool_size;      /* mbufs; 0: computed */
    const char *driver_args; /* appended to the DPDK device arguments; NULL */
};

/* A host pattern: exact, "*.suffix" (any number of labels in front) or "*". */
enum config_host_kind { CONFIG_HOST_ANY, CONFIG_HOST_SUFFIX, CONFIG_HOST_EXACT };

enum config_priority { CONFIG_PRIORITY_HIGH, CONFIG_PRIORITY_NORMAL, CONFIG_PRIORITY_LOW };
#define CONFIG_PRIORITIES 3

struct config_upstream;

struct config_route {
    enum config_host_kind host_kind;
    const char *host; /* lower case; for a suffix without "*" but with the dot; NULL for any */
    const char *path_prefix; /* starts with "/" */
    size_t host_len, path_prefix_len;
    const struct config_upstream *upstream; /* NULL: a redirect */
    uint64_t request_timeout;               /* 0: the upstream's */
    enum config_priority priority;
    bool gated;    /* something may be answered before an exchange begins */
    uint32_t edit; /* number of its changes to messages, from 1; 0: none. As its listener's, when it
                      has none of its own */

    /* NULL: nothing to do. */
    struct config_access *access;
    struct config_limit *rate_limit; /* of each client */
    struct config_maintenance *maintenance;
    struct config_redirect *redirect;
    struct config_rewrite *rewrite;
    struct config_headers *headers;
};

enum config_forwarded {
    CONFIG_FORWARDED_X,
    CONFIG_FORWARDED_RFC7239,
    CONFIG_FORWARDED_BOTH,
    CONFIG_FORWARDED_OFF
};

struct config_http {
    struct config_route *routes; /* most specific first: exact host, longest suffix, any; then the
                                    longest path prefix; then order in the file */
    size_t nroutes;
    uint64_t header_timeout; /* first byte of a request to the end of its head */
    uint64_t idle_timeout;   /* between requests, and before the first */
    uint64_t body_timeout;   /* between two reads of a request's body, or two writes of an answer */
    uint32_t header_size;    /* bytes of a request's head */
    uint32_t header_count;
    uint64_t body_size; /* bytes of a request's body; 0 none allowed, UINT64_MAX no limit */
    enum config_forwarded forwarded;
    const char *via;             /* pseudonym in Via; NULL: no Via */
    const char *deadline_header; /* the client's own deadline, in ms; NULL: none is looked for */
    bool access_log;

    /* NULL: nothing to do. */
    struct config_limit *rate_limit; /* of each client, all routes together */
    struct config_maintenance *maintenance;
    struct config_headers *headers; /* before a route's */
    struct config_request_id *request_id;
    enum config_trace trace;
    struct config_addr *proxies; /* whose X-Forwarded-For is believed */
    size_t nproxies;
    struct config_range *proxied; /* the same as ranges */
    size_t nproxied;
    bool gated;    /* as config_route */
    uint32_t edit; /* of routes without changes of their own */
};

/* Where TLS goes that is passed on as it is. */
struct config_sni {
    enum config_host_kind host_kind;
    const char *host; /* as config_route's */
    size_t host_len;
    const char **alpn; /* one of them must be offered; none: whatever is */
    size_t nalpn;
    const struct config_upstream *upstream;
};

enum config_not_tls { CONFIG_NOT_TLS_REFUSE, CONFIG_NOT_TLS_PASS };

struct config_tunnel {
    const struct config_upstream *upstream; /* NULL: what `sni` doesn't match is reset */
    struct config_sni *sni; /* most specific first: exact name, longest suffix, any; then those with
                               protocols; then order in the file */
    size_t nsni;            /* 0: nothing is looked at */
    uint64_t hello_timeout; /* for the whole ClientHello */
    uint32_t hello_size;    /* bytes of it on the wire */
    enum config_not_tls not_tls;
    uint64_t idle_timeout; /* no byte in either direction */
    bool access_log;
};

struct config_listener {
    const char *name;
    struct config_addr address; /* addr 0: every address of the ports */
    uint32_t connections;       /* at once, per listener over all cores: each core gets its share */
    struct config_http *http;   /* exactly one of the two */
    struct config_tunnel *tunnel;
    struct config_tls *tls;       /* NULL: plain TCP */
    struct config_access *access; /* NULL: everybody */
    struct config_per_client per_client;
    struct config_proxy_protocol *proxy_protocol; /* NULL: no PROXY header is looked for */
};

struct upstream_shared; /* dataplane/upstream/shared.h */
struct endpoint_shared;

struct config_endpoint {
    struct config_addr address;     /* its name, too: unique in its upstream */
    uint16_t weight;                /* share against the others; 0: nothing new goes there */
    bool backup;                    /* only when no other is usable */
    struct endpoint_shared *shared; /* set by who publishes */
};

struct config_hash {
    enum config_hash_by by;
    const char *name; /* of the header or cookie; else NULL */
    uint32_t size;    /* of the table; prime */
    /* Which endpoint (by its index) a hash modulo `size` goes to (maglev.h); NULL unless the
     * upstream balances by consistent_hash, or when all its endpoints have weight 0. */
    const uint16_t *table;
};

struct config_statuses {
    uint16_t lo, hi; /* inclusive */
};

/* Active probes. Percentages are whole, of 100. */
struct config_health {
    const char *path; /* NULL: a TCP connection is enough */
    const char *host; /* NULL: the endpoint's address */
    struct config_statuses *statuses;
    size_t nstatuses;        /* 0: 200 to 299 */
    const char *body_starts; /* NULL: anything */
    const char *body_contains;
    uint16_t port; /* 0: the endpoint's own */
    uint64_t interval, timeout;
    uint16_t jitter; /* % of the interval */
    uint32_t healthy, unhealthy;
};

/* Ejection of endpoints by the answers that requests get. */
struct config_outlier {
    uint32_t consecutive; /* failures in a row; 0: doesn't count */
    uint16_t error_rate;  /* % of the requests in a window; 0: doesn't count */
    uint16_t latency;     /* % of the others' median; 0: doesn't count */
    uint32_t requests;    /* fewer in a window say nothing about rate or latency */
    uint64_t window;
    uint64_t ejection, max_ejection;
    uint16_t max_ejected; /* % of the upstream's endpoints */
};

/* Connections per core and endpoint. */
struct config_pool {
    uint32_t min;  /* kept open, used or not */
    uint32_t max;  /* open, used or not; UINT32_MAX: no limit */
    uint32_t idle; /* kept when nobody uses them */
    uint64_t acquire_timeout;
    uint64_t lifetime; /* 0: no limit */
    uint32_t requests; /* over one connection; UINT32_MAX: no limit */
};

/* Which of those that wait for a permit goes first. */
enum config_queue_order { CONFIG_QUEUE_FIFO, CONFIG_QUEUE_ADAPTIVE };

/* Exact over all cores; UINT32_MAX: no limit. */
struct config_limits {
    uint32_t requests, connections;                   /* of the upstream */
    uint32_t endpoint_requests, endpoint_connections; /* of each endpoint */
    uint32_t queue;                                   /* that wait, at the most */
    uint64_t queue_timeout;
    uint64_t queue_target; /* longer waits for longer than a moment are overload */
    enum config_queue_order queue_order;
};

enum config_retry_on {
    CONFIG_RETRY_CONNECT, /* no connection */
    CONFIG_RETRY_RESET,   /* connection ended before a response */
    CONFIG_RETRY_TIMEOUT, /* no response within the try's time */
    CONFIG_RETRY_429,     /* with Retry-After */
    CONFIG_RETRY_502,
    CONFIG_RETRY_503,
    CONFIG_RETRY_504,
    CONFIG_RETRY_CLASSES
};

struct config_retries {
    uint32_t attempts; /* in all; 1: none is repeated */
    bool when[CONFIG_RETRY_CLASSES];
    uint64_t backoff_base, backoff_max;
    uint16_t budget_ratio; /* % of requests */
    uint32_t budget_min;   /* retries a second */
};

/* PROXY header that an upstream gets on each connection; the number is the version. */
enum config_proxy_version { CONFIG_PROXY_OFF, CONFIG_PROXY_V1, CONFIG_PROXY_V2 };

struct config_upstream {
    const char *name;
    struct config_endpoint *endpoints;
    size_t nendpoints;
    enum config_balance balance;
    struct config_hash hash;
    uint16_t panic; /* % of the primaries: with fewer usable, all are used */
    uint64_t connect_timeout;
    uint64_t request_timeout;    /* route to last byte */
    uint64_t try_timeout;        /* of one attempt, to its response's head; 0: none */
    uint64_t idle_timeout;       /* of a pooled connection */
    const char *deadline_header; /* tells the origin the time left; NULL: none */
    enum config_proxy_version proxy_protocol;
    struct config_limits limits;
    struct config_retries retries;
    struct config_pool pool;
    struct config_health *health;   /* NULL: no probes */
    struct config_outlier *outlier; /* NULL: none is ejected */
    struct upstream_shared *shared; /* set by who publishes */
};

struct config_admin {
    const char *socket;         /* path; NULL: none */
    struct config_addr metrics; /* kernel-side address; port 0: none */
    bool has_metrics;
};

struct config_log {
    enum config_log_format format;
    enum config_log_level level;
    const char *access;     /* "stderr", or a file's path */
    uint32_t access_buffer; /* records a core may have waiting */
};

struct config_drain {
    uint64_t timeout; /* SIGTERM: exchanges may finish for this long */
};

struct snapshot {
    uint64_t version; /* set by whoever publishes; 1 is the first */
    const char *path; /* where it came from */
    struct config_runtime runtime;
    struct config_port *ports;
    size_t nports;
    struct config_listener *listeners;
    size_t nlisteners;
    struct config_upstream *upstreams;
    size_t nupstreams;
    /* Listeners that are gone from the configuration, while they still have connections: those go
     * by these values, and by no new ones. Told apart by name, address and kind. Their upstreams
     * are among `upstreams`. Only what is published has any (config/build.h). */
    struct config_listener *draining;
    size_t ndraining;
    struct config_admin admin;
    struct config_log log;
    struct config_drain drain;
    uint32_t nedits; /* the highest number of changes to messages */
    void *arena_;
};

void snapshot_free(struct snapshot *s);

const struct config_upstream *snapshot_upstream(const struct snapshot *s, const char *name);
/* The open one of that name. */
const struct config_listener *snapshot_listener(const struct snapshot *s, const char *name);

/* The same name, address and kind: connections stay with it. */
bool config_listener_is_same(const struct config_listener *a, const struct config_listener *b);

#endif
