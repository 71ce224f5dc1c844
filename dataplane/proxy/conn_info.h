/* One look at the client connections of a core, page by page: for `millrace conns`.
 *
 * A page holds CONNS_PAGE connections at the most and looks at no more than that, so it costs a
 * pass less than 100 µs however many there are. It ends with where the next one begins. A walk
 * holds nothing on the core: connections keep their place as long as they live, so each one that
 * lives all through a walk is met exactly once; one that comes or goes meanwhile may be met or not.
 * What is said of a connection is of the moment of its page.
 */
#ifndef MILLRACE_DATAPLANE_PROXY_CONN_INFO_H
#define MILLRACE_DATAPLANE_PROXY_CONN_INFO_H

#include <stdbool.h>
#include <stdint.h>

#define CONNS_PAGE 32

enum conn_state {
#define CONN_STATE(name, text) CONN_STATE_##name,
#include "dataplane/proxy/conn_state.def"
#undef CONN_STATE
    CONN_STATE_COUNT
};
const char *conn_state_name(enum conn_state s);
/* False: no such state. */
bool conn_state_parse(const char *name, enum conn_state *ret_state);

struct conn_info {
    /* Network order. The client's: as its PROXY header has it, if there is one; 0 if that is of
     * IPv6, in `client_ip6`. The peer's: who has sent that header; 0: nobody. The endpoint's 0:
     * none. */
    uint32_t client_addr, peer_addr, local_addr, endpoint_addr;
    uint16_t client_port, peer_port, local_port, endpoint_port; /* host order */
    bool has_ip6;
    uint8_t client_ip6[16];
    enum conn_state state;
    uint64_t age_ns, idle_ns;     /* since it was accepted; since the last segment either way */
    uint64_t bytes_in, bytes_out; /* payload of the connection */
    uint32_t requests;            /* finished; 0 for a tunnel */
    uint8_t attempts;             /* of the exchange or tunnel under way */
    bool draining;                /* its listener is gone from the configuration */
    uint64_t exchange_ns;         /* since the exchange began; 0: none is under way */
    /* NUL-terminated, cut at their size; bytes as received. Empty: none. */
    char listener[64], upstream[64], method[16], host[64], target[128];
    char route[128]; /* "host/path" that matched; empty: none, or of an earlier configuration */

    const char *tcp_state;                          /* a literal; NULL: the stream is gone */
    uint32_t cwnd, unacked, send_queue, recv_queue; /* bytes */
    uint32_t srtt_us, rto_us;                       /* srtt 0: no sample yet */
    uint64_t retransmits;
};

struct conns_filter {
    char listener[64];        /* empty: any */
    uint32_t client, netmask; /* network order; netmask 0: any */
    bool by_state;
    enum conn_state state;
};

/* The core's from posting until it is done. */
struct conns_page {
    struct conns_filter filter; /* in */
    uint32_t at;                /* in: where to begin, 0 at first; out: where to go on */
    bool done;                  /* out: there is no more */
    unsigned n;
    struct conn_info conns[CONNS_PAGE];
};

#endif
