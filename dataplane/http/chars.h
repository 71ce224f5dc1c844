/* Character classes of RFC 9110 and RFC 3986, and the few text helpers the folder shares. Internal.
 */
#ifndef MILLRACE_DATAPLANE_HTTP_CHARS_H
#define MILLRACE_DATAPLANE_HTTP_CHARS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __SSSE3__
#include <tmmintrin.h>
#endif

enum {
    HTTP_C_TOKEN = 1,      /* tchar */
    HTTP_C_TARGET = 2,     /* a request target: visible ASCII but "#" */
    HTTP_C_HOST = 4,       /* a host name */
    HTTP_C_UNRESERVED = 8, /* RFC 3986 §2.3 */
    HTTP_C_HEX = 16,
    HTTP_C_FIELD = 32, /* a field's content: HTAB, SP, VCHAR, obs-text */
};

extern const uint8_t http_chars[256];

/* A class of 7-bit characters by nibbles: bit h of entry l says whether the character h << 4 | l
 * belongs. */
typedef uint8_t http_nibbles[16];
extern const http_nibbles http_nibbles_token;
extern const http_nibbles http_nibbles_target;

static inline bool http_char_is(char c, unsigned classes)
{
    return http_chars[(unsigned char)c] & classes;
}

#ifdef __SSSE3__
/* A bit for each of 16 bytes that is outside the class. */
static inline unsigned http_outside(const char *p, const http_nibbles nibbles)
{
    const __m128i low_nibble = _mm_set1_epi8(15);
    const __m128i bit_of = _mm_setr_epi8(1, 2, 4, 8, 16, 32, 64, -128, 0, 0, 0, 0, 0, 0, 0, 0);
    __m128i x = _mm_loadu_si128((const __m128i *)p);
    __m128i rows = _mm_loadu_si128((const __m128i *)nibbles);
    __m128i row = _mm_shuffle_epi8(rows, _mm_and_si128(x, low_nibble));
    __m128i bit = _mm_shuffle_epi8(bit_of, _mm_and_si128(_mm_srli_epi16(x, 4), low_nibble));
    __m128i out = _mm_cmpeq_epi8(_mm_and_si128(row, bit), _mm_setzero_si128());
    return (unsigned)_mm_movemask_epi8(out);
}
#endif

/* The first byte of [p, end) outside the class (given in both forms), or end. */
static inline const char *http_skip(const char *p, const char *end, unsigned class_,
                                    const http_nibbles nibbles)
{
#ifdef __SSSE3__
    for (; end - p >= 16; p += 16) {
        unsigned mask = http_outside(p, nibbles);
        if (mask)
            return p + __builtin_ctz(mask);
    }
#endif
    while (p < end && http_char_is(*p, class_))
        p++;
    return p;
}

#define HTTP_SKIP_TOKEN(p, end)  http_skip(p, end, HTTP_C_TOKEN, http_nibbles_token)
#define HTTP_SKIP_TARGET(p, end) http_skip(p, end, HTTP_C_TARGET, http_nibbles_target)

static inline char http_lower(char c)
{
    return c >= 'A' && c <= 'Z' ? (char)(c | 0x20) : c;
}

/* `c` is HTTP_C_HEX. */
static inline unsigned http_hex_value(char c)
{
    return c <= '9' ? (unsigned)(c - '0') : (unsigned)((c | 0x20) - 'a' + 10);
}

/* `lower` is lower-case. */
static inline bool http_text_is(const char *text, size_t len, const char *lower, size_t lower_len)
{
    if (len != lower_len)
        return false;
    for (size_t i = 0; i < len; i++)
        if (http_lower(text[i]) != lower[i])
            return false;
    return true;
}

#define HTTP_TEXT_IS(text, len, literal) http_text_is(text, len, literal, sizeof(literal) - 1)

/* The next element of a comma-separated list (RFC 9110 §5.6.1) without the white space around it;
 * empty elements are skipped. False at the end. */
bool http_list_next(const char **p, const char *end, const char **ret_text, size_t *ret_len);

#endif
