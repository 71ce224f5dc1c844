/* Where a head ends. Every byte is looked at once, however the input is cut. */
#include "dataplane/http/h1/parse.h"

#ifdef __SSE2__
#include <emmintrin.h>
#endif

#include "dataplane/http/chars.h"

static int scan_fail(struct h1_scan *s, enum http_error e)
{
    s->error = (uint8_t)e;
    return -http_error_status(e);
}

/* Skips empty lines before the start line. 1: at the start line; 0: needs more; or -400. */
static int skip_leading(struct h1_scan *s, const char *buf, size_t len)
{
    while (s->leading_ < H1_MAX_LEADING && s->start < len && buf[s->start] == '\r') {
        if (s->start + 1 == len)
            return 0;
        if (buf[s->start + 1] != '\n')
            return scan_fail(s, HTTP_ERR_BAD_LINE_END);
        s->pos_ = s->start += 2;
        s->leading_++;
    }
    if (s->start == len)
        return 0;
    /* What speaks another protocol (TLS, say) may never send a line end: tell at once. */
    if (buf[s->start] == '\n')
        return scan_fail(s, HTTP_ERR_BAD_LINE_END);
    if (!http_char_is(buf[s->start], HTTP_C_TOKEN))
        return scan_fail(s, HTTP_ERR_BAD_METHOD);
    s->line_ = s->start;
    return 1;
}

/* The LF at `at` ends a line: 1 when that was the empty one, 0 when not, or -400. */
static int on_line_end(struct h1_scan *s, const char *buf, uint32_t at)
{
    if (at == s->start || buf[at - 1] != '\r')
        return scan_fail(s, HTTP_ERR_BAD_LINE_END);
    bool empty = at - s->line_ == 1;
    s->line_ = at + 1;
    s->has_start_line = true;
    return empty;
}

/* Line ends in buf[pos_..len). > 0: the head's end; 0: none; or -400. */
static int scan_lines(struct h1_scan *s, const char *buf, uint32_t len)
{
    uint32_t i = s->pos_;
#ifdef __SSE2__
    for (; len - i >= 16; i += 16) {
        __m128i x = _mm_loadu_si128((const __m128i *)(buf + i));
        unsigned mask = (unsigned)_mm_movemask_epi8(_mm_cmpeq_epi8(x, _mm_set1_epi8('\n')));
        for (; mask; mask &= mask - 1) {
            uint32_t at = i + (uint32_t)__builtin_ctz(mask);
            int ret = on_line_end(s, buf, at);
            if (ret)
                return ret < 0 ? ret : (int)at + 1;
        }
    }
#endif
    for (; i < len; i++) {
        if (buf[i] != '\n')
            continue;
        int ret = on_line_end(s, buf, i);
        if (ret)
            return ret < 0 ? ret : (int)i + 1;
    }
    s->pos_ = len;
    return 0;
}

int h1_scan_head(struct h1_scan *s, const char *buf, size_t len, const struct h1_limits *limits)
{
    if (s->pos_ == s->start) {
        int ret = skip_leading(s, buf, len);
        if (ret <= 0)
            return ret;
    }
    /* What lies beyond the limit is never looked at. */
    uint64_t most = (uint64_t)s->start + limits->head_size;
    bool over = len >= most;
    /* Nor is anything when the limit has come down since (a reload) and lies behind us. */
    int ret = s->pos_ < most ? scan_lines(s, buf, over ? (uint32_t)most : (uint32_t)len) : 0;
    if (ret == 0 && over)
        return scan_fail(s, s->has_start_line ? HTTP_ERR_LONG_HEAD : HTTP_ERR_LONG_TARGET);
    return ret;
}
