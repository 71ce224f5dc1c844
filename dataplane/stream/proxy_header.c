#include "dataplane/stream/proxy_header.h"

#include <arpa/inet.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>

#define V1_START   "PROXY "
#define V1_START_N 6
#define V1_MAX     107

static const uint8_t v2_start[12] = "\r\n\r\n\0\r\nQUIT\n";

#define V2_FIXED   16
#define V2_VERSION 2
#define V2_IP4     12 /* bytes of addresses and ports */
#define V2_IP6     36
#define V2_UNIX    216

enum v2_family { V2_UNSPEC, V2_INET, V2_INET6, V2_AF_UNIX };
enum v2_transport { V2_NONE, V2_STREAM, V2_DGRAM };

static size_t least(size_t a, size_t b)
{
    return a < b ? a : b;
}

/* --- version 1 ---------------------------------------------------------------------------------
 */

/* The next word of a line; *at moves behind the space or to the end. 0: it is empty or too long. */
static size_t next_word(const char **at, const char *end, char *word, size_t size)
{
    const char *space = memchr(*at, ' ', (size_t)(end - *at));
    const char *stop = space ? space : end;
    size_t n = (size_t)(stop - *at);
    *at = space ? space + 1 : end;
    if (n == 0 || n >= size || memchr(stop - n, 0, n))
        return 0;
    memcpy(word, stop - n, n);
    word[n] = 0;
    return n;
}

static bool v1_port(const char **at, const char *end, uint16_t *ret_port)
{
    char word[6];
    unsigned port = 0;
    size_t n = next_word(at, end, word, sizeof(word));
    if (n == 0 || (n > 1 && word[0] == '0'))
        return false;
    for (size_t i = 0; i < n; i++) {
        if (word[i] < '0' || word[i] > '9')
            return false;
        port = port * 10 + (unsigned)(word[i] - '0');
    }
    *ret_port = (uint16_t)port;
    return port <= UINT16_MAX;
}

static bool v1_address(const char **at, const char *end, bool is_ip6, struct inet_end *ret_end)
{
    char word[INET_TEXT];
    uint8_t bytes[16];
    if (!next_word(at, end, word, sizeof(word)))
        return false;
    if (!is_ip6)
        return inet_pton(AF_INET, word, &ret_end->addr) == 1;
    if (inet_pton(AF_INET6, word, bytes) != 1)
        return false;
    *ret_end = inet_from_ip6(bytes, 0);
    return true;
}

/* "TCP4 192.0.2.1 192.0.2.2 40000 80" */
static bool v1_line(const char *at, const char *end, struct proxy_header *h)
{
    char family[8];
    size_t n = next_word(&at, end, family, sizeof(family));
    if (n == 7 && memcmp(family, "UNKNOWN", 7) == 0) {
        h->local = true;
        return true;
    }
    bool is_ip6 = n == 4 && memcmp(family, "TCP6", 4) == 0;
    if (!is_ip6 && !(n == 4 && memcmp(family, "TCP4", 4) == 0))
        return false;
    if (end[-1] == ' ')
        return false;
    return v1_address(&at, end, is_ip6, &h->client) && v1_address(&at, end, is_ip6, &h->to) &&
           v1_port(&at, end, &h->client.port) && v1_port(&at, end, &h->to.port) && at == end;
}

static int v1_parse(const char *bytes, size_t len, struct proxy_header *h)
{
    size_t seen = least(len, V1_MAX);
    const char *lf = memchr(bytes, '\n', seen), *cr = memchr(bytes, '\r', seen);
    if (!lf) {
        bool may_end = !cr || cr == bytes + seen - 1;
        return may_end && len < V1_MAX ? 0 : -EBADMSG;
    }
    if (cr != lf - 1 || !v1_line(bytes + V1_START_N, cr, h))
        return -EBADMSG;
    return (int)(lf + 1 - bytes);
}

/* --- version 2 ---------------------------------------------------------------------------------
 */

static uint16_t get_port(const uint8_t *at)
{
    return (uint16_t)(at[0] << 8 | at[1]);
}

static void v2_ip4(const uint8_t *at, struct proxy_header *h)
{
    memcpy(&h->client.addr, at, 4);
    memcpy(&h->to.addr, at + 4, 4);
    h->client.port = get_port(at + 8);
    h->to.port = get_port(at + 10);
}

static void v2_ip6(const uint8_t *at, struct proxy_header *h)
{
    h->client = inet_from_ip6(at, get_port(at + 32));
    h->to = inet_from_ip6(at + 16, get_port(at + 34));
}

/* Bytes of addresses that a family must have. */
static size_t v2_room(enum v2_family f)
{
    static const uint8_t room[] = {
        [V2_UNSPEC] = 0, [V2_INET] = V2_IP4, [V2_INET6] = V2_IP6, [V2_AF_UNIX] = V2_UNIX};
    return room[f];
}

