#include "dataplane/http/h1/parse.h"

#include <assert.h>
#include <string.h>

#include "dataplane/http/chars.h"
#include "dataplane/http/h1/connection.h"
#include "dataplane/http/h1/field.h"

/* A response's fault is the origin's, whatever it is. */
static int parse_fail(struct http_head *head, enum http_error e)
{
    head->error = (uint8_t)e;
    return head->is_request ? -http_error_status(e) : -502;
}

static struct http_span span_of(const struct http_head *head, const char *from, const char *to)
{
    return (struct http_span){(uint32_t)(from - head->base), (uint32_t)(to - from)};
}

static void head_begin(struct http_head *head, const char *buf, size_t len, bool is_request)
{
    struct http_header *headers = head->headers;
    uint16_t cap = head->cap;
    memset(head, 0, sizeof(*head));
    head->headers = headers;
    head->cap = cap;
    head->base = buf;
    head->head_len = (uint32_t)len;
    head->fields_end = (uint32_t)len - 2;
    head->is_request = is_request;
}

static bool ends_in_empty_line(const char *buf, size_t len)
{
    return len >= 4 && len <= INT32_MAX && memcmp(buf + len - 4, "\r\n\r\n", 4) == 0;
}

/* Content-Length: digits only (RFC 9112 §6.3, 5.): no sign, no list, no overflow. */
static bool parse_length(const char *text, size_t len, uint64_t *ret_length)
{
    uint64_t n = 0;
    if (len == 0 || len > 18)
        return false;
    for (size_t i = 0; i < len; i++) {
        if (text[i] < '0' || text[i] > '9')
            return false;
        n = n * 10 + (uint64_t)(text[i] - '0');
    }
    *ret_length = n;
    return true;
}

/* Transfer-Encoding other than "chunked": says what is wrong with it (RFC 9112 §6.1, §6.3). */
static enum http_error why_not_chunked(const char *p, const char *end)
{
    const char *text = NULL;
    size_t len = 0;
    unsigned chunked = 0;
    bool last_chunked = false;
    while (http_list_next(&p, end, &text, &len)) {
        last_chunked = HTTP_TEXT_IS(text, len, "chunked");
        chunked += last_chunked;
        for (size_t i = 0; i < len; i++)
            if (!http_char_is(text[i], HTTP_C_TOKEN))
                return HTTP_ERR_BAD_CODING;
    }
    return last_chunked && chunked == 1 ? HTTP_ERR_CODING : HTTP_ERR_BAD_CODING;
}

static enum http_error on_coding(const struct http_head *head, const struct http_header *f)
{
    const char *value = head->base + f->value_off;
    if (http_head_has(head, HTTP_H_TRANSFER_ENCODING))
        return HTTP_ERR_BAD_CODING;
    if (HTTP_TEXT_IS(value, f->value_len, "chunked"))
        return HTTP_ERR_NONE;
    return why_not_chunked(value, value + f->value_len);
}

static enum http_error on_length(struct http_head *head, const struct http_header *f)
{
    if (http_head_has(head, HTTP_H_CONTENT_LENGTH))
        return HTTP_ERR_MANY_LENGTHS;
    if (!parse_length(head->base + f->value_off, f->value_len, &head->content_length))
        return HTTP_ERR_BAD_LENGTH;
    head->has_length = true;
    return HTTP_ERR_NONE;
}

static enum http_error on_host(struct http_head *head, const struct http_header *f)
{
    if (!head->is_request)
        return HTTP_ERR_NONE;
    if (http_head_has(head, HTTP_H_HOST))
        return HTTP_ERR_MANY_HOSTS;
    if (head->target_form != HTTP_TARGET_ABSOLUTE)
        head->authority = http_header_value(f);
    return HTTP_ERR_NONE;
}

/* RFC 9110 §10.1.1: HTTP/1.0 has no expectations. */
static enum http_error on_expect(struct http_head *head, const struct http_header *f)
{
    if (!head->is_request || head->version_minor == 0)
        return HTTP_ERR_NONE;
    if (!HTTP_TEXT_IS(head->base + f->value_off, f->value_len, "100-continue"))
        return HTTP_ERR_EXPECTATION;
    head->expect_continue = true;
    return HTTP_ERR_NONE;
}

static enum http_error on_field(struct http_head *head, const struct http_header *f)
{
    switch (f->id) {
    case HTTP_H_HOST:
        return on_host(head, f);
    case HTTP_H_CONTENT_LENGTH:
        return on_length(head, f);
    case HTTP_H_TRANSFER_ENCODING:
        return on_coding(head, f);
    case HTTP_H_EXPECT:
        return on_expect(head, f);
    default:
        return HTTP_ERR_NONE;
    }
}

