#include "control/log_format.h"

#include <arpa/inet.h>
#include <assert.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#define NS_PER_S 1000000000ull

/* A bounded writer: once full it stays full and drops the rest. One byte is kept for the newline
 * and one for the NUL. */
struct line {
    char *buf;
    size_t len;
};

#define LINE_ROOM (LOG_LINE_MAX - 2)

static const char hex[] = "0123456789abcdef";

static void line_bytes(struct line *l, const char *s, size_t n)
{
    if (n > LINE_ROOM - l->len)
        n = LINE_ROOM - l->len;
    memcpy(l->buf + l->len, s, n);
    l->len += n;
}

static void line_str(struct line *l, const char *s)
{
    line_bytes(l, s, strlen(s));
}

__attribute__((format(printf, 2, 3))) static void line_fmt(struct line *l, const char *fmt, ...)
{
    char tmp[256];
    va_list ap;

    va_start(ap, fmt);
    int n = vsnprintf(tmp, sizeof(tmp), fmt, ap);
    va_end(ap);
    if (n > 0)
        line_bytes(l, tmp, (size_t)n < sizeof(tmp) ? (size_t)n : sizeof(tmp) - 1);
}

/* Bytes over 0x7f are taken for Latin-1: never wrong JSON, and every byte can be told. */
static void line_json_char(struct line *l, unsigned char c)
{
    char u[6] = {'\\', 'u', '0', '0', hex[c >> 4], hex[c & 15]};

    if (c == '"' || c == '\\')
        line_bytes(l, (char[2]){'\\', (char)c}, 2);
    else if (c < 0x20 || c >= 0x7f)
        line_bytes(l, u, 6);
    else
        line_bytes(l, (char *)&c, 1);
}

static void line_text_char(struct line *l, unsigned char c)
{
    char x[4] = {'\\', 'x', hex[c >> 4], hex[c & 15]};

    if (c < 0x20 || c >= 0x7f || c == '"' || c == '\\')
        line_bytes(l, x, 4);
    else
        line_bytes(l, (char *)&c, 1);
}

static void line_escaped(struct line *l, const char *s, size_t max, enum config_log_format f)
{
    for (size_t i = 0; i < max && s[i]; i++)
        if (f == CONFIG_LOG_JSON)
            line_json_char(l, (unsigned char)s[i]);
        else
            line_text_char(l, (unsigned char)s[i]);
}

static const struct tm *clock_at(struct log_clock *c, time_t second)
{
    if (c->second != second || c->tm.tm_year == 0) {
        c->second = second;
        gmtime_r(&second, &c->tm);
    }
    return &c->tm;
}

/* RFC 3339 with microseconds, UTC. */
static void line_rfc3339(struct line *l, uint64_t wall_ns, struct log_clock *clock)
{
    const struct tm *t = clock_at(clock, (time_t)(wall_ns / NS_PER_S));

    line_fmt(l, "%04d-%02d-%02dT%02d:%02d:%02d.%06uZ", t->tm_year + 1900, t->tm_mon + 1, t->tm_mday,
             t->tm_hour, t->tm_min, t->tm_sec, (unsigned)(wall_ns % NS_PER_S / 1000));
}

/* The common log format's, UTC. Month names are the format's, not the locale's. */
static void line_clf_time(struct line *l, uint64_t wall_ns, struct log_clock *clock)
{
    static const char months[] = "JanFebMarAprMayJunJulAugSepOctNovDec";
    const struct tm *t = clock_at(clock, (time_t)(wall_ns / NS_PER_S));

    line_fmt(l, "[%02d/%.3s/%04d:%02d:%02d:%02d +0000]", t->tm_mday, months + 3 * t->tm_mon,
             t->tm_year + 1900, t->tm_hour, t->tm_min, t->tm_sec);
}

static size_t line_end(struct line *l)
{
    assert(l->len <= LINE_ROOM);
    l->buf[l->len++] = '\n';
    l->buf[l->len] = '\0';
    return l->len;
}

const char *log_level_name(enum config_log_level l)
{
    switch (l) {
    case CONFIG_LOG_ERROR:
        return "error";
    case CONFIG_LOG_WARN:
        return "warn";
    case CONFIG_LOG_INFO:
        return "info";
    case CONFIG_LOG_DEBUG:
        return "debug";
    }
    return "?";
}

