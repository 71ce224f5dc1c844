#include "dataplane/route/edit.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

/* One block holds an edit and all that it points to. It is laid out twice: first with `base` NULL,
 * to know its size. */
struct block {
    char *base;
    size_t used;
};

static void *take(struct block *b, size_t size)
{
    void *p = b->base ? b->base + b->used : NULL;
    b->used += (size + 7) & ~(size_t)7;
    return p;
}

static const char *copy_bytes(struct block *b, const char *text, size_t len)
{
    char *copy = take(b, len + 1);
    if (copy) {
        memcpy(copy, text, len);
        copy[len] = 0;
    }
    return copy;
}

static const char *copy_text(struct block *b, const char *text)
{
    return text ? copy_bytes(b, text, strlen(text)) : NULL;
}

static const char *copy_lower(struct block *b, const char *text)
{
    size_t len = strlen(text);
    char *copy = take(b, len + 1);
    if (copy)
        for (size_t i = 0; i <= len; i++)
            copy[i] = text[i] >= 'A' && text[i] <= 'Z' ? (char)(text[i] | 0x20) : text[i];
    return copy;
}

static struct config_template copy_template(struct block *b, const struct config_template *t)
{
    struct config_part *parts = take(b, t->nparts * sizeof(*parts));
    for (uint32_t i = 0; i < t->nparts; i++) {
        struct config_part part = t->parts[i];
        part.text = copy_bytes(b, part.text, part.len);
        if (parts)
            parts[i] = part;
    }
    return (struct config_template){.parts = parts, .nparts = t->nparts, .variables = t->variables};
}

static struct edit_field copy_field(struct block *b, const struct config_header *h)
{
    size_t len = strlen(h->name);
    char *name = take(b, len + 2);
    if (name) {
        memcpy(name, h->name, len);
        name[len] = ':';
        name[len + 1] = ' ';
    }
    return (struct edit_field){name, (uint32_t)len + 2, copy_template(b, &h->value)};
}

/* A side while it is put together, from the listener's changes and then the route's. */
struct side {
    const char **names; /* that go */
    const struct config_header **fields;
    size_t nnames, nfields;
};

static void remove_name(struct side *s, const char *name)
{
    size_t n = 0;
    for (size_t i = 0; i < s->nfields; i++)
        if (strcasecmp(s->fields[i]->name, name) != 0)
            s->fields[n++] = s->fields[i];
    s->nfields = n;
    for (size_t i = 0; i < s->nnames; i++)
        if (strcasecmp(s->names[i], name) == 0)
            return;
    s->names[s->nnames++] = name;
}

static void apply(struct side *s, const struct config_header_edit *e)
{
    for (size_t i = 0; i < e->nremove; i++)
        remove_name(s, e->remove[i]);
    for (size_t i = 0; i < e->nset; i++)
        remove_name(s, e->set[i].name);
    for (size_t i = 0; i < e->nset; i++)
        s->fields[s->nfields++] = &e->set[i];
    for (size_t i = 0; i < e->nadd; i++)
        s->fields[s->nfields++] = &e->add[i];
}

static struct edit_side copy_side(struct block *b, const struct side *s)
{
    struct edit_side to = {.nfields = (uint32_t)s->nfields};
    struct h1_name *names = take(b, s->nnames * sizeof(*names));
    struct edit_field *fields = take(b, s->nfields * sizeof(*fields));
    for (size_t i = 0; i < s->nnames; i++) {
        size_t len = strlen(s->names[i]);
        enum http_header_id id = http_header_find_id(s->names[i], len);
        to.drop |= UINT64_C(1) << id;
        if (id != HTTP_H_OTHER)
            continue;
        struct h1_name name = {copy_lower(b, s->names[i]), (uint32_t)len};
        if (names)
            names[to.nnames] = name;
        to.nnames++;
    }
    for (size_t i = 0; i < s->nfields; i++) {
        struct edit_field f = copy_field(b, s->fields[i]);
        if (fields)
            fields[i] = f;
    }
    to.names = names;
    to.fields = fields;
    return to;
}

struct sides {
    struct side request, response;
};

static size_t most(const struct config_headers *h)
{
    if (!h)
        return 0;
    return h->request.nremove + h->request.nset + h->request.nadd + h->response.nremove +
           h->response.nset + h->response.nadd;
}