static int v2_parse(const uint8_t *bytes, size_t len, struct proxy_header *h)
{
    if (len < V2_FIXED)
        return 0;
    unsigned version = bytes[12] >> 4, command = bytes[12] & 15;
    unsigned family = bytes[13] >> 4, transport = bytes[13] & 15;
    size_t rest = get_port(bytes + 14);
    if (version != V2_VERSION || command > 1)
        return -EBADMSG;
    h->local = command == 0;
    if (h->local) /* §2.2: the rest of it must be skipped */
        return (int)(V2_FIXED + rest);
    if (family > V2_AF_UNIX || transport > V2_DGRAM || rest < v2_room(family))
        return -EBADMSG;
    h->local = transport != V2_STREAM || (family != V2_INET && family != V2_INET6);
    if (h->local)
        return (int)(V2_FIXED + rest);
    if (len < V2_FIXED + v2_room(family))
        return 0;
    if (family == V2_INET)
        v2_ip4(bytes + V2_FIXED, h);
    else
        v2_ip6(bytes + V2_FIXED, h);
    return (int)(V2_FIXED + rest);
}

int proxy_header_parse(const void *bytes, size_t len, struct proxy_header *ret_header)
{
    struct proxy_header h = {0};
    int n;
    if (memcmp(bytes, v2_start, least(len, sizeof(v2_start))) == 0)
        n = v2_parse(bytes, len, &h);
    else if (memcmp(bytes, V1_START, least(len, V1_START_N)) == 0)
        n = len < V1_START_N ? 0 : v1_parse(bytes, len, &h);
    else
        n = -ENOMSG;
    if (n <= 0)
        return n;
    h.local = h.local || inet_is_nobody(&h.client);
    *ret_header = h;
    return n;
}

/* --- writing -----------------------------------------------------------------------------------
 */

static void put_ip6(uint8_t to[16], const struct inet_end *e)
{
    if (e->is_ip6) {
        memcpy(to, e->ip6, 16);
        return;
    }
    memset(to, 0, 10);
    memset(to + 10, 0xff, 2);
    memcpy(to + 12, &e->addr, 4);
}

static void put_port(uint8_t *to, uint16_t port)
{
    to[0] = (uint8_t)(port >> 8);
    to[1] = (uint8_t)port;
}

/* Where only one end is of IPv6, the other is written as mapped to it. */
static bool is_ip6(const struct proxy_header *h)
{
    return h->client.is_ip6 || h->to.is_ip6;
}

static size_t v2_write(const struct proxy_header *h, uint8_t *to)
{
    uint8_t *at = to + V2_FIXED;
    size_t rest = h->local ? 0 : is_ip6(h) ? V2_IP6 : V2_IP4;
    memcpy(to, v2_start, sizeof(v2_start));
    to[12] = (uint8_t)(V2_VERSION << 4 | !h->local);
    to[13] = (uint8_t)(h->local ? 0 : (is_ip6(h) ? V2_INET6 : V2_INET) << 4 | V2_STREAM);
    put_port(to + 14, (uint16_t)rest);
    if (rest == V2_IP4) {
        memcpy(at, &h->client.addr, 4);
        memcpy(at + 4, &h->to.addr, 4);
    } else if (rest == V2_IP6) {
        put_ip6(at, &h->client);
        put_ip6(at + 16, &h->to);
    }
    if (rest) {
        put_port(at + rest - 4, h->client.port);
        put_port(at + rest - 2, h->to.port);
    }
    return V2_FIXED + rest;
}

static void v1_text(char to[INET_TEXT], const struct inet_end *e, bool ip6)
{
    uint8_t bytes[16];
    if (!ip6) {
        inet_format(to, e);
        return;
    }
    put_ip6(bytes, e);
    inet_ntop(AF_INET6, bytes, to, INET_TEXT);
}

static size_t v1_write(const struct proxy_header *h, char *to)
{
    static const char unknown[15] = "PROXY UNKNOWN\r\n";
    char client[INET_TEXT], local[INET_TEXT], line[V1_MAX + 1];
    bool ip6 = is_ip6(h);
    if (h->local) {
        memcpy(to, unknown, sizeof(unknown));
        return sizeof(unknown);
    }
    v1_text(client, &h->client, ip6);
    v1_text(local, &h->to, ip6);
    size_t n = (size_t)snprintf(line, sizeof(line), "PROXY TCP%c %s %s %u %u\r\n", ip6 ? '6' : '4',
                                client, local, h->client.port, h->to.port);
    memcpy(to, line, n);
    return n;
}

size_t proxy_header_write(unsigned version, const struct proxy_header *h,
                          char to[PROXY_HEADER_WRITE])
{
    return version == 1 ? v1_write(h, to) : v2_write(h, (uint8_t *)to);
}
