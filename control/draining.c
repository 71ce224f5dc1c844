#include "control/draining.h"

#include <string.h>

static bool is_current(const struct publish *p, const struct status_view *v)
{
    for (unsigned i = 0; i < v->ncores; i++)
        if (v->cores[i].running &&
            (!v->cores[i].answering || v->cores[i].s->snapshot_version != p->current->version))
            return false;
    return true;
}

/* A core that has more listeners than fit into its answer may have left this one out. */
static bool is_empty_on(const struct core_status *s, const struct config_listener *l)
{
    bool found = false;

    for (unsigned i = 0; i < s->nlisteners; i++) {
        const struct listener_stats *x = &s->listeners[i];
        if (!x->draining || x->address.addr != l->address.addr ||
            x->address.port != l->address.port || strcmp(x->name, l->name) != 0)
            continue;
        if (x->conns)
            return false;
        found = true;
    }
    return found || s->nlisteners < STATUS_MAX_LISTENERS;
}

static bool is_empty(const struct status_view *v, const struct config_listener *l)
{
    for (unsigned i = 0; i < v->ncores; i++)
        if (v->cores[i].s && !is_empty_on(v->cores[i].s, l))
            return false;
    return true;
}

void draining_look(struct publish *p, const struct status_view *v)
{
    if (!is_current(p, v))
        return;
    for (size_t i = 0; i < p->current->ndraining; i++)
        if (is_empty(v, &p->current->draining[i]))
            publish_set_empty(p, i);
}
