/* Access log records: filled on a core, written by the log thread.
 *
 * One single-producer single-consumer ring a core, bounded; a full ring drops the record and counts
 * it. A record is packed into as few cache lines as its text needs: the two sides are on different
 * cores, and each line costs both of them a miss. Nothing here formats or writes: the log thread
 * (control/log.c) does.
 */
#ifndef MILLRACE_DATAPLANE_PROXY_ACCESS_LOG_H
#define MILLRACE_DATAPLANE_PROXY_ACCESS_LOG_H

#include <stdbool.h>
#include <stdint.h>

/* Why an answer was made by the proxy, or how an exchange ended. */
enum access_reason {
#define REASON(name, text) ACCESS_##name,
#include "dataplane/proxy/reason.def"
#undef REASON
    ACCESS_REASON_COUNT
};
const char *access_reason_name(enum access_reason r);
/* In upper case, as in http/error.def. */
const char *access_http_error_name(uint8_t error);

#define ACCESS_REQUEST_ID 65 /* with its NUL: a longer one is no id */
#define ACCESS_TRACE_ID   16

/* What a client and we have agreed upon. */
struct access_tls {
    const char *version, *cipher; /* literals */
    bool resumed;
    char sni[47]; /* "": none was asked for; cut at its size */
};

struct access_record {
    uint64_t wall_ns;             /* CLOCK_REALTIME at the end of the exchange */
    uint64_t duration_ns;         /* first byte of the request's head to last byte handed to TCP */
    uint64_t upstream_ns;         /* request sent to response head; 0: none */
    uint64_t bytes_in, bytes_out; /* bodies */
    uint32_t client_addr, upstream_addr; /* network order; 0: none, or `client_ip6` */
    uint16_t client_port, upstream_port; /* host order; the client's 0: a proxy has named it */
    uint16_t status;                     /* 0: none was sent */
    uint8_t reason;                      /* enum access_reason */
    uint8_t http_error;                  /* enum http_error: the rule that a message broke; 0 */
    uint8_t attempts;
    bool reused;            /* a pooled upstream connection served it */
    uint8_t version_minor;  /* HTTP/1.x */
    bool has_id, has_trace; /* of the request: `request_id`, `trace_id` */
    bool has_ip6;           /* the client's address is `client_ip6` */
    bool has_tls;           /* the client speaks TLS: `tls` */
    /* Cut at their size, always NUL-terminated; bytes as received (may need escaping). */
    char method[16];
    char listener[32];
    char upstream[32];
    char host[80];
    char request_id[ACCESS_REQUEST_ID]; /* whole; undefined without `has_id` */
    uint8_t trace_id[ACCESS_TRACE_ID];
    uint8_t client_ip6[16]; /* undefined without `has_ip6` */
    struct access_tls tls;  /* undefined without `has_tls` */
    char target[256];       /* in the log perhaps shorter, when the others are long */
};

/* "": there is none. */
static inline const char *access_record_id(const struct access_record *r)
{
    return r->has_id ? r->request_id : "";
}

struct access_ring;

/* Holds at least `size` records of any length, and at most 8 times as many short ones. NULL: no
 * memory. */
struct access_ring *access_ring_new(uint32_t size);
void access_ring_free(struct access_ring *r);

/* Producer. False (and counted) when the ring is full. */
bool access_ring_put(struct access_ring *r, const struct access_record *record);

/* Consumer: takes the oldest record; false when there is none. */
bool access_ring_take(struct access_ring *r, struct access_record *ret_record);

/* Any thread. */
uint64_t access_ring_dropped(const struct access_ring *r);

#endif
