#include "dataplane/http/normalize.h"

#include <arpa/inet.h>
#include <string.h>

#include "dataplane/http/chars.h"

#define HOST_NAME_MAX_LEN 253
#define PORT_MAX_LEN      6 /* with its colon */

static bool parse_port(const char *p, const char *end, uint16_t *ret_port)
{
    unsigned port = 0;
    if (end - p > 5)
        return false;
    for (; p < end; p++) {
        if (*p < '0' || *p > '9')
            return false;
        port = port * 10 + (unsigned)(*p - '0');
    }
    if (port == 0 || port > UINT16_MAX)
        return false;
    *ret_port = (uint16_t)port;
    return true;
}

/* What follows the name: nothing, ":" (RFC 3986 §3.2.3: as if absent) or ":port". */
static bool parse_tail(const char *p, const char *end, struct http_host *host)
{
    if (p == end || (*p == ':' && p + 1 == end))
        return true;
    return *p == ':' && parse_port(p + 1, end, &host->port);
}

static bool parse_ip6(const char *text, const char *end, struct http_host *host)
{
    const char *close = memchr(text, ']', (size_t)(end - text));
    if (!close || close - text > INET6_ADDRSTRLEN)
        return false;
    size_t len = (size_t)(close - text) - 1;
    char addr[INET6_ADDRSTRLEN + 1] = {0};
    struct in6_addr unused;
    memcpy(addr, text + 1, len);
    if (inet_pton(AF_INET6, addr, &unused) != 1)
        return false;
    for (size_t i = 0; i < len + 2; i++)
        host->name[i] = http_lower(text[i]);
    host->len = (uint16_t)(len + 2);
    host->name[host->len] = '\0';
    return parse_tail(close + 1, end, host);
}

static bool parse_name(const char *text, const char *end, struct http_host *host)
{
    if (end - text > HOST_NAME_MAX_LEN + 1 + PORT_MAX_LEN)
        return false;
    const char *p = text;
    char before = '.', *to = host->name;
    for (; p < end && http_char_is(*p, HTTP_C_HOST); p++) {
        if (*p == '.' && before == '.')
            return false;
        before = *p;
        *to++ = http_lower(before);
    }
    if (to > host->name && before == '.')
        to--;
    host->len = (uint16_t)(to - host->name);
    *to = '\0';
    return host->len > 0 && host->len <= HOST_NAME_MAX_LEN && parse_tail(p, end, host);
}

int http_host_normalize(const char *text, size_t len, struct http_host *ret_host)
{
    const char *end = text + len;
    ret_host->port = 0;
    bool ok = len > 0 &&
              (*text == '[' ? parse_ip6(text, end, ret_host) : parse_name(text, end, ret_host));
    return ok ? 0 : -400;
}

/* True when the bytes need no second look: no escape, no backslash, no "//" and no segment that
 * starts with a dot. */
static bool is_plain(const char *path, size_t len)
{
    char before = '\0';
    for (size_t i = 0; i < len; i++) {
        char c = path[i];
        if (c == '%' || c == '\\')
            return false;
        if (before == '/' && (c == '/' || c == '.'))
            return false;
        before = c;
    }
    return true;
}

/* One escape at `p`, whole; appends one or three bytes to `to`. */
static enum http_error put_escape(const char *p, char **to)
{
    static const char digits[] = "0123456789ABCDEF";
    unsigned v = http_hex_value(p[1]) << 4 | http_hex_value(p[2]);
    if (v < 0x20 || v == 0x7f)
        return HTTP_ERR_ESCAPED_CTL;
    if (v == '/' || v == '\\')
        return HTTP_ERR_ESCAPED_SLASH;
    if (http_char_is((char)v, HTTP_C_UNRESERVED)) {
        *(*to)++ = (char)v;
        return HTTP_ERR_NONE;
    }
    *(*to)++ = '%';
    *(*to)++ = digits[v >> 4];
    *(*to)++ = digits[v & 15];
    return HTTP_ERR_NONE;
}

