#include "dataplane/http/h1/field.h"

#ifdef __SSE2__
#include <emmintrin.h>
#endif

#include "dataplane/http/chars.h"

#ifdef __SSE2__
/* A bit for each of 16 bytes that is below SP and not HTAB, or DEL. */
static unsigned ctl_mask(const char *p)
{
    __m128i x = _mm_loadu_si128((const __m128i *)p);
    __m128i low = _mm_cmpeq_epi8(_mm_min_epu8(x, _mm_set1_epi8(0x1f)), x);
    __m128i tab = _mm_cmpeq_epi8(x, _mm_set1_epi8('\t'));
    __m128i del = _mm_cmpeq_epi8(x, _mm_set1_epi8(0x7f));
    return (unsigned)_mm_movemask_epi8(_mm_or_si128(_mm_andnot_si128(tab, low), del));
}
#endif

const char *h1_field_find_ctl(const char *p, const char *end)
{
#ifdef __SSE2__
    for (; end - p >= 16; p += 16) {
        unsigned mask = ctl_mask(p);
        if (mask)
            return p + __builtin_ctz(mask);
    }
#endif
    while (p < end && http_char_is(*p, HTTP_C_FIELD))
        p++;
    return p;
}

static bool is_blank(char c)
{
    return c == ' ' || c == '\t';
}

static const char *parse_name(const char *base, const char *p, const char *end, bool loose,
                              struct http_header *f, enum http_error *ret_error)
{
    const char *name = p;
    if (is_blank(*p)) {
        *ret_error = HTTP_ERR_FOLDED;
        return NULL;
    }
    /* The CRLF before `end` belongs to no class: everything here stops at it. */
    p = HTTP_SKIP_TOKEN(p, end);
    size_t len = (size_t)(p - name);
    const char *colon = p;
    while (loose && is_blank(*colon))
        colon++;
    *ret_error = HTTP_ERR_BAD_NAME;
    if (len == 0 || len > UINT16_MAX || *colon != ':')
        return NULL;
    f->name_off = (uint32_t)(name - base);
    f->name_len = (uint16_t)len;
    f->id = (uint8_t)http_header_find_id(name, len);
    f->flags = http_header_rules[f->id];
    if (colon != p)
        f->flags |= HTTP_HF_LOOSE;
    return colon + 1;
}

const char *h1_field_parse(const char *base, const char *p, const char *end, bool loose,
                           struct http_header *f, enum http_error *ret_error)
{
    p = parse_name(base, p, end, loose, f, ret_error);
    if (!p)
        return NULL;
    while (is_blank(*p))
        p++;
    const char *value = p;
    p = h1_field_find_ctl(p, end);
    if (*p != '\r' || p[1] != '\n') {
        bool line_end = *p == '\n' || *p == '\r';
        *ret_error = line_end ? HTTP_ERR_BAD_LINE_END : HTTP_ERR_BAD_VALUE;
        return NULL;
    }
    const char *next = p + 2;
    while (p > value && is_blank(p[-1]))
        p--;
    f->value_off = (uint32_t)(value - base);
    f->value_len = (uint32_t)(p - value);
    return next;
}
