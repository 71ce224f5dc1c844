#include "dataplane/http/h1/connection.h"

#include "dataplane/http/chars.h"
#include "dataplane/http/h1/parse.h"

struct options {
    bool close, keep_alive, upgrade, te;
    unsigned count;
};

static bool same_text(const char *a, const char *b, size_t len)
{
    for (size_t i = 0; i < len; i++)
        if (http_lower(a[i]) != http_lower(b[i]))
            return false;
    return true;
}

static void nominate(struct http_head *head, const char *name, size_t len)
{
    for (unsigned i = 0; i < head->nheaders; i++) {
        struct http_header *f = &head->headers[i];
        if (f->name_len != len || f->flags & HTTP_HF_KEEP)
            continue;
        if (same_text(head->base + f->name_off, name, len))
            f->flags |= HTTP_HF_NOMINATED;
    }
}

static bool is_token(const char *text, size_t len)
{
    for (size_t i = 0; i < len; i++)
        if (!http_char_is(text[i], HTTP_C_TOKEN))
            return false;
    return len > 0;
}

static bool on_option(struct http_head *head, struct options *o, const char *text, size_t len)
{
    if (!is_token(text, len) || ++o->count > H1_MAX_OPTIONS)
        return false;
    if (HTTP_TEXT_IS(text, len, "close"))
        o->close = true;
    else if (HTTP_TEXT_IS(text, len, "keep-alive"))
        o->keep_alive = true;
    else if (HTTP_TEXT_IS(text, len, "upgrade"))
        o->upgrade = true;
    else if (HTTP_TEXT_IS(text, len, "te"))
        o->te = true;
    else
        nominate(head, text, len);
    return true;
}

static bool te_has_trailers(const struct http_head *head, const struct http_header *f)
{
    const char *p = head->base + f->value_off, *end = p + f->value_len, *text;
    size_t len;
    while (http_list_next(&p, end, &text, &len))
        if (HTTP_TEXT_IS(text, len, "trailers"))
            return true;
    return false;
}

static void apply_te(struct http_head *head)
{
    for (unsigned i = 0; i < head->nheaders; i++)
        if (head->headers[i].id == HTTP_H_TE && te_has_trailers(head, &head->headers[i]))
            head->te_trailers = true;
}

static bool read_options(struct http_head *head, struct options *o)
{
    for (unsigned i = 0; i < head->nheaders; i++) {
        const struct http_header *f = &head->headers[i];
        if (f->id != HTTP_H_CONNECTION)
            continue;
        const char *p = head->base + f->value_off, *end = p + f->value_len, *text;
        size_t len;
        while (http_list_next(&p, end, &text, &len))
            if (!on_option(head, o, text, len))
                return false;
    }
    return true;
}

bool h1_connection_apply(struct http_head *head)
{
    struct options o = {0};
    if (http_head_has(head, HTTP_H_CONNECTION) && !read_options(head, &o))
        return false;
    /* "close" wins over "keep-alive" (RFC 9112 §9.3). */
    head->keep_alive = !o.close && (head->version_minor >= 1 || o.keep_alive);
    head->upgrade = o.upgrade && http_head_has(head, HTTP_H_UPGRADE);
    if (o.te && http_head_has(head, HTTP_H_TE))
        apply_te(head);
    return true;
}