/* Text lines of our own keep their quotes readable: only control bytes are escaped there. */
static void line_plain(struct line *l, const char *s, size_t max)
{
    for (size_t i = 0; i < max && s[i]; i++) {
        unsigned char c = (unsigned char)s[i];
        if (c < 0x20 || c == 0x7f)
            line_text_char(l, c);
        else
            line_bytes(l, (char *)&c, 1);
    }
}

size_t log_format_record(char *buf, const struct log_record *r, enum config_log_format f,
                         struct log_clock *clock)
{
    struct line l = {buf, 0};

    if (f == CONFIG_LOG_JSON) {
        line_str(&l, "{\"time\":\"");
        line_rfc3339(&l, r->wall_ns, clock);
        line_fmt(&l, "\",\"level\":\"%s\",\"source\":\"", log_level_name(r->level));
        line_escaped(&l, r->source, sizeof(r->source), f);
        line_str(&l, "\",\"message\":\"");
        line_escaped(&l, r->text, sizeof(r->text), f);
        line_str(&l, "\"}");
    } else {
        line_rfc3339(&l, r->wall_ns, clock);
        line_fmt(&l, " %-5s ", log_level_name(r->level));
        line_plain(&l, r->source, sizeof(r->source));
        line_str(&l, ": ");
        line_plain(&l, r->text, sizeof(r->text));
    }
    return line_end(&l);
}

static void line_addr(struct line *l, uint32_t addr)
{
    const uint8_t *b = (const uint8_t *)&addr;

    line_fmt(l, "%u.%u.%u.%u", b[0], b[1], b[2], b[3]);
}

static const char *reason_of(const struct access_record *r)
{
    return r->reason < ACCESS_REASON_COUNT ? access_reason_name(r->reason) : "?";
}

/* Codes are lower-case words, whatever the tables' enumerators look like. */
static void line_lower(struct line *l, const char *s)
{
    for (; *s; s++) {
        char c = *s >= 'A' && *s <= 'Z' ? (char)(*s + ('a' - 'A')) : *s;
        line_bytes(l, &c, 1);
    }
}

static void line_trace(struct line *l, const struct access_record *r)
{
    for (size_t i = 0; i < sizeof(r->trace_id); i++)
        line_fmt(l, "%02x", r->trace_id[i]);
}

static void line_json_str(struct line *l, const char *key, const char *s, size_t max)
{
    line_fmt(l, ",\"%s\":\"", key);
    line_escaped(l, s, max, CONFIG_LOG_JSON);
    line_str(l, "\"");
}

static void line_json_endpoint(struct line *l, const char *key, uint32_t addr, uint16_t port)
{
    if (!addr) {
        line_fmt(l, ",\"%s\":null", key);
        return;
    }
    line_fmt(l, ",\"%s\":\"", key);
    line_addr(l, addr);
    line_fmt(l, ":%u\"", port);
}

static void line_ip6(struct line *l, const uint8_t bytes[16])
{
    char text[INET6_ADDRSTRLEN];

    line_str(l, inet_ntop(AF_INET6, bytes, text, sizeof(text)));
}

static void line_json_client(struct line *l, const struct access_record *r)
{
    if (!r->has_ip6) {
        line_json_endpoint(l, "client", r->client_addr, r->client_port);
        return;
    }
    line_str(l, ",\"client\":\"[");
    line_ip6(l, r->client_ip6);
    line_fmt(l, "]:%u\"", r->client_port);
}

