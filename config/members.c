#include <stdlib.h>
#include <string.h>
#include "config/members.h"

const char *member_identity(const struct config_key *k, const void *member, struct arena *a)
{
    char *text = NULL, *copy;
    size_t size;
    FILE *f = open_memstream(&text, &size);

    if (!f)
        return NULL;
    k->group->identity(member, f);
    copy = fclose(f) ? NULL : arena_strndup(a, text, size);
    free(text);
    return copy;
}

static int by_identity(const void *a, const void *b)
{
    const struct member *x = a, *y = b;

    return strcmp(x->identity, y->identity);
}

struct members members_make(const struct config_key *k, const void *base, struct arena *a)
{
    size_t n = config_list_count(k, base);
    struct members m = {arena_array(a, n, sizeof(m.sorted[0])), n};

    for (size_t i = 0; m.sorted && i < n; i++) {
        const void *member = config_list_at(k, base, i);

        m.sorted[i] = (struct member){member_identity(k, member, a), member};
        if (!m.sorted[i].identity)
            m.sorted = NULL;
    }
    if (m.sorted)
        qsort(m.sorted, n, sizeof(m.sorted[0]), by_identity);
    return m;
}

const void *members_find(const struct members *m, const char *identity)
{
    struct member key = {identity, NULL};
    const struct member *found =
        bsearch(&key, m->sorted, m->count, sizeof(m->sorted[0]), by_identity);

    return found ? found->base : NULL;
}
