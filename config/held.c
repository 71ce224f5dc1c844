#include <errno.h>
#include "config/held.h"
#include "config/validate.h"

bool config_held_has(const struct config_held *h, const void *listener)
{
    for (size_t i = 0; i < h->count; i++)
        if (h->list[i] == listener)
            return true;
    return false;
}

/* "*:80" and "10.0.0.1:80" would share connections. */
static bool collide(const struct config_addr *a, const struct config_addr *b)
{
    return a->port == b->port && (!a->addr || !b->addr || a->addr == b->addr);
}

/* Is the address that `l` wants kept by one that waits? */
static bool is_kept(const struct config_held *h, const struct snapshot *before,
                    const struct config_listener *l)
{
    for (size_t i = 0; i < h->count; i++) {
        const struct config_listener *kept = snapshot_listener(before, h->list[i]->name);

        if (kept && h->list[i] != l && collide(&kept->address, &l->address))
            return true;
    }
    return false;
}

static bool must_wait(const struct config_held *h, const struct snapshot *before,
                      const struct config_listener *l)
{
    return (l->address.addr && !validate_is_ours(before, l->address.addr)) || is_kept(h, before, l);
}

int config_held_find(const struct snapshot *before, const struct snapshot *after, struct arena *a,
                     struct config_held *ret)
{
    struct config_held h = {arena_array(a, after->nlisteners, sizeof(h.list[0])), 0};
    size_t last;

    if (!h.list)
        return -ENOMEM;
    do { /* each that waits may make others wait */
        last = h.count;
        for (size_t i = 0; i < after->nlisteners; i++) {
            const struct config_listener *l = &after->listeners[i];

            if (!config_held_has(&h, l) && must_wait(&h, before, l))
                h.list[h.count++] = l;
        }
    } while (h.count > last);
    *ret = h;
    return 0;
}
