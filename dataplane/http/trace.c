#include "dataplane/http/trace.h"

#include <string.h>

#define FLAGS_AT 53

static int digit(char c)
{
    return c >= '0' && c <= '9' ? c - '0' : c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

static bool parse_hex(const char *text, uint8_t *to, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        int hi = digit(text[2 * i]), lo = digit(text[2 * i + 1]);
        if (hi < 0 || lo < 0)
            return false;
        to[i] = (uint8_t)(hi << 4 | lo);
    }
    return true;
}

static bool is_zero(const uint8_t *bytes, size_t n)
{
    uint8_t any = 0;
    for (size_t i = 0; i < n; i++)
        any |= bytes[i];
    return !any;
}

/* version "-" trace-id "-" parent-id "-" trace-flags */
bool http_trace_parse(const char *text, size_t len, struct http_trace *ret_trace)
{
    struct http_trace t;
    uint8_t version;
    if (len < HTTP_TRACE_LEN || text[2] != '-' || text[35] != '-' || text[52] != '-')
        return false;
    if (!parse_hex(text, &version, 1) || !parse_hex(text + 3, t.id, sizeof(t.id)) ||
        !parse_hex(text + 36, t.parent, sizeof(t.parent)) ||
        !parse_hex(text + FLAGS_AT, &t.flags, 1))
        return false;
    if (version == 0xff || is_zero(t.id, sizeof(t.id)) || is_zero(t.parent, sizeof(t.parent)))
        return false;
    if (len > HTTP_TRACE_LEN && (version == 0 || text[HTTP_TRACE_LEN] != '-'))
        return false;
    *ret_trace = t;
    return true;
}

void http_hex(char *to, const uint8_t *bytes, size_t n)
{
    static const char digits[] = "0123456789abcdef";
    for (size_t i = 0; i < n; i++) {
        *to++ = digits[bytes[i] >> 4];
        *to++ = digits[bytes[i] & 15];
    }
}

void http_trace_format(const struct http_trace *t, char to[HTTP_TRACE_LEN])
{
    uint8_t flags = t->flags & HTTP_TRACE_SAMPLED;
    to[0] = to[1] = '0';
    to[2] = '-';
    http_hex(to + 3, t->id, sizeof(t->id));
    to[35] = '-';
    http_hex(to + 36, t->parent, sizeof(t->parent));
    to[52] = '-';
    http_hex(to + FLAGS_AT, &flags, 1);
}