static void collect(struct sides *s, const struct config_http *http, const struct config_route *r)
{
    const struct config_headers *levels[2] = {http->headers, r ? r->headers : NULL};
    for (unsigned i = 0; i < 2; i++) {
        if (!levels[i])
            continue;
        apply(&s->request, &levels[i]->request);
        apply(&s->response, &levels[i]->response);
    }
    if (http->request_id) {
        remove_name(&s->request, http->request_id->header);
        remove_name(&s->response, http->request_id->header);
    }
    if (http->trace) {
        remove_name(&s->request, "traceparent");
        remove_name(&s->request, "tracestate");
    }
}

static bool asks_for_key(const struct edit_side *s)
{
    uint32_t used = 0;
    for (uint32_t i = 0; i < s->nfields; i++)
        used |= s->fields[i].value.variables;
    return used & (1u << CONFIG_VAR_host | 1u << CONFIG_VAR_path);
}

/* A prefix that ends with "/" is left standing up to there, so that what follows begins with it. */
static void lay_out_rewrite(struct route_edit *e, struct block *b, const struct config_route *r)
{
    const struct config_rewrite *w = r ? r->rewrite : NULL;
    if (!w)
        return;
    e->host = copy_text(b, w->host);
    if (!w->prefix)
        return;
    e->new_prefix = copy_text(b, w->prefix);
    e->new_prefix_len = (uint32_t)strlen(w->prefix);
    e->prefix_len =
        (uint32_t)(r->path_prefix_len - (r->path_prefix[r->path_prefix_len - 1] == '/'));
}

static struct route_edit lay_out(struct block *b, const struct config_listener *l,
                                 const struct config_route *r, const struct sides *s)
{
    struct route_edit e = {.refs = 1, .trace = (uint8_t)l->http->trace};
    take(b, sizeof(e));
    lay_out_rewrite(&e, b, r);
    e.listener = copy_text(b, l->name);
    if (l->http->request_id)
        e.id_header = copy_text(b, l->http->request_id->header);
    e.request = copy_side(b, &s->request);
    e.response = copy_side(b, &s->response);
    if (b->base)
        e.needs_key = e.new_prefix || asks_for_key(&e.request);
    return e;
}

static struct route_edit *build(const struct config_listener *l, const struct config_route *r,
                                const struct sides *s)
{
    struct block b = {NULL, 0};
    lay_out(&b, l, r, s);
    b.base = calloc(1, b.used);
    if (!b.base)
        return NULL;
    b.used = 0;
    struct route_edit e = lay_out(&b, l, r, s);
    memcpy(b.base, &e, sizeof(e));
    return (struct route_edit *)b.base;
}

struct route_edit *route_edit_new(const struct config_listener *l, const struct config_route *r)
{
    size_t n = most(l->http->headers) + (r ? most(r->headers) : 0) + 3;
    struct route_edit *e = NULL;
    struct sides s = {
        {calloc(n, sizeof(char *)), calloc(n, sizeof(void *)), 0, 0},
        {calloc(n, sizeof(char *)), calloc(n, sizeof(void *)), 0, 0},
    };
    if (s.request.names && s.request.fields && s.response.names && s.response.fields) {
        collect(&s, l->http, r);
        e = build(l, r, &s);
    }
    free(s.request.names);
    free(s.request.fields);
    free(s.response.names);
    free(s.response.fields);
    return e;
}

void route_edit_put(struct route_edit *e)
{
    assert(e->refs > 0);
    if (--e->refs == 0)
        free(e);
}

void route_edit_path(const struct route_edit *e, const char *path, uint32_t path_len,
                     struct h1_path *ret_path)
{
    struct h1_path p = {{e->new_prefix, path + e->prefix_len},
                        {e->new_prefix_len, path_len - e->prefix_len}};
    if (p.len[1] && e->new_prefix[e->new_prefix_len - 1] == '/')
        p.len[0]--;
    *ret_path = p;
}

void edit_side_put(struct h1_writer *w, const struct edit_side *s, const struct template_vars *v)
{
    for (uint32_t i = 0; i < s->nfields; i++) {
        const struct edit_field *f = &s->fields[i];
        h1_put(w, f->name, f->name_len);
        template_put(w, &f->value, v);
        H1_PUT(w, "\r\n");
    }
}
