#include <stdbool.h>
#include "config/utf8.h"

static bool is_tail(unsigned char c)
{
    return (c & 0xc0) == 0x80;
}

/* RFC 3629, section 4: the second byte's range depends on the first. */
static bool second_fits(unsigned char first, unsigned char second)
{
    switch (first) {
    case 0xe0:
        return second >= 0xa0;
    case 0xed:
        return second < 0xa0;
    case 0xf0:
        return second >= 0x90;
    case 0xf4:
        return second < 0x90;
    default:
        return true;
    }
}

unsigned utf8_length(const char *text, size_t len)
{
    const unsigned char *p = (const unsigned char *)text;
    unsigned n;

    if (p[0] < 0x80)
        return 1;
    if (p[0] < 0xc2 || p[0] > 0xf4)
        return 0;
    n = p[0] < 0xe0 ? 2 : p[0] < 0xf0 ? 3 : 4;
    if (len < n || !second_fits(p[0], p[1]))
        return 0;
    for (unsigned i = 1; i < n; i++)
        if (!is_tail(p[i]))
            return 0;
    return n;
}
