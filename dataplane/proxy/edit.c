/* Ids and changes of messages on their way. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "dataplane/http/chars.h"
#include "dataplane/http/h1/writer.h"
#include "dataplane/http/trace.h"
#include "dataplane/proxy/duties.h"
#include "dataplane/route/access.h"
#include "dataplane/route/edit.h"

#define REQUEST_ID 16 /* bytes of one of our own */

static void put_all(struct route_edit **edits, uint32_t n)
{
    for (uint32_t i = 0; edits && i < n; i++)
        if (edits[i])
            route_edit_put(edits[i]);
    free(edits);
}

static int prepare_one(struct proxy *p, uint32_t number, const struct config_listener *l,
                       const struct config_route *r)
{
    if (!number || p->next_edits[number - 1])
        return 0;
    p->next_edits[number - 1] = route_edit_new(l, r);
    return p->next_edits[number - 1] ? 0 : -ENOMEM;
}

static int prepare_listener(struct proxy *p, const struct config_listener *l)
{
    if (!l->http)
        return 0;
    int err = prepare_one(p, l->http->edit, l, NULL);
    for (size_t i = 0; i < l->http->nroutes && !err; i++)
        err = prepare_one(p, l->http->routes[i].edit, l, &l->http->routes[i]);
    return err;
}

int edits_prepare(struct proxy *p, const struct snapshot *s)
{
    int err = 0;
    p->next_edits = calloc(s->nedits + 1, sizeof(struct route_edit *));
    if (!p->next_edits)
        return -ENOMEM;
    p->next_nedits = s->nedits;
    for (size_t i = 0; i < s->nlisteners && !err; i++)
        err = prepare_listener(p, &s->listeners[i]);
    for (size_t i = 0; i < s->ndraining && !err; i++)
        err = prepare_listener(p, &s->draining[i]);
    return err;
}

void edits_rollback(struct proxy *p)
{
    put_all(p->next_edits, p->next_nedits);
    p->next_edits = NULL;
    p->next_nedits = 0;
}

void edits_commit(struct proxy *p)
{
    put_all(p->edits, p->nedits);
    p->edits = p->next_edits;
    p->nedits = p->next_nedits;
    p->next_edits = NULL;
    p->next_nedits = 0;
}

void edits_free(struct proxy *p)
{
    put_all(p->edits, p->nedits);
    p->edits = NULL;
    p->nedits = 0;
}

/* The value of the one field of that name; NULL: there is none, or more than one. */
static const struct http_header *find_one(const struct http_head *head, const char *name)
{
    const struct http_header *found = NULL;
    size_t len = strlen(name);
    for (unsigned i = 0; i < head->nheaders; i++) {
        const struct http_header *f = &head->headers[i];
        if (f->name_len != len || strncasecmp(head->base + f->name_off, name, len) != 0)
            continue;
        if (found)
            return NULL;
        found = f;
    }
    return found;
}

static bool is_id(const char *text, size_t len)
{
    if (!len || len >= ACCESS_REQUEST_ID)
        return false;
    for (size_t i = 0; i < len; i++)
        if (!http_char_is(text[i], HTTP_C_UNRESERVED) && !strchr("+/=:@", text[i]))
            return false;
    return true;
}

static void find_id(struct client *c, const struct config_request_id *ids,
                    const struct http_head *head, char *to)
{
    struct inet_end client = conn_client(&c->c);
    if (!client.is_ip6 && access_has(ids->inside, ids->ninside, client.addr)) {
        const struct http_header *f = find_one(head, ids->header);
        const char *text = f ? head->base + f->value_off : NULL;
        if (f && is_id(text, f->value_len)) {
            record_text(to, ACCESS_REQUEST_ID, text, f->value_len);
            return;
        }
    }
    uint8_t bytes[REQUEST_ID];
    csprng_get(&client_proxy(c)->random, bytes, sizeof(bytes));
    http_hex(to, bytes, sizeof(bytes));
    to[2 * sizeof(bytes)] = 0;
}

/* A parent of 0 says that the trace begins here. */
static void find_trace(struct client *c, const struct http_head *head, struct http_trace *t)
{
    const struct http_header *f = find_one(head, "traceparent");
    struct csprng *random = &client_proxy(c)->random;
    if (f && http_trace_parse(head->base + f->value_off, f->value_len, t))
        return;
    *t = (struct http_trace){0};
    csprng_get(random, t->id, sizeof(t->id));
    t->flags = client_http(c)->trace == CONFIG_TRACE_SAMPLED ? HTTP_TRACE_SAMPLED : 0;
}

