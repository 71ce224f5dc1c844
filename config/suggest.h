/* "did you mean": the candidate that is a typing error away. */
#ifndef MILLRACE_CONFIG_SUGGEST_H
#define MILLRACE_CONFIG_SUGGEST_H

#include <stddef.h>

/* Insertions, deletions, replacements and swaps of neighbours that turn `a` into `b`, letter case
 * ignored; more than `limit`: limit + 1. Texts over SUGGEST_LEN_MAX bytes are never near. */
#define SUGGEST_LEN_MAX 64
unsigned suggest_distance(const char *a, size_t alen, const char *b, size_t blen, unsigned limit);

/* Collects the best candidate for one text. */
struct suggest {
    const char *text;
    size_t len;
    const char *best; /* NULL: none is near enough */
    unsigned distance;
};

void suggest_init(struct suggest *s, const char *text, size_t len);
void suggest_offer(struct suggest *s, const char *candidate);

#endif
