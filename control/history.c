#include "control/history.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

static char *copy_of(const char *text, size_t len)
{
    char *copy = malloc(len + 1);

    if (copy) {
        memcpy(copy, text, len);
        copy[len] = '\0';
    }
    return copy;
}

int history_add(struct history *h, const struct history_entry *e)
{
    char *text = copy_of(e->text, e->len);

    if (!text)
        return -ENOMEM;
    if (h->count == HISTORY_MAX) {
        free(h->entries[0].text);
        memmove(h->entries, h->entries + 1, (HISTORY_MAX - 1) * sizeof(h->entries[0]));
        h->count--;
    }
    h->entries[h->count] = *e;
    h->entries[h->count++].text = text;
    return 0;
}

int history_retext(struct history *h, const char *text, size_t len)
{
    struct history_entry *e = &h->entries[h->count - 1];
    char *copy = copy_of(text, len);

    if (!copy)
        return -ENOMEM;
    free(e->text);
    e->text = copy;
    e->len = len;
    return 0;
}

const struct history_entry *history_find(const struct history *h, uint64_t version)
{
    for (unsigned i = h->count; i > 0; i--)
        if (h->entries[i - 1].version <= version)
            return &h->entries[i - 1];
    return NULL;
}

const struct history_entry *history_newest(const struct history *h)
{
    return h->count ? &h->entries[h->count - 1] : NULL;
}

const struct history_entry *history_previous(const struct history *h)
{
    const struct history_entry *now = history_newest(h);

    for (unsigned i = h->count; i > 0; i--) {
        const struct history_entry *e = &h->entries[i - 1];
        if (e->len != now->len || memcmp(e->text, now->text, e->len) != 0)
            return e;
    }
    return NULL;
}

void history_fini(struct history *h)
{
    for (unsigned i = 0; i < h->count; i++)
        free(h->entries[i].text);
    h->count = 0;
}