static void find_ids(struct client *c, const struct http_head *head, struct access_record *r,
                     struct http_trace *ret_trace)
{
    const struct config_http *http = client_http(c);
    if (http->request_id) {
        find_id(c, http->request_id, head, r->request_id);
        r->has_id = true;
    }
    if (!http->trace)
        return;
    find_trace(c, head, ret_trace);
    r->has_trace = true;
    memcpy(r->trace_id, ret_trace->id, sizeof(r->trace_id));
}

void ids_record(struct client *c, const struct http_head *head, struct access_record *r)
{
    struct http_trace trace;
    find_ids(c, head, r, &trace);
}

static bool has_parent(const struct http_trace *t)
{
    static const uint8_t none[sizeof(t->parent)];
    return memcmp(t->parent, none, sizeof(none)) != 0;
}

void edit_begin(struct exchange *x, const struct http_head *head)
{
    struct client *c = x->client;
    struct http_trace trace = {.flags = 0};
    find_ids(c, head, &x->record, &trace);
    if (!x->edit->trace)
        return;
    x->trace_begins = !has_parent(&trace);
    x->trace_flags = trace.flags;
    csprng_get(&client_proxy(c)->random, x->trace_parent, sizeof(x->trace_parent));
}

void edit_put_id(struct h1_writer *w, const char *header, const char *id)
{
    h1_put_text(w, header);
    H1_PUT(w, ": ");
    h1_put_text(w, id);
    H1_PUT(w, "\r\n");
}

static void put_id(struct h1_writer *w, const void *ctx)
{
    const struct exchange *x = ctx;
    edit_put_id(w, x->edit->id_header, x->record.request_id);
}

void edit_answer(const struct exchange *x, struct http_answer *a)
{
    if (!x->edit || !x->edit->id_header)
        return;
    a->put = put_id;
    a->ctx = x;
}

static void put_trace(struct h1_writer *w, const struct exchange *x)
{
    struct http_trace t = {.flags = x->trace_flags};
    char text[HTTP_TRACE_LEN];
    memcpy(t.id, x->record.trace_id, sizeof(t.id));
    memcpy(t.parent, x->trace_parent, sizeof(t.parent));
    http_trace_format(&t, text);
    H1_PUT(w, "traceparent: ");
    h1_put(w, text, sizeof(text));
    H1_PUT(w, "\r\n");
}

static void put_request(struct h1_writer *w, const void *ctx)
{
    const struct edit_work *work = ctx;
    const struct route_edit *e = work->x->edit;
    if (e->id_header)
        edit_put_id(w, e->id_header, work->x->record.request_id);
    if (e->trace)
        put_trace(w, work->x);
    edit_side_put(w, &e->request, &work->vars);
}

static void put_response(struct h1_writer *w, const void *ctx)
{
    const struct edit_work *work = ctx;
    const struct route_edit *e = work->x->edit;
    if (e->id_header)
        edit_put_id(w, e->id_header, work->x->record.request_id);
    edit_side_put(w, &e->response, &work->vars);
}

/* What both directions need; the rest is filled in by whoever needs it. */
static void begin_work(struct exchange *x, struct edit_work *w, const struct edit_side *side,
                       void (*put)(struct h1_writer *w, const void *ctx))
{
    w->x = x;
    record_client(&x->record, w->ip);
    w->vars = (struct template_vars){.client_ip = w->ip,
                                     .listener = x->edit->listener,
                                     .request_id = access_record_id(&x->record),
                                     .https = client_is_secure(x->client)};
    w->changes = (struct h1_changes){
        .drop = side->drop, .names = side->names, .nnames = side->nnames, .put = put, .ctx = w};
}

/* "OPTIONS *", in either form, asks for no path. */
static bool has_path(const struct http_head *head)
{
    if (head->target_form == HTTP_TARGET_ABSOLUTE && head->method == HTTP_OPTIONS)
        return head->path.len || head->has_query;
    return head->target_form != HTTP_TARGET_ASTERISK;
}

const struct h1_changes *edit_request(struct exchange *x, struct http_head *head,
                                      struct edit_work *w)
{
    const struct route_edit *e = x->edit;
    struct proxy *p = client_proxy(x->client);
    begin_work(x, w, &e->request, put_request);
    w->vars.head = head;
    w->vars.key = &w->key;
    w->changes.host = e->host;
    if (e->trace && !x->trace_begins)
        w->changes.nnames--; /* what others say of the trace goes on with it */
    if (!e->needs_key)
        return &w->changes;
    if (http_normalize_request(head, false, p->path, p->path_size, &w->key) != 0)
        return NULL;
    if (e->new_prefix && has_path(head)) {
        route_edit_path(e, w->key.path, w->key.path_len, &w->path);
        w->changes.path = &w->path;
    }
    return &w->changes;
}

const struct h1_changes *edit_response(struct exchange *x, struct edit_work *w)
{
    begin_work(x, w, &x->edit->response, put_response);
    return &w->changes;
}