static enum http_error parse_fields(struct http_head *head, const char *p)
{
    const char *end = head->base + head->fields_end;
    head->fields_off = (uint32_t)(p - head->base);
    while (p < end) {
        enum http_error e;
        if (head->nheaders == head->cap)
            return HTTP_ERR_MANY_HEADERS;
        struct http_header *f = &head->headers[head->nheaders];
        p = h1_field_parse(head->base, p, end, !head->is_request, f, &e);
        if (!p)
            return e;
        e = on_field(head, f);
        if (e != HTTP_ERR_NONE)
            return e;
        head->present |= (uint64_t)(f->id != HTTP_H_OTHER) << f->id;
        head->nheaders++;
    }
    if (!h1_connection_apply(head))
        return HTTP_ERR_BAD_CONNECTION;
    return HTTP_ERR_NONE;
}

/* The one thing that both directions refuse: two opinions on where the body ends. */
static enum http_error check_coding(const struct http_head *head)
{
    if (!http_head_has(head, HTTP_H_TRANSFER_ENCODING))
        return HTTP_ERR_NONE;
    if (head->version_minor == 0)
        return HTTP_ERR_CODING_IN_10;
    return head->has_length ? HTTP_ERR_BOTH_LENGTHS : HTTP_ERR_NONE;
}

static uint8_t find_method(const char *text, size_t len)
{
    for (unsigned m = HTTP_GET; m <= HTTP_PATCH; m++) {
        const char *name = http_method_name(m);
        if (strlen(name) == len && memcmp(name, text, len) == 0)
            return (uint8_t)m;
    }
    return HTTP_METHOD_OTHER;
}

static enum http_error parse_method(struct http_head *head, const char **p)
{
    const char *method = *p;
    const char *s = HTTP_SKIP_TOKEN(method, head->base + head->head_len);
    size_t len = (size_t)(s - method);
    if (*s != ' ' || len == 0)
        return *s == '\r' || *s == '\n' ? HTTP_ERR_BAD_REQUEST_LINE : HTTP_ERR_BAD_METHOD;
    if (len > H1_MAX_METHOD)
        return HTTP_ERR_LONG_METHOD;
    head->method_text = span_of(head, method, s);
    head->method = len == 3 && memcmp(method, "GET", 3) == 0 ? HTTP_GET : find_method(method, len);
    *p = s + 1;
    return HTTP_ERR_NONE;
}

static enum http_error parse_target(struct http_head *head, const char **p, uint32_t most)
{
    const char *s = HTTP_SKIP_TARGET(*p, head->base + head->head_len);
    head->target = span_of(head, *p, s);
    if (*s != ' ')
        return *s == '\r' || *s == '\n' ? HTTP_ERR_BAD_REQUEST_LINE : HTTP_ERR_BAD_TARGET;
    if (head->target.len == 0)
        return HTTP_ERR_BAD_REQUEST_LINE;
    if (most && head->target.len > most)
        return HTTP_ERR_LONG_TARGET;
    *p = s + 1;
    return HTTP_ERR_NONE;
}

static bool is_digit(char c)
{
    return c >= '0' && c <= '9';
}

/* "HTTP/1.x" (RFC 9112 §2.3); `left` bytes may be looked at. */
static enum http_error parse_version(struct http_head *head, const char *p, size_t left)
{
    if (left < 8 || memcmp(p, "HTTP/", 5) || !is_digit(p[5]) || p[6] != '.' || !is_digit(p[7]))
        return HTTP_ERR_BAD_VERSION;
    if (p[5] != '1')
        return HTTP_ERR_VERSION;
    head->version_minor = p[7] != '0';
    /* No HTTP/1.2 exists, and none will: nobody sends one in good faith. */
    return head->is_request && p[7] > '1' ? HTTP_ERR_VERSION : HTTP_ERR_NONE;
}

static void split_query(struct http_head *head, const char *path, const char *end)
{
    const char *mark = memchr(path, '?', (size_t)(end - path));
    head->has_query = mark != NULL;
    head->path = span_of(head, path, mark ? mark : end);
    if (mark)
        head->query = span_of(head, mark + 1, end);
}

/* absolute-form (RFC 9112 §3.2.2): scheme, authority, path and query. */
static enum http_error split_absolute(struct http_head *head, const char *p, const char *end)
{
    size_t len = (size_t)(end - p);
    head->target_form = HTTP_TARGET_ABSOLUTE;
    if (len > 7 && HTTP_TEXT_IS(p, 7, "http://")) {
        p += 7;
    } else if (len > 8 && HTTP_TEXT_IS(p, 8, "https://")) {
        head->is_https = true;
        p += 8;
    } else {
        return HTTP_ERR_BAD_TARGET;
    }
    const char *authority = p;
    while (p < end && *p != '/' && *p != '?')
        p++;
    if (p == authority)
        return HTTP_ERR_BAD_TARGET;
    head->authority = span_of(head, authority, p);
    split_query(head, p, end);
    return HTTP_ERR_NONE;
}

