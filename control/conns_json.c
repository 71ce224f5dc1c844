#include <arpa/inet.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "config/units.h"
#include "control/conns.h"

/* Bytes of the network; over 0x7f they are taken for Latin-1, as in the access log. */
static json_t *text(const char *s)
{
    char utf8[2 * 128 + 1];
    size_t n = 0;

    for (; *s && n + 2 < sizeof(utf8); s++) {
        unsigned char c = (unsigned char)*s;
        if (c < 0x80) {
            utf8[n++] = (char)c;
        } else {
            utf8[n++] = (char)(0xc0 | c >> 6);
            utf8[n++] = (char)(0x80 | (c & 0x3f));
        }
    }
    return json_stringn(utf8, n);
}

static json_t *address(uint32_t addr, uint16_t port)
{
    const uint8_t *b = (const uint8_t *)&addr;

    return addr ? json_sprintf("%u.%u.%u.%u:%u", b[0], b[1], b[2], b[3], port) : json_null();
}

static json_t *client(const struct conn_info *i)
{
    char ip6[INET6_ADDRSTRLEN];

    if (!i->has_ip6)
        return address(i->client_addr, i->client_port);
    inet_ntop(AF_INET6, i->client_ip6, ip6, sizeof(ip6));
    return json_sprintf("[%s]:%u", ip6, i->client_port);
}

static json_t *number(uint64_t v)
{
    return json_integer((json_int_t)v);
}

static json_t *request_part(const struct conn_info *i)
{
    if (!i->method[0])
        return json_null();
    return json_pack("{s:o, s:o, s:o, s:o, s:o}", "since_ms", number(i->exchange_ns / 1000000),
                     "method", text(i->method), "host", text(i->host), "target", text(i->target),
                     "route", i->route[0] ? text(i->route) : json_null());
}

static json_t *tcp_part(const struct conn_info *i)
{
    if (!i->tcp_state)
        return json_null();
    return json_pack("{s:s, s:o, s:o, s:o, s:o, s:o, s:o, s:o}", "state", i->tcp_state, "cwnd",
                     number(i->cwnd), "srtt_us", number(i->srtt_us), "rto_us", number(i->rto_us),
                     "unacked", number(i->unacked), "send_queue", number(i->send_queue),
                     "recv_queue", number(i->recv_queue), "retransmits", number(i->retransmits));
}

json_t *conn_to_json(unsigned core, const struct conn_info *i)
{
    return json_pack(
        "{s:i, s:o, s:o, s:o, s:o, s:b, s:s, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o, "
        "s:o, s:o}",
        "core", (int)core, "client", client(i), "peer", address(i->peer_addr, i->peer_port),
        "local", address(i->local_addr, i->local_port), "listener", text(i->listener), "draining",
        i->draining, "state", conn_state_name(i->state), "age_ms", number(i->age_ns / 1000000),
        "idle_ms", number(i->idle_ns / 1000000), "bytes_in", number(i->bytes_in), "bytes_out",
        number(i->bytes_out), "requests", number(i->requests), "upstream",
        i->upstream[0] ? text(i->upstream) : json_null(), "endpoint",
        address(i->endpoint_addr, i->endpoint_port), "attempts", number(i->attempts), "sni",
        i->host[0] && !i->method[0] ? text(i->host) : json_null(), "request", request_part(i),
        "tcp", tcp_part(i));
}

static int parse_client(const char *s, struct conns_filter *f, char *err, size_t err_len)
{
    struct config_addr a = {0};

    if (units_parse_ip(s, strlen(s), &a.addr) == 0)
        a.prefix = 32;
    else if (units_parse_cidr(s, strlen(s), &a)) {
        snprintf(err, err_len, "client: expected an address, or a network like 10.0.0.0/8");
        return -EINVAL;
    }
    f->client = a.addr;
    f->netmask = a.prefix ? htonl(~0u << (32 - a.prefix)) : 0;
    return 0;
}

static int parse_state(const char *s, struct conns_filter *f, char *err, size_t err_len)
{
    f->by_state = true;
    if (conn_state_parse(s, &f->state))
        return 0;
    snprintf(err, err_len, "state: expected one of");
    for (unsigned i = 0; i < CONN_STATE_COUNT; i++) {
        size_t n = strlen(err);
        snprintf(err + n, err_len - n, " %s", conn_state_name(i));
    }
    return -EINVAL;
}

int conns_parse(const struct admin_call *call, struct conns_request *ret, char *err, size_t err_len)
{
    const char *listener = admin_text(call, "listener"), *client = admin_text(call, "client"),
               *state = admin_text(call, "state");
    uint64_t limit = CONNS_DEFAULT;

    memset(ret, 0, sizeof(*ret));
    if (listener && strlen(listener) >= sizeof(ret->filter.listener)) {
        snprintf(err, err_len, "listener: no name is so long");
        return -EINVAL;
    }
    if (listener)
        memcpy(ret->filter.listener, listener, strlen(listener) + 1);
    if (client && parse_client(client, &ret->filter, err, err_len))
        return -EINVAL;
    if (state && parse_state(state, &ret->filter, err, err_len))
        return -EINVAL;
    admin_number(call, "limit", &limit);
    if (limit < 1 || limit > CONNS_MOST) {
        snprintf(err, err_len, "limit: expected 1 to %u", CONNS_MOST);
        return -EINVAL;
    }
    ret->limit = (uint32_t)limit;
    return 0;
}