static size_t access_json(struct line *l, const struct access_record *r, struct log_clock *clock)
{
    line_str(l, "{\"time\":\"");
    line_rfc3339(l, r->wall_ns, clock);
    line_str(l, "\",\"source\":\"access\"");
    line_json_client(l, r);
    line_json_str(l, "listener", r->listener, sizeof(r->listener));
    line_json_str(l, "method", r->method, sizeof(r->method));
    line_json_str(l, "host", r->host, sizeof(r->host));
    line_json_str(l, "target", r->target, sizeof(r->target));
    line_fmt(l, ",\"version\":\"1.%u\",\"status\":%u,\"reason\":\"%s\"", r->version_minor,
             r->status, reason_of(r));
    if (r->http_error) {
        line_str(l, ",\"http_error\":\"");
        line_lower(l, access_http_error_name(r->http_error));
        line_str(l, "\"");
    }
    line_fmt(l, ",\"bytes_in\":%lu,\"bytes_out\":%lu", r->bytes_in, r->bytes_out);
    line_fmt(l, ",\"duration_us\":%lu,\"upstream_us\":%lu", r->duration_ns / 1000,
             r->upstream_ns / 1000);
    line_json_str(l, "upstream", r->upstream, sizeof(r->upstream));
    line_json_endpoint(l, "endpoint", r->upstream_addr, r->upstream_port);
    line_fmt(l, ",\"attempts\":%u,\"reused\":%s", r->attempts, r->reused ? "true" : "false");
    if (r->has_tls) {
        line_fmt(l, ",\"tls_version\":\"%s\",\"tls_cipher\":\"%s\",\"tls_resumed\":%s",
                 r->tls.version, r->tls.cipher, r->tls.resumed ? "true" : "false");
        line_json_str(l, "sni", r->tls.sni, sizeof(r->tls.sni));
    }
    if (r->has_id)
        line_json_str(l, "request_id", r->request_id, sizeof(r->request_id));
    if (r->has_trace) {
        line_str(l, ",\"trace_id\":\"");
        line_trace(l, r);
        line_str(l, "\"");
    }
    line_str(l, "}");
    return line_end(l);
}

/* A quoted, escaped value; "-" when it is empty, as the common log format has it. */
static void line_quoted(struct line *l, const char *s, size_t max)
{
    line_str(l, "\"");
    if (s[0])
        line_escaped(l, s, max, CONFIG_LOG_TEXT);
    else
        line_str(l, "-");
    line_str(l, "\"");
}

static void line_request(struct line *l, const struct access_record *r)
{
    if (!r->method[0]) {
        line_str(l, " \"-\"");
        return;
    }
    line_str(l, " \"");
    line_escaped(l, r->method, sizeof(r->method), CONFIG_LOG_TEXT);
    line_str(l, " ");
    line_escaped(l, r->target, sizeof(r->target), CONFIG_LOG_TEXT);
    line_fmt(l, " HTTP/1.%u\"", r->version_minor);
}

/* The common log format, then our fields as key=value. */
static size_t access_text(struct line *l, const struct access_record *r, struct log_clock *clock)
{
    if (r->has_ip6)
        line_ip6(l, r->client_ip6);
    else
        line_addr(l, r->client_addr);
    line_str(l, " - - ");
    line_clf_time(l, r->wall_ns, clock);
    line_request(l, r);
    line_fmt(l, " %u %lu client_port=%u host=", r->status, r->bytes_out, r->client_port);
    line_quoted(l, r->host, sizeof(r->host));
    line_str(l, " listener=");
    line_quoted(l, r->listener, sizeof(r->listener));
    line_str(l, " upstream=");
    line_quoted(l, r->upstream, sizeof(r->upstream));
    line_str(l, " endpoint=");
    if (r->upstream_addr) {
        line_addr(l, r->upstream_addr);
        line_fmt(l, ":%u", r->upstream_port);
    } else {
        line_str(l, "-");
    }
    line_fmt(l, " reason=%s", reason_of(r));
    if (r->http_error) {
        line_str(l, " http_error=");
        line_lower(l, access_http_error_name(r->http_error));
    }
    line_fmt(l, " bytes_in=%lu duration_us=%lu upstream_us=%lu attempts=%u reused=%u", r->bytes_in,
             r->duration_ns / 1000, r->upstream_ns / 1000, r->attempts, r->reused);
    if (r->has_tls) {
        line_fmt(l, " tls_version=%s tls_cipher=%s tls_resumed=%u sni=", r->tls.version,
                 r->tls.cipher, r->tls.resumed);
        line_quoted(l, r->tls.sni, sizeof(r->tls.sni));
    }
    if (r->has_id) {
        line_str(l, " request_id=");
        line_escaped(l, r->request_id, sizeof(r->request_id), CONFIG_LOG_TEXT);
    }
    if (r->has_trace) {
        line_str(l, " trace_id=");
        line_trace(l, r);
    }
    return line_end(l);
}

size_t log_format_access(char *buf, const struct access_record *r, enum config_log_format f,
                         struct log_clock *clock)
{
    struct line l = {buf, 0};

    return f == CONFIG_LOG_JSON ? access_json(&l, r, clock) : access_text(&l, r, clock);
}