static enum http_error split_target(struct http_head *head)
{
    const char *p = http_head_at(head, head->target), *end = p + head->target.len;
    if (head->method == HTTP_CONNECT || head->method == HTTP_TRACE)
        return HTTP_ERR_METHOD;
    if (*p == '/') {
        split_query(head, p, end);
        return HTTP_ERR_NONE;
    }
    if (head->target.len == 1 && *p == '*' && head->method == HTTP_OPTIONS) {
        head->target_form = HTTP_TARGET_ASTERISK;
        return HTTP_ERR_NONE;
    }
    return split_absolute(head, p, end);
}

static enum http_error parse_request_line(struct http_head *head, uint32_t target_size,
                                          const char **p)
{
    const char *end = head->base + head->head_len;
    enum http_error e = parse_method(head, p);
    if (e == HTTP_ERR_NONE)
        e = parse_target(head, p, target_size);
    if (e == HTTP_ERR_NONE)
        e = parse_version(head, *p, (size_t)(end - *p));
    if (e != HTTP_ERR_NONE)
        return e;
    *p += 8;
    if ((*p)[0] != '\r' || (*p)[1] != '\n')
        return HTTP_ERR_BAD_REQUEST_LINE;
    *p += 2;
    return split_target(head);
}

int h1_parse_request(const char *buf, size_t len, const struct h1_limits *limits,
                     struct http_head *head)
{
    head_begin(head, buf, len, true);
    if (!ends_in_empty_line(buf, len))
        return parse_fail(head, HTTP_ERR_BAD_LINE_END);
    if (len > limits->head_size)
        return parse_fail(head, HTTP_ERR_LONG_HEAD);
    const char *p = buf;
    enum http_error e = parse_request_line(head, limits->target_size, &p);
    if (e == HTTP_ERR_NONE)
        e = parse_fields(head, p);
    if (e == HTTP_ERR_NONE)
        e = check_coding(head);
    if (e == HTTP_ERR_NONE && head->version_minor == 1 && !http_head_has(head, HTTP_H_HOST))
        e = HTTP_ERR_NO_HOST;
    if (e != HTTP_ERR_NONE)
        return parse_fail(head, e);
    if (http_head_has(head, HTTP_H_TRANSFER_ENCODING))
        head->framing = HTTP_BODY_CHUNKED;
    else if (head->content_length)
        head->framing = HTTP_BODY_LENGTH;
    return 0;
}

/* status-line = HTTP-version SP status-code [SP reason-phrase] */
static enum http_error parse_status_line(struct http_head *head, const char **p)
{
    const char *s = *p, *end = head->base + head->head_len;
    enum http_error e = parse_version(head, s, (size_t)(end - s));
    if (e != HTTP_ERR_NONE)
        return e;
    s += 8;
    if (end - s < 8 || *s != ' ' || !is_digit(s[1]) || !is_digit(s[2]) || !is_digit(s[3]))
        return HTTP_ERR_BAD_STATUS_LINE;
    head->status = (uint16_t)((s[1] - '0') * 100 + (s[2] - '0') * 10 + (s[3] - '0'));
    s += 4;
    if (head->status < 100 || head->status > 599 || (*s != ' ' && *s != '\r'))
        return HTTP_ERR_BAD_STATUS_LINE;
    if (*s == ' ')
        s++;
    const char *reason = s;
    s = h1_field_find_ctl(s, end);
    head->reason = span_of(head, reason, s);
    if (s[0] != '\r' || s[1] != '\n')
        return *s == '\n' || *s == '\r' ? HTTP_ERR_BAD_LINE_END : HTTP_ERR_BAD_STATUS_LINE;
    *p = s + 2;
    return HTTP_ERR_NONE;
}

static bool is_bodiless(const struct http_head *head, bool head_request)
{
    return head_request || head->status < 200 || head->status == 204 || head->status == 304;
}

static void set_response_framing(struct http_head *head, bool head_request)
{
    if (is_bodiless(head, head_request))
        head->framing = HTTP_BODY_NONE;
    else if (http_head_has(head, HTTP_H_TRANSFER_ENCODING))
        head->framing = HTTP_BODY_CHUNKED;
    else if (head->has_length)
        head->framing = HTTP_BODY_LENGTH;
    else
        head->framing = HTTP_BODY_UNTIL_CLOSE;
    if (head->framing == HTTP_BODY_UNTIL_CLOSE)
        head->keep_alive = false;
}

int h1_parse_response(const char *buf, size_t len, bool head_request, struct http_head *head)
{
    head_begin(head, buf, len, false);
    if (!ends_in_empty_line(buf, len))
        return parse_fail(head, HTTP_ERR_BAD_LINE_END);
    const char *p = buf;
    enum http_error e = parse_status_line(head, &p);
    if (e == HTTP_ERR_NONE)
        e = parse_fields(head, p);
    if (e == HTTP_ERR_NONE)
        e = check_coding(head);
    if (e != HTTP_ERR_NONE)
        return parse_fail(head, e);
    set_response_framing(head, head_request);
    return 0;
}
