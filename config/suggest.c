#include <ctype.h>
#include <string.h>
#include "config/suggest.h"

static unsigned min(unsigned a, unsigned b)
{
    return a < b ? a : b;
}

static int same(char a, char b)
{
    return tolower((unsigned char)a) == tolower((unsigned char)b);
}

/* Optimal string alignment, three rows of the table at a time. */
unsigned suggest_distance(const char *a, size_t alen, const char *b, size_t blen, unsigned limit)
{
    unsigned rows[3][SUGGEST_LEN_MAX + 1];
    unsigned *before = rows[0], *last = rows[1], *row = rows[2];

    if (alen > SUGGEST_LEN_MAX || blen > SUGGEST_LEN_MAX ||
        (alen > blen ? alen - blen : blen - alen) > limit)
        return limit + 1;
    for (size_t j = 0; j <= blen; j++)
        last[j] = j;
    for (size_t i = 1; i <= alen; i++) {
        row[0] = i;
        for (size_t j = 1; j <= blen; j++) {
            row[j] = min(min(last[j], row[j - 1]) + 1, last[j - 1] + !same(a[i - 1], b[j - 1]));
            if (i > 1 && j > 1 && same(a[i - 1], b[j - 2]) && same(a[i - 2], b[j - 1]))
                row[j] = min(row[j], before[j - 2] + 1);
        }
        unsigned *spare = before;
        before = last;
        last = row;
        row = spare;
    }
    return min(last[blen], limit + 1);
}

/* Up to a third of the letters, at least one, may be wrong. */
void suggest_init(struct suggest *s, const char *text, size_t len)
{
    *s = (struct suggest){.text = text, .len = len, .distance = len < 6 ? 2 : len / 3 + 1};
}

/* "warn" for "warning": the rest is one mistake, whatever its length. */
static int is_start(const char *a, size_t alen, const char *b, size_t blen)
{
    return alen >= 3 && alen < blen && !strncmp(a, b, alen);
}

void suggest_offer(struct suggest *s, const char *candidate)
{
    size_t len = strlen(candidate);
    unsigned d = suggest_distance(s->text, s->len, candidate, len, s->distance);

    if (is_start(candidate, len, s->text, s->len) || is_start(s->text, s->len, candidate, len))
        d = 1;
    if (d >= s->distance || d >= len)
        return;
    s->best = candidate;
    s->distance = d;
}
