/* UTF-8 as RFC 3629 has it: no overlong forms, no surrogates, nothing above U+10FFFF. */
#ifndef MILLRACE_CONFIG_UTF8_H
#define MILLRACE_CONFIG_UTF8_H

#include <stddef.h>

/* Bytes of the character at `text` (len > 0): 1 to 4, or 0 if it is malformed. */
unsigned utf8_length(const char *text, size_t len);

#endif
