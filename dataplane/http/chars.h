/* Character classes of RFC 9110 and RFC 3986, and the few text helpers the folder shares. Internal.
 */
#ifndef MILLRACE_DATAPLANE_HTTP_CHARS_H
#define MILLRACE_DATAPLANE_HTTP_CHARS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
    HTTP_C_TOKEN = 1,      /* tchar */
    HTTP_C_TARGET = 2,     /* a request target: visible ASCII but "#" */
    HTTP_C_HOST = 4,       /* a host name */
    HTTP_C_UNRESERVED = 8, /* RFC 3986 §2.3 */
    HTTP_C_HEX = 16,
    HTTP_C_FIELD = 32, /* a field's content: HTAB, SP, VCHAR, obs-text */
};

extern const uint8_t http_chars[256];

static inline bool http_char_is(char c, unsigned classes)
{
    return http_chars[(unsigned char)c] & classes;
}

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