/* "." or "..", perhaps with parameters: some servers cut ";..." off before they resolve dots. */
static bool is_dot_segment(const char *p, const char *end)
{
    const char *semicolon = memchr(p, ';', (size_t)(end - p));
    size_t len = (size_t)((semicolon ? semicolon : end) - p);
    return (len == 1 && p[0] == '.') || (len == 2 && p[0] == '.' && p[1] == '.');
}

static enum http_error rewrite(const char *p, const char *end, char *buf, char **ret_end)
{
    char *to = buf, *segment = buf;
    while (p < end) {
        if (*p == '\\')
            return HTTP_ERR_BACKSLASH;
        if (*p == '%') {
            if (end - p < 3 || !http_char_is(p[1], HTTP_C_HEX) || !http_char_is(p[2], HTTP_C_HEX))
                return HTTP_ERR_BAD_ESCAPE;
            enum http_error e = put_escape(p, &to);
            if (e != HTTP_ERR_NONE)
                return e;
            p += 3;
            continue;
        }
        char c = *p++;
        if (c == '/') {
            if (is_dot_segment(segment, to))
                return HTTP_ERR_DOT_SEGMENT;
            if (to > buf && to[-1] == '/')
                continue;
            segment = to + 1;
        }
        *to++ = c;
    }
    *ret_end = to;
    return is_dot_segment(segment, to) ? HTTP_ERR_DOT_SEGMENT : HTTP_ERR_NONE;
}

int http_path_normalize(const char *path, size_t len, char *buf, size_t cap, const char **ret_path,
                        uint32_t *ret_len, enum http_error *ret_error)
{
    if (is_plain(path, len)) {
        *ret_path = path;
        *ret_len = (uint32_t)len;
        return 0;
    }
    char *end = buf;
    enum http_error e = HTTP_ERR_LONG_TARGET;
    if (cap >= len)
        e = rewrite(path, path + len, buf, &end);
    if (e != HTTP_ERR_NONE) {
        *ret_error = e;
        return -http_error_status(e);
    }
    *ret_path = buf;
    *ret_len = (uint32_t)(end - buf);
    return 0;
}

static int normalize_fail(struct http_head *head, enum http_error e)
{
    head->error = (uint8_t)e;
    return -http_error_status(e);
}

/* With an absolute target Host is replaced, but has to be valid all the same (RFC 9112 §3.2). */
static bool is_replaced_host_valid(const struct http_head *head)
{
    const struct http_header *f = http_head_find(head, HTTP_H_HOST);
    struct http_host unused;
    return !f || http_host_normalize(head->base + f->value_off, f->value_len, &unused) == 0;
}

static bool normalize_authority(const struct http_head *head, struct http_host *ret_host)
{
    struct http_span a = head->authority;
    if (a.len == 0 && !http_head_has(head, HTTP_H_HOST)) {
        ret_host->len = 0;
        ret_host->port = 0;
        ret_host->name[0] = '\0';
        return true;
    }
    if (head->target_form == HTTP_TARGET_ABSOLUTE && !is_replaced_host_valid(head))
        return false;
    return http_host_normalize(http_head_at(head, a), a.len, ret_host) == 0;
}

int http_normalize_request(struct http_head *head, bool https, char *buf, size_t cap,
                           struct http_route_key *ret_key)
{
    if (head->target_form == HTTP_TARGET_ABSOLUTE && head->is_https != https)
        return normalize_fail(head, HTTP_ERR_MISDIRECTED);
    if (!normalize_authority(head, &ret_key->host))
        return normalize_fail(head, HTTP_ERR_BAD_HOST);
    if (head->path.len == 0) {
        ret_key->path = "/";
        ret_key->path_len = 1;
        return 0;
    }
    enum http_error e = HTTP_ERR_NONE;
    int ret = http_path_normalize(http_head_at(head, head->path), head->path.len, buf, cap,
                                  &ret_key->path, &ret_key->path_len, &e);
    return ret < 0 ? normalize_fail(head, e) : 0;
}
