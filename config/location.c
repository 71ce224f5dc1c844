#include "config/location.h"

#include <string.h>
#include "config/schema.h"

static bool ends_host(char c)
{
    return c == '/' || c == '?' || c == '#';
}

/* Reads a URL from behind its "//" until something ends the host. */
struct reading {
    size_t n;     /* bytes of the host, a variable's as one */
    bool is_over; /* nothing may come any more but what ends it */
    bool has_end;
    bool is_wrong; /* it goes on with a client's bytes */
};

static void read_text(struct reading *r, const char *text, size_t len)
{
    for (size_t i = 0; i < len && !r->has_end && !r->is_wrong; i++) {
        r->has_end = ends_host(text[i]);
        r->is_wrong = !r->has_end && r->is_over;
        r->n += !r->has_end;
    }
}

static void read_variable(struct reading *r, uint8_t variable)
{
    switch (variable) {
    case CONFIG_VAR_none:
        break;
    case CONFIG_VAR_path:
        r->has_end = true;
        break;
    case CONFIG_VAR_rest:
    case CONFIG_VAR_query: /* nothing, or what ends it */
        r->is_over = true;
        break;
    case CONFIG_VAR_host:
        r->is_wrong |= r->is_over;
        r->n++;
        break;
    default:
        r->is_wrong = true;
    }
}

bool location_has_host(const struct config_template *t)
{
    const struct config_part *first = &t->parts[0];
    struct reading r = {0};
    size_t skip;

    if (!first->len || first->text[0] == '/')
        return true;
    skip = (size_t)((const char *)memchr(first->text, '/', first->len) - first->text) + 2;
    for (size_t i = 0; i < t->nparts && !r.has_end && !r.is_wrong; i++) {
        const struct config_part *part = &t->parts[i];

        read_text(&r, part->text + (i ? 0 : skip), part->len - (i ? 0 : skip));
        if (!r.has_end && !r.is_wrong)
            read_variable(&r, part->variable);
    }
    return r.n > 0 && !r.is_wrong;
}

/* What the paths of a template have in common. */
struct start {
    const char *path;
    size_t len;
    bool is_whole;   /* it is the path */
    bool at_segment; /* what follows is nothing, or begins with "/" */
};

static bool ends_path(const struct config_template *t, uint32_t i)
{
    const struct config_part *part = i < t->nparts ? &t->parts[i] : NULL;

    if (!part)
        return true;
    return part->len ? part->text[0] == '?' || part->text[0] == '#'
                     : part->variable == CONFIG_VAR_query && i + 1 == t->nparts;
}

static bool is_path_variable(uint8_t variable)
{
    return variable == CONFIG_VAR_rest || variable == CONFIG_VAR_path;
}

static struct start start_of(const struct config_template *t)
{
    const struct config_part *first = &t->parts[0];
    struct start s = {.path = first->text};

    while (s.len < first->len && s.path[s.len] != '?' && s.path[s.len] != '#')
        s.len++;
    s.is_whole = s.len < first->len || first->variable == CONFIG_VAR_none ||
                 (first->variable == CONFIG_VAR_query && t->nparts == 1);
    s.at_segment = s.is_whole || is_path_variable(first->variable);
    return s;
}

static bool takes(const struct config_route *r, const struct start *s)
{
    size_t n = r->path_prefix_len;

    if (s->len < n || memcmp(s->path, r->path_prefix, n) != 0)
        return false;
    return r->path_prefix[n - 1] == '/' || (s->len == n ? s->at_segment : s->path[n] == '/');
}

static bool may_take(const struct config_route *r, const struct start *s)
{
    size_t n = r->path_prefix_len < s->len ? r->path_prefix_len : s->len;

    return s->is_whole ? takes(r, s) : memcmp(s->path, r->path_prefix, n) == 0;
}

static bool is_of_same_host(const struct config_route *a, const struct config_route *b)
{
    return a->host_kind == b->host_kind &&
           (a->host_kind == CONFIG_HOST_ANY || (a->host && b->host && !strcmp(a->host, b->host)));
}

/* A location on this host meets the routes of the pattern that has taken the request, and no
 * others. */
static bool comes_to(const struct config_http *http, const struct config_route *r,
                     const struct start *s)
{
    if (!takes(r, s))
        return false;
    for (size_t i = 0; i < http->nroutes; i++) {
        const struct config_route *other = &http->routes[i];

        if (other->path_prefix && other->path_prefix_len > r->path_prefix_len &&
            is_of_same_host(other, r) && may_take(other, s))
            return false;
    }
    return true;
}

bool location_leads_back(const struct config_http *http, const struct config_route *r)
{
    const struct config_template *t = &r->redirect->location;
    struct start s;

    if (!t->nparts || !r->path_prefix)
        return false;
    if (!t->parts[0].len)
        return t->parts[0].variable == CONFIG_VAR_path && ends_path(t, 1);
    if (t->parts[0].text[0] != '/')
        return false;
    s = start_of(t);
    return comes_to(http, r, &s);
}
