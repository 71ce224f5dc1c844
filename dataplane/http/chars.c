#include "dataplane/http/chars.h"

#define ALNUM HTTP_C_TOKEN | HTTP_C_TARGET | HTTP_C_HOST | HTTP_C_UNRESERVED | HTTP_C_FIELD
#define MARK  HTTP_C_TOKEN | HTTP_C_TARGET | HTTP_C_FIELD /* of a token */
#define OTHER HTTP_C_TARGET | HTTP_C_FIELD                /* visible, and neither of these */

/* clang-format off */
const uint8_t http_chars[256] = {
    ['\t'] = HTTP_C_FIELD,
    [' '] = HTTP_C_FIELD,
    ['!'] = MARK,
    ['"'] = OTHER,
    ['#'] = HTTP_C_TOKEN | HTTP_C_FIELD,
    ['$' ... '\''] = MARK,
    ['(' ... ')'] = OTHER,
    ['*' ... '+'] = MARK,
    [','] = OTHER,
    ['-' ... '.'] = ALNUM,
    ['/'] = OTHER,
    ['0' ... '9'] = ALNUM | HTTP_C_HEX,
    [':' ... '@'] = OTHER,
    ['A' ... 'F'] = ALNUM | HTTP_C_HEX,
    ['G' ... 'Z'] = ALNUM,
    ['[' ... ']'] = OTHER,
    ['^'] = MARK,
    ['_'] = ALNUM,
    ['`'] = MARK,
    ['a' ... 'f'] = ALNUM | HTTP_C_HEX,
    ['g' ... 'z'] = ALNUM,
    ['{'] = OTHER,
    ['|'] = MARK,
    ['}'] = OTHER,
    ['~'] = MARK | HTTP_C_UNRESERVED,
    [0x80 ... 0xff] = HTTP_C_FIELD,
};
/* The same for TOKEN and TARGET; tests/unit/test_h1_parse.c compares. */
const http_nibbles http_nibbles_token = {
    0xe8, 0xfc, 0xf8, 0xfc, 0xfc, 0xfc, 0xfc, 0xfc,
    0xf8, 0xf8, 0xf4, 0x54, 0xd0, 0x54, 0xf4, 0x70,
};
const http_nibbles http_nibbles_target = {
    0xf8, 0xfc, 0xfc, 0xf8, 0xfc, 0xfc, 0xfc, 0xfc,
    0xfc, 0xfc, 0xfc, 0xfc, 0xfc, 0xfc, 0xfc, 0x7c,
};
/* clang-format on */

static bool is_list_filler(char c)
{
    return c == ' ' || c == '\t' || c == ',';
}

bool http_list_next(const char **p, const char *end, const char **ret_text, size_t *ret_len)
{
    const char *s = *p;
    while (s < end && is_list_filler(*s))
        s++;
    if (s == end) {
        *p = end;
        return false;
    }
    const char *e = s;
    while (e < end && *e != ',')
        e++;
    *p = e;
    while (e[-1] == ' ' || e[-1] == '\t')
        e--;
    *ret_text = s;
    *ret_len = (size_t)(e - s);
    return true;
}
